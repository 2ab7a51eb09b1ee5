"""Routes of a stream: its status, tables, groups, ledger, audit log, clock and signed copies."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from starlette.responses import Response, StreamingResponse

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.errors import FormatError, MissingError, SchemaError
from pyramidion.store.exposure.exposed import COMPONENTS, Component
from pyramidion.web import schemas
from pyramidion.web.bodies import DIGITS, LINES, body_of, json_response, kind_of
from pyramidion.web.routing import Routes, in_thread
from pyramidion.web.schemas import SCHEMA, SIGNED, WHY, Body, Param, json_of, struct_of
from pyramidion.web.service.calls import Call, signed_response
from pyramidion.web.service.schema_files import SCHEMA_BYTES, schema_file
from pyramidion.web.service.streams import Stream
from pyramidion.web.tokens import ANY

if TYPE_CHECKING:
    from pyramidion.vault.files import VaultStatus


routes = Routes[Call]()


@routes.add("GET", "/streams", *ANY, gives=json_of(schemas.Streams))
async def streams(call: Call) -> Response:
    """The streams that this token is for."""
    return json_response({"streams": [stream.name for stream in call.service.streams(call.caller)]})


@routes.add(
    "PUT",
    "/streams/{new}",
    "admin",
    takes=SCHEMA,
    gives=json_of(schemas.Status),
    status=201,
)
async def create(call: Call) -> Response:
    """Make a stream: of a schema file with a [settings] table, or of both in JSON."""
    name = call.path_param("new")
    call.caller.refuse_other(name)
    body = await body_of(call.request, call.service.limits, SCHEMA_BYTES)
    kind = kind_of(call.request)
    told = await in_thread(lambda: schema_file(body, kind))
    knobs = told.pop("settings", None)
    if not isinstance(knobs, dict):
        raise FormatError("the schema file has no [settings] table; add one with epsilon = 1.0")
    schema, settings = Schema.from_dict(told), Settings.from_dict(knobs)
    stream = await in_thread(lambda: call.service.create(name, schema, settings))
    return json_response(await in_thread(lambda: _told(stream)), 201)


@routes.add("GET", "/streams/{stream}", *ANY, gives=json_of(schemas.Status))
async def status(call: Call) -> Response:
    """What the stream holds now."""
    return json_response(await in_thread(lambda: _told(call.stream)))


def _told(stream: Stream) -> dict[str, object]:
    """The status, as far as it is for every token.

    Not where the stream, its key and its vault lie; and nothing that follows from the contents of
    rows or from the erasure of a person: the bytes of the catalogue and of compressed files do.
    """
    found = stream.pyramid.status()
    told = found.to_dict()
    del told["path"], told["bytes"]
    told["deletions"] = [
        asdict(each) | {"holder": each.holder.partition(":")[0]}
        for each in found.deletions
        if not each.of_person
    ]
    if found.vault is not None:
        told["vault"] = public_vault(found.vault)
    return {"stream": stream.name, **told}


def public_vault(vault: VaultStatus) -> dict[str, object]:
    """The status of a vault without the place of its files, and without their compressed size."""
    told = asdict(vault)
    del told["url"], told["backlog_bytes"]
    return told


@routes.add("GET", "/streams/{stream}/pyramid", *ANY, gives=json_of(schemas.Layers))
async def pyramid(call: Call) -> Response:
    """What an intruder would get now: rows that are raw, counted, sealed and gone."""
    return json_response(asdict((await in_thread(call.pyramid.status)).layers))


@routes.add("GET", "/streams/{stream}/schema", *ANY, gives=json_of(schemas.Schema))
async def schema(call: Call) -> Response:
    """What an observation of the stream is, and its settings; both are public."""
    settings = call.pyramid.settings
    told = settings.to_dict() | ({} if settings.private else {"epsilon": None})
    return json_response({"schema": call.pyramid.schema.to_dict(), "settings": told})


@routes.add("GET", "/streams/{stream}/windows", *ANY, gives=json_of(schemas.Windows))
async def windows(call: Call) -> Response:
    """The count windows, from populating to erased."""
    found = await in_thread(call.pyramid.status)
    return json_response({"windows": [asdict(window) for window in found.windows]})


@routes.add(
    "GET",
    "/streams/{stream}/tables",
    *ANY,
    gives=json_of(schemas.Tables),
)
async def tables(call: Call) -> Response:
    """The complete count tables, the noise in each, and how large its counts are (P2)."""
    found = await in_thread(call.pyramid.status)
    typical = await in_thread(call.stream.typical_counts)
    told = [asdict(table) | {"typical": typical.get(table.name)} for table in found.tables]
    return json_response({"tables": told})


@routes.add(
    "DELETE",
    "/streams/{stream}/tables/{table}",
    "admin",
    gives=json_of(schemas.Withdrawn),
    asks=(WHY,),
)
async def withdraw(call: Call) -> Response:
    """Erase a feature or a group, everywhere and now; the query says why."""
    name, why = call.path_param("table"), call.query("why")
    if not why:
        raise SchemaError("a withdrawal needs a reason for the deletion record; add ?why=")
    await in_thread(lambda: call.pyramid.groups.withdraw(name, why=why))
    return json_response({"withdrawn": name, "tables": call.pyramid.schema.table_names})


@routes.add("GET", "/streams/{stream}/groups", *ANY, gives=json_of(schemas.Groups))
async def groups(call: Call) -> Response:
    """The groups of features that are counted together, and how those on trial fare."""
    return json_response(await in_thread(lambda: _groups(call)))


def _groups(call: Call) -> dict[str, object]:
    pyramid = call.pyramid
    told = [asdict(group) for group in pyramid.groups.status()]
    return {"groups": [list(group) for group in pyramid.schema.groups], "trials": told}


@routes.add(
    "POST",
    "/streams/{stream}/groups",
    "admin",
    takes=json_of(schemas.NewGroup),
    gives=json_of(schemas.Groups),
)
async def add_group(call: Call) -> Response:
    """Count features together, from the next window that is not open yet."""
    new = await struct_of(call.request, call.service.limits, schemas.NewGroup)
    await in_thread(lambda: call.pyramid.groups.add(new.features))
    return json_response(await in_thread(lambda: _groups(call)))


@routes.add(
    "POST",
    "/streams/{stream}/groups/select",
    "admin",
    takes=json_of(schemas.NewSelection),
    gives=json_of(schemas.Selection),
)
async def select_groups(call: Call) -> Response:
    """Choose groups worth counting from the hot rows, privately; windows pay for it."""
    new = await struct_of(call.request, call.service.limits, schemas.NewSelection)
    part = Fraction(repr(new.share))
    done = await in_thread(lambda: call.pyramid.groups.select(share=part))
    return json_response(asdict(done) | {"charged": float(done.charged)})


@routes.add(
    "GET",
    "/streams/{stream}/ledger",
    *ANY,
    gives=json_of(schemas.Free),
    asks=(Param("lines", "no: the sums alone", Literal["yes", "no"]),),
)
async def ledger(call: Call) -> Response:
    """What each window has spent on what."""
    lines = call.query("lines", "yes")
    if lines not in ("yes", "no"):
        raise SchemaError("lines must be yes or no; leave it out for all of them")
    report = await in_thread(call.pyramid.ledger.report)
    return json_response(await in_thread(lambda: report.to_dict(lines=lines == "yes")))


@routes.add("GET", "/streams/{stream}/ledger/{window}", *ANY, gives=json_of(schemas.Free))
async def ledger_of(call: Call) -> Response:
    """What one window has spent on what."""
    text = call.path_param("window")

    def found() -> dict[str, object]:
        for window in call.pyramid.status().windows:
            if text == str(window.number):
                return call.pyramid.ledger.of_window(window.number).to_dict()
        raise MissingError("there is no such window; /windows lists them")

    return json_response(await in_thread(found))


@routes.add(
    "GET",
    "/streams/{stream}/exposure",
    "admin",
    gives=json_of(schemas.Free),
    asks=(
        Param("from", "ISO text, or seconds since 1970", needed=True),
        Param("to", "the same, not after now", needed=True),
        Param("component", "of what", Component),
    ),
)
async def exposure(call: Call) -> Response:
    """What an intruder between two moments could read."""
    start, stop = call.query("from"), call.query("to")
    if start is None or stop is None:
        raise SchemaError("an exposure is between two moments; add ?from=TIME&to=TIME")
    component = _component(call)
    found = await in_thread(
        lambda: call.pyramid.exposure(_moment(start), _moment(stop), component=component)
    )
    return json_response(found.to_dict())


def _component(call: Call) -> Component:
    told = call.query("component", "store")
    for component in COMPONENTS:
        if told == component:
            return component
    raise SchemaError(f"component must be one of {', '.join(COMPONENTS)}; choose one")


def _moment(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


@routes.add(
    "GET",
    "/streams/{stream}/audit-log",
    "admin",
    gives=Body({LINES: str}),
    asks=(Param("last", "so many entries, the newest; left out: all", schemas.Count),),
)
async def audit_log(call: Call) -> Response:
    """The audit log, as JSON lines that `audit-log verify` reads."""
    last, log, since = call.query("last"), call.pyramid.audit_log, 0
    if last is not None:
        if not last.isdecimal() or len(last) > DIGITS:
            raise SchemaError("last must be a whole number; leave it out for all entries")
        since = max(await in_thread(lambda: log.length) - int(last), 0)
    return StreamingResponse(log.export(since), media_type=LINES)


@routes.add(
    "GET",
    "/streams/{stream}/audit-log/verification",
    "admin",
    gives=json_of(schemas.Verification),
)
async def verification(call: Call) -> Response:
    """Whether the audit log is as it was written: every entry is checked."""
    found = await in_thread(call.pyramid.audit_log.verify)
    return json_response(asdict(found) | {"sound": found.sound})


@routes.add("POST", "/streams/{stream}/advance", "admin", gives=json_of(schemas.Free))
async def advance(call: Call) -> Response:
    """Do what is due."""
    told = asdict(await in_thread(call.pyramid.advance))
    del told["checkpoints"]  # the erasure of a person makes some beforehand
    return json_response(told)


@routes.add("GET", "/streams/{stream}/clock", *ANY, gives=json_of(schemas.Clock))
async def clock(call: Call) -> Response:
    """The time that the stream goes by, and whether its clocks agree."""
    return json_response(await in_thread(lambda: _clock(call)))


def _clock(call: Call) -> dict[str, object]:
    return {"now": call.pyramid.now, **call.pyramid.clock.to_dict()}


@routes.add(
    "POST",
    "/streams/{stream}/clock",
    "admin",
    takes=json_of(schemas.ClockAnswer),
    gives=json_of(schemas.Clock),
)
async def settle_clock(call: Call) -> Response:
    """Say which clock is right where they disagree; then what is due is done."""
    given = await struct_of(call.request, call.service.limits, schemas.ClockAnswer)
    verbs = {
        "confirm": call.pyramid.admin.confirm_clock,
        "correct": call.pyramid.admin.correct_clock,
    }
    await in_thread(lambda: verbs[given.answer](why=given.why))
    return json_response(await in_thread(lambda: _clock(call)))


@routes.add(
    "POST",
    "/streams/{stream}/reseed",
    "admin",
    takes=json_of(schemas.Why),
    gives=json_of(schemas.Free),
)
async def reseed(call: Call) -> Response:
    """After a break-in: seal what is populating and go on with fresh noise."""
    given = await struct_of(call.request, call.service.limits, schemas.Why)
    return json_response(asdict(await in_thread(lambda: call.pyramid.admin.reseed(why=given.why))))


# --- signed copies for clients and edges --------------------------------------------------


@routes.add(
    "GET",
    "/streams/{stream}/snapshot",
    "predict",
    "train",
    gives=SIGNED,
    asks=(Param("If-None-Match", "the ETag of the one at hand", place="header"),),
    else_=((304, "the one at hand is as good"),),
)
async def snapshot(call: Call) -> Response:
    """The complete tables for clients and edges: signed, compressed, and ending in time (P2)."""
    held = call.request.headers.get("if-none-match")
    if held is not None:
        tag = await in_thread(call.stream.etag)
        if _has(held, tag):
            return Response(status_code=304, headers={"ETag": _weak(tag)})
    data, tag, ends = await in_thread(lambda: call.stream.packed(call.service.signer))
    return signed_response(data, ends, ETag=_weak(tag))


@routes.add("GET", "/streams/{stream}/card", "predict", "train", gives=SIGNED)
async def card(call: Call) -> Response:
    """What opens the shared tables: signed, and ending as the tables do (P2)."""
    data, ends = await in_thread(lambda: call.stream.card(call.service.signer))
    return signed_response(data, ends)


def _weak(tag: str) -> str:
    """The tables are the same; the bytes also say when they were made."""
    return f'W/"{tag}"'


def _has(told: str, tag: str) -> bool:
    return any(each.strip().removeprefix("W/") == f'"{tag}"' for each in told.split(","))
