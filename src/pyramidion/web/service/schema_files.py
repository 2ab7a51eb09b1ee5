"""Schema files as callers send them: TOML, or JSON with the text of one and its settings."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from pyramidion.errors import FormatError
from pyramidion.web.bodies import TOML
from pyramidion.web.schemas import SchemaFile, struct_from

SCHEMA_BYTES = 1 << 20
"""Of a schema file. Reading one takes long where it is large, or keys have many parts."""
PARTS = 4
"""Of a key; schemas need two. TOML's reader takes the square of them in time for every key."""
_PART = rb"""(?:[\w-]++|"(?:[^"\\\n]|\\[^\n])*+"?+|'[^'\n]*+'?+)"""
_SHALLOW = re.compile(
    rb"""
    (?:
        \#[^\n]*+                                       # a comment
      | \"{3}(?:[^"\\]|\\.|"(?!""))*+(?:\"{3})?+        # text of several lines
      | '{3}(?:[^']|'(?!''))*+(?:'{3})?+
      | (?!(?:%b[ \t]*+\.[ \t]*+){%d})%b               # a part of a key, or a value
      | [^\w"'\#-]++                                   # all that lies between
    )*+
    """
    % (_PART, PARTS, _PART),
    re.ASCII | re.DOTALL | re.VERBOSE,
)
"""TOML without a key of more than so many parts.

Each alternative begins with other bytes and takes all that it looks at, or a fixed share of it, so
that the time is linear in the text, also where quotes are left open."""
_PLACE = re.compile(r"\(at (line \d+, column \d+|end of document)\)$")
"""Where TOML's reader stopped; what it says besides may quote the text."""


def schema_file(body: bytes, kind: str) -> dict[str, Any]:
    """The contents of a schema file; ``settings`` in JSON replace its ``[settings]`` table."""
    if kind == TOML:
        return _toml(body)
    file = struct_from(body, kind, SchemaFile)
    found = _toml(file.schema.encode(errors="replace"))
    if file.settings is not None:
        found["settings"] = file.settings
    return found


def _toml(text: bytes) -> dict[str, Any]:
    """What TOML says; never a path, which would read files of this machine."""
    if not _SHALLOW.fullmatch(text):
        raise FormatError(
            f"the schema has a key of more than {PARTS} parts; write keys of one or two"
        )
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as problem:
        place = _PLACE.search(str(problem))
        where = f" at {place[1]}" if place else ""
    raise FormatError(f"the schema is not valid TOML{where}; correct it, or try `schema check`")
