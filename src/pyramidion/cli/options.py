"""What the commands share: the store, its keys, and the clock, which only they read."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pyramidion.cli.progress import warn
from pyramidion.cli.text import past_its_time
from pyramidion.config.durations import since_epoch
from pyramidion.errors import SchemaError

if TYPE_CHECKING:
    from pyramidion.store.clocks import Clock
    from pyramidion.store.pyramid import Pyramid
    from pyramidion.store.schedule import Due

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
