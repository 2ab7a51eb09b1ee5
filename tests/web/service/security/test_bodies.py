"""Bodies from strangers: refused before they cost more than their bytes, and never quoted."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from pyramidion.errors import FormatError, TooLargeError
from pyramidion.web.arrow_bodies import table_from
from pyramidion.web.bodies import ARROW, JSON
from pyramidion.web.limits import Limits
from pyramidion.web.service.row_bodies import Wanted, rows_from
from tests.store.stores import SCHEMA, rows
from tests.web.service.security.guarded import (
    ARROW_IN,
    MARKER,
    MODEL,
    STREAM,
    Guarded,
    arrow_bytes,
    code_of,
)

LIMITS = Limits()
ROWS = {
    "observations": f"/v1/streams/{STREAM}/observations",
    "features": f"/v1/streams/{STREAM}/features",
    "predictions": f"/v1/streams/{STREAM}/models/{MODEL}/predictions",
}
each_door = pytest.mark.parametrize("door", ROWS)


def sent(guarded: Guarded, door: str, body: bytes, kind: str = JSON) -> httpx.Response:
    answer = guarded.ask("POST", ROWS[door], content=body, headers={"Content-Type": kind})
    assert answer.status_code < 500, answer.text
    return answer


def refused(guarded: Guarded, door: str, body: bytes, kind: str = JSON) -> str:
    """The code of a refusal that quotes nothing."""
    answer = sent(guarded, door, body, kind)
    assert answer.status_code in (413, 415, 422), answer.text
    assert MARKER not in answer.text
    return code_of(answer)


def streamed(schema: pa.Schema, batches: Iterable[pa.RecordBatch], **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


# --- Arrow ----------------------------------------------------------------------------------


@each_door
def test_a_whole_stream_is_taken(guarded: Guarded, door: str) -> None:
    body = arrow_bytes(rows(50, guarded.clock.now))
    assert sent(guarded, door, body, ARROW).status_code == 200


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_buffers_are_refused_before_they_grow(codec: str) -> None:
    bomb = pa.table({"a": pa.array(np.zeros(20_000_000, np.int8))})
    body = arrow_bytes(bomb, compression=codec)
    assert len(body) < 200_000
    before = pa.total_allocated_bytes()
    del bomb
    with pytest.raises(FormatError, match="compressed"):
        table_from(body, LIMITS)
    assert pa.total_allocated_bytes() <= before


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_dictionaries_are_refused_too(codec: str) -> None:
    column = pa.array([str(n) for n in range(5_000)]).dictionary_encode()
    with pytest.raises(FormatError, match="compressed"):
        table_from(arrow_bytes(pa.table({"a": column}), compression=codec), LIMITS)


def test_deltas_of_dictionaries_are_refused() -> None:
    batches = [
        pa.record_batch({"a": pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values)})
        for values in (pa.array(["x"]), pa.array(["x", "y"]))
    ]
    body = streamed(batches[0].schema, batches, emit_dictionary_deltas=True)
    with pytest.raises(FormatError, match="deltas"):
        table_from(body, LIMITS)


def test_dictionaries_that_are_replaced_are_read() -> None:
    batches = [
        pa.record_batch({"a": pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values)})
        for values in (pa.array(["x"]), pa.array(["y", "z"]))
    ]
    table = table_from(streamed(batches[0].schema, batches), LIMITS)
    assert table["a"].to_pylist() == ["x", "y"]


def test_a_long_value_that_is_meant_often_is_refused() -> None:
    long = "x" * 1_000_000
    column = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), pa.array([long]))
    body = arrow_bytes(pa.table({"a": column}))
    with pytest.raises(TooLargeError, match="as often as it is meant"):
        table_from(body, LIMITS)


def test_views_of_one_long_value_are_refused() -> None:
    long = b"x" * 1_000_000
    view = struct.pack("<i4sii", len(long), long[:4], 0, 0)
    buffers = [None, pa.py_buffer(view * 10_000), pa.py_buffer(long)]
    column = pa.Array.from_buffers(pa.string_view(), 10_000, buffers)
    with pytest.raises(TooLargeError, match="as often as it is meant"):
        table_from(arrow_bytes(pa.table({"a": column})), LIMITS)


def test_views_of_short_values_are_read() -> None:
    column = pa.array(["a", None, "much longer than twelve bytes"], pa.string_view())
    table = table_from(arrow_bytes(pa.table({"a": column}).slice(1)), LIMITS)
    assert table["a"].to_pylist() == [None, "much longer than twelve bytes"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1]]),
        pa.array([{"x": 1}]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
        pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array(["x"])),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([[1]])),
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1, 2, 2))),
        pa.array([[1]], pa.list_view(pa.int64())),
    ],
    ids=lambda column: str(column.type).split("<")[0],
)
def test_columns_that_no_schema_has_are_refused(column: pa.Array) -> None:
    with pytest.raises(FormatError):
        table_from(arrow_bytes(pa.table({MARKER: column})), LIMITS)


def test_deep_nesting_is_refused() -> None:
    kind: pa.DataType = pa.int64()
    for _ in range(60):
        kind = pa.list_(kind)
    with pytest.raises(FormatError):
        table_from(arrow_bytes(pa.table({"a": pa.array([], kind)})), LIMITS)


def test_more_columns_batches_and_rows_than_may_be_are_refused() -> None:
    few = Limits(columns=2, batches=2, rows=2)
    one = pa.record_batch({"a": [1]})
    with pytest.raises(TooLargeError, match="columns"):
        table_from(arrow_bytes(pa.table({n: [1] for n in "abc"})), few)
    with pytest.raises(TooLargeError, match="batches"):
        table_from(streamed(one.schema, [one] * 3), few)
    with pytest.raises(TooLargeError, match="rows"):
        table_from(arrow_bytes(pa.table({"a": [1, 2, 3]})), few)


def test_rows_that_take_no_bytes_are_counted() -> None:
    nothing = pa.table({"a": pa.nulls(2_000_000)})
    with pytest.raises(TooLargeError, match="rows"):
        table_from(arrow_bytes(nothing), LIMITS)


@each_door
@pytest.mark.parametrize("index", [2, -1, 2**31 - 1])
def test_an_index_outside_its_dictionary_is_refused(
    guarded: Guarded, door: str, index: int
) -> None:
    good = rows(3, guarded.clock.now)
    values = pa.array(["x", MARKER])
    indices = pa.array([0, 1, index], pa.int32())
    bad = pa.DictionaryArray.from_arrays(indices, values, safe=False)
    table = good.set_column(good.column_names.index("a"), "a", bad)
    assert refused(guarded, door, arrow_bytes(table), ARROW) == "FormatError"


@each_door
def test_offsets_outside_their_memory_are_refused(guarded: Guarded, door: str) -> None:
    good = rows(3, guarded.clock.now)
    offsets = np.array([0, 2**30, 2, 3], np.int32)
    bad = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"abc")])
    table = good.set_column(good.column_names.index("a"), "a", bad)
    assert refused(guarded, door, arrow_bytes(table), ARROW) == "FormatError"


@each_door
def test_text_that_is_none_is_refused(guarded: Guarded, door: str) -> None:
    good = rows(1, guarded.clock.now)
    offsets = np.array([0, 2], np.int32)
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(b"\xff\xfe")]
    )
    table = good.set_column(good.column_names.index("a"), "a", bad)
    assert refused(guarded, door, arrow_bytes(table), ARROW) == "FormatError"


@each_door
@pytest.mark.parametrize("shift", [1, 2, 4])
def test_buffers_at_odd_places_are_read_as_others_or_refused(
    guarded: Guarded, door: str, shift: int
) -> None:
    body, shifted = arrow_bytes(rows(5, guarded.clock.now)), b""
    reader = pa.ipc.MessageReader.open_stream(body)
    for message in iter(lambda: next_of(reader), None):
        head = message.metadata.to_pybytes() + bytes(shift)
        data = b"" if message.body is None else message.body.to_pybytes()
        shifted += struct.pack("<Ii", 0xFFFFFFFF, len(head)) + head + data
    shifted += struct.pack("<Ii", 0xFFFFFFFF, 0)
    assert sent(guarded, door, shifted, ARROW).status_code in (200, 422)


def next_of(reader: Any) -> Any:
    try:
        return reader.read_next_message()
    except StopIteration:
        return None


@each_door
@pytest.mark.parametrize("at", [0, 1, 4, 8, 100, -1, -8, -100])
def test_a_stream_that_was_cut_is_refused_or_lacks_only_its_end(
    guarded: Guarded, door: str, at: int
) -> None:
    body = arrow_bytes(rows(5, guarded.clock.now))
    answer = sent(guarded, door, body[:at], ARROW)
    assert answer.status_code in ((200, 422) if at == -8 else (422,))


@each_door
@pytest.mark.parametrize(
    "column",
    [
        pa.array([Decimal("1.5")]),
        pa.array([b"\xff"]),
        pa.array([1], pa.timestamp("us", "Nowhere/Never")),
        pa.array([2**62], pa.timestamp("s")),
        pa.array([1], pa.duration("s")),
        pa.array([float("nan")]),
        pa.array([float("inf")]),
        pa.nulls(1),
        pa.array([True]),
        pa.array([1.0], pa.float16()),
        pa.array([2**64 - 1], pa.uint64()),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array(["x"], pa.large_string()),
        pa.array([b"x" * 16], pa.binary(16)),
        pa.array([1], pa.date32()),
        pa.array([1], pa.time64("ns")),
        pa.array(["x"]).dictionary_encode(),
        pa.array([1]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("name", ["t", "y", "a", "b"])
def test_whatever_type_a_column_has_it_is_taken_or_refused(
    guarded: Guarded, door: str, column: pa.Array, name: str
) -> None:
    good = rows(1, guarded.clock.now)
    table = good.set_column(good.column_names.index(name), name, column)
    assert sent(guarded, door, arrow_bytes(table), ARROW).status_code in (200, 422)


@each_door
def test_columns_that_are_missing_or_there_twice_are_refused(guarded: Guarded, door: str) -> None:
    good = rows(2, guarded.clock.now)
    refused(guarded, door, arrow_bytes(good.select(["t", "y", "b"])), ARROW)
    refused(guarded, door, arrow_bytes(good.append_column("a", good["a"])), ARROW)
    refused(guarded, door, arrow_bytes(pa.table({})), ARROW)


# --- JSON -----------------------------------------------------------------------------------


@each_door
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"7",
        b'"text"',
        b"[7]",
        b"[null]",
        b"[[]]",
        b'[{"a": 1}, 7]',
        b"{",
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'[{"a": NaN}]',
        b'[{"a": Infinity}]',
        b'[{"a": 1e999999}]',
        b'[{"a": "\\ud800"}]',
        b'[{"a": "\xff"}]',
        b'\xef\xbb\xbf[{"a": 1}]',
        '[{"a": "x"}]'.encode("utf-16"),
        b"[{'a': 1}]",
        b'[{"a": 1}] x',
        b'{"a": 01}',
        b"[{}]",
        b"{}",
        b'[{"a": {"b": 1}}]',
        b'[{"a": [1, 2]}]',
        b"\x00",
    ],
    ids=lambda body: body[:12].decode("latin-1").encode("unicode_escape").decode(),
)
def test_json_that_is_no_row_is_refused(guarded: Guarded, door: str, body: bytes) -> None:
    refused(guarded, door, body.replace(b"x", MARKER.encode()) if len(body) < 100 else body)


@each_door
@pytest.mark.parametrize(
    "value",
    [
        "1" * 4_000,
        "1" * 5_000,
        "-" + "9" * 400,
        "1e308",
        "1e-400",
        "9007199254740993",
        "18446744073709551616",
        "true",
        "null",
        '""',
        '"\\u0000"',
        '"' + "y" * 100_000 + '"',
    ],
    ids=lambda value: value[:10],
)
@pytest.mark.parametrize("name", ["t", "y", "a", "b"])
def test_whatever_value_a_row_has_it_is_taken_or_refused(
    guarded: Guarded, door: str, value: str, name: str
) -> None:
    row = {"t": f"{guarded.clock.now}", "y": "1", "a": '"q"', "b": '"x"'} | {name: value}
    body = "{" + ", ".join(f'"{key}": {told}' for key, told in row.items()) + "}"
    assert sent(guarded, door, body.encode()).status_code in (200, 422)


def test_of_names_that_are_there_twice_the_last_counts() -> None:
    found, count = rows_from(b'{"a": 1, "a": 2}', JSON, LIMITS, Wanted(SCHEMA, ()))
    assert (found, count) == ([{"a": 2}], 1)


@each_door
def test_a_refusal_quotes_neither_values_nor_names(guarded: Guarded, door: str) -> None:
    bad = {"t": MARKER, "y": MARKER, "a": {MARKER: MARKER}, "b": [MARKER], MARKER: MARKER}
    for body in (bad, [bad], [bad | {"a": "q"}], {MARKER: 1}, MARKER, [MARKER]):
        answer = guarded.ask("POST", ROWS[door], json=body)
        assert answer.status_code in (200, 422)
        assert MARKER not in answer.text


@each_door
@pytest.mark.parametrize("kind", ["", "text/plain", "application/xml", MARKER, "a/b;" * 100])
def test_other_content_types_are_refused(guarded: Guarded, door: str, kind: str) -> None:
    answer = sent(guarded, door, b"[]", kind)
    assert answer.status_code == 415
    assert MARKER not in answer.text


def test_a_batch_with_many_bad_rows_is_answered_shortly(guarded: Guarded) -> None:
    bad = rows(20_000, guarded.clock.now).set_column(1, "y", pa.array(np.full(20_000, 7)))
    answer = guarded.ask("POST", ROWS["observations"], content=arrow_bytes(bad), headers=ARROW_IN)
    assert answer.status_code == 422
    assert len(answer.content) < 20_000


def test_rows_beyond_what_a_request_may_have_are_refused(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh(Limits(rows=2))
    body = guarded.rows_json(3)
    answer = guarded.ask("POST", ROWS["observations"], "observe", json=body)
    assert (answer.status_code, code_of(answer)) == (413, "TooLargeError")
