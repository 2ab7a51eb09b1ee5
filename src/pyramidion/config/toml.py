"""TOML in and out: the standard library reads, a small emitter writes.

The emitter knows what schemas need and no more: text, numbers, true and false,
arrays, inline tables, ``[table]`` and ``[[table]]``.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyramidion.errors import SchemaError

WIDTH = 100
"""Arrays that would make a longer line are written with one item per line."""


def read(source: object, what: str) -> tuple[dict[str, object], str]:
    """Read TOML from a path or from the text itself; also say how errors should name it.

    Text holds a line break, or an ``=`` without ending in ``.toml``; other
    strings are paths.

    >>> read('epsilon = 1.0', "settings")
    ({'epsilon': 1.0}, 'the settings text')
    """
    if isinstance(source, str) and _is_text(source):
        text, where = source, f"the {what} text"
    elif isinstance(source, str | os.PathLike):
        text, where = _contents(Path(source), what), str(Path(source))
    else:
        raise SchemaError(
            f"the {what} must be given as a path or as TOML text, not {type(source).__name__}"
        )
    try:
        return tomllib.loads(text), where
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{where} is not valid TOML: {error}; correct that place") from error


def _is_text(source: str) -> bool:
    return not source or "\n" in source or ("=" in source and not source.endswith(".toml"))


def _contents(path: Path, what: str) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError as error:
        raise SchemaError(f"there is no file {path}; give the path of a {what} file") from error
    except IsADirectoryError as error:
        raise SchemaError(f"{path} is a directory; give the path of a {what} file") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except (OSError, ValueError) as error:
        raise SchemaError(f"{path} cannot be read; check its name and permissions") from error


def written(data: Mapping[str, object]) -> str:
    """Write a dict as a TOML document: plain entries first, then the tables.

    >>> print(written({"label": {"name": "late", "classes": [0, 1]}, "time": "t"}))
    time = "t"
    <BLANKLINE>
    [label]
    name = "late"
    classes = [0, 1]
    <BLANKLINE>
    """
    plain = {key: value for key, value in data.items() if not _is_table(value)}
    parts = [_entries(plain)] if plain else []
    for key, value in data.items():
        if isinstance(value, Mapping):
            parts.append(f"[{key}]\n{_entries(value)}")
        elif isinstance(value, list) and _is_table(value):
            parts.extend(f"[[{key}]]\n{_entries(table)}" for table in value)
    return "\n".join(parts)


def _is_table(value: object) -> bool:
    tables = value if isinstance(value, list) and value else [value]
    return all(isinstance(table, Mapping) for table in tables)


def _entries(table: Mapping[str, object]) -> str:
    return "".join(entry(key, value) + "\n" for key, value in table.items())


def entry(key: str, value: object) -> str:
    """Write ``key = value``, a long array over several lines."""
    line = f"{key} = {inline(value)}"
    if len(line) <= WIDTH or not isinstance(value, list):
        return line
    return f"{key} = [\n" + "".join(f"    {inline(item)},\n" for item in value) + "]"


def inline(value: object) -> str:
    """Write one value.

    JSON's escapes are all TOML's too; only DEL, which JSON leaves bare, is added.

    >>> inline(["a\\"b", True, 1e-9, {"hex": "00ff"}])
    '["a\\\\"b", true, 1e-09, { hex = "00ff" }]'
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    raise SchemaError(f"TOML cannot hold a {type(value).__name__}; write text or a number instead")
