"""The OpenAPI document: what every route takes and gives, and who may call it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pyramidion.web.shapes import Asked, Body, Shape, json_of, named

SCHEME = "token"
NAMES = {
    "stream": "a stream, as /v1/streams lists it",
    "new": "the name of the stream to make",
    "model": "a model, as its stream lists it",
    "table": 'a feature, or a group as "a,b"',
    "window": "a count window's number, as /windows lists it",
    "id": "a token's id, as /v1/tokens lists it",
}
"""What stands in the paths."""
ANYBODY = "any token"


class Route(Protocol):
    """What is told of a route."""

    @property
    def path(self) -> str:
        """Where it is, with names in braces."""

    @property
    def roles(self) -> Collection[str]:
        """One of them is needed."""

    @property
    def for_all(self) -> bool:
        """Whether any token that is known may call it."""

    @property
    def about(self) -> Mapping[str, Any]:
        """What it asks, takes and gives."""


def described(route: Route) -> dict[str, Any]:
    """A route's piece of the document."""
    about = route.about
    parts = re.findall(r"{(\w+)}", route.path)
    asked = [Asked(part, NAMES[part], place="path", needed=True) for part in parts]
    told: dict[str, Any] = {
        "security": [{SCHEME: []}],
        "description": f"Who may: {who(route)}.",
        "x-roles": sorted(route.roles),
        "parameters": [_parameter(each) for each in (*asked, *about.get("asks", ()))],
        "responses": {
            str(about.get("status", 200)): _answer(about.get("gives")),
            "default": {"description": "refused", **_content(json_of(named("Error")))},
        },
    }
    if "takes" in about:
        told["requestBody"] = {"required": True, **_content(about["takes"])}
    if "else_" in about:
        told["responses"] |= {str(code): {"description": why} for code, why in about["else_"]}
    return told


def who(route: Route) -> str:
    """Who may call a route."""
    return ANYBODY if route.for_all else " or ".join(sorted(route.roles))


def _parameter(asked: Asked) -> dict[str, Any]:
    return {
        "name": asked.name,
        "in": asked.place,
        "required": asked.needed,
        "description": asked.about,
        "schema": asked.shape,
    }


def _answer(body: Body | None) -> dict[str, Any]:
    return {"description": "done", **({} if body is None else _content(body))}


def _content(body: Body) -> dict[str, Any]:
    return {"content": {kind: {"schema": shape} for kind, shape in body.kinds.items()}}


def documented(app: FastAPI, shapes: Mapping[str, Shape]) -> None:
    """Have an app tell its document, with the shapes and the tokens in it; made once."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes)
            about = {"type": "http", "scheme": "bearer", "description": "`pyramidion tokens add`"}
            made["components"] = {"schemas": dict(shapes), "securitySchemes": {SCHEME: about}}
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


OPEN: dict[str, Any] = {"security": []}
"""For routes that ask nobody who they are."""
