"""Results on disk: one Parquet file for each figure and data set, in long form.

A row is a point, with the job that measured it, and the run that did the job: versions,
machine, date and command. The file is rewritten after every job and then renamed, so a file is
never partial, and a run that was killed continues where it stopped. It also holds how its
figure is drawn, so a folder of such files is enough to write a report.

All losses of a figure are divided by the point whose detail says ``baseline``. Figures share such
jobs: a figure takes over what another one has measured.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from lab.points import Figure, Job, Point, Reference
from pyramidion import __version__
from pyramidion.errors import FormatError
from pyramidion.storage import disk

PACKAGES = ("numpy", "scikit-learn", "lightgbm", "vowpalwabbit")
NUMBERS = ("x", "loss", "ratio", "value", "seconds")
PLAN = b"pyramidion.evaluate"
SCHEMA = pa.schema(
    [("job", pa.string()), ("about", pa.string()), ("series", pa.string())]
    + [(name, pa.float64()) for name in NUMBERS]
    + [("seed", pa.int64()), ("detail", pa.string()), ("run", pa.string())]
)


@dataclass(frozen=True)
class Run:
    """What measured: the software, the machine (never its name), when, and by which command."""

    versions: Mapping[str, str]
    machine: str
    date: str
    command: str


def here(now: float, command: str) -> Run:
    """This software on this machine.

    >>> here(86_400, "python -m lab q1").date
    '1970-01-02 00:00 UTC'
    """
    versions = {"pyramidion": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    machine = f"{len(os.sched_getaffinity(0))} cores, {memory:.0f} GB memory, {platform.machine()}"
    return Run(versions, machine, f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M} UTC", command)


@dataclass(frozen=True)
class Plan:
    """What a file is for: its figure, the keys of all its jobs, the command that asks for them."""

    figure: Figure
    jobs: Sequence[str]
    command: str = ""


@dataclass(frozen=True)
class Measured:
    """A figure with the points that were measured for it, and the runs that did."""

    plan: Plan
    points: Sequence[Point]
    runs: Sequence[Run]
    missing: int
    """How many jobs are still to be done."""

    @property
    def figure(self) -> Figure:
        """How it is drawn."""
        return self.plan.figure


def place(folder: Path, slug: str) -> Path:
    """Where a figure's results are, below the folder of the report."""
    return folder / "results" / f"{slug}.parquet"


def done(folder: Path, slug: str) -> set[str]:
    """The keys of a figure's jobs that were done."""
    path = place(folder, slug)
    return set(_read(path)[1]) if path.exists() else set()


class ResultFile:
    """The results of one figure. With ``again``, what was there is forgotten.

    Jobs that files of other figures have (``lenders``) are taken over from these.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        run: Run,
        *,
        again: bool = False,
        lenders: Iterable[Path] = (),
    ) -> None:
        self.plan = plan
        self.path = place(folder, plan.figure.slug)
        self._run = _written(asdict(run))
        with disk.explained(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if again:
                self.path.unlink(missing_ok=True)
        self._rows = _read(self.path)[1] if self.path.exists() else {}
        for lender in lenders:
            lent = _read(lender)[1] if set(plan.jobs) - set(self._rows) else {}
            self._rows = {key: lent[key] for key in plan.jobs if key in lent} | self._rows

    def get(self, job: Job) -> list[Point] | None:
        """The points of a job; None: it was not done yet."""
        rows = self._rows.get(job.key)
        return None if rows is None else [_point(row) for row in rows]

    def put(self, job: Job, points: Iterable[Point]) -> None:
        """Keep the points of a job. On return they are on the disk."""
        known = {"job": job.key, "about": _written(dict(job.about)), "run": self._run}
        self._rows[job.key] = [known | _row(point) for point in points]
        self._write()

    def keep_only(self, keys: Collection[str]) -> None:
        """Drop the results of all other jobs."""
        self._rows = {key: rows for key, rows in self._rows.items() if key in keys}
        self._write()

    def _write(self) -> None:
        """A file beside the old one, then in its place: there is never half of one."""
        _divide(self._rows, self.plan.jobs)
        fresh = self.path.with_suffix(f".{os.getpid()}.fresh")
        told = {"plan": asdict(self.plan), "done": list(self._rows)}
        rows = [row for found in self._rows.values() for row in found]
        table = pa.Table.from_pylist(rows, SCHEMA.with_metadata({PLAN: _written(told)}))
        sink = pa.BufferOutputStream()
        parquet.write_table(table, sink, write_page_checksum=True)
        with disk.explained(self.path):
            fresh.unlink(missing_ok=True)  # of a run that was killed, with the same number
            disk.write_durably(fresh, [sink.getvalue()], mode=0o666)
            os.replace(fresh, self.path)
            disk.sync(self.path.parent)


def measured(path: Path) -> Measured:
    """What a file holds for its figure."""
    plan, rows = _read(path)
    asked = [row for key in dict.fromkeys(plan.jobs) for row in rows.get(key, [])]
    runs = [Run(**json.loads(told)) for told in dict.fromkeys(row["run"] for row in asked)]
    missing = len(set(plan.jobs) - set(rows))
    points = [_point(row) for row in asked]
    return Measured(plan, list(_placed(plan.figure, points)), runs, missing)


def _placed(figure: Figure, points: Iterable[Point]) -> Iterator[Point]:
    """The points with the baseline's where this figure has it: others measured it, too."""
    for point in points:
        if not point.detail.get("baseline"):
            yield point
        elif figure.baseline_at is not None:
            yield replace(point, x=figure.baseline_at)


