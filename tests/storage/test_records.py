"""Records of accepted rows: replayed, every value gives the key it gave when it came."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyramidion import Categorical, Continuous, Label, Schema, Settings
from pyramidion.config.spelling import BY_TYPE
from pyramidion.errors import FormatError, ObservationError
from pyramidion.rows.hashing_values import UnfitError, by_text
from pyramidion.rows.observations import Door
from pyramidion.storage import records
from tests.store.inspect import populating
from tests.store.stores import START, Stand, cells, exact, same

SCHEMA = Schema(time="t", label=Label("y", classes=[0, 1]), features=[Categorical("a")])
DOOR = Door(SCHEMA, Settings(epsilon=1.0), b"a secret of the stream")
OLD_DOOR = Door(SCHEMA, Settings(epsilon=1.0), b"a secret of the stream", BY_TYPE)
"""Of a stream that knows values by their type, of which more can be counted."""

WHOLE = st.integers(-(2**63), 2**64 - 1)
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
AWARE = st.datetimes(
    dt.datetime(1900, 1, 2),
    dt.datetime(2200, 1, 1),
    timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30))]),
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    WHOLE,
    st.floats(-(2**53), 2**53, exclude_min=True, exclude_max=True),
    st.text(st.characters(codec="utf-8"), max_size=50),
    st.binary(max_size=50),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.decimals(-(10**20), 10**20, places=4),
    MOMENTS,
    AWARE,
    st.dates(dt.date(1, 1, 2), dt.date(9999, 12, 30)),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.integers(-(2**62), 2**62).map(lambda n: np.datetime64(n, "ns")),
    st.integers(-(2**40), 2**40).map(lambda n: np.timedelta64(n, "ms")),
    st.floats(-(2**24), 2**24, width=32, exclude_min=True, exclude_max=True).map(np.float32),
    st.integers(0, 255).map(np.uint8),
)


def keys_of(door: Door, data: Any) -> list[int]:
    found = door.observations(data)
    return found.keys(0, 0, len(found)).tolist()


def fit(values: list[object]) -> list[object]:
    """The values that have a text to be known by."""
    found = []
    for value in values:
        with suppress(UnfitError):
            by_text(value)
            found.append(value)
    return found


def stored(door: Door, data: Any) -> Any:
    """Rows as they come back from disk."""
    _, batch = door.arrivals(data)
    data = records.to_bytes(records.table_of(batch), records.widths_of(door.schema))
    return records.batch_of(records.from_bytes(data))


@given(st.lists(VALUES, max_size=20))
@example([Decimal("1E+30"), Decimal("-0.1"), Decimal("1.10"), Decimal(2**64), Decimal("1E-30")])
@example([dt.datetime(1600, 1, 1), np.datetime64("2020-01-01"), dt.date(2020, 1, 1)])
@example([2**64 - 1, -(2**63), 2.0**52, -0.0, 0, False, None, "", b""])
@example([UUID(int=1), UUID(int=1).bytes, dt.time(23, 59, 59, 999_999), np.timedelta64(-1, "ns")])
@example([np.datetime64(2**54, "s"), "beside another type"])
@example([np.timedelta64(2**54, "s"), "beside another type"])
def test_mixed_values_give_the_same_keys_from_disk(values: list[object]) -> None:
    for door, some in ((OLD_DOOR, values), (DOOR, fit(values))):
        data = [{"t": START, "y": 0, "a": value} for value in some]
        assert keys_of(door, stored(door, data)) == keys_of(door, data)


@given(st.lists(VALUES, max_size=20))
def test_a_dict_of_mixed_columns_gives_the_same_keys_from_disk(values: list[object]) -> None:
    for door, some in ((OLD_DOOR, values), (DOOR, fit(values))):
        data = {"t": [START] * len(some), "y": [0] * len(some), "a": some}
        assert keys_of(door, stored(door, data)) == keys_of(door, data)


def test_rows_that_were_left_out_are_not_on_disk() -> None:
    data = [{"t": START, "y": 0}, {"t": START, "y": 1, "a": 1}, {"t": START, "y": 1, "a": None}]
    found, batch = DOOR.arrivals(data, errors="skip")
    read = records.batch_of(records.table_of(batch))
    assert read.length == len(found) == 2
    assert keys_of(DOOR, read) == keys_of(DOOR, data[1:])


COLUMNS = {
    "text": pa.array(["x", None, "é€😀"]),
    "large text": pa.array(["x", None, "z"], pa.large_string()),
    "text views": pa.array(["x", None, "longer than twelve bytes"], pa.string_view()),
    "bytes": pa.array([b"x", None, b"\0"]),
    "byte views": pa.array([b"x", None, b"longer than twelve bytes"], pa.binary_view()),
    "fixed bytes": pa.array([b"xy", None, b"zz"], pa.binary(2)),
    "dictionary": pa.array(["x", None, "x"]).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays([1, 3], pa.array(["x", None])),
    "small floats": pa.array([np.float16(1.5), None, np.float16(2)], pa.float16()),
    "floats": pa.array([1.5, None, -0.0]),
    "unsigned": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "booleans": pa.array([True, None, False]),
    "decimals": pa.array([Decimal("1.10"), None, Decimal("-3.00")]),
    "wide decimals": pa.array([Decimal("1.10"), None, Decimal(10**60)], pa.decimal256(70, 4)),
    "timestamps": pa.array([1, None, -1], pa.timestamp("ns", tz="Asia/Kolkata")),
    "seconds": pa.array([1, None, -1], pa.timestamp("s")),
    "dates": pa.array([1, None, -1], pa.date32()),
    "times": pa.array([1, None, 2], pa.time64("ns")),
    "durations": pa.array([1, None, -2], pa.duration("ms")),
    "nothing": pa.nulls(3),
}


UNFIT = {
    *("small floats", "decimals", "wide decimals", "timestamps", "seconds", "times", "durations")
}
"""Columns of values that have no text to be known by."""


@pytest.mark.parametrize("door", [DOOR, OLD_DOOR], ids=["text", "type"])
@pytest.mark.parametrize("name", COLUMNS)
def test_arrow_columns_give_the_same_keys_from_disk(name: str, door: Door) -> None:
    if door is DOOR and name in UNFIT:
        with pytest.raises(ObservationError):
            keys_of(door, pa.table({"t": [START] * 3, "y": [0] * 3, "a": COLUMNS[name]}))
        return
    for column in (COLUMNS[name], pa.chunked_array([COLUMNS[name][1:], COLUMNS[name]])):
        size = len(column)
        data = pa.table({"t": [START] * size, "y": [0] * size, "a": column})
        assert keys_of(door, stored(door, data)) == keys_of(door, data)
        assert keys_of(door, stored(door, data.slice(1, 2))) == keys_of(door, data)[1:3]


TIMES = st.one_of(
    MOMENTS,
    AWARE,
    st.dates(dt.date(1, 1, 2), dt.date(9999, 12, 30)),
    MOMENTS.map(dt.datetime.isoformat),
    st.floats(-1e9, 1e10),
    st.integers(-(10**9), 10**10),
    st.decimals(0, 10**9, places=6),
    st.integers(-(2**62), 2**62).map(lambda n: np.datetime64(n, "ns")),
)


@given(st.lists(TIMES, min_size=1, max_size=20))
def test_rows_with_any_times_can_be_read_back(times: list[object]) -> None:
    data = [{"t": time, "y": 0, "a": 1} for time in times]
    assert keys_of(DOOR, stored(DOOR, data)) == keys_of(DOOR, data)


RICH = Schema(
    time="t",
    label=[Label("y", classes=["no", "yes", 3]), Label("score", edges=[0.0, 1.5])],
    features=[Categorical("a"), Continuous("size", edges=[0.0, 10.0])],
    groups=[("a", "size")],
    weight="p",
)
NUMBERS = st.one_of(
    st.integers(-100, 100), st.floats(-100, 100), st.decimals(-100, 100, places=2), st.booleans()
)
RICH_ROWS = st.fixed_dictionaries(
    {
        "t": TIMES,
        "y": st.sampled_from(["no", "yes", 3, 3.0, Decimal(3)]),
        "score": NUMBERS,
        "a": VALUES.filter(lambda value: bool(fit([value]))),
        "size": st.none() | NUMBERS,
        "p": st.floats(0.05, 1.0) | st.decimals("0.05", 1, places=3) | st.just(1),
    }
)
RICH_DOOR = Door(RICH, Settings(epsilon=1.0, p_min=0.1), b"a secret of the stream")


@given(st.lists(RICH_ROWS, max_size=8))
def test_keys_labels_and_weights_are_the_same_from_disk(data: list[dict[str, object]]) -> None:
    came, read = RICH_DOOR.observations(data), RICH_DOOR.observations(stored(RICH_DOOR, data))
    assert (came.matrix(0, len(came)) == read.matrix(0, len(read))).all()
    assert (came.labels == read.labels).all()
    assert (came.weights == read.weights).all()


def test_a_store_of_mixed_values_counts_them_the_same_after_reopening(stand: Stand) -> None:
    store = stand.create(RICH, epsilon=float("inf"), p_min=0.1)
    values = [
        None,
        "x",
        1,
        2.5,
        b"x",
        Decimal("1.00"),
        dt.date(2020, 1, 1),
        UUID(int=7),
    ]
    data = [
        {"t": START, "y": "yes", "score": score, "a": value, "size": value_size, "p": 0.3}
        for value in values
        for score, value_size in ((1, 2.5), (Decimal("1.5"), None))
    ]
    store.observe(data)
    store = stand.reopen()
    assert same(cells(populating(store)), exact(store, populating(store), [data]))


# --- how long a record is ------------------------------------------------------------------

SHORT = st.text(st.characters(codec="ascii"), max_size=10)
PUBLIC = Schema(
    time="t",
    label=Label("y", classes=["no", "yes, surely"]),
    features=[
        Categorical("a"),
        Categorical("b", domain=["x", "a longer value"]),
        Continuous("size", edges=[0.0, 10.0]),
    ],
    unit="who",
)
PUBLIC_ROWS = st.fixed_dictionaries(
    {
        "t": st.floats(0, 1e10),
        "y": st.sampled_from(["no", "yes, surely"]),
        "a": st.none() | SHORT | WHOLE,
        "b": st.none() | st.sampled_from(["x", "a longer value"]),
        "size": st.none() | st.floats(-100, 100) | st.integers(-100, 100),
        "who": SHORT.filter(bool) | WHOLE,
    }
)
PUBLIC_DOOR = Door(PUBLIC, Settings(epsilon=1.0), b"a secret of the stream")


def record_of(data: Any) -> bytearray:
    _, batch = PUBLIC_DOOR.arrivals(data)
    return records.to_bytes(records.table_of(batch), records.widths_of(PUBLIC))


@given(st.lists(PUBLIC_ROWS, min_size=1, max_size=40))
def test_length_follows_from_rows_and_schema(data: list[dict[str, object]]) -> None:
    expected = records.length_of(len(data), PUBLIC.columns, records.widths_of(PUBLIC))
    assert len(record_of(data)) == expected


@pytest.mark.parametrize("size", [1, 20_000])
def test_length_does_not_follow_values(size: int) -> None:
    spread, same_for_all = np.arange(size), np.zeros(size, dtype=np.int64)
    lengths = {
        len(
            record_of(
                {
                    "t": np.full(size, START),
                    "y": np.array(["no", "yes, surely"])[chosen % 2],
                    "a": np.char.mod("%011d", chosen),
                    "b": ["x"] * size,
                    "size": np.where(chosen % 3 == 0, np.nan, 1.0),
                    "who": chosen,
                }
            )
        )
        for chosen in (spread, same_for_all)
    }
    assert len(lengths) == 1


@pytest.mark.parametrize("longer", [1, 10, 100, 1_000])
def test_long_texts_double_the_length(longer: int) -> None:
    rows = [{"t": START, "y": "no", "a": "x" * longer, "b": "x", "size": 1.0, "who": 1}] * 1_000
    usual = records.length_of(1_000, PUBLIC.columns, records.widths_of(PUBLIC))
    length = len(record_of(rows))
    assert length / usual in (1, 2, 4, 8, 16)
    assert (length > usual) == (longer >= 100)


def test_compressed_records_of_older_stores_can_be_read() -> None:
    table = pa.table({"a": ["x", None], "b": [1, 2]})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    assert records.from_bytes(bytes(sink.getvalue()) + bytes(1_000)).equals(table)


def test_columns_can_be_left_out() -> None:
    table = pa.table({"a": [1], "b": [2]})
    assert records.without(table, ["b", "never there"]).column_names == ["a"]


def test_bytes_that_are_no_record_are_refused_without_quoting_them() -> None:
    with pytest.raises(FormatError) as caught:
        records.from_bytes(json.dumps({"secret": 1}).encode())
    assert caught.value.__cause__ is None
    assert "secret" not in str(caught.value)
