"""Rows in: every container the same, bad rows by number and reason, never by value."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import pickle
import time
import traceback
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.config.spelling import BY_TEXT, BY_TYPE
from pyramidion.errors import ObservationError, SchemaError
from pyramidion.rows.containers import Batch, columns_of, pandas_column
from pyramidion.rows.observations import Door
from pyramidion.web.bodies import JSON, json_from
from tests import reference

SECRET = b"a secret of the stream"
patient = settings(deadline=None)  # the first example may wait for the compiler
LATE = Label("late", classes=[0, 1])
FLIGHTS = Schema(
    time="time",
    weight="p",
    label=LATE,
    features=[
        Categorical("carrier", domain=["AA", "UA"]),
        Categorical("tail"),
        Continuous("distance", edges=[100, 1000]),
    ],
    groups=[("carrier", "tail"), ("carrier", "distance")],
)
GOOD = {
    "time": 1_700_000_000,
    "carrier": "AA",
    "tail": "N1",
    "distance": 500.0,
    "late": 1,
    "p": 0.5,
}


def door_of(schema, keyed_by=BY_TEXT, **settings):
    known = Settings(**({"epsilon": 1.0, "p_min": 0.01} | settings))
    return Door(schema, known, SECRET, keyed_by)


def simple(*features, label=LATE, **more):
    return Schema(features=features or [Categorical("x")], label=label, **more)


DOOR = door_of(FLIGHTS)
X = door_of(simple())
TYPED = door_of(simple(), BY_TYPE)  # as older streams read values


def keys_of(column, door=X):
    """The keys of a column called x."""
    return door.rows(column).keys(0, 0, len(column)).tolist()


def expected(values, keyed_by=BY_TEXT):
    return [reference.key(SECRET, value, keyed_by) for value in values]


def refused(make) -> ObservationError:
    with pytest.raises(ObservationError) as caught:
        make()
    return caught.value


def everything_said(error: BaseException | None) -> str:
    """All that an error, its causes and its contexts say, suppressed or not."""
    if error is None:
        return ""
    told = [str(error), repr(error), repr(error.args), repr(getattr(error, "problems", ""))]
    told += traceback.format_exception_only(error)
    return "\n".join(told) + everything_said(error.__cause__) + everything_said(error.__context__)


# Containers

TEXTS = ["AA", None, "a text that is longer than twelve bytes", "", "ü", "AA"]


@pytest.mark.parametrize(
    "make",
    [
        lambda values: pa.table({"x": pa.array(values)}),
        lambda values: pa.RecordBatch.from_pydict({"x": values}),
        lambda values: pa.table({"x": pa.chunked_array([values[:1], values[1:]])}),
        lambda values: pa.table({"x": pa.array(values, pa.large_string())}),
        lambda values: pa.table({"x": pa.array(values, pa.string_view())}),
        lambda values: pa.table({"x": pa.array(values).dictionary_encode()}),
        lambda values: pa.table({"x": pc.run_end_encode(pa.array(values))}),
        lambda values: pa.table({"x": values}).to_reader(),
        lambda values: pd.DataFrame({"x": values}),
        lambda values: pd.DataFrame({"x": pd.Series(values, dtype=object)}),
        lambda values: pd.DataFrame({"x": pd.Series(values, dtype="category")}),
        lambda values: pd.DataFrame({"x": pd.Series(values, dtype="string[python]")}),
        lambda values: pd.DataFrame({"x": pd.Series(values, dtype="string[pyarrow]")}),
        lambda values: pd.DataFrame({"x": pd.Series(values, dtype=pd.ArrowDtype(pa.string()))}),
        lambda values: pd.DataFrame({"x": values}, index=range(6, 0, -1)),
        lambda values: pl.DataFrame({"x": values}),
        lambda values: pl.DataFrame({"x": pl.Series(values, dtype=pl.Categorical)}),
        lambda values: pl.DataFrame(
            {"x": pl.Series(values, dtype=pl.Enum(sorted({v for v in values if v is not None})))}
        ),
        lambda values: [{"x": value} for value in values],
        lambda values: tuple({"x": value, "y": 1} for value in values),
        lambda values: Batch({"x": pa.array(values)}, len(values)),
        lambda values: Batch({"x": values}, len(values)),
    ],
)
def test_every_container_gives_the_same_keys(make):
    for door in (X, TYPED):
        rows = door.rows(make(TEXTS))
        assert len(rows) == 6
        keyed_by = door.encoder.hasher.keyed_by
        assert rows.keys(0, 0, 6).tolist() == expected(TEXTS, keyed_by)


def test_dates_of_both_widths_are_their_text():
    days = pa.array([dt.date(1960, 2, 29), None, dt.date(9999, 12, 31)])
    for column in (days, days.cast(pa.date64()), days.cast(pa.string())):
        assert keys_of(pa.table({"x": column})) == expected(["1960-02-29", None, "9999-12-31"])


def test_times_are_no_categories_also_at_midnight():
    column = pa.array([None, 0], pa.timestamp("s"))
    error = refused(lambda: X.rows(pa.table({"x": column})))
    assert list(error.problems.values()) == [[1]]


def test_a_dict_is_one_row():
    assert X.rows({"x": "AA"}).keys(0, 0, 1).tolist() == expected(["AA"])


def test_a_row_of_anything_else_is_not_understood():
    for data in (None, 3, "x", [1], [{"x": 1}, 2], pd.Series([1]), pa.array([1]), np.zeros(3)):
        error = refused(lambda data=data: X.rows(data))
        assert "not understood; send a pyarrow Table" in str(error)


@pytest.mark.parametrize(
    "empty",
    [
        [],
        pa.table({"x": pa.array([], pa.string())}),
        pa.table({"x": pa.chunked_array([], pa.string_view())}),
        pa.table({"x": pa.chunked_array([], pa.dictionary(pa.int8(), pa.float64()))}),
        pa.table({"x": pc.run_end_encode(pa.array([], pa.float64()))}),
        pa.table({"x": pa.chunked_array([], pa.run_end_encoded(pa.int32(), pa.float64()))}),
        pa.RecordBatch.from_pydict({"x": pa.array([], pa.null())}),
        pd.DataFrame({"x": []}),
        pd.DataFrame({"x": pd.Series([], dtype=object)}),
        pd.DataFrame({"x": pd.Series([], dtype="category")}),
        pl.DataFrame({"x": pl.Series([], dtype=pl.String)}),
    ],
)
def test_no_rows_are_no_rows_in_every_container(empty):
    assert X.rows(empty).matrix(0, 0).shape == (1, 0)


@pytest.mark.parametrize(
    "empty",
    [
        [],
        pa.table({name: pa.array([], pa.null()) for name in GOOD}),
        pa.Table.from_pylist([GOOD]).slice(0, 0),
        pd.DataFrame([GOOD]).iloc[:0],
        pl.DataFrame([GOOD]).clear(),
    ],
)
def test_no_observations_are_no_observations_in_every_container(empty):
    found = DOOR.observations(empty)
    assert (len(found), found.refused, found.problems) == (0, 0, {})
    assert found.labels.shape == found.times.shape == (0,)
    assert found.matrix(0, 0).shape == (5, 0)


def chunks_read(number):
    """The last keys of so many tiny chunks, and the least of this thread's time in five tries."""
    table = pa.table({"x": pa.chunked_array([pa.array(["a", None, "b"])] * number)})
    took = []
    for _ in range(5):
        start = time.thread_time()  # which others at work do not lengthen
        keys = X.rows(table).keys(0, 0, 3 * number)
        took.append(time.thread_time() - start)
    return keys[-3:].tolist(), min(took)


