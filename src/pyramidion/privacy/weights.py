"""Weights: noise where it hurts least, by how many rows a key has.

A user has tens of rows, a genre a million. The same noise that hides the user's counts leaves
the genre's as they are, so tables should not share the budget equally. A table's *quantile* q
is a low quantile of the rows per key, from 1 to 10,000; its noise may grow with q.

- ``proportional`` (the paper's): the deviation of a cell is ∝ q.
- ``least-error``: the least sum over tables of Var / q², the squared relative errors of typical
  counts. One estimate has the variance e·2b² with b ∝ h/ε_j (Laplace), or e·σ² with σ² ∝ h/ρ_j
  (Gaussian), h hash rows, e the `efficiency`. Minimising Σ e h²/(ε_j q)² over shares that
  sum to one gives ε_j ∝ (e h²/q²)^⅓, so b ∝ (h q²/e)^⅓; minimising Σ e h/(ρ_j q²) gives
  ρ_j ∝ √(e h)/q, so σ² ∝ q√(h/e).
- ``half``: each table keeps a part κ of its equal share, the rest goes by ``least-error``. That
  rule alone does not know that a count far below the noise is lost anyway, and takes from
  tables that are of use what no longer helps the others. Tables that lose all but κ have
  1/κ times the variance (Gaussian) or deviation (Laplace) of ``equal``. The table that gains most,
  m times its equal share by ``least-error``, has it divided by κ + (1 - κ)m. The gain is no
  less than the loss from κ = 1/(m - 1) on. That is κ, but ½ at least, and 1 where m ≤ 2: where few
  tables need what many can give, half of the budget moves; where many need what few
  have, little does.

The quantiles are private: read by `pyramidion.privacy.quantiles`, one draw per table. Of a
dense table with few codes the public numbers of rows and codes say enough, and a private answer
about so few keys would be noise; those are not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from statistics import median

import numpy as np

from pyramidion.config.schema import bare
from pyramidion.config.settings import Settings
from pyramidion.counts.arena import CHUNK
from pyramidion.counts.estimates import MEAN_NEAR_MEDIAN, MEDIAN_OF_LAPLACE
from pyramidion.counts.key_counts import KeyCounts
from pyramidion.counts.layout import Kind
from pyramidion.privacy.budget import Unit
from pyramidion.privacy.exponential import epsilon_per_draw
from pyramidion.privacy.quantiles import LEAST, MOST, count_quantile
from pyramidion.privacy.randomness import Randomness
from pyramidion.privacy.table_noise import Size, sizes_of
from pyramidion.rows.encoding import TableShape
from pyramidion.rows.observations import Observations

FEWEST_KEYS = 100
"""A dense table is read if so many of its codes could be below the quantile."""

KEPT = Fraction(1, 2)
"""What ``half`` leaves of equal shares at least."""

_GRAIN = 2**40  # shares are whole multiples of 1 / this, and at least one of them


def tables_read(settings: Settings, shapes: Sequence[TableShape]) -> tuple[str, ...]:
    """The tables whose quantile is read privately: sketches, and dense tables of many codes.

    >>> shapes = [TableShape(("user",), None), TableShape(("gender",), 4)]
    >>> tables_read(Settings(epsilon=1.0), shapes)
    ('user',)
    """
    p = settings.weights_quantile
    return tuple(
        shape.name for shape in shapes if shape.codes is None or shape.codes * p >= FEWEST_KEYS
    )


def by_size(settings: Settings, shapes: Sequence[TableShape]) -> dict[str, Fraction]:
    """Shares of tables by the root of their cells: of chosen groups, which nobody weighed.

    Public. The least sum of relative errors would have shares ∝ cells^⅔ under Laplace noise, but of
    a large table many cells are lost anyway; equal ones waste on 16 cells what 30,000 need.

    >>> shapes = [TableShape(("movie", "age"), 40_000), TableShape(("gender", "age"), 36)]
    >>> {name: float(share) for name, share in by_size(Settings(epsilon=1.0), shapes).items()}
    {'movie,age': 0.970873786407767, 'gender,age': 0.02912621359223301}
    """
    roots = {
        bare(name): math.isqrt(width << 20) for name, _, _, width in sizes_of(settings, shapes)
    }
    return {name: Fraction(root, sum(roots.values())) for name, root in roots.items()}


def public_quantile(rows: int, codes: int) -> float:
    """What public numbers say of a dense table: the mean count, within the same bounds."""
    return float(min(max(rows / codes, LEAST), MOST))


def read(
    batches: Iterable[Observations],
    settings: Settings,
    *,
    shapes: Sequence[TableShape],
    budget: Fraction,
    unit: Unit,
    k: int,
    randomness: Randomness | None = None,
) -> dict[str, float]:
    """The quantile of every table, for at most ``budget`` of the rows' own budget.

    Each table of `tables_read` has the same part of it; the others cost nothing. Rows count
    one each, whatever they weigh; blanked ones do not count. The exact counts are gone when
    this returns. Who calls has charged ``budget`` before, to every window with a row in here.
    """
    private = tables_read(settings, shapes)
    seen = {name: KeyCounts() for name in private}
    rows = 0
    for batch in batches:
        _count(batch, seen)
        rows += len(batch)
    found = {
        shape.name: public_quantile(rows, shape.codes)
        for shape in shapes
        if shape.codes is not None
    }
    for name in private:
        found[name] = count_quantile(
            seen.pop(name).counts,
            p=settings.weights_quantile,
            epsilon=epsilon_per_draw(
                budget, unit=unit, draws=len(private), method=settings.quantiles
            ),
            k=k,
            method=settings.quantiles,
            randomness=randomness,
        )
    return {bare(shape.name): found[shape.name] for shape in shapes}


def _count(batch: Observations, seen: Mapping[str, KeyCounts]) -> None:
    weights = batch.weights
    for table, shape in enumerate(batch.shapes):
        if shape.name in seen:
            for start in range(0, len(batch), CHUNK):
                stop = min(start + CHUNK, len(batch))
                some = weights if weights.size == 1 else weights[start:stop]
                seen[shape.name].add(batch.keys(table, start, stop), some)


def combined(readings: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median over windows of each table's quantile, of those windows that have one.

    >>> combined([{"user": 30.0}, {"user": 10_000.0}, {"user": 20.0, "item": 4.0}])
    {'user': 30.0, 'item': 4.0}
    """
    names = dict.fromkeys(name for reading in readings for name in reading)
    return {name: median(r[name] for r in readings if name in r) for name in names}


