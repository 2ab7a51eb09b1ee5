"""Keys of tables: bulk against naive twins, and the doors for one row against the wide one."""

from __future__ import annotations

import bisect
import datetime as dt
import pickle
import re
import threading
from collections import OrderedDict, defaultdict
from decimal import Decimal
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.config.spelling import BY_TEXT, BY_TYPE
from pyramidion.errors import ObservationError, SchemaError
from pyramidion.rows import encoding_kernels as kernels
from pyramidion.rows.containers import plain
from pyramidion.rows.encoding import Encoder, TableShape, lookup_table, table_shapes
from pyramidion.rows.hashing import Hasher
from pyramidion.rows.observations import Door
from tests import reference

SECRET = b"a secret of the stream"
patient = settings(deadline=None)  # the first example may wait for the compiler
LATE = Label("late", classes=[0, 1])
DENSE = 65_536


def schema_of(*features, groups=()):
    return Schema(features=features, label=LATE, groups=groups)


def door_of(schema, dense_limit=DENSE, keyed_by=BY_TEXT):
    return Door(schema, Settings(epsilon=1.0, dense_limit=dense_limit), SECRET, keyed_by)


MIXED = schema_of(
    Categorical("open"),
    Categorical("known", domain=["a", 1, 2.5, b"\xff", False]),
    Continuous("binned", edges=[-1, 0, 10]),
    Categorical("other"),
    groups=[
        ("open", "other"),
        ("known", "binned"),
        ("open", "known", "binned"),
        ("binned", "other"),
        ("other", "known", "open", "binned"),
    ],
)


# Shapes


def test_a_group_of_finite_features_is_dense_up_to_the_limit():
    schema = schema_of(
        Categorical("a", domain=[1, 2]), Continuous("b", edges=[0]), groups=[("a", "b")]
    )
    assert table_shapes(schema, 12)[2] == TableShape(("a", "b"), 12)
    assert table_shapes(schema, 11)[2] == TableShape(("a", "b"), None)


def test_a_single_feature_is_dense_whatever_the_limit():
    assert table_shapes(schema_of(Categorical("a", domain=[1, 2])), 0)[0].codes == 4


def test_a_group_with_an_open_feature_is_hashed():
    schema = schema_of(Categorical("a", domain=[1, 2]), Categorical("b"), groups=[("a", "b")])
    assert [shape.codes for shape in table_shapes(schema, DENSE)] == [4, None, None]


def test_a_table_is_named_by_its_features():
    assert TableShape(("a", "b"), None).name == "a,b"


# Kernels


@patient
@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=20, unique=True).map(sorted),
    st.lists(st.one_of(st.floats(-110, 110), st.sampled_from([1e300, -1e300, 0.0, -0.0]))),
)
def test_bins_are_found_as_bisection_finds_them(cuts, values):
    assume(len({c + 0.0 for c in cuts}) == len(cuts))
    values = [*values, *cuts]
    out = np.empty(len(values), dtype=np.uint64)
    kernels.cut_all(np.array(values), 0, len(cuts), np.array(cuts), out)
    assert out.tolist() == [bisect.bisect_right(cuts, value) for value in values]
    assert out.tolist() == [reference.bin_code(tuple(cuts), value) for value in values]


words = st.one_of(
    st.text(max_size=3),
    st.integers(-5, 5),
    st.floats(-2, 2),
    st.binary(max_size=2),
    st.sampled_from(["1", "-1", "1.0", "01", "true", "False", "0.5", "2.0"]),
)
domains = st.lists(words, min_size=1, max_size=40, unique_by=reference.spelled).filter(
    lambda domain: None not in map(reference.spelled, domain)
)