def test_ten_times_as_many_tiny_chunks_take_no_hundred_times_as_long():
    chunks_read(1_000)
    (few, short), (many, long) = chunks_read(1_000), chunks_read(10_000)
    assert few == many == expected(["a", None, "b"])
    assert long < 40 * short


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.int32()])
def test_a_few_rows_of_a_column_of_many_values_are_those_rows(kind):
    values = pa.array(range(5000)).cast(kind)
    indices = pa.array([4999, None, 0], pa.int16())
    column = pa.DictionaryArray.from_arrays(indices, values)
    wanted = expected([values[4999].as_py(), None, values[0].as_py()])
    assert keys_of(pa.table({"x": column})) == wanted
    assert keys_of(pa.table({"x": pa.chunked_array([column, column[1:]])})) == wanted + wanted[1:]


def test_columns_that_the_schema_does_not_name_may_be_anything():
    frame = pl.DataFrame({"x": ["a"], "big": pl.Series([1], dtype=pl.Int128)})
    assert keys_of(frame) == expected(["a"])
    assert keys_of(pd.DataFrame({"x": ["a"], "odd": [object()]})) == expected(["a"])


def test_the_memory_of_a_batch_may_be_read_only_strided_or_big_endian():
    whole = np.arange(20)
    whole.flags.writeable = False
    for array in (whole, whole[::3], whole.astype(">i8"), whole.astype(">f8")[::-1]):
        assert keys_of(pd.DataFrame({"x": array})) == expected(array.tolist())
        rows = X.rows(Batch({"x": pandas_column(array)}, len(array)))
        assert rows.keys(0, 0, len(array)).tolist() == expected(array.tolist())


def test_uuids_and_json_are_what_they_store():
    raw = [bytes(range(16)), None]
    table = pa.table({"x": pa.array(raw, pa.uuid())})
    assert keys_of(table, TYPED) == expected(raw, BY_TYPE)
    assert keys_of(table) == expected([str(UUID(bytes=raw[0])), None])
    texts = ['{"a":1}', None]
    chunks = pa.chunked_array([pa.array(texts, pa.json_())] * 2)
    assert keys_of(pa.table({"x": chunks})) == expected(texts * 2)


# pandas


@pytest.mark.parametrize(
    ("series", "values"),
    [
        (pd.Series([1.5, np.nan]), [1.5, None]),
        (pd.Series([1, None, pd.NA], dtype="Int64"), [1, None, None]),
        (pd.Series([2.5, pd.NA], dtype="Float64"), [2.5, None]),
        (pd.Series([0.0, 1.0], dtype="Float64") / pd.Series([0.0, 1.0]), [None, 1.0]),
        (pd.Series([True, pd.NA], dtype="boolean"), [True, None]),
        (pd.Series([1, None], dtype="int64[pyarrow]"), [1, None]),
        (pd.Series([dt.datetime(2020, 1, 1), pd.NaT]), [dt.datetime(2020, 1, 1), None]),
        (pd.Series([dt.timedelta(1), pd.NaT]), [dt.timedelta(1), None]),
        (pd.Series(["a", np.nan, None, pd.NA, pd.NaT], dtype=object), ["a", *[None] * 4]),
        (pd.Series([1, "a", 2.5, b"a", None, True], dtype=object), [1, "a", 2.5, b"a", None, True]),
        (pd.Series([2**63, 1], dtype=object), [2**63, 1]),
        (pd.Series([2**64 - 1], dtype="uint64"), [2**64 - 1]),
        (pd.Series([1, "a", None], dtype="category"), [1, "a", None]),
        (pd.Series([1.5, np.nan, 1.5], dtype="category"), [1.5, None, 1.5]),
        (pd.Series([Decimal("1.50"), Decimal("NaN")]), [1.5, None]),
        (pd.Series([dt.date(2020, 1, 1), None]), [dt.date(2020, 1, 1), None]),
        (pd.Series([1, 0, 0], dtype="Sparse[int]"), [1, 0, 0]),
        (pd.Series([np.datetime64("NaT"), np.int8(3)], dtype=object), [None, 3]),
        (pd.Series([np.datetime64("NaT"), 3], dtype=object), [None, 3]),
        (pd.Series([np.timedelta64("NaT"), "a"], dtype=object), [None, "a"]),
    ],
    ids=lambda given: str(getattr(given, "dtype", "")),
)
def test_pandas_values_are_what_pandas_means(series, values):
    assert keys_of(pd.DataFrame({"x": series}), TYPED) == expected(values, BY_TYPE)


