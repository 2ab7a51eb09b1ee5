"""The vault: what it holds, and requests for it, which are signed by who asks and never here.

The service answers a draft: the envelopes of the files, their locks for the broker, and what was
asked. The engineer's private key stays with the engineer, who signs the draft
(`pyramidion vault sign`) and gives it to the custodian; a service that changed what was asked for
could not have it signed unseen, nor open what is granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from starlette.responses import Response

from pyramidion.errors import FormatError, MissingError
from pyramidion.store.exposure import interval
from pyramidion.web.bodies import answer, body_of, kind_of, object_from
from pyramidion.web.service.grants import granted
from pyramidion.web.service.routes_store import public_vault
from pyramidion.web.service.routing import Call, Routes, apart
from pyramidion.web.service.shapes import DRAFT
from pyramidion.web.shapes import FREE, json_of, listed, named, whole

if TYPE_CHECKING:
    from pyramidion.vault.documents import Request
    from pyramidion.vault.keys import PrivateKey, PublicKey
    from pyramidion.vault.vault import Vault

routes = Routes()
FIELDS = ("from", "to", "columns", "reason", "engineer", "key", "broker")


@routes.add("GET", "/streams/{stream}/vault", "admin", gives=json_of(FREE))
async def vault(call: Call) -> Response:
    """What the vault holds, and what is on its way to it."""
    return answer(public_vault(await apart(_of(call).status)))


@routes.add(
    "GET",
    "/streams/{stream}/grants",
    "admin",
    gives=json_of(whole(grants=listed(named("Grant")))),
)
async def grants(call: Call) -> Response:
    """Who was let read the vault, what of it and until when, as the audit log tells it."""
    log, now = call.pyramid.audit_log, call.stream.now
    return answer({"grants": await apart(lambda: granted(log.entries(), now))})


@routes.add(
    "POST",
    "/streams/{stream}/vault/requests",
    "custodian-request",
    takes=json_of(named("NewRequest")),
    gives=DRAFT,
)
async def request(call: Call) -> Response:
    """Draft a request for sealed rows; who asks signs it elsewhere. Audited."""
    body = await body_of(call.request, call.service.limits)
    asked = object_from(body, kind_of(call.request), FIELDS)
    made = await apart(lambda: _draft(call, asked))
    return Response(made.to_json(), media_type="application/json")


class Elsewhere:
    """An engineer's key, as far as it may be here: the public half."""

    def __init__(self, public: PublicKey) -> None:
        self.public = public

    def sign(self, _: bytes) -> bytes:
        """Nothing: that is done where the private half is."""
        return b""


def _draft(call: Call, asked: dict[str, Any]) -> Request:
    texts = [asked.get(name) for name in ("reason", "engineer", "key", "broker")]
    columns: Any = asked.get("columns")
    if not all(isinstance(text, str) for text in texts) or not _texts(columns):
        raise FormatError(
            "reason, engineer, key and broker must be text, columns a list of names; send them so"
        )
    now = call.stream.now
    first, last = interval(asked.get("from"), asked.get("to"), now)
    _refuse_unknown(call, columns)
    key = cast("PrivateKey", Elsewhere(_public(asked["key"])))
    return _of(call).request(
        first,
        last,
        columns=columns,
        reason=asked["reason"],
        engineer=asked["engineer"],
        key=key,
        broker=_public(asked["broker"]),
        now=now,
    )


def _public(text: str) -> PublicKey:
    """A public key: the text of its file, or its code alone."""
    from pyramidion.vault.keys import PublicKey

    told = text.strip()
    return PublicKey.from_text(told) if told.startswith("{") else PublicKey.from_code(told)


def _of(call: Call) -> Vault:
    found = call.pyramid.vault
    if found is None:
        raise MissingError("this stream has no vault; one is attached with its store")
    return found


def _texts(told: object) -> bool:
    return isinstance(told, list) and bool(told) and all(isinstance(text, str) for text in told)


def _refuse_unknown(call: Call, columns: list[str]) -> None:
    known = call.pyramid.schema.columns
    for name in columns:
        if name not in known:
            raise FormatError(f"there is no column of this name; use some of {', '.join(known)}")
