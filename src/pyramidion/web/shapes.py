"""What bodies and answers look like, as JSON Schema, for the OpenAPI document.

Times are microseconds since 1970. Amounts of privacy that are infinite are null.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pyramidion.web.bodies import ARROW, JSON

Shape = dict[str, Any]

TEXT: Shape = {"type": "string"}
WHOLE: Shape = {"type": "integer", "minimum": 0}
NUMBER: Shape = {"type": "number"}
FLAG: Shape = {"type": "boolean"}
TIME: Shape = {"type": ["integer", "null"], "description": "microseconds since 1970"}
SOME: Shape = {"type": ["number", "null"]}
VALUE: Shape = {"type": ["string", "number", "boolean", "null"]}
FREE: Shape = {"type": "object"}
BINARY: Shape = {"type": "string", "format": "binary"}


def listed(shape: Shape, **about: Any) -> Shape:
    """A list of something."""
    return {"type": "array", "items": shape, **about}


def named(name: str) -> Shape:
    """One of `NAMED`, by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def closed(_need: tuple[str, ...] = (), **fields: Shape) -> Shape:
    """An object that has no other fields."""
    shape: Shape = {"type": "object", "properties": fields, "additionalProperties": False}
    return shape | ({"required": list(_need)} if _need else {})


def whole(**fields: Shape) -> Shape:
    """An object that has all of these fields, and may get more with later versions."""
    return {"type": "object", "properties": fields, "required": list(fields)}


NAMES = listed(TEXT)

COMMON: dict[str, Shape] = {
    "Error": whole(
        error={
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": TEXT | {"description": "the name of the error, as docs/errors.md has it"},
                "message": TEXT | {"description": "what, why and the remedy; never a value"},
                "problems": {
                    "type": "object",
                    "additionalProperties": listed(WHOLE),
                    "description": "rows that cannot be counted, by reason",
                },
            },
        }
    ),
    "Row": {
        "type": "object",
        "additionalProperties": VALUE,
        "description": "values by the names of columns, as the schema has them",
    },
    "Rows": {"oneOf": [named("Row"), listed(named("Row"))]},
    "Guarantee": {
        "type": "object",
        "required": ["level", "epsilon", "delta", "k", "windows"],
        "properties": {
            "level": {"enum": ["P1", "P2", "P3"]},
            "epsilon": SOME,
            "delta": NUMBER,
            "k": WHOLE,
            "windows": WHOLE,
            "unit": TEXT,
        },
    },
    "Features": whole(names=NAMES, rows=listed(listed(NUMBER)), guarantee=named("Guarantee")),
    "Asked": {
        "oneOf": [
            closed(("features",), features=listed(NUMBER)),
            named("Row"),
            listed(named("Row")),
        ],
        "description": "rows without their label; or the features of one, as /features has them",
    },
    "Predictions": {
        "type": "object",
        "required": ["model", "version"],
        "properties": {
            "model": TEXT,
            "version": WHOLE,
            "classes": listed(VALUE),
            "probabilities": listed(listed(NUMBER)),
            "predictions": listed(VALUE),
        },
    },
}


class Body(NamedTuple):
    """What a route takes or gives: shapes by content type."""

    kinds: dict[str, Shape]


class Asked(NamedTuple):
    """A parameter of the query, or a header."""

    name: str
    about: str
    shape: Shape = TEXT
    place: str = "query"
    needed: bool = False


def json_of(shape: Shape) -> Body:
    """JSON alone."""
    return Body({JSON: shape})


FEATURES = Body({JSON: named("Features"), ARROW: BINARY})
PREDICTIONS = Body({JSON: named("Predictions"), ARROW: BINARY})