def all_measured(folder: Path) -> list[Measured]:
    """All figures below the folder of a report, also of earlier runs."""
    return [measured(path) for path in sorted(place(folder, "").parent.glob("*.parquet"))]


# --- rows ----------------------------------------------------------------------------------


def _read(path: Path) -> tuple[Plan, dict[str, list[dict[str, Any]]]]:
    """A file's plan, and its rows by job."""
    data = disk.read(path)
    try:
        table = parquet.read_table(pa.BufferReader(data), page_checksum_verification=True)
        told = json.loads(table.schema.metadata[PLAN])
        rows: dict[str, list[dict[str, Any]]] = {key: [] for key in told["done"]}
        for row in table.cast(SCHEMA.with_metadata(table.schema.metadata)).to_pylist():
            rows[row["job"]].append(row)
        return _plan(told["plan"]), rows
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        raise FormatError(
            f"{path} is damaged, or of another version; delete it, and its figure is measured again"
        ) from None


def _divide(rows: Mapping[str, list[dict[str, Any]]], asked: Iterable[str]) -> None:
    """Set ratios: losses by the baseline's, once that is there."""
    losses = (
        row["loss"]
        for key in asked
        for row in rows.get(key, [])
        if json.loads(row["detail"]).get("baseline")
    )
    baseline = next(losses, math.nan)
    for row in (row for found in rows.values() for row in found):
        if math.isfinite(row["loss"] / baseline):
            row["ratio"] = row["loss"] / baseline


def _plan(told: dict[str, Any]) -> Plan:
    figure: dict[str, Any] = told["figure"]
    references = tuple(Reference(**reference) for reference in figure.pop("references"))
    drawn, undrawn = (tuple(figure.pop(name, ())) for name in ("drawn", "undrawn"))
    found = Figure(**figure, references=references, drawn=drawn, undrawn=undrawn)
    return Plan(found, told["jobs"], told["command"])


def _row(point: Point) -> dict[str, Any]:
    numbers = {name: float(getattr(point, name)) for name in NUMBERS}
    seed, detail = int(point.seed), _written(dict(point.detail))
    return {"series": point.series, **numbers, "seed": seed, "detail": detail}


def _point(row: Mapping[str, Any]) -> Point:
    numbers = {name: row[name] for name in NUMBERS}
    return Point(row["series"], seed=row["seed"], detail=json.loads(row["detail"]), **numbers)


def _written(told: Any) -> str:
    """As JSON; numbers of NumPy become plain ones."""
    return json.dumps(told, sort_keys=True, default=lambda number: number.item())
