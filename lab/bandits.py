"""Bandits: logs of what a policy chose to show, and the choices that it had.

A `Bandit` is a data set whose rows tell an action that was taken, its propensity and its reward.
Of each *context* all choices can be asked about. Two are here: Open Bandit's logs
(`lab.open_bandit`), and a generated one whose true click rates are known, so that
the value of any policy is exact, not estimated.

The generated one is a week of news. A context has six features of 3 to 200 values; one of ten
articles is shown. It is clicked with

    P(click) = sigmoid(base + article + features + features × article)

and the editors who log prefer articles by what they know: the articles, and their fit to the first
two features. Half of the time they draw at random, so no propensity is below 0.05.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit, softmax

from lab.datasets import ROWS, DataSet
from lab.raw_results import Range
from pyramidion.config.schema import Categorical, Label, Schema

NAME = "bandit"
"""The generated one, and the experiment."""

ACTIONS = 10
SIZES = {"region": 3, "device": 5, "hour": 24, "age": 12, "source": 50, "interest": 200}
"""Values of the features of a context."""

BASE, SPREAD, OWN, FIT = -3.2, 0.3, 0.2, 0.45
"""In logits: the base, deviations of the articles, of the features, and of their fit."""

KNOWN = 2
"""Features that the editors know of."""

EXPLORED, SHARPNESS = 0.5, 2.0
P_MIN = EXPLORED / ACTIONS
DAYS, DAY = 7, 86_400
CONTEXTS = 20_000
"""Contexts that policies are asked about; they are in no log."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Choices:
    """What could be shown: a row for each choice, those of a context together."""

    rows: pa.Table
    sizes: NDArray[np.int64]
    """How many choices each context has."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each context."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    def best(self, scores: Floats) -> NDArray[np.int64]:
        """The row of each context with the highest score; the first of several."""
        context = np.repeat(np.arange(len(self.sizes)), self.sizes)
        order = np.lexsort((np.arange(len(scores)), -scores, context))
        found: NDArray[np.int64] = order[self.starts]
        return found


@dataclass(frozen=True)
class Bandit(DataSet):
    """A log of actions, propensities and rewards, day by day."""

    days: Sequence[Range] = ()
    """The rows of each day."""
    p_min: float = 1.0
    """The least propensity, declared; smaller ones count as this one."""
    about: Sequence[str] = ()
    """The features that tell of the action; the others are the context's."""
    choices: Callable[[pa.Table], Choices] = field(kw_only=True)
    """What could have been shown in the contexts of rows."""
    judged: Callable[[pa.Table], pa.Table] = field(default=lambda rows: rows, kw_only=True)
    """Of a day's rows those on which policies are judged."""
    world: World | None = None
    """The truth, where it is known."""

    @property
    def weight(self) -> str:
        """The column of propensities."""
        return str(self.schema.weight)

    def taken(self, rows: pa.Table, choices: Choices) -> NDArray[np.int64]:
        """Which of the choices was logged, for each row."""
        same = np.ones(choices.rows.num_rows, dtype=bool)
        for name in self.about[:1]:
            logged = rows[name].to_numpy(zero_copy_only=False)
            same &= choices.rows[name].to_numpy(zero_copy_only=False) == np.repeat(
                logged, choices.sizes
            )
        found: NDArray[np.int64] = np.flatnonzero(same)
        return found


