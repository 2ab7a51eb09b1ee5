"""The flights of 2013 as a stream that lives: they come to a service day by day, while one looks.

Time is simulated, and stands still while the store does what is due: at the beginning of each day
hot rows leave, windows seal and retire, models are trained; then the day's flights come in a few
pieces. Before they come, the models are asked about some of them. So a slow machine makes the
year longer, and nothing late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pyramidion.config.settings import Settings
from pyramidion.demo.flights import BEGIN, DAY, FEATURES, Flights, settings
from pyramidion.demo.models import LOGISTIC, TREES
from pyramidion.demo.year import Clock, Days
from pyramidion.errors import PyramidionError
from pyramidion.store.pyramid import Pyramid
from pyramidion.web.client import Client

STREAM = "flights"
LAST = 365  # days of the year
PIECES = 4  # of a day
ASKED = 50  # flights of a day that models are asked about before they come
BY_HAND = ("carrier", "weekday")
"""A group that somebody adds on the second day."""

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    LOGISTIC: (
        "pyramidion.demo.models.Levelled",
        {
            "estimator": {
                "class": "Pipeline",
                "params": {
                    "steps": [
                        ["scaler", {"class": "FlooredScaler"}],
                        ["linear", {"class": "LogisticRegression", "params": {"C": 0.001}}],
                    ]
                },
            },
            "features": FEATURES,
        },
    ),
    TREES: (
        "pyramidion.demo.models.Levelled",
        {
            "estimator": {
                "class": "LGBMClassifier",
                "params": {
                    "n_estimators": 100,
                    "learning_rate": 0.05,
                    "num_leaves": 15,
                    "min_child_samples": 100,
                    "reg_lambda": 10.0,
                    "colsample_bytree": 0.5,
                    "random_state": 0,
                    "n_jobs": 1,
                },
            },
            "features": FEATURES,
        },
    ),
}
"""As somebody would register them over HTTP. Those of `models` know how many columns there are;
these take a group that is added later."""


def live_settings() -> Settings:
    """Those of the year, but the past is shorter, so that windows retire while one looks."""
    return replace(settings(retention="90d"), vault_every="1d")


@dataclass(frozen=True)
class Moment:
    """What there is at one moment of the year."""

    at: str
    hot: int
    summarised: int
    sealed: int
    gone: int
    epsilon: float | None

    @classmethod
    def of(cls, told: dict[str, Any]) -> Moment:
        """As a service tells the state of a stream."""
        windows, promised = told["windows"], told["guarantee"] or {}
        erased = sum(each["rows"] for each in windows if each["state"] == "erased")
        return cls(
            at=f"{datetime.fromtimestamp(told['at'] / 1e6, UTC):%Y-%m-%dT%H:%M}",
            hot=told["hot_rows"],
            summarised=told["summarised_rows"],
            sealed=told["vault"]["rows"],
            gone=max(0, erased - told["vault"]["alone"]),
            epsilon=promised.get("epsilon"),
        )


def days_until(when: date) -> int:
    """How many days of the year there are before one."""
    return (when - BEGIN.date()).days


def one_in(flights: Flights, number: int) -> Flights:
    """Every so many flights one."""
    taken = np.arange(0, flights.rows.num_rows, number)
    return replace(flights, rows=flights.rows.take(taken))


def _between(flights: Flights, first: float, last: float) -> pa.Table:
    """The flights from one moment up to, not with, another; in days of the year."""
    times = flights.column("time")
    moments = [BEGIN.timestamp() + day * DAY for day in (first, last)]
    start, stop = np.searchsorted(times, moments).tolist()
    return flights.rows.slice(start, stop - start)


def prepare(
    path: Path,
    flights: Flights,
    clock: Clock,
    days: int,
    *,
    keys: str,
    vault: Path,
    watch: Callable[[int], object],
) -> None:
    """Make a store that has seen the first days of the year; ``watch`` is told of rows.

    The vault's custodian is nobody: the private half of the key is thrown away here.
    """
    from pyramidion.vault.key_pairs import PrivateKey

    clock.end(days)
    with Pyramid.create(
        path,
        flights.schema,
        live_settings(),
        keys=keys,
        clock=clock,
        vault=str(vault),
        custodian=PrivateKey.new().public,
    ) as store:
        history = Days(_between(flights, 0, days))
        with closing(store.replay(history)) as receipts:  # type: ignore[type-var]
            for receipt in receipts:
                watch(receipt.accepted)


class Flow:
    """Sends the rest of the year to a service, from a thread of its own.

    ``pace`` is in days of the year for each second; ``tell`` is told of each piece. It ends after
    the piece at hand when ``stop`` is set.
    """

    def __init__(
        self,
        client: Client,
        flights: Flights,
        clock: Clock,
        first: int,
        *,
        pace: float,
        tell: Callable[[Moment], object],
        stop: threading.Event,
    ) -> None:
        self._client, self._flights, self._clock = client, flights, clock
        self._first, self._pace, self._tell = first, pace, tell
        self._stop = stop
        self.problem: PyramidionError | None = None
        """What ended it before its time."""
        self.over = False
        """Whether the year is over."""
        self._thread = threading.Thread(target=self._run, name="pyramidion flights")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self) -> None:
        """Wait until it has ended, if it began."""
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            for day in range(self._first, LAST):
                if self._stop.is_set():
                    return
                self._day(day)
            self.over = True
        except PyramidionError as problem:
            if not self._stop.is_set():
                self.problem = problem

    def _day(self, day: int) -> None:
        began = time.monotonic()
        self._clock.now = BEGIN.timestamp() + day * DAY
        self._client.advance(STREAM)
        if day == self._first:
            for name, (estimator, params) in MODELS.items():
                self._client.register(STREAM, name, estimator, params)
        if day == self._first + 1:
            self._client.add_group(STREAM, BY_HAND)
        self._ask(_between(self._flights, day, day + 1).slice(0, ASKED))
        wait = max(0.0, began + 1 / self._pace - time.monotonic()) / PIECES
        for piece in range(PIECES):
            start, stop = (day + place / PIECES for place in (piece, piece + 1))
            rows = _between(self._flights, start, stop)
            self._clock.now = BEGIN.timestamp() + stop * DAY - 1.0
            if rows.num_rows:
                self._client.observe(STREAM, rows)
            self._tell(Moment.of(self._client.status(STREAM)))
            if self._stop.wait(wait):
                return

    def _ask(self, rows: pa.Table) -> None:
        """Ask every model that there is; one that cannot answer yet is asked tomorrow."""
        for name, model in self._client.models(STREAM).items():
            if model["available"] and rows.num_rows:
                try:
                    self._client.predict_proba(STREAM, name, rows)
                except PyramidionError:  # it was removed, or expired, meanwhile
                    continue
