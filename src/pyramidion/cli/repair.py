"""``reseed``, ``verify`` and ``rebuild``: after a break-in or damage."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pyramidion.cli.options import Commands, Parser, add_store, opened
from pyramidion.cli.output import several, table
from pyramidion.errors import FormatError

if TYPE_CHECKING:
    from pyramidion.store.pyramid import Pyramid
    from pyramidion.store.repair import Damage
    from pyramidion.store.reseed import Reseed


def add(commands: Commands[Parser]) -> None:
    """Add the commands."""
    reseeding = commands.add_parser(
        "reseed",
        help="after a break-in: seal what is populating, go on with fresh noise",
        description="Seal the populating windows now, drop noise that was prepared, renew the "
        "store key, and open a window on fresh noise: what an intruder has seen is frozen. It "
        "costs the rows nothing. Backups made before end with it.",
    )
    _add_why(reseeding)
    add_store(reseeding)
    reseeding.set_defaults(run=reseed)

    verifying = commands.add_parser(
        "verify",
        help="read every file, and say which are damaged",
        description="Read every file and say which are damaged, gone or do not add up. Looking "
        "changes nothing, and ends with exit code 3 where something is found.",
    )
    verifying.add_argument(
        "--mend", action="store_true", help="make tables again that the others tell, free of charge"
    )
    add_store(verifying)
    verifying.set_defaults(run=verify)

    rebuilding = commands.add_parser(
        "rebuild",
        help="count a window again whose tables were tampered with, and charge it again",
        description="Count a sealed window again onto fresh noise, from its hot rows while all of "
        "them are hot, or from a file with exactly the rows that it took. It is paid from what "
        "the window kept back for it (the setting rebuild_share), and refused where that is spent.",
    )
    rebuilding.add_argument(
        "--window", metavar="N", type=int, required=True, help="the number of the window"
    )
    rebuilding.add_argument("--rows", metavar="FILE", help="a data file with the window's rows")
    rebuilding.add_argument(
        "--share",
        metavar="S",
        type=_share,
        default=Fraction(1),
        help="how much of what was kept back to spend, as 1/2 or 0.5 (default: all)",
    )
    _add_why(rebuilding)
    add_store(rebuilding)
    rebuilding.set_defaults(run=rebuild)


def _add_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--why", metavar="TEXT", required=True, help="the reason, for the deletion record"
    )


def _share(text: str) -> Fraction:
    """An exact share.

    >>> _share("0.1"), _share("1/3")
    (Fraction(1, 10), Fraction(1, 3))
    """
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r} is no share; write 1/2 or 0.5") from None


def reseed(arguments: argparse.Namespace) -> None:
    """Freeze what was seen."""
    with opened(arguments) as pyramid:
        done = pyramid.admin.reseed(why=arguments.why)
    print(json.dumps(asdict(done)) if arguments.json else _did(done))


def _did(done: Reseed) -> str:
    told = [
        f"{verb} {several(len(numbers), 'window')} ({', '.join(map(str, numbers))})"
        for verb, numbers in (("sealed", done.sealed), ("dropped unused", done.dropped))
        if numbers
    ]
    told.append(f"opened window {done.opened} on fresh noise")
    return "\n".join([*told, "the store key is new: make a backup, older ones do not open"])


def verify(arguments: argparse.Namespace) -> None:
    """Say what is damaged, and mend it where asked."""
    with opened(arguments, reading=not arguments.mend) as pyramid:
        mended = pyramid.admin.mend() if arguments.mend else []
        found = pyramid.admin.verify()
    if arguments.json:
        told = {"damaged": found, "mended": mended}
        print(json.dumps({name: [asdict(each) for each in some] for name, some in told.items()}))
    elif found or mended:
        head = ["file", "window", "state", "why"]
        told_of = [*_rows(mended, "mended"), *_rows(found, "damaged")]
        print(table(head, told_of))
    else:
        print("every file is as it should be")
    if found:
        raise FormatError(
            f"{several(len(found), 'file')} cannot be trusted; verify --mend, rebuild, or restore "
            f"a backup"
        )


def _rows(damages: list[Damage], state: str) -> list[list[str]]:
    return [
        [d.kind, "-" if d.window is None else str(d.window), state, d.why.partition(";")[0]]
        for d in damages
    ]


def rebuild(arguments: argparse.Namespace) -> None:
    """Count a window again."""
    with opened(arguments) as pyramid:
        rows = None if arguments.rows is None else _read(arguments.rows, pyramid)
        done = pyramid.admin.rebuild(
            arguments.window, rows, why=arguments.why, share=arguments.share
        )
    if arguments.json:
        paid = {"charged": float(done.charged), "charged_exact": str(done.charged)}
        print(json.dumps({"window": done.window, "rows": done.rows, "unit": done.unit} | paid))
    else:
        cost = "nothing, as there is no privacy" if done.unit == "none" else f"{done.unit} "
        cost += "" if done.unit == "none" else f"{float(done.charged):.6g}"
        print(f"rebuilt window {done.window} from {several(done.rows, 'row')}; it paid {cost}")


def _read(path: str, pyramid: Pyramid) -> Any:
    """All rows of a file: a window is counted again whole or not at all."""
    from pyramidion.rows.containers import joined
    from pyramidion.rows.files import DataFile
    from pyramidion.rows.observations import types_for

    types = types_for(pyramid.schema, pyramid.keyed_by)
    tables = list(DataFile(path).batches(pyramid.schema.columns, types=types))
    return joined(tables) if tables else []
