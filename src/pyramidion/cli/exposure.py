"""``exposure``: what an intruder between two moments could read, as text, JSON and a page."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.cli.options import (
    Commands,
    Parser,
    add_grant,
    add_passphrase,
    add_store,
    moment,
    opened,
    unlocked,
)
from pyramidion.cli.output import date, several, table, warn
from pyramidion.cli.vault_files import vault_of
from pyramidion.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from pyramidion.store.exposure.exposed import Exposure
    from pyramidion.store.pyramid import Pyramid
    from pyramidion.vault.documents import Grant
    from pyramidion.vault.vault import Vault

COMPONENTS = ("store", "edge", "tables")
"""As `pyramidion.store.exposure.exposed` has them, which is not loaded to show the help."""


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    asking = commands.add_parser(
        "exposure",
        help="tell what an intruder between two moments could read",
        description="Tell what somebody who was in between two moments could read: raw rows, "
        "models, tables and at which ε and δ, and what had been forgotten before. Where the "
        "record is not exact, more is told, never less, by the store's clock. Looking makes "
        "nothing due. Times are UTC.",
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
    people = asking.add_argument_group("whom to tell, where the schema names a unit")
    people.add_argument(
        "--persons", metavar="FILE", type=Path, help="write the people behind these rows here"
    )
    add_grant(people, "a grant of the vault's rows of that time")
    add_passphrase(asking, "none, or a prompt")
    add_store(asking)
    asking.set_defaults(run=exposure)


def exposure(arguments: argparse.Namespace) -> None:
    """Tell it; looking makes nothing due."""
    named = (arguments.persons, arguments.grant, arguments.key)
    if None in named and any(named):
        raise SchemaError("people are told by a grant; give --persons, --grant and --key")
    with opened(arguments, reading=True) as pyramid:
        found = pyramid.exposure(arguments.from_, arguments.to_, component=arguments.component)
        if arguments.persons is not None:
            _list(arguments, found, pyramid)
    if arguments.html is not None:
        _write(arguments.html, found, arguments.data.name)
    if arguments.json:
        print(json.dumps(found.to_dict()))
    else:
        print("\n\n".join(_parts(found)))


def _list(arguments: argparse.Namespace, found: Exposure, pyramid: Pyramid) -> None:
    """Write the people behind exposed rows to a new file, one on a line, for its owner alone."""
    from pyramidion.cli.vault_rows import broker_of
    from pyramidion.storage.disk import read, write_durably
    from pyramidion.store.exposure import persons_of
    from pyramidion.vault.reader import open_grant, read_grant

    unit = pyramid.schema.unit
    if unit is None:
        raise SchemaError("the schema names no unit, so it is not known whose a row is")
    if arguments.persons.exists():
        raise SchemaError(f"{arguments.persons} exists already; choose another file")
    grant = read(arguments.grant)
    _refuse_short(read_grant(grant), found, vault_of(pyramid), unit)
    key = unlocked(arguments.key, arguments, bare=True)
    seen = Counter[str]()
    with open_grant(grant, key, broker_of(arguments)) as rows:
        people = persons_of(_counted(rows.batches(), unit, found, seen), unit, found.ranges)
    _warn_of_others(seen.total(), found)
    write_durably(arguments.persons, [f"{json.dumps(each)}\n".encode() for each in people])
    if not arguments.json:
        print(f"wrote {several(len(people), 'name')} to {arguments.persons}\n")


def _counted(
    batches: Iterable[pa.RecordBatch], unit: str, found: Exposure, seen: Counter[str]
) -> Iterator[pa.RecordBatch]:
    """Batches as they come; how many of their exposed rows say whose they are is counted."""
    from pyramidion.store.exposure import within

    for batch in batches:
        if unit in batch.schema.names:
            theirs = within(batch, found.ranges).column(unit)
            seen["rows"] += len(theirs) - theirs.null_count
        yield batch


def _warn_of_others(came: int, found: Exposure) -> None:
    exposed = found.rows if found.component == "store" else found.models.rows
    if came < exposed:
        warn(
            f"the vault has {came:,} of the {exposed:,} exposed observations; people behind the "
            f"others are not listed: rows from before the vault was attached, erased people, or "
            f"rows that were not sealed"
        )


def _refuse_short(grant: Grant, found: Exposure, vault: Vault, unit: str) -> None:
    """A list that lacks people is worse than none."""
    if grant.store != vault.store:
        raise SchemaError("this grant is for another store; give one for this store's vault")
    if unit not in grant.columns:
        raise SchemaError(
            f"the grant does not give the column {unit!r}, so nobody can be told; request it"
        )
    if not found.ranges:
        return
    first, last = min(first for first, _ in found.ranges), max(last for _, last in found.ranges)
    given = {file.header.name for file in grant.files}
    files = {file.name for file in vault.files(first, last + 1)}
    if grant.first > first or grant.last <= last or not given.issuperset(files):
        raise SchemaError(
            f"the exposed rows arrived from {date(first)} to {date(last)}, and the grant does not "
            f"give all of these; request them from {first / 1e6:.6f} to {(last + 1) / 1e6:.6f}"
        )


def _parts(found: Exposure) -> Iterator[str]:
    from pyramidion.store.exposure.text import parts, sentences

    first, *others = sentences(found)
    yield first
    yield "\n".join(others)
    for part in parts(found):
        told = f"{part.name}\n{table(part.head, part.rows)}"
        yield f"{told}\n{part.more}" if part.more else told
    if found.columns and found.hot:
        yield f"Columns of these observations\n{', '.join(found.columns)}"


def _write(path: Path, found: Exposure, name: str) -> None:
    from pyramidion.store.exposure.page import page

    path.write_text(page(found, name), "utf-8")
