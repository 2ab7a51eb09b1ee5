"""A store's life in a few seconds: a year of generated flights, day by day, on a simulated clock.

Rows come in, windows are sealed, hot rows leave, old windows are forgotten. At the end a
backup shows that what was erased does not come back.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyramidion import Categorical, KeyHolderError, Label, Pyramid, Schema, Settings

DAY = 86_400
DAYS, FLIGHTS = 365, 400  # days that pass, flights on each
CHANCES = {"AA": 0.1, "B6": 0.3, "UA": 0.6}

SCHEMA = Schema(
    time="time",
    label=Label("late", classes=[0, 1]),
    features=[Categorical("carrier", domain=list(CHANCES)), Categorical("tailnum")],
)
SETTINGS = Settings(
    epsilon=1.0,
    buckets=4_096,
    count_window="30d",
    retention="180d",
    hot_window="14d",
    hot_step="7d",
)


class Clock:
    """Tells the time; it passes when we say so."""

    def __init__(self, start: datetime) -> None:
        self.now = start.timestamp()

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now

    def __str__(self) -> str:
        return f"{datetime.fromtimestamp(self.now, UTC):%d %b %Y}"


def flights(rows: int, now: float, random: np.random.Generator) -> pa.Table:
    """Flights of the last hour; carriers differ in how often they are late."""
    chosen = random.integers(0, len(CHANCES), rows)
    chances = np.array(list(CHANCES.values()))[chosen]
    return pa.table(
        {
            "time": now - random.random(rows) * 3_600,
            "carrier": np.array(list(CHANCES))[chosen],
            "tailnum": [f"N{number}" for number in random.integers(0, 500, rows)],
            "late": (random.random(rows) < chances).astype(int),
        }
    )


def live(store: Pyramid, clock: Clock, random: np.random.Generator) -> None:
    """Let a year pass."""
    print(f"\n  {'day':<13}{'what happened':<58}{'hot rows':>9}{'windows':>9}{'MB':>7}")
    for day in range(DAYS):
        rows = flights(FLIGHTS, clock.now, random)
        done = store.advance()
        store.observe(rows, key=f"day {day}")  # a retry with the same key counts nothing twice
        told = [f"window {number} sealed" for number in done.sealed]
        told += [f"{done.rows_erased:,} raw rows erased"] if done.rows_erased else []
        told += [f"window {number} forgotten" for number in done.retired]
        if done.sealed or done.retired:
            now = store.status()
            windows = 0 if now.guarantee is None else now.guarantee.windows
            size = f"{now.hot_rows:>9,}{windows:>9}{now.bytes / 1e6:>7.1f}"
            print(f"  {clock!s:<13}{', '.join(told):<58}{size}", flush=True)
        clock.now += DAY


def show(store: Pyramid) -> None:
    """What is known at the end, and what it cost."""
    print("\n  chance of being late         true  from noisy counts")
    snapshot = store.snapshot()
    for carrier, chance in CHANCES.items():
        features = snapshot.featurize_one({"carrier": carrier, "tailnum": None})
        print(f"    {carrier:<25}{chance:8.2f}{features[0]:12.3f}")
    print(f"\n  the tables      {snapshot.guarantee}")
    report = store.ledger.report()
    print(
        f"  the ledger      {len(report.windows)} windows, each charged before its noise was drawn"
    )
    last = store.status().deletions[-1]
    when = datetime.fromtimestamp(last.at / 1e6, UTC)
    print(f"  last erasure    {last.what} ({last.why}, {when:%d %b %Y})")


def look_back(folder: Path, store: Pyramid, clock: Clock) -> None:
    """Try to bring back what was erased."""
    store.admin.backup(folder / "backup")
    clock.now += 7 * DAY
    gone = store.advance().rows_erased
    print(f"  a week later    {gone:,} more raw rows erased")
    try:
        Pyramid.restore(folder / "backup", folder / "restored", keys=keys(folder), clock=clock)
    except KeyHolderError:
        print("  a backup        made before that: no key that exists opens it")


def keys(folder: Path) -> str:
    """Where the store key is held: outside the store."""
    return f"file:{folder / 'elsewhere' / 'flights.key'}"


def main() -> None:
    """Create, live, look."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    begun = time.perf_counter()
    clock, random = Clock(datetime(2013, 1, 1, 12, tzinfo=UTC)), np.random.default_rng(2013)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Pyramid.create(folder / "flights", SCHEMA, SETTINGS, keys=keys(folder), clock=clock)
        with store:
            live(store, clock, random)
            show(store)
            look_back(folder, store, clock)
    print(f"\n  {time.perf_counter() - begun:.1f} s in all; docs/store.md says what this means\n")


if __name__ == "__main__":
    main()
