"""The year, month by month: predict a month with what is known before it, then observe it.

The clock is a simulated one, moved to the end of each month before that is replayed. Windows
seal and retire, hot rows are erased, models go with the rows they saw, as they would have
day by day. Losses are of single months of a public data set; of private rows they would be P1,
no better protected than the rows.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.metrics import log_loss

from pyramidion.config.settings import Settings
from pyramidion.demo.flights import BEGIN, DAY, Flights
from pyramidion.demo.models import NAMES, Floats, estimators
from pyramidion.demo.raw import Twins
from pyramidion.rows.history import Piece, Replay
from pyramidion.rows.text_files import Types
from pyramidion.store.pyramid import Pyramid
from pyramidion.store.status import Status

MICRO = 1_000_000


@dataclass(frozen=True)
class Exposure:
    """What there is at one moment: raw rows, rows that are only counts any more, and no more.

    ``collected`` is the sum of the three.
    """

    day: int  # from the first of January
    hot: int
    counted: int
    gone: int

    @property
    def collected(self) -> int:
        """All rows observed until then."""
        return self.hot + self.counted + self.gone


@dataclass(frozen=True)
class Loss:
    """Log loss of a model on private counts, and on all raw flights."""

    private: float
    raw: float

    @property
    def ratio(self) -> float:
        """Below 1 beats the raw one."""
        return self.private / self.raw


@dataclass(frozen=True)
class Month:
    """A month: how well it was predicted, and what was there when it was over."""

    number: int
    flights: int
    late: float
    losses: dict[str, Loss]  # by model; empty where nothing could be predicted
    prior: float | None
    exposure: Exposure
    epsilon: float
    sealed: int
    erased: int

    @property
    def name(self) -> str:
        """As people call it."""
        return calendar.month_name[self.number]


@dataclass(frozen=True)
class Life:
    """A window: its days, its rows, whether it is erased, and the ε that was spent on a row."""

    number: int
    start: float
    stop: float
    rows: int
    state: str
    epsilon: float


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now = BEGIN.timestamp()

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now

    def end(self, days: int) -> None:
        """Move to the last moment of some day of the year, counted from 1."""
        self.now = BEGIN.timestamp() + days * DAY - 1.0


class Days(Replay):
    """Flights that are in memory already, a piece for each day."""

    def __init__(self, rows: pa.Table) -> None:
        self._table = rows
        self._times: NDArray[np.int64] = rows.column("time").to_numpy() * MICRO
        self.rows = rows.num_rows
        self.first, self.last = int(self._times[0]), int(self._times[-1])
        self.fingerprint = blake2b(repr((self.rows, self.first, self.last)).encode()).digest()

    def chunks(self, *, skip: int = 0, types: Types | None = None) -> Iterator[Piece]:  # noqa: ARG002
        """The flights of one day after the other."""
        days = self._times // (DAY * MICRO)
        ends = [*(np.flatnonzero(np.diff(days)) + 1), self.rows]
        start = skip
        for end in ends:
            if end > start:
                yield self._table.slice(start, end - start), self._times[start:end]
                start = end


class Year:
    """A replay of the first months of the year, into a store in some folder."""

    def __init__(self, flights: Flights, settings: Settings, months: int) -> None:
        self._flights = flights
        self._settings = settings
        self._months = range(1, months + 1)
        self._twins = Twins(flights)
        self._clock = Clock()
        self.exposures: list[Exposure] = []
        self.lives: list[Life] = []

    @property
    def rows(self) -> int:
        """How many flights there are to replay."""
        return self._flights.until(self._months[-1] + 1)

    def replay(self, folder: Path, watch: Callable[[int], object]) -> Generator[Month, None, None]:
        """Make a store, and go through the months; ``watch`` is told of rows that were observed."""
        schema, keys = self._flights.schema, f"file:{folder / 'keys' / 'store.key'}"
        with Pyramid.create(
            folder / "store", schema, self._settings, keys=keys, clock=self._clock
        ) as store:
            for month in self._months:
                predicted = self._predicted(store, month)
                self._observe(store, month, watch)
                if month == 1:
                    features, columns = len(schema.features), len(store.snapshot().names)
                    for name, estimator in estimators(columns, features).items():
                        store.register(name, estimator)
                yield self._month(store, month, predicted)
            self.lives = list(_lives(store))

    def _predicted(self, store: Pyramid, month: int) -> dict[str, Floats]:
        """Probabilities of the models that there are."""
        rows = self._flights.of(month)
        return {name: store.predict_proba(name, rows)[:, 1] for name in store.models}

    def _observe(self, store: Pyramid, month: int, watch: Callable[[int], object]) -> None:
        history = Days(self._flights.of(month))
        days = int(history.last or 0) // (DAY * MICRO) - int(BEGIN.timestamp()) // DAY
        self._clock.end(days + 1)
        collected = self._flights.until(month)
        for receipt in store.replay(history):
            collected += receipt.accepted
            self._expose(store, collected)
            watch(receipt.accepted)
        self._expose(store, collected)  # the last day, when what was due then is done

    def _expose(self, store: Pyramid, collected: int) -> None:
        """Note what is there after so many flights; once for each day."""
        last = self._flights.column("time")[collected - 1]
        found = _exposure(store.status(), collected, int(last - BEGIN.timestamp()) // DAY)
        if self.exposures and self.exposures[-1].day == found.day:
            self.exposures.pop()
        self.exposures.append(found)

    def _month(self, store: Pyramid, month: int, predicted: dict[str, Floats]) -> Month:
        past, end = self._flights.until(month), self._flights.until(month + 1)
        truth = self._flights.late[past:end]
        told, losses, prior = store.status(), dict[str, Loss](), None
        if predicted:
            raw = self._twins.predict(month)
            losses = {
                name: Loss(log_loss(truth, predicted[name]), log_loss(truth, raw[name]))
                for name in NAMES
            }
            rate = self._flights.late[:past].mean()
            prior = float(log_loss(truth, np.full(end - past, rate)))
        states = [window.state for window in told.windows]
        return Month(
            number=month,
            flights=end - past,
            late=float(truth.mean()),
            losses=losses,
            prior=prior,
            exposure=self.exposures[-1],
            epsilon=store.ledger.report().epsilon,
            sealed=states.count("sealed"),
            erased=states.count("erased"),
        )


def _exposure(found: Status, collected: int, day: int) -> Exposure:
    gone = sum(window.rows for window in found.windows if window.state == "erased")
    return Exposure(day, found.hot_rows, collected - found.hot_rows - gone, gone)


def _lives(store: Pyramid) -> Iterator[Life]:
    spent = {window.number: window.epsilon for window in store.ledger.report().windows}
    for window in store.status().windows:
        if window.start is not None and window.stop is not None and window.rows:
            start, stop = (
                (at / MICRO - BEGIN.timestamp()) / DAY for at in (window.start, window.stop)
            )
            epsilon = spent[window.number]
            yield Life(window.number, start, stop, window.rows, window.state, epsilon)