def test_nanoseconds_in_a_pandas_column_of_objects_count():
    stamp, span = pd.Timestamp(1_000_000_007), pd.Timedelta(7, "ns")
    frame = pd.DataFrame({"x": pd.Series([stamp, span], dtype=object)})
    alone = pd.DataFrame({"x": pd.Series([stamp], dtype=object)})
    typed = pa.table({"x": pa.array([1_000_000_007], pa.timestamp("ns"))})
    assert keys_of(frame, TYPED)[:1] == keys_of(alone, TYPED) == keys_of(typed, TYPED)


def test_infinity_is_bad_in_pandas_too():
    error = refused(lambda: X.rows(pd.DataFrame({"x": [1.0, np.inf]})))
    assert list(error.problems.values()) == [[1]]


def test_a_subclass_of_a_pandas_frame_is_a_pandas_frame():
    class Frame(pd.DataFrame):
        __module__ = "elsewhere"

    assert keys_of(Frame({"x": [1.0, np.nan]})) == expected([1.0, None])


@pytest.mark.parametrize(
    "series",
    [pd.Series(pd.period_range("1987", periods=2)), pd.cut(pd.Series([987654321, 2]), 2)],
    ids=["period", "interval"],
)
def test_pandas_types_that_are_nothing_else_are_refused_by_name(series):
    error = refused(lambda: X.rows(pd.DataFrame({"x": series})))
    assert "column 'x' has type" in str(error)
    assert not any(marker in everything_said(error) for marker in MARKERS)


# polars


@pytest.mark.parametrize(
    "values",
    [
        [1.5, None],
        [dt.date(2020, 1, 1), None],
        [dt.datetime(2020, 1, 1, 12, 30), None],
        [dt.time(12, 30), None],
        [dt.timedelta(hours=3), None],
        [Decimal("1.50"), Decimal("-0.10"), None],
        [b"a", b"long enough to be elsewhere", None],
        [True, False, None],
        [None, None],
        [2**63 - 1, None],
    ],
    ids=repr,
)
def test_polars_values_are_what_python_says(values):
    assert keys_of(pl.DataFrame({"x": values}), TYPED) == expected(values, BY_TYPE)


def test_nan_is_bad_and_null_is_missing_in_polars():
    frame = pl.DataFrame({"x": [1.0, float("nan"), None]})
    assert list(refused(lambda: X.rows(frame)).problems.values()) == [[1]]


def test_a_polars_type_that_arrow_does_not_have_is_refused_by_name():
    frame = pl.DataFrame({"x": pl.Series([987654321], dtype=pl.Int128)})
    error = refused(lambda: X.rows(frame))
    assert "column 'x' has type Int128, which cannot be counted" in str(error)
    assert "987654321" not in everything_said(error)


def test_objects_in_polars_are_read_one_by_one():
    series = pl.Series([1, "a", None, 2.5], dtype=pl.Object)
    assert keys_of(pl.DataFrame({"x": series})) == expected([1, "a", None, 2.5])


# Columns that cannot be used


@pytest.mark.parametrize("make", [pa.Table.from_pylist, pd.DataFrame, pl.DataFrame])
def test_a_missing_column_is_named(make):
    rows = make([{"other": "SECRET123"}])
    error = refused(lambda: X.rows(rows))
    assert str(error) == "column 'x' is missing; the schema needs it, add it to the batch"
    assert refused(lambda: X.rows(Batch({}, 1))).args == error.args


def test_a_column_that_is_there_twice_is_refused():
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["x", "x"])
    assert "column 'x' is there 2 times; keep one" in str(refused(lambda: X.rows(table)))
    frame = pd.DataFrame([["a", "b"]], columns=["x", "x"])
    assert "column 'x' is there more than once" in str(refused(lambda: X.rows(frame)))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["SECRET123"]]),
        pa.array([{"SECRET123": 1}]),
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([{"SECRET123": 1}])),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    ],
    ids=lambda column: str(column.type)[:8],
)
def test_a_nested_column_is_refused_by_name_and_type(column):
    error = refused(lambda: X.rows(pa.table({"x": column})))
    assert "column 'x' has type" in str(error)
    assert "use text, numbers, booleans, bytes or times" in str(error)
    assert "SECRET" not in everything_said(error)


@pytest.mark.parametrize("values", [[["SECRET123"]], [{"SECRET123": 1}], [("SECRET123",)], [1j]])
@pytest.mark.parametrize("make", [pd.DataFrame, lambda columns: [{"x": columns["x"][0]}]])
def test_nested_objects_are_refused_row_by_row(make, values):
    error = refused(lambda: X.rows(make({"x": values})))
    assert list(error.problems.values()) == [[0]]
    assert "SECRET" not in everything_said(error)


def in_every_container(values):
    """A column called x, in containers that infer its type, and in those that do not."""
    yield [{"x": value} for value in values]
    yield {"x": list(values)}
    yield pd.DataFrame({"x": pd.Series(values)})
    yield pd.DataFrame({"x": pd.Series(values, dtype=object)})
    yield pl.DataFrame({"x": pl.Series(values, dtype=pl.Object)})
    with contextlib.suppress(pa.ArrowException, TypeError):
        yield pa.table({"x": pa.array(values)})
        yield pl.DataFrame({"x": pl.Series(values)})