@patient
@given(st.lists(words, min_size=1, max_size=40, unique=True), st.lists(words))
def test_a_domain_is_looked_up_by_equality(domain, values):
    hasher = Hasher(SECRET, BY_TYPE)
    keys, codes = lookup_table(hasher, tuple(domain))
    found = hasher.values([*values, *domain, None])
    kernels.find_all(found, np.uint64(hasher.missing), 0, keys.size, len(domain) + 2, keys, codes)
    all_values = [*values, *domain, None]
    wanted = [reference.domain_code(tuple(domain), value, BY_TYPE) for value in all_values]
    assert found.tolist() == wanted


@patient
@given(domains, st.lists(words))
def test_a_domain_is_looked_up_by_text(domain, values):
    hasher = Hasher(SECRET)
    keys, codes = lookup_table(hasher, tuple(domain))
    found = hasher.values([*values, *domain, None])
    kernels.find_all(found, np.uint64(hasher.missing), 0, keys.size, len(domain) + 2, keys, codes)
    wanted = [reference.domain_code(tuple(domain), v) for v in [*values, *domain, None]]
    assert found.tolist() == wanted


def test_a_domain_of_many_values_is_looked_up():
    domain = tuple(range(0, 20_000, 2))
    encoder = Encoder(schema_of(Categorical("x", domain=domain)), SECRET, DENSE)
    found = encoder.keys({"x": pa.array(range(20_000))}, 0, 0, 20_000)
    assert found[::2].tolist() == list(range(10_000))
    assert set(found[1::2].tolist()) == {10_000}


@pytest.mark.parametrize(
    ("domain", "reason"),
    [
        ([1, "1"], "holds 1 and '1', which have the same text"),
        (["7.0", b"7"], "holds '7.0' and b'7', which have the same text"),
        ([True, "true"], "holds True and 'true', which have the same text"),
        (["", "a"], "holds '', which is a missing value"),
        ([2.0**53, 1], "a float of 2^53 or more"),
    ],
)
def test_declared_values_of_one_text_are_refused(domain, reason):
    schema = schema_of(Categorical("x", domain=domain))
    with pytest.raises(SchemaError, match=re.escape(reason)):
        door_of(schema)
    door_of(schema, keyed_by=BY_TYPE)  # which an older stream may have


# In bulk


ROWS = [
    {"open": "x", "known": "a", "binned": 3.5, "other": "y"},
    {"open": None, "known": None, "binned": None, "other": None},
    {"open": "y", "known": "unheard", "binned": -7.0, "other": "x"},
    {"open": "", "known": "a", "binned": 0.0, "other": "x" * 50},
]


@pytest.mark.parametrize("dense_limit", [0, DENSE])
def test_the_keys_of_all_tables_are_those_of_the_twin(dense_limit):
    rows = door_of(MIXED, dense_limit).rows(pa.Table.from_pylist(ROWS))
    assert rows.matrix(0, 4).tolist() == reference.table_keys(SECRET, MIXED, dense_limit, ROWS)


def test_any_part_of_the_rows_has_the_keys_of_that_part():
    rows = door_of(MIXED).rows(pa.Table.from_pylist(ROWS * 5))
    whole = rows.matrix(0, 20)
    for table in range(len(MIXED.tables)):
        assert rows.keys(table, 3, 11).tolist() == whole[table, 3:11].tolist()
    assert rows.matrix(7, 7).shape == (len(MIXED.tables), 0)


def test_the_order_of_a_group_is_that_of_the_schema():
    there = schema_of(Categorical("a"), Categorical("b"), groups=[("a", "b")])
    back = schema_of(Categorical("a"), Categorical("b"), groups=[("b", "a")])
    row = {"a": "x", "b": "y"}
    one, other = (door_of(schema).encoder.one(row)[2, 0] for schema in (there, back))
    assert one != other
    assert int(one) == reference.join([reference.key(SECRET, "x"), reference.key(SECRET, "y")])


