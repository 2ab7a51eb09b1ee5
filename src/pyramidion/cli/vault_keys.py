"""``vault``: a custodian's keys, and files that are written once."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyramidion.cli.options import Commands, Parser, add_json
from pyramidion.cli.passphrases import add_passphrase, new_passphrase
from pyramidion.errors import SchemaError

PROMPT = "a prompt"


def add(verbs: Commands[Parser]) -> None:
    """Add the command."""
    making = verbs.add_parser(
        "keygen",
        help="make a custodian's pair of keys",
        description="Make a custodian's pair of keys: NAME.key, under a passphrase, for the "
        "custodian alone, and NAME.pub for the store. Run it on a machine that has no data.",
    )
    making.add_argument(
        "--output", metavar="NAME", type=Path, required=True, help="write NAME.key and NAME.pub"
    )
    add_passphrase(making, PROMPT)
    add_json(making)
    making.set_defaults(run=keygen)


def keygen(arguments: argparse.Namespace) -> None:
    """Make a pair of keys."""
    from pyramidion.vault.keys import PrivateKey

    name = arguments.output
    private, public = (name.with_name(f"{name.name}.{end}") for end in ("key", "pub"))
    _refuse_beside(private)
    refuse_there(private, public)
    passphrase = new_passphrase(arguments)
    pair = PrivateKey.new()
    written(private, pair.to_text(passphrase))
    written(public, pair.public.to_text(), mode=0o644)
    told = {"private": str(private), "public": str(public)}
    if arguments.json:
        print(json.dumps(told | {"fingerprint": pair.public.fingerprint}))
        return
    print(f"wrote {private}: keep it, and a copy of it, away from the data; without it, or without")
    print("its passphrase, nobody opens the vault")
    print(f"wrote {public}: give it to the store")
    print(f"fingerprint {pair.public.fingerprint}")


def _refuse_beside(path: Path) -> None:
    """The private half never lies beside the data."""
    from pyramidion.storage.home import CATALOGUE

    here = path.absolute().parent.resolve()
    for parent in (here, *here.parents):
        if (parent / CATALOGUE).exists():
            raise SchemaError(
                f"{path} would lie in the store at {parent}, which it must not share a fate with; "
                f"choose a place that has no data, best on another machine"
            )
    if here.is_dir() and any(each.with_suffix(".json").exists() for each in here.glob("*.parquet")):
        raise SchemaError(
            f"{path} would lie beside the files it opens; choose a place that has no data, best on "
            f"another machine"
        )


def refuse_there(*paths: Path) -> None:
    """Raise if one of these is there: nothing is written over."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise SchemaError(f"{path} exists already; choose another name")


def written(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a new file, for its owner alone unless told otherwise."""
    from pyramidion.storage.disk import create_durably

    create_durably(path, text.encode(), mode=mode)
