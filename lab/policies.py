"""Policies that learn from a bandit's log day by day: on raw rows, and on counts.

`RawPolicy` is Vowpal Wabbit's own online contextual bandit (``--cb_adf``) on raw values, context
and action multiplied (``-q ca``). It goes through every day once and keeps all that it learnt.

`CountPolicy` is a store of which a day is hot, and days are count windows. Counts grow by 1/p, for
which the noise makes room up to 1/p_min. At the end of each day Vowpal Wabbit learns the hot rows
from scratch: the click of the action that was taken, each row weighing 1/p, which is what
``--cb_type mtr`` does too. Nothing that it knew of the day before is left, but in the counts.

Both give each choice of a context a score, and take the highest.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lab.bandits import Bandit, Choices
from lab.raw_vowpal import arguments, piped, words
from lab.stores import DELTA, FOREVER, Clock
from pyramidion.config.settings import Settings
from pyramidion.errors import StateError
from pyramidion.learn.vowpal import VowpalClassifier
from pyramidion.store.pyramid import Pyramid

Floats = NDArray[np.float64]
UNIT = 16
"""Counts are kept in sixteenths, so that 1/p is not cut much."""
HOUR, DAY = 3_600, 86_400
PART = 4_096
"""Contexts whose choices are written or featurized at a time."""

RAW = {"learning_rate": 0.05, "bit_precision": 22, "cb_type": "mtr"}
COUNTS: dict[str, Any] = {"passes": 3, "learning_rate": 0.1}


class Policy(Protocol):
    """Learns days of a log, and scores choices."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def learn(self, rows: pa.Table) -> None:
        """Learn one more day."""

    def scores(self, choices: Choices) -> Floats:
        """How likely each choice is clicked, or what grows with it."""


# --- raw rows ------------------------------------------------------------------------------


class RawPolicy:
    """Vowpal Wabbit's contextual bandit on raw values."""

    def __init__(self, bandit: Bandit, **parameters: Any) -> None:
        self._bandit = bandit
        self._given = RAW | parameters
        self._folder = tempfile.TemporaryDirectory(prefix="pyramidion-bandit-")
        self._learnt = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    @property
    def _model(self) -> str:
        return f"{self._folder.name}/model"

    def learn(self, rows: pa.Table) -> None:
        """Go on from what was learnt before, through these rows once."""
        going = [f"--initial_regressor={self._model}"] if self._learnt else self._fresh()
        new = f"{self._model}.new"
        piped([*going, "--save_resume", f"--final_regressor={new}"], self._text(rows))
        Path(new).replace(self._model)
        self._learnt = True

    def _fresh(self) -> list[str]:
        return ["--cb_adf", "--rank_all", "--quadratic=ca", *arguments(self._given)]

    def scores(self, choices: Choices) -> Floats:
        """What is expected of each choice: Vowpal Wabbit tells costs, which are less clicks."""
        told = Path(f"{self._folder.name}/told")
        asking = ["--testonly", f"--initial_regressor={self._model}", f"--predictions={told}"]
        piped(asking, (_ended(self._lines(part), part) for part in parts(choices)))
        return -_scored(told.read_text(), choices)

    def _text(self, rows: pa.Table) -> Iterator[pa.Array]:
        """Rows with all of their choices; the one that was taken tells its cost and propensity."""
        weight, label = self._bandit.weight, self._bandit.label
        for start in range(0, rows.num_rows, PART):
            some = rows.slice(start, PART)
            choices = self._bandit.choices(some)
            taken = self._bandit.taken(some, choices)
            floor = np.maximum(some[weight].to_numpy(), self._bandit.p_min)
            cost = pc.cast(pc.negate(some[label]), pa.string()).combine_chunks()
            odds = pc.cast(pa.array(floor), pa.string())
            told = pc.binary_join_element_wise("0:", cost, ":", odds, " ", "")
            place = np.full(choices.rows.num_rows, -1)
            place[taken] = np.arange(len(taken))
            labels = pc.fill_null(told.take(pa.array(place, mask=place < 0)), "")
            yield _ended(pc.binary_join_element_wise(labels, self._lines(choices), ""), choices)

    def _lines(self, choices: Choices) -> pa.Array:
        """Each choice: what is known of the context, and of the action."""
        pieces: dict[str, list[Any]] = {"c": [pa.scalar("|c")], "a": [pa.scalar(" |a")]}
        for position, feature in enumerate(self._bandit.schema.features):
            space = "a" if feature.name in self._bandit.about else "c"
            column = choices.rows[feature.name].combine_chunks()
            pieces[space] += words(position, feature, column, "bins")
        told = [*pieces["c"], *pieces["a"], pa.scalar("\n")]
        return pc.binary_join_element_wise(*told, "")


