"""Bodies nobody would write: an edge refuses them before they cost anything, and never breaks."""

from __future__ import annotations

import gzip
import io
import json
import random
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyramidion.errors import FormatError
from pyramidion.web.edge.bodies import LIMITS, rows_from
from tests.web.edge.conftest import Edge
from tests.web.edge.test_edge import ARROW, LATE, asked, refused

PATHS = ("features", LATE)
each_path = pytest.mark.parametrize("path", PATHS)


def sent(edge: Edge, path: str, body: bytes, **headers: str) -> httpx.Response:
    return edge.http.post(f"/v1/streams/flights/{path}", content=body, headers=headers)


def arrow_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    given = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=given) as writer:
        writer.write_table(table)
    return sink.getvalue()


def bomb(megabytes: int = 64) -> bytes:
    """A few kilobytes that become megabytes once they are read."""
    zeros = pa.nulls(megabytes << 17, pa.int64()).fill_null(0)
    return arrow_bytes(pa.table({"a": zeros}), compression="zstd")


# --- costly ---------------------------------------------------------------------------------------


def test_compressed_arrow_is_refused_before_it_is_read() -> None:
    body, before = bomb(), pa.default_memory_pool().max_memory()
    assert len(body) < 1 << 16
    with pytest.raises(FormatError, match="compressed Arrow buffers are not read here"):
        rows_from(body, ARROW, LIMITS)
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


@each_path
def test_compressed_arrow_is_refused(edge: Edge, path: str) -> None:
    answer = sent(edge, path, bomb(1), **{"Content-Type": ARROW})
    assert "compressed" in refused(answer, 422, "FormatError")


@each_path
def test_an_encoded_body_is_refused(edge: Edge, path: str) -> None:
    body = gzip.compress(json.dumps(asked(1)).encode())
    refused(sent(edge, path, body, **{"Content-Encoding": "gzip"}), 415, "UnsupportedError")


@each_path
def test_more_rows_than_may_be_are_refused_in_arrow_too(edge: Edge, path: str) -> None:
    table = pa.table({"a": pa.nulls(LIMITS.rows + 1), "b": pa.nulls(LIMITS.rows + 1)})
    answer = sent(edge, path, arrow_bytes(table), **{"Content-Type": ARROW})
    refused(answer, 413, "TooLargeError")


@each_path
def test_a_long_value_that_is_meant_often_is_counted_as_often(edge: Edge, path: str) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), ["x" * 10_000])
    answer = sent(edge, path, arrow_bytes(pa.table({"a": values})), **{"Content-Type": ARROW})
    refused(answer, 413, "TooLargeError")


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["1e39", "-1e39", "1e308", str(10**60), "1e999"])
def test_features_that_are_no_32_bit_numbers_are_refused(edge: Edge, number: str) -> None:
    body = f'{{"features": [{number}, 0.5, 0.5, 0.5]}}'.encode()
    message = refused(sent(edge, LATE, body), 422, "FormatError")
    assert number not in message


def test_the_largest_features_are_answered(edge: Edge) -> None:
    body = b'{"features": [3.4e38, -3.4e38, 0, 0]}'
    assert sent(edge, LATE, body).status_code == 200


@pytest.mark.parametrize("body", [asked(1)[0], asked(2), {"features": [0.5, 0.5, 0.5, 0.0]}])
def test_a_model_that_finds_no_number_is_an_error_and_not_null(edge: Edge, body: Any) -> None:
    answer = edge.post("models/lost/predictions", body)
    assert "finds no number" in refused(answer, 409, "StateError")


# --- anything -------------------------------------------------------------------------------------

MARKER = "Zq7marker"
GOOD: dict[str, Any] = {"a": "q", "b": "x"}
often = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([MARKER, "\ud800", 1e39, "features"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["features", "a", "b"]) | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def foreseen(edge: Edge, path: str, body: bytes, kind: str = "application/json") -> None:
    """It is answered, or refused in the one shape; and nothing of it is quoted."""
    answer = sent(edge, path, body, **{"Content-Type": kind})
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert set(answer.json()) == {"error"}
        assert MARKER not in answer.text


@each_path
@often
@given(body=values)
def test_any_json_is_answered_or_refused(edge: Edge, path: str, body: Any) -> None:
    foreseen(edge, path, json.dumps(body).encode())


@often
@given(told=st.lists(scalars, min_size=1, max_size=5))
def test_any_ready_made_features_are_answered_or_refused(edge: Edge, told: list[Any]) -> None:
    foreseen(edge, LATE, json.dumps({"features": told}).encode())


@each_path
@often
@given(body=st.binary(max_size=200), kind=st.sampled_from(["application/json", ARROW, "", "x/y"]))
def test_any_bytes_are_answered_or_refused(edge: Edge, path: str, body: bytes, kind: str) -> None:
    foreseen(edge, path, body, kind)


@each_path
@often
@given(name=st.sampled_from(sorted(GOOD)), value=values, many=st.booleans())
def test_a_good_row_with_another_value_is_answered_or_refused(
    edge: Edge, path: str, name: str, value: Any, many: bool
) -> None:
    row = GOOD | {name: value}
    foreseen(edge, path, json.dumps([row] if many else row).encode())


@each_path
@pytest.mark.parametrize("encoded", [False, True])
def test_an_arrow_stream_with_bytes_changed_is_answered_or_refused(
    edge: Edge, path: str, encoded: bool
) -> None:
    made = random.Random(int(encoded))
    table = pa.Table.from_pylist(asked(20))
    if encoded:
        table = table.set_column(0, "a", table["a"].dictionary_encode())
    whole = arrow_bytes(table)
    for _ in range(150):
        body = bytearray(whole)
        for _ in range(made.choice((1, 1, 2, 8))):
            body[made.randrange(len(body))] = made.choice((0, 1, 0x7F, 0x80, 0xFF))
        if made.random() < 0.2:
            del body[made.randrange(len(body)) :]
        foreseen(edge, path, bytes(body), ARROW)
