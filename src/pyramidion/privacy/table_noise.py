"""The noise of a window's tables: shares of the budget, noise, layout, and then the noisy arena.

The noise of a table follows from ε, δ, k, Ω, its hash rows and its share of the
budget; nobody sets it by hand. The prior has its own share, the tables divide
the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from fractions import Fraction
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from pyramidion.config.schema import bare
from pyramidion.config.settings import Settings
from pyramidion.counts.arena import Arena
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.layout import PRIOR, Kind, Layout, Table
from pyramidion.errors import PrivacyError, SchemaError
from pyramidion.privacy.budget import budget_of, gaussian_variance, laplace_scale
from pyramidion.privacy.noise import DiscreteGaussian, DiscreteLaplace, Noise
from pyramidion.privacy.randomness import Randomness
from pyramidion.rows.encoding import TableShape
from pyramidion.workers import PATIENCE, Aside

Reserves = dict[str, Fraction]
"""Shares of the budget that a window keeps back, by purpose."""
Size = tuple[str, Kind, int, int]
MUCH = 1 << 22
"""Bytes of tables whose noise takes so long, a tenth of a second, that others are let past."""


def shares_of(
    settings: Settings,
    names: Sequence[str],
    reserves: Mapping[str, Fraction],
    weights: Mapping[str, Fraction] | None = None,
    apart: Mapping[str, Fraction] | None = None,
) -> list[Fraction]:
    """Share of the budget of the prior and of each table.

    The prior has `prior_share`, tables that are ``apart`` have what is said there, the others
    divide what that and the reserves leave, by hand or by their ``weights``: these shares and the
    reserves sum to exactly one.
    """
    own = apart or {}
    bare_names = [bare(name) for name in names]
    unknown = sorted(set(dict(settings.shares or ())) - set(bare_names))
    if unknown:
        raise SchemaError(
            f"shares name the table {unknown[0]!r}, which the schema does not have; "
            f"its tables are {', '.join(map(repr, bare_names))}"
        )
    if settings.shares is None and weights is not None:
        relative = {name: Fraction(weights[name]) for name in bare_names}
    else:
        relative = {name: Fraction(settings.share(name)) for name in bare_names}
    prior = Fraction(repr(settings.prior_share))  # the decimal, as in the reserves
    dividing = sum(share for name, share in relative.items() if name not in own)
    rest = (1 - prior - sum(reserves.values()) - sum(own.values())) / dividing
    return [prior, *(own.get(name, relative[name] * rest) for name in bare_names)]


def reserves_of(settings: Settings, due: Collection[str] = ("weights", "bins")) -> Reserves:
    """What a window keeps back of its budget; weights and bins only where reading them is due."""
    rarely = {"weights", "bins"} - set(due)
    return {of: share for of, share in settings.reserves.items() if share and of not in rarely}


def parts_of(settings: Settings, reserves: Mapping[str, Fraction]) -> tuple[Fraction, ...]:
    """What the tables of each level of a tree have of what reserves leave, the window's first.

    A node lives through windows that keep more back than others, so it reckons with the most
    that any can. What a window does not keep back is its own level's.

    >>> from pyramidion.config.settings import Settings
    >>> parts_of(Settings(epsilon=1), {})
    (Fraction(1, 1),)
    """
    levels = settings.levels
    if levels is None:
        return (Fraction(1),)
    above = tuple(Fraction(share) for share in levels.shares[1:])
    most = sum(reserves_of(settings).values(), Fraction(0))
    kept = sum(reserves.values(), Fraction(0))
    return (1 - sum(above, Fraction(0)) * (1 - most) / (1 - kept), *above)


def sizes_of(settings: Settings, shapes: Sequence[TableShape]) -> list[Size]:
    """Name, kind, hash rows and width of each table but the prior: dense, or a sketch."""
    return [
        (shape.name, settings.sketch, settings.rows, settings.buckets)
        if shape.codes is None
        else (shape.name, "dense", 1, shape.codes)
        for shape in shapes
    ]


class TableDesign:
    """The tables of a new window: their shares of the budget, their noise and their layout.

    ``reserves`` are the shares of the budget that it keeps back, ``weights`` how its tables
    divide the rest (None: equally, or by hand), ``apart`` the shares of tables that have one of
    their own, ``k`` how many observations its noise hides, ``prior`` what the table of label
    totals is called. In a tree the others have ``part`` of what is left, and a node takes the rows
    of as many windows as its ``span`` says.
    """

    def __init__(
        self,
        settings: Settings,
        shapes: Sequence[TableShape],
        labels: int,
        secret: bytes,
        *,
        reserves: Mapping[str, Fraction] | None = None,
        weights: Mapping[str, Fraction] | None = None,
        apart: Mapping[str, Fraction] | None = None,
        k: int | None = None,
        prior: str = PRIOR,
        part: Fraction = Fraction(1),
        span: int = 1,
    ) -> None:
        self.settings = settings
        self._part = part
        self._most = settings.max_rows_per_window * span
        self.reserves = {name: share for name, share in (reserves or {}).items() if share}
        self._weights = weights
        self._apart = dict(apart or {})
        self._k = settings.k if k is None else k
        self._labels = labels
        self._secret = secret
        self._sizes: list[Size] = [(prior, "dense", 1, 1), *sizes_of(settings, shapes)]

    def again(self, shares: Mapping[str, Fraction]) -> TableDesign:
        """Some of these tables born once more, at exact shares of the budget: a second release."""
        twin = copy(self)
        for name, kept in vars(type(self)).items():
            if isinstance(kept, cached_property):
                twin.__dict__.pop(name, None)
        twin.reserves = {}
        twin._sizes = [size for size in self._sizes if size[0] in shares]
        twin.shares = {name: shares[name] for name, *_ in twin._sizes}
        return twin

    @cached_property
    def shares(self) -> dict[str, Fraction]:
        """Share of the budget of each table, the prior's first."""
        names = [name for name, *_ in self._sizes]
        shares = shares_of(self.settings, names[1:], self.reserves, self._weights, self._apart)
        return {
            name: share if bare(name) in self._apart else share * self._part
            for name, share in zip(names, shares, strict=True)
        }

    @cached_property
    def noises(self) -> tuple[Noise | None, ...]:
        """The noise of each table, the prior's first; None where epsilon is inf."""
        if sum(self.shares.values()) + sum(self.reserves.values()) > 1:
            raise PrivacyError("the tables' shares exceed the budget; they must sum to one")
        return tuple(self._noise(self.shares[name], rows) for name, _, rows, _ in self._sizes)

    def _noise(self, share: Fraction, rows: int) -> Noise | None:
        s = self.settings
        if s.mechanism == "none":
            return None
        if s.mechanism == "laplace":
            epsilon = share * self._budget
            return DiscreteLaplace.at_least(
                laplace_scale(epsilon=epsilon, k=self._k, omega=s.omega, rows=rows)
            )
        return DiscreteGaussian.at_least(
            gaussian_variance(rho=share * self._budget, k=self._k, omega=s.omega, rows=rows)
        )

    @cached_property
    def _budget(self) -> Fraction:
        """ε or ρ of a window, as large as (ε, δ) allow."""
        return budget_of(self.settings)[1]

    @cached_property
    def layout(self) -> Layout:
        """The layout of every window, cell widths from public bounds."""
        most = self._most * self.settings.omega
        tables = tuple(
            Table(
                name, kind, rows, width, most + (noise.bound if noise is not None else 0), variance
            )
            for (name, kind, rows, width), noise, variance in zip(
                self._sizes, self.noises, self.variances, strict=True
            )
        )
        return Layout(tables, self._labels, self._secret, self.settings.omega)

    @cached_property
    def variances(self) -> tuple[float, ...]:
        """Noise variance of one cell of each table, in one window."""
        return tuple(0.0 if noise is None else noise.variance for noise in self.noises)

    def arena(self, randomness: Randomness | None = None) -> Arena:
        """A new window's tables, noise in every cell."""
        most = self._most
        if self.settings.mechanism == "none":
            return Arena.exact(self.layout, most)
        source = randomness if randomness is not None else Randomness()

        def fill(table: int, cells: NDArray[Any]) -> None:
            noise = self.noises[table]
            if noise is None:
                raise PrivacyError("a table without noise in a private window; this is a bug")
            aside.do(lambda: noise.fill(cells, source))

        with Aside(PATIENCE if self.layout.nbytes >= MUCH else 0.0) as aside:
            return Arena.noisy(self.layout, most, fill)

    def guarantee(self, windows: int) -> Guarantee:
        """What the sealed tables of so many windows promise."""
        s = self.settings
        delta = s.delta if s.mechanism == "gaussian" else 0.0
        promise = Guarantee(level="P2", epsilon=s.epsilon, delta=delta, k=s.k, windows=windows)
        return promise if s.private else promise.raw()
