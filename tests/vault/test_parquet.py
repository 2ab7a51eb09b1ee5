"""Rows in an encrypted Parquet file: every type comes back, however its column is encoded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion import FormatError
from pyramidion.vault import parquet
from pyramidion.vault.envelope import Header
from pyramidion.vault.parquet import decrypted, digest_of, encrypted

KEY = b"k" * 32
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


def _header(data: Any, *, store: str = "s", name: str = "n") -> Header:
    times = {"first": 0, "last": 0, "first_batch": 1, "last_batch": 1}
    sizes = {"rows": 1, "size": len(data), "columns": ("x",), "digest": digest_of(data)}
    return Header(name=name, store=store, custodian="c", **times, **sizes)


def _back(table: pa.Table) -> pa.Table:
    data = encrypted(table, KEY, store="s", name="n")
    return pa.Table.from_batches(decrypted(data, KEY, _header(data)), table.schema)


def _ends(kind: str) -> list[int]:
    bits = int(kind.partition("int")[2])
    return [0, (1 << bits) - 1] if kind[0] == "u" else [-(1 << bits - 1), (1 << bits - 1) - 1]


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("first", [[1, 2, 3], [5], range(0, 127, 7), [None], [None, 4]])
def test_whole_numbers_come_back_also_where_the_first_tell_nothing_of_the_last(
    kind: str, first: list[int | None]
) -> None:
    like = [*first] * parquet.SOME
    table = pa.table({"x": pa.array([*like, *_ends(kind), None, *_ends(kind)], kind)})
    assert _back(table).equals(table)


OTHERS = {
    "halves": pa.array([1.5, -2.25, None, 0.0] * 700, pa.float16()),
    "singles": pa.array([0.1 * n for n in range(3_000)], pa.float32()),
    "doubles": pa.array([0.1 * n for n in range(3_000)], pa.float64()),
    "repeated": pa.array([0.5, 1e300] * 1_500),
    "not a number": pa.array([float("inf"), float("-inf"), None, -0.0] * 700),
    "truth": pa.array([True, False, None] * 900),
    "texts": pa.array([f"text {n}" for n in range(3_000)]),
    "few texts": pa.array(["", "ä", None] * 900),
    "bytes": pa.array([bytes([n % 251]) for n in range(3_000)]),
    "times": pa.array([n * 1_000_003 for n in range(3_000)], pa.timestamp("us", "UTC")),
    "dates": pa.array(range(3_000), pa.date32()),
    "money": pa.array(range(3_000), pa.int64()).cast(pa.decimal128(38, 2)),
    "nothing": pa.nulls(3_000),
    "mixed": pa.array(
        [(1, b"x"), None] * 1_000, pa.struct([("k", pa.uint8()), ("p", pa.binary())])
    ),
    "none": pa.array([], pa.int64()),
}


@pytest.mark.parametrize("values", OTHERS.values(), ids=OTHERS)
def test_values_of_every_type_come_back(values: pa.Array) -> None:
    table = pa.table({"x": values})
    assert _back(table).equals(table)


@given(st.lists(st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=50))
def test_any_whole_numbers_come_back(values: list[int | None]) -> None:
    table = pa.table({"x": pa.array(values, pa.int64())})
    assert _back(table).equals(table)


def test_a_column_is_encoded_by_what_its_values_are_like() -> None:
    many = pa.chunked_array([range(0, 1 << 40, 1 << 28)])
    spread = pc.multiply(pa.chunked_array([[n % 9 for n in range(4_000)]]), 1 << 30)
    close = pa.chunked_array([[n % 9 for n in range(4_000)]])
    told = {"wide": many, "repeating": spread, "narrow": close}
    assert {name: parquet._encoding(column) for name, column in told.items()} == {
        name: name for name in told
    }


@pytest.mark.parametrize("other", [{"store": "other"}, {"name": "other"}])
def test_a_file_does_not_open_as_that_of_another_store_or_name(other: dict[str, str]) -> None:
    data = encrypted(pa.table({"x": [1, 2]}), KEY, store="s", name="n")
    with pytest.raises(FormatError, match="another file in its place"):
        list(decrypted(data, KEY, _header(data, **other)))
