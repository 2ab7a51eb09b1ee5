"""``erase-person``: erase the hot rows of one person, and their rows in granted vault files."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.cli.options import (
    Commands,
    Parser,
    add_grant,
    add_passphrase,
    add_store,
    opened,
    unlocked,
)
from pyramidion.cli.output import several
from pyramidion.errors import ObservationError, SchemaError

if TYPE_CHECKING:
    from pyramidion.store.erase_person import PersonErasure
    from pyramidion.store.pyramid import Pyramid


VAULT = "a vault keeps what was sealed before; see `pyramidion vault request --erase`"


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "erase-person",
        help="erase the hot rows of one person, now",
        description="Erase the hot rows of one person, as the column of the schema's unit names "
        "them, and what models learned from these. What is counted stays, hidden by the noise, "
        "until its window retires. What is printed does not tell whether there were any rows.",
    )
    named = parser.add_mutually_exclusive_group(required=True)
    named.add_argument(
        "--person-from",
        metavar="FILE",
        help="a file with the person's name on one line, or - for standard input",
    )
    named.add_argument(
        "--person",
        metavar="NAME",
        help="the name itself; mind that the list of processes and the shell's history show it",
    )
    parser.add_argument(
        "--why",
        metavar="TEXT",
        required=True,
        help="the reason, for the deletion record, which stays: it must not say who",
    )
    add_grant(
        parser,
        "an answer to `vault request --erase`: erase the person from these files of the vault too",
    )
    add_passphrase(parser, "none, or a prompt")
    add_store(parser)
    parser.set_defaults(run=erase_person)


def erase_person(arguments: argparse.Namespace) -> None:
    """Erase somebody."""
    given = arguments.person_from
    person = arguments.person if given is None else _read(given)
    if (arguments.grant is None) != (arguments.key is None):
        raise SchemaError("a grant opens with the key of its request; give --grant and --key")
    with opened(arguments) as pyramid:
        done = pyramid.erase_person(person, why=arguments.why)
        files = None if arguments.grant is None else _from_vault(arguments, pyramid, person)
        sealed = pyramid.vault is not None
    if arguments.json:
        print(json.dumps(asdict(done) | ({} if files is None else {"files": files})))
    else:
        print(_did(done))
        if files is not None:
            print(f"rewritten: {several(files, 'file')} of the vault")
        elif sealed:
            print(VAULT)


def _from_vault(arguments: argparse.Namespace, pyramid: Pyramid, person: str) -> int:
    """How many files of the vault were sealed anew."""
    from pyramidion.cli.vault_rows import broker_of
    from pyramidion.storage.disk import read

    key, broker = unlocked(arguments.key, arguments, bare=True), broker_of(arguments)
    made = pyramid.admin.erase_from_vault(
        person, read(arguments.grant), key=key, broker=broker, why=arguments.why
    )
    return len(made)


def _read(place: str) -> str:
    """The one line of a file, without its end."""
    data = sys.stdin.buffer.read() if place == "-" else Path(place).read_bytes()
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        lines = []  # that error holds the name
    if len(lines) != 1 or not lines[0]:
        raise ObservationError(
            "a person is read from one line of UTF-8 text, and this is not one; write the name "
            "alone, and erase people one by one"
        )
    return lines[0]


def _did(done: PersonErasure) -> str:
    windows = several(len(done.windows), "populating window")
    return (
        f"no hot row of this person is left; {several(done.steps, 'hot step')} and the tables of "
        f"{windows} were written anew\n"
        "the store key is new: make a backup, older ones do not open"
    )
