"""What an edge takes and gives, beyond what it has in common with the service."""

from __future__ import annotations

from pyramidion.web.bodies import ARROW, JSON
from pyramidion.web.shapes import (
    BINARY,
    COMMON,
    TEXT,
    TIME,
    VALUE,
    WHOLE,
    Body,
    json_of,
    listed,
    named,
    whole,
)

NAMED = COMMON | {
    "Model": whole(name=TEXT, version=WHOLE, classes=listed(VALUE), expires=TIME),
}
ROWS = Body({JSON: named("Rows"), ARROW: BINARY})
ASKED = Body({JSON: named("Asked"), ARROW: BINARY})
MODEL = json_of(named("Model"))
