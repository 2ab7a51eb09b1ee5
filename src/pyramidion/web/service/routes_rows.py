"""Routes of rows: observations in, features and training sets out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa
from starlette.responses import Response, StreamingResponse

from pyramidion.errors import BusyError, ObservationError, SchemaError, StateError, StorageError
from pyramidion.learn.training_set import TrainingSet
from pyramidion.rows.observations import Errors
from pyramidion.storage.hot import Receipt
from pyramidion.store.batching import Arrival
from pyramidion.web import schemas
from pyramidion.web.bodies import (
    ARROW,
    CSV,
    LINES,
    arrow,
    arrow_parts,
    json_response,
    kind_of,
    wants_arrow,
)
from pyramidion.web.errors import LOG, public_message
from pyramidion.web.routing import Routes, in_thread
from pyramidion.web.schemas import FEATURES, ROWS, TRAINING, WORKLOAD, Param, json_of
from pyramidion.web.service.calls import Call, Rows, asked_for, observed, record_read, rows_of
from pyramidion.web.service.workloads import workload_of

routes = Routes[Call]()
_encoder = msgspec.json.Encoder(enc_hook=str)


@routes.add(
    "POST",
    "/streams/{stream}/observations",
    "observe",
    often=True,
    takes=ROWS,
    gives=json_of(schemas.Receipt),
    asks=(
        Param("errors", "what becomes of bad rows", Literal["refuse", "skip"]),
        Param("Idempotency-Key", "rows sent again under it are counted once", place="header"),
    ),
)
async def observe(call: Call) -> Response:
    """Observe rows: durable, hot and counted when this answers."""
    errors, key = _errors(call), call.request.headers.get("idempotency-key")
    given = await rows_of(call, observed(call), key)
    most = call.pyramid.settings.window_rows
    arrival = Arrival(given.rows, key, errors, call.caller.id, given.content)
    if kind_of(call.request) == CSV and most is not None and given.number > most:
        return json_response(await _in_parts(call, given, most, arrival))
    receipt = await call.stream.observe(arrival, given.number, given.size)
    return json_response(receipt.public)


async def _in_parts(call: Call, given: Rows, most: int, about: Arrival) -> dict[str, int]:
    """A file of more rows than a window takes, as `pyramidion observe` does: part by part.

    What a part brought is durable before the next begins; part N is taken once under KEY:N, which
    is bound to the rows of that part: a file that was corrected behind it can be sent again.
    """
    told: Counter[str] = Counter()
    for number, start in enumerate(range(0, given.number, most)):
        rows = given.rows.slice(start, most)
        key = None if about.key is None else f"{about.key}:{number}"
        arrival = replace(about, batch=rows, key=key, content=None)
        try:
            receipt = await _observe_part(call, arrival, rows, retry=start > 0)
        except ObservationError as problem:
            raise _placed(problem, start) from None
        except (StateError, StorageError) as problem:
            kind = StateError if isinstance(problem, StateError) else StorageError
            LOG.error("failed %s", type(problem).__name__, extra={"trouble": str(problem)})
            raise kind(f"{_in_already(start)}{public_message(problem)}") from None
        told.update(receipt.public)
    return dict(told)


async def _observe_part(call: Call, arrival: Arrival, rows: pa.Table, retry: bool) -> Receipt:
    """Have a part observed. If earlier parts are in already, wait for room in a full queue."""
    while True:
        try:
            return await call.stream.observe(arrival, rows.num_rows, rows.nbytes)
        except BusyError as problem:
            if not retry:
                raise
            await asyncio.sleep(problem.retry_after)


def _placed(problem: ObservationError, start: int) -> ObservationError:
    """Bad rows are numbered within their part: number them within the file."""
    numbers = {why: [start + row for row in rows] for why, rows in problem.problems.items()}
    return ObservationError(f"{_in_already(start)}{problem}", numbers)


def _in_already(rows: int) -> str:
    return f"the first {rows:,} rows are in; of the others, " if rows else ""


def _errors(call: Call) -> Errors:
    told = call.query("errors", "refuse")
    if told == "refuse":
        return "refuse"
    if told == "skip":
        return "skip"
    raise SchemaError("errors must be refuse or skip; choose one")


@routes.add("POST", "/streams/{stream}/features", "predict", "train", takes=ROWS, gives=FEATURES)
async def features(call: Call) -> Response:
    """Features of rows, from the complete tables."""
    rows = (await rows_of(call, asked_for(call))).rows
    snapshot = call.pyramid.snapshot()
    if wants_arrow(call.request):
        return arrow(await in_thread(lambda: snapshot.featurize(rows)))
    found = await in_thread(lambda: np.asarray(snapshot.array(rows)).tolist())
    told = {"names": snapshot.names, "rows": found}
    return json_response(told | {"guarantee": snapshot.guarantee.to_dict()})


@routes.add("GET", "/streams/{stream}/training-set", "train", gives=TRAINING, asks=WORKLOAD)
async def training_set(call: Call) -> Response:
    """The hot rows as features and label, streamed: raw (P1), and the log says who read them."""
    workload = workload_of(call.request)
    made = await in_thread(lambda: call.pyramid.training_set(**workload))
    tables = _tables(made)
    first = await in_thread(lambda: next(tables, None))
    if first is None:
        raise StateError("the hot window is empty, so there is nothing to train on; observe")
    await record_read(call, "training set")
    whole = chain([first], tables)
    if wants_arrow(call.request):
        return StreamingResponse(arrow_parts(first.schema, whole), media_type=ARROW)
    return StreamingResponse(map(_lines, whole), media_type=LINES)


def _tables(training: TrainingSet) -> Iterator[pa.Table]:
    names = [*training.names, training.label.name]
    told = {"pyramidion.guarantee": str(training.guarantee)}
    for X, y in training.batches():
        columns = [*map(pa.array, np.asarray(X).T), pa.array(y)]
        yield pa.table(columns, names=names).replace_schema_metadata(told)


def _lines(table: pa.Table) -> bytes:
    return _encoder.encode_lines(table.to_pylist())
