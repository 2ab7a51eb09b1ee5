"""Choosing groups privately: noisy top-k, or sample-and-aggregate by the center of attention.

**One row.** Blanking a row with label y changes the Q of *every* group by a number between
-(1 - c/2)² and h(c), c = ½‖e_y - π‖² (`widest`). With w the width of that, what a part says of the
group's rows changes by numbers within w + 4/16, and so each gain by numbers within 3w + 8/16 (the
proof is in docs/privacy.md). w depends on the prior: 1.3 for two labels that are as frequent, 2.25
at most. Rounding each key's term down to 1/UNIT makes the spread of a Q larger by at most 2/UNIT;
that of a gain by at most 12/UNIT.

**top-k** (the default): each group is one draw of the exponential mechanism, P ∝ exp(ε u / s),
with s the spread of the utilities' changes and without the chosen ones from then on; so the log
ratio of two neighbours' probabilities stays within a range of ε, as in
`pyramidion.privacy.exponential`. Each draw costs ε, or ε²/8 in zCDP. Larger groups grow from
those that were chosen, in rounds of their own.

**center** (the paper's proposal): rows are cut into m blocks, each gives the gains of all
candidates per row, clamped: a point. The *center of attention* is the point with the closest
majority: with t = ⌊(m+1)/2⌋ + 1, the z_i whose distance to its t-th nearest (itself included)
is least. One row changes one point. Let R_i(t) be the distance of z_i to its t-th nearest and
R_(q)(t) the q-th least of these, or the diameter D where q or t exceeds m. With one point
replaced, R_i(t) <= R'_i(t+1) for all others, hence R_(q)(t) <= R'_(q+1)(t+1). Two majorities less
one point share a point, so the center moves by at most R_(1)(t) + R'_(1)(t) <= 2 R_(2)(t+1), and

    S = max over j >= 0 of  e^{-βj} 2 R_(2+j)(t+1+j)

bounds that and changes by a factor of at most e^β. Distances are sums over the d candidates;
noise (2S/ε)·Cauchy in each of them with β = ε/2d costs ε/2 for the move and d·β = ε/2 for the
stretch. In **floating point**, so private only as far as doubles are reals (Mironov 2012): here
to compare with the paper. A round of it costs ε, or ε²/2 in zCDP, however many it chooses.

**The prior** that scores need is read first, for a small part of the budget: noisy totals of the
labels. A prior that is off would give all keys the same deviation, and groups of few keys more.

**Screening.** Of more than `MOST_FEATURES` features so many are drawn first, by their own Q,
for half of the budget; groups are made of those. A feature that says nothing alone may be missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts.selection import LEAST_ROWS, Coded, Group, Pair, grown, pairs_of
from pyramidion.counts.selection_kernels import UNIT, WEIGHT
from pyramidion.errors import PrivacyError
from pyramidion.privacy.budget import Unit, gaussian_variance, laplace_scale
from pyramidion.privacy.exponential import chosen, epsilon_per_draw
from pyramidion.privacy.noise import DiscreteGaussian, DiscreteLaplace, Noise
from pyramidion.privacy.randomness import Randomness
from pyramidion.privacy.smooth import cauchy

Method = Literal["top-k", "center", "leaky-mutual-information"]
LEAKY: Method = "leaky-mutual-information"

MOST_FEATURES = 64
"""Of more, so many are drawn first: 2,016 pairs take seconds, 128,000 would take minutes."""

HIGHEST = 0.02
"""Gains per row are clamped to this in a block: stronger groups need no search."""

BLOCK_ROWS, MOST_BLOCKS = 500, 200

PRIOR_SHARE = Fraction(1, 50)
"""Of the budget, for the labels' totals."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How many groups, of how many features at most, and which sets are there already."""

    number: int
    parts: int = 2
    excluded: frozenset[frozenset[int]] = frozenset()

    @property
    def rounds(self) -> list[int]:
        """How many groups are chosen in each round: pairs first, larger ones grow from them.

        >>> Wanted(number=5, parts=3).rounds
        [3, 2]
        """
        rounds = min(self.parts - 1, self.number)
        return [self.number // rounds + (r < self.number % rounds) for r in range(rounds)]


def widest(prior: NDArray[np.int64]) -> Fraction:
    """Within so much lie the changes of all exact Q when one row is blanked, by the prior.

    >>> float(widest(np.array([512, 512]))), float(widest(np.array([0, 1024])))
    (1.2864583333333333, 2.25)
    """
    norm = sum(int(part) ** 2 for part in prior)
    deviations = [Fraction(UNIT - 2 * WEIGHT * int(part) + norm, 2 * UNIT) for part in prior]
    return max((1 - c / 2) ** 2 + _highest(c) for c in deviations)


def _highest(c: Fraction) -> Fraction:
    """The most of α(1 + c) - α²(1 - c) for α from 0 to 1."""
    return 2 * c if 3 * c >= 1 else (1 + c) ** 2 / (4 * (1 - c))


def spread_of_quality(prior: NDArray[np.int64]) -> int:
    """Within so much lie the changes of all Q when one row is blanked, in units of 1/UNIT."""
    return math.ceil(widest(prior) * UNIT) + 2


def spread_of_gain(prior: NDArray[np.int64]) -> int:
    """The same of gains."""
    return math.ceil((3 * widest(prior) + Fraction(8, LEAST_ROWS)) * UNIT) + 12


Pick = Callable[[Sequence[Pair], int], list[Pair]]


def select(
    coded: Coded,
    wanted: Wanted,
    *,
    method: Method,
    budget: Fraction,
    unit: Unit | Literal["none"],
    k: int,
    randomness: Randomness | None = None,
) -> list[Group]:
    """Groups for at most ``budget`` of these rows' own budget, k of which are hidden.

    Who calls has charged it before, to every window with a row in here. With the unit "none"
    there is no privacy: the groups that gain most, and fewer where fewer gain anything.
    """
    source = randomness if randomness is not None else Randomness()
    if unit == "none":
        coded = coded.under((coded.totals + 1).astype(np.float64))
        return _grow(wanted, range(coded.features), _exactly(coded, method))
    if method == LEAKY:
        raise PrivacyError(
            "selection by exact mutual information leaks and has no place in a private store; "
            "choose 'top-k' or 'center'"
        )
    coded = coded.under(noisy_totals(coded, budget * PRIOR_SHARE, unit, k, source))
    budget = budget * (1 - PRIOR_SHARE)
    features: Sequence[int] = range(coded.features)
    if coded.features > MOST_FEATURES:
        budget = budget / 2
        features = screened(coded, budget=budget, unit=unit, k=k, randomness=source)
    if method == "top-k":
        each = epsilon_per_draw(budget, unit=unit, draws=sum(wanted.rounds))
        return _grow(wanted, features, _drawn(coded, each, k, source))
    each = epsilon_per_draw(budget, unit=unit, draws=len(wanted.rounds), method="smooth")
    return _grow(wanted, features, _attended(coded, float(each) / k, source))


def noisy_totals(
    coded: Coded, budget: Fraction, unit: Unit, k: int, randomness: Randomness
) -> NDArray[np.float64]:
    """How many rows have each label, and noise: a row is in one of these totals."""
    noise: Noise
    if unit == "epsilon":
        scale = laplace_scale(epsilon=budget, k=k, omega=1, rows=1)
        noise = DiscreteLaplace.at_least(scale)
    else:
        variance = gaussian_variance(rho=budget, k=k, omega=1, rows=1)
        noise = DiscreteGaussian.at_least(variance)
    drawn_ = np.zeros(len(coded.prior), dtype=np.int64)
    noise.fill(drawn_, randomness)
    return np.asarray(np.maximum(coded.totals + drawn_, 0) + 1, dtype=np.float64)


def screened(
    coded: Coded, *, budget: Fraction, unit: Unit, k: int, randomness: Randomness
) -> list[int]:
    """The places of `MOST_FEATURES` features, drawn by their own Q."""
    each = epsilon_per_draw(budget, unit=unit, draws=MOST_FEATURES)
    quality = coded.alone(range(coded.features))
    spread = spread_of_quality(coded.prior)
    return sorted(drawn(quality, MOST_FEATURES, spread, each, k, randomness))


def drawn(
    utilities: NDArray[np.int64],
    number: int,
    spread: int,
    epsilon: Fraction,
    k: int,
    randomness: Randomness,
) -> list[int]:
    """So many of some candidates, one after the other, each ε-private for k rows."""
    left, found = list(range(len(utilities))), list[int]()
    while left and len(found) < number:
        told = [int(utilities[i]) for i in left]
        sensitivity = Fraction(k * spread, 2)
        place = chosen(told, epsilon=epsilon, sensitivity=sensitivity, randomness=randomness)
        found.append(left.pop(place))
    return found


def _grow(wanted: Wanted, features: Sequence[int], pick: Pick) -> list[Group]:
    """Pairs, then groups that have one feature more than those of the round before."""
    found, last, there = list[Group](), list[Group](), set(wanted.excluded)
    for size, number in enumerate(wanted.rounds):
        pairs = grown(last, features, there) if size else pairs_of(features, there)
        last = [tuple(sorted((*one, *other))) for one, other in pick(pairs, number)]
        there |= set(map(frozenset, last))
        found += last
    return found


def _drawn(coded: Coded, epsilon: Fraction, k: int, source: Randomness) -> Pick:
    def pick(pairs: Sequence[Pair], number: int) -> list[Pair]:
        gains, spread = coded.scores(pairs).gain, spread_of_gain(coded.prior)
        return [pairs[i] for i in drawn(gains, number, spread, epsilon, k, source)]

    return pick


def _exactly(coded: Coded, method: Method) -> Pick:
    def pick(pairs: Sequence[Pair], number: int) -> list[Pair]:
        scores = coded.scores(pairs)
        told = scores.information if method == LEAKY else scores.gain
        best = np.argsort(-told, kind="stable")[:number]
        return [pairs[i] for i in best if told[i] > 0]

    return pick


# --- the center of attention ------------------------------------------------------------------


def _attended(coded: Coded, epsilon: float, source: Randomness) -> Pick:
    number = max(3, min(MOST_BLOCKS, coded.came // BLOCK_ROWS))
    blocks, rows = coded.blocks(number), max(1.0, coded.came / number)

    def pick(pairs: Sequence[Pair], most: int) -> list[Pair]:
        points = [block.scores(pairs).gain / (UNIT * rows) for block in blocks]
        told = center(np.clip(np.stack(points), 0.0, HIGHEST), HIGHEST, epsilon, source)
        return [pairs[i] for i in np.argsort(-told, kind="stable")[:most]]

    return pick


def center(
    points: NDArray[np.float64], highest: float, epsilon: float, randomness: Randomness
) -> NDArray[np.float64]:
    """The center of attention of points[block, candidate], from 0 to ``highest``, and noise."""
    candidates = points.shape[1]
    if not candidates:
        return np.zeros(0)
    at, sensitivity = attention(points, highest * candidates, beta=epsilon / (2 * candidates))
    noise = np.array([cauchy(randomness) for _ in range(candidates)])
    found: NDArray[np.float64] = points[at] + 2 * sensitivity / epsilon * noise
    return found


def attention(points: NDArray[np.float64], diameter: float, *, beta: float) -> tuple[int, float]:
    """Which point is the center of attention, and the smooth bound S on how far it can move."""
    m = len(points)
    majority = (m + 1) // 2 + 1
    radii = np.sort(np.stack([np.abs(points - point).sum(axis=1) for point in points]), axis=1)
    least = np.sort(radii, axis=0)  # [q - 1, t - 1]: the q-th least distance to a t-th nearest
    at = int(np.argmin(radii[:, min(majority, m) - 1]))
    bound, step = 0.0, 0
    while True:
        rank, count = 1 + step, majority + step  # from 0
        inside = rank < m and count < m
        radius = float(least[rank, count]) if inside else diameter
        bound = max(bound, math.exp(-beta * step) * 2 * min(radius, diameter))
        if not inside:
            return at, min(bound, diameter)
        step += 1
