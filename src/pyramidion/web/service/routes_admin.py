"""Routes of the service itself: tokens, metrics, and drafts and plans for new streams.

Nothing of a draft or a plan is kept: neither the rows that a draft is made from nor the result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from pyramidion.config.schema import Schema
from pyramidion.errors import BusyError, FormatError, SchemaError, TooLargeError
from pyramidion.privacy.plan import Plan, plan, report, settings_in
from pyramidion.web import schemas
from pyramidion.web.bodies import CSV, TOML, body_of, json_response, kind_of, wants
from pyramidion.web.errors import UnsupportedError
from pyramidion.web.metrics import TYPE
from pyramidion.web.routing import Routes, in_thread
from pyramidion.web.schemas import DRAFTED, PLANNED, SCHEMA, Body, Param, json_of, struct_of
from pyramidion.web.service.calls import Call
from pyramidion.web.service.csv_bodies import draft_from
from pyramidion.web.service.schema_files import SCHEMA_BYTES, schema_file
from pyramidion.web.service.service import Service

routes = Routes[Call]()
metrics_routes = Routes[Call]()
"""Without the prefix of the others."""
T = TypeVar("T", int, float)
MARK = "# CHANGE:"
_PLANNING = threading.BoundedSemaphore(2)


@routes.add("POST", "/drafts", "admin", takes=Body({CSV: str}), gives=DRAFTED)
async def draft(call: Call) -> Response:
    """Draft a schema for the first rows of a CSV: its names and types are used, no value is."""
    limits = call.service.limits
    if kind_of(call.request) != CSV:
        raise UnsupportedError(f"a draft is made for {CSV}; send a header and the first rows so")
    body = await body_of(call.request, limits, most=limits.sample_bytes)
    text = await in_thread(lambda: draft_from(body, limits))
    if wants(call.request, TOML):
        return Response(text, media_type=TOML)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if MARK in line]
    return json_response(
        {"toml": text, "schema": Schema.from_toml(text).to_dict(), "changes": lines}
    )


@routes.add(
    "POST",
    "/plans",
    "admin",
    takes=SCHEMA,
    gives=PLANNED,
    asks=(
        Param("rows", "how many are expected in a count window", schemas.Count, needed=True),
        Param("epsilon", "the privacy budget; inf: no privacy", float),
        Param("target", "or how far noise may move a probability, such as 0.02", float),
        Param("delta", "delta at most; 0: Laplace noise", float),
        Param("k", "observations hidden together", schemas.Count),
        Param("windows", "that are summed at most", schemas.Count),
        Param("memory", "bytes for the tables at most", schemas.Count),
        Param("skew", "how unequal keys are: 0 all of one size, 1 as words are", float),
        Param("distinct", "TABLE=N: values of an open feature; may be repeated", schemas.Names),
    ),
)
async def planned(call: Call) -> Response:
    """Propose settings for a schema file, and predict errors and memory; no row is read."""
    body = await body_of(call.request, call.service.limits, SCHEMA_BYTES)
    kind = kind_of(call.request)
    with _one_by_one():
        found = await in_thread(lambda: _planned(call, schema_file(body, kind)))
    if wants(call.request, TOML):
        return Response(f"{found.schema.to_toml()}\n{found.to_toml()}", media_type=TOML)
    with _one_by_one():
        return json_response(await in_thread(lambda: report(found)))


@contextmanager
def _one_by_one() -> Iterator[None]:
    """Plans take seconds of a core each: two at once, and the others are told to come back."""
    if not _PLANNING.acquire(blocking=False):
        raise BusyError("other plans are being made; ask again in a moment", retry_after=2)
    try:
        yield
    finally:
        _PLANNING.release()


def _planned(call: Call, file: dict[str, object]) -> Plan:
    epsilon, target = _number(call, "epsilon"), _number(call, "target")
    settings = settings_in(file, told=epsilon is not None or target is not None)
    file.pop("settings", None)
    schema = Schema.from_dict(file)
    limits = call.service.limits
    most = limits.plan_tables if target is None else limits.target_tables
    if len(schema.tables) > most:
        raise TooLargeError(
            f"a plan is made for {most} tables here; ask `pyramidion plan` for one of more"
        )
    rows, skew = _whole(call, "rows"), _number(call, "skew")
    if rows is None:
        raise SchemaError("a plan needs the rows expected in a count window; add ?rows=100000")
    return plan(
        schema,
        rows=rows,
        epsilon=epsilon,
        target=target,
        delta=_number(call, "delta"),
        k=_whole(call, "k"),
        windows=_whole(call, "windows"),
        distinct=dict(map(_distinct, call.request.query_params.getlist("distinct"))),
        memory=_whole(call, "memory"),
        skew=1.0 if skew is None else skew,
        settings=settings,
    )


def _number(call: Call, name: str) -> float | None:
    return _read(call.query(name), float, f"{name} must be a number")


def _whole(call: Call, name: str) -> int | None:
    return _read(call.query(name), int, f"{name} must be a whole number")


def _read(text: str | None, kind: Callable[[str], T], wrong: str) -> T | None:
    try:
        return None if text is None else kind(text)
    except ValueError:
        raise FormatError(wrong) from None


def _distinct(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    found = _read(number, int, "distinct must be a table and a number, as in user=6040")
    return name, found or 0


# --- tokens --------------------------------------------------------------------------------


@routes.add("GET", "/tokens", "admin", gives=json_of(schemas.Tokens))
async def tokens(call: Call) -> Response:
    """Who has a token, and for what; never the tokens themselves."""
    call.caller.refuse_part()
    return json_response({"tokens": [token.to_dict() for token in call.service.tokens.all()]})


@routes.add(
    "POST",
    "/tokens",
    "admin",
    takes=json_of(schemas.NewToken),
    gives=json_of(schemas.TokenText),
    status=201,
)
async def add_token(call: Call) -> Response:
    """Make a token; its text is told once, here."""
    call.caller.refuse_part()
    new = await struct_of(call.request, call.service.limits, schemas.NewToken)
    tokens, now = call.service.tokens, call.service.now
    text = await in_thread(lambda: tokens.add(new.name, new.roles, new.streams, now))
    return json_response({"token": text}, 201)


@routes.add("DELETE", "/tokens/{id}", "admin", gives=json_of(schemas.RemovedToken))
async def remove_token(call: Call) -> Response:
    """Take a token back."""
    call.caller.refuse_part()
    gone = await in_thread(lambda: call.service.tokens.remove(call.path_param("id")))
    return json_response({"removed": gone.to_dict()})


# --- metrics -------------------------------------------------------------------------------


@metrics_routes.add("GET", "/metrics", "admin", gives=Body({"text/plain": str}))
async def metrics(call: Call) -> Response:
    """Numbers for Prometheus."""
    call.caller.refuse_part()
    return Response(await in_thread(call.service.metrics.exposition), media_type=TYPE)


async def open_metrics(service: Service, _: Request) -> Response:
    """The same for everybody, if the service was started so."""
    return Response(await in_thread(service.metrics.exposition), media_type=TYPE)