@pytest.mark.parametrize("values", [["SECRET123", None], [None, "SECRET123", 1.5], ["7", "x"]])
def test_text_that_spells_no_number_is_refused_by_its_row(values):
    door = door_of(simple(Continuous("x", edges=[0])))
    bad = [row for row, value in enumerate(values) if value in ("SECRET123", "x")]
    for data in in_every_container(values):
        error = refused(lambda data=data: door.rows(data))
        assert error.problems == {"column 'x' is not a number": bad}
        assert "SECRET" not in everything_said(error)


@pytest.mark.parametrize("values", [["1.5", None, "-7"], ["7", 7.0, 7, True], [" 1e3 ", "NA"]])
def test_text_that_spells_a_number_is_that_number(values):
    schema = simple(Continuous("x", edges=[0, 5, 10]))
    door = door_of(schema)
    read = [None if v in ("NA", None) else float(v) for v in values]
    wanted = reference.table_keys(SECRET, schema, 0, [{"x": value} for value in read])
    for data in in_every_container(values):
        assert door.rows(data).matrix(0, len(values)).tolist() == wanted
    for value, code in zip(values, wanted[0], strict=True):
        assert door.encoder.one({"x": value}).tolist() == [[code]]
        body = json.dumps({"x": value}).encode()
        assert door.encoder.one(json_from(body, JSON)).tolist() == [[code]]


LARGE = [2.0**53, -(2.0**53), 1e300, 123456789012345678.0]


@pytest.mark.parametrize("value", LARGE)
def test_a_float_too_large_to_be_exact_is_refused_in_a_category(value):
    exact = math.nextafter(math.copysign(2.0**53, value), 0.0)
    for data in in_every_container([1.5, value, None, exact]):
        error = refused(lambda data=data: X.rows(data))
        ((reason, rows),) = error.problems.items()
        assert "floating-point number of 2^53 or more" in reason
        assert rows == [1]
    body = json.dumps({"x": value}).encode()
    assert "2^53" in str(refused(lambda: X.encoder.one({"x": value})))
    assert "2^53" in str(refused(lambda: X.encoder.one(json_from(body, JSON))))
    assert X.encoder.one_arrow(pa.RecordBatch.from_pydict({"x": [value]})) is None
    assert keys_of([{"x": int(value)}]) == expected([int(value)]) if abs(value) < 2**63 else True


def test_a_short_float_too_large_to_be_exact_is_refused_in_a_category():
    for kind, bound in ((np.float32, 2.0**24), (np.float16, 2.0**11)):
        column = np.array([bound, bound - 1, -bound], dtype=kind)
        for data in (pa.table({"x": column}), [{"x": value} for value in column]):
            (rows,) = refused(lambda data=data: X.rows(data)).problems.values()
            assert rows == [0, 2]
    single = pa.RecordBatch.from_arrays([pa.array([2.0**24], pa.float32())], ["x"])
    assert X.encoder.one_arrow(single) is None


def test_large_floats_are_refused_in_classes_and_units_and_not_in_numbers():
    schema = simple(Continuous("x", edges=[0]), label=Label("late", classes=[1, 2**60]), unit="u")
    door = door_of(schema)
    rows = [
        {"x": 2.0**60, "late": 1, "u": 1},
        {"x": 1, "late": 2.0**60, "u": 1},
        {"x": 1, "late": 2**60, "u": 2.0**60},
    ]
    for data in (rows, pd.DataFrame(rows), pl.DataFrame(rows, strict=False)):
        found = door.observations(data, errors="skip")
        bad = {row for rows in found.problems.values() for row in rows}
        assert (len(found), bad) == (1, {1, 2})


def test_one_missing_id_does_not_change_the_others():
    ids = [700_000_000_000_000_001, 700_000_000_000_000_003]
    frame = pd.DataFrame({"x": [*ids, None], "late": [0, 1, 1]})  # which pandas makes floats
    found = X.observations(frame, errors="skip")
    assert (len(found), list(found.problems.values())) == (1, [[0, 1]])
    kept = X.observations(frame.assign(x=pd.Series([*ids, None], dtype="Int64")))
    assert kept.keys(0, 0, 3).tolist() == expected([*ids, None])


@pytest.mark.parametrize(
    "values", [[7, "7", 7.0, np.int8(7), "7.0"], [7.0, None], ["7"], [7.0], ["7.0", "7.00", "7"]]
)
def test_a_unit_is_the_same_person_in_every_type(values):
    door = door_of(simple(Categorical("y"), unit="x"))
    (seven,) = door.people([7])
    for data in in_every_container(values):
        column = columns_of(data, ["x"])[0]["x"]
        table = [{"y": 1, "late": 0, "x": value} for value in values]
        found = door.observations(table, errors="skip")
        assert set(found.units.tolist()) == {seven}
        if None not in values:
            assert set(door.people(column).tolist()) == {seven}


def test_an_empty_unit_is_nobody_in_every_format():
    door = door_of(simple(Categorical("y"), unit="x"))
    row = {"y": "a", "late": 1}
    found = door.observations([row | {"x": ""}, row | {"x": None}, row | {"x": "a"}], "skip")
    assert list(found.problems.values()) == [[0, 1]]


def test_older_streams_keep_their_people():
    door = door_of(simple(Categorical("y"), unit="x"), BY_TYPE)
    assert len(set(door.people(["7", "7.0", ""]).tolist())) == 3


