"""Data files of every format: what comes in, and what is said when it does not."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, feather, parquet

from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.config.spelling import BY_TEXT, BY_TYPE
from pyramidion.errors import ObservationError, PyramidionError, SchemaError
from pyramidion.rows import text_files as files_text
from pyramidion.rows.containers import ABSENT, columns_of, joined
from pyramidion.rows.files import DataFile
from pyramidion.rows.observations import Door, types_for

CANARY = "CANARY-7291"
SCHEMA = Schema(
    time="at",
    unit="user",
    weight="propensity",
    label=Label("late", classes=[0, 1]),
    features=[
        Categorical("carrier"),
        Categorical("fresh", domain=[False, True]),
        Continuous("distance", edges=[0.5]),
    ],
)
TABLE = pa.table(
    {
        "at": pa.array([1_500_000, None, 3_000_000], pa.timestamp("us")),
        "carrier": ["UA", "NA", None],
        "fresh": [True, False, None],
        "distance": [1.0, None, -2.5],
        "late": [1, 0, 1],
        "propensity": [0.5, 1.0, 0.25],
        "user": ["u1", "u2", "u3"],
        "unused": [[1], [2], [3]],
    }
)
FORMATS = ("csv", "tsv", "csv.gz", "ndjson", "jsonl", "ndjson.gz", "parquet", "feather", "arrow")
COLUMNS = list(SCHEMA.columns)
DOORS = {
    keyed_by: Door(SCHEMA, Settings(epsilon=1.0, p_min=0.1), b"a secret", keyed_by)
    for keyed_by in (BY_TEXT, BY_TYPE)
}


def content(table, suffix):
    """The bytes of a table in a format."""
    if suffix.endswith(".gz"):
        return gzip.compress(content(table, suffix.removesuffix(".gz")))
    out = io.BytesIO()
    if suffix in ("csv", "tsv"):
        flat = table.drop_columns(["unused"]) if "unused" in table.column_names else table
        csv.write_csv(flat, out, csv.WriteOptions(delimiter="\t" if suffix == "tsv" else ","))
    elif suffix in ("ndjson", "jsonl"):
        rows = (json.dumps(row, default=str, ensure_ascii=False) for row in table.to_pylist())
        out.write("".join(row + "\n" for row in rows).encode())
    elif suffix == "parquet":
        parquet.write_table(table, out, row_group_size=2)
    elif suffix == "feather":
        feather.write_feather(table, out, chunksize=2)
    elif suffix == "arrow":
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return out.getvalue()


def saved(path: Path, table) -> DataFile:
    path.write_bytes(content(table, path.name.partition(".")[2]))
    return DataFile(path)


def written(path: Path, text: str | bytes) -> DataFile:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return DataFile(path)


def read(file, columns=None, types=None, **options):
    """The values of all columns; a key that a row of NDJSON did not have is `ABSENT`."""
    tables = list(file.batches(columns, types=types, **options))
    assert all(table.num_rows for table in tables)
    if not tables:
        return {}
    found, _ = columns_of(joined(tables), tables[0].column_names)
    return {n: c if isinstance(c, list) else c.to_pylist() for n, c in found.items()}


def told(table, keyed_by=BY_TEXT):
    """All that the store makes of a table."""
    found = DOORS[keyed_by].observations(table, errors="skip")
    keys = found.matrix(0, len(found)).tolist()
    rest = (found.labels, found.weights, found.times, found.units)
    return [keys, *(column.tolist() for column in rest), found.problems]


def refusal(file, columns=None, types=None):
    with pytest.raises(ObservationError) as caught:
        list(file.batches(columns, types=types))
    return checked(caught.value)


def checked(error):
    """The message of an error that holds no value, nor does any error behind it."""
    assert error.__context__ is None
    assert error.__cause__ is None
    assert CANARY not in str(error)
    assert CANARY not in repr(error.args)
    return str(error)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(files_text, "BLOCK", 64)


# Round trips


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("rows", [1, 2, 65_536])
@pytest.mark.parametrize("keyed_by", [BY_TEXT, BY_TYPE])
def test_every_format_gives_the_same_rows(tmp_path, suffix, rows, keyed_by):
    file = saved(tmp_path / f"data.{suffix}", TABLE)
    tables = list(file.batches(COLUMNS, types=types_for(SCHEMA, keyed_by), rows=rows))
    assert told(joined(tables), keyed_by) == told(TABLE, keyed_by)
    assert max(table.num_rows for table in tables) <= rows
    assert tables[0].column_names == COLUMNS


@pytest.mark.parametrize("suffix", ["csv", "tsv", "ndjson", "parquet", "feather", "arrow"])
def test_standard_input_gives_the_same_rows(monkeypatch, suffix):
    stdin = SimpleNamespace(buffer=io.BytesIO(content(TABLE, suffix)))
    monkeypatch.setattr(sys, "stdin", stdin)
    file = DataFile("-", format={"feather": "arrow"}.get(suffix, suffix))
    assert (file.size, file.rows_hint, file.once) == (None, None, True)
    assert told(joined(list(file.batches(COLUMNS)))) == told(TABLE)


@pytest.mark.parametrize("suffix", ["csv", "ndjson", "parquet", "feather", "arrow"])
def test_a_named_pipe_is_read_once(tmp_path, suffix):
    pipe = tmp_path / f"data.{suffix}"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content(TABLE, suffix),))
    writer.start()
    file = DataFile(pipe)
    assert (file.once, file.size) == (True, None)
    assert told(joined(list(file.batches(COLUMNS)))) == told(TABLE)
    writer.join()


def test_sizes_are_known_and_rows_where_an_index_tells(tmp_path):
    hints = {s: saved(tmp_path / f"data.{s}", TABLE).rows_hint for s in FORMATS}
    assert {suffix for suffix, rows in hints.items() if rows == 3} == {"parquet", "feather"}
    assert set(hints.values()) == {3, None}
    file = DataFile(tmp_path / "data.csv")
    assert file.size == len(content(TABLE, "csv"))


def test_dictionaries_that_change_from_batch_to_batch_are_kept(tmp_path):
    one = pa.array(["a", "b"]).dictionary_encode()
    two = pa.array(["c", "a"]).dictionary_encode()
    batches = [pa.record_batch({"x": [0, 0], "d": d}) for d in (one, two)]
    with pa.ipc.new_stream(tmp_path / "d.arrow", batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert read(DataFile(tmp_path / "d.arrow"), ["d"]) == {"d": ["a", "b", "c", "a"]}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "ndjson"])
def test_a_reading_given_up_early_leaves_nothing_behind(tmp_path, suffix):
    file = saved(tmp_path / f"data.{suffix}", pa.table({"a": np.arange(200_000)}))
    for _ in range(5):
        batches = file.batches(["a"])
        assert next(batches).num_rows
        batches.close()


def test_a_file_of_many_blocks_is_read_in_order(tmp_path):
    table = pa.table({"a": np.arange(150_000), "b": np.arange(150_000).astype(str)})
    for suffix in ("csv", "csv.gz", "ndjson"):
        file = saved(tmp_path / f"data.{suffix}", table)
        tables = list(file.batches(["b", "a"], types={"a": pa.int64()}))
        assert len(tables) > 1
        assert pa.concat_tables(tables).equals(table.select(["b", "a"]))


# Types


def test_the_schema_says_how_text_is_read():
    kinds = {
        "ints": ([1, 2], "int64"),
        "large": ([1, 2**64 - 1], "uint64"),
        "bools": ([False, True], "bool"),
        "flags": ([False, 2], "int64"),
        "floats": ([0.5, 1.5], "double"),
        "numbers": ([1, 1.5], "double"),
        "texts": (["a", "b"], "string"),
        "mixed": (["a", 1], "string"),
        "bytes": ([b"a", b"b"], "binary"),
        "open": (None, "string"),
    }
    features = [Categorical(name, domain=domain) for name, (domain, _) in kinds.items()]
    labels = [Label("c", classes=[False, True]), Label("e", edges=[1])]
    schema = Schema(features=features, label=labels, time="t", weight="w", unit="open")
    expected = {name: kind for name, (_, kind) in kinds.items() if kind != "string"}
    expected |= {"c": "bool"}
    assert {name: str(kind) for name, kind in types_for(schema, BY_TYPE).items()} == expected
    assert types_for(schema, BY_TEXT) == {}


def test_open_text_in_csv_stays_as_it_is_written(tmp_path):
    file = written(tmp_path / "data.csv", 'a,b\n007,1\nNA,2\n1.50,3\ntrue,4\n"",5\n,6\n"x\ny",7\n')
    assert read(file, ["a"], {"a": pa.string()}) == {
        "a": ["007", "NA", "1.50", "true", None, None, "x\ny"]
    }


def test_declared_booleans_and_numbers_in_csv_may_be_missing(tmp_path):
    file = written(tmp_path / "data.csv", "a,b\n1,1.5\ntrue,NA\nFalse,\n0,NaN\n,2\n")
    found = read(file, ["a", "b"], {"a": pa.bool_(), "b": pa.float64()})
    assert found == {"a": [True, True, False, False, None], "b": [1.5, None, None, None, 2.0]}


def test_what_is_no_declared_value_stays_text(tmp_path):
    file = written(tmp_path / "data.csv", "a,b\n1,x\n y ,1.5\n 2 ,NA\n")
    found = read(file, ["a", "b"], {"a": pa.int64(), "b": pa.float64()})
    assert found == {"a": [1, " y ", 2], "b": ["x", 1.5, None]}


NUMBERS = [("1.5", 1.5), (" -2e3\t", -2000.0), ("+.5", 0.5), ("7.", 7.0), ("NA", None), ("", None)]
BAD_NUMBERS = ["x", "1_0", "0x1F", "1,5", "1e", "inf", "1e999", "\u0663"]


@pytest.mark.parametrize("bad", BAD_NUMBERS)
def test_each_number_in_csv_is_read_by_itself(tmp_path, bad):
    schema = Schema(features=[Continuous("x", edges=[0, 1])], label=Label("y", classes=["a", "b"]))
    door = Door(schema, Settings(epsilon=1.0), b"a secret")
    for others in (NUMBERS, NUMBERS[:1]):
        texts = [*(text for text, _ in others), bad]
        file = written(tmp_path / "data.csv", "x,y\n" + "".join(f'"{t}",a\n' for t in texts))
        found, batch = door.arrivals(joined(list(file.batches(["x", "y"]))), "skip")
        assert batch.columns["x"].to_pylist() == [number for _, number in others]
        assert list(found.problems.values()) == [[len(others)]]
        rows = [{"x": text, "y": "a"} for text in texts]
        assert door.observations(rows, "skip").problems == found.problems


def test_a_column_empty_at_first_is_text(tmp_path, small_blocks):
    file = written(tmp_path / "data.csv", "a,b\n" + ",1\n" * 100 + "x,2\n")
    assert read(file)["a"] == [None] * 100 + ["x"]


@pytest.mark.parametrize("header", ["a,b\n", "a,b", "\ufeffa,b\r\n"])
def test_a_header_alone_has_no_rows(tmp_path, header):
    assert read(written(tmp_path / "data.csv", header), ["b"], {"b": pa.int64()}) == {}


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow", "ndjson"])
def test_a_file_without_rows_has_no_batches(tmp_path, suffix):
    assert read(saved(tmp_path / f"data.{suffix}", TABLE.slice(0, 0)), COLUMNS) == {}


def test_json_keeps_its_own_types(tmp_path):
    rows = [
        {"a": 17, "b": "17", "c": True, "d": 1, "e": 18446744073709551615, "f": 10**30},
        {"a": 17.0, "b": 17, "c": 1, "d": 0.5, "e": "x", "f": None},
        {"a": "17", "b": None, "c": None, "d": True, "e": 0, "f": float("inf")},
    ]
    file = written(tmp_path / "data.ndjson", "\n".join(map(json.dumps, rows)) + "\n")
    found = read(file)
    for number, row in enumerate(rows):
        for name, value in row.items():
            assert (type(found[name][number]), found[name][number]) == (type(value), value)


def test_a_json_key_missing_in_a_row_is_missing_from_that_row(tmp_path):
    file = written(tmp_path / "data.ndjson", '{"a": 1}\n\n{"b": 2}\n')
    assert read(file, ["b", "a"]) == {"b": [ABSENT, 2], "a": [1, ABSENT]}


def test_one_row_of_ndjson_does_not_change_how_another_is_read(tmp_path):
    ids = [700_000_000_000_000_001 + i for i in range(1000)]
    line = '{{"a": {}}}\n'
    alone = read(written(tmp_path / "a.ndjson", "".join(map(line.format, ids))))["a"]
    more = "".join(map(line.format, [*ids, 0.5]))
    assert read(written(tmp_path / "b.ndjson", more))["a"][:-1] == alone == ids


def test_a_broken_column_nobody_asked_for_does_no_harm(tmp_path, small_blocks):
    file = written(tmp_path / "data.ndjson", '{"a": 1, "b": "x"}\n{"a": 2, "b": 3}\n' * 50)
    assert read(file, ["a"])["a"] == [1, 2] * 50
    file = written(tmp_path / "data.csv", "a,b\n" + "1,2\n" * 50 + "1,x\n")
    assert read(file, ["a"])["a"] == ["1"] * 51


# Times

MOMENT = dt.datetime(2013, 1, 1, 5)
TIMES = Door(
    Schema(time="at", features=[Categorical("b")], label=Label("y", classes=["a", "b"])),
    Settings(epsilon=1.0),
    b"a secret",
)


def times(path, texts):
    """Times of rows of a file, None for those that are refused."""
    table = pa.table({"at": texts, "b": ["x"] * len(texts), "y": ["a"] * len(texts)})
    rows = joined(list(saved(path, table).batches(["at", "b", "y"])))
    found = TIMES.observations(rows, errors="skip")
    bad = {row for rows in found.problems.values() for row in rows}
    moments = iter(found.times.tolist())
    return [None if row in bad else next(moments) for row in range(len(texts))]


def micros(moment):
    return (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


@pytest.mark.parametrize("suffix", ["csv", "ndjson"])
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2013-01-01 05:00:00", "2013-01-01T05:00"], [MOMENT] * 2),
        (["2013-01-01T05:00:00Z", "2013-01-01 07:00:00+02:00"], [MOMENT] * 2),
        (["2013-01-01 05:00:00", "2013-01-01 07:00:00+02:00"], [MOMENT] * 2),
        (["2013-01-01 05:00:00", "2013-01-01 05:00:00.000000999"], [MOMENT] * 2),
        (["2013-01-01 05:00:00", CANARY, "", "NA"], [MOMENT, None, None, None]),
        (["1357016400", CANARY, " 1357016400 ", "1_0"], [MOMENT, None, MOMENT, None]),
        (["1357016400", "2013-01-01T05:00"], [MOMENT] * 2),
        (["1.357016400e9", "20130101"], [MOMENT, dt.datetime(1970, 8, 21, 23, 41, 41)]),
        (["noon", "midnight"], [None, None]),
        (["0000-01-01", "2013-01-01T05:00"], [None, MOMENT]),
        (["0000-01-01", "0000-01-01"], [None, None]),
    ],
)
def test_each_time_in_text_is_read_by_itself(tmp_path, suffix, texts, expected):
    wanted = [None if moment is None else micros(moment) for moment in expected]
    assert times(tmp_path / f"data.{suffix}", texts) == wanted
    alone = [times(tmp_path / f"data.{suffix}", [text]) for text in texts]
    assert alone == [[time] for time in wanted]


def test_most_rows_do_not_decide_which_times_can_be_read(tmp_path, small_blocks):
    texts = [*["2013-01-01"] * 50, "2013-01-01 00:00:00.25", "17", "1.5"]
    found = times(tmp_path / "data.csv", texts)
    assert found[50:] == [micros(dt.datetime(2013, 1, 1)) + 250_000, 17_000_000, 1_500_000]


@given(st.lists(st.datetimes(dt.datetime(1, 1, 1)), min_size=1, max_size=20))
def test_iso_times_read_as_python_reads_them(tmp_path_factory, moments):
    path = tmp_path_factory.mktemp("times") / "data.csv"
    assert times(path, [time.isoformat() for time in moments]) == list(map(micros, moments))


# Refusals


def test_a_path_that_is_no_file_is_named(tmp_path):
    with pytest.raises(SchemaError, match=r"no file .*nowhere.csv; give"):
        DataFile(tmp_path / "nowhere.csv")
    with pytest.raises(SchemaError, match="is a directory; give"):
        DataFile(tmp_path)
    (tmp_path / "notes.docx").touch()
    (tmp_path / "data.parquet.gz").touch()
    with pytest.raises(SchemaError, match=r"known format; use one of .csv"):
        DataFile(tmp_path / "notes.docx")
    with pytest.raises(SchemaError, match=r"known format; use one of .csv"):
        DataFile(tmp_path / "data.parquet.gz")
    with pytest.raises(SchemaError, match="unpack it first"):
        DataFile(tmp_path / "data.parquet.gz", format="parquet")
    with pytest.raises(SchemaError, match="no data format 'docx'; use one of csv"):
        DataFile(tmp_path / "notes.docx", format="docx")
    with pytest.raises(SchemaError, match=r"standard input .* say which of csv"):
        DataFile("-")
    assert DataFile(tmp_path / "notes.docx", format="ndjson").format == "ndjson"


@pytest.mark.parametrize("suffix", [suffix for suffix in FORMATS if "json" not in suffix])
def test_a_missing_column_is_named_with_the_file(tmp_path, suffix):
    file = saved(tmp_path / f"data.{suffix}", TABLE)
    assert f"data.{suffix} has no column 'dest'; add it" in refusal(file, ["carrier", "dest"])


def test_a_column_there_twice_is_refused_when_asked_for(tmp_path):
    file = written(tmp_path / "data.csv", "a,a,b\n1,2,3\n")
    assert "two columns called 'a'; rename" in refusal(file, ["a"])
    assert read(file, ["b"]) == {"b": ["3"]}


LONG = pa.table(
    {"a": [CANARY + str(i) for i in range(5_000)], "b": np.random.default_rng(0).random(5_000)}
)
EXPECTED = {
    "csv": "rows of as many fields",
    "tsv": "rows of as many fields",
    "csv.gz": "rows of as many fields",
    "ndjson": "one JSON object on each line",
    "ndjson.gz": "one JSON object on each line",
    "parquet": "a whole Parquet file",
    "feather": "a whole Arrow IPC file or stream",
    "arrow": "a whole Arrow IPC file or stream",
}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", EXPECTED)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_a_file_cut_short_is_named_with_what_was_expected(tmp_path, suffix, share):
    whole = content(LONG, suffix)
    cut = whole[: int(len(whole) * share)]
    if suffix in ("csv", "tsv"):
        cut = cut[: cut.rfind(b"\n") + 5]  # within the first field
    if suffix == "ndjson":
        cut = cut[: cut.rfind(b"\n") + 12]
    message = refusal(written(tmp_path / f"data.{suffix}", cut))
    assert f"data.{suffix} cannot be read as " in message
    assert f"cut short: expected {EXPECTED[suffix]}" in message or EXPECTED[suffix] in message


def test_the_row_of_the_damage_is_told(tmp_path):
    rows = f"{CANARY},1\n" * 200_000
    message = refusal(written(tmp_path / "data.csv", f"a,b\n{rows}{CANARY}\n"))
    assert "after row 1" in message


@pytest.mark.slow
@pytest.mark.parametrize("suffix", EXPECTED)
def test_no_damage_to_a_file_lets_a_value_out(tmp_path, suffix):
    whole = bytearray(content(LONG.slice(0, 50), suffix))
    rng = np.random.default_rng(7)
    for _ in range(200):
        broken = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            broken[place] = rng.integers(0, 256)
        file = written(tmp_path / f"data.{suffix}", bytes(broken))
        try:
            list(file.batches(["b", "a"], types={"b": pa.float64()}))
        except PyramidionError as error:
            checked(error)


@pytest.mark.parametrize(
    "text",
    [
        f'["{CANARY}"]\n',
        f'{{"a": "{CANARY}"}}\n"{CANARY}"\n',
        f'{{"a": "{CANARY}',
        '{"a": ' + "[" * 100_000,
    ],
)
def test_json_that_cannot_be_rows_is_refused(tmp_path, text):
    assert "data.ndjson" in refusal(written(tmp_path / "data.ndjson", text), ["a"])


def test_nested_json_is_refused_by_its_row(tmp_path):
    lines = ['{"a": 1, "b": 2, "y": "a"}', '{"a": ["x"], "b": {}, "y": "a"}']
    file = written(tmp_path / "data.ndjson", "\n".join(lines))
    schema = Schema(
        features=[Categorical("a"), Continuous("b", edges=[0])],
        label=Label("y", classes=["a", "b"]),
    )
    door = Door(schema, Settings(epsilon=1.0), b"a secret")
    found = door.observations(joined(list(file.batches(["a", "b", "y"]))), "skip")
    assert (len(found), list(found.problems.values())) == (1, [[1], [1]])


def test_a_line_without_end_is_refused(tmp_path, monkeypatch, small_blocks):
    monkeypatch.setattr(files_text, "_LONGEST", 1_000)
    text = '{"a": "' + CANARY * 1_000
    assert "cannot be read as .ndjson" in refusal(written(tmp_path / "data.ndjson", text))


def test_text_that_is_not_unicode_is_refused_by_column(tmp_path):
    file = written(tmp_path / "data.csv", f"a,b\n{CANARY},".encode() + b"\xff\n")
    message = refusal(file, ["a", "b"], {"a": pa.string(), "b": pa.string()})
    assert "something else than UTF-8 text in column 'b'" in message


def test_arrow_that_points_outside_its_memory_is_refused(tmp_path):
    good = content(pa.table({"a": ["xx", "yy"]}), "arrow")
    offsets = [np.array([0, 2, end], dtype=np.int32).tobytes() for end in (4, 1 << 30)]
    bad = good.replace(*offsets)
    assert bad != good
    assert "a whole Arrow IPC" in refusal(written(tmp_path / "bad.arrow", bad))


def test_a_batch_has_at_least_a_row(tmp_path):
    with pytest.raises(SchemaError, match="rows of a batch"):
        saved(tmp_path / "data.csv", TABLE).batches(rows=0)
