"""Replays: files in the order of event time, however they come."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramidion.config.schema import Categorical, Label, Schema
from pyramidion.errors import ObservationError, SchemaError
from pyramidion.rows import history as module
from pyramidion.rows.containers import columns_of
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import in_order
from tests.rows.test_files import CANARY, checked, content, saved

FEATURES = {"label": Label("y", classes=[0, 1]), "features": [Categorical("id")]}
SCHEMA = Schema(time="at", **FEATURES)
TIMELESS = Schema(**FEATURES)
SECOND = 1_000_000


def table(times, start=0):
    ids = [f"r{start + i}" for i in range(len(times))]
    return pa.table(
        {
            "at": pa.array(times, pa.float64()),
            "id": pa.array(ids, pa.string()),
            "y": [0] * len(ids),
        },
        schema=pa.schema([("at", pa.float64()), ("id", pa.string()), ("y", pa.int64())]),
    )


def files(folder, *times, suffix="parquet"):
    made, start = [], 0
    for number, column in enumerate(times):
        made.append(saved(folder / f"f{number}.{suffix}", table(column, start)))
        start += len(column)
    return made


def naive(columns):
    """The reference: ids and times of a stable sort, bad rows with the time before them."""
    rows, number = [], 0
    good = [t for times in columns for t in times if is_good(t)]
    for times in columns:
        known = [t for t in times if is_good(t)]
        last = known[0] if known else min(good, default=0)
        for time in times:
            last = time if is_good(time) else last
            rows.append((f"r{number}", round(last * SECOND)))
            number += 1
    return sorted(rows, key=lambda row: row[1])


def is_good(time):
    return time is not None and np.isfinite(time) and abs(time) < 9e12


def replayed(replay, skip=0, chunk=None):
    rows = []
    for part, times in replay.chunks(skip=skip):
        assert part.num_rows > 0
        assert chunk is None or part.num_rows <= chunk
        assert part.column_names == list(SCHEMA.columns)
        assert times.dtype == np.int64
        assert times.size == part.num_rows
        rows += zip(part["id"].to_pylist(), times.tolist(), strict=True)
    return rows


TIMES = st.lists(
    st.integers(-5, 5).map(float) | st.sampled_from([None, np.nan, np.inf, 1e15]), max_size=12
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.lists(TIMES, max_size=4), st.integers(1, 9), st.integers(1, 10), st.booleans())
def test_a_replay_is_a_stable_sort_of_all_rows(tmp_path_factory, columns, chunk, most, sort):
    if sort:
        columns = [sorted(t for t in times if is_good(t)) for times in columns]
    made = files(tmp_path_factory.mktemp("replay"), *columns)
    replay = in_order(made, SCHEMA, chunk=chunk, most=most)
    expected = naive(columns)
    assert replay.rows == len(expected)
    good = [round(t * SECOND) for times in columns for t in times if is_good(t)]
    assert (replay.first, replay.last) == (min(good, default=None), max(good, default=None))
    for skip in range(len(expected) + 2):
        assert replayed(replay, skip, chunk) == expected[skip:]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=3), st.integers(1, 10))
def test_streaming_and_several_passes_agree(tmp_path_factory, columns, most):
    start, ordered = 0, []
    for times in columns:
        ordered.append([start + float(t) for t in sorted(times)])
        start += 31
    made = files(tmp_path_factory.mktemp("replay"), *ordered)
    replay = in_order(made, SCHEMA, most=most)
    assert replay._order is not None
    streamed = replayed(replay)
    replay._order = None
    assert replayed(replay) == streamed == naive(ordered)


@pytest.mark.parametrize("suffix", ["csv", "ndjson", "parquet", "feather", "arrow", "csv.gz"])
@pytest.mark.parametrize("columns", [([3, 1, 2], [2, 9, 0]), ([1, 2], [2, 3]), ([5, 6], [1, 2])])
def test_every_format_is_replayed(tmp_path, suffix, columns):
    replay = in_order(files(tmp_path, *columns, suffix=suffix), SCHEMA, chunk=2, most=4)
    assert replayed(replay) == naive(columns)


@pytest.mark.parametrize(
    ("columns", "streams"),
    [
        (([1, 2], [2, 3]), True),
        (([5, 6], [1, 2]), True),
        (([5, 6], [1, 5]), False),  # the five of the first file comes first
        (([5, 9], [5, 5]), False),
        (([1, 3], [2, 4]), False),
        (([2, 1],), False),
        (([1, None, 2],), True),
        (([], [1], []), True),
    ],
)
def test_files_that_follow_each_other_are_streamed(tmp_path, columns, streams):
    replay = in_order(files(tmp_path, *columns), SCHEMA)
    assert (replay._order is not None) == streams
    assert replayed(replay) == naive(columns)


def test_several_passes_hold_no_more_than_they_may(tmp_path, monkeypatch):
    times = np.random.default_rng(0).integers(0, 9, 200).astype(float).tolist()
    held = []
    together = module._together

    def counted(tables):
        held.append(sum(part.num_rows for part in tables))
        return together(tables)

    monkeypatch.setattr(module, "_together", counted)
    replay = in_order(files(tmp_path, times[:120], times[120:]), SCHEMA, chunk=7, most=10)
    assert replayed(replay, chunk=7) == naive([times])
    assert held == [10] * 20
    held.clear()
    assert replayed(replay, skip=195) == naive([times])[195:]
    assert held == [10]


def test_a_pass_leaves_files_of_other_times_alone(tmp_path, monkeypatch):
    made = files(tmp_path, [2, 1], [11, 10], [21, 20])
    replay = in_order(made, SCHEMA, most=2)
    replay._cuts()
    opened = []
    batches = DataFile.batches

    def noted(self, *arguments, **options):
        opened.append(self.path.name)
        return batches(self, *arguments, **options)

    monkeypatch.setattr(DataFile, "batches", noted)
    replayed(replay)
    assert opened == ["f0.parquet", "f1.parquet", "f2.parquet"]


def test_without_a_time_files_keep_their_order(tmp_path):
    made = files(tmp_path, [3, 1], [2], suffix="csv") + files(tmp_path, [0, 0])
    replay = in_order(made, TIMELESS, chunk=3)
    assert (replay.rows, replay.first, replay.last) == (5, None, None)
    for skip in range(6):
        parts = list(replay.chunks(skip=skip))
        assert all(times is None for _, times in parts)
        ids = [value for part, _ in parts for value in part["id"].to_pylist()]
        assert ids == ["r0", "r1", "r2", "r0", "r1"][skip:]


def test_no_files_are_no_rows():
    replay = in_order([], SCHEMA)
    assert (replay.rows, replay.first, replay.last) == (0, None, None)
    assert list(replay.chunks()) == []


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_standard_input_is_held_to_be_sorted(tmp_path, monkeypatch, suffix):
    stdin = SimpleNamespace(buffer=io.BytesIO(content(table([3.0, 1.0, 2.0]), suffix)))
    monkeypatch.setattr(sys, "stdin", stdin)
    replay = in_order([DataFile("-", format=suffix)], SCHEMA, most=2)
    assert replayed(replay) == replayed(replay) == naive([[3, 1, 2]])


# Fingerprints


def test_a_fingerprint_knows_names_rows_and_times_and_nothing_else(tmp_path):
    def mark(*made):
        return in_order(made, SCHEMA).fingerprint

    def at(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return DataFile(path)

    one = mark(at("one/a.csv", "at,id,y\n1,x,0\n"))
    assert len(one) == 32
    assert one == mark(at("two/a.csv", "at,id,y\n1,a longer one,1\n"))  # other content
    assert one != mark(at("one/b.csv", "at,id,y\n1,x,0\n"))
    assert one != mark(at("one/a.csv", "at,id,y\n2,x,0\n"))
    assert one != mark(at("one/a.csv", "at,id,y\n,,\n,,\n"))
    both = at("one/a.csv", "at,id,y\n1,x,0\n"), at("one/b.csv", "at,id,y\n1,x,0\n")
    assert mark(*both) != mark(*reversed(both))


# Refusals


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    for columns in ([1, 2, 3], [3, 2, 1]):
        for other in ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0]):
            (made,) = files(tmp_path, columns)
            replay = in_order([made], SCHEMA)
            saved(made.path, table(other))
            with pytest.raises(ObservationError, match="changed while it was replayed; replay"):
                replayed(replay)


def typed(folder, number, kind, values, times):
    columns = {"at": pa.array(times), "id": pa.array(values, kind), "y": [0] * len(times)}
    return saved(folder / f"t{number}.parquet", pa.table(columns))


def test_files_of_kindred_types_are_sorted_together(tmp_path):
    made = [
        typed(tmp_path, 0, pa.int32(), [1, 2], [1.0, 4.0]),
        typed(tmp_path, 1, pa.int64(), [3, 2**60], [2.0, 3.0]),
    ]
    assert [row[0] for row in replayed(in_order(made, SCHEMA))] == [1, 3, 2**60, 2]
    made = [
        typed(tmp_path, 2, pa.string(), ["a", "b"], [1.0, 4.0]),
        typed(tmp_path, 3, pa.dictionary(pa.int32(), pa.string()), ["c", "d"], [2.0, 3.0]),
    ]
    assert [row[0] for row in replayed(in_order(made, SCHEMA))] == ["a", "c", "d", "b"]


@pytest.mark.parametrize("other", [(pa.string(), ["a", "b"]), (pa.float64(), [0.5, 2.0**60])])
def test_files_of_other_types_change_no_value(tmp_path, other):
    large = 2**60 + 1
    made = [
        typed(tmp_path, 0, pa.int64(), [large, large + 2], [1.0, 4.0]),
        typed(tmp_path, 1, *other, [2.0, 3.0]),
    ]
    parts = [columns_of(part, ["id"])[0]["id"] for part, _ in in_order(made, SCHEMA).chunks()]
    assert parts == [[large, *other[1], large + 2]]
    assert [type(value) for value in parts[0][1:3]] == [type(value) for value in other[1]]


def test_chunks_are_of_one_size_whatever_types_their_columns_have(tmp_path):
    made = [
        typed(tmp_path, 0, pa.int64(), [1, 2], [1.0, 2.0]),
        typed(tmp_path, 1, pa.string(), ["c", "d"], [2.0, 3.0]),
    ]
    parts = [columns_of(part, ["id"])[0]["id"] for part, _ in in_order(made, SCHEMA).chunks()]
    assert parts == [[1, 2, "c", "d"]]


def test_a_damaged_file_is_named_and_never_quoted(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(f"at,id,y\n1,{CANARY},0\n2,{CANARY}\n")
    with pytest.raises(ObservationError, match=r"data.csv cannot be read") as error:
        in_order([DataFile(path)], SCHEMA)
    checked(error.value)


@pytest.mark.parametrize("options", [{"chunk": 0}, {"most": 0}])
def test_at_least_a_row_is_asked_for(options):
    with pytest.raises(SchemaError, match="rows"):
        in_order([], SCHEMA, **options)


def test_fewer_than_no_rows_cannot_be_skipped():
    with pytest.raises(SchemaError, match="rows to skip"):
        in_order([], SCHEMA).chunks(skip=-1)