@pytest.mark.parametrize("value", [True, 0.5, b"a", dt.date(2020, 1, 1), float("inf")])
def test_what_names_nobody_is_refused_by_its_row(value):
    door = door_of(simple(Categorical("y"), unit="x"))
    for values in ([value, 7], [value, None]):
        rows = [{"y": 1, "late": 0, "x": each} for each in values]
        bad = [[0]] if values[1] == 7 else [[0], [1]]
        frames = [rows, pd.DataFrame(rows), pd.DataFrame(rows, dtype=object)]
        for data in frames:
            found = door.observations(data, errors="skip")
            assert list(found.problems.values()) == bad


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, None]),
        pa.array([1, None], pa.time64("ns")),
        pa.array([1, None], pa.duration("ns")),
        pa.array([b"SECRET123", None]),
        pa.array([["SECRET123"], None]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_that_holds_no_times_is_refused_by_name(column):
    door = door_of(simple(time="t"))
    table = pa.table({"x": ["a"] * 2, "late": [0] * 2, "t": column})
    error = refused(lambda: door.observations(table))
    assert "column 't' has type" in str(error)
    assert "where times are needed; cast it" in str(error)
    assert "SECRET" not in everything_said(error)
    with pytest.raises(ObservationError, match="where times are needed; cast it"):
        door.refuse_types(table.slice(0, 0))


def test_a_missing_value_is_missing_in_a_column_of_any_type():
    door = door_of(simple(Categorical("x"), Continuous("z", edges=[0])))
    table = pa.table({"x": pa.array([None, ["a"]]), "z": pa.array([None, b"a"]), "late": [0, 1]})
    found = door.observations(table, errors="skip")
    assert (len(found), list(found.problems.values())) == (1, [[1], [1]])
    alone = door.observations(table.slice(0, 1))
    assert found.matrix(0, 1).tolist() == alone.matrix(0, 1).tolist()


def test_nan_that_numpy_wrote_as_text_is_missing():
    array = np.array([["a"], [np.nan], ["7"]])
    assert array.dtype.kind == "U"
    column = pandas_column(array[:, 0])
    assert column.to_pylist() == ["a", None, "7"]


def damaged():
    offsets = pa.py_buffer(np.array([0, 2**30, 3], dtype=np.int32).tobytes())
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])


def test_memory_that_points_elsewhere_is_refused_before_anything_is_read():
    for column in (damaged(), pa.DictionaryArray.from_arrays(pa.array([0, 1]), damaged())):
        error = refused(lambda column=column: X.rows(pa.table({"x": column})))
        assert "column 'x' is damaged" in str(error)


# Bad rows

SURROGATE = "SECRET123\ud800"
FINITE = "is NaN or infinite"
BAD = [
    ("carrier", SURROGATE, "not valid Unicode"),
    ("carrier", ["SECRET123"], "has type list"),
    ("tail", 987654321 * 10**30, "beyond 64 bits"),
    ("tail", Decimal("987654321.5"), "decimal with a fraction"),
    ("tail", dt.datetime(1987, 6, 5, 4), "time, not a date"),
    ("tail", np.float32(1987.5), "32-bit float with a fraction"),
    ("tail", float("nan"), FINITE),
    ("tail", -math.inf, FINITE),
    ("tail", {"SECRET123": 1}, "has type dict"),
    ("distance", "SECRET123", "is not a number"),
    ("distance", float("nan"), FINITE),
    ("distance", math.inf, FINITE),
    ("distance", 987654321 * 10**400, FINITE),
    ("distance", dt.date(1987, 6, 5), "is not a number"),
    ("late", "SECRET123", "not one of the label's declared classes"),
    ("late", 987654321, "not one of the label's declared classes"),
    ("late", None, "has no label"),
    ("late", float("nan"), FINITE),
    ("late", SURROGATE, "not valid Unicode"),
    ("p", 987654321.0, "is not a propensity"),
    ("p", 0, "is not a propensity"),
    ("p", -0.5, "is not a propensity"),
    ("p", None, "is not a propensity"),
    ("p", float("nan"), FINITE),
    ("p", "SECRET123", "is not a number"),
    ("time", "SECRET123", "is not a time"),
    ("time", SURROGATE, "is not a time"),
    ("time", None, "has no time"),
    ("time", True, "is not a time"),
    ("time", float("nan"), FINITE),
    ("time", 987654321e9, "too far"),
    ("time", 987654321 * 10**400, FINITE),
    ("time", dt.timedelta(987654321), "is not a time"),
    ("time", pd.NaT, "NaT"),
    ("time", np.datetime64("98765432-01-01"), "too far"),
]
MARKERS = ("SECRET", "98765432", "1987")
every_badness = pytest.mark.parametrize(
    ("column", "value", "reason"), BAD, ids=lambda part: str(part)[:20].encode("ascii", "replace")
)


@every_badness
def test_a_bad_row_is_refused_by_number_and_reason_and_never_by_value(column, value, reason):
    rows = [GOOD, dict(GOOD, **{column: value}), GOOD, dict(GOOD, **{column: value})]
    error = refused(lambda: DOOR.observations(rows))
    ((told, numbers),) = error.problems.items()
    assert told.startswith(f"column {column!r} ")
    assert reason in told
    assert numbers == [1, 3]
    assert "2 of 4 rows cannot be counted (row 1: column" in str(error)
    assert not any(marker in everything_said(error) for marker in MARKERS)


@every_badness
def test_a_bad_row_is_skipped_and_reported(column, value, reason):
    rows = [GOOD, dict(GOOD, **{column: value}), GOOD]
    found = DOOR.observations(rows, errors="skip")
    good = DOOR.observations([GOOD, GOOD])
    assert (len(found), found.refused) == (2, 1)
    assert list(found.problems.values()) == [[1]]
    assert found.matrix(0, 2).tolist() == good.matrix(0, 2).tolist()
    assert found.labels.tolist() == good.labels.tolist()
    assert found.weights.tolist() == good.weights.tolist()
    assert found.times.tolist() == good.times.tolist()
    assert not any(marker in repr(found.problems) for marker in MARKERS)