def test_binning_reads_every_type_of_number():
    schema = schema_of(Continuous("x", edges=[2, 5]))
    whole = pa.array([1, 2, None, 7], pa.int8())
    kinds = [pa.int16(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(5, 1)]
    for kind in kinds:
        column = whole.cast(pa.float32()).cast(kind) if kind == pa.float16() else whole.cast(kind)
        for batch in (column, pa.chunked_array([column[:1], column[1:]])):
            rows = door_of(schema).rows(pa.table({"x": batch}))
            assert rows.keys(0, 0, 4).tolist() == [0, 1, 3, 2], kind
            assert rows.keys(0, 1, 3).tolist() == [1, 3]


def test_keys_do_not_change_the_columns_they_are_made_of():
    door = door_of(MIXED)
    mixed = [dict(row, known=i) for i, row in enumerate(ROWS)]
    mixed[0]["known"] = "a"
    rows = door.rows(mixed)
    assert rows.matrix(0, 4).tolist() == rows.matrix(0, 4).tolist()


# One row


def test_a_dict_has_the_keys_of_the_twin():
    encoder = door_of(MIXED).encoder
    for row in ROWS:
        expected = reference.table_keys(SECRET, MIXED, DENSE, [row])
        assert encoder.one(row).tolist() == expected


@pytest.mark.parametrize(
    "words", [("", ""), ("", "x"), ("x", ""), ("\0", ""), ("a\0b", "c"), ("a", "\0"), ("é", "😀")]
)
def test_text_that_is_joined_is_told_apart_again(words):
    pair = schema_of(Categorical("a"), Categorical("b", domain=["x", "\0", "c"]))
    triple = schema_of(*pair.features, Continuous("c", edges=[1]))
    for schema in (pair, triple):
        row = dict(zip("abc", (*words, 2), strict=True))
        expected = reference.table_keys(SECRET, schema, DENSE, [row])
        assert door_of(schema).encoder.one(row).tolist() == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_beside_text_must_be_finite(value):
    schema = schema_of(Categorical("a"), Continuous("b", edges=[1]))
    with pytest.raises(ObservationError, match="'b' is NaN or infinite"):
        door_of(schema).encoder.one({"a": "x", "b": value})


def test_a_schema_of_one_feature_takes_a_dict():
    encoder = Encoder(schema_of(Categorical("x")), SECRET, DENSE)
    assert encoder.one({"x": "a"}).tolist() == [[reference.key(SECRET, "a")]]


def test_integers_beyond_the_signed_range_pass_the_narrow_door():
    encoder = Encoder(schema_of(Categorical("x"), Categorical("y")), SECRET, DENSE)
    found = encoder.one({"x": 2**64 - 1, "y": 2**63})
    assert found[:, 0].tolist() == [reference.key(SECRET, v) for v in (2**64 - 1, 2**63)]


def test_any_mapping_is_a_row():
    encoder = door_of(MIXED).encoder
    expected = encoder.one(ROWS[0]).tolist()
    assert encoder.one(OrderedDict(ROWS[0])).tolist() == expected
    assert encoder.one(MappingProxyType(ROWS[0])).tolist() == expected


def test_a_row_that_invents_columns_is_not_asked_to():
    row = defaultdict(str, {"open": "x"})
    with pytest.raises(ObservationError, match="'known' is missing from the row"):
        door_of(MIXED).encoder.one(row)
    assert list(row) == ["open"]


@pytest.mark.parametrize("row", [None, 3, ["x"], "x"])
def test_what_is_no_row_is_refused(row):
    with pytest.raises(ObservationError, match="not understood"):
        door_of(MIXED).encoder.one(row)


def test_all_problems_of_a_row_are_told_at_once():
    row = {"open": [], "binned": "SECRET123", "other": float("nan")}
    with pytest.raises(ObservationError) as caught:
        door_of(MIXED).encoder.one(row)
    assert caught.value.__context__ is None
    assert list(caught.value.problems.values()) == [[0]] * 4
    with pytest.raises(ObservationError) as wide:
        door_of(MIXED).rows([row])
    assert wide.value.problems == caught.value.problems


def test_a_batch_of_one_row_has_the_keys_of_its_row():
    schema = schema_of(
        Categorical("a"), Categorical("b"), Continuous("c", edges=[3]), Continuous("d", edges=[3])
    )
    encoder = door_of(schema).encoder
    for row in ({"a": "x", "b": 7, "c": 3, "d": 2.5}, {"a": "", "b": -7, "c": 2, "d": 3.0}):
        batch = pa.RecordBatch.from_pylist([row])
        assert encoder.one_arrow(batch).tolist() == encoder.one(row).tolist()


NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("value", [0, 1, -1, 100, -128, None])
def test_a_batch_of_one_row_reads_every_width_of_number(kind, value):
    schema = schema_of(
        Categorical("x"), Categorical("y", domain=[-1, 100]), Continuous("z", edges=[-1, 50])
    )
    batch = pa.table({name: pa.array([value], kind) for name in "xyz"}).to_batches()[0]
    encoder = door_of(schema).encoder
    row = dict.fromkeys("xyz", value)
    assert encoder.one_arrow(batch).tolist() == encoder.one(row).tolist()


def test_a_slice_of_one_row_is_that_row():
    table = pa.table({"a": ["x", None, "long " * 20, ""], "b": [1.0, 2.0, None, 4.0]})
    encoder = door_of(schema_of(Categorical("a"), Categorical("b"))).encoder
    batch = table.to_batches()[0]
    for i, row in enumerate(table.to_pylist()):
        assert encoder.one_arrow(batch.slice(i, 1)).tolist() == encoder.one(row).tolist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x"], pa.string_view()),
        pa.array([1], pa.uint64()),
        pa.array([True]),
        pa.array(["x"]).dictionary_encode(),
        pa.array([dt.date(2020, 1, 1)]),
        pa.array([float("nan")]),
        pa.array([1, 2]),
        pa.array([], pa.int64()),
    ],
    ids=lambda column: f"{column.type}-{len(column)}",
)
def test_a_batch_that_only_the_wide_door_can_read_is_sent_there(column):
    encoder = door_of(schema_of(Categorical("x"))).encoder
    assert encoder.one_arrow(pa.RecordBatch.from_arrays([column], ["x"])) is None


