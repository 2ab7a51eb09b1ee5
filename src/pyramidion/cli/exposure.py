"""``exposure``: what an intruder between two moments could read, as text, JSON and a page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.cli.options import Clock, Commands, Parser, add_store, moment, opened
from pyramidion.cli.text import table

if TYPE_CHECKING:
    from pyramidion.exposed import Exposure

COMPONENTS = ("store", "edge", "tables")
"""As `pyramidion.exposed` has them, which is not loaded to show the help."""


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    asking = commands.add_parser(
        "exposure",
        help="tell what an intruder between two moments could read",
        description="Tell what somebody who was in between two moments could read: raw rows, "
        "models, tables and at which ε and δ, and what had been forgotten before. Where the "
        "record is not exact, more is told, never less. Looking makes nothing due. Times are UTC.",
    )
    for option, what in (("from", "when it began"), ("to", "when it was over")):
        asking.add_argument(
            f"--{option}",
            dest=f"{option}_",
            metavar="TIME",
            type=moment,
            required=True,
            help=f"{what}: ISO 8601 or seconds since 1970",
        )
    asking.add_argument(
        "--component",
        choices=COMPONENTS,
        default=COMPONENTS[0],
        help="where the intruder was: on the store's machine, on an edge (complete tables and "
        "models), or where sealed and complete tables alone are (default: store)",
    )
    asking.add_argument("--html", metavar="FILE", type=Path, help="write the report as one page")
    add_store(asking)
    asking.set_defaults(run=exposure)


def exposure(arguments: argparse.Namespace) -> None:
    """Tell it; looking makes nothing due."""
    clock = Clock(arguments.now, held=True)
    with opened(arguments, clock) as pyramid:
        clock.release()
        found = pyramid.exposure(arguments.from_, arguments.to_, component=arguments.component)
    if arguments.html is not None:
        _write(arguments.html, found, arguments.data.name)
    if arguments.json:
        print(json.dumps(found.to_dict()))
    else:
        print("\n\n".join(_parts(found)))


def _parts(found: Exposure) -> Iterator[str]:
    from pyramidion.exposure_text import parts, sentences

    first, *others = sentences(found)
    yield first
    yield "\n".join(others)
    for part in parts(found):
        told = f"{part.name}\n{table(part.head, part.rows)}"
        yield f"{told}\n{part.more}" if part.more else told
    if found.columns and found.hot:
        yield f"Columns of these observations\n{', '.join(found.columns)}"


def _write(path: Path, found: Exposure, name: str) -> None:
    from pyramidion.exposure_page import page

    path.write_text(page(found, name), "utf-8")
