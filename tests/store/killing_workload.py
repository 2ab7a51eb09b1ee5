"""What a store goes through before it is killed: a plan of verbs, the same for the same seed.

A plan depends on its seed alone, so a process that goes on after a kill does what the
killed one would have done. Simulated time moves by minutes; windows, hot steps and
retention are as short, so a dozen verbs see all of them end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from pyramidion import Categorical, Label, Schema, Settings

MINUTE = 60
WINDOW, STEP, SKEW = (m * MINUTE for m in (60, 10, 5))
WINDOW_ROWS, HOT_ROWS, STEP_ROWS = 40, 30, 8
START = 1_000_000 * WINDOW
GROUP = "a,b"
CYCLE = 24  # verbs from one intrusion to the next; count windows fill in between
INTRUSION = {5: "reseed", 6: "observe", 8: "reseed", 9: "rebuild"}
"""By its place in the cycle. A window is reseeded, rebuilt while all its rows are hot."""

SCHEMA = Schema(
    time="t",
    label=Label("y", classes=[0, 1]),
    features=[
        Categorical("a"),
        Categorical("b", domain=["x", "y"]),
        *(Categorical(name, domain=[f"{name}{value}" for value in range(4)]) for name in "cd"),
    ],
    groups=[("a", "b")],
    weight="p",
)
_COMMON = {
    "epsilon": 8.0,
    "delta": 0.0,
    "rows": 2,
    "buckets": 16,
    "p_min": 0.25,
    "selection_share": 0.1,
    "rebuild_share": 0.1,
    "max_rows_per_window": 10_000,
    "max_skew": "5m",
    "checkpoint_rows": 12,
}
BY_TIME = Settings(**_COMMON, count_window="1h", retention="3h", hot_window="20m", hot_step="10m")
BY_ROWS = Settings(
    **_COMMON,
    count_window=f"{WINDOW_ROWS} rows",
    retention="5h",  # the plan fills a window long before
    hot_window=None,
    hot_rows=HOT_ROWS,
    hot_step_rows=STEP_ROWS,
    hot_step="10m",
)

TYPES = pa.schema(
    [("t", pa.float64()), ("y", pa.int64()), ("p", pa.float64())]
    + [(name, pa.string()) for name in "abcd"]
)


@dataclass(frozen=True)
class Verb:
    """One call on the store."""

    index: int
    kind: str  # observe, resend, advance, withdraw, add, spend, reseed, rebuild
    now: int
    name: str = ""
    """What to withdraw."""
    number: int = 0
    """Of the batch: each that is observed has the next one."""
    key: str | None = None
    advance: bool = False
    """Whether to advance first; if not, a window that is over may still take rows."""
    table: pa.Table = field(default=None, repr=False)
    bad: int = 0
    """Rows to be refused: the last ones."""

    @property
    def good(self) -> pa.Table:
        """The rows to be accepted."""
        return self.table.slice(0, self.table.num_rows - self.bad)


class Plan:
    """An endless list of verbs."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self._random = Random(seed)
        self._late = settings.window_rows is None
        self._now, self._batches = START + self._random.randrange(WINDOW), 0
        self._verbs: list[Verb] = []
        self._withdrawable = list("cd")
        self._shift = self._random.randrange(6)

    def __getitem__(self, index: int) -> Verb:
        while len(self._verbs) <= index:
            self._verbs.append(self._next(len(self._verbs)))
        return self._verbs[index]

    def _next(self, index: int) -> Verb:
        random = self._random
        pause = (0, MINUTE) if random.random() < 0.4 else (6 * MINUTE, 20 * MINUTE)
        place = (index + self._shift) % CYCLE
        if place - 1 in INTRUSION or place - 2 in INTRUSION:
            pause = (0, MINUTE)
        self._now += random.randrange(*pause)
        turn = place % 6
        if turn == 1 and index > 5:
            name = GROUP
            if self._withdrawable and random.random() < 0.2:
                name = self._withdrawable.pop()
            return Verb(index, "withdraw", self._now, name)
        if turn == 4 and index > 5 and self._verbs[index - 3].name == GROUP:
            return Verb(index, "add", self._now)
        if index > 5 and place in INTRUSION:
            kind = INTRUSION[place]
            return self._observed(index) if kind == "observe" else Verb(index, kind, self._now)
        kind = random.choices(["observe", "advance", "spend", "resend"], [76, 6, 4, 14])[0]
        if kind == "resend":
            return self._resent(index)
        return self._observed(index) if kind == "observe" else Verb(index, kind, self._now)

    def _resent(self, index: int) -> Verb:
        """The newest batch that has a key, while it is surely hot."""
        for old in reversed(self._verbs[-3:]):
            if old.kind == "observe" and old.key and self._now < old.now + STEP:
                return Verb(
                    index,
                    "resend",
                    self._now,
                    number=old.number,
                    key=old.key,
                    table=old.table,
                    bad=old.bad,
                )
        return self._observed(index)

    def _observed(self, index: int) -> Verb:
        random, now = self._random, self._now
        self._batches += 1
        rows = random.randrange(1, 8)
        slot = now // WINDOW
        times = [max(now - random.randrange(SKEW), slot * WINDOW) for _ in range(rows)]
        if random.random() < 0.3:  # some a little in the future, maybe in the next window
            times = [time + random.choice([0, SKEW]) for time in times]
        if self._late and random.random() < 0.4:  # some of one older window
            old = slot - random.choice([1, 1, 1, 2, 5])
            late = [old * WINDOW + random.randrange(WINDOW) for _ in times]
            times = [random.choice(pair) for pair in zip(times, late, strict=True)]
        bad = random.choice([0, 0, 0, 1, 2])
        labels: list[int | None] = [random.randrange(2) for _ in times]
        for _ in range(bad):  # no label, or from tomorrow
            labels.append(random.choice([None, 1]))
            times.append(now + 24 * 60 * MINUTE)
        columns = {
            "t": [float(time) for time in times],
            "y": labels,
            "p": [random.choice([1.0, 0.5, 0.3, 0.1]) for _ in times],
            "b": [random.choice("xyz") for _ in times],
        }
        for name, values in (("a", 40), ("c", 5), ("d", 5)):
            columns[name] = [f"{name}{random.randrange(values)}" for _ in times]
        return Verb(
            index,
            "observe",
            now,
            number=self._batches,
            key=random.choice([None, f"batch {self._batches}"]),
            advance=random.random() < 0.3,
            table=pa.table(columns, TYPES),
            bad=bad,
        )
