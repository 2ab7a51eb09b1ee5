"""What a stream holds, what it cost, and what an admin does with it."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.errors import FormatError, MissingError, SchemaError
from pyramidion.store.exposure.exposed import COMPONENTS, Component
from pyramidion.web.bodies import DIGITS, LINES, answer, body_of, kind_of, object_from
from pyramidion.web.service.access import ANY
from pyramidion.web.service.routing import Call, Routes, apart
from pyramidion.web.service.schemas import SCHEMA_BYTES, schema_file
from pyramidion.web.service.shapes import LOG, SCHEMA, WHY
from pyramidion.web.service.streams import Stream
from pyramidion.web.shapes import FREE, NAMES, TEXT, WHOLE, Asked, json_of, listed, named, whole

if TYPE_CHECKING:
    from pyramidion.vault.files import VaultStatus

routes = Routes()


@routes.add("GET", "/streams", *ANY, gives=json_of(whole(streams=NAMES)))
async def streams(call: Call) -> Response:
    """The streams that this token is for."""
    return answer({"streams": [stream.name for stream in call.service.streams(call.caller)]})


@routes.add(
    "PUT",
    "/streams/{new}",
    "admin",
    takes=SCHEMA,
    gives=json_of(named("Status")),
    status=201,
)
async def create(call: Call) -> Response:
    """Make a stream: of a schema file with a [settings] table, or of both in JSON."""
    name = call.asked("new")
    call.caller.refuse_other(name)
    body = await body_of(call.request, call.service.limits, SCHEMA_BYTES)
    kind = kind_of(call.request)
    told = await apart(lambda: schema_file(body, kind))
    knobs = told.pop("settings", None)
    if not isinstance(knobs, dict):
        raise FormatError("the schema file has no [settings] table; add one with epsilon = 1.0")
    schema, settings = Schema.from_dict(told), Settings.from_dict(knobs)
    stream = await apart(lambda: call.service.create(name, schema, settings))
    return answer(await apart(lambda: _told(stream)), 201)


@routes.add("GET", "/streams/{stream}", *ANY, gives=json_of(named("Status")))
async def status(call: Call) -> Response:
    """What the stream holds now."""
    return answer(await apart(lambda: _told(call.stream)))


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


@routes.add("GET", "/streams/{stream}/pyramid", *ANY, gives=json_of(named("Layers")))
async def pyramid(call: Call) -> Response:
    """What an intruder would get now: rows that are raw, counted, sealed and gone."""
    return answer(asdict((await apart(call.pyramid.status)).layers))


@routes.add("GET", "/streams/{stream}/schema", *ANY, gives=json_of(named("Schema")))
async def schema(call: Call) -> Response:
    """What an observation of the stream is, and its settings; both are public."""
    settings = call.pyramid.settings
    told = settings.to_dict() | ({} if settings.private else {"epsilon": None})
    return answer({"schema": call.pyramid.schema.to_dict(), "settings": told})


@routes.add(
    "GET", "/streams/{stream}/windows", *ANY, gives=json_of(whole(windows=listed(named("Window"))))
)
async def windows(call: Call) -> Response:
    """The count windows, from populating to erased."""
    found = await apart(call.pyramid.status)
    return answer({"windows": [asdict(window) for window in found.windows]})


@routes.add(
    "GET",
    "/streams/{stream}/tables",
    *ANY,
    gives=json_of(whole(tables=listed(named("NoisyTable")))),
)
async def tables(call: Call) -> Response:
    """The complete count tables, the noise in each, and how large its counts are (P2)."""
    found = await apart(call.pyramid.status)
    typical = await apart(call.stream.typical_counts)
    told = [asdict(table) | {"typical": typical.get(table.name)} for table in found.tables]
    return answer({"tables": told})


@routes.add(
    "DELETE",
    "/streams/{stream}/tables/{table}",
    "admin",
    gives=json_of(whole(withdrawn=TEXT, tables=NAMES)),
    asks=(WHY,),
)
async def withdraw(call: Call) -> Response:
    """Erase a feature or a group, everywhere and now; the query says why."""
    name, why = call.asked("table"), call.query("why")
    if not why:
        raise SchemaError("a withdrawal needs a reason for the deletion record; add ?why=")
    await apart(lambda: call.pyramid.groups.withdraw(name, why=why))
    return answer({"withdrawn": name, "tables": call.pyramid.schema.table_names})


@routes.add("GET", "/streams/{stream}/groups", *ANY, gives=json_of(named("Groups")))
async def groups(call: Call) -> Response:
    """The groups of features that are counted together, and how those on trial fare."""
    return answer(await apart(lambda: _groups(call)))


def _groups(call: Call) -> dict[str, object]:
    pyramid = call.pyramid
    told = [asdict(group) for group in pyramid.groups.status()]
    return {"groups": [list(group) for group in pyramid.schema.groups], "trials": told}


@routes.add(
    "POST",
    "/streams/{stream}/groups",
    "admin",
    takes=json_of(named("NewGroup")),
    gives=json_of(named("Groups")),
)
async def add_group(call: Call) -> Response:
    """Count features together, from the next window that is not open yet."""
    body = await body_of(call.request, call.service.limits)
    asked = object_from(body, kind_of(call.request), ("features",)).get("features")
    if not isinstance(asked, list) or not all(isinstance(name, str) for name in asked):
        raise FormatError("features must be a list of names; send at least two")
    await apart(lambda: call.pyramid.groups.add(asked))
    return answer(await apart(lambda: _groups(call)))


@routes.add(
    "POST",
    "/streams/{stream}/groups/select",
    "admin",
    takes=json_of(named("NewSelection")),
    gives=json_of(named("Selection")),
)
async def select_groups(call: Call) -> Response:
    """Choose groups worth counting from the hot rows, privately; windows pay for it."""
    body = await body_of(call.request, call.service.limits)
    share = object_from(body, kind_of(call.request), ("share",)).get("share", 1)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise FormatError("share must be a number above 0 and at most 1; send it, or {} for 1")
    part = Fraction(repr(share))
    done = await apart(lambda: call.pyramid.groups.select(share=part))
    return answer(asdict(done) | {"charged": float(done.charged)})


@routes.add(
    "GET",
    "/streams/{stream}/ledger",
    *ANY,
    gives=json_of(FREE),
    asks=(Asked("lines", "no: the sums alone", {"enum": ["yes", "no"]}),),
)
async def ledger(call: Call) -> Response:
    """What each window has spent on what."""
    lines = call.query("lines", "yes")
    if lines not in ("yes", "no"):
        raise SchemaError("lines must be yes or no; leave it out for all of them")
    report = await apart(call.pyramid.ledger.report)
    return answer(await apart(lambda: report.to_dict(lines=lines == "yes")))


@routes.add("GET", "/streams/{stream}/ledger/{window}", *ANY, gives=json_of(FREE))
async def ledger_of(call: Call) -> Response:
    """What one window has spent on what."""
    text = call.asked("window")

    def found() -> dict[str, object]:
        for window in call.pyramid.status().windows:
            if text == str(window.number):
                return call.pyramid.ledger.of_window(window.number).to_dict()
        raise MissingError("there is no such window; /windows lists them")

    return answer(await apart(found))


@routes.add(
    "GET",
    "/streams/{stream}/exposure",
    "admin",
    gives=json_of(FREE),
    asks=(
        Asked("from", "ISO text, or seconds since 1970", needed=True),
        Asked("to", "the same, not after now", needed=True),
        Asked("component", "of what", {"enum": list(COMPONENTS)}),
    ),
)
async def exposure(call: Call) -> Response:
    """What an intruder between two moments could read."""
    start, stop = call.query("from"), call.query("to")
    if start is None or stop is None:
        raise SchemaError("an exposure is between two moments; add ?from=TIME&to=TIME")
    component = _component(call)
    found = await apart(
        lambda: call.pyramid.exposure(_moment(start), _moment(stop), component=component)
    )
    return answer(found.to_dict())


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
    gives=LOG,
    asks=(Asked("last", "so many entries, the newest; left out: all", WHOLE),),
)
async def audit_log(call: Call) -> Response:
    """The audit log, as JSON lines that `audit-log verify` reads."""
    last, log, since = call.query("last"), call.pyramid.audit_log, 0
    if last is not None:
        if not last.isdecimal() or len(last) > DIGITS:
            raise SchemaError("last must be a whole number; leave it out for all entries")
        since = max(await apart(lambda: log.length) - int(last), 0)
    return StreamingResponse(log.export(since), media_type=LINES)


@routes.add(
    "GET",
    "/streams/{stream}/audit-log/verification",
    "admin",
    gives=json_of(named("Verification")),
)
async def verification(call: Call) -> Response:
    """Whether the audit log is as it was written: every entry is checked."""
    found = await apart(call.pyramid.audit_log.verify)
    return answer(asdict(found) | {"sound": found.sound})


@routes.add("POST", "/streams/{stream}/advance", "admin", gives=json_of(FREE))
async def advance(call: Call) -> Response:
    """Do what is due."""
    told = asdict(await apart(call.pyramid.advance))
    del told["checkpoints"]  # the erasure of a person makes some beforehand
    return answer(told)


@routes.add("GET", "/streams/{stream}/clock", *ANY, gives=json_of(named("Clock")))
async def clock(call: Call) -> Response:
    """The time that the stream goes by, and whether its clocks agree."""
    return answer(await apart(lambda: _clock(call)))


def _clock(call: Call) -> dict[str, object]:
    return {"now": call.pyramid.now, **call.pyramid.clock.to_dict()}


@routes.add(
    "POST",
    "/streams/{stream}/clock",
    "admin",
    takes=json_of(named("ClockAnswer")),
    gives=json_of(named("Clock")),
)
async def settle_clock(call: Call) -> Response:
    """Say which clock is right where they disagree; then what is due is done."""
    body = await body_of(call.request, call.service.limits)
    told = object_from(body, kind_of(call.request), ("answer", "why"))
    verbs = {
        "confirm": call.pyramid.admin.confirm_clock,
        "correct": call.pyramid.admin.correct_clock,
    }
    settle, why = verbs.get(str(told.get("answer"))), told.get("why")
    if settle is None or not isinstance(why, str) or not why:
        raise FormatError('send {"answer": "confirm", "why": "..."}; the answer may be "correct"')
    await apart(lambda: settle(why=why))
    return answer(await apart(lambda: _clock(call)))


@routes.add(
    "POST",
    "/streams/{stream}/reseed",
    "admin",
    takes=json_of(named("Why")),
    gives=json_of(FREE),
)
async def reseed(call: Call) -> Response:
    """After a break-in: seal what is populating and go on with fresh noise."""
    body = await body_of(call.request, call.service.limits)
    why = object_from(body, kind_of(call.request), ("why",)).get("why")
    if not isinstance(why, str) or not why:
        raise FormatError('a reseed needs a reason; send {"why": "..."}')
    return answer(asdict(await apart(lambda: call.pyramid.admin.reseed(why=why))))
