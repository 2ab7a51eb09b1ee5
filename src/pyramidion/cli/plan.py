"""``plan``: which settings a stream takes, and what they are predicted to do."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.cli.options import Commands, Parser, add_json
from pyramidion.cli.output import several, size, table
from pyramidion.errors import SchemaError

if TYPE_CHECKING:
    from pyramidion.config.settings import Settings
    from pyramidion.privacy.plan import Plan

UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3, "B": 1}


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    planning = commands.add_parser(
        "plan",
        help="propose settings, and predict errors and memory",
        description="Propose settings for a schema and the rows that are expected, and predict "
        "the errors and the memory of each table. Only the schema is read, and what you say: no "
        "row is, so nothing is spent. A [settings] table beside the schema keeps the knobs that "
        "are not the planner's.",
    )
    planning.add_argument("schema", metavar="SCHEMA.toml", type=Path, help="the schema file")
    planning.add_argument(
        "--rows", metavar="N", type=whole, required=True, help="rows expected in a count window"
    )
    either = planning.add_mutually_exclusive_group()
    either.add_argument(
        "--epsilon", metavar="E", type=float, help="the privacy budget; inf: no privacy"
    )
    either.add_argument(
        "--target",
        metavar="T",
        type=float,
        help="how far noise and collisions may move the probability of a typical key of every "
        "table, as a standard deviation such as 0.02; the plan says which epsilon that takes",
    )
    planning.add_argument(
        "--delta", metavar="D", type=float, help="delta at most; 0: Laplace noise (default: 1e-9)"
    )
    planning.add_argument(
        "--k", metavar="K", type=int, help="observations hidden together (default: 1)"
    )
    planning.add_argument(
        "--windows",
        metavar="R",
        type=whole,
        help="windows that are summed at most (default: as many as retention holds, where the "
        "file has settings, or else 1)",
    )
    planning.add_argument(
        "--shards",
        metavar="M",
        type=whole,
        help="stores that take the rows, each under noise of its own (default: as the file says, "
        "or else 1)",
    )
    planning.add_argument(
        "--distinct",
        metavar="TABLE=N",
        type=named,
        nargs="+",
        action="extend",
        default=[],
        help="how many distinct values an open feature, or a group written as a,b, has over all "
        "windows (default: a guess from the rows)",
    )
    planning.add_argument(
        "--memory",
        metavar="SIZE",
        type=nbytes,
        help="most bytes for the tables of a window and the complete ones, as 500MB (default: 1GB)",
    )
    planning.add_argument(
        "--skew",
        metavar="S",
        type=float,
        default=1.0,
        help="how unequal keys are: 0 all of one size, 1 as in words and clicks (default: 1)",
    )
    add_json(planning)
    planning.set_defaults(run=run)


def whole(text: str) -> int:
    """A whole number, as people write large ones.

    >>> whole("1_000_000"), whole("1,000"), whole("1e6")
    (1000000, 1000, 1000000)
    """
    try:
        number = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        number = math.nan
    if not 1 <= number <= 2**53 or number != int(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(number)


def named(text: str) -> tuple[str, int]:
    """A table and a number.

    >>> named("origin,dest=5000")
    ('origin,dest', 5000)
    """
    name, equals, number = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not TABLE=N, as in user=6040")
    return name, whole(number)


def nbytes(text: str) -> int:
    """A size in bytes, as `pyramidion.cli.output.size` tells it.

    >>> nbytes("1.5GB"), nbytes("20 kB"), nbytes("4096")
    (1500000000, 20000, 4096)
    """
    written = text.strip().upper()
    unit = next((unit for unit in UNITS if written.endswith(unit)), "")
    try:
        number = float(written.removesuffix(unit)) * UNITS.get(unit, 1)
    except ValueError:
        number = math.nan
    if not 1 <= number < 2**60:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write it like 500MB or 2GB")
    return int(number)


def run(arguments: argparse.Namespace) -> None:
    """Propose settings."""
    from pyramidion.config.schema import Schema
    from pyramidion.privacy.plan import plan, report

    planned = plan(
        Schema.from_toml(arguments.schema),
        rows=arguments.rows,
        epsilon=arguments.epsilon,
        target=arguments.target,
        delta=arguments.delta,
        k=arguments.k,
        windows=arguments.windows,
        shards=arguments.shards,
        distinct=dict(arguments.distinct),
        memory=arguments.memory,
        skew=arguments.skew,
        settings=_settings(arguments),
    )
    print(json.dumps(report(planned)) if arguments.json else _shown(planned))


def _settings(arguments: argparse.Namespace) -> Settings | None:
    """The file's own; what is wrong with them is said with its name."""
    from pyramidion.config import toml
    from pyramidion.privacy.plan import settings_in

    data, where = toml.read(arguments.schema, "schema")
    told = arguments.epsilon is not None or arguments.target is not None
    try:
        return settings_in(data, told=told)
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from error


def _shown(planned: Plan) -> str:
    settings, expected = planned.settings, planned.expected
    promise = f"epsilon {settings.epsilon:g}, delta {settings.delta:g}, k {settings.k}"
    if not settings.private:
        promise = "NO privacy"
    rows, windows = several(expected.rows, "row"), several(expected.windows, "window")
    shards = f", in {settings.shards} shards" if settings.shards > 1 else ""
    lines = [
        f"{promise}, for {rows} in a window and {windows} summed{shards}",
        f"memory: {size(planned.window_bytes)} for a window, "
        f"{size(planned.complete_bytes)} for the complete tables; "
        f"writes: {several(planned.writes, 'row')} in a window's time",
        "",
        _table(planned),
        "",
        *(f"- {sentence}" for sentence in planned.why),
        "",
        planned.to_toml(),
    ]
    return "\n".join(lines).rstrip("\n")


def _table(planned: Plan) -> str:
    columns: dict[str, list[str]] = {
        "values": [f"{t.distinct:,}{'?' if t.guessed else ''}" for t in planned.tables],
        "typical": [f"{t.typical:,.0f}" for t in planned.tables],
        "count ±": [f"{t.deviation:,.1f}" for t in planned.tables],
        "noise": [f"{t.noise:,.1f}" for t in planned.tables],
        "collisions": [f"{t.collisions:,.1f}" for t in planned.tables],
        "probability ±": [f"{t.cost:.4f}" for t in planned.tables],
    }
    if planned.target is not None:
        found = [planned.epsilon_for(planned.target, t.name) for t in planned.tables]
        columns[f"epsilon for {planned.target:g}"] = [f"{epsilon:g}" for epsilon in found]
    told = [[head, *cells] for head, cells in columns.items()]
    padded = [[cell.rjust(max(map(len, column))) for cell in column] for column in told]
    heads, *rows = zip(*padded, strict=True)
    sizes = [[t.name, t.kind, t.rows, t.width] for t in planned.tables]
    return table(
        ["table", "kind", "rows", "width", *heads],
        [[*size, *row] for size, row in zip(sizes, rows, strict=True)],
    )
