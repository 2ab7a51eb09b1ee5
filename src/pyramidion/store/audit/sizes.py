"""How large the noise in tables is, beside what the ledger says that they cost.

A table that costs ρ_j must carry noise of variance (kΩ)² h / 2ρ_j, one that costs ε_j noise of
scale kΩh / ε_j. From the noise that is there follows what a table really lets through, as a
share of what it costs: 1 where the two agree, 4 where Gaussian noise was halved. Shares
are lower bounds, six standard deviations below what was measured. The formulas stand here once
more, so that an error in those of `pyramidion.privacy.budget` does not excuse itself.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.stats import chi2, gamma, norm

from pyramidion.config.settings import Settings
from pyramidion.counts.layout import Table
from pyramidion.privacy.noise import DiscreteGaussian, DiscreteLaplace
from pyramidion.store.audit.canaries import Floats
from pyramidion.store.audit.life import Life

DEVIATIONS = 6.0
MANY = 1_000  # cells from which on their mean is normal enough


def shares_of_the_ledger(lives: list[Life]) -> list[float]:
    """What each table lets through at least, as a share of what it costs, over all windows.

    Infinite where nothing was charged or there is no noise.
    """
    settings = lives[0].canaries.settings
    shares = []
    for number in range(len(lives[0].layout.tables)):
        sizes = [_sizes(life, number, settings) for life in lives]
        found = [size for size in sizes if size is not None]
        whole = len(found) == len(lives)
        shares.append(_share(np.concatenate(found), settings) if whole else math.inf)
    return shares


def _sizes(life: Life, number: int, settings: Settings) -> Floats | None:
    """Size of the noise in each cell over what it is on average at the table's cost."""
    amount = life.amounts()[number]
    if not amount:
        return None
    noise = life.noise[number].reshape(-1).astype(np.float64)
    table = life.layout.tables[number]
    if settings.mechanism == "laplace":
        return np.abs(noise) / _mean_laplace(amount, table, settings)
    return noise**2 / _mean_gaussian(amount, table, settings)


def _mean_gaussian(rho: Fraction, table: Table, settings: Settings) -> float:
    """The mean square of the noise at this cost."""
    variance = (settings.k * settings.omega) ** 2 * table.rows / (2 * rho)
    return DiscreteGaussian.at_least(variance).variance


def _mean_laplace(epsilon: Fraction, table: Table, settings: Settings) -> float:
    """The mean absolute noise at this cost: 1 / sinh(1/b)."""
    scale = settings.k * settings.omega * table.rows / epsilon
    return 1 / math.sinh(1 / DiscreteLaplace.at_least(scale).scale)


def _share(sizes: Floats, settings: Settings) -> float:
    """One over the largest that the mean of these can be, six deviations allowed."""
    cells, mean = sizes.size, float(sizes.mean())
    if mean == 0:
        return math.inf
    if cells >= MANY:
        return 1 / (mean + DEVIATIONS * float(sizes.std()) / math.sqrt(cells))
    tail = float(norm.sf(DEVIATIONS))
    law = gamma(cells) if settings.mechanism == "laplace" else chi2(cells)
    return float(law.ppf(tail)) / (cells * mean)