def test_a_missing_or_doubled_column_is_sent_to_the_wide_door():
    encoder = door_of(schema_of(Categorical("x"))).encoder
    one = pa.array(["a"])
    assert encoder.one_arrow(pa.RecordBatch.from_arrays([one], ["y"])) is None
    assert encoder.one_arrow(pa.RecordBatch.from_arrays([one, one], ["x", "x"])) is None


def test_threads_with_different_batches_do_not_mix_up_their_columns():
    encoder = door_of(schema_of(Categorical("a"), Categorical("b"))).encoder
    batches = [
        pa.RecordBatch.from_pydict({"a": ["x"], "b": ["y" * 40]}),
        pa.RecordBatch.from_pydict({"b": [1], "c": [2.0], "a": [3]}),
        pa.RecordBatch.from_pydict({"b": pa.array(["z"], pa.large_string()), "a": [0.5]}),
        pa.RecordBatch.from_pydict({"b": pa.array(["z"], pa.string_view()), "a": [0.5]}),
    ]
    expected = [encoder.one_arrow(batch) for batch in batches]
    wrong = []

    def work(number):
        for _ in range(1500):
            found = encoder.one_arrow(batches[number])
            if not np.array_equal(found, expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert expected[3] is None


def test_another_schema_remembered_in_between_is_not_used():
    encoder = door_of(schema_of(Categorical("a"))).encoder
    ours, theirs = np.array([[0, kernels.ARROW_TEXT32]]), np.array([[7, kernels.ARROW_INT64]])

    class Meddled:
        def equals(self, schema):
            encoder._arrow = (pa.schema([]), theirs)  # another thread, at the worst moment
            return True

    encoder._arrow = (Meddled(), ours)
    assert encoder._arrow_columns(pa.schema([("a", pa.string())])) is ours


@pytest.mark.parametrize("schema", [schema_of(Categorical("x")), MIXED], ids=["one", "many"])
def test_an_encoder_survives_pickling(schema):
    encoder = Encoder(schema, SECRET, DENSE)
    twin = pickle.loads(pickle.dumps(encoder))  # noqa: S301
    row = dict.fromkeys(schema.feature_names)
    assert twin.one(row).tolist() == encoder.one(row).tolist()


# All doors agree


def features(name):
    domain = domains.map(lambda values: values[:6])
    edges = st.lists(st.integers(-5, 5), min_size=1, max_size=10, unique=True).map(sorted)
    return st.one_of(
        st.just(Categorical(name)),
        domain.map(lambda values: Categorical(name, domain=values)),
        edges.map(lambda cuts: Continuous(name, edges=cuts)),
    )


@st.composite
def schemas(draw):
    names = draw(st.sampled_from(["a", "ab", "abc", "abcd"]))
    groups = st.lists(st.sampled_from(names), min_size=2, max_size=4, unique=True)
    many = st.lists(groups, max_size=3, unique_by=frozenset) if len(names) > 1 else st.just([])
    return schema_of(*[draw(features(name)) for name in names], groups=draw(many))


good = st.one_of(
    st.none(),
    words,
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(-(2**53), 2**53, exclude_min=True, exclude_max=True),
    st.text(max_size=30),
    st.integers(-(2**63), 2**64 - 1).map(str),
    st.floats(-(2**53), 2**53).map(repr),
    st.integers(0, 300).map(lambda n: "long ünicode " * n),
    st.binary(max_size=20),
    st.decimals(-(10**9), 10**9, places=0),
    st.integers(-99, 99).map(lambda n: Decimal(f"{n}.00")),
    st.dates(),
    st.uuids(),
)
typed = st.one_of(  # which have no key by their text
    st.decimals(-(10**9), 10**9, places=3),
    st.datetimes(),
    st.datetimes(timezones=st.just(dt.timezone(dt.timedelta(hours=-7)))),
    st.times(),
    st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999)),
)
numbers = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-6, 6),
    st.floats(-6, 6),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-6, 6, places=2),
)
bad = st.one_of(
    st.sampled_from(
        [float("nan"), float("inf"), -float("inf"), Decimal("NaN"), "\ud800", "x\udfff"]
    ),
    st.sampled_from([2**64, -(2**63) - 1, 10**400, [], {}, 1j, np.datetime64("NaT")]),
)
anything = st.one_of(good, typed, numbers, bad)


