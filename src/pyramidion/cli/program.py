"""Which commands there are, and how a run ends."""

from __future__ import annotations

import argparse
import atexit
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from pyramidion import __version__
from pyramidion.cli import (
    audit,
    audit_log,
    clock,
    demo,
    edge,
    erase_person,
    exposure,
    live,
    models,
    observe,
    plan,
    predict,
    repair,
    schema,
    serve,
    shards,
    share,
    status,
    store,
    vault,
)
from pyramidion.cli.options import Parser
from pyramidion.config.process_memory import protect
from pyramidion.errors import FormatError, PrivacyError, PyramidionError, StorageError

MISTAKE, UNUSABLE, UNPAID, INTERRUPTED, UNREAD = 2, 3, 4, 130, 141
"""Exit codes; docs/command-line.md says what each means."""


def run(parser: argparse.ArgumentParser | None = None) -> NoReturn:
    """Run one command as a program, and end the process.

    The interpreter is not taken down first. Arrow's threads may still let go of bytes that
    Python owns, and a thread that comes for the interpreter while that goes away takes the
    whole process with it: exit code 134 for a command that had worked.
    """
    protect()  # every command has keys or rows in its memory
    code = main(parser=parser)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(argv: Sequence[str] | None = None, parser: argparse.ArgumentParser | None = None) -> int:
    """Run one command and return its exit code.

    Another ``parser`` than that of ``pyramidion`` must set ``run`` for what it parses.
    """
    try:
        try:
            arguments = (parser or _parser()).parse_args(argv)
            code: int | None = arguments.run(arguments)
        finally:
            sys.stdout.flush()
    except PyramidionError as error:
        return _fail(str(error), _code(error))
    except UnicodeEncodeError:
        return _fail("this terminal cannot show some letters; set PYTHONIOENCODING=utf-8")
    except BrokenPipeError:
        # Whoever read us has left, as `head` does: keep the last flush at exit quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}; check the path and its permissions")
    except KeyboardInterrupt as stop:
        return _fail(str(stop), INTERRUPTED) if str(stop) else INTERRUPTED
    return code or 0


def _code(error: PyramidionError) -> int:
    if isinstance(error, PrivacyError):
        return UNPAID
    return UNUSABLE if isinstance(error, StorageError | FormatError) else MISTAKE


def _fail(sentence: str, code: int = MISTAKE) -> int:
    print(f"pyramidion: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="pyramidion",
        description="A data store for machine learning that keeps a small hot window and "
        "remembers the past as differentially private count tables.",
    )
    parser.add_argument("--version", action="version", version=f"pyramidion {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    schema.add(commands)
    plan.add(commands)
    store.add_create(commands)
    shards.add(commands)
    observe.add(commands)
    store.add_advance(commands)
    clock.add(commands)
    status.add(commands)
    store.add_ledger(commands)
    predict.add(commands)
    models.add(commands)
    edge.add(commands)
    store.add_tables(commands)
    erase_person.add(commands)
    store.add_copies(commands)
    share.add(commands)
    vault.add(commands)
    exposure.add(commands)
    repair.add(commands)
    serve.add(commands)
    audit_log.add(commands)
    audit.add(commands)
    demo.add(commands)
    live.add(commands)
    return parser