def weights_of(
    settings: Settings, sizes: Sequence[Size], quantiles: Mapping[str, float]
) -> dict[str, Fraction]:
    """Each table's weight: its share of what the tables divide, all of them one in sum.

    A table whose quantile was never read, as it is new, has the median of the others'.

    >>> sizes: list[Size] = [("user", "dense", 1, 100), ("item", "dense", 1, 100)]
    >>> by_hand = Settings(epsilon=1.0, delta=0, weights="proportional")
    >>> weights_of(by_hand, sizes, {"user": 10, "item": 30})
    {'user': Fraction(3, 4), 'item': Fraction(1, 4)}
    """
    names = [bare(name) for name, *_ in sizes]
    if settings.weights == "equal" or not settings.private or not quantiles:
        return {name: Fraction(1, len(names)) for name in names}
    usual = median(quantiles.values())
    shares = _exact(
        [_budget(settings, size, quantiles.get(bare(size[0]), usual)) for size in sizes]
    )
    if settings.weights == "half":
        kept = _kept(shares)
        shares = [(1 - kept) * share + kept / len(names) for share in shares]
    return dict(zip(names, shares, strict=True))


def _kept(shares: Sequence[Fraction]) -> Fraction:
    """The part of equal shares that ``half`` keeps, given those of ``least-error``."""
    favoured = max(shares) * len(shares)
    return Fraction(1) if favoured <= 2 else max(1 / (favoured - 1), KEPT)


def _budget(settings: Settings, size: Size, quantile: float) -> float:
    """What a table needs of ε, or of ρ, up to a factor that all tables have: h/b, or h/σ²."""
    _, kind, h, _ = size
    q = min(max(quantile, LEAST), MOST)
    laplace = settings.mechanism == "laplace"
    if settings.weights == "proportional":
        return h / q if laplace else h / q**2
    e = efficiency(settings, kind, h)
    return h / math.cbrt(h * q**2 / e) if laplace else h / (q * math.sqrt(h / e))


def _exact(relative: Sequence[float]) -> list[Fraction]:
    """Positive shares that sum to one, as fractions."""
    whole = math.fsum(relative)
    parts = [max(1, round(part / whole * _GRAIN)) for part in relative]
    return [Fraction(part, sum(parts)) for part in parts]


def efficiency(settings: Settings, kind: Kind, rows: int) -> float:
    """The squared error of one estimate in units of the noise in one cell, collisions apart.

    As `pyramidion.counts.estimates` takes it from the hash rows of one window: the median of
    Laplace rows, the mean of Gaussian rows near their median, the least of a count-min sketch.
    Of the last, shrinkage takes off the bias; the ratio is left with it.
    """
    if kind == "dense":
        return 1.0
    if kind == "count-min":
        mean, variance = least_of(rows, laplace=settings.mechanism == "laplace")
        return variance if settings.estimate == "shrinkage" else variance + mean**2
    known = MEDIAN_OF_LAPLACE if settings.mechanism == "laplace" else MEAN_NEAR_MEDIAN
    return known[rows - 1]


@cache
def least_of(rows: int, *, laplace: bool) -> tuple[float, float]:
    """Mean and variance of the least of so many draws of variance 1, by integration."""
    x = np.linspace(-30, 30, 120_001)
    if laplace:
        tail = 0.5 * np.exp(-math.sqrt(2) * np.abs(x))
        above = np.where(x < 0, 1 - tail, tail)
    else:
        above = 0.5 * np.array([math.erfc(value / math.sqrt(2)) for value in x])
    mass, middle = -np.diff(above**rows), (x[1:] + x[:-1]) / 2
    mean = float((mass * middle).sum())
    return mean, float((mass * middle**2).sum()) - mean**2
