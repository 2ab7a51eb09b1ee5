"""``python -m lab``: measure the paper's figures with this software, and write a report."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyramidion.cli.options import (
    Parser,
    add_json,
    add_quiet,
    folder,
    ours_to_interrupt,
)
from pyramidion.cli.output import remark, several, table
from pyramidion.cli.program import run
from pyramidion.config.durations import microseconds
from pyramidion.errors import SchemaError

if TYPE_CHECKING:
    from lab.comparison import Comparison
    from lab.datasets import DataSet
    from lab.points import Figure, Job
    from lab.result_files import Measured, ResultFile

ALL = "all"
ALL_CLICKS = 300_000
HOUR, QUICK_TIME = 3_600.0, 300.0
"""Generated clicks and time for all figures, and for a quick run, unless more is asked for."""
SEEDS, QUICK_SEEDS = 3, 1
BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left{postfix}"


def parser() -> Parser:
    """The command line of the evaluation."""
    evaluating = Parser(
        prog="python -m lab",
        description="Measure the paper's figures with this software, and write a report: one HTML "
        "page, the same in Markdown, plots, and all numbers as Parquet. Nothing is downloaded: "
        "real data is found below a directory, and clicks are generated. What was measured is "
        "kept after every step, so a run that was stopped goes on where it was, and a figure "
        "that is there is not measured again.",
    )
    evaluating.add_argument(
        "name",
        metavar="NAME",
        help="q1 (less data), q2, noise and shares (protection), values (beside counts), q3 and "
        "recall (groups), sketches and bias, windows and window-noise, latency, retraining, "
        "regression, bandit, exposure, evolution, wide and width (many features), tuning, or all",
    )
    evaluating.add_argument(
        "--data", metavar="DIR", type=folder, help="where real data is (default: generated only)"
    )
    evaluating.add_argument(
        "--on",
        metavar="DATASET",
        action="append",
        help="only this data set; may be given several times",
    )
    evaluating.add_argument(
        "--output",
        metavar="DIR",
        type=folder,
        default=Path("pyramidion-evaluation"),
        help="where the report goes (default: %(default)s)",
    )
    evaluating.add_argument(
        "--quick",
        action="store_true",
        help="fewer rows, places and seeds: a first look, in the directory 'quick' of the report's",
    )
    evaluating.add_argument(
        "--seeds",
        metavar="N",
        type=_positive,
        help=f"how often noise is drawn (default: {SEEDS}, or {QUICK_SEEDS} with --quick or all); "
        "what further seeds measured before is dropped",
    )
    evaluating.add_argument(
        "--clicks",
        metavar="ROWS",
        type=_positive,
        help="how many clicks are generated (default: 45 million for q1, q2 and values, a million "
        "for others, 300,000 for all, 60,000 with --quick)",
    )
    evaluating.add_argument(
        "--within",
        metavar="DURATION",
        type=_duration,
        help="begin nothing new after so long, as 30m: what is left is done when the command is "
        "given again (default: 5m with --quick, 1h for all, else none)",
    )
    evaluating.add_argument(
        "--again", action="store_true", help="forget what was measured, and measure again"
    )
    add_quiet(evaluating)
    add_json(evaluating)
    evaluating.set_defaults(run=evaluate)
    return evaluating


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("give a whole number from 1 up")
    return int(text)


def _duration(text: str) -> float:
    try:
        return microseconds(text, "the time") / 1e6
    except SchemaError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def evaluate(arguments: argparse.Namespace) -> None:
    """Measure what is asked for, one figure after the other, and write the report after each."""
    from lab import check_installed

    check_installed()
    from lab import experiments

    began = time.perf_counter()
    asked = planned(arguments)
    usual = QUICK_TIME if arguments.quick else HOUR if arguments.name == ALL else math.inf
    within = arguments.within or usual
    output = arguments.output / "quick" if arguments.quick else arguments.output
    output.mkdir(parents=True, exist_ok=True)
    ours_to_interrupt()
    done: dict[str, Measured] = {}
    with _terminable():
        for figure, jobs, until in _turns(asked, done, began + within):
            latest = _measured(arguments, figure, jobs, output, done, until)
            done[figure.slug] = latest
            _reported(output, latest, list(experiments.EXPERIMENTS))
            if not arguments.json:
                print(_summed_up(latest))
    if arguments.json:
        print(json.dumps(_plain(list(done.values()), output)))
    else:
        print(f"report: {output / 'report.html'} and {output / 'report.md'}")
        print(f"plots and numbers: {output}/*.png and {output / 'results'}/*.parquet")
    remark(arguments, f"that took {time.perf_counter() - began:.0f} s")
    left = sum(measured.missing for measured in done.values())
    if left:
        remark(arguments, f"{several(left, 'job')} left: give the command again to go on")


# --- what is asked for -------------------------------------------------------------------------


def planned(arguments: argparse.Namespace) -> list[tuple[Figure, Sequence[Job]]]:
    """The figures that are asked for and their jobs, of which none is done here."""
    from lab import experiments

    chosen = _chosen(arguments.name, experiments.EXPERIMENTS)
    if arguments.data is not None and not arguments.data.is_dir():
        raise SchemaError(f"{arguments.data} is no directory; give one with --data")
    if arguments.name == ALL and not arguments.quick:
        arguments.seeds = arguments.seeds or 1
        arguments.clicks = arguments.clicks or ALL_CLICKS
    return list(_planned(arguments, chosen, _found(arguments, chosen, experiments)))


def _chosen(name: str, known: Mapping[str, Any]) -> list[Any]:
    if name == ALL:
        return list(known.values())
    if name not in known:
        names = ", ".join(known)
        raise SchemaError(f"there is no experiment {name!r}; choose one of {names}, or {ALL}")
    return [known[name]]


def _found(arguments: argparse.Namespace, chosen: Sequence[Any], experiments: Any) -> list[DataSet]:
    """The data sets there are, of those asked for."""
    given = {
        "quick": arguments.quick,
        "names": [experiment.name for experiment in chosen],
        "rows": arguments.clicks,
    }
    found: list[DataSet] = experiments.data_sets(arguments.data, on=arguments.on, **given)
    names = [data.name for data in found]
    twice = sorted(name for name in set(names) if names.count(name) > 1)
    if twice:  # the results of one would take the place of the other's
        raise SchemaError(
            f"{arguments.data} has two data sets {twice[0]!r}; give the directory of one as --data"
        )
    missing = sorted(set(arguments.on or ()) - set(names))
    if missing:
        there = experiments.data_sets(arguments.data, on=None, **given)
        raise SchemaError(
            f"there is no data set {missing[0]!r} here; choose one of "
            f"{', '.join(data.name for data in there)}, or give the directory of others as --data"
        )
    return found


def _planned(
    arguments: argparse.Namespace, chosen: Sequence[Any], found: Sequence[DataSet]
) -> Iterator[tuple[Figure, Sequence[Job]]]:
    """Figures and their jobs."""
    from lab.experiments import concerns

    among = found if arguments.name == ALL else None
    some = False
    seeds = arguments.seeds or (QUICK_SEEDS if arguments.quick else SEEDS)
    for experiment in chosen:
        for data in found:
            if not concerns(experiment.name, data, among=among):
                continue
            planned = experiment.plan(data, quick=arguments.quick, seeds=seeds)
            if planned is not None:
                some = True
                figure, jobs = planned
                yield replace(figure, rows=data.rows), jobs
    if not some:
        raise SchemaError(
            f"{arguments.name} concerns none of the data sets {', '.join(d.name for d in found)}; "
            f"give the directory of others as --data"
        )


def needed(
    arguments: argparse.Namespace, jobs: Sequence[Job], done: Collection[str] = ()
) -> list[Job]:
    """The jobs of a figure: among all figures those alone that it needs, and those done before.

    A quick run has few anyhow.
    """
    thinned = arguments.name == ALL and not arguments.quick
    return [job for job in jobs if not (thinned and job.more) or job.key in done]


def _command(arguments: argparse.Namespace, figure: Figure) -> str:
    """The command that asks for one figure alone."""
    words = ["python", "-m", "lab", figure.name, "--on", figure.data]
    words += ["--data", str(arguments.data)] if arguments.data is not None else []
    words += ["--quick"] if arguments.quick else []
    words += ["--seeds", str(arguments.seeds)] if arguments.seeds else []
    words += ["--clicks", str(arguments.clicks)] if arguments.clicks else []
    words += ["--output", str(arguments.output)]
    return shlex.join(words)


# --- measuring ---------------------------------------------------------------------------------


def _turns(
    planned: Sequence[tuple[Figure, Sequence[Job]]], done: Mapping[str, Measured], end: float
) -> Iterator[tuple[Figure, Sequence[Job], float]]:
    """Figures in turns until the end, each turn until its part of the time that is left is over.

    So that a long figure leaves time for all others; those unfinished have another turn.
    """
    left = list(planned)
    while left:
        for place, (figure, jobs) in enumerate(left):
            now = time.perf_counter()
            yield figure, jobs, now + (end - now) / (len(left) - place)
        left = [(figure, jobs) for figure, jobs in left if done[figure.slug].missing]
        if time.perf_counter() >= end:
            return


def _measured(
    arguments: argparse.Namespace,
    figure: Figure,
    jobs: Sequence[Job],
    output: Path,
    done: Mapping[str, Measured],
    until: float,
) -> Measured:
    """Do the jobs that are left of a figure; Ctrl-C keeps those that are done.

    Jobs are shared with other figures; where all is to be measured again, with those of this run.
    """
    from lab import result_files, runner

    command = _command(arguments, figure)
    again = arguments.again and figure.slug not in done
    jobs = needed(arguments, jobs, set() if again else result_files.done(output, figure.slug))
    plan = result_files.Plan(figure, [job.key for job in jobs], command)
    lending = (
        list(done)
        if arguments.again
        else [found.figure.slug for found in result_files.all_measured(output)]
    )
    lenders = [result_files.place(output, slug) for slug in lending if slug != figure.slug]
    run = result_files.here(time.time(), command)
    results = result_files.ResultFile(output, plan, run, again=again, lenders=lenders)
    left = runner.waiting(jobs, results)
    if len(left) < len(jobs) and figure.slug not in done:
        told = f"{len(jobs) - len(left)} of {several(len(jobs), 'job')} were done before"
        remark(arguments, f"{figure.slug}: {told}")
    try:
        with _bar(arguments, figure.slug, sum(job.cost for job in left)) as progress:
            runner.run(jobs, results, progress, lambda: time.perf_counter() < until)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_stopped(jobs, results)) from None
    results.keep_only(plan.jobs)
    return result_files.measured(results.path)


def _stopped(jobs: Sequence[Job], results: ResultFile) -> str:
    done = sum(results.get(job) is not None for job in jobs)
    return (
        f"stopped with {done} of {several(len(jobs), 'job')} of {results.plan.figure.slug} done; "
        f"what is done is kept, the same command without --again goes on"
    )


def _bar(arguments: argparse.Namespace, what: str, total: float) -> Any:
    """A progress bar over guessed seconds: what is left is told from how long the others took."""
    from tqdm import tqdm

    return tqdm(
        total=total,
        desc=what,
        bar_format=BAR,
        smoothing=0,
        file=sys.stderr,
        disable=not total or arguments.json or arguments.quiet or not sys.stderr.isatty(),
    )


@contextmanager
def _terminable() -> Iterator[None]:
    """Being terminated counts as Ctrl-C, so that a job can remove its store."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _reported(output: Path, latest: Measured, order: Sequence[str]) -> None:
    """Draw a figure, and report all of a folder, also those of earlier runs."""
    from lab import plots, report, result_files

    plots.draw(latest.figure, latest.points, output)
    found = result_files.all_measured(output)
    ranks = {name: rank for rank, name in enumerate(order)}
    found.sort(key=lambda measured: ranks.get(measured.figure.name, len(ranks)))
    for measured in found:
        if not (output / f"{measured.figure.slug}.png").exists():
            plots.draw(measured.figure, measured.points, output)
    report.write(output, found)


