"""What leaves for clients and edges: signed copies that say when they end."""

from __future__ import annotations

from email.utils import formatdate

from starlette.responses import Response

from pyramidion.counts.signing import sign
from pyramidion.web.service.routing import Call, Routes, apart, model_of, read_by, unexplained
from pyramidion.web.service.shapes import BYTES, SIGNED
from pyramidion.web.shapes import Asked

routes = Routes()
MODEL = "model"
"""The kind of a signed model."""


@routes.add(
    "GET",
    "/streams/{stream}/snapshot",
    "predict",
    "train",
    gives=SIGNED,
    asks=(Asked("If-None-Match", "the ETag of the one at hand", place="header"),),
    else_=((304, "the one at hand is as good"),),
)
async def snapshot(call: Call) -> Response:
    """The complete tables for clients and edges: signed, compressed, and ending in time (P2)."""
    held = call.request.headers.get("if-none-match")
    if held is not None:
        tag = await apart(call.stream.etag)
        if _has(held, tag):
            return Response(status_code=304, headers={"ETag": _weak(tag)})
    data, tag, ends = await apart(lambda: call.stream.packed(call.service.signer))
    # Nobody on the way keeps it: it would outlive the windows in it.
    headers = {"ETag": _weak(tag), "Expires": _date(ends), "Cache-Control": "no-store"}
    return Response(data, headers=headers, media_type=BYTES)


@routes.add("GET", "/streams/{stream}/card", "predict", "train", gives=SIGNED)
async def card(call: Call) -> Response:
    """What opens the shared tables: signed, and ending as the tables do (P2)."""
    data, ends = await apart(lambda: call.stream.card(call.service.signer))
    headers = {"Expires": _date(ends), "Cache-Control": "no-store"}
    return Response(data, headers=headers, media_type=BYTES)


@routes.add("GET", "/streams/{stream}/models/{model}/export", "predict", gives=SIGNED)
async def export(call: Call) -> Response:
    """A model for an edge: signed, as raw as its rows (P1), ending as it does; audited."""
    name = model_of(call.pyramid, call.asked("model")).name
    with unexplained(call, name):
        header, payload = await apart(lambda: call.pyramid.models.export(name))
    data = await apart(lambda: sign(call.service.signer, MODEL, call.stream.name, header, payload))
    await read_by(call, "model")
    about = {"Expires": _date(header["expires"]), "Cache-Control": "no-store"}
    return Response(data, headers=about, media_type=BYTES)


def _weak(tag: str) -> str:
    """The tables are the same; the bytes also say when they were made."""
    return f'W/"{tag}"'


def _has(told: str, tag: str) -> bool:
    return any(each.strip().removeprefix("W/") == f'"{tag}"' for each in told.split(","))


def _date(moment: int) -> str:
    return formatdate(moment // 1_000_000, usegmt=True)
