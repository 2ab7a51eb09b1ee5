"""``join`` and ``shards``: stores that take rows of one stream together."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.cli.options import (
    Commands,
    Parser,
    add_store,
    clock_of,
    keys_of,
    opened,
    ours_to_interrupt,
    url_of,
)
from pyramidion.cli.output import several, table
from pyramidion.errors import SchemaError, StateError

if TYPE_CHECKING:
    from pyramidion.store.shard import Shard
    from pyramidion.store.shards import ShardStatus
    from pyramidion.vault.key_pairs import PublicKey


def add(commands: Commands[Parser]) -> None:
    """Add both commands."""
    joining = commands.add_parser(
        "join",
        help="make a store that is one more shard of a stream",
        description="Make a store that is one more shard of a stream. Schema, settings and the "
        "secret that values are hashed with are those of the others.",
    )
    add_shard(joining, required=True)
    joining.add_argument(
        "--vault", metavar="URL", help="seal the raw history there: a directory, or as fsspec says"
    )
    joining.add_argument(
        "--custodian", metavar="FILE.pub", type=Path, help="the public key that it is sealed to"
    )
    add_store(joining)
    joining.set_defaults(run=join)

    looking = commands.add_parser(
        "shards",
        help="show the shards of a stream, or remove one that is gone",
        description="Show the shards of the stream that a store is a shard of, after what is due. "
        "With --remove, nobody waits for a shard any more: what it sealed stays until its time, "
        "what it had not sealed is not there.",
    )
    looking.add_argument("--remove", metavar="NAME", help="a shard that is gone, or is to go")
    looking.add_argument("--why", metavar="TEXT", help="the reason, for the audit log")
    add_store(looking)
    looking.set_defaults(run=shards)


def add_shard(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add what says which shard of which stream a new store is."""
    parser.add_argument(
        "--stream", metavar="NAME", required=required, help="the stream that it is a shard of"
    )
    parser.add_argument("--shard", metavar="NAME", required=required, help="what it is called")
    parser.add_argument(
        "--stream-keys",
        metavar="URL",
        required=required,
        help="the key holder that all shards of the stream reach",
    )
    parser.add_argument(
        "--stream-tables",
        metavar="URL",
        required=required,
        help="the table store where shards publish what is sealed; env:NAME for what an "
        "environment variable says, so that no password stands in a command",
    )


def shard_of(arguments: argparse.Namespace) -> Shard | None:
    """Which shard a new store is to be, if any."""
    from pyramidion.store.shard import Shard

    given = (arguments.stream, arguments.shard, arguments.stream_keys, arguments.stream_tables)
    if given == (None,) * 4:
        return None
    if None in given:
        raise SchemaError(
            "a shard needs --stream, --shard, --stream-keys and --stream-tables; give all"
        )
    stream, name, keys, tables = given
    return Shard(stream, name, keys=keys, tables=url_of(tables))


def custodian_of(path: Path | None) -> PublicKey | None:
    """The custodian's public key in a file."""
    from pyramidion.storage.disk import read
    from pyramidion.vault.key_pairs import PublicKey

    return None if path is None else PublicKey.from_text(read(path))


def join(arguments: argparse.Namespace) -> None:
    """Make one more shard."""
    from pyramidion.store.pyramid import Pyramid

    ours_to_interrupt()
    shard, keys = shard_of(arguments), keys_of(arguments)
    if shard is None:
        raise SchemaError("a shard needs a stream; give --stream")
    with Pyramid.join(
        arguments.data,
        shard,
        keys=keys,
        clock=clock_of(arguments),
        vault=arguments.vault,
        custodian=custodian_of(arguments.custodian),
    ) as made:
        found, settings = made.status().shard, made.settings
    if arguments.json:
        told = {"path": str(arguments.data), "keys": keys}
        print(json.dumps(told | {"shard": None if found is None else asdict(found)}))
        return
    print(f"made a store at {arguments.data}; without its key nothing opens it: {keys}")
    print(
        f"it is shard {shard.name} of stream {shard.stream}, which has room for "
        f"{several(settings.shards, 'shard')}"
    )


def shards(arguments: argparse.Namespace) -> None:
    """Show the shards, or remove one."""
    if arguments.remove is not None and arguments.why is None:
        raise SchemaError("the audit log tells why a shard was removed; give --why")
    with opened(arguments, reading=arguments.remove is None) as pyramid:
        if arguments.remove is not None:
            pyramid.shards.remove(arguments.remove, why=arguments.why)
        found = pyramid.status().shard
        most = pyramid.settings.shards
    if found is None:
        raise StateError(f"{arguments.data} is no shard of a stream; join one, or create one")
    print(json.dumps(asdict(found)) if arguments.json else _shown(found, most))


def _shown(found: ShardStatus, most: int) -> str:
    rows = [[name, "takes rows", windows] for name, windows in found.shards.items()]
    rows += [[name, "removed", windows] for name, windows in found.left.items()]
    summed = several(sum(found.shards.values()) + sum(found.left.values()), "window")
    lines = [
        f"stream {found.stream}: {len(found.shards)} of {several(most, 'shard')}; this is "
        f"{found.name}",
        f"the sum has {several(found.rows, 'row')} in {summed}, {found.waiting} more wait",
        "",
        table(["shard", "state", "windows in the sum"], rows),
    ]
    if found.missing:
        told = ", ".join(f"{several(n, 'window')} of {of}" for of, n in found.missing.items())
        lines.insert(2, f"missing in the sum, for they cannot be read: {told}")
    if found.problem:
        lines.insert(2, f"the last look failed: {found.problem}")
    return "\n".join(lines)
