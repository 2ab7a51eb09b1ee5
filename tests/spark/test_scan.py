"""A plain scan of Parquet files is read by executors themselves, and whatever is more is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyramidion import Categorical, Label, Schema
from pyramidion.spark import ParquetFiles, count, count_into, scan
from pyramidion.spark.scan import quickest
from pyramidion.spark.session import chosen
from tests.spark.test_counting import by_hand, history
from tests.spark.test_types import TYPED, typed
from tests.store.stores import SCHEMA, Stand, cells, same, tiny

NAMES = ("t", "y", "a", "b")
OFF = {"epsilon": math.inf}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of rows and a column that nobody asks for, in a folder of an awkward name."""
    made = tmp_path / "rows of 100%"
    made.mkdir()
    table = history().append_column("other", pa.array(range(400)))
    for n in range(2):
        pq.write_table(table.slice(n * 200, 200), made / f"{n} +%20.parquet", row_group_size=70)
    return made


def looked_at(df: Any, *names: str, time: str | None = "t") -> Any:
    return quickest(chosen(df, names or NAMES), time)


# --- what is read directly ----------------------------------------------------------------------


def test_a_plain_scan_is_counted_from_its_files_cell_by_cell_alike(
    spark: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = spark.read.parquet(str(folder))
    files = looked_at(df)
    assert isinstance(files, ParquetFiles)
    assert files.columns == list(NAMES)
    read: list[Any] = []
    real = ParquetFiles.mapInArrow

    def mapped(self: ParquetFiles, *given: Any) -> Any:
        read.append(self)
        return real(self, *given)

    monkeypatch.setattr(ParquetFiles, "mapInArrow", mapped)
    monkeypatch.setattr("secrets.token_bytes", lambda size: bytes(size))  # the same buckets
    direct = count(df, SCHEMA, tiny(**OFF))
    assert len(read) == 1
    monkeypatch.setattr(scan, "_paths", lambda _: [])
    handed = count(df, SCHEMA, tiny(**OFF))
    assert len(read) == 1
    assert [w.start for w in direct.windows] == [w.start for w in handed.windows]
    assert len(direct.windows) >= 3
    for one, other in zip(direct.windows, handed.windows, strict=True):
        assert same(cells(one.arena), cells(other.arena))
    expected = by_hand(history(), direct, SCHEMA, **OFF)
    assert all(same(cells(w.arena), expected[w.start]) for w in direct.windows)


def test_a_store_is_filled_from_the_files_of_a_plain_scan(
    spark: Any, folder: Path, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = spark.read.parquet(str(folder)).select("t", "a", "b", "y")
    real = type(df).mapInArrow

    def mapped(self: Any, *given: Any) -> Any:
        assert self.columns == ["id"]  # which files a task has, not their rows
        return real(self, *given)

    monkeypatch.setattr(type(df), "mapInArrow", mapped)
    assert count_into(df, stand.create(**OFF)).rows == 400


def test_selections_views_and_globs_are_plain_scans(spark: Any, folder: Path) -> None:
    df = spark.read.parquet(str(folder))
    df.createOrReplaceTempView("clicks")
    each = [
        df.select("other", *NAMES).drop("other"),
        spark.sql("SELECT b, a, y, t FROM clicks"),
        spark.sql(f"SELECT * FROM parquet.`{folder}`"),  # noqa: S608
        spark.read.parquet(f"{folder}/*.parquet"),
        spark.read.parquet(*map(str, sorted(folder.iterdir()))),
        df.alias("c").select("c.*").hint("broadcast"),
    ]
    assert all(isinstance(looked_at(df), ParquetFiles) for df in each)


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_event_times_that_spark_wrote_are_the_same_moments(
    spark: Any, tmp_path: Path, kind: str, zone: str
) -> None:
    name, path = "spark.sql.parquet.outputTimestampType", str(tmp_path / "typed")
    before = {n: spark.conf.get(n) for n in (name, "spark.sql.session.timeZone")}
    schema = Schema(time="t", label=Label("y", classes=[0, 1]), features=[Categorical("day")])
    table = typed()
    if kind == "TIMESTAMP_MILLIS":
        millis = table["t"].cast(pa.timestamp("ms", "UTC"), safe=False)
        table = table.set_column(0, "t", millis.cast(pa.timestamp("us", "UTC")))
    try:
        spark.conf.set(name, kind)
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.createDataFrame(table).select("t", "y", "day").write.parquet(path)
        df = spark.read.parquet(path)
        assert isinstance(looked_at(df, "t", "y", "day"), ParquetFiles)
        by_frame = count(df, schema, tiny(**OFF))
        by_files = count(ParquetFiles(spark, path), schema, tiny(**OFF))
    finally:
        for each in before.items():
            spark.conf.set(*each)
    for found in (by_frame, by_files):
        expected = by_hand(table, found, schema, **OFF)
        assert [w.start for w in found.windows] == sorted(expected)
        assert all(same(cells(w.arena), expected[w.start]) for w in found.windows)


def test_types_that_arrow_and_spark_read_alike_are_read_directly(
    spark: Any, tmp_path: Path
) -> None:
    pq.write_table(typed(), tmp_path / "typed.parquet")
    df = spark.read.parquet(str(tmp_path / "typed.parquet"))
    assert isinstance(looked_at(df, "t", "y", "day", "price"), ParquetFiles)
    found = count(df.drop("at", "local"), _without("at", "local"), tiny(**OFF))
    expected = by_hand(typed(), found, _without("at", "local"), **OFF)
    assert all(same(cells(w.arena), expected[w.start]) for w in found.windows)
    assert not isinstance(looked_at(df, "t", time=None), ParquetFiles)


def _without(*names: str) -> Schema:
    features = [each for each in TYPED.features if each.name not in names]
    return Schema(time="t", label=TYPED.label, features=features)


# --- what is not --------------------------------------------------------------------------------


def _partitioned(spark: Any, folder: Path) -> Any:
    path = folder.parent / "parts"
    spark.read.parquet(str(folder)).write.partitionBy("other").parquet(str(path))
    return spark.read.parquet(str(path))


def _with(name: str, value: str) -> Callable[[Any, Path], Any]:
    return lambda spark, folder: spark.read.option(name, value).parquet(str(folder))


def _schema(form: str) -> Callable[[Any, Path], Any]:
    return lambda spark, folder: spark.read.schema(form).parquet(str(folder))


def _frame(change: Callable[[Any], Any]) -> Callable[[Any, Path], Any]:
    return lambda spark, folder: change(spark.read.parquet(str(folder)))


def _again(spark: Any, folder: Path) -> Any:
    file = str(min(folder.iterdir()))
    return spark.read.parquet(file, file)


def _streaming(spark: Any, folder: Path) -> Any:
    form = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(form).parquet(str(folder))


def _orc(spark: Any, folder: Path) -> Any:
    path = str(folder.parent / "orc")
    spark.read.parquet(str(folder)).write.orc(path)
    return spark.read.orc(path)


def _table(spark: Any, folder: Path) -> Any:
    spark.catalog.createTable("clicks_table", str(folder), "parquet")
    df = spark.table("clicks_table").select(*NAMES)
    df._jdf.queryExecution().optimizedPlan()  # which stays as it is
    spark.sql("DROP TABLE clicks_table")
    return df


MORE = {
    "a filter": _frame(lambda df: df.filter("y = 1")),
    "a limit": _frame(lambda df: df.limit(3)),
    "a sample": _frame(lambda df: df.sample(1.0)),
    "a union": _frame(lambda df: df.union(df)),
    "an order": _frame(lambda df: df.orderBy("t")),
    "parts": _frame(lambda df: df.repartition(3)),
    "no row twice": _frame(lambda df: df.dropDuplicates()),
    "a new column": _frame(lambda df: df.selectExpr("t", "1 - y AS y", "a", "b")),
    "a renamed column": _frame(lambda df: df.selectExpr("t", "y", "b AS a", "a AS b")),
    "a partitioned folder": _partitioned,
    "a narrower schema": _schema("t double, y int, a string, b string"),
    "a schema of other names": _schema("T double, Y long, A string, B string"),
    "a column that no file has": _schema("t double, y long, a string, b string, c string"),
    "a merged schema": _with("mergeSchema", "true"),
    "some files": _with("pathGlobFilter", "0*"),
    "files that may be bad": _with("ignoreCorruptFiles", "true"),
    "the same file twice": _again,
    "a stream": _streaming,
    "another format": _orc,
    "a table of the catalogue": _table,
}


@pytest.mark.parametrize("what", MORE)
def test_what_is_more_than_a_plain_scan_is_left_to_spark(
    spark: Any, folder: Path, what: str
) -> None:
    df = MORE[what](spark, folder)
    names = [*NAMES, "c"] if "c" in df.columns else NAMES
    names = [n.upper() for n in NAMES] if "T" in df.columns else names
    assert not isinstance(looked_at(df, *names), ParquetFiles)


def test_a_cached_dataframe_is_not_read_again(spark: Any, folder: Path) -> None:
    df = spark.read.parquet(str(folder))
    df.select("y").collect()
    df.cache()
    try:
        assert not isinstance(looked_at(df), ParquetFiles)
        assert not isinstance(looked_at(spark.read.parquet(str(folder))), ParquetFiles)
    finally:
        df.unpersist()
    assert isinstance(looked_at(df), ParquetFiles)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.files.ignoreCorruptFiles", "true"),
        ("spark.sql.files.ignoreMissingFiles", "true"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
        ("spark.sql.parquet.int96RebaseModeInRead", "EXCEPTION"),
        ("spark.sql.parquet.int96TimestampConversion", "true"),
        ("spark.sql.sources.useV1SourceList", ""),
    ],
)
def test_a_session_that_reads_files_otherwise_is_left_to_do_so(
    spark: Any, folder: Path, name: str, value: str
) -> None:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        assert not isinstance(looked_at(spark.read.parquet(str(folder))), ParquetFiles)
    finally:
        spark.conf.set(name, before)


def _changed(table: pa.Table) -> dict[str, pa.Table]:
    """Files that lie beside one as Spark sees it, and are not like it."""
    small = table["y"].cast(pa.int32())
    kinds = table["a"].cast(pa.dictionary(pa.int32(), pa.string()))
    return {
        "a narrower type": table.set_column(1, "y", small),
        "an unsigned type": table.set_column(1, "y", table["y"].cast(pa.uint8())),
        "no such column": table.drop_columns(["b"]),
        "another case": table.rename_columns(["t", "y", "A", "b"]),
        "an old calendar": table.replace_schema_metadata({b"org.apache.spark.version": b"2.4.0"}),
        "a legacy mark": table.replace_schema_metadata({b"org.apache.spark.legacyDateTime": b""}),
        "a dictionary": table.set_column(2, "a", kinds),
    }


def test_one_file_that_is_not_alike_leaves_all_of_them_to_spark(
    spark: Any, folder: Path, tmp_path: Path
) -> None:
    for what, table in _changed(history()).items():
        pq.write_table(table, folder / "2.parquet")
        df = spark.read.parquet(str(folder))
        assert not isinstance(looked_at(df), ParquetFiles), what
    (folder / "2.parquet").write_bytes(b"")
    assert not isinstance(looked_at(spark.read.parquet(str(folder))), ParquetFiles)
    (folder / "2.parquet").unlink()
    assert isinstance(looked_at(spark.read.parquet(str(folder))), ParquetFiles)
