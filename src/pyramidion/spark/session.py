"""What is asked of a Spark session before raw rows, or a stream's tables and secret, go into it.

Exact partial counts are as raw as the rows they were made of (P1), and a shuffle writes them to
the local disks of executors. So these must be encrypted, under a key that Spark makes for the
application and that ends with it; and from one machine to another they go encrypted, too, for
the secret that keys are hashed with goes the same way. What Spark broadcasts lies on the disks of
driver and executors, too, as plain pickles where nothing is encrypted.

A shuffle that is not Spark's own may do as it likes with what it is given, so it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, overload

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from pyramidion.errors import PrivacyError, StateError
from pyramidion.rows.containers import missing_column
from pyramidion.spark.parquet import ParquetFiles

Source = DataFrame | ParquetFiles
"""Rows to be counted."""

IO = "spark.io.encryption.enabled"
NETWORK, TLS = "spark.network.crypto.enabled", "spark.ssl.rpc.enabled"
OWN = {
    "spark.shuffle.manager": (
        "sort",
        "tungsten-sort",
        "org.apache.spark.shuffle.sort.SortShuffleManager",
    ),
    "spark.shuffle.sort.io.plugin.class": (
        "org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO",
    ),
    "spark.storage.decommission.fallbackStorage.path": ("",),
}
"""Where shuffles go that are Spark's own, and encrypted by it; the first one is the default."""

COUNTS = "exact partial counts are raw data"
TABLES = "tables go to executors with the secret that keys are hashed with"
ROWS = "rows that arrive are raw data"


def context_of(df: Source) -> Any:
    """The Spark context that a DataFrame lives in."""
    session = df.sparkSession
    if not hasattr(session, "_jsparkSession"):
        raise StateError(
            "a Spark Connect session runs its driver elsewhere, where the store is not; make a "
            "session with master(...) in the process that owns the store"
        )
    return session.sparkContext


@overload
def chosen(df: DataFrame, names: Iterable[str]) -> DataFrame: ...
@overload
def chosen(df: ParquetFiles, names: Iterable[str]) -> ParquetFiles: ...
def chosen(df: Source, names: Iterable[str]) -> Source:
    """Some columns of a DataFrame: no other one is read, or sent to Python."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in df.columns:
            raise missing_column(name)
    if isinstance(df, ParquetFiles):
        return df.select(wanted)
    return df.select(*(col(f"`{name.replace('`', '``')}`") for name in wanted))


def empty(df: Source) -> pa.Table:
    """No row of a DataFrame, as executors would see it: to refuse types before a job begins."""
    if isinstance(df, ParquetFiles):
        return df.empty()
    none = df.sparkSession.createDataFrame([], df.schema)  # of a stream, too, nothing is read
    return none.limit(0).toArrow()


def refuse_unsafe(context: Any, what: str = COUNTS) -> None:
    """Raise where they would be readable on a disk, or on the way to another machine."""
    conf = context.getConf()
    if not _is_on(conf, IO):
        raise PrivacyError(
            f"{what}, and this session would write them to disk as they are; make it with {IO}=true"
        )
    foreign = next((name for name, own in OWN.items() if conf.get(name, own[0]) not in own), None)
    if foreign is not None:
        raise PrivacyError(
            f"{what}, and nothing tells whether what is set as {foreign} encrypts them; make the "
            f"session without it"
        )
    if not context.master.startswith("local") and not (_is_on(conf, NETWORK) or _is_on(conf, TLS)):
        raise PrivacyError(
            f"{what}, and this cluster would send them readable; make the session with "
            f"spark.authenticate=true and {NETWORK}=true"
        )


def _is_on(conf: Any, name: str) -> bool:
    return str(conf.get(name, "false")).strip().lower() == "true"