@pytest.mark.parametrize("column", list(GOOD))
def test_a_row_without_a_column_is_a_bad_row(column):
    row = {name: value for name, value in GOOD.items() if name != column}
    error = refused(lambda: DOOR.observations([GOOD, row]))
    reason = f"column {column!r} is missing from the row; give null where a value is unknown"
    assert error.problems == {reason: [1]}
    assert len(DOOR.observations([GOOD, row], errors="skip")) == 1


ARROW_BAD = [
    ("tail", pa.array([1.5, float("nan"), None]), FINITE, [1]),
    ("tail", pa.array([1.5, math.inf, None]).dictionary_encode(), FINITE, [1]),
    ("tail", pc.run_end_encode(pa.array([1.5, math.inf, None])), FINITE, [1]),
    ("tail", pa.array(np.array([1, np.inf, 2], dtype=np.float16)), FINITE, [1]),
    ("distance", pa.array([1.5, float("nan"), None]), FINITE, [1]),
    ("distance", pa.array([1.5, math.inf, None]).dictionary_encode(), FINITE, [1]),
    ("late", pa.array([0, 987654321, 1]), "declared classes", [1]),
    ("late", pa.array(["0", "SECRET123", "1"]), "declared classes", [1]),
    ("late", pa.array([0, None, 1]), "has no label", [1]),
    ("late", pa.nulls(3), "has no label", [0, 1, 2]),
    ("late", pa.array([0.0, float("nan"), 1.0]), FINITE, [1]),
    ("p", pa.array([1.0, 987654321.0, 0.5]), "propensity", [1]),
    ("p", pa.array([1.0, None, 0.5]), "propensity", [1]),
    ("p", pa.array([Decimal("1.00"), Decimal("-0.10"), None]), "propensity", [1, 2]),
    ("time", pa.array(["2020-01-01", "SECRET123", "2020-01-01T12:00Z"]), "is not a time", [1]),
    ("time", pa.array(["2020-01-01", "SECRET123", "noon"], pa.string_view()), "time", [1, 2]),
    ("distance", pa.array(["1.5", "SECRET123", "7"], pa.string_view()), "not a number", [1]),
    ("time", pa.array([0, 987654321 * 10**9, 1]), "too far", [1]),
    ("time", pa.array([0.0, float("nan"), 1.0]), FINITE, [1]),
    ("time", pa.array([0, None, 1]), "has no time", [1]),
    ("time", pa.nulls(3), "has no time", [0, 1, 2]),
    ("time", pa.array([0, 987654321 * 10**9, -(2**63)], pa.timestamp("s")), "too far", [1, 2]),
    ("time", pa.array([0, 2**63 - 1, 1], pa.timestamp("ms")), "too far", [1]),
    ("time", pa.array([0, None, 1], pa.timestamp("us")), "has no time", [1]),
]


@pytest.mark.parametrize(("column", "array", "reason", "numbers"), ARROW_BAD)
def test_bad_rows_of_an_arrow_table_are_refused_and_skipped_alike(column, array, reason, numbers):
    table = pa.Table.from_pylist([GOOD] * 3)
    table = table.set_column(table.schema.get_field_index(column), column, array)
    error = refused(lambda: DOOR.observations(table))
    ((told, rows),) = error.problems.items()
    assert reason in told
    assert rows == numbers
    assert not any(marker in everything_said(error) for marker in MARKERS)
    found = DOOR.observations(table, errors="skip")
    assert (len(found), found.refused) == (3 - len(numbers), len(numbers))
    assert found.problems == error.problems


def test_text_that_arrow_did_not_check_is_no_time_and_is_not_quoted():
    offsets = pa.py_buffer(np.array([0, 10], dtype=np.int32).tobytes())
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"SECRET123\xff")])
    door = door_of(simple(time="t"))
    error = refused(lambda: door.observations(pa.table({"x": [1], "late": [0], "t": text})))
    assert "SECRET" not in everything_said(error)
    assert "0xff" not in everything_said(error)


def test_a_row_bad_in_many_ways_is_one_refused_row():
    row = dict(GOOD, tail=float("nan"), distance="SECRET123", late=None, time=None)
    found = DOOR.observations([row, GOOD], errors="skip")
    assert (len(found), found.refused) == (1, 1)
    assert list(found.problems.values()) == [[0]] * 4


def test_a_message_names_a_few_reasons_and_the_remedy():
    row = {name: [] for name in GOOD}
    error = refused(lambda: DOOR.observations([row]))
    assert len(error.problems) == 6
    assert str(error).count("row 0:") == 5
    assert str(error).endswith("mend them or leave them out")


def test_an_error_keeps_its_problems_through_pickling():
    error = refused(lambda: X.rows([{"x": float("nan")}]))
    twin = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (str(twin), twin.problems) == (str(error), error.problems)


def test_a_row_is_judged_by_itself_alone():
    rows = [GOOD, dict(GOOD, tail=float("nan")), dict(GOOD, late=7), GOOD, dict(GOOD, time="x")]
    whole = DOOR.observations(rows, errors="skip")
    alone = [len(DOOR.observations([row], errors="skip")) for row in rows]
    assert alone == [1, 0, 0, 1, 0]
    assert len(whole) == 2


def test_errors_are_refused_or_skipped_and_nothing_else():
    error = refused(lambda: DOOR.observations([GOOD], errors="ignore"))
    assert "neither 'refuse' nor 'skip'" in str(error)


