"""The service itself: its tokens, and the key that its snapshots are signed with."""

from __future__ import annotations

from starlette.responses import Response

from pyramidion.errors import FormatError
from pyramidion.web.bodies import answer, body_of, kind_of, object_from
from pyramidion.web.service.routing import Call, Routes, apart
from pyramidion.web.shapes import TEXT, json_of, listed, named, whole

routes = Routes()


@routes.add("GET", "/tokens", "admin", gives=json_of(whole(tokens=listed(named("Token")))))
async def tokens(call: Call) -> Response:
    """Who has a token, and for what; never the tokens themselves."""
    call.caller.refuse_part()
    return answer({"tokens": [token.to_dict() for token in call.service.tokens.all()]})


@routes.add(
    "POST",
    "/tokens",
    "admin",
    takes=json_of(named("NewToken")),
    gives=json_of(whole(token=TEXT)),
    status=201,
)
async def add_token(call: Call) -> Response:
    """Make a token; its text is told once, here."""
    call.caller.refuse_part()
    body = await body_of(call.request, call.service.limits)
    asked = object_from(body, kind_of(call.request), ("name", "roles", "streams"))
    name, roles, streams = asked.get("name"), asked.get("roles", []), asked.get("streams", [])
    if not isinstance(name, str) or not _texts(roles) or not _texts(streams):
        raise FormatError("name must be text, roles and streams lists of text; send them so")
    made = await apart(lambda: call.service.tokens.add(name, roles, streams, call.service.now))
    return answer({"token": made}, 201)


@routes.add("DELETE", "/tokens/{id}", "admin", gives=json_of(whole(removed=named("Token"))))
async def remove_token(call: Call) -> Response:
    """Take a token back."""
    call.caller.refuse_part()
    gone = await apart(lambda: call.service.tokens.remove(call.asked("id")))
    return answer({"removed": gone.to_dict()})


def _texts(told: object) -> bool:
    return isinstance(told, list) and all(isinstance(text, str) for text in told)
