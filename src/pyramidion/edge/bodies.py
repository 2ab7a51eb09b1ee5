"""Rows in and answers out, as the service has them; and its one shape of errors."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pyramidion.client.rows import ARROW, JSON
from pyramidion.errors import (
    BusyError,
    FormatError,
    ObservationError,
    PyramidionError,
    RequestError,
    TooLargeError,
    UnknownCallerError,
)

MOST_BYTES = 16 << 20
MOST_ROWS = 100_000
PATIENCE = 30.0  # seconds that a body may take to come

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


async def body_of(request: Request) -> bytes:
    """The body of a request, no larger and no slower than allowed."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                size += len(part)
                if size > MOST_BYTES:
                    raise TooLargeError(
                        f"a body may have {MOST_BYTES} bytes here; send the rows in several"
                    )
                parts.append(part)
    except (TimeoutError, ClientDisconnect):
        raise RequestError("the body did not come in time; send it again") from None
    return b"".join(parts)


def rows_from(request: Request, body: bytes) -> Any:
    """Rows of a body: a dict, a list of dicts, or a table; of features: an array."""
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    rows = _table(body) if kind == ARROW else _json(body, kind)
    count = rows.num_rows if isinstance(rows, pa.Table) else len(rows)
    if not isinstance(rows, dict | np.ndarray) and count > MOST_ROWS:
        raise TooLargeError(f"a request may have {MOST_ROWS} rows here; send several")
    return rows


def _json(body: bytes, kind: str) -> Any:
    if kind != JSON:
        raise FormatError(f"the content type must be {JSON} or {ARROW}; say which it is")
    try:
        told = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise FormatError("the body is not valid JSON; see what sends it") from None
    if isinstance(told, dict):
        ready = told.get("features") if len(told) == 1 else None
        return _vector(ready) if isinstance(ready, list) else told
    if not isinstance(told, list) or not all(type(row) is dict for row in told):
        raise ObservationError("rows must be a JSON object, or a list of objects; send them so")
    return told


def _vector(told: list[Any]) -> NDArray[np.float64]:
    if not all(type(each) in (int, float) for each in told):
        raise ObservationError("ready-made features must be numbers; send a list of them")
    try:
        return np.array(told, dtype=np.float64)
    except OverflowError:
        raise ObservationError("ready-made features must be 64-bit numbers; send such") from None


def _table(body: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all()
        table.validate(full=True)  # whoever sent it: offsets must not point outside
    except (pa.ArrowException, OSError, ValueError, KeyError):
        raise FormatError("the body is not a whole Arrow stream; see what sends it") from None
    return table


# --- out --------------------------------------------------------------------------------------


def answer(told: dict[str, Any], status: int = 200) -> Response:
    """Plain values as JSON."""
    return Response(_encode(told), status, media_type=JSON)


def arrow(table: pa.Table) -> Response:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


def wants_arrow(request: Request) -> bool:
    """Whether the caller would rather have Arrow."""
    return ARROW in request.headers.get("accept", "")


def refusal(problem: PyramidionError) -> Response:
    """An error of ours, in the one shape."""
    told: dict[str, Any] = {"code": type(problem).__name__, "message": str(problem)}
    if isinstance(problem, ObservationError) and problem.problems:
        told["problems"] = problem.problems
    headers = {}
    if isinstance(problem, BusyError) or problem.status == 503:
        headers["Retry-After"] = str(getattr(problem, "retry_after", 1))
    if isinstance(problem, UnknownCallerError):
        headers["WWW-Authenticate"] = "Bearer"
    return Response(_encode({"error": told}), problem.status, headers, media_type=JSON)


def surprise() -> Response:
    """An error that nobody foresaw: what it says may hold values, so nothing of it is told."""
    told = {"code": "Unforeseen", "message": "something went wrong here; ask again, or elsewhere"}
    return Response(_encode({"error": told}), 500, media_type=JSON)
