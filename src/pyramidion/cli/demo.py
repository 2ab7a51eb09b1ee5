"""``demo``: a year of real flights through a store, beside the same models on all raw rows."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pyramidion.cli.options import (
    Commands,
    Parser,
    add_json,
    add_quiet,
    folder,
    ours_to_interrupt,
)
from pyramidion.cli.output import bar, remark
from pyramidion.cli.temporary import scratch

if TYPE_CHECKING:
    from pyramidion.config.settings import Settings
    from pyramidion.demo.flights import Flights
    from pyramidion.demo.year import Loss, Month, Year

WITHIN = 0.05
QUICK = 3  # months
QUICK_RETENTION = "60d"
DAY = 86_400_000_000  # microseconds
HEAD = """\
                 logistic regression       boosted trees      class    rows an attacker
month      late  counts    raw  ratio  counts    raw  ratio    rate    would see, of all    gone   ε
"""


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    showing = commands.add_parser(
        "demo",
        help="replay a year of flights, and compare with models on all raw rows",
        description="Replay the flights from New York in 2013 through a store in a temporary "
        "directory, by a simulated clock. Each month is predicted before it is observed, by models "
        "on private counts and by the same models on all raw flights so far. Prints a table and "
        "writes plots; takes about a minute. The store and its key are removed at the end.",
    )
    showing.add_argument(
        "--output",
        metavar="DIR",
        type=folder,
        default=Path("pyramidion-demo"),
        help="where the plots go (default: %(default)s)",
    )
    showing.add_argument(
        "--epsilon",
        metavar="E",
        type=float,
        default=1.0,
        help="the privacy budget (default: %(default)s); inf: no privacy",
    )
    showing.add_argument(
        "--quick",
        action="store_true",
        help=f"only {QUICK} months, with a retention of {QUICK_RETENTION}",
    )
    add_quiet(showing)
    add_json(showing)
    showing.set_defaults(run=demo)


def demo(arguments: argparse.Namespace) -> None:
    """Replay the year, print the table, draw the plots."""
    from pyramidion.demo import check_installed

    check_installed()
    from pyramidion.demo import flights, plots
    from pyramidion.demo.year import Year

    began = time.perf_counter()
    chosen = {"retention": QUICK_RETENTION} if arguments.quick else {}
    settings = flights.settings(arguments.epsilon, **chosen)
    arguments.output.mkdir(parents=True, exist_ok=True)
    ours_to_interrupt()
    loaded = flights.load()
    year = Year(loaded, settings, QUICK if arguments.quick else flights.MONTHS)
    if not arguments.json:
        print(_introduced(loaded, settings))
        print(HEAD, end="")
    months = list(_months(arguments, year))
    days = settings.retention_us / DAY
    drawn = plots.drawn(arguments.output, months, year.exposures, year.lives, retention=days)
    if arguments.json:
        print(json.dumps(_plain(year, months, settings, drawn)))
    else:
        print(_summed_up(months, drawn))
    remark(arguments, f"that took {time.perf_counter() - began:.0f} s")


def _months(arguments: argparse.Namespace, year: Year) -> Iterator[Month]:
    """Go through the year in a temporary store; each line is printed when its month is over."""
    with (
        scratch(1, lambda told: remark(arguments, told)) as (place,),
        bar(arguments, "flights", year.rows) as progress,
        closing(year.replay(place, progress.update)) as replay,  # Ctrl-C closes the store first
    ):
        for month in replay:
            if not arguments.json:
                progress.write(_line(month), file=sys.stdout)
            yield month


# --- what is printed ---------------------------------------------------------------------------


def _introduced(flights: Flights, settings: Settings) -> str:
    features = flights.schema.feature_names
    return (
        f"Which flights from New York arrive 15 minutes late or more? {flights.rows.num_rows:,} "
        f"flights of 2013\n({flights.left_out:,} more were cancelled or diverted), each month "
        f"predicted before it is observed from\n{', '.join(features)}.\n\n"
        f"counts: trained on the last {settings.hot_window} of flights, features from private "
        f"counts of the last {settings.retention}\n        "
        f"(ε = {settings.epsilon:g}, δ = {settings.delta:g} for each flight)\n"
        f"raw:    the same model, trained on all raw flights so far\n"
        f"Numbers are log losses, lower is better.\n"
    )


def _line(month: Month) -> str:
    found = month.exposure
    losses = [_losses(month.losses.get(name)) for name in _names()]
    prior = "-" if month.prior is None else f"{month.prior:.3f}"
    return (
        f"{month.name:9} {month.late:>5.1%}  {'  '.join(losses)}  {prior:>6}   "
        f"{found.hot:>7,} of {found.collected:>7,} {found.gone:>7,} {month.epsilon:>3g}"
    )


def _names() -> Sequence[str]:
    from pyramidion.demo.models import NAMES

    return NAMES


def _losses(found: Loss | None) -> str:
    told = ["-"] * 3
    if found is not None:
        told = [f"{number:.3f}" for number in (found.private, found.raw, found.ratio)]
    return f"{told[0]:>6} {told[1]:>6} {told[2]:>6}"


def _ratios(months: Sequence[Month]) -> dict[str, list[float]]:
    """The ratios of all months by model."""
    return {name: [m.losses[name].ratio for m in months if m.losses] for name in _names()}


def _summed_up(months: Sequence[Month], drawn: Sequence[Path]) -> str:
    lines = []
    for name, ratios in _ratios(months).items():
        above, verdict = (
            fmean(ratios) - 1,
            "within" if fmean(ratios) <= 1 + WITHIN else "NOT within",
        )
        lines.append(
            f"{name}: {above:+.1%} on average against raw, {verdict} {WITHIN:.0%} "
            f"(months from {min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%})"
        )
    rate = fmean(m.prior / m.losses[_names()[0]].raw for m in months if m.prior is not None)
    lines.append(f"knowing the class rate alone: {rate - 1:+.1%}")
    plots = f"plots: {', '.join(map(str, drawn))}"
    return "\n".join(["", *lines, "", _left(months[-1]), plots])


def _left(month: Month) -> str:
    found, kind = month.exposure, "noisy" if month.epsilon < math.inf else "EXACT"
    return (
        f"An attacker at the end sees {found.hot:,} raw flights of {found.collected:,} "
        f"({found.hot / found.collected:.1%}), and {kind} counts:\n"
        f"of {found.counted:,} flights these are all that is left, {found.gone:,} are gone. "
        f"The store and its key are removed."
    )


def _plain(
    year: Year, months: Sequence[Month], settings: Settings, drawn: Sequence[Path]
) -> dict[str, Any]:
    """Everything as JSON has it; where there is no promise, ε is None."""
    ratios = {name: fmean(found) for name, found in _ratios(months).items()}
    return {
        "flights": year.rows,
        "settings": _promised(settings.to_dict()),
        "months": [_plain_month(month) for month in months],
        "windows": [_promised(asdict(life)) for life in year.lives],
        "models": {
            name: {"ratio": ratio, "within": ratio <= 1 + WITHIN} for name, ratio in ratios.items()
        },
        "plots": [str(path) for path in drawn],
    }


def _plain_month(month: Month) -> dict[str, Any]:
    told = _promised(asdict(month)) | {"name": month.name}
    told["exposure"]["collected"] = month.exposure.collected
    for name, loss in month.losses.items():
        told["losses"][name]["ratio"] = loss.ratio
    return told


def _promised(told: dict[str, Any]) -> dict[str, Any]:
    return told | {"epsilon": told["epsilon"] if told["epsilon"] < math.inf else None}