TAKEN = [
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary_view(), pa.float16()),
    *(pa.decimal128(20, 1), pa.bool_(), pa.date32(), pa.timestamp("ns"), pa.int8(), pa.null()),
]


@pytest.mark.parametrize("kind", TAKEN, ids=str)
@pytest.mark.parametrize("layout", ["plain", "chunked", "dictionary", "runs"])
def test_skipping_works_for_every_type_of_column(kind, layout):
    base = pa.array([1, 0, None, 1])
    if kind == pa.null():
        column = pa.nulls(4)
    elif pa.types.is_binary_view(kind):
        column = base.cast(pa.string()).cast(pa.binary()).cast(kind)
    elif pa.types.is_date32(kind):
        column = base.cast(pa.int32()).cast(kind)
    else:
        column = (base.cast(pa.float32()) if kind == pa.float16() else base).cast(kind)
    if layout == "chunked":
        column = pa.chunked_array([column[:1], column[1:]])
    elif layout == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), column)
    elif layout == "runs":
        column = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4], pa.int32()), column)
    table = pa.table({"x": column, "late": [0, 7, 1, 0]})
    door = TYPED if pa.types.is_timestamp(kind) else X
    found = door.observations(table, errors="skip")
    whole = door.rows(table).keys(0, 0, 4)
    assert found.keys(0, 0, 3).tolist() == whole[[0, 2, 3]].tolist()


def test_rows_can_be_taken_in_any_order():
    rows = [dict(GOOD, tail=str(i), late=i % 2, p=1 / (i + 1), time=i) for i in range(5)]
    found = DOOR.observations(rows)
    some = found.take(np.array([4, 0, 4]))
    assert len(some) == 3
    assert some.matrix(0, 3).tolist() == found.matrix(0, 5)[:, [4, 0, 4]].tolist()
    assert some.labels.tolist() == [0, 0, 0]
    assert some.weights.tolist() == [5, 1, 5]
    assert some.times.tolist() == [4_000_000, 0, 4_000_000]
    assert len(found.take(np.array([], dtype=np.int64))) == 0


def test_mixed_columns_can_be_taken_too():
    rows = [{"x": value, "late": 0} for value in (1, "a", None)]
    some = X.observations(rows).take(np.array([2, 1]))
    assert some.keys(0, 0, 2).tolist() == expected([None, "a"])


# Labels


@pytest.mark.parametrize("value", [1, 1.0, True, np.int8(1), np.float32(1), Decimal("1.0")])
def test_classes_are_told_apart_by_equality(value):
    assert X.observations([{"x": 1, "late": value}]).labels.tolist() == [1]
    column = pa.array([value])
    assert X.observations(pa.table({"x": [1], "late": column})).labels.tolist() == [1]
    assert TYPED.observations(pa.table({"x": [1], "late": column})).labels.tolist() == [1]


def test_the_text_of_a_class_is_the_class():
    for value in ("1", "1.0", "true", b"1"):
        assert X.observations([{"x": 1, "late": value}]).labels.tolist() == [1]
    for value in ("01", "yes", ""):
        assert refused(lambda value=value: X.observations([{"x": 1, "late": value}])).problems
    typed = TYPED.observations
    assert refused(lambda: typed([{"x": 1, "late": "1"}])).problems


def test_text_classes_keep_their_order():
    door = door_of(simple(label=Label("late", classes=["no", "yes", "maybe"])))
    table = pa.table({"x": [1, 2, 3], "late": pa.array(["maybe", "no", "yes"]).dictionary_encode()})
    assert door.observations(table).labels.tolist() == [2, 0, 1]


def test_labels_with_edges_are_binned():
    door = door_of(simple(label=Label("late", edges=[2, 3, 4])))
    for values in ([1, 2, 3.5, 9], [1.0, 2.0, 3.5, 9.0], [Decimal(1), 2, Decimal("3.5"), 9]):
        rows = [{"x": 1, "late": value} for value in values]
        assert door.observations(rows).labels.tolist() == [0, 1, 2, 3]
    error = refused(lambda: door.observations(pa.table({"x": [1, 2], "late": [None, 3]})))
    assert list(error.problems) == ["column 'late' has no label"]


LABELS = (
    Label("late", classes=[0, 1]),
    Label("rating", edges=[2, 4]),
    Label("c", classes=["a", "b"]),
)


@patient
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "x": st.just("a"),
                "late": st.sampled_from([0, 1]),
                "rating": st.integers(0, 6),
                "c": st.sampled_from(["a", "b"]),
            }
        )
    )
)
def test_several_labels_are_counted_jointly(rows):
    door = door_of(simple(label=LABELS))
    wanted = [reference.joint_label(LABELS, row) for row in rows]
    assert door.observations(rows).labels.tolist() == wanted
    if rows:
        assert door.observations(pa.Table.from_pylist(rows)).labels.tolist() == wanted


# Weights


@patient
@given(
    st.lists(st.floats(0, 1, exclude_min=True), min_size=1),
    st.integers(1, 1000),
    st.floats(1e-6, 1),
)
def test_a_weight_is_the_floor_of_the_inverse_propensity_clipped(propensities, unit, p_min):
    door = door_of(simple(weight="p"), p_min=p_min, weight_unit=unit)
    table = pa.table({"x": propensities, "late": [0] * len(propensities), "p": propensities})
    found = door.observations(table).weights
    omega = door.settings.omega
    assert found.tolist() == [reference.weight(p, unit, omega) for p in propensities]
    assert found.max() <= omega


def test_no_weight_exceeds_omega_even_where_doubles_round_it_up():
    door = door_of(simple(weight="p"), p_min=3e-17, max_rows_per_window=1)
    omega = door.settings.omega
    assert float(omega) > omega
    table = pa.table({"x": [1, 2], "late": [0, 0], "p": [3e-17, 5e-324]})
    assert door.observations(table).weights.tolist() == [min(int(1 / 3e-17), omega), omega]


