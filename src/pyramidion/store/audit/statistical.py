"""The statistical audit: canaries through a whole store, guessed from the cells it releases.

Each round makes a store, observes the canaries that their coins let in, seals, and takes
the cells of a snapshot. A canary's score is the log-likelihood ratio of 'let in' against
'left out' over its cells in all tables:

    Σ over tables j and hash rows  (x w - w²/2) / σ_j²,   x = the cell less all other rows

and the guess is 'let in' where it is above 0. Under pure ε the best guess is an event
that rarely happens, 'every cell of one table has at least the canary's weight', so there
is one table and its likelihood ratio is all of e^ε.

The prior is left out of the score: all canaries share its few cells, and guesses must be
independent. Its noise is looked at by `pyramidion.store.audit.structural`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.arena import Arena
from pyramidion.errors import SchemaError
from pyramidion.privacy.audit import CONFIDENCE, gaussian_epsilon, gaussian_loss, pure_loss
from pyramidion.privacy.budget import epsilon_of
from pyramidion.store.audit.canaries import Canaries, Flags, Floats, plain_schema, schema_like, seen
from pyramidion.store.audit.trial import for_trial, trial

TABLES = 8
LEAST = 100  # canaries of a round: with fewer no bound says anything
SPARSE = 8  # buckets for each canary: few share a cell, so guesses are independent


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How much the cells give away of a canary, beside what the ledger says was spent.

    ``bound`` and ``promised`` are μ of Gaussian differential privacy, or pure ε.
    ``epsilon`` is the bound as ε at the δ that was promised.
    """

    mechanism: str
    bound: float
    promised: float
    epsilon: float
    ledger_epsilon: float
    delta: float
    k: int
    spent: Fraction
    tables: int
    canaries: int
    rounds: int
    hits: float
    false_alarms: float
    confidence: float = round(1 - 2 * (1 - CONFIDENCE), 6)
    """That the bound is one: both rates are within theirs."""

    @property
    def alarm(self) -> bool:
        """Whether more leaks than the ledger says."""
        return self.bound > self.promised

    @property
    def unit(self) -> str:
        """What the bound is a bound of."""
        return "ε" if self.mechanism == "laplace" else "μ"

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return told | {"spent": str(self.spent), "unit": self.unit, "alarm": self.alarm}

    def __str__(self) -> str:
        noise = "Laplace" if self.mechanism == "laplace" else "Gaussian"
        some = "observation" if self.k == 1 else f"{self.k} observations"
        verdict = "MORE LEAKS THAN THE LEDGER SAYS" if self.alarm else "within the ledger"
        return (
            f"{self.canaries * self.rounds:,} canaries in {_several(self.rounds, 'store')}, "
            f"{noise} noise, {_several(self.tables, 'table')}, any {some}\n"
            f"guessed 'in'    {self.hits:.2%} of those that were, {self.false_alarms:.2%} of those "
            f"that were not\n"
            f"leaks at least  {self._told(self.bound, self.epsilon)} "
            f"({self.confidence:.1%} confidence)\n"
            f"ledger says     {self._told(self.promised, self.ledger_epsilon)}\n"
            f"verdict         {verdict}"
        )

    def _told(self, loss: float, epsilon: float) -> str:
        if self.mechanism == "laplace":
            return f"ε = {loss:.3f}"
        return f"μ = {loss:.3f}, that is ε = {epsilon:.3f} at δ = {self.delta:g}"


