"""Calls of the service's routes, and what several handlers share: rows, models, signed files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from pyramidion.config.checks import nearest
from pyramidion.errors import MissingError, StateError
from pyramidion.learn.models import Model
from pyramidion.store.pyramid import Pyramid
from pyramidion.web.bodies import BYTES, body_of, content_of, kind_of
from pyramidion.web.limits import Limits
from pyramidion.web.routing import in_thread
from pyramidion.web.service.row_bodies import Wanted, rows_from
from pyramidion.web.service.service import Service
from pyramidion.web.service.streams import Stream
from pyramidion.web.tokens import Token

SMALL = 1 << 14
"""Bytes of a body that are parsed at once: about as long as a thread takes to start."""


@dataclass(frozen=True)
class Call:
    """A request of a caller who may make it."""

    request: Request
    service: Service
    caller: Token
    _stream: Stream | None = None

    @classmethod
    def admit(cls, service: Service, request: Request, caller: Token) -> Call:
        """The call; raises if its path names a stream that the caller may not see."""
        name = request.path_params.get("stream")
        stream = None if name is None else service.stream(name, caller)
        return cls(request, service, caller, stream)

    @property
    def stream(self) -> Stream:
        """The stream in its path."""
        assert self._stream is not None  # noqa: S101 by the route's path
        return self._stream

    @property
    def pyramid(self) -> Pyramid:
        """The store of that stream."""
        return self.stream.pyramid

    def path_param(self, name: str) -> str:
        """A part of the path."""
        value: str = self.request.path_params[name]
        return value

    def query(self, name: str, default: str | None = None) -> str | None:
        """A parameter of the query."""
        if not self.request.scope["query_string"]:
            return default
        return self.request.query_params.get(name, default)


class Rows(NamedTuple):
    """The rows of a body: what they are, how many, and the bytes that they came in."""

    rows: Any
    number: int
    size: int
    content: bytes = b""
    """A hash of these bytes, where they came under a key."""


async def rows_in(
    body: bytes, kind: str, limits: Limits, wanted: Wanted, key: str | None = None
) -> Rows:
    """The rows of a body; of a large one in a thread, so that others are answered meanwhile."""

    def read() -> Rows:
        content = content_of(body, kind, key)
        return Rows(*rows_from(body, kind, limits, wanted), len(body), content)

    return read() if len(body) <= SMALL else await in_thread(read)


async def rows_of(call: Call, wanted: Wanted, key: str | None = None) -> Rows:
    """The rows of a request, which may be sent again under a key."""
    limits = call.service.limits
    body = await body_of(call.request, limits)
    return await rows_in(body, kind_of(call.request), limits, wanted, key)


def observed(call: Call) -> Wanted:
    """What rows that are observed have: all columns."""
    return Wanted.of(call.pyramid, call.pyramid.schema.columns)


def asked_for(call: Call) -> Wanted:
    """What rows that are asked for have: the features."""
    return Wanted.of(call.pyramid, call.pyramid.schema.feature_names)


async def record_read(call: Call, what: str) -> None:
    """Enter in the audit log who reads raw data, before any leaves; if that fails, none leaves."""
    by, token = call.caller.name, call.caller.id
    await in_thread(lambda: call.pyramid.admin.note("rows.read", by=by, token=token, what=what))


@contextmanager
def unexplained(call: Call, model: str) -> Iterator[None]:
    """Why a model is unavailable follows from hot rows: only callers with ``train`` are told."""
    try:
        yield
    except StateError:
        if "train" in call.caller.roles or not model_of(call.pyramid, model).why:
            raise
        raise StateError(
            f"model {model!r} is unavailable; a token with the role train is told why"
        ) from None


def model_of(pyramid: Pyramid, name: str) -> Model:
    """A registered model."""
    models = dict(pyramid.models.items())
    if name not in models:
        remedy = nearest(name, models) if models else "register it first"
        raise MissingError(f"there is no model of this name; {remedy}")
    return models[name]


def signed_response(data: bytes, expires: int, **headers: str) -> Response:
    """A signed file that ends at a time. No cache may keep it: it would outlive its windows."""
    date = formatdate(expires // 1_000_000, usegmt=True)
    given = {**headers, "Expires": date, "Cache-Control": "no-store"}
    return Response(data, headers=given, media_type=BYTES)
