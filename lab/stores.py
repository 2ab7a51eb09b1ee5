"""A store of the past, and what models trained from it lose on the future.

Nothing here counts, adds noise or featurizes: a store does, as anybody would use it. The rows
of the past are observed in time's order by a clock that goes with them, windows are sealed by
numbers of rows, and the newest rows are hot. Models are trained on `Pyramid.training_set` and
asked about future rows with `Pyramid.snapshot`.

A store of many windows reads weights from one window and uses them from the next one on. Where
the past is one window, there is none to read from. As in the paper, its oldest rows are then set
*aside*: weights are read from them with all of their budget, they are not counted, and the rest
is counted by these weights (`lab.holdout`). Groups are chosen so, too; or from all
rows, for a share of their budget, as of a history that is there before it is counted; or by the
store itself, from its first window.

The noise of a store cannot be repeated, on purpose. So a seed numbers repetitions here; it
decides what an estimator draws and nothing else.
"""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from lab.count_models import CountModel, mechanism, shares
from lab.datasets import DataSet
from lab.holdout import chosen_groups, coded_rows, private_shares
from lab.raw_results import Range, labels, loss
from pyramidion.config.schema import Categorical, Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.group_gain import SURE
from pyramidion.counts.snapshot import Snapshot
from pyramidion.privacy.selection import LEAKY, Method
from pyramidion.privacy.weights import by_size
from pyramidion.rows.encoding import table_shapes
from pyramidion.store.pyramid import Pyramid

MOST_TESTED = 500_000
"""Rows of the future that are predicted, at most: more would tell the same more slowly."""

STEPS = 20
"""Steps of the hot window."""

MANY = 5_000_000
"""Rows from which sketches are wider, and have one hash row: of that width they need no more."""

DELTA = 1e-9
"""The chance that the promise of Gaussian noise fails."""

OPTIONAL = ("judged", "leaky", "choosing", "paying")
"""What a setup tells of itself only where it is so."""

TABLES = 0.99
"""What the tables of groups that a store chose have of what it keeps back: it chooses once."""

FOREVER = "36500d"