def measure(
    settings: Settings,
    *,
    canaries: int,
    rounds: int = 1,
    like: Schema | None = None,
    seed: int | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> Measured:
    """Audit stores of these settings; ``like`` says which tables they have.

    Each round has a store of its own, and as many canaries. ``progress`` is called with their
    number after each. A ``seed`` fixes labels and coins, for tests; never the noise.
    """
    _refuse_unusable(settings, canaries, rounds)
    schema = _schema(settings, canaries, like)
    adapted = for_trial(
        settings, schema, rows=canaries * settings.k, buckets=_buckets(settings, schema, canaries)
    )
    random = np.random.default_rng(seed)
    guesses, included, spent = list[Flags](), list[Flags](), Fraction(0)
    for _ in range(rounds):
        drawn = Canaries.drawn(schema, adapted, canaries, random)
        guessed, paid = _round(drawn)
        guesses.append(guessed)
        included.append(drawn.included)
        spent = max(spent, paid)  # all rounds spend the same
        progress(canaries)
    found, coins = np.concatenate(guesses), np.concatenate(included)
    return Measured(
        **_losses(settings, found, coins, spent),
        mechanism=settings.mechanism,
        k=settings.k,
        spent=spent,
        tables=len(schema.tables),
        canaries=canaries,
        rounds=rounds,
        hits=float(found[coins].mean()),
        false_alarms=float(found[~coins].mean()),
    )


def _refuse_unusable(settings: Settings, canaries: int, rounds: int) -> None:
    if not settings.private:
        raise SchemaError(
            "with epsilon = inf nothing is promised, so there is nothing to audit; choose a "
            "finite epsilon"
        )
    if canaries < LEAST or rounds < 1:
        raise SchemaError(
            f"an audit needs at least {LEAST} canaries and 1 round, or its bound says nothing; "
            f"give more"
        )


def _schema(settings: Settings, canaries: int, like: Schema | None) -> Schema:
    """Tables like those of a schema, or like `plain_schema`; one open table for pure ε."""
    if settings.mechanism == "laplace" or like is None:
        tables = 1 if settings.mechanism == "laplace" else TABLES
        weighted = settings.p_min is not None
        like = plain_schema(
            tables, labels=2 if like is None else like.cardinality, weighted=weighted
        )
    return schema_like(like, canaries)


def _buckets(settings: Settings, schema: Schema, canaries: int) -> int:
    """Wide enough that canaries rarely share a cell; noise does not depend on it."""
    cells = 2 * canaries // schema.cardinality
    if settings.mechanism == "laplace" or settings.sketch == "count-min":
        cells *= SPARSE  # elsewhere signs make what shares a cell cancel out, over many tables
    return max(256, 1 << (cells - 1).bit_length())


def _round(canaries: Canaries) -> tuple[Flags, Fraction]:
    """What is guessed of each canary from a store, and what its ledger says was spent."""
    with trial(canaries.schema, canaries.settings) as made:
        made.observe(canaries.rows())
        keys = made.keys(canaries.features())
        made.end_window()
        arena, spent = made.released(), made.spent(1)
        own = seen(arena, keys, canaries.labels, canaries.included, weight=canaries.weight)
    return _guesses(own, arena, canaries), spent


def _guesses(own: list[Floats], arena: Arena, canaries: Canaries) -> Flags:
    """Which canaries were let in, as far as their cells tell."""
    weight = canaries.weight
    if canaries.settings.mechanism == "laplace":
        every: Flags = np.all([(cells >= weight).all(axis=0) for cells in own], axis=0)
        return every
    score = np.zeros(len(canaries))
    for cells, table in zip(own, arena.layout.tables[1:], strict=True):
        score += ((cells - weight / 2) * weight).sum(axis=0) / table.variance
    return score > 0


def _losses(settings: Settings, guesses: Flags, coins: Flags, spent: Fraction) -> dict[str, float]:
    """The bound and the ledger's promise, in the mechanism's own unit and as ε at δ."""
    if settings.mechanism == "laplace":
        bound, paid = max(pure_loss(guesses, coins), 0.0), float(spent)
        return {
            "bound": bound,
            "promised": paid,
            "epsilon": bound,
            "ledger_epsilon": paid,
            "delta": 0.0,
        }
    bound = max(gaussian_loss(guesses, coins), 0.0)
    return {
        "bound": bound,
        "promised": math.sqrt(2 * spent),
        "epsilon": gaussian_epsilon(mu=bound, delta=settings.delta),
        "ledger_epsilon": epsilon_of(rho=float(spent), delta=settings.delta),
        "delta": settings.delta,
    }


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
