"""Commands on a store as a whole: create, advance, ledger, groups, withdraw, backup, restore."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.cli.options import (
    Commands,
    Parser,
    add_store,
    clock_of,
    folder,
    keys_of,
    opened,
    ours_to_interrupt,
    say_erased,
    url_of,
)
from pyramidion.cli.output import several, size, table, warn
from pyramidion.cli.schema import to_change
from pyramidion.cli.shards import add_shard, custodian_of, shard_of
from pyramidion.errors import SchemaError

if TYPE_CHECKING:
    from pyramidion.config.settings import Settings
    from pyramidion.store.schedule import Advance

# --- create ------------------------------------------------------------------------------


def add_create(commands: Commands[Parser]) -> None:
    """Add the command."""
    creating = commands.add_parser(
        "create",
        help="make a new store for a schema",
        description="Make a new store. The [settings] table of the schema file, or of another "
        "file, says how it counts and what it keeps.",
    )
    creating.add_argument("schema", metavar="SCHEMA.toml", type=Path, help="the schema file")
    creating.add_argument(
        "--settings", metavar="FILE.toml", type=Path, help="the file with the [settings] table"
    )
    creating.add_argument(
        "--epsilon",
        metavar="E",
        type=float,
        help="the privacy budget, in place of the file's; inf: no privacy",
    )
    creating.add_argument(
        "--vault", metavar="URL", help="seal the raw history there: a directory, or as fsspec says"
    )
    creating.add_argument(
        "--custodian", metavar="FILE.pub", type=Path, help="the public key that it is sealed to"
    )
    add_shard(creating)
    creating.add_argument(
        "--tables", metavar="URL", help="share the complete tables there, as `share` does"
    )
    add_store(creating)
    creating.set_defaults(run=create)


def create(arguments: argparse.Namespace) -> None:
    """Make a store."""
    from pyramidion.config.schema import Schema
    from pyramidion.privacy.prediction import born
    from pyramidion.store.pyramid import Pyramid

    ours_to_interrupt()
    schema, settings = Schema.from_toml(arguments.schema), _settings(arguments)
    keys, clock = keys_of(arguments), clock_of(arguments)
    vault, custodian = arguments.vault, custodian_of(arguments.custodian)
    shard = shard_of(arguments)
    with Pyramid.create(
        *(arguments.data, schema, settings),
        keys=keys,
        clock=clock,
        vault=vault,
        custodian=custodian,
        shard=shard,
        tables=None if arguments.tables is None else url_of(arguments.tables),
    ) as made:
        store = "" if made.vault is None else made.vault.store
        shared = made.status().shared
    birth = born(schema, settings)
    promise, left = birth.guarantee(0), to_change(arguments.schema)
    if left:
        warn(f"{several(left, 'line')} of {arguments.schema} still marked CHANGE")
    if arguments.json:
        tables = [
            {"name": t.name, "kind": t.kind, "rows": t.rows, "width": t.width}
            | {"deviation": t.variance**0.5}
            for t in birth.layout.tables
        ]
        told = {"path": str(arguments.data), "keys": keys, "guarantee": promise.to_dict()}
        if vault is not None and custodian is not None:
            told |= {"vault": vault, "custodian": custodian.fingerprint, "store": store}
        if shard is not None:
            told |= {"shard": shard.name, "stream": shard.stream}
        if shared is not None:
            told |= {"shared": shared.at}
        print(json.dumps(told | {"tables": tables, "to_change": left}))
        return
    print(f"made a store at {arguments.data}; without its key nothing opens it: {keys}")
    if vault is not None and custodian is not None:
        print(f"rows are sealed in {vault} to the custodian {custodian.fingerprint}")
        print(f"requests for them name the store {store}")
    if shard is not None:
        print(
            f"it is shard {shard.name} of stream {shard.stream}, which has room for "
            f"{several(settings.shards, 'shard')}"
        )
    if shared is not None:
        print(f"complete tables are shared at {shared.at}")
    print(f"each window: {str(promise).rpartition(', over')[0]}")
    print(
        f"count window {settings.count_window}, retention {settings.retention}, hot window "
        f"{_hot(settings)} in steps of {settings.hot_step}\n"
    )
    print(
        table(
            ["table", "kind", "rows", "width", "noise in a cell"],
            [
                [t.name or "(prior)", t.kind, t.rows, t.width, round(t.variance**0.5, 1)]
                for t in birth.layout.tables
            ],
        )
    )


def _settings(arguments: argparse.Namespace) -> Settings:
    from pyramidion.config import toml
    from pyramidion.config.settings import Settings

    data, where = toml.read(arguments.settings or arguments.schema, "settings")
    told = data.get("settings")
    if arguments.epsilon is not None and isinstance(told, Mapping | None):
        told = {**(told or {}), "epsilon": arguments.epsilon}
    if told is None:
        raise SchemaError(
            f"{where} has no [settings] table; add one with epsilon = 1.0, or give --epsilon"
        )
    try:
        return Settings.from_dict(told)  # type: ignore[arg-type]
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from error


def _hot(settings: Settings) -> str:
    rows = None if settings.hot_rows is None else several(settings.hot_rows, "row")
    return " or ".join(str(bound) for bound in (settings.hot_window, rows) if bound is not None)


# --- advance, ledger -----------------------------------------------------------------------


def add_advance(commands: Commands[Parser]) -> None:
    """Add the command."""
    advancing = commands.add_parser(
        "advance",
        help="do what is due: seal windows, erase what is past its time",
        description="Do what is due: seal windows that ended, erase hot rows and windows that "
        "are past their time. Every command that opens a store to work with it does this too; run "
        "this one from a timer, so that nothing outstays its time while nobody calls.",
    )
    add_store(advancing)
    advancing.set_defaults(run=advance)


def advance(arguments: argparse.Namespace) -> None:
    """Do what is due, and say what was done."""
    with opened(arguments, reading=True) as pyramid:  # opening would do it and tell nobody
        due = pyramid.admin.due()
        if due.erases:
            say_erased(due)
        done = pyramid.advance()
    print(json.dumps(asdict(done)) if arguments.json else did(done))


def did(done: Advance) -> str:
    """What was done, a line for each kind."""
    told = [
        f"{verb} {several(len(numbers), noun)} ({', '.join(map(str, numbers))})"
        for verb, noun, numbers in (
            ("sealed", "window", done.sealed),
            ("sealed", "node", done.nodes),
            ("forgot", "window", done.retired),
            ("dropped unused", "window", done.dropped),
            ("checkpointed", "window", done.checkpoints),
            ("opened", "window", done.opened),
        )
        if numbers
    ]
    if done.steps:
        rows, steps = several(done.rows_erased, "hot row"), several(done.steps, "step")
        told.append(f"erased {rows} in {steps}")
    return "\n".join(told) or "nothing was due"


def add_ledger(commands: Commands[Parser]) -> None:
    """Add the command."""
    looking = commands.add_parser(
        "ledger",
        help="show what each window has spent on what",
        description="Show what each window has spent on what, and the privacy that this leaves its "
        "rows. Looking makes nothing due.",
    )
    add_store(looking)
    looking.set_defaults(run=ledger)


def ledger(arguments: argparse.Namespace) -> None:
    """Show what was spent; looking makes nothing due."""
    with opened(arguments, reading=True) as pyramid:
        report = pyramid.ledger.report()
    if arguments.json:
        print(json.dumps(report.to_dict()))
    elif not report.windows:
        print("nothing was spent: no window was opened yet")
    else:
        print(report)


# --- tables come and go ----------------------------------------------------------------------


def add_tables(commands: Commands[Parser]) -> None:
    """Add the commands."""
    grouping = commands.add_parser(
        "group",
        help="count features together from now on",
        description="Count features together, from the next window that is not open yet. Without "
        "features, show the groups, and what sealed tables say of them.",
    )
    grouping.add_argument("features", metavar="FEATURE", nargs="*", help="features of the schema")
    add_store(grouping)
    grouping.set_defaults(run=group)

    selecting = commands.add_parser(
        "select-groups",
        help="choose groups worth counting from the hot rows, privately",
        description="Choose groups worth counting from the hot rows, privately. Every window whose "
        "rows are hot pays, from what it kept back for that at its birth (selection_share). Chosen "
        "groups are counted on trial, from the next window that is not open yet.",
    )
    selecting.add_argument(
        "--share",
        metavar="PART",
        type=_part,
        default=Fraction(1),
        help="of what was kept back, such as 1/2 (default: all of it)",
    )
    add_store(selecting)
    selecting.set_defaults(run=select_groups)

    withdrawing = commands.add_parser(
        "withdraw",
        help="erase a feature or a group, everywhere and now",
        description="Erase a feature or a group: its tables in every window, and a feature's "
        "column in the hot rows. There is no way back. Backups made before end with it.",
    )
    withdrawing.add_argument("name", metavar="NAME", help="a feature, or a group as 'a,b'")
    withdrawing.add_argument(
        "--why", metavar="TEXT", required=True, help="the reason, for the deletion record"
    )
    add_store(withdrawing)
    withdrawing.set_defaults(run=withdraw)


def _part(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError("write a number or a fraction, such as 1/2") from None


def select_groups(arguments: argparse.Namespace) -> None:
    """Choose groups."""
    with opened(arguments) as pyramid:
        done = pyramid.groups.select(share=arguments.share)
    if arguments.json:
        print(json.dumps(asdict(done) | {"charged": float(done.charged)}))
        return
    paid = f", each of which paid {done.unit} {float(done.charged):g}"
    if done.unit == "none":
        paid = "; the choice is exact: NO privacy"
    windows = f"{several(len(done.windows), 'window')} ({', '.join(map(str, done.windows))})"
    print(f"read {several(done.rows, 'hot row')} of {windows}{paid}")
    if not done.groups:
        print("no group tells more than its parts")
    for name in done.groups:
        print(f"{name} is counted on trial from the next window that is not open yet")


def _show_groups(arguments: argparse.Namespace) -> None:
    """Show the groups; looking makes nothing due."""
    with opened(arguments, reading=True) as pyramid:
        groups = pyramid.groups.status()
    if arguments.json:
        print(json.dumps({"groups": [asdict(group) for group in groups]}))
    elif not groups:
        print("no features are counted together")
    else:
        told = [
            [g.name, g.state, g.windows, "" if g.gain is None else f"{g.gain:.3g}", g.why]
            for g in groups
        ]
        print(table(["group", "state", "windows", "gain", "why"], told))


def group(arguments: argparse.Namespace) -> None:
    """Count features together, or show what is."""
    if not arguments.features:
        _show_groups(arguments)
        return
    with opened(arguments) as pyramid:
        pyramid.groups.add(arguments.features)
        tables = pyramid.schema.table_names
    name = ",".join(arguments.features)
    if arguments.json:
        print(json.dumps({"group": name, "tables": tables}))
    else:
        print(f"{name} is counted from the next window that is not open yet")


def withdraw(arguments: argparse.Namespace) -> None:
    """Erase a feature or a group."""
    with opened(arguments) as pyramid:
        pyramid.groups.withdraw(arguments.name, why=arguments.why)
        tables = pyramid.schema.table_names
    if arguments.json:
        print(json.dumps({"withdrawn": arguments.name, "tables": tables}))
    else:
        print(f"erased {arguments.name}; what is left: {' '.join(tables)}")


# --- copies ------------------------------------------------------------------------------------


def add_copies(commands: Commands[Parser]) -> None:
    """Add both commands."""
    backing = commands.add_parser(
        "backup",
        help="copy the store, or bring a copy up to date",
        description="Copy the store, or bring a copy up to date. The copy opens with the same "
        "store key, so it ends with the next erasure or release: make it anew after each hot step.",
    )
    backing.add_argument("target", metavar="TARGET", type=folder, help="the directory of the copy")
    add_store(backing)
    backing.set_defaults(run=backup)

    restoring = commands.add_parser(
        "restore",
        help="make a store of a backup",
        description="Make a store of a backup, in place of the one it was made of: from then on "
        "nothing opens that one, nor any other copy. Give --keys if the new store's directory is "
        "called otherwise than the old one's.",
    )
    restoring.add_argument(
        "backup", metavar="BACKUP", type=folder, help="the directory of the copy"
    )
    add_store(restoring)
    restoring.set_defaults(run=restore)


def backup(arguments: argparse.Namespace) -> None:
    """Copy the store, after what is due: an erasure would end the copy."""
    with opened(arguments) as pyramid:
        copied = pyramid.admin.backup(arguments.target)
    if arguments.json:
        print(json.dumps({"backup": str(arguments.target), "bytes": copied}))
    else:
        print(
            f"copied {size(copied)} to {arguments.target}; it ends with the next erasure or release"
        )


def restore(arguments: argparse.Namespace) -> None:
    """Make a store of a backup."""
    from pyramidion.store.pyramid import Pyramid

    ours_to_interrupt()
    keys, clock = keys_of(arguments), clock_of(arguments)
    with Pyramid.restore(
        arguments.backup, arguments.data, keys=keys, clock=clock, announce=say_erased
    ) as pyramid:
        status = pyramid.status()
    if arguments.json:
        print(json.dumps(status.to_dict()))
        return
    rows = several(status.summarised_rows, "row")
    print(
        f"made a store at {arguments.data} of {arguments.backup}: {rows} summarised, "
        f"{several(status.hot_rows, 'hot row')}; nothing opens the other copies any more"
    )
