"""The vault: what it holds, and requests for it, which are signed by who asks and never here.

The service answers a draft: the envelopes of the files, their locks for the broker, and what was
asked. The engineer's private key stays with the engineer, who signs the draft
(`pyramidion vault sign`) and gives it to the custodian; a service that changed what was asked for
could not have it signed unseen, nor open what is granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from starlette.responses import Response

from pyramidion.errors import FormatError, MissingError
from pyramidion.store.exposure import interval
from pyramidion.web import schemas
from pyramidion.web.bodies import JSON, json_response
from pyramidion.web.routing import Routes, in_thread
from pyramidion.web.schemas import json_of, struct_of
from pyramidion.web.service.calls import Call
from pyramidion.web.service.grants import granted
from pyramidion.web.service.routes_store import public_vault

if TYPE_CHECKING:
    from pyramidion.vault.documents import Request
    from pyramidion.vault.key_pairs import PrivateKey, PublicKey
    from pyramidion.vault.vault import Vault


routes = Routes[Call]()


@routes.add("GET", "/streams/{stream}/vault", "admin", gives=json_of(schemas.Free))
async def vault(call: Call) -> Response:
    """What the vault holds, and what is on its way to it."""
    return json_response(public_vault(await in_thread(_of(call).status)))


@routes.add(
    "GET",
    "/streams/{stream}/grants",
    "admin",
    gives=json_of(schemas.Grants),
)
async def grants(call: Call) -> Response:
    """Who was let read the vault, what of it and until when, as the audit log tells it."""
    log, now = call.pyramid.audit_log, call.stream.now
    return json_response({"grants": await in_thread(lambda: granted(log.entries(), now))})


@routes.add(
    "POST",
    "/streams/{stream}/vault/requests",
    "custodian-request",
    takes=json_of(schemas.NewRequest),
    gives=json_of(schemas.Free),
)
async def request(call: Call) -> Response:
    """Draft a request for sealed rows; who asks signs it elsewhere. Audited."""
    new = await struct_of(call.request, call.service.limits, schemas.NewRequest)
    draft = await in_thread(lambda: _draft(call, new))
    return Response(draft.to_json(), media_type=JSON)


class Elsewhere:
    """An engineer's key, as far as it may be here: the public half."""

    def __init__(self, public: PublicKey) -> None:
        self.public = public

    def sign(self, _: bytes) -> bytes:
        """Nothing: that is done where the private half is."""
        return b""


def _draft(call: Call, new: schemas.NewRequest) -> Request:
    now = call.stream.now
    first, last = interval(new.start, new.stop, now)
    _refuse_unknown(call, new.columns)
    key = cast("PrivateKey", Elsewhere(_public(new.key)))
    return _of(call).request(
        first,
        last,
        columns=new.columns,
        reason=new.reason,
        engineer=new.engineer,
        key=key,
        broker=_public(new.broker),
        now=now,
    )


def _public(text: str) -> PublicKey:
    """A public key: the text of its file, or its code alone."""
    from pyramidion.vault.key_pairs import PublicKey

    told = text.strip()
    return PublicKey.from_text(told) if told.startswith("{") else PublicKey.from_code(told)


def _of(call: Call) -> Vault:
    found = call.pyramid.vault
    if found is None:
        raise MissingError("this stream has no vault; one is attached with its store")
    return found


def _refuse_unknown(call: Call, columns: list[str]) -> None:
    known = call.pyramid.schema.columns
    for name in columns:
        if name not in known:
            raise FormatError(f"there is no column of this name; use some of {', '.join(known)}")
