"""How a stream begins: a drafted schema, a plan, and estimators to choose from.

Nothing here is kept: neither the rows that a draft is made for, nor the draft, nor the plan.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from starlette.responses import Response

from pyramidion.config.schema import Schema
from pyramidion.errors import BusyError, FormatError, SchemaError, TooLargeError
from pyramidion.learn.choices import CHOICES
from pyramidion.privacy.plan import Plan, plan, report, settings_in
from pyramidion.web.bodies import answer, body_of, kind_of, wants
from pyramidion.web.refusals import UnsupportedError
from pyramidion.web.service.access import ANY
from pyramidion.web.service.csv_bodies import CSV, draft_from
from pyramidion.web.service.routing import Call, Routes, apart
from pyramidion.web.service.schemas import SCHEMA_BYTES, schema_file
from pyramidion.web.service.shapes import DRAFTED, PLANNED, SAMPLE, TOML
from pyramidion.web.service.shapes import SCHEMA as SCHEMA_FILE
from pyramidion.web.shapes import NUMBER, TEXT, WHOLE, Asked, json_of, listed, named, whole

routes = Routes()
T = TypeVar("T", int, float)
MARK = "# CHANGE:"
_PLANNING = threading.BoundedSemaphore(2)


@routes.add("POST", "/drafts", "admin", takes=SAMPLE, gives=DRAFTED)
async def draft(call: Call) -> Response:
    """Draft a schema for the first rows of a CSV: its names and types are used, no value is."""
    limits = call.service.limits
    if kind_of(call.request) != CSV:
        raise UnsupportedError(f"a draft is made for {CSV}; send a header and the first rows so")
    body = await body_of(call.request, limits, most=limits.sample_bytes)
    text = await apart(lambda: draft_from(body, limits))
    if wants(call.request, TOML):
        return Response(text, media_type=TOML)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if MARK in line]
    return answer({"toml": text, "schema": Schema.from_toml(text).to_dict(), "changes": lines})


@routes.add(
    "POST",
    "/plans",
    "admin",
    takes=SCHEMA_FILE,
    gives=PLANNED,
    asks=(
        Asked("rows", "how many are expected in a count window", WHOLE, needed=True),
        Asked("epsilon", "the privacy budget; inf: no privacy", NUMBER),
        Asked("target", "or how far noise may move a probability, such as 0.02", NUMBER),
        Asked("delta", "delta at most; 0: Laplace noise", NUMBER),
        Asked("k", "observations hidden together", WHOLE),
        Asked("windows", "that are summed at most", WHOLE),
        Asked("memory", "bytes for the tables at most", WHOLE),
        Asked("skew", "how unequal keys are: 0 all of one size, 1 as words are", NUMBER),
        Asked("distinct", "TABLE=N: values of an open feature; may be repeated", listed(TEXT)),
    ),
)
async def planned(call: Call) -> Response:
    """Propose settings for a schema file, and predict errors and memory; no row is read."""
    body = await body_of(call.request, call.service.limits, SCHEMA_BYTES)
    kind = kind_of(call.request)
    with _one_by_one():
        found = await apart(lambda: _planned(call, schema_file(body, kind)))
    if wants(call.request, TOML):
        return Response(f"{found.schema.to_toml()}\n{found.to_toml()}", media_type=TOML)
    with _one_by_one():
        return answer(await apart(lambda: report(found)))


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
    return _read(call.query(name), float, f"{name} must be a number; send it so")


def _whole(call: Call, name: str) -> int | None:
    return _read(call.query(name), int, f"{name} must be a whole number; send it so")


def _read(text: str | None, kind: Callable[[str], T], wrong: str) -> T | None:
    try:
        return None if text is None else kind(text)
    except ValueError:
        raise FormatError(wrong) from None


def _distinct(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    found = _read(number, int, "distinct must be a table and a number, as in user=6040")
    return name, found or 0


@routes.add("GET", "/estimators", *ANY, gives=json_of(whole(estimators=listed(named("Estimator")))))
async def estimators(_: Call) -> Response:
    """Estimators to begin with, what each is for, and whether it is installed here."""
    return answer({"estimators": [choice.to_dict() for choice in CHOICES]})
