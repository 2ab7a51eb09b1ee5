"""``schema draft`` and ``schema check``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyramidion.cli.options import Commands, Parser, add_json
from pyramidion.cli.output import table
from pyramidion.errors import SchemaError


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    schema = commands.add_parser("schema", help="draft a schema for a file, or check one")
    verbs = schema.add_subparsers(title="commands", metavar="COMMAND", required=True)

    drafting = verbs.add_parser(
        "draft",
        help="propose a schema from column names and types",
        description="Propose a schema for a CSV, TSV, Parquet, Arrow, Feather or NDJSON file "
        "from its column names and types; no value is used.",
    )
    drafting.add_argument("file", metavar="FILE", type=Path, help="the data file")
    drafting.add_argument("--output", metavar="FILE", type=Path, help="write here, to a new file")
    add_json(drafting)
    drafting.set_defaults(run=draft)

    checking = verbs.add_parser(
        "check",
        help="check a schema file and list its tables",
        description="Check a schema file, and its [settings] table if it has one, and list the "
        "count tables it gives.",
    )
    checking.add_argument("file", metavar="FILE.toml", type=Path, help="the schema file")
    add_json(checking)
    checking.set_defaults(run=check)


def draft(arguments: argparse.Namespace) -> None:
    """Propose a schema."""
    from pyramidion.config.schema import Schema
    from pyramidion.rows.draft import draft as drafted

    text = drafted(arguments.file)
    if arguments.output is not None:
        _write_new(arguments.output, text)
    if arguments.json:
        print(json.dumps({"schema": Schema.from_toml(text).to_dict(), "toml": text}))
    elif arguments.output is None:
        print(text, end="")
    else:
        changes = text.count("# CHANGE:")
        print(f"wrote {arguments.output} with {changes} line(s) marked CHANGE to go through")


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise SchemaError(f"{path} exists already; choose another --output") from error
    except OSError as error:
        raise SchemaError(
            f"cannot write {path} ({error.strerror}); choose another --output"
        ) from error


def check(arguments: argparse.Namespace) -> None:
    """Check a schema and list its tables."""
    from pyramidion.config.schema import Schema

    schema = Schema.from_toml(arguments.file)
    schema.refuse_alike()
    limit = _dense_limit(arguments.file)
    tables = [
        {"table": name, "kind": _kind(schema.codes(parts), len(parts), limit), "rows": rows}
        for name, parts in zip(schema.table_names, schema.tables, strict=True)
        for rows in [schema.codes(parts)]
    ]
    if arguments.json:
        print(json.dumps({"schema": schema.to_dict(), "tables": tables}))
        return
    labels = ", ".join(f"{label.name} ({label.cardinality})" for label in schema.labels)
    print(f"{arguments.file} is a valid schema: {len(tables)} tables, label {labels}\n")
    rows = [
        [t["table"], t["kind"], "open" if t["rows"] is None else str(t["rows"])] for t in tables
    ]
    print(table(["table", "kind", "values"], rows))
    if left := to_change(arguments.file):
        print(f"\n{left} line(s) are still marked CHANGE: go through them")


def to_change(path: Path) -> int:
    """How many lines of a draft nobody has gone through yet."""
    return path.read_text("utf-8").count("# CHANGE:")


def _dense_limit(path: Path) -> int:
    """The file's own ``dense_limit``; its settings are checked on the way, if it has any."""
    from pyramidion.config import toml
    from pyramidion.config.settings import Settings

    has_settings = "settings" in toml.read(path, "schema")[0]
    settings = Settings.from_toml(path) if has_settings else Settings(epsilon=1.0)
    return settings.dense_limit


def _kind(rows: int | None, parts: int, limit: int) -> str:
    """A single finite feature is dense whatever its size, a group of such up to the limit."""
    return "dense" if rows is not None and (parts == 1 or rows <= limit) else "sketch"
