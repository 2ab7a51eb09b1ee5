"""``audit``: what leaks, measured with canaries on temporary stores, beside their ledger."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyramidion.cli.options import Commands, Parser, add_json, add_quiet, ours_to_interrupt
from pyramidion.cli.output import bar
from pyramidion.errors import SchemaError

if TYPE_CHECKING:
    from pyramidion.config.settings import Settings

ALARM = 1
CANARIES, ROUNDS = 20_000, 5


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    auditing = commands.add_parser(
        "audit",
        help="measure what leaks, on temporary stores, against what the ledger says",
        description="Make temporary stores, put rows of its own in them or leave them out by fair "
        "coins, and guess which from the tables that are released: a lower bound on what really "
        "leaks. Then look at the order of things, noise, signs and keys. Nobody's data is touched. "
        f"The exit code is {ALARM} if more leaks than the ledger says.",
    )
    auditing.add_argument(
        "schema",
        metavar="SCHEMA.toml",
        type=Path,
        nargs="?",
        help="have tables like this schema's, and its [settings] (default: eight tables)",
    )
    auditing.add_argument(
        "--settings", metavar="FILE.toml", type=Path, help="the file with the [settings] table"
    )
    auditing.add_argument(
        "--epsilon", metavar="E", type=float, help="the budget, in place of the file's (or 1)"
    )
    auditing.add_argument(
        "--delta", metavar="D", type=float, help="δ in place of the file's; 0: Laplace noise"
    )
    auditing.add_argument(
        "--k", metavar="K", type=int, help="observations that are hidden together"
    )
    auditing.add_argument(
        "--canaries",
        metavar="N",
        type=int,
        default=CANARIES,
        help="rows of each round that are put in or left out (default: %(default)s)",
    )
    auditing.add_argument(
        "--rounds",
        metavar="N",
        type=int,
        default=ROUNDS,
        help="stores to make; more canaries, a sharper bound (default: %(default)s)",
    )
    add_quiet(auditing)
    add_json(auditing)
    auditing.set_defaults(run=audit)


def audit(arguments: argparse.Namespace) -> int:
    """Audit, print what was found; 1 where the alarm goes off."""
    from pyramidion.config.schema import Schema
    from pyramidion.store.audit import report

    ours_to_interrupt()
    like = None if arguments.schema is None else Schema.from_toml(arguments.schema)
    settings, canaries, rounds = _settings(arguments), arguments.canaries, arguments.rounds
    with bar(arguments, "canaries", report.canaries_of(canaries, rounds)) as progress:
        found = report.audit(
            settings, like=like, canaries=canaries, rounds=rounds, progress=progress.update
        )
    print(json.dumps(found.to_dict(), ensure_ascii=False) if arguments.json else found)
    return ALARM if found.alarm else 0


def _settings(arguments: argparse.Namespace) -> Settings:
    """Those of the file, with what was given in their place."""
    from pyramidion.config import toml
    from pyramidion.config.settings import Settings

    file, where = arguments.settings or arguments.schema, "the command line"
    told: Any = {"epsilon": 1.0}
    if file is not None:
        data, where = toml.read(file, "settings")
        told = data.get("settings") or told
    if not isinstance(told, Mapping):
        raise SchemaError(f"{where} has no [settings] table; write one, or give --epsilon")
    given = {name: getattr(arguments, name) for name in ("epsilon", "delta", "k")}
    chosen = {name: value for name, value in given.items() if value is not None}
    return Settings.from_dict({**told, **chosen})
