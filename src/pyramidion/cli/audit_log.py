"""``audit-log``: what was done with a store; read without its lock or its keys."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.cli.options import Commands, Parser, add_json, folder
from pyramidion.cli.output import date, several, table
from pyramidion.errors import FormatError, SchemaError

if TYPE_CHECKING:
    from pyramidion.storage.audit_log import AuditLog, Entry, Verification

UNSOUND = 1
WIDE = 100  # letters of what happened that a table shows


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    log = commands.add_parser(
        "audit-log",
        help="show, verify or export what was done with a store",
        description="The audit log of a store: signed entries, each bound to the one before. "
        "Looking takes neither the store's lock nor its keys, and disturbs nobody who uses it.",
    )
    verbs = log.add_subparsers(title="commands", metavar="COMMAND", required=True)
    showing = verbs.add_parser("show", help="list the entries", description="List the entries.")
    _add_data(showing)
    _add_since(showing)
    add_json(showing)
    showing.set_defaults(run=show)
    _add_verifying(verbs)
    exporting = verbs.add_parser(
        "export",
        help="write the entries as JSON lines",
        description="Write the entries as JSON lines, for `audit-log verify FILE` to check "
        "anywhere.",
    )
    _add_data(exporting)
    _add_since(exporting)
    exporting.add_argument(
        "--output", metavar="FILE", type=Path, help="write here, to a new file (default: stdout)"
    )
    add_json(exporting)
    exporting.set_defaults(run=export)


def _add_verifying(verbs: Commands[Parser]) -> None:
    verifying = verbs.add_parser(
        "verify",
        help="say whether any entry was edited, removed or moved",
        description="Check every entry of a store's log, or of an export, and name those that were "
        f"edited, removed or moved. The exit code is {UNSOUND} if there are any.",
    )
    verifying.add_argument(
        "file", metavar="FILE.jsonl", type=Path, nargs="?", help="an export, in place of a store"
    )
    _add_data(verifying, required=False)
    verifying.add_argument(
        "--head",
        metavar="HASH",
        help="the last entry's hash, as noted elsewhere: it must be in the log",
    )
    verifying.add_argument(
        "--first", metavar="HASH", help="the hash of entry 0, as noted elsewhere: whose log this is"
    )
    add_json(verifying)
    verifying.set_defaults(run=verify)


def _add_data(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "--data", metavar="DIR", type=folder, required=required, help="the directory of the store"
    )


def _add_since(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", metavar="N", type=int, default=0, help="from this entry on (default: all)"
    )


@contextmanager
def _log(data: Path) -> Iterator[AuditLog]:
    from pyramidion.storage.audit_log import AUDIT_LOG, AuditLog

    with closing(AuditLog.read(data / AUDIT_LOG)) as log:
        yield log


def show(arguments: argparse.Namespace) -> None:
    """List the entries."""
    with _log(arguments.data) as log:
        if arguments.json:
            sys.stdout.writelines(log.export(arguments.since))
            return
        rows = [[str(e.number), _when(e), e.kind, _told(e)] for e in log.entries(arguments.since)]
        print(table(["entry", "when", "what", "facts"], rows))


def _when(entry: Entry) -> str:
    return date(entry.at) if entry.at else "-"


def _told(entry: Entry) -> str:
    """The facts in one line, without letters that a terminal would obey."""
    told = " ".join(
        f"{name}={json.dumps(value)}" for name, value in entry.facts.items() if value is not None
    )
    return told if len(told) <= WIDE else f"{told[:WIDE]}..."


def export(arguments: argparse.Namespace) -> None:
    """Write the entries as JSON lines."""
    with _log(arguments.data) as log:
        if arguments.output is None:
            sys.stdout.writelines(log.export(arguments.since))
            return
        try:
            with arguments.output.open("x", encoding="utf-8", newline="\n") as sink:
                count = sum(1 for line in log.export(arguments.since) if sink.write(line))
        except FileExistsError:
            raise SchemaError(
                f"{arguments.output} exists already; choose another name, or remove it"
            ) from None
    if arguments.json:
        print(json.dumps({"output": str(arguments.output), "entries": count}))
    else:
        print(f"wrote {arguments.output}: {_entries(count)}")


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"


def verify(arguments: argparse.Namespace) -> int:
    """Say what is wrong with which entry; 1 where anything is."""
    if (arguments.file is None) == (arguments.data is None):
        raise SchemaError("audit-log verify checks a store or an export; give --data or a file")
    try:
        found = _verified(arguments)
    except FormatError as damage:
        print(json.dumps({"sound": False, "problems": [str(damage)]}) if arguments.json else damage)
        return UNSOUND
    if arguments.json:
        told = {"sound": found.sound, "entries": found.entries, "first": found.first}
        print(json.dumps(told | {"head": found.head, "problems": found.problems}))
    else:
        print("\n".join([*found.problems, _verdict(found)]))
    return 0 if found.sound else UNSOUND


def _verified(arguments: argparse.Namespace) -> Verification:
    from pyramidion.storage.audit_log import verify_lines
    from pyramidion.storage.catalogue import facts
    from pyramidion.storage.home import CATALOGUE

    noted = {"head": arguments.head, "first": arguments.first}
    if arguments.file is not None:
        with arguments.file.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            return verify_lines(lines, **noted)
    catalogue = arguments.data / CATALOGUE
    copy = catalogue.exists() and facts(catalogue).get("copy") == "backup"
    with _log(arguments.data) as log:
        return log.verify(**noted, copy=copy)


def _verdict(found: Verification) -> str:
    if not found.sound:
        count = several(len(found.problems), "problem")
        return f"not sound: {count} in {_entries(found.entries)}"
    return f"sound: {_entries(found.entries)}\nfirst  {found.first}\nhead   {found.head}"
