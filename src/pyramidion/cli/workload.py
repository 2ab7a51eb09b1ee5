"""What is learned from what, as it is said on the command line."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from pyramidion.config.checks import Value, loaded

if TYPE_CHECKING:
    from pyramidion.config.label import Label
    from pyramidion.config.schema import Schema


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