# --- what is printed ---------------------------------------------------------------------------


def _summed_up(measured: Measured) -> str:
    """A figure as a table: each mean, with the paper's number and the target where they stand."""
    from lab.axes import number
    from lab.comparison import compared, times
    from lab.report import shown
    from lab.runner import means

    figure = measured.figure
    found = compared(figure, measured.points)
    beside = {(b.series, b.ours.x): b for b in found if b.ours and b.of == figure.shows}
    rows = []
    for series, line in means(measured.points, figure.shows).items():
        for mean in line:
            known = beside.get((series, mean.x))
            told = [known.paper, known.target] if known else [None, None]
            cells = ["" if value is None else number(value) for value in told]
            verdict = known.verdict if known else ""
            rows.append([series, number(mean.x), shown(mean.mean), *cells, verdict])
    head = ["series", figure.x_label, figure.shows, "paper", "target", ""]
    others = [_other(b) for b in found if b.ours and (b.series, b.ours.x) not in beside]
    summary = f"\n{figure.title}\n{table(head, rows)}\n"
    if others:
        summary += f"\n{table(['beside', '', 'ours', 'paper', 'target', ''], others)}\n"
    faster = times(measured.points) if figure.name == "retraining" else ""
    return f"{summary}{faster}\n" if faster else summary


