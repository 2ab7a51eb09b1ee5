"""Keys of values: the kernels against naive twins, and every container against every other."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
import subprocess
import sys
import textwrap
from decimal import Context, Decimal
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramidion.config.spelling import BY_TEXT, BY_TYPE
from pyramidion.errors import FormatError, ObservationError
from pyramidion.rows import hashing_kernels as kernels
from pyramidion.rows.hashing import Hasher, derive, hashable, sound
from pyramidion.rows.hashing_values import canonical
from tests import reference

SECRET = b"a secret of the stream"
patient = settings(deadline=None)  # the first example may wait for the compiler
HASHER = Hasher(SECRET, BY_TYPE)  # of older streams; by text, see below
TEXTS = ["x" * n for n in range(41)] + ["é€😀", "a\0b", "", "y" * 1000]
WHOLE = [0, 1, -1, 127, -128, 255, 32767, -32768, 65535, 2**31 - 1, -(2**31), 2**32 - 1]
WIDE = [*WHOLE, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
REALS = [0.0, -0.0, 1.0, -1.5, 0.1, 5e-324, 2.0**53, -(2.0**63), 2.0**63, 2.0**64, 1e300, -1e300]
STAMPS = [0, 1, -1, 1_700_000_000, -5_000_000_000, 10_000_000_000]


def keys(values):
    return [reference.key(SECRET, value, BY_TYPE) for value in values]


def hashed(column):
    return HASHER.column(column).tolist()


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# SipHash


def test_the_twin_gives_the_published_vector_of_siphash_2_4():
    assert reference.siphash(bytes(range(16)), bytes(range(15)), 2, 4) == 0xA129CA6149BE45E5


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="another hash in CPython")
def test_the_twin_gives_what_cpython_hashes_with_a_key_of_zeros():
    told = python("print([hash(bytes(range(n))) for n in range(1, 41)])", PYTHONHASHSEED="0")
    ours = [reference.siphash(bytes(16), bytes(range(n))) for n in range(1, 41)]
    assert [x & reference.MASK for x in json.loads(told)] == ours


def test_the_kernel_is_siphash_1_3():
    for length in range(41):
        data = bytes(range(200, 200 + length))
        pair = reference.key_of_kind(SECRET, "bytes")
        assert HASHER.payload(kernels.BYTES, data) == reference.siphash(pair, data)


def test_a_length_counts_modulo_256():
    data = b"z" * 515
    pair = reference.key_of_kind(SECRET, "text")
    assert HASHER.payload(kernels.TEXT, data) == reference.siphash(pair, data)


@patient
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_the_kernel_for_words_is_siphash_of_eight_bytes(k0, k1, word):
    keys = np.array([[k0, k1]], dtype=np.uint64)
    out = np.empty(1, dtype=np.uint64)
    kernels.hash_words(keys, 0, np.array([word], dtype=np.uint64), out)
    key = reference.word(k0) + reference.word(k1)
    assert int(out[0]) == reference.siphash(key, reference.word(word))


@patient
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5))
def test_groups_join_their_parts_in_order(parts):
    group = np.array(parts[:1], dtype=np.uint64)
    for part in parts[1:]:
        kernels.join_all(group, np.array([part], dtype=np.uint64))
    assert int(group[0]) == reference.join(parts)


def test_the_order_of_a_group_matters():
    one, other = np.array([1], dtype=np.uint64), np.array([2], dtype=np.uint64)
    there, back = one.copy(), other.copy()
    kernels.join_all(there, other)
    kernels.join_all(back, one)
    assert there[0] != back[0]


def test_each_kind_of_value_has_its_own_keys_from_the_secret():
    for number, kind in enumerate(reference.KINDS):
        assert HASHER.keys[number].tobytes() == reference.key_of_kind(SECRET, kind)
    assert len({pair.tobytes() for pair in HASHER.keys}) == kernels.KINDS


def test_another_secret_gives_other_keys():
    assert Hasher(b"one").value("a") != Hasher(b"two").value("a")


def test_words_derived_for_one_purpose_say_nothing_of_another():
    assert derive(SECRET, "a", 2).tolist() != derive(SECRET, "b", 2).tolist()


# Columns against twins


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_of_every_length_hashes_as_its_utf8(kind):
    assert hashed(pa.array(TEXTS, kind)) == keys(TEXTS)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_bytes_of_every_length_hash_as_they_are(kind):
    values = [text.encode() for text in TEXTS]
    assert hashed(pa.array(values, kind)) == keys(values)


@pytest.mark.parametrize("width", [0, 1, 7, 8, 9, 16, 33])
def test_bytes_of_fixed_width_hash_as_bytes(width):
    values = [bytes([i]) * width for i in range(5)]
    assert hashed(pa.array(values, pa.binary(width))) == keys(values)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["int", "uint"])
def test_integers_of_every_width_hash_as_their_number(sign, bits):
    limits = np.iinfo(f"{sign}{bits}")
    values = [v for v in [*WIDE, int(limits.min), int(limits.max)] if limits.min <= v <= limits.max]
    assert hashed(pa.array(values, getattr(pa, f"{sign}{bits}")())) == keys(values)


def test_integers_beyond_the_signed_range_have_keys_of_their_own():
    values = [0, 2**63 - 1, 2**63, 2**64 - 1]
    assert hashed(pa.array(values, pa.uint64())) == keys(values)
    assert len(set(keys([*values, -1, -(2**63)]))) == 6


def test_floats_hash_as_the_integers_they_equal():
    assert hashed(pa.array(REALS)) == keys(REALS)
    assert hashed(pa.array([3.0, -0.0, 2.0**63])) == keys([3, 0, 2**63])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_of_every_width_hash_as_doubles(kind):
    values = [0.0, -0.0, 1.0, -2.5, float(kind(0.1)), float(np.finfo(kind).max)]
    assert hashed(pa.array(np.array(values, dtype=kind))) == keys(values)


@patient
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_any_float_hashes_as_its_twin(values):
    assert hashed(pa.array(values, pa.float64())) == keys(values)


def test_booleans_hash_as_numbers():
    values = [True, None, False, True]
    assert hashed(pa.array(values)) == keys(values) == keys([1, None, 0, 1])


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kathmandu"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_an_instant_hashes_the_same_in_every_unit_and_zone(unit, zone):
    times = [dt.datetime.fromtimestamp(s, dt.UTC) if s >= 0 else None for s in STAMPS]
    column = pa.array(STAMPS, pa.timestamp("s")).cast(pa.timestamp(unit, zone), safe=False)
    expected = [reference.EPOCH + dt.timedelta(seconds=s) for s in STAMPS]
    if unit == "ns":
        column, expected = column[:5], expected[:5]
    assert hashed(column) == keys(expected)
    assert all(a == b for a, b in zip(times, expected, strict=False) if a)


def test_instants_differ_by_a_nanosecond():
    assert len(set(hashed(pa.array([0, 1, 1000], pa.timestamp("ns"))))) == 3


def test_dates_hash_as_their_midnight():
    days = [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), None]
    nights = [d and dt.datetime(d.year, d.month, d.day) for d in days]
    for kind in (pa.date32(), pa.date64(), pa.timestamp("s")):
        assert hashed(pa.array(days, pa.date32()).cast(kind)) == keys(days) == keys(nights)


@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")], ids=str
)
def test_times_of_day_hash_the_same_in_every_unit(kind):
    times = [dt.time(0), dt.time(23, 59, 59), None, dt.time(7, 30)]
    assert hashed(pa.array(times, kind)) == keys(times)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_hash_the_same_in_every_unit(unit):
    spans = [dt.timedelta(0), dt.timedelta(days=-3), None, dt.timedelta(hours=5)]
    assert hashed(pa.array(spans, pa.duration(unit))) == keys(spans)


def test_the_same_number_is_not_the_same_instant_time_or_duration():
    kinds = [pa.int64(), pa.timestamp("ns"), pa.time64("ns"), pa.duration("ns")]
    assert len({hashed(pa.array([5], pa.int64()).cast(kind))[0] for kind in kinds}) == 4


DECIMALS = ["0", "1", "-1.50", "0.1", "0.5", "-0.125", "99999.99", "0.0000000001", "12345678.9"]


@pytest.mark.parametrize(
    "kind",
    [pa.decimal64(18, 10), pa.decimal128(38, 10), pa.decimal256(76, 40), pa.decimal128(20, 11)],
    ids=str,
)
def test_decimals_hash_as_their_number_whatever_their_scale(kind):
    values = [Decimal(d) for d in DECIMALS]
    assert hashed(pa.array(values, kind)) == keys(values)


def test_narrow_decimals_hash_as_their_number():
    values = [Decimal(d) for d in ("0.00", "1.25", "-3.10", "99.99", "0.50")]
    assert hashed(pa.array(values, pa.decimal32(5, 2))) == keys(values)


def test_decimals_beyond_64_bits_hash_as_their_number():
    digits = ["18446744073709551615", "18446744073709551616", "-9223372036854775809", "1e30"]
    digits += ["12345678901234567890.1", "-9223372036854775808", "9223372036854775807.5"]
    values = [Decimal(d) for d in digits]
    assert hashed(pa.array(values, pa.decimal256(70, 5))) == keys(values)


def test_decimals_that_are_halves_of_halves_hash_as_floats():
    exact = Context(prec=60)
    values = [exact.divide(Decimal(1), Decimal(2**k)) for k in range(28)]
    assert hashed(pa.array(values, pa.decimal128(38, 27))) == keys(values)
    assert keys(values) == keys([0.5**k for k in range(28)])


def test_decimals_between_two_floats_are_no_floats():
    values = [Decimal(2**53 + 1) / 2, Decimal(2**53 - 1) / 2, -Decimal(2**54 + 2) / 4]
    assert hashed(pa.array(values, pa.decimal128(18, 1))) == keys(values)
    assert [canonical(value)[0] for value in values] == [
        kernels.DECIMAL,
        kernels.FRACTION,
        kernels.DECIMAL,
    ]


def test_decimals_of_negative_scale_hash_as_their_number():
    values = [Decimal(300), None, Decimal(1200)]
    assert hashed(pa.array(values, pa.decimal128(5, -2))) == keys([300, None, 1200])


@patient
@given(st.lists(st.decimals(-(10**20), 10**20, places=12), max_size=10))
def test_any_decimal_hashes_as_its_twin(values):
    assert hashed(pa.array(values, pa.decimal128(38, 12))) == keys(values)
    assert HASHER.values(values).tolist() == keys(values)


def test_equal_decimals_integers_and_floats_share_a_key():
    assert HASHER.value(Decimal("1.00")) == HASHER.value(1) == HASHER.value(True)
    assert HASHER.value(Decimal("0.50")) == HASHER.value(0.5)
    assert HASHER.value(Decimal("0.1")) != HASHER.value(0.1)
    assert HASHER.value(Decimal("1")) != HASHER.value("1")


def test_a_column_without_a_type_is_all_missing():
    assert hashed(pa.nulls(3)) == keys([None] * 3)


KINDS = [
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view()),
    *(pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.date32()),
    *(pa.timestamp("us", "UTC"), pa.time32("s"), pa.duration("ms"), pa.decimal128(9, 3)),
    *(pa.binary(3), pa.dictionary(pa.int8(), pa.string())),
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def some(kind, count=23):
    """An array with nulls of any type in KINDS."""
    whole = pa.array([None if i % 5 == 3 else i % 7 for i in range(count)], pa.int64())
    if pa.types.is_dictionary(kind):
        return whole.cast(pa.string()).dictionary_encode().cast(kind)
    if kind == pa.binary(3):
        return pa.array([v if v is None else bytes([v]) * 3 for v in whole.to_pylist()], kind)
    if kind in (pa.binary(), pa.binary_view()):
        return whole.cast(pa.string()).cast(pa.binary()).cast(kind)
    if kind == pa.time32("s"):
        return whole.cast(pa.int32()).cast(kind)
    if pa.types.is_date32(kind):
        return whole.cast(pa.int32()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array([v if v is None else Decimal(v) / 8 for v in whole.to_pylist()], kind)
    if kind == pa.string_view():
        texts = [v if v is None else "long enough to be elsewhere" * v for v in whole.to_pylist()]
        return pa.array(texts, kind)
    return whole.cast(kind)


@every_kind
def test_a_missing_value_has_a_key_of_its_own(kind):
    column = some(kind)
    assert hashed(column) == keys(column.to_pylist())
    assert hashed(column)[3] == HASHER.missing


@every_kind
def test_a_slice_hashes_as_its_part(kind):
    column = some(kind)
    for start, stop in ((0, 1), (3, 4), (1, 23), (9, 17), (16, 23)):
        assert hashed(column[start:stop]) == hashed(column)[start:stop]


@every_kind
def test_chunks_hash_as_the_whole(kind):
    column = some(kind)
    chunks = pa.chunked_array([column[:5], column[5:5], column[5:20], column[20:]])
    assert hashed(chunks) == hashed(column)


@every_kind
def test_nothing_hashes_to_nothing(kind):
    assert hashed(pa.nulls(0, kind)) == []
    assert hashed(pa.chunked_array([], kind)) == []


@every_kind
def test_all_missing_hashes_to_missing(kind):
    assert hashed(pa.nulls(9, kind)) == [HASHER.missing] * 9


@pytest.mark.parametrize("kind", KINDS[:-1], ids=str)
def test_a_dictionary_hashes_as_its_values(kind):
    values = some(kind)  # a null in the dictionary, and one among the indices
    indices = pa.array([0, 3, None, 22, 5, 5], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, values)
    of = hashed(values)
    assert hashed(column) == [of[0], of[3], HASHER.missing, of[22], of[5], of[5]]
    assert hashed(column[2:5]) == [HASHER.missing, of[22], of[5]]


@every_kind
def test_runs_hash_as_their_values(kind):
    values = some(kind, 5)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 4, 5, 9, 10], pa.int32()), values)
    of = hashed(values)
    whole = [of[i] for i in (0, 1, 1, 1, 2, 3, 3, 3, 3, 4)]
    assert hashed(runs) == whole
    assert hashed(runs[2:8]) == whole[2:8]


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.uint64()])
def test_a_dictionary_may_fill_its_index_type_and_still_have_nulls(index):
    count = (
        2 ** (index.bit_width - (index in (pa.int8(), pa.int32()))) if index.bit_width < 9 else 9
    )
    texts = [str(i) for i in range(count)]
    column = pa.DictionaryArray.from_arrays(pa.array([count - 1, None, 0], index), pa.array(texts))
    assert hashed(column) == keys([texts[-1], None, "0"])


def test_an_index_that_points_nowhere_is_not_followed():
    indices = pa.array([0, 100, -1], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["a"]), safe=False)
    assert hashed(column)[0] == HASHER.value("a")


def test_what_stands_where_a_view_is_missing_is_not_followed():
    good = pa.array(["short", "a text that is longer than twelve bytes", None], pa.string_view())
    _, views, data = good.buffers()
    broken = bytearray(views.to_pybytes())
    broken[32:48] = b"\x7f" * 16
    bits = pa.py_buffer(bytes([0b011]))
    column = pa.Array.from_buffers(good.type, 3, [bits, pa.py_buffer(bytes(broken)), data])
    assert sound(column)
    assert hashed(column) == hashed(good)


def test_text_without_any_data_is_empty_text():
    offsets = pa.py_buffer(np.zeros(3, dtype=np.int32).tobytes())
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"")])
    assert hashed(column) == keys(["", ""])


@pytest.mark.slow
def test_no_load_passes_the_end_of_a_buffer():
    """Values lie directly before a page that must not be read: a stray load kills the child."""
    told = python(
        """
        import ctypes, mmap
        import numpy as np, pyarrow as pa
        from pyramidion.rows.hashing import Hasher
        page = mmap.PAGESIZE
        memory = mmap.mmap(-1, 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(start + page), page, 0) == 0
        def at_the_edge(data):
            ctypes.memmove(start + page - len(data), data, len(data))
            return pa.foreign_buffer(start + page - len(data), len(data), memory)
        texts = [bytes(range(n)) for n in range(1, 41)]
        texts += [b"1" * n for n in range(1, 24)] + [b"-7", b"7.0", b"true", b"False", b"tr", b"f"]
        for hasher in (Hasher(b"s", "type"), Hasher(b"s", "text")):
            for data in texts:
                n = len(data)
                offsets = pa.py_buffer(np.array([0, n], dtype=np.int32).tobytes())
                text = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, at_the_edge(data)])
                assert hasher.column(text)[0] == hasher.value(data)
                fixed = pa.Array.from_buffers(pa.binary(n), 1, [None, at_the_edge(data)])
                assert hasher.column(fixed)[0] == hasher.value(data)
                if n > 12:
                    view = pa.py_buffer(np.array([n, 0, 0, 0], dtype=np.int32).tobytes())
                    buffers = [None, view, at_the_edge(data)]
                else:
                    inline = n.to_bytes(4, "little") + data.ljust(12, bytes(1))
                    buffers = [None, at_the_edge(inline)]
                view = pa.Array.from_buffers(pa.binary_view(), 1, buffers)
                assert hasher.column(view)[0] == hasher.value(data)
        print("alive")
        """
    )
    assert told.strip() == "alive"


@pytest.mark.parametrize("inner", [99, -4, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()], ids=str)
def test_offsets_outside_their_buffer_are_not_sound(kind, inner):
    dtype = np.int32 if kind == pa.string() else np.int64
    offsets = pa.py_buffer(np.array([0, inner, 3], dtype=dtype).tobytes())
    column = pa.Array.from_buffers(kind, 2, [None, offsets, pa.py_buffer(b"abc")])
    assert not sound(column)
    assert not sound(pa.DictionaryArray.from_arrays(pa.array([0]), column))


@every_kind
def test_arrays_that_arrow_made_are_sound(kind):
    assert sound(some(kind))
    assert sound(some(kind)[4:9])
    assert sound(pa.nulls(3, kind))
    assert sound(pa.nulls(0, kind))


@pytest.mark.parametrize(
    "view", [[13, 0, 0, 1], [13, 0, 1, 0], [-1, 0, 0, 0], [13, 0, -1, 0], [13, 0, 0, -1]]
)
def test_views_outside_their_buffers_are_not_sound(view):
    raw = pa.py_buffer(np.array(view, dtype=np.int32).tobytes())
    column = pa.Array.from_buffers(pa.binary_view(), 1, [None, raw, pa.py_buffer(b"x" * 13)])
    assert not sound(column)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.month_day_nano_interval(),
        pa.dictionary(pa.int8(), pa.list_(pa.int8())),
    ],
    ids=str,
)
def test_nested_types_have_no_keys(kind):
    assert not hashable(kind)


def test_hashing_a_nested_column_names_the_type_and_not_what_is_in_it():
    with pytest.raises(ObservationError, match="has type struct, which cannot") as caught:
        HASHER.column(pa.array([{"SECRET123": 1}]))
    assert "SECRET123" not in str(caught.value)


def test_unaligned_memory_hashes_as_aligned():
    raw = pa.py_buffer(b"\0" + np.arange(5, dtype=np.int64).tobytes()).slice(1)
    assert hashed(pa.Array.from_buffers(pa.int64(), 5, [None, raw])) == keys(range(5))


# Single values


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([dt.UTC, ZoneInfo("America/St_Johns")])),
    st.times(),
    st.timedeltas(dt.timedelta(days=-10_000), dt.timedelta(days=10_000)),
    st.decimals(allow_nan=False, allow_infinity=False, places=4),
    st.uuids(),
)


@pytest.mark.slow
@patient
@given(st.lists(scalars, max_size=8))
def test_any_value_hashes_as_its_twin(values):
    assert HASHER.values(values).tolist() == keys(values)
    assert [HASHER.value(value) for value in values] == keys(values)


@settings(patient, max_examples=50)
@given(scalars)
def test_a_value_hashes_the_same_alone_and_in_a_column(value):
    column = pa.array([value], pa.uint64() if type(value) is int and value >= 2**63 else None)
    column = column.storage if hasattr(column, "storage") else column
    assert hashed(column) == [HASHER.value(value)]


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), Decimal("NaN"), Decimal("-Infinity"), Decimal("sNaN")],
)
def test_numbers_that_are_not_finite_have_no_key(value):
    with pytest.raises(TypeError, match="NaN or infinite"):
        HASHER.value(value)


@pytest.mark.parametrize(
    "value", [pd.NaT, np.datetime64("NaT"), np.timedelta64("NaT", "s"), np.datetime64("NaT", "ns")]
)
def test_not_a_time_has_no_key(value):
    with pytest.raises(TypeError, match="NaT"):
        HASHER.value(value)


@pytest.mark.parametrize(
    "value",
    [2**64, -(2**63) - 1, [], {}, object(), 1j, pd.NA, np.array([1]), np.timedelta64(1, "M")],
    ids=lambda value: type(value).__name__,
)
def test_other_things_have_no_key(value):
    with pytest.raises(TypeError, match="cannot be counted"):
        HASHER.value(value)


def test_a_decimal_of_absurd_length_has_no_key():
    with pytest.raises(TypeError, match="too many digits"):
        HASHER.value(Decimal("1" * 5000))


def test_a_decimal_of_absurd_exponent_costs_nothing():
    assert HASHER.value(Decimal("1e999999")) != HASHER.value(Decimal("1e-999999"))


def test_text_that_is_not_unicode_has_no_key_and_is_not_quoted():
    with pytest.raises(TypeError, match="not valid Unicode") as caught:
        HASHER.value("SECRET123\ud800")
    assert caught.value.__context__ is None


def test_numpy_scalars_hash_as_python_values():
    pairs = [
        (np.int8(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (np.datetime64("2020-02-29"), dt.date(2020, 2, 29)),
        (np.datetime64("2020-02"), dt.date(2020, 2, 1)),
        (np.datetime64("2020-02-29T12:30", "s"), dt.datetime(2020, 2, 29, 12, 30)),
        (np.datetime64("9999-12-31T00:00", "us"), dt.datetime(9999, 12, 31)),
        (np.timedelta64(90, "m"), dt.timedelta(minutes=90)),
        (np.timedelta64(3, "W"), dt.timedelta(weeks=3)),
    ]
    for ours, plain in pairs:
        assert HASHER.value(ours) == reference.key(SECRET, plain, BY_TYPE)


def test_nanoseconds_of_pandas_times_count():
    stamp, span = pd.Timestamp(1_000_000_007), pd.Timedelta(1_000_000_007, "ns")
    assert [HASHER.value(stamp)] == hashed(pa.array([1_000_000_007], pa.timestamp("ns")))
    assert [HASHER.value(span)] == hashed(pa.array([1_000_000_007], pa.duration("ns")))


def test_naive_times_are_utc_and_zones_do_not_matter():
    naive = dt.datetime(2020, 7, 1, 12)
    aware = naive.replace(tzinfo=dt.UTC)
    there = aware.astimezone(ZoneInfo("Asia/Tokyo"))
    assert HASHER.value(naive) == HASHER.value(aware) == HASHER.value(there)


def test_a_uuid_hashes_as_its_bytes():
    uuid = UUID(int=7)
    assert canonical(uuid) == canonical(uuid.bytes)


# Every process and container


@pytest.mark.slow
def test_the_same_value_hashes_the_same_in_another_process():
    told = python(
        """
        import datetime as dt, json
        import pyarrow as pa
        from pyramidion.rows.hashing import Hasher
        hasher = Hasher(b"a secret of the stream", "type")
        column = pa.array(["AA", None, "ü" * 30]).dictionary_encode()
        values = [1, 2.5, "AA", b"AA", None, dt.datetime(2020, 1, 1)]
        print(json.dumps([hasher.column(column).tolist(), hasher.values(values).tolist()]))
        """,
        PYTHONHASHSEED="77",
    )
    values = [1, 2.5, "AA", b"AA", None, dt.datetime(2020, 1, 1)]
    assert json.loads(told) == [keys(["AA", None, "ü" * 30]), keys(values)]


FROZEN = [
    13682390220959841350,
    3081488697592221859,
    736353869779226882,
    2260836975408639898,
    14485978122534051039,
    17289071538282441117,
    16946959503075780761,
]


def test_keys_are_what_they_were():
    """Stored tables outlive versions of this package: these numbers must never change."""
    hasher = Hasher(b"forever", BY_TYPE)
    values = ["carrier", 42, -0.25, None, b"\0", dt.date(2013, 1, 1), Decimal("0.1")]
    assert hasher.values(values).tolist() == FROZEN


def test_every_container_gives_the_same_key():
    values = ["AA", None, "a text of more than twelve bytes", ""]
    expected = keys(values)
    assert hashed(pa.array(pd.Series(values), from_pandas=True)) == expected
    assert hashed(pa.array(pd.Series(values, dtype="category"), from_pandas=True)) == expected
    assert hashed(pa.chunked_array(pl.Series(values))) == expected
    assert hashed(pa.chunked_array(pl.Series(values, dtype=pl.Categorical))) == expected
    assert hashed(pc.run_end_encode(pa.array(values))) == expected
    assert HASHER.values(values).tolist() == expected


# By text

SPELLED = Hasher(SECRET, BY_TEXT)
ONE_VALUE = [
    [7, 7.0, "7", "7.0", "7.00", b"7", Decimal(7), Decimal("7.00"), np.int8(7), np.float32(7)],
    [-7, "-7", "-7.0", -7.0],
    [0, 0.0, -0.0, "0", "-0", "-0.0", "0.0", False, "false", "False", "FALSE", b"false"],
    [1, True, np.True_, "true", "True", "TRUE", "1", "1.0"],
    [2**63 - 1, str(2**63 - 1)],
    [-(2**63), str(-(2**63))],
    [2**64 - 1, str(2**64 - 1), np.uint64(2**64 - 1), Decimal(2**64 - 1), f"{2**64 - 1}.0"],
    [0.5, "0.5", b"0.5"],
    [1e-5, "1e-05"],
    [0.1 + 0.2, "0.30000000000000004"],
    [None, "", b""],
    [dt.date(2013, 1, 31), "2013-01-31", np.datetime64("2013-01-31")],
    [UUID(int=7), str(UUID(int=7))],
    ["é", "é".encode()],
]
APART = [
    *("7", "07", "007", "+7", " 7", "7 ", "7.", "7.5", "7.50", "7e0", "7,0", ".7", "-07", "--7"),
    *("tRUE", "truE", "True ", "fALSE", "t", "f", "yes", "trues", "1_0", "0x7", "nan", "None", "-"),
    *("18446744073709551616", "-9223372036854775809", "1" * 30, "00", "-00", "0.50", "\u0667", "."),
    *(
        "12345678",
        "12345678x",
        "x1234567",
        "123456789012345678",
        "1234567890123456789",
        "1-2",
        "1/2",
    ),
]


@pytest.mark.parametrize("values", ONE_VALUE, ids=lambda values: repr(values[0]))
def test_a_value_is_the_same_in_every_type(values):
    assert SPELLED.values(values).tolist() == [reference.key(SECRET, values[0])] * len(values)
    for value in values:
        if not isinstance(value, Decimal | UUID | dt.date | np.generic | None):
            column = pa.array([value], pa.uint64() if value == 2**64 - 1 else None)
            assert SPELLED.column(column).tolist() == [reference.key(SECRET, values[0])]


def test_other_texts_stay_apart():
    found = SPELLED.column(pa.array(APART)).tolist()
    assert found == [reference.key(SECRET, text) for text in APART]
    assert len(set(found)) == len(APART)


digits = st.text("0123456789", min_size=1, max_size=22)
likely = st.one_of(
    digits,
    digits.map("-".__add__),
    digits.map(lambda text: f"{text}.0"),
    st.text("-.0123456789e", max_size=24),
    st.sampled_from(["true", "True", "TRUE", "false", "False", "FALSE", ""]),
    st.sampled_from(["true", "FALSE"]).flatmap(lambda word: st.text(word + word.swapcase())),
    st.integers(-(2**63), 2**64 - 1).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(max_size=12),
)


@settings(patient, max_examples=300)
@given(st.lists(likely, max_size=8), st.sampled_from([1, 600]))
def test_text_hashes_as_its_twin_in_every_layout(texts, times):
    wanted = [reference.key(SECRET, text) for text in texts] * times
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert SPELLED.column(pa.array(texts * times, kind)).tolist() == wanted
    assert SPELLED.column(pa.array(texts).dictionary_encode()).tolist() == wanted[: len(texts)]
    assert SPELLED.values(texts).tolist() == wanted[: len(texts)]


@patient
@given(st.lists(digits | st.none() | st.just(""), min_size=1, max_size=20))
def test_columns_of_digits_hash_as_their_twins(texts):
    column = pa.array(["x", *texts])[1:]
    assert SPELLED.column(column).tolist() == [reference.key(SECRET, text) for text in texts]


@patient
@given(st.lists(st.floats(-(2**53), 2**53, exclude_min=True, exclude_max=True) | st.none()))
def test_doubles_hash_as_their_shortest_text(values):
    column = pa.array(values, pa.float64())
    texts = [None if value is None else repr(value) for value in values]
    assert SPELLED.column(column).tolist() == SPELLED.column(pa.array(texts, pa.string())).tolist()


REFUSED = [
    (np.float32(0.1), "32-bit float with a fraction"),
    (np.float16(0.5), "32-bit float with a fraction"),
    (2.0**53, "2\\^53 or more"),
    (np.float32(2.0**24), "2\\^53 or more"),
    (Decimal("0.5"), "decimal with a fraction"),
    (Decimal("1e-999999"), "decimal with a fraction"),
    (Decimal(2**64), "beyond 64 bits"),
    (Decimal("1e999999"), "beyond 64 bits"),
    (2**64, "beyond 64 bits"),
    (dt.datetime(2013, 1, 31), "time, not a date"),
    (np.datetime64("2013-01-31", "s"), "time, not a date"),
    (dt.time(12), "time, not a date"),
    (dt.timedelta(1), "time, not a date"),
    (np.datetime64("20000-01-01"), "time, not a date"),
    (float("nan"), "NaN or infinite"),
    ([], "has type list"),
]


@pytest.mark.parametrize(("value", "reason"), REFUSED, ids=repr)
def test_what_has_no_text_of_its_own_is_refused(value, reason):
    with pytest.raises(TypeError, match=reason):
        SPELLED.value(value)


FROZEN_BY_TEXT = [
    13682390220959841350,
    3081488697592221859,
    11613806331343986840,
    2260836975408639898,
    3564518733139863992,
    3169257344877220658,
    3081488697592221859,
    1659509171956219704,
]


def test_keys_by_text_are_what_they_were():
    """Stored tables outlive versions of this package: these numbers must never change."""
    hasher = Hasher(b"forever", BY_TEXT)
    values = ["carrier", 42, -0.25, None, b"\0", dt.date(2013, 1, 1), "42", "007"]
    assert hasher.values(values).tolist() == FROZEN_BY_TEXT


def test_a_rule_that_is_not_known_is_refused():
    with pytest.raises(FormatError, match="upgrade"):
        Hasher(SECRET, "sound")


def test_an_old_pickle_reads_values_by_their_type():
    old = Hasher(SECRET, BY_TYPE)
    assert vars(old).keys() == {"keys", "missing"}  # as it was before there were two rules
    assert pickle.loads(pickle.dumps(old)).keyed_by == BY_TYPE  # noqa: S301
    assert pickle.loads(pickle.dumps(SPELLED)).keyed_by == BY_TEXT  # noqa: S301