@dataclass(frozen=True)
class Setup:
    """How a store counts the past."""

    hot: float
    """The share of the past that is hot."""
    epsilon: float = math.inf
    mechanism: Literal["laplace", "gaussian"] | None = None
    """None: the one that was chosen for the data set."""
    k: int = 1
    windows: int = 1
    shares: Literal["equal", "by hand", "proportional", "least-error", "half"] = "by hand"
    """How tables share the budget; the last three by weights that are read from rows aside."""
    leaky: bool = False
    """Whether these weights are read exactly, without regard to ε: to compare with."""
    aside: float = 0.0
    """The share of the past, its oldest rows, that is not counted."""
    groups: int = 0
    """How many groups are chosen and counted, too: from the rows aside with all of their budget."""
    paying: float = 0.0
    """Or from all rows that are counted, with this share of their budget; the rest counts them."""
    selection: Method = "top-k"
    """How they are chosen; by a method that leaks, without regard to ε."""
    group_share: float = 0.1
    """What their tables have of the budget together."""
    judged: bool = False
    """Whether models are given those alone whose sealed tables tell more than their parts."""
    choosing: float = 0.0
    """What windows keep back for groups that the store itself chooses, from its first window, and
    counts from the second on; 0: they are chosen from rows aside, before."""
    open: bool = False
    """Whether features of declared values are counted in sketches, too."""
    knobs: dict[str, Any] = field(default_factory=dict)
    """Further settings."""

    def settings(self, data: DataSet, rows: int) -> Settings:
        """The settings of a store that counts so many rows."""
        hot = max(1, round(self.hot * rows))
        many = rows >= MANY
        noise = self.mechanism or mechanism(data)
        weighted = self.shares == "by hand" and not self.open
        told: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": DELTA if noise == "gaussian" else 0.0,
            "k": self.k,
            "count_window": rows // self.windows,
            "retention": FOREVER,
            "hot_window": None,
            "hot_rows": hot,
            "hot_step_rows": max(1, hot // STEPS),
            "hot_step": FOREVER,
            "max_rows_per_window": max(rows // self.windows, self.k),
            "columns": ("log-odds",),
            "shares": shares(data) if weighted else None,
            "weights": self.shares if self.by_weights else "equal",
            "selection_share": self.paying,
            "rows": 1 if self.epsilon < math.inf and (noise == "laplace" or many) else 5,
            "buckets": 1_048_576 if many else 65_536,
        }
        return Settings(**(told | self.knobs))

    @property
    def by_weights(self) -> bool:
        """Whether the tables' shares are weights that are read from rows."""
        return self.shares not in ("equal", "by hand")

    @property
    def compared(self) -> bool:
        """Whether models are also trained without the columns of groups, on the same tables.

        Two stores differ in all of their noise, and that by more than few groups bring.
        """
        return self.groups > 0 and self.aside > 0 and not self.judged

    def told(self) -> dict[str, Any]:
        """All of it as JSON has it; rows aside and groups where there are some."""
        rarely = (
            "aside",
            "groups",
            "selection",
            "group_share",
            "judged",
            "leaky",
            "choosing",
            "paying",
        )
        plain = {f: getattr(self, f) for f in self.__dataclass_fields__ if f not in rarely}
        aside = {"aside": self.aside} if self.aside else {}
        grouped = {f: getattr(self, f) for f in rarely[1:4]} if self.groups else {}
        grouped |= {f: getattr(self, f) for f in OPTIONAL if getattr(self, f)}
        return plain | {"epsilon": str(self.epsilon)} | aside | grouped

    def but(self, **changed: Any) -> Setup:
        """The same with some things changed."""
        return replace(self, **changed)


@dataclass(frozen=True)
class Lost:
    """What a model on counts lost on the future."""

    model: str
    loss: float
    seconds: float
    """To train it, the features being there."""
    rows: int


class Clock:
    """Goes with the rows."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time of the last row that was observed."""
        return self.now


def opened(schema: Schema) -> Schema:
    """A schema whose categories are all counted in sketches."""
    features = [Categorical(f.name) if isinstance(f, Categorical) else f for f in schema.features]
    return replace(schema, features=tuple(features))


@contextmanager
def counted(data: DataSet, setup: Setup) -> Iterator[Pyramid]:
    """A store that has seen the past, in a directory that is gone afterwards."""
    rows = data.past - round(setup.aside * data.past)
    rows -= rows % setup.windows
    first = data.past - rows
    settings = setup.settings(data, rows)
    schema = opened(data.schema) if setup.open else data.schema
    if setup.by_weights:
        found = private_shares(data.read(0, first), schema, settings, exact=setup.leaky)
        settings = replace(settings, shares=found)
    hot = settings.hot_rows or 1
    if setup.choosing:
        settings = choosing(data, setup, settings, first)
    elif setup.groups:
        schema, settings = grouped(data, setup, schema, settings, first)
    with _created(data, first, schema, settings) as (store, clock):
        for batch in pieces(data, first, settings, hot):
            clock.now = time_of(batch, -1)
            store.observe(batch)
        if setup.choosing:
            clock.now = _leaving(data, settings, hot)
        store.advance()
        yield store


@contextmanager
def beginning(
    data: DataSet, setup: Setup, rows: int, step: int
) -> Iterator[tuple[Pyramid, Clock, Iterator[pa.RecordBatch]]]:
    """An empty store, its clock, and the newest rows of the past, in steps of the hot window."""
    knobs = {**setup.knobs, "hot_step_rows": step}
    settings = setup.but(knobs=knobs).settings(data, rows)
    first = data.past - rows
    batches = (
        batch
        for start in range(first, data.past, step)
        for batch in data.read(start, min(start + step, data.past))
    )
    with _created(data, first, data.schema, settings) as (store, clock):
        yield store, clock, batches


@contextmanager
def _created(
    data: DataSet, first: int, schema: Schema, settings: Settings
) -> Iterator[tuple[Pyramid, Clock]]:
    """A store that begins with a row, in a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="pyramidion-evaluate-") as place:
        clock = Clock(time_of(next(data.read(first, first + 1)), 0))
        keys = f"file:{place}/key"
        with Pyramid.create(Path(place) / "store", schema, settings, keys=keys, clock=clock) as p:
            yield p, clock


def grouped(
    data: DataSet, setup: Setup, schema: Schema, settings: Settings, first: int
) -> tuple[Schema, Settings]:
    """A schema with groups chosen from rows, and settings with their tables' shares.

    What rows that are counted pay for it is kept back from their tables (`selection_share`).
    """
    leaks = setup.selection == LEAKY
    paying = replace(settings, epsilon=math.inf) if leaks else settings
    asked: dict[str, Any] = {"number": setup.groups, "method": setup.selection}
    read = data.read(first, data.past) if setup.paying else data.read(0, first)
    asked["share"] = Fraction(repr(setup.paying)) if setup.paying else Fraction(1)
    coded = coded_rows(read, schema, paying)
    for group in chosen_groups(coded, schema, paying, **asked):
        schema = schema.plus(group)
    shares = {name: settings.share(name) for name in schema.feature_names}
    whole = setup.group_share / (1 - setup.group_share) * sum(shares.values())
    shapes = [shape for shape in table_shapes(schema, settings.dense_limit) if len(shape.parts) > 1]
    each = {name: whole * float(part) for name, part in by_size(settings, shapes).items()}
    return schema, replace(settings, shares=shares | each)


def choosing(data: DataSet, setup: Setup, settings: Settings, first: int) -> Settings:
    """Settings of a store that chooses groups from its first window, once, and counts them then.

    That window is hot as a whole when the next one opens: rows are kept for a time, not by number.
    """
    second = first + (data.past - first) // setup.windows
    began, ended = (time_of(next(data.read(row, row + 1))) for row in (first, second))
    kept = timedelta(seconds=math.ceil(ended - began) + 1)
    return replace(
        settings,
        hot_window=kept,
        hot_rows=None,
        hot_step=timedelta(seconds=1),
        selection_share=setup.choosing,
        selection_tables=TABLES,
        selection_groups=setup.groups,
        selection_every=setup.windows,
    )


def _leaving(data: DataSet, settings: Settings, hot: int) -> float:
    """When of the past so many rows are hot and those before them have left, none coming since."""
    border = data.past - hot + (settings.step_rows or 1) - 1
    return time_of(next(data.read(border, border + 1))) + (settings.hot_window_us or 0) / 1e6 - 1


def pieces(data: DataSet, first: int, settings: Settings, hot: int) -> Iterator[pa.RecordBatch]:
    """The past in batches that fit into windows; towards its end in steps of the hot window.

    So the hot window is full to the row, and so is the last window.
    """
    most = settings.window_rows or data.rows
    step = min(settings.step_rows or 1, most)
    border = max(first, data.past - 2 * hot)
    border += (data.past - border) % step
    for batch in data.read(first, border):
        for start in range(0, len(batch), most):
            yield batch.slice(start, most)
    waiting: list[pa.RecordBatch] = []
    for batch in data.read(border, data.past):
        waiting.append(batch)
        while sum(map(len, waiting)) >= step:
            table = pa.Table.from_batches(waiting)
            yield from table.slice(0, step).combine_chunks().to_batches()
            waiting = table.slice(step).to_batches()


def time_of(batch: pa.RecordBatch, row: int = -1) -> float:
    """When a row was; the last one, unless told."""
    return float(batch.column("time")[row].as_py())


def tested(data: DataSet) -> Range:
    """The rows of the future that are predicted."""
    return data.past, min(data.rows, data.past + MOST_TESTED)


@dataclass(frozen=True)
class Lesson:
    """What is trained on, and what is asked: features and labels of hot and of future rows."""

    X: NDArray[np.float32]
    y: NDArray[Any]
    future: NDArray[np.float32]
    truth: NDArray[np.float64]
    seconds: float
    """To make the training set."""

    def only(self, columns: Sequence[int]) -> Lesson:
        """The same with some of the columns."""
        return replace(self, X=self.X[:, columns], future=self.future[:, columns])

    def newest(self, rows: int) -> Lesson:
        """The same with the newest hot rows alone."""
        first = len(self.X) - rows
        return replace(self, X=self.X[first:], y=self.y[first:])


def lesson(data: DataSet, store: Pyramid) -> Lesson:
    """Training set and future of a store."""
    began = time.perf_counter()
    training = store.training_set()
    X, y = np.asarray(training.X), training.y
    seconds = time.perf_counter() - began
    future = features(store.snapshot(), data, tested(data))
    return Lesson(X, y, future, labels(data, tested(data)), seconds)


def kept_columns(store: Pyramid) -> list[int]:
    """The columns of features, and of groups whose sealed tables tell more than their parts."""
    poor = [
        f"|{'*'.join(group.features)})"
        for group in store.groups.status()
        if group.gain is None or group.error is None or group.gain <= SURE * group.error
    ]
    names = store.snapshot().names
    return [i for i, name in enumerate(names) if not any(part in name for part in poor)]


def feature_columns(store: Pyramid) -> list[int]:
    """The columns of features alone."""
    return [i for i, parts in enumerate(store.snapshot().parts) if len(parts) == 1]


def features(snapshot: Snapshot, data: DataSet, rows: Range) -> NDArray[np.float32]:
    """Features of rows, batch by batch."""
    parts = [np.asarray(snapshot.array(batch)) for batch in data.read(*rows)]
    return np.concatenate(parts)


def predicted(data: DataSet, estimator: Any, given: Lesson) -> NDArray[np.float64]:
    """What a model says of the future: the chance of the second class, or a number."""
    if data.schema.labels[0].continuous:
        numbers: NDArray[np.float64] = estimator.predict(given.future)
        return numbers
    chances: NDArray[np.float64] = estimator.predict_proba(given.future)[:, 1]
    return chances


def lost(data: DataSet, given: Lesson, models: Sequence[CountModel], seed: int) -> list[Lost]:
    """What each model loses, trained on a lesson."""
    found = []
    for model in models:
        estimator = model.make(given.X.shape[1], seed)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # stopping early is the plan
            estimator.fit(given.X, given.y)
        took = time.perf_counter() - began
        measured = loss(data.schema.labels[0], given.truth, predicted(data, estimator, given))
        found.append(Lost(model.name, measured, took, len(given.X)))
    return found
