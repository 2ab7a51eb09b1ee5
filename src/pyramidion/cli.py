"""The command line: parse, call, print.

A person's mistake gets one sentence on stderr and exit code 2, never a
traceback. Everything heavy is imported by the command that needs it, so
``pyramidion --help`` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pyramidion import __version__
from pyramidion.errors import PyramidionError, SchemaError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; 2 is a mistake, 130 an interrupt."""
    try:
        try:
            arguments = _parser().parse_args(argv)
            arguments.run(arguments)
        finally:
            sys.stdout.flush()
    except PyramidionError as error:
        return _fail(str(error))
    except UnicodeEncodeError:
        return _fail("this terminal cannot show some letters; set PYTHONIOENCODING=utf-8")
    except BrokenPipeError:
        # Whoever read us has left, as `head` does: keep the last flush at exit quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}; check the path and its permissions")
    except KeyboardInterrupt:
        return 130
    return 0


def _fail(sentence: str) -> int:
    print(f"pyramidion: {' '.join(sentence.split())}", file=sys.stderr)
    return 2


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence instead of printing the usage first."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"pyramidion: {message}; see `{self.prog} --help`\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pyramidion",
        description="A data store for machine learning that keeps a small hot window and "
        "remembers the past as differentially private count tables.",
    )
    parser.add_argument("--version", action="version", version=f"pyramidion {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_schema(commands)
    return parser


def _add_schema(commands: argparse._SubParsersAction[_Parser]) -> None:
    schema = commands.add_parser("schema", help="draft a schema for a file, or check one")
    verbs = schema.add_subparsers(title="commands", metavar="COMMAND", required=True)

    draft = verbs.add_parser(
        "draft",
        help="propose a schema from column names and types",
        description="Propose a schema for a CSV, TSV, Parquet, Arrow, Feather or NDJSON file "
        "from its column names and types; no value is used.",
    )
    draft.add_argument("file", metavar="FILE", type=Path, help="the data file")
    draft.add_argument("--output", metavar="FILE", type=Path, help="write here, to a new file")
    draft.add_argument("--json", action="store_true", help="print machine-readable output")
    draft.set_defaults(run=_schema_draft)

    check = verbs.add_parser(
        "check",
        help="check a schema file and list its tables",
        description="Check a schema file, and its [settings] table if it has one, and list the "
        "count tables it gives.",
    )
    check.add_argument("file", metavar="FILE.toml", type=Path, help="the schema file")
    check.add_argument("--json", action="store_true", help="print machine-readable output")
    check.set_defaults(run=_schema_check)


def _schema_draft(arguments: argparse.Namespace) -> None:
    from pyramidion.draft import draft
    from pyramidion.schema import Schema

    text = draft(arguments.file)
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


def _schema_check(arguments: argparse.Namespace) -> None:
    from pyramidion.schema import Schema

    schema = Schema.from_toml(arguments.file)
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
    width = max(len("table"), *(len(name) for name in schema.table_names))
    print(f"{'table':{width}}  kind    values")
    for table in tables:
        values = "open" if table["rows"] is None else table["rows"]
        print(f"{table['table']:{width}}  {table['kind']:6}  {values}")
    if left := arguments.file.read_text("utf-8").count("# CHANGE:"):
        print(f"\n{left} line(s) are still marked CHANGE: go through them")


def _dense_limit(path: Path) -> int:
    """The file's own ``dense_limit``; its settings are checked on the way, if it has any."""
    from pyramidion import toml
    from pyramidion.settings import Settings

    has_settings = "settings" in toml.read(path, "schema")[0]
    settings = Settings.from_toml(path) if has_settings else Settings(epsilon=1.0)
    return settings.dense_limit


def _kind(rows: int | None, parts: int, limit: int) -> str:
    """A single finite feature is dense whatever its size, a group of such up to the limit."""
    return "dense" if rows is not None and (parts == 1 or rows <= limit) else "sketch"