# --- the generated one -------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """What is true of the generated bandit: one world for each seed."""

    seed: int

    @property
    def _drawn(self) -> tuple[Floats, list[Floats], list[Floats]]:
        return _world(self.seed)

    def contexts(self, rows: int, part: int) -> dict[str, NDArray[np.int64]]:
        """So many contexts; the first values of a feature are the likeliest."""
        random = np.random.default_rng([self.seed, 1, part])
        return {
            name: np.minimum(random.geometric(2.5 / size, rows) - 1, size - 1)
            if size > ACTIONS
            else random.integers(0, size, rows)
            for name, size in SIZES.items()
        }

    def chances(self, contexts: dict[str, NDArray[np.int64]]) -> Floats:
        """The probability of a click: one row for each context, a column for each article."""
        articles, features, fits = self._drawn
        told = BASE + articles[None, :]
        for values, own, fit in zip(contexts.values(), features, fits, strict=True):
            told = told + own[values][:, None] + fit[values]
        chance: Floats = expit(told)
        return chance

    def propensities(self, contexts: dict[str, NDArray[np.int64]]) -> Floats:
        """How likely the editors show each article."""
        articles, _, fits = self._drawn
        liked = articles[None, :] + sum(
            fit[values] for values, fit in list(zip(contexts.values(), fits, strict=True))[:KNOWN]
        )
        drawn: Floats = softmax(SHARPNESS * liked, axis=1)
        return EXPLORED / ACTIONS + (1 - EXPLORED) * drawn

    def logged(self, rows: int, day: int) -> pa.Table:
        """What the editors showed on a day, and what was clicked."""
        contexts = self.contexts(rows, day)
        random = np.random.default_rng([self.seed, 2, day])
        odds, chance = self.propensities(contexts), self.chances(contexts)
        shown = (odds.cumsum(axis=1) < random.random(rows)[:, None]).sum(axis=1)
        shown = np.minimum(shown, ACTIONS - 1)
        each = np.arange(rows)
        return pa.table(
            {
                "time": day * DAY + np.sort(random.integers(0, DAY, rows)),
                "article": shown,
                **contexts,
                "propensity": odds[each, shown],
                "click": (random.random(rows) < chance[each, shown]).astype(np.int64),
            }
        )


@lru_cache(maxsize=4)
def _world(seed: int) -> tuple[Floats, list[Floats], list[Floats]]:
    random = np.random.default_rng([seed, 0])
    articles = SPREAD * random.normal(size=ACTIONS)
    features = [OWN * random.normal(size=size) for size in SIZES.values()]
    fits = [FIT * random.normal(size=(size, ACTIONS)) for size in SIZES.values()]
    return articles, features, fits


SCHEMA = Schema(
    time="time",
    label=Label("click", classes=[0, 1]),
    weight="propensity",
    features=[
        Categorical("article", domain=range(ACTIONS)),
        *(Categorical(name, domain=range(size)) for name, size in SIZES.items()),
    ],
    groups=[("article", name) for name in SIZES],
)
"""An article's fit to a context is what the groups count."""


def generate(rows: int, *, seed: int = 1) -> Bandit:
    """A week of so many rows a day."""
    world = World(seed)
    day = lru_cache(maxsize=2)(lambda number: world.logged(rows, number))

    def read(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for number in range(start // rows, -(-stop // rows)):
            first = number * rows
            some = day(number).slice(max(start - first, 0), min(stop - first, rows))
            yield from some.slice(0, min(stop, first + rows) - max(start, first)).to_batches(ROWS)

    return Bandit(
        NAME,
        f"generated bandit ({DAYS} days of {rows:,} articles shown)",
        SCHEMA,
        DAYS * rows,
        read,
        f"bandit:1:{rows}:{seed}",
        made_for=(NAME,),
        days=[(number * rows, (number + 1) * rows) for number in range(DAYS)],
        p_min=P_MIN,
        about=["article"],
        choices=every_article,
        world=world,
    )


def every_article(contexts: pa.Table) -> Choices:
    """All articles for each context."""
    many = contexts.num_rows
    repeated = contexts.take(pa.array(np.repeat(np.arange(many), ACTIONS)))
    known = {name: repeated[name] for name in SIZES}
    rows = pa.table({"article": np.tile(np.arange(ACTIONS), many), **known})
    return Choices(rows, np.full(many, ACTIONS))


def asked(world: World, rows: int = CONTEXTS) -> tuple[Choices, Floats, Floats]:
    """Contexts of no log: their choices, the true chance of each, and the editors' propensity."""
    contexts = world.contexts(rows, DAYS)
    choices = every_article(pa.table(contexts))
    return choices, world.chances(contexts).ravel(), world.propensities(contexts).ravel()
