"""The structural audit: facts about order, noise and signs that hold on every run of a store.

    in order      charged before it is drawn, durable before a row on it is acknowledged
    one by one    no row changes how another one is read, by any way in
    one draw      the same in every state of a window, and there before the first row
    paid for      as large as the ledger says, in every table and in the prior
    independent   between windows, tables and hash rows
    bounded       weights at most Ω, signs even and independent
    forgotten     a superseded state opens with no key once rows have left

Statistics may be off by chance: each is allowed six standard deviations, which happens
once in 500 million; there are about two hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.store.audit.canaries import (
    Canaries,
    Floats,
    Integers,
    placements,
    plain_schema,
    schema_like,
)
from pyramidion.store.audit.life import Life, lived
from pyramidion.store.audit.sizes import shares_of_the_ledger
from pyramidion.store.audit.trial import for_trial, trial
from pyramidion.store.audit.ways import undisturbed
from pyramidion.store.audit.witness import Witness

CANARIES = 4_000
BUCKETS = 16_384  # for two classes; more classes have fewer buckets each
WINDOWS = 3
TABLES = 5
DEVIATIONS = 6.0
FEW = 100  # cells: too few for a correlation
WEIGHTED = {"p_min": 0.05, "weight_unit": 4}


@dataclass(frozen=True)
class Check:
    """One fact, whether it holds, and what was found."""

    fact: str
    holds: bool
    found: str

    def __str__(self) -> str:
        return f"{'✓' if self.holds else '✗'} {self.fact}: {self.found}"


def checks(
    settings: Settings,
    like: Schema | None = None,
    *,
    progress: Callable[[int], object] = lambda _: None,
) -> tuple[Check, ...]:
    """All structural checks, on temporary stores of these settings.

    ``progress`` is called with the number of canaries after each window.
    """
    like = like or plain_schema(TABLES, weighted=settings.p_min is not None)
    witness, lives = _lives(settings, like, progress)
    return (
        charged_first(witness),
        durable_first(witness),
        read_alone(),
        one_draw(lives),
        prior_noise(lives),
        paid_for(lives),
        *independent(lives),
        even_signs(lives[0]),
        clipped(settings),
        forgotten(lives),
    )


def _lives(
    settings: Settings, like: Schema, progress: Callable[[int], object]
) -> tuple[Witness, list[Life]]:
    schema = schema_like(like, CANARIES)
    buckets = max(256, 1 << (2 * BUCKETS // schema.cardinality).bit_length() - 1)
    adapted = for_trial(settings, schema, rows=CANARIES * settings.k, buckets=buckets)
    random, lives = np.random.default_rng(), []
    with trial(schema, adapted) as made:
        witness = Witness(made.store)
        for _ in range(WINDOWS):
            lives.append(lived(made, Canaries.drawn(schema, adapted, CANARIES, random)))
            progress(CANARIES)
        # The last window is opened by the rows that come to it, as most are.
        made.observe(Canaries.drawn(schema, adapted, CANARIES, random).rows())
    return witness, lives


# --- order ----------------------------------------------------------------------------------------


def charged_first(witness: Witness) -> Check:
    """The ledger is durable before the noise that it pays for exists."""
    return _all("every draw of noise was charged before it was made", witness.draws, "draws")


def durable_first(witness: Witness) -> Check:
    """A row is acknowledged only where its window's noise is on the disk."""
    fact = "noise was on disk before a row on it was acknowledged"
    return _all(fact, witness.acknowledgements, "acknowledgements")


def read_alone() -> Check:
    """What a row is does not follow from other rows, whichever way it comes."""
    with TemporaryDirectory(prefix="pyramidion-audit-") as folder:
        same = list(undisturbed(Path(folder)))
    return _all("no row changes how another one is read", same, "batches")


def _all(fact: str, seen: list[bool], what: str) -> Check:
    return Check(fact, bool(seen) and all(seen), f"{sum(seen)} of {len(seen)} {what}")


def one_draw(lives: Iterable[Life]) -> Check:
    """Each state less its exact counts is the noise of its birth: no noise comes later."""
    same = [
        all((left == noise).all() for left, noise in zip(residuals, life.noise, strict=True))
        for life in lives
        for residuals in life.residuals()
    ]
    return _all("a state less its exact counts is the noise of its birth", same, "states")


def forgotten(lives: Iterable[Life]) -> Check:
    """Two states subtract to exact counts, so the key of the older dies before rows leave."""
    told = [(life.superseded, life.readable) for life in lives]
    superseded, readable = (sum(column) for column in zip(*told, strict=True))
    return Check(
        "no key opens a superseded state once rows have left",
        superseded > 0 and readable == 0,
        f"{readable} of {superseded} superseded states open",
    )


# --- noise ----------------------------------------------------------------------------------------


def prior_noise(lives: list[Life]) -> Check:
    """The label totals carry noise like every other table."""
    (share, *_), cells = shares_of_the_ledger(lives), np.concatenate([_prior(x) for x in lives])
    deviation = float(np.sqrt((cells.astype(np.float64) ** 2).mean()))
    found = f"deviation {deviation:.1f} over {cells.size} cells"
    return Check("the prior carries the noise that is paid for", share <= 1, found)


