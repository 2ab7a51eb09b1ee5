"""Options that several commands share: the store, keys, the clock, limits, workloads.

Only commands read the clock. Passphrases are asked for, or read from a file or the environment;
never from the command line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyramidion.cli.output import past_its_time, warn
from pyramidion.config.checks import Value, loaded
from pyramidion.config.durations import since_epoch
from pyramidion.errors import KeyHolderError, SchemaError

if TYPE_CHECKING:
    from pyramidion.config.label import Label
    from pyramidion.config.schema import Schema
    from pyramidion.store.clocks import Clock
    from pyramidion.store.pyramid import Pyramid
    from pyramidion.store.schedule import Due
    from pyramidion.vault.key_pairs import PrivateKey
    from pyramidion.web.limits import Limits


FORMATS = ("csv", "tsv", "parquet", "ndjson", "arrow")
KEYS = "PYRAMIDION_KEYS"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence instead of printing the usage first."""

    def error(self, message: str) -> NoReturn:
        """End with that sentence."""
        self.exit(2, f"pyramidion: {message}; see `{self.prog} --help`\n")


Commands = argparse._SubParsersAction  # argparse has no public name for it


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print machine-readable output")


def add_store(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add what every command on a store takes."""
    parser.add_argument(
        "--data", metavar="DIR", type=folder, required=required, help="the directory of the store"
    )
    parser.add_argument(
        "--keys",
        metavar="URL",
        help="who holds the store key: file:PATH outside the store, env:NAME or a plug-in "
        f"(default: the environment variable {KEYS}, or else "
        "file:~/.config/pyramidion/NAME.key, where NAME is that of the store's directory)",
    )
    parser.add_argument(
        "--now",
        metavar="TIME",
        type=moment,
        help="pretend that it is this time: ISO 8601 or seconds since 1970 "
        "(default: the system's clock; for a history that was imported, where its rows end)",
    )
    add_json(parser)


def add_rows(parser: argparse.ArgumentParser) -> None:
    """Add what every command that reads rows takes."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="the format of the rows (default: as the file's suffix says)",
    )
    add_quiet(parser)


def add_grant(parser: argparse.ArgumentParser | argparse._ArgumentGroup, what: str) -> None:
    """A grant for rows of the vault, the key that opens it, and the broker that has the rows."""
    parser.add_argument("--grant", metavar="FILE", type=Path, help=what)
    parser.add_argument(
        "--key", metavar="FILE", type=Path, help="the key that the request for the grant wrote"
    )
    parser.add_argument("--broker-at", metavar="ADDRESS", help="where the broker answers")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add ``--quiet``."""
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no remarks")


def add_skip_bad(parser: argparse.ArgumentParser) -> None:
    """Add ``--skip-bad``."""
    parser.add_argument(
        "--skip-bad",
        action="store_const",
        const="skip",
        default="refuse",
        dest="errors",
        help="leave out rows that cannot be counted, instead of refusing all that come with them",
    )


def moment(text: str) -> float:
    """A time as people write it, in seconds since 1970.

    >>> moment("1970-01-02"), moment("86400.5")
    (86400.0, 86400.5)
    """
    try:
        number: float | str = float(text)
    except ValueError:
        number = text
    try:
        return since_epoch(number, "the time") / 1_000_000
    except SchemaError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def folder(text: str) -> Path:
    """A directory as it was written, unless its name does not show that way, as that of ``.``.

    >>> folder("flights"), folder(".") == Path.cwd()
    (PosixPath('flights'), True)
    """
    path = Path(text)
    return path if path.name not in ("", "..") else Path(os.path.abspath(path))


def keys_of(arguments: argparse.Namespace) -> str:
    """The key holder: as said, as the environment says, or a file named after the store."""
    given: str | None = arguments.keys or os.environ.get(KEYS)
    if given:
        return given
    return f"file:~/.config/pyramidion/{arguments.data.name or 'store'}.key"


def clock_of(arguments: argparse.Namespace) -> Clock:
    """The time a store goes by: the one that is pretended, or the system's."""
    given: float | None = arguments.now
    return time.time if given is None else lambda: given


def opened(arguments: argparse.Namespace, *, train: bool = False, reading: bool = False) -> Pyramid:
    """Open the store, say what is past its time and do what is due. Models are trained when asked.

    Who is only ``reading`` leaves all as it is.
    """
    from pyramidion.store.pyramid import Pyramid

    ours_to_interrupt()
    pyramid = Pyramid.open(
        arguments.data,
        keys=keys_of(arguments),
        clock=clock_of(arguments),
        train=train,
        advance=not reading,
        announce=say_erased,
    )
    problem = "" if reading else pyramid.clock.problem
    if problem:
        warn(f"{problem} with `pyramidion clock`")
    return pyramid


def say_erased(due: Due, stream: str = "") -> None:
    """Say what is about to be erased."""
    where = f"stream {stream}: " if stream else ""
    warn(f"{where}{past_its_time(due)}, and is erased now")


def ours_to_interrupt() -> None:
    """Have Arrow leave Ctrl-C to us: it would break off a read, which then looks damaged."""
    import pyarrow as pa

    pa.enable_signal_handlers(False)


def url_of(text: str) -> str:
    """The URL of a table store: as given, or as an environment variable has it (env:NAME)."""
    name = text.removeprefix("env:")
    if name == text:
        return text
    found = os.environ.get(name, "")
    if not found:
        raise SchemaError(f"the environment has no {name}; set it to the URL of a table store")
    return found


# --- limits of a service or an edge --------------------------------------------------------------


MOST_LIMIT = 1_000_000


def add_limits(parser: argparse.ArgumentParser, megabytes: int) -> None:
    """Add the options; a body has so many megabytes where nobody says otherwise."""
    parser.add_argument(
        "--rate", metavar="N", type=limit, help="requests of a token each second (default: 5000)"
    )
    parser.add_argument(
        "--at-once", metavar="N", type=limit, help="requests answered at once (default: 256)"
    )
    parser.add_argument(
        "--body",
        metavar="MB",
        type=limit,
        help=f"the largest body in megabytes (default: {megabytes})",
    )
    parser.add_argument(
        "--open-metrics", action="store_true", help="let everybody read /metrics, not only admins"
    )


def limits_of(arguments: argparse.Namespace, usual: Limits) -> Limits:
    """The limits that were given, and the others as they are."""
    given: dict[str, Any] = {}
    if arguments.rate is not None:
        given |= {"per_second": float(arguments.rate), "burst": 2 * arguments.rate}
    if arguments.at_once is not None:
        given["at_once"] = arguments.at_once
    if arguments.body is not None:
        most = arguments.body << 20
        given |= {"body_bytes": most, "json_bytes": min(most, usual.json_bytes)}
        given["waiting_bytes"] = max(most, usual.waiting_bytes)
        given["held_bytes"] = max(2 * most, usual.held_bytes)
    return replace(usual, **given)


def limit(text: str) -> int:
    """A limit, as it is typed."""
    if not text.isdecimal() or not 0 < int(text) <= MOST_LIMIT:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST_LIMIT}")
    return int(text)


