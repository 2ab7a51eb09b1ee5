"""A first schema for a file, from its columns' names and types alone.

Choosing a domain, bins or classes by looking at observations would put those
observations into the schema, which is public and never erased. So a draft
leaves such choices to a person, at lines marked CHANGE. CSV and NDJSON files
carry no types. Those of a draft are guessed from the first block, and a person has
to confirm them: what a schema declares must not follow from rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.config.schema import Schema
from pyramidion.config.toml import inline
from pyramidion.errors import ObservationError, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from pyramidion.rows.files import DataFile

TIMES = ("time", "timestamp", "ts", "datetime", "event_time", "date")
LABELS = ("label", "target", "y", "click", "clicked", "outcome", "class", "late", "rating", "stars")
RATINGS = ("rating", "stars")
UNITS = ("user", "person", "customer", "member", "account", "patient", "visitor")

HEADER = """\
# A draft for {file}, made from column names and types alone;
# no observation's value is in it (the first line of a CSV must be its header).
# Go through every line marked CHANGE, then run `pyramidion schema check` on it.
"""


GUESSED = """\
# CHANGE: check the type of every column: the file has none, they were guessed from its first rows.
"""


def draft(path: str | Path) -> str:
    """Return the text of a schema file for a data file; it parses as it stands."""
    from pyramidion.rows.files import DataFile

    try:
        return draft_of(DataFile(Path(path)), Path(path).name)
    except ObservationError as error:
        raise SchemaError(str(error)) from None


def draft_of(file: DataFile, called: str) -> str:
    """The same for a file that is open, or that never was one."""
    from pyramidion.rows.sources import BINARY

    kinds = _by_name(file, [(field.name, _kind(field.type)) for field in file.fields()])
    time, label = _time(kinds), _label(kinds)
    features = [name for name in kinds if name not in (time, label)]
    counted = [name for name in features if kinds[name] in _FEATURES]
    if not counted:
        raise SchemaError(
            f"{file.name} has no column left for a feature; give a file with more columns"
        )
    parts = [
        HEADER.format(file=inline(called)) + ("" if file.format in BINARY else GUESSED),
        "\n".join((_time_line(time, kinds), *_unit_lines(counted), *_group_lines(counted))),
        _label_table(label, kinds),
        *(_FEATURES[kinds[name]](name) for name in counted),
        *(_left_out(name) for name in features if name not in counted),
    ]
    text = "\n".join(part.rstrip("\n") + "\n" for part in parts)
    Schema.from_toml(text)
    return text


def _time(kinds: dict[str, str]) -> str | None:
    """The column most like an event time: its type says so, then its name."""
    likely = [name for name, kind in kinds.items() if kind == "time"]
    named = [name for name, kind in kinds.items() if kind in ("whole", "real", "text")]
    return _first_named(likely, TIMES) or next(iter(likely), None) or _first_named(named, TIMES)


def _label(kinds: dict[str, str]) -> str | None:
    """The column most like a label: true or false and named so, named so, true or false."""
    flags = [name for name, kind in kinds.items() if kind == "flag"]
    usable = [name for name, kind in kinds.items() if kind in _FEATURES]
    return _first_named(flags, LABELS) or _first_named(usable, LABELS) or next(iter(flags), None)


def _first_named(columns: Iterable[str], names: Iterable[str]) -> str | None:
    by_name = {column.strip().lower(): column for column in reversed(list(columns))}
    return next((by_name[name] for name in names if name in by_name), None)


def _time_line(time: str | None, kinds: dict[str, str]) -> str:
    if time is None:
        return '# time = "..."  # CHANGE: no column looks like the event time; name it, if any'
    remark = {
        "time": "",
        "text": "  # CHANGE: this is text; make it timestamps or seconds since the epoch",
    }.get(kinds[time], "  # CHANGE: check that these are seconds since the epoch")
    return f"time = {inline(time)}{remark}"


def _unit_lines(features: list[str]) -> Iterator[str]:
    for name in features:
        word = name.strip().lower().replace("-", "_").removesuffix("id").removesuffix("_")
        if word in UNITS:
            yield f"# unit = {inline(name)}  # CHANGE: uncomment to protect people, not single rows"


def _group_lines(features: list[str]) -> Iterator[str]:
    if len(features) > 1:
        yield f"# groups = [{inline(features[:2])}]  # CHANGE: features to count together, if any"


def _label_table(label: str | None, kinds: dict[str, str]) -> str:
    if label is not None:
        return f"[label]\nname = {inline(label)}\n{_classes(label, kinds[label])}"
    return (
        '[label]\nname = "CHANGE_ME"  # CHANGE: no column looks like a label; name it\n'
        "classes = [0, 1]  # CHANGE: all classes this label has"
    )


def _classes(label: str, kind: str) -> str:
    if kind == "flag":
        return "classes = [false, true]"
    if kind == "real" or label.strip().lower() in RATINGS:
        return "edges = [2.0, 3.0, 4.0]  # CHANGE: cut points, or classes = [...]"
    example = '["no", "yes"]' if kind == "text" else "[0, 1]"
    return f"classes = {example}  # CHANGE: all classes this label has"


def _categorical(name: str) -> str:
    return (
        f'[[features]]\nname = {inline(name)}\ntype = "categorical"'
        f"  # open; add domain = [...] if the values are few and public\n"
    )


def _flag(name: str) -> str:
    return f'[[features]]\nname = {inline(name)}\ntype = "categorical"\ndomain = [false, true]\n'


def _continuous(name: str) -> str:
    return (
        f'[[features]]\nname = {inline(name)}\ntype = "continuous"\nbins = 4\n'
        f"bounds = [0.0, 1.0]  # CHANGE: the range you expect, known without looking at the data\n"
    )


def _left_out(name: str) -> str:
    return f"# left out: {inline(name)} is a date, a duration or nested; derive a plain column\n"


_FEATURES: dict[str, Callable[[str], str]] = {
    "flag": _flag,
    "whole": _categorical,
    "real": _continuous,
    "text": _categorical,
}


def _by_name(file: DataFile, columns: list[tuple[str, str]]) -> dict[str, str]:
    """The kind of every column: flag, whole, real, text, time or other."""
    kinds: dict[str, str] = {}
    for name, kind in columns:
        if name in kinds:
            raise SchemaError(f"{file.name} has two columns called {name!r}; rename one of them")
        if name.strip():  # an unnamed column is the row number that pandas writes
            kinds[name] = kind
    return kinds


def _kind(kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _kind(kind.storage_type)
    return next((name for name, start in _KINDS if str(kind).startswith(start)), "other")


_KINDS = (
    ("flag", "bool"),
    ("whole", ("int", "uint")),
    ("real", ("halffloat", "float", "double", "decimal")),
    ("time", ("timestamp", "date")),
    ("text", ("string", "large_string", "binary", "large_binary", "fixed_size_binary", "null")),
)
"""How Arrow's names of types begin; string_view and binary_view are among them."""