def _prior(life: Life) -> Integers:
    return life.noise[0].reshape(-1)


def paid_for(lives: list[Life]) -> Check:
    """What the noise of all tables lets through is at most what the ledger says of a window."""
    fact = "all tables let through at most what the ledger says"
    shares, reports = shares_of_the_ledger(lives), [life.charged for life in lives]
    if any(report is None for report in reports):
        return Check(fact, False, "nothing was charged")
    worst, spent, unit = 0.0, 0.0, ""
    for life, report in zip(lives, reports, strict=True):
        amounts = life.amounts()
        let = sum(share * float(amount) for share, amount in zip(shares, amounts, strict=True))
        if report is not None and let >= worst:
            worst, spent, unit = let, float(report.spent), report.unit
    factor, name = (2, "Σ μ²") if unit == "rho" else (1, "Σ ε")
    found = f"{name} of at least {factor * worst:.4f}, ledger {factor * spent:.4f}"
    return Check(fact, worst <= spent and max(shares) <= 1, found)


def independent(lives: list[Life]) -> Iterator[Check]:
    """Noise is drawn anew for each window, each table and each hash row."""
    noises = [[table for table in life.noise if table[0].size >= FEW] for life in lives]
    one = noises[0]
    yield _uncorrelated(
        "windows",
        (
            (first[row], second[row])
            for tables in zip(*noises, strict=True)
            for first, second in combinations(tables, 2)
            for row in range(len(first))
        ),
    )
    yield _uncorrelated(
        "tables",
        (
            (first[row], second[row])
            for first, second in combinations(one, 2)
            for row in range(min(len(first), len(second)))
        ),
    )
    yield _uncorrelated("hash rows", (pair for table in one for pair in combinations(table, 2)))


def _uncorrelated(what: str, pairs: Iterable[tuple[Integers, Integers]]) -> Check:
    found = [_correlation(first, second) for first, second in pairs]
    largest = max(found, default=0.0)
    return Check(
        f"noise is independent between {what}",
        largest < DEVIATIONS,
        f"largest |r| of {len(found)} pairs is {largest:.1f}/√cells",
    )


def _correlation(first: Integers, second: Integers) -> float:
    """|r| √cells, over the cells that both have; without noise it is infinite."""
    cells = min(first.size, second.size)
    x, y = (cut.reshape(-1)[:cells].astype(np.float64) for cut in (first, second))
    size = float((x @ x) * (y @ y)) ** 0.5
    return abs(float(x @ y)) / size * cells**0.5 if size else float("inf")


# --- counts ---------------------------------------------------------------------------------------


def even_signs(life: Life) -> Check:
    """What the store added to a sketch's cells has fair signs, unrelated between hash rows."""
    fact = "signs are even, and independent between hash rows"
    sketches = [
        number
        for number, table in enumerate(life.layout.tables)
        if table.kind == "count-median" and number
    ]
    if not sketches:
        return Check(fact, True, "no table has signs")
    added = np.concatenate([np.sign(_alone(life, number)) for number in sketches], axis=1)
    even = [abs(float(row.mean())) for row in added]
    apart = [abs(float((a * b).mean())) for a, b in combinations(added, 2)]
    largest = max(even + apart) * added.shape[1] ** 0.5
    found = f"largest mean of {added.shape[1]:,} signs or products is {largest:.1f}/√signs"
    return Check(fact, largest < DEVIATIONS, found)


def clipped(settings: Settings) -> Check:
    """Rows whose propensity is below p_min add Ω to a cell, and not more."""
    weighted = settings if settings.p_min is not None else replace(settings, **WEIGHTED)  # type: ignore[arg-type]
    schema = schema_like(plain_schema(1, weighted=True), CANARIES)
    adapted = for_trial(weighted, schema, rows=CANARIES * settings.k, buckets=BUCKETS)
    with trial(schema, adapted) as made:
        canaries = Canaries.drawn(schema, adapted, CANARIES, np.random.default_rng())
        life = lived(made, canaries)
    largest = int(np.abs(_alone(life, 1)).max()) // settings.k
    found = f"largest {largest}, Ω = {adapted.omega}"
    return Check("no observation adds more than Ω to a cell", largest <= adapted.omega, found)


def _alone(life: Life, table: int) -> Floats:
    """What canaries that share no cell of a table added there: [hash row, canary]."""
    canaries = life.canaries
    let_in = np.flatnonzero(canaries.included)
    labels = canaries.labels[let_in]
    buckets, _ = placements(life.layout, table, life.keys[table - 1][let_in])
    places = buckets * life.layout.labels + labels[None, :]
    single = np.ones(len(let_in), dtype=np.bool_)
    for row in places:
        single &= np.bincount(row)[row] == 1
    added = life.added()[table]
    own = added[np.arange(len(buckets))[:, None], buckets, labels[None, :]]
    return own[:, single].astype(np.float64)