def parts(choices: Choices) -> Iterator[Choices]:
    """Choices, some contexts at a time."""
    starts = choices.starts
    for first in range(0, len(choices.sizes), PART):
        sizes = choices.sizes[first : first + PART]
        yield Choices(choices.rows.slice(int(starts[first]), int(sizes.sum())), sizes)


def _ended(lines: pa.Array, choices: Choices) -> pa.Array:
    """Lines with an empty one after each context."""
    last = np.zeros(len(lines), dtype=bool)
    last[np.cumsum(choices.sizes) - 1] = True
    ends = pc.if_else(pa.array(last), "\n", "")
    return pc.binary_join_element_wise(lines, ends, "")


def _scored(text: str, choices: Choices) -> Floats:
    """Scores as they were written: ``choice:score`` for all of a context, the best first."""
    told = np.array(text.replace("\n", ",").replace(",,", ",").strip(",").split(","))
    if len(told) != choices.rows.num_rows:
        raise StateError("Vowpal Wabbit scored another number of choices than were asked about")
    split = np.char.partition(told, ":")
    place = np.repeat(choices.starts, choices.sizes) + split[:, 0].astype(np.int64)
    scores = np.empty(len(told))
    scores[place] = split[:, 2].astype(np.float64)
    return scores


# --- counts --------------------------------------------------------------------------------


@dataclass
class CountPolicy:
    """A store whose hot rows teach, day by day, a model on weighted counts."""

    bandit: Bandit
    epsilon: float = math.inf
    seed: int = 0

    def __enter__(self) -> Self:
        self._open = ExitStack()
        self._store = self._open.enter_context(_made(self.bandit, self.epsilon))
        self._model = VowpalClassifier(**COUNTS, random_state=self.seed)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def learn(self, rows: pa.Table) -> None:
        """Observe a day, let it end, and learn its rows by the counts of all days but them."""
        store, clock = self._store
        for batch in rows.to_batches(65_536):
            clock.now = float(batch.column("time")[-1].as_py())
            store.observe(batch)
        clock.now = (clock.now // DAY + 1) * DAY + HOUR  # the day is sealed, and hot yet
        store.advance()
        training = store.training_set()
        # A linear model has what groups say in their log-odds; their surplus is the same again.
        self._columns = [i for i, n in enumerate(training.names) if not n.startswith("surplus(")]
        self._model.fit(np.asarray(training.X)[:, self._columns], training.y, training.weights)

    def scores(self, choices: Choices) -> Floats:
        """The chance of a click, for each choice."""
        snapshot = self._store[0].snapshot()
        found = [
            self._model.predict_proba(np.asarray(snapshot.array(part.rows))[:, self._columns])[:, 1]
            for part in parts(choices)
        ]
        return np.concatenate(found)


@contextmanager
def _made(bandit: Bandit, epsilon: float) -> Iterator[tuple[Pyramid, Clock]]:
    """A store that begins with the log; gone afterwards."""
    longest = max(stop - start for start, stop in bandit.days)
    settings = Settings(
        epsilon=epsilon,
        delta=0.0 if len(bandit.schema.groups) < MANY else DELTA,
        p_min=bandit.p_min,
        weight_unit=UNIT,
        count_window="1d",
        retention=FOREVER,
        hot_window="1d",
        hot_step="1h",
        max_rows_per_window=longest,
        columns=("log-odds",),
        shares=shares(bandit),
        weights="equal",
        buckets=16_384,
        rows=1,
    )
    with tempfile.TemporaryDirectory(prefix="pyramidion-bandit-") as place:
        clock = Clock(float(next(bandit.read(0, 1)).column("time")[0].as_py()))
        keys = f"file:{place}/key"
        path = Path(place) / "store"
        with Pyramid.create(path, bandit.schema, settings, keys=keys, clock=clock) as store:
            yield store, clock


def shares(bandit: Bandit) -> dict[str, float]:
    """Shares of the budget by how many values a table has, which is public.

    Counts are the smaller the more values share them, so such tables get more. What tells of the
    context alone is the same for all choices: it gets a fifth of that.
    """
    sizes = {f.name: getattr(f, "codes", None) or OPEN for f in bandit.schema.features}
    tables = [(name,) for name in sizes] + [tuple(group) for group in bandit.schema.groups]
    return {
        ",".join(table): math.prod(sizes[name] for name in table) ** POWER
        * (1 if set(table) & set(bandit.about) else LITTLE)
        for table in tables
    }


POWER, LITTLE = 0.5, 0.2
"""Chosen on another world of the generated bandit than the one that is reported."""
OPEN = 100
"""Values that a feature is taken to have where none are declared."""
MANY = 12
"""Groups from which Gaussian noise is the smaller one."""
