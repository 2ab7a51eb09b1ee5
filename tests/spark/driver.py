"""A driver that streams a folder of files into a store; it may be killed on the way.

python -m tests.spark.driver FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyramidion import Pyramid
from pyramidion.spark import stream
from tests.spark.sessions import session
from tests.store.stores import START, Stand

FORM = "t double, y long, a string, b string"


def streamed(spark: Any, folder: Path, store: Pyramid) -> None:
    """Observe the files that are there, one in a batch."""
    source = spark.readStream.schema(FORM).option("maxFilesPerTrigger", 1)
    df = source.parquet(str(folder / "rows"))
    query = stream(df, store, checkpoint=folder / "checkpoint", trigger={"availableNow": True})
    query.awaitTermination()


def main(folder: Path) -> None:
    stand = Stand(folder)
    store = stand.open()
    spark = session(folder / "local")
    streamed(spark, folder, store)
    assert stand.clock() == START


if __name__ == "__main__":
    main(Path(sys.argv[1]))
