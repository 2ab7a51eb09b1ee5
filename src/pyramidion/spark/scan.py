"""A DataFrame that is Parquet files and nothing else: executors read these by themselves.

Spark hands a DataFrame's rows to Python one value at a time, which takes longer than counting
them. Where a DataFrame is a plain scan, the same files are read with Arrow, see `ParquetFiles`,
and give the same rows. That is so only where nothing of Spark's stands between the files and the
rows, so everything that is not known to be harmless leaves a DataFrame as it is:

    the plan      columns of one relation of Parquet files: no filter, limit, union, cache, rename
    the relation  listed files on a disk, no partitions, no table of a catalogue, no read options
    the session   no files may be skipped, no calendar is changed, nothing is encrypted
    every file    has each column by the same name, and in the type that Spark gives it
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pyramidion.errors import ObservationError
from pyramidion.spark.parquet import ParquetFiles
from pyramidion.spark.session import Source, empty

_SQL = "org.apache.spark.sql."
PROJECT = f"{_SQL}catalyst.plans.logical.Project"
COLUMN = f"{_SQL}catalyst.expressions.AttributeReference"
LEAF = f"{_SQL}execution.datasources.LogicalRelation"
RELATION = f"{_SQL}execution.datasources.HadoopFsRelation"
FORMAT = f"{_SQL}execution.datasources.parquet.ParquetFileFormat"
LISTED = f"{_SQL}execution.datasources.InMemoryFileIndex"

OPTIONS = {"path", "paths"}
OFF = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parquet.fieldId.read.enabled",
    "spark.sql.parquet.int96TimestampConversion",
)
CALENDARS = (
    "spark.sql.parquet.datetimeRebaseModeInRead",
    "spark.sql.parquet.int96RebaseModeInRead",
)
LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""A file that has one of these was written in the calendar that Spark used before version 3."""
VERSION = b"org.apache.spark.version"
ENCRYPTED = "parquet.crypto.factory.class"

TEXT = {pa.string(), pa.large_string()}
SAME = {
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.float32(), pa.float64(), pa.date32()),
}
"""Types whose values Arrow and Spark read alike, beside text and decimals."""
TICKS = {"s", "ms", "us"}  # a nanosecond is none to Spark


def quickest(df: Source, time: str | None) -> Source:
    """The files of a DataFrame where it is a plain scan of them, else the DataFrame itself.

    It has the wanted columns alone; ``time`` is which of them is the event time.
    """
    if isinstance(df, ParquetFiles):
        return df
    try:
        paths = _paths(df)
        if not paths:
            return df
        files = ParquetFiles(df.sparkSession, *paths)
        columns = list(df.columns)
        alike = _is_alike(files, empty(df).schema, time)
        return files.select(columns) if alike else df
    except (Py4JError, PySparkException, pa.ArrowException, OSError, ObservationError):
        return df  # whatever it is, Spark tells it better


# --- what Spark would do ------------------------------------------------------------------------


def _paths(df: DataFrame) -> list[str]:
    """The files that Spark would read, where it would do nothing else; else none."""
    relation = _relation(df)
    if relation is None or not _is_plain(relation) or not _is_usual(df.sparkSession):
        return []
    found = [urlsplit(str(file)) for file in relation.location().inputFiles()]
    paths = [unquote(file.path) for file in found]
    names = [path.rpartition("/")[2] for path in paths]
    local = all(file.scheme == "file" and not file.netloc for file in found)
    if not local or len(set(paths)) < len(paths) or any(n.startswith(("_", ".")) for n in names):
        return []
    return paths


def _relation(df: DataFrame) -> Any:
    """What is read, where columns of one relation are all that the DataFrame is; else None."""
    plan = df._jdf.queryExecution().optimizedPlan()
    while _is_a(plan, PROJECT) and all(_is_a(each, COLUMN) for each in _each(plan.projectList())):
        plan = plan.child()
    plain = _is_a(plan, LEAF) and not plan.isStreaming() and plan.catalogTable().isEmpty()
    return plan.relation() if plain else None


def _is_plain(relation: Any) -> bool:
    return (
        _is_a(relation, RELATION)
        and _is_a(relation.fileFormat(), FORMAT)
        and _is_a(relation.location(), LISTED)
        and relation.partitionSchema().length() == 0
        and relation.bucketSpec().isEmpty()
        and {str(name).lower() for name in _each(relation.options().keys().toSeq())} <= OPTIONS
    )


def _is_usual(session: Any) -> bool:
    """Whether the session reads files as they are, or not at all."""
    known = session.conf
    off = all(str(known.get(name)).lower() == "false" for name in OFF)
    same = all(str(known.get(name)).upper() == "CORRECTED" for name in CALENDARS)
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    return off and same and hadoop.get(ENCRYPTED) is None


def _is_a(thing: Any, kind: str) -> bool:
    """Exactly: a class that extends another one may do more."""
    return str(thing.getClass().getName()) == kind


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(place) for place in range(sequence.size()))


# --- what is in the files -----------------------------------------------------------------------


def _is_alike(files: ParquetFiles, seen: pa.Schema, time: str | None) -> bool:
    """Whether every file has the columns as Spark sees them."""
    return all(
        _is_modern(schema.metadata or {})
        and all(schema.names.count(field.name) == 1 for field in seen)
        and all(
            _is_instant(schema.field(f.name).type, f.type, lie.get(f.name))
            if f.name == time and pa.types.is_timestamp(f.type)
            else _is_same(schema.field(f.name).type, f.type)
            for f in seen
        )
        for schema, lie in ((schema, _physical(each)) for schema, each in files.footers())
    )


def _physical(schema: Any) -> dict[str, str]:
    """The types that columns have in the file itself."""
    columns = (schema.column(place) for place in range(len(schema)))
    return {column.path: column.physical_type for column in columns}


def _is_same(file: pa.DataType, spark: pa.DataType) -> bool:
    if spark in TEXT:
        return file in TEXT
    return bool(file == spark and (spark in SAME or pa.types.is_decimal128(spark)))


def _is_instant(file: pa.DataType, spark: pa.DataType, physical: str | None) -> bool:
    """Whether an event time is the same moment either way.

    The oldest way to write one, in 96 bits, is in UTC where Spark wrote it; Arrow cannot know.
    """
    if not pa.types.is_timestamp(file) or file.unit not in TICKS:
        return False
    in_utc = file.tz is not None or physical == "INT96"
    return in_utc == (spark.tz is not None)


def _is_modern(told: dict[bytes, bytes]) -> bool:
    """Whether a file's dates are of today's calendar."""
    old = told.get(VERSION, b"").split(b".")[0] in (b"1", b"2")
    return not old and not any(name in told for name in LEGACY)