def _other(beside: Comparison) -> list[str]:
    """What one line is worth beside another, as a row."""
    from lab.axes import number
    from lab.report import ours

    known = ["" if value is None else number(value) for value in (beside.paper, beside.target)]
    place = "mean" if beside.x is None else number(beside.x)
    return [beside.series, place, ours(beside), *known, beside.verdict]


def _plain(done: Sequence[Measured], output: Path) -> dict[str, Any]:
    """Everything as JSON has it: what is no number there, as ∞, is None."""
    told = {
        "figures": [_plain_figure(measured, output) for measured in done],
        "report": str(output / "report.html"),
        "markdown": str(output / "report.md"),
    }
    plain: dict[str, Any] = _finite(told)
    return plain


def _plain_figure(measured: Measured, output: Path) -> dict[str, Any]:
    from lab import result_files
    from lab.comparison import compared
    from lab.runner import means

    figure = measured.figure
    lines = means(measured.points, figure.shows)
    beside = compared(figure, measured.points)
    return {
        "name": figure.name,
        "data": figure.data,
        "title": figure.title,
        "shows": figure.shows,
        "series": {series: [asdict(mean) for mean in line] for series, line in lines.items()},
        "beside": [asdict(found) | {"verdict": found.verdict} for found in beside],
        "missing": measured.missing,
        "command": measured.plan.command,
        "plot": str(output / f"{figure.slug}.png"),
        "results": str(result_files.place(output, figure.slug)),
    }


def _finite(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: _finite(value) for name, value in told.items()}
    if isinstance(told, list):
        return [_finite(value) for value in told]
    return None if isinstance(told, float) and not math.isfinite(told) else told


if __name__ == "__main__":
    run(parser())