def value_for(feature, keyed_by):
    if isinstance(feature, Continuous):
        return numbers
    return good if keyed_by == BY_TEXT else st.one_of(good, typed)


def column_of(value):
    """One value as Arrow infers it, or None where Arrow cannot hold it."""
    if value is Ellipsis:
        return None
    try:
        whole = type(value) is int and value >= 2**63
        return pa.array([value], pa.uint64() if whole else None)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None


def told(make):
    """The keys, or what is refused: two doors agree when this is the same."""
    try:
        return make().tolist()
    except ObservationError as error:
        refused = error
    assert refused.__context__ is None
    return sorted(refused.problems.items())


@pytest.mark.slow
@settings(patient, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(schemas(), st.sampled_from([0, 30, DENSE]), st.sampled_from([BY_TEXT, BY_TYPE]), st.data())
def test_all_doors_give_a_good_row_the_keys_of_the_twin(schema, dense_limit, keyed_by, data):
    row = {feature.name: data.draw(value_for(feature, keyed_by)) for feature in schema.features}
    door = door_of(schema, dense_limit, keyed_by)
    expected = reference.table_keys(SECRET, schema, dense_limit, [row], keyed_by)
    assert door.encoder.one(row).tolist() == expected
    assert door.rows(row).matrix(0, 1).tolist() == expected
    assert door.rows([row, row]).matrix(1, 2).tolist() == expected
    columns = {name: column_of(value) for name, value in row.items()}
    assert None not in columns.values()
    batch = pa.RecordBatch.from_pydict(columns)
    assert door.rows(batch).matrix(0, 1).tolist() == expected
    narrow = door.encoder.one_arrow(batch)
    assert narrow is None or narrow.tolist() == expected


@pytest.mark.slow
@settings(patient, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(schemas(), st.sampled_from([BY_TEXT, BY_TYPE]), st.data())
@example(schema_of(Categorical("a")), BY_TEXT, None)
def test_all_doors_refuse_the_same_rows_for_the_same_reasons(schema, keyed_by, data):
    row = {"a": 10**400}
    if data is not None:
        row = {name: data.draw(anything) for name in schema.feature_names}
        row.pop(data.draw(st.sampled_from([*schema.feature_names, "none"])), None)
    door = door_of(schema, keyed_by=keyed_by)
    narrow = told(lambda: door.encoder.one(row))
    assert told(lambda: door.rows([row]).matrix(0, 1)) == narrow
    assert told(lambda: door.rows([row, row]).matrix(1, 2)) == [
        (reason, [0, 1]) if isinstance(reason, str) else [reason, *rest] for reason, *rest in narrow
    ]
    columns = {name: column_of(row.get(name, ...)) for name in schema.feature_names}
    if None not in columns.values():
        refused = bool(narrow) and isinstance(narrow[0], tuple)
        batch = pa.RecordBatch.from_pydict(columns)
        wide = told(lambda: door.rows(batch).matrix(0, 1))
        assert (wide == [] or isinstance(wide[0], tuple)) if refused else wide == narrow
        assert not refused or door.encoder.one_arrow(batch) is None


KINDS = {
    pa.string(): (st.text(max_size=20), [pa.string(), pa.large_string(), pa.string_view()]),
    pa.int32(): (st.integers(-(2**31), 2**31 - 1), [pa.int32(), pa.int64(), pa.float64()]),
    pa.float64(): (st.floats(-9, 9), [pa.float64()]),
    pa.bool_(): (st.booleans(), [pa.bool_()]),
    pa.date32(): (st.dates(), [pa.date32()]),
    pa.binary(): (st.binary(max_size=20), [pa.binary(), pa.large_binary(), pa.binary_view()]),
}


@st.composite
def arrow_columns(draw, count):
    """A column of any type, sliced, perhaps dictionary-encoded, in two chunks."""
    base = draw(st.sampled_from(list(KINDS)))
    values, kinds = KINDS[base]
    rows = draw(st.lists(st.one_of(st.none(), values), min_size=count + 2, max_size=count + 2))
    column = pa.array(rows, base).cast(draw(st.sampled_from(kinds)))[1:-1]
    if draw(st.booleans()):
        column = pa.DictionaryArray.from_arrays(pa.array(range(count), pa.int16()), column)
    cut = draw(st.integers(0, count))
    return pa.chunked_array([column[:cut], column[cut:]])


@settings(patient, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_chunked_sliced_and_encoded_columns_give_every_row_its_own_keys(data):
    known = Categorical("b", domain=["x", 0, 1, b"y"])
    door = door_of(schema_of(Categorical("a"), known, groups=[("a", "b")]))
    count = data.draw(st.integers(0, 12))
    table = pa.table({name: data.draw(arrow_columns(count)) for name in "ab"})
    found = door.rows(table).matrix(0, count)
    for i, row in enumerate(table.to_pylist()):
        assert found[:, i].tolist() == door.encoder.one(row)[:, 0].tolist()
    decoded = pa.table({name: plain(table[name]) for name in "ab"})
    for frame in (pl.from_arrow(decoded), decoded.to_pandas(types_mapper=pd.ArrowDtype)):
        assert door.rows(frame).matrix(0, count).tolist() == found.tolist()
