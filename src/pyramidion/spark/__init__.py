"""Pyramidion on Apache Spark: counts and features in bulk, and streams into a store.

Names load when they are first used: executors need but a few modules, and little memory.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyramidion.errors import refuse_missing

__all__ = ["Counted", "ParquetFiles", "count", "count_into", "featurize", "stream", "training_set"]

_HOME_OF = {
    "Counted": "counting",
    "ParquetFiles": "parquet",
    "count": "counting",
    "count_into": "counting",
    "featurize": "features",
    "stream": "streaming",
    "training_set": "features",
}

if TYPE_CHECKING:
    from pyramidion.spark.counting import Counted, count, count_into
    from pyramidion.spark.features import featurize, training_set
    from pyramidion.spark.parquet import ParquetFiles
    from pyramidion.spark.streaming import stream


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'pyramidion.spark' has no attribute {name!r}")
    refuse_missing("pyramidion.spark", ["pyspark"], "spark")
    return getattr(import_module(f"pyramidion.spark.{home}"), name)


def __dir__() -> list[str]:
    return __all__
