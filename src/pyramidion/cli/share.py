"""``share``: publish the complete tables for readers elsewhere."""

from __future__ import annotations

import argparse
import json

from pyramidion.cli.options import Commands, Parser, add_store, opened, url_of
from pyramidion.errors import SchemaError


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    sharing = commands.add_parser(
        "share",
        help="publish the complete tables for readers elsewhere",
        description="Publish the complete tables at a URL, now and whenever they change. There "
        "they are encrypted, for who has a card of the service. The store remembers the URL, "
        "encrypted too.",
    )
    sharing.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        help="file:/path, redis://host:6379/0, redis+cluster://host:6379, "
        "cassandra://host:9042/keyspace; or env:NAME, where the variable has it",
    )
    sharing.add_argument(
        "--stop", action="store_true", help="destroy the keys of what is shared, and delete it"
    )
    add_store(sharing)
    sharing.set_defaults(run=share)


def share(arguments: argparse.Namespace) -> None:
    """Share tables, or stop that."""
    if arguments.stop == (arguments.url is not None):
        raise SchemaError("share takes the URL to share tables at, or --stop; give one of them")
    with opened(arguments) as pyramid:
        if arguments.stop:
            pyramid.publisher.stop()
        else:
            pyramid.publisher.start(url_of(arguments.url))
        shared = pyramid.status().shared
    if arguments.json:
        print(json.dumps({"shared": None if shared is None else shared.at}))
    elif shared is None:
        print("tables are shared no more; the keys of those that were are destroyed")
    else:
        print(f"complete tables are shared at {shared.at}")
