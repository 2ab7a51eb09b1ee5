"""A structured stream into a store: each row once, whatever dies on the way."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyramidion.errors import StateError
from pyramidion.spark import stream
from pyramidion.spark.streaming import _keyed
from pyramidion.web.client.rows import body_of
from tests.spark.driver import FORM, streamed
from tests.spark.test_counting import frame
from tests.store.inspect import populating
from tests.store.stores import DAY, SCHEMA, Stand, cells, exact, rows, same
from tests.web.client.service import TOKEN, serving

FILES = 4


def files(folder: Path) -> list[Any]:
    (folder / "rows").mkdir()
    tables = [rows(20, seed=n) for n in range(FILES)]
    for n, table in enumerate(tables):
        pq.write_table(table, folder / "rows" / f"{n}.parquet")
    return tables


def test_a_driver_that_is_killed_within_a_batch_has_each_row_counted_once(
    spark: Any, stand: Stand
) -> None:
    """It dies after the store has the second batch, and before Spark knows that it is done."""
    tables = files(stand.folder)
    stand.create(epsilon=math.inf)
    stand.close()
    words = [sys.executable, "-m", "tests.spark.driver", str(stand.folder)]
    armed = os.environ | {"PYRAMIDION_KILL_AT": "commit.after:2"}
    child = subprocess.run(words, env=armed, check=False, capture_output=True)
    assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]
    done = {file.name for file in (stand.folder / "checkpoint" / "commits").iterdir()}
    assert "0" in done
    assert "1" not in done
    store = stand.open()
    assert store.status().hot_rows == 2 * 20
    streamed(spark, stand.folder, store)
    assert store.status().hot_rows == sum(table.num_rows for table in tables)
    arena = populating(store)
    assert same(cells(arena), exact(store, arena, tables))


def test_a_batch_that_spark_repeats_after_its_rows_have_left_is_not_counted_again(
    spark: Any, stand: Stand
) -> None:
    """As where the driver died before Spark noted the last batch, and came back a week later."""
    tables = files(stand.folder)
    store = stand.create(epsilon=math.inf, count_window="30d")
    streamed(spark, stand.folder, store)
    stand.clock.pass_(7 * DAY)
    store.advance()
    assert store.status().hot_rows == 0
    commits = stand.folder / "checkpoint" / "commits"
    for file in (f"{FILES - 1}", f".{FILES - 1}.crc"):
        (commits / file).unlink()
    streamed(spark, stand.folder, store)
    assert (commits / f"{FILES - 1}").exists()
    assert store.status().hot_rows == 0
    arena = populating(store)
    assert same(cells(arena), exact(store, arena, tables))


def test_a_service_is_fed_through_a_client(spark: Any, stand: Stand, trainer: None) -> None:
    from pyramidion import Client

    tables = files(stand.folder)
    store = stand.create(epsilon=math.inf)
    with (
        serving(store, stand.clock) as service,
        Client(service.url, token=TOKEN, clock=stand.clock) as client,
    ):
        (name,) = client.streams()
        source = spark.readStream.schema(FORM).option("maxFilesPerTrigger", 2)
        df = source.parquet(str(stand.folder / "rows"))
        given = {"checkpoint": stand.folder / "checkpoint", "trigger": {"availableNow": True}}
        with pytest.raises(StateError, match="say by name"):
            stream(df, client, **given)
        stream(df, client, name, **given).awaitTermination()
    assert store.status().hot_rows == sum(table.num_rows for table in tables)


def test_bad_rows_end_a_stream_or_are_left_out(spark: Any, stand: Stand) -> None:
    files(stand.folder)
    bad = rows(5).set_column(1, "y", rows(5)["t"])
    pq.write_table(bad.cast(rows(1).schema), stand.folder / "rows" / "9.parquet")
    store = stand.create()
    df = spark.readStream.schema(FORM).parquet(str(stand.folder / "rows"))
    given = {"trigger": {"availableNow": True}}
    with pytest.raises(Exception, match="5 of 85 rows cannot be counted"):
        stream(df, store, checkpoint=stand.folder / "one", **given).awaitTermination()
    assert store.status().hot_rows == 0
    skip = stream(df, store, checkpoint=stand.folder / "two", errors="skip", **given)
    skip.awaitTermination()
    assert store.status().hot_rows == 80


def test_a_history_is_no_stream(spark: Any, stand: Stand) -> None:
    with pytest.raises(StateError, match="use count_into"):
        stream(frame(spark, rows(3)), stand.create(SCHEMA), checkpoint=stand.folder / "c")


def test_batch_in_another_order_is_sent_as_the_same_body() -> None:
    class Recorded:
        bodies: ClassVar[list[bytes]] = []

        def observe(self, name: str, rows: Any, **_: Any) -> None:
            self.bodies.append(body_of(rows).content)

    table = rows(50)
    order = np.random.default_rng(7).permutation(50)
    mixed = table.take(order)
    for each in (table, mixed, pa.concat_tables([mixed.slice(0, 9), mixed.slice(9)])):
        _keyed(Recorded(), "flights", each, "query", 1, errors="refuse")  # type: ignore[arg-type]
    assert len(set(Recorded.bodies)) == 1
