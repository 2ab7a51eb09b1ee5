"""What is asked of a Spark session before raw rows are counted in it.

Exact partial counts are as raw as the rows they were made of (P1), and a shuffle writes them to
the local disks of executors. So these must be encrypted, under a key that Spark makes for the
application and that ends with it; and from one machine to another they go encrypted, too, for
the secret that keys are hashed with goes the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, overload

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import to_arrow_schema

from pyramidion.batches import missing_column
from pyramidion.errors import PrivacyError, StateError
from pyramidion.spark.parquet import ParquetFiles

Source = DataFrame | ParquetFiles
"""Rows to be counted."""

IO = "spark.io.encryption.enabled"
NETWORK, TLS = "spark.network.crypto.enabled", "spark.ssl.rpc.enabled"


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
    return to_arrow_schema(df.schema).empty_table()


def refuse_unsafe(context: Any) -> None:
    """Raise where partial counts would be readable on a disk, or on the way to another machine."""
    conf = context.getConf()
    if not _is_on(conf, IO):
        raise PrivacyError(
            f"exact partial counts are raw data, and this session's shuffles would write them "
            f"to disk as they are; make it with {IO}=true"
        )
    if not context.master.startswith("local") and not (_is_on(conf, NETWORK) or _is_on(conf, TLS)):
        raise PrivacyError(
            f"exact partial counts are raw data, and this cluster would send them readable; "
            f"make the session with spark.authenticate=true and {NETWORK}=true"
        )


def _is_on(conf: Any, name: str) -> bool:
    return str(conf.get(name, "false")).strip().lower() == "true"