def test_a_tiny_propensity_warns_nobody(recwarn):
    door = door_of(simple(weight="p"), p_min=0.1)
    table = pa.table({"x": [1], "late": [0], "p": [5e-324]})
    assert door.observations(table).weights.tolist() == [10]
    assert not recwarn.list


def test_weights_without_a_bound_are_refused():
    with pytest.raises(SchemaError, match="set p_min"):
        door_of(simple(weight="p"), p_min=None)


def test_without_propensities_every_row_weighs_one():
    assert X.observations([{"x": 1, "late": 0}]).weights.tolist() == [1]


# Times

TIMES = door_of(simple(time="t"))


def times_of(column):
    table = pa.table({"x": [0] * len(column), "late": [0] * len(column), "t": column})
    return TIMES.observations(table).times.tolist()


def time_of(value):
    return TIMES.observations({"x": 0, "late": 0, "t": value}).times.tolist()[0]


SECOND = 1_000_000


@pytest.mark.parametrize(
    ("column", "micros"),
    [
        (pa.array([0, 1_700_000_000, -1]), [0, 1_700_000_000 * SECOND, -SECOND]),
        (pa.array([0.25, -0.5]), [SECOND // 4, -SECOND // 2]),
        (pa.array([Decimal("0.25")]), [SECOND // 4]),
        (pa.array([1], pa.int8()), [SECOND]),
        (pa.array([1, -1], pa.timestamp("s")), [SECOND, -SECOND]),
        (pa.array([1, -1], pa.timestamp("ms", "UTC")), [1000, -1000]),
        (pa.array([1, -1], pa.timestamp("us", "Asia/Tokyo")), [1, -1]),
        (pa.array([1999, -1], pa.timestamp("ns")), [1, -1]),
        (pa.array([1, -1], pa.date32()), [86_400 * SECOND, -86_400 * SECOND]),
        (pa.array([86_400_000], pa.date64()), [86_400 * SECOND]),
        (pa.array(["1970-01-02", "1970-01-01T00:00:01.5+00:00"]), [86_400 * SECOND, 1_500_000]),
        (pa.array(["1970-01-01T01:00+01:00"], pa.large_string()), [0]),
        (pa.array(["1970-01-02"]).dictionary_encode(), [86_400 * SECOND]),
        (pc.run_end_encode(pa.array([5, 5])), [5 * SECOND, 5 * SECOND]),
        (pa.chunked_array([[1], [2, 3]], pa.timestamp("s")), [SECOND, 2 * SECOND, 3 * SECOND]),
    ],
    ids=lambda given: str(getattr(given, "type", "")),
)
def test_times_are_microseconds_since_the_epoch(column, micros):
    assert times_of(column) == micros


@pytest.mark.parametrize(
    ("value", "micros"),
    [
        (1, SECOND),
        (0.25, SECOND // 4),
        (Decimal("0.25"), SECOND // 4),
        (np.int32(3), 3 * SECOND),
        ("1970-01-02T00:00:00Z", 86_400 * SECOND),
        (dt.date(1970, 1, 2), 86_400 * SECOND),
        (dt.datetime(1970, 1, 1, 0, 0, 1), SECOND),
        (dt.datetime(1970, 1, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=5))), 0),
        (np.datetime64("1970-01-02"), 86_400 * SECOND),
        (pd.Timestamp(-1), -1),
        (pd.Timestamp(1999), 1),
    ],
    ids=repr,
)
def test_times_of_dicts_are_microseconds_too(value, micros):
    assert time_of(value) == micros


@patient
@given(st.datetimes(), st.sampled_from(["us", "ms", "s"]))
def test_the_dict_and_the_arrow_door_agree_on_times(moment, unit):
    column = pa.array([moment], pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
    assert times_of(column) == [time_of(column[0].as_py())]
    assert time_of(moment.isoformat()) == time_of(moment)


@patient
@given(st.one_of(st.integers(-(10**13), 10**13), st.floats(-1e13, 1e13)))
def test_the_dict_and_the_arrow_door_agree_on_seconds(seconds):
    try:
        alone = time_of(seconds)
    except ObservationError as error:
        alone = list(error.problems)
    try:
        (column,) = times_of(pa.array([seconds]))
    except ObservationError as error:
        column = list(error.problems)
    assert alone == column
    if isinstance(alone, int):
        assert abs(Fraction(alone, 10**6) - Fraction(seconds)) <= max(1, abs(seconds) * 1e-9)


def test_times_of_pandas_and_polars_are_read():
    stamps = [dt.datetime(2020, 1, 1), dt.datetime(2020, 6, 1)]
    wanted = [time_of(stamp) for stamp in stamps]
    columns = {"x": [0, 0], "late": [0, 0], "t": stamps}
    assert TIMES.observations(pd.DataFrame(columns)).times.tolist() == wanted
    assert TIMES.observations(pl.DataFrame(columns)).times.tolist() == wanted
    error = refused(lambda: TIMES.observations(pd.DataFrame(columns | {"t": [stamps[0], pd.NaT]})))
    assert error.problems == {"column 't' has no time": [1]}


def test_a_schema_without_times_has_none():
    assert X.observations([{"x": 1, "late": 0}]).times is None


def test_every_observation_says_whose_it_is_where_people_are_protected():
    for feature in ((), (Categorical("person"),)):
        door = door_of(simple(*feature, unit="person"))
        assert refused(lambda door=door: door.observations([{"x": 1, "late": 0}])).problems
        assert len(door.observations([{"x": 1, "late": 0, "person": 7}]).units) == 1