# --- passphrases ---------------------------------------------------------------------------------


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


def given_passphrase(arguments: argparse.Namespace) -> str | None:
    """The passphrase of a file or of the environment, if there is one."""
    if arguments.passphrase_file is not None:
        from pyramidion.config.secret_files import read_secret

        lines = read_secret(arguments.passphrase_file).decode(errors="replace").splitlines()
        return lines[0] if lines else ""
    return os.environ.get(PASSPHRASE)


def new_passphrase(arguments: argparse.Namespace) -> str:
    """A passphrase for a new key: long enough, and typed twice where it is asked for."""
    found = given_passphrase(arguments)
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
    from pyramidion.vault.key_pairs import PrivateKey

    text = read_secret(path)
    if bare:
        try:
            return PrivateKey.from_text(text, "")
        except KeyHolderError:
            pass
    found = given_passphrase(arguments)
    return PrivateKey.from_text(text, _asked(f"passphrase of {path}: ") if found is None else found)


def _asked(question: str) -> str:
    if not sys.stdin.isatty():
        raise SchemaError(
            f"there is no terminal to ask for a passphrase; give --passphrase-file, or set "
            f"{PASSPHRASE}"
        )
    return getpass(question, stream=sys.stderr)


# --- what is learned from what -------------------------------------------------------------------


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Add which label is learned, and from which tables."""
    parser.add_argument(
        "--label", metavar="NAME", help="the label to learn, where the schema has several"
    )
    parser.add_argument(
        "--only",
        metavar="TABLE",
        nargs="+",
        action="extend",
        help="learn from these features and groups alone; a group is written as 'a,b'",
    )
    parser.add_argument(
        "--without",
        metavar="TABLE",
        nargs="+",
        action="extend",
        default=[],
        help="leave out these features, with every group they are in, and these groups",
    )
    parser.add_argument(
        "--merge",
        metavar="JSON",
        type=json_object,
        help='learn coarser classes: {"new": ["old", "older"], ...}',
    )


def json_object(text: str) -> dict[str, Any]:
    """What is written as a JSON object.

    >>> json_object('{"C": 0.1}')
    {'C': 0.1}
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('not a JSON object; write one such as {"name": 1}')
    return found


def workload_of(arguments: argparse.Namespace, schema: Schema) -> dict[str, Any]:
    """The keywords of `training_set` and `register`."""
    return {
        "label": arguments.label,
        "only": arguments.only,
        "without": arguments.without,
        "merge": _merge(arguments, schema),
    }


def _merge(arguments: argparse.Namespace, schema: Schema) -> dict[Value, Any] | None:
    """Classes to merge. A new class is a number where the old ones are and it reads like one."""
    if arguments.merge is None:
        return None
    names = list(arguments.merge)
    by_name = {label.name: label for label in schema.labels}
    label = by_name.get(arguments.label or schema.labels[0].name)
    told = _like(label, names) if label is not None else names
    olds = (loaded("--merge", olds) for olds in arguments.merge.values())
    return dict(zip(told, olds, strict=True))


def _like(label: Label, names: list[str]) -> list[Value]:
    """Names as values of the type that a label's classes have.

    >>> from pyramidion.config.label import Label
    >>> _like(Label("stars", classes=[1, 2, 3]), ["0", "1"])
    [0, 1]
    >>> _like(Label("stars", classes=[1, 2, 3]), ["low", "1"])
    ['low', '1']
    """
    kinds = {type(value) for value in label.classes or ("",)}
    try:
        if kinds == {int}:
            return [int(name) for name in names]
        if kinds <= {int, float}:
            return [float(name) for name in names]
    except ValueError:
        pass
    return list(names)
