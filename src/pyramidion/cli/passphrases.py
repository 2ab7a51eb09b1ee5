"""Passphrases: asked for, or read from a file or the environment; never from the command line."""

from __future__ import annotations

import argparse
import os
import sys
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.errors import KeyHolderError, SchemaError

if TYPE_CHECKING:
    from pyramidion.vault.keys import PrivateKey

PASSPHRASE = "PYRAMIDION_PASSPHRASE"  # noqa: S105  # the variable's name
SHORTEST = 12  # letters


def add_passphrase(parser: argparse.ArgumentParser, default: str) -> None:
    """Add ``--passphrase-file``."""
    parser.add_argument(
        "--passphrase-file",
        metavar="FILE",
        type=Path,
        help=f"read the key's passphrase from the first line of a file (default: the environment "
        f"variable {PASSPHRASE}, or else {default})",
    )


def given(arguments: argparse.Namespace) -> str | None:
    """The passphrase of a file or of the environment, if there is one."""
    if arguments.passphrase_file is not None:
        from pyramidion.config.secret_files import read_secret

        lines = read_secret(arguments.passphrase_file).decode(errors="replace").splitlines()
        return lines[0] if lines else ""
    return os.environ.get(PASSPHRASE)


def new_passphrase(arguments: argparse.Namespace) -> str:
    """A passphrase for a new key: long enough, and typed twice where it is asked for."""
    found = given(arguments)
    if found is None:
        found = _asked("passphrase for the private key: ")
        if len(found) >= SHORTEST and _asked("the same again: ") != found:
            raise SchemaError("the two passphrases differ; try it again")
    if len(found) < SHORTEST:
        raise SchemaError(f"a passphrase needs {SHORTEST} letters; choose a longer one")
    return found


def unlocked(path: Path, arguments: argparse.Namespace, *, bare: bool = False) -> PrivateKey:
    """The private key in a file; ``bare``: perhaps one that was written without a passphrase."""
    from pyramidion.config.secret_files import read_secret
    from pyramidion.vault.keys import PrivateKey

    text = read_secret(path)
    if bare:
        try:
            return PrivateKey.from_text(text, "")
        except KeyHolderError:
            pass
    found = given(arguments)
    return PrivateKey.from_text(text, _asked(f"passphrase of {path}: ") if found is None else found)


def _asked(question: str) -> str:
    if not sys.stdin.isatty():
        raise SchemaError(
            f"there is no terminal to ask for a passphrase; give --passphrase-file, or set "
            f"{PASSPHRASE}"
        )
    return getpass(question, stream=sys.stderr)
