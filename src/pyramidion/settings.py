"""The knobs: one frozen :class:`Settings`, checked when made.

Each knob carries its unit, the paper's symbol, what it does and the rule it
must keep, so that docs and command line print the same words
(:meth:`Settings.knobs`) and nobody documents a knob twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from pyramidion import knobs, toml
from pyramidion.checks import checked_keys, fill
from pyramidion.errors import SchemaError
from pyramidion.knobs import Knob

__all__ = ["Column", "Knob", "Settings"]

Column = Literal["probability", "log-odds", "count", "back-off"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much privacy, how large the tables, how counts become features.

    ``epsilon`` has no default: nobody can choose it for you. ``math.inf`` says
    openly that there is no privacy.

    >>> Settings(epsilon=1.0).mechanism
    'gaussian'
    >>> Settings(epsilon=1, delta=0).mechanism
    'laplace'
    >>> Settings(epsilon=1, p_min=0.1).omega
    10
    """

    epsilon: float = field(
        metadata=knobs.about(
            "ε",
            "nats",
            knobs.number("above 0 (inf: no privacy)", lambda e: e > 0, infinite=True),
            "privacy budget of k observations over the whole retention; inf: no privacy",
        )
    )
    delta: float = field(
        default=1e-9,
        metadata=knobs.about(
            "δ",
            "probability",
            knobs.number("at least 0 and below 1", lambda d: 0 <= d < 1),
            "chance that the promise fails; 0: pure differential privacy, Laplace noise",
        ),
    )
    k: int = field(
        default=1,
        metadata=knobs.about(
            "k", "observations", knobs.whole(1, 2**40), "observations hidden together"
        ),
    )
    rows: int = field(
        default=5,
        metadata=knobs.about("h", "hash rows", knobs.whole(1, 16), "hash rows of a sketch"),
    )
    buckets: int = field(
        default=65_536,
        metadata=knobs.about(
            "w", "buckets", knobs.power_of_two, "buckets in each hash row of a sketch"
        ),
    )
    sketch: Literal["count-median", "count-min"] = field(
        default="count-median",
        metadata=knobs.about(
            "",
            "choice",
            knobs.one_of("count-median", "count-min"),
            "how open features are counted: count-median is unbiased, count-min is not",
        ),
    )
    max_rows_per_window: int = field(
        default=100_000_000,
        metadata=knobs.about(
            "N",
            "observations",
            knobs.whole(1, 2**40),
            "public bound on accepted observations in a window; sets the width of the cells",
        ),
    )
    prior_share: float = field(
        default=0.02,
        metadata=knobs.about(
            "",
            "share of the budget",
            knobs.number("above 0 and below 1", lambda s: 0 < s < 1),
            "what the prior P(label) costs; the tables share the rest",
        ),
    )
    shares: Mapping[str, float] | tuple[tuple[str, float], ...] | None = field(
        default=None,
        metadata=knobs.about(
            "w_j",
            "relative",
            knobs.optional(knobs.shares),
            "budget shares of tables by name ('origin,dest' for a group); one not named has 1",
        ),
    )
    p_min: float | None = field(
        default=None,
        metadata=knobs.about(
            "p_min",
            "probability",
            knobs.optional(knobs.number("above 0 and at most 1", lambda p: 0 < p <= 1)),
            "smallest propensity; smaller ones count as this one. None: no propensities",
        ),
    )
    weight_unit: int = field(
        default=1,
        metadata=knobs.about(
            "F",
            "cell units per observation",
            knobs.whole(1, 2**20),
            "with propensities, counts are kept in units of 1/F",
        ),
    )
    dense_limit: int = field(
        default=65_536,
        metadata=knobs.about(
            "",
            "cells per label",
            knobs.whole(0, 2**28),
            "a group of finite features is a dense table up to this size, a sketch beyond",
        ),
    )
    estimate: Literal["shrinkage", "ratio"] = field(
        default="shrinkage",
        metadata=knobs.about(
            "",
            "choice",
            knobs.one_of("shrinkage", "ratio"),
            "how counts become probabilities: shrinkage knows the noise, ratio is the paper's",
        ),
    )
    backoff_deviation: float = field(
        default=0.1,
        metadata=knobs.about(
            "",
            "probability",
            knobs.number("above 0 (inf: never)", lambda d: d > 0, infinite=True),
            "the ratio falls back to the prior when its standard deviation exceeds this",
        ),
    )
    columns: tuple[Column, ...] = field(
        default=("probability",),
        metadata=knobs.about(
            "",
            "choices",
            knobs.several_of("probability", "log-odds", "count", "back-off"),
            "what featurizing gives for each table and label",
        ),
    )
    passthrough: int = field(
        default=0,
        metadata=knobs.about(
            "",
            "codes",
            knobs.whole(0, 65_536),
            "features with at most this many codes also give their raw value one-hot",
        ),
    )

    def __post_init__(self) -> None:
        checked = {f.name: f.metadata["check"](f.name, getattr(self, f.name)) for f in fields(self)}
        fill(self, **checked)
        if self.k > self.max_rows_per_window:
            raise SchemaError(
                "setting 'k' exceeds 'max_rows_per_window', so more would be hidden than a window "
                "holds; lower k or raise max_rows_per_window"
            )
        if self.max_rows_per_window * self.omega > 2**62:
            raise SchemaError(
                "settings 'max_rows_per_window', 'weight_unit' and 'p_min' allow counts beyond "
                "64 bits; lower max_rows_per_window or weight_unit, or raise p_min"
            )

    @property
    def private(self) -> bool:
        """Whether there is any privacy: ε is finite."""
        return self.epsilon < math.inf

    @property
    def mechanism(self) -> Literal["none", "laplace", "gaussian"]:
        """Which noise the tables are born with."""
        if not self.private:
            return "none"
        return "gaussian" if self.delta > 0 else "laplace"

    @property
    def omega(self) -> int:
        """Ω = ⌈F / p_min⌉, the most one observation adds to a cell; 1 without propensities.

        Exact on the decimal that was written, so 1 / 0.1 is 10 and not 11; a
        row's weight is clipped to Ω, so the sensitivity holds whatever p is.
        """
        if self.p_min is None:
            return 1
        return math.ceil(self.weight_unit / Fraction(repr(self.p_min)))

    def share(self, table: str) -> float:
        """Return the relative budget share of a table, 1 unless ``shares`` names it.

        >>> Settings(epsilon=1, shares={"origin,dest": 2}).share("origin,dest")
        2.0
        """
        return dict(self.shares or ()).get(table, 1.0)

    @classmethod
    def knobs(cls) -> tuple[Knob, ...]:
        """Return every knob with its symbol, unit, default and meaning, in order."""
        return tuple(
            Knob(
                name=f.name,
                default=None if f.default is MISSING else f.default,
                required=f.default is MISSING,
                **{key: f.metadata[key] for key in ("symbol", "unit", "help")},
            )
            for f in fields(cls)
        )

    def to_dict(self) -> dict[str, object]:
        """Return plain lists, dicts, text and numbers."""
        told: dict[str, object] = {f.name: getattr(self, f.name) for f in fields(self)}
        shares = None if self.shares is None else dict(self.shares)
        return told | {"shares": shares, "columns": list(self.columns)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Settings:
        """Make settings from what :meth:`to_dict` gives; knobs left out keep their defaults."""
        told = checked_keys("the settings table", data, [f.name for f in fields(cls)])
        if "epsilon" not in told:
            raise SchemaError(
                "setting 'epsilon' has no default and is missing; choose one, for example "
                "epsilon = 1.0 (inf: no privacy)"
            )
        return cls(**told)  # type: ignore[arg-type]

    @classmethod
    def from_toml(cls, source: str | Path) -> Settings:
        """Read the ``[settings]`` table of a TOML file or text.

        >>> Settings.from_toml('[settings]\\nepsilon = 0.5').epsilon
        0.5
        """
        data, where = toml.read(source, "settings")
        if "settings" not in data:
            raise SchemaError(f"{where} has no [settings] table; add one with epsilon = 1.0")
        try:
            return cls.from_dict(data["settings"])  # type: ignore[arg-type]
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from error
