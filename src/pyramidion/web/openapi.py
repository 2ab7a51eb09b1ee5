"""The OpenAPI document: what every route takes and gives, and who may call it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Mounted

from pyramidion.web.bodies import JSON
from pyramidion.web.page import POLICY, page
from pyramidion.web.routing import Handler, Route, mounted
from pyramidion.web.schemas import Body, Error, OneOf, Param, json_of

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
REFERENCE = "#/components/schemas/{name}"


class OpenRoute(NamedTuple):
    """A route without a token: anybody may GET it."""

    path: str
    handler: Handler
    summary: str
    responses: Mapping[str, str] = {}
    """Other statuses than 200, and why."""
    kind: str = JSON
    """The content type of its responses."""

    def mounted(self) -> Mounted:
        """As a route of Starlette's."""
        return mounted("GET", self.path, self.handler)


def document(
    title: str,
    version: str,
    routes: Iterable[tuple[str, Route[Any]]],
    open_routes: Iterable[OpenRoute],
) -> dict[str, Any]:
    """The OpenAPI document of an app: its routes, each with its prefix, and its open routes."""
    paths: dict[str, dict[str, Any]] = {}
    components: dict[str, Any] = {}
    for prefix, route in routes:
        path, method = prefix + route.path, route.method.lower()
        paths.setdefault(path, {})[method] = _operation(route, path, components)
    for each in open_routes:
        paths.setdefault(each.path, {})["get"] = _open_operation(each)
    scheme = {"type": "http", "scheme": "bearer", "description": "`pyramidion tokens add`"}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {SCHEME: scheme},
        },
    }


def document_routes(described: dict[str, Any]) -> list[Mounted]:
    """``/openapi.json`` and ``/docs``: the document for programs and for people."""
    body, text = msgspec.json.encode(described), page(described)

    async def openapi(_: Request) -> Response:
        return Response(body, media_type=JSON)

    async def docs(_: Request) -> Response:
        headers = {"Content-Security-Policy": POLICY}
        return Response(text, headers=headers, media_type="text/html")

    return [mounted("GET", "/openapi.json", openapi), mounted("GET", "/docs", docs)]


def _open_operation(route: OpenRoute) -> dict[str, Any]:
    content: dict[str, Any] = {"content": {route.kind: {"schema": {}}}}
    others = {status: {"description": why, **content} for status, why in route.responses.items()}
    return {
        "summary": route.summary,
        "operationId": _id(route.path, "get"),
        "security": [],
        "responses": {"200": {"description": "done", **content}, **others},
    }


def _operation(route: Route[Any], path: str, components: dict[str, Any]) -> dict[str, Any]:
    about = route.about
    parts = re.findall(r"{(\w+)}", route.path)
    params = [Param(part, NAMES[part], place="path", needed=True) for part in parts]
    params += about.get("asks", ())
    response: dict[str, Any] = {"description": "done"}
    if "gives" in about:
        response |= _content(about["gives"], components)
    refused = {"description": "refused", **_content(json_of(Error), components)}
    found: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _id(path, route.method.lower()),
        "security": [{SCHEME: []}],
        "description": f"Who may: {who(route)}.",
        "x-roles": sorted(route.roles),
        "parameters": [_parameter(each, components) for each in params],
        "responses": {str(about.get("status", 200)): response, "default": refused},
    }
    if "takes" in about:
        found["requestBody"] = {"required": True, **_content(about["takes"], components)}
    if "else_" in about:
        found["responses"] |= {str(code): {"description": why} for code, why in about["else_"]}
    return found


def _id(path: str, method: str) -> str:
    return re.sub(r"\W+", "_", path).strip("_") + f"_{method}"


def who(route: Route[Any]) -> str:
    """Who may call a route."""
    return ANYBODY if route.for_all else " or ".join(sorted(route.roles))


def _parameter(param: Param, components: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": param.name,
        "in": param.place,
        "required": param.needed,
        "description": param.about,
        "schema": _schema(param.type, components),
    }


def _content(body: Body, components: dict[str, Any]) -> dict[str, Any]:
    kinds = body.kinds.items()
    return {"content": {kind: {"schema": _schema(type_, components)} for kind, type_ in kinds}}


def _schema(type_: Any, components: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type; structs in it become components."""
    if isinstance(type_, OneOf):
        each = [_schema(one, components) for one in type_.types]
        return {"oneOf": each, "description": type_.description}
    (schema,), found = msgspec.json.schema_components([type_], ref_template=REFERENCE)
    components |= found
    return schema
