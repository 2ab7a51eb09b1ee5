"""The knobs: one frozen :class:`Settings`, checked when made.

Each knob carries its unit, the paper's symbol, what it does and the rule it
must keep, so that docs and command line print the same words
(:meth:`Settings.knobs`) and nobody documents a knob twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from pyramidion.config import knobs, toml
from pyramidion.config.checks import checked_keys, fill
from pyramidion.config.knobs import Knob
from pyramidion.config.spans import Spans
from pyramidion.config.window_tree import Levels, best, tree
from pyramidion.errors import SchemaError

__all__ = ["Column", "Knob", "Settings"]

Column = Literal["probability", "log-odds", "count", "back-off"]


@dataclass(frozen=True, kw_only=True)
class Settings(Spans):
    """How much privacy, how large the tables, how counts become features, what a store keeps.

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
        metadata=knobs.about("k", "observations", knobs.count, "observations hidden together"),
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
            knobs.count,
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
    weights: Literal["equal", "proportional", "least-error", "half"] = field(
        default="half",
        metadata=knobs.about(
            "",
            "choice",
            knobs.one_of("equal", "proportional", "least-error", "half"),
            "how tables share the budget, by how many counts a key has; `shares` by hand go first",
        ),
    )
    quantiles: Literal["exponential", "smooth"] = field(
        default="exponential",
        metadata=knobs.about(
            "",
            "choice",
            knobs.one_of("exponential", "smooth"),
            "how private quantiles are read: exponential is exact, smooth is the paper's",
        ),
    )
    weights_quantile: float = field(
        default=0.5,
        metadata=knobs.about(
            "p",
            "share of the keys",
            knobs.number("above 0 and below 1", lambda p: 0 < p < 1),
            "the quantile of counts per key that weights are made of",
        ),
    )
    weights_share: float = field(
        default=0.05,
        metadata=knobs.about(
            "",
            "share of the budget",
            knobs.reserve,
            "kept back at the birth of a window that private weights are read from",
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
    count_window: str | int | timedelta = field(
        default="30d",
        metadata=knobs.of_store(
            "duration or rows",
            knobs.window,
            "length of a count window, as time or as accepted rows",
        ),
    )
    windows: Literal["flat", "tree"] = field(
        default="flat",
        metadata=knobs.of_store(
            "choice",
            knobs.one_of("flat", "tree"),
            "how windows are summed: flat, all of them; tree, larger nodes in their place, less "
            "noise where there are many",
        ),
    )
    tree_radix: int | None = field(
        default=None,
        metadata=knobs.of_store(
            "nodes",
            knobs.optional(knobs.whole(2, 1024)),
            "how many nodes one node of the next level stands for; None: what leaves least noise",
        ),
    )
    tree_depth: int | None = field(
        default=None,
        metadata=knobs.of_store(
            "levels",
            knobs.optional(knobs.whole(2, 20)),
            "levels of a tree, the count windows among them; None: what leaves least noise",
        ),
    )
    tree_shares: tuple[float, ...] | None = field(
        default=None,
        metadata=knobs.of_store(
            "relative",
            knobs.optional(knobs.numbers),
            "budget shares of the levels of a tree, that of the count windows first; None: what "
            "leaves least noise (by rows: equal ones)",
        ),
    )
    retention: str | timedelta = field(
        default="365d",
        metadata=knobs.of_store(
            "duration",
            knobs.duration,
            "how long a window is kept, from its start; then it is dropped",
        ),
    )
    hot_window: str | timedelta | None = field(
        default="7d",
        metadata=knobs.of_store(
            "duration",
            knobs.optional(knobs.duration),
            "how long a raw row is kept at most; None: only hot_rows bounds it",
        ),
    )
    hot_rows: int | None = field(
        default=None,
        metadata=knobs.of_store(
            "observations",
            knobs.optional(knobs.count),
            "how many raw rows are kept at most; None: only hot_window bounds it",
        ),
    )
    hot_step: str | timedelta = field(
        default="1d",
        metadata=knobs.of_store(
            "duration", knobs.duration, "the hot window slides in steps of this length"
        ),
    )
    hot_step_rows: int | None = field(
        default=None,
        metadata=knobs.of_store(
            "observations",
            knobs.optional(knobs.count),
            "a step also ends at so many rows; None: a tenth of hot_rows",
        ),
    )
    max_skew: str | timedelta = field(
        default="1h",
        metadata=knobs.of_store(
            "duration", knobs.duration, "rows with an event time further in the future are refused"
        ),
    )
    origin: float | str | date = field(
        default=0.0,
        metadata=knobs.of_store(
            "seconds since 1970",
            knobs.moment,
            "where count windows and hot steps begin to be counted, in fixed multiples",
        ),
    )
    checkpoint_rows: int = field(
        default=1_000_000,
        metadata=knobs.of_store(
            "observations",
            knobs.count,
            "rows counted between two checkpoints; bounds the time to reopen a store",
        ),
    )
    train_within: str | timedelta = field(
        default="10m",
        metadata=knobs.of_store(
            "duration",
            knobs.duration,
            "models that take longer to train are given up; hot rows wait for them to be erased",
        ),
    )
    weights_every: int = field(
        default=12,
        metadata=knobs.of_store(
            "windows", knobs.count, "private weights are read from one window in so many"
        ),
    )
    bins_share: float = field(
        default=0.02,
        metadata=knobs.of_store(
            "share of the budget",
            knobs.reserve,
            "kept back at a window's birth for private bin edges",
        ),
    )
    bins_every: int = field(
        default=6,
        metadata=knobs.of_store(
            "windows", knobs.count, "private bin edges are read from one window in so many"
        ),
    )
    selection_share: float = field(
        default=0.0,
        metadata=knobs.of_store(
            "share of the budget",
            knobs.reserve,
            "kept back at a window's birth for group selection: for choosing, and for the tables "
            "of chosen groups",
        ),
    )
    selection: Literal["top-k", "center", "leaky-mutual-information"] = field(
        default="top-k",
        metadata=knobs.of_store(
            "choice",
            knobs.one_of("top-k", "center", "leaky-mutual-information"),
            "how groups are chosen: top-k is exact, center is the paper's; the third leaks, and "
            "needs epsilon = inf",
        ),
    )
    selection_groups: int = field(
        default=10,
        metadata=knobs.of_store(
            "groups", knobs.whole(1, 1_000), "how many groups one selection chooses"
        ),
    )
    selection_parts: int = field(
        default=2,
        metadata=knobs.of_store(
            "features",
            knobs.whole(2, 8),
            "the most features in a chosen group; larger ones grow from those chosen before",
        ),
    )
    selection_every: int | None = field(
        default=None,
        metadata=knobs.of_store(
            "windows",
            knobs.optional(knobs.count),
            "groups are chosen once in so many windows, by themselves; None: when asked to",
        ),
    )
    selection_tables: float = field(
        default=0.5,
        metadata=knobs.of_store(
            "share of selection_share",
            knobs.number("above 0 and below 1", lambda s: 0 < s < 1),
            "what the tables of chosen groups share, where there are some; the rest is for "
            "choosing",
        ),
    )
    trial_windows: int = field(
        default=3,
        metadata=knobs.of_store(
            "windows",
            knobs.count,
            "a chosen group that tells no more than its parts in so many windows is dropped",
        ),
    )
    shards: int = field(
        default=1,
        metadata=knobs.of_store(
            "stores",
            knobs.whole(1, 1_000),
            "how many stores at most take rows of one stream, each into tables with noise of their "
            "own; the noise of the sum has so many times the variance",
        ),
    )
    shard_wait: str | timedelta = field(
        default="1h",
        metadata=knobs.of_store(
            "duration",
            knobs.duration,
            "how long after its end a window waits for all shards before it joins the sum without "
            "those that are behind",
        ),
    )
    rebuild_share: float = field(
        default=0.0,
        metadata=knobs.of_store(
            "share of the budget",
            knobs.reserve,
            "kept back at a window's birth for counting it again, should its tables be tampered",
        ),
    )
    unit_block: str | timedelta | None = field(
        default=None,
        metadata=knobs.of_store(
            "duration",
            knobs.optional(knobs.duration),
            "with `unit`, at most k rows of a person count in a block of this length; "
            "None: as many hot steps as the hot window has",
        ),
    )
    vault_every: str | timedelta = field(
        default="1h",
        metadata=knobs.of_store(
            "duration", knobs.duration, "a file of the vault holds the rows of so long at most"
        ),
    )
    vault_rows: int = field(
        default=1_000_000,
        metadata=knobs.of_store(
            "observations", knobs.count, "a file of the vault ends at so many rows, too"
        ),
    )
    vault_retention: str | timedelta | None = field(
        default=None,
        metadata=knobs.of_store(
            "duration",
            knobs.optional(knobs.duration),
            "how long the vault keeps rows; then nobody opens them, the custodian neither. "
            "None: forever",
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
        if Fraction(repr(self.prior_share)) + sum(self.reserves.values()) >= 1:
            raise SchemaError(
                "settings 'prior_share', 'weights_share', 'bins_share', 'selection_share' and "
                "'rebuild_share' sum to 1 or more and leave the tables nothing; lower one of them"
            )
        if self.private and self.selection == "leaky-mutual-information":
            raise SchemaError(
                "setting 'selection' is 'leaky-mutual-information', which no budget covers; choose "
                "'top-k' or 'center', or say with epsilon = inf that there is no privacy"
            )
        self._check_windows()
        self._check_shards()

    def _check_shards(self) -> None:
        """Shards add up only where nothing that shapes their tables is read from rows of one."""
        if self.shards == 1:
            return
        if self.window_us is None:
            raise SchemaError(
                "setting 'count_window' is a number of rows, and windows of several shards line up "
                "by time alone; give it as a duration"
            )
        if self.windows == "tree":
            raise SchemaError(
                "setting 'windows' is 'tree', and shards are summed window by window; leave it "
                "'flat'"
            )
        if self.weighted:
            raise SchemaError(
                f"setting 'weights' is {self.weights!r}, and weights that one shard reads are not "
                f"those of another; set it to 'equal', or give shares by hand"
            )
        if self.selection_share:
            raise SchemaError(
                "setting 'selection_share' is above 0, and groups that one shard chooses are not "
                "those of another; set it to 0, and give groups by hand"
            )

    def _check_windows(self) -> None:
        if self.window_us is not None and self.retention_us <= self.window_us:
            raise SchemaError(
                f"setting 'retention' ({self.retention}) must be longer than 'count_window' "
                f"({self.count_window}), or no window is kept until it is full; raise retention "
                f"or lower count_window"
            )
        if self.hot_window is None and self.hot_rows is None:
            raise SchemaError(
                "settings 'hot_window' and 'hot_rows' are both None, so raw rows would be kept "
                "for ever; set one of them"
            )
        most = self.max_rows_per_window
        self._check_at_most("count_window", self.window_rows, "max_rows_per_window", most)
        self._check_at_most("max_skew", self.max_skew_us, "count_window", self.window_us)
        self._check_at_most("hot_window", self.hot_window_us, "retention", self.retention_us)
        self._check_at_most("hot_step", self.hot_step_us, "hot_window", self.hot_window_us)
        self._check_at_most("hot_step", self.hot_step_us, "retention", self.retention_us)
        self._check_at_most("hot_step_rows", self.hot_step_rows, "hot_rows", self.hot_rows)
        self._check_tree()

    def _check_tree(self) -> None:
        if self.windows == "flat":
            return
        given = (self.tree_radix, self.tree_depth)
        if self.kept_windows is None and None in given:
            raise SchemaError(
                "setting 'windows' is 'tree' and count windows are cut by rows, so it is not known "
                "how many are kept; give tree_radix and tree_depth"
            )
        if self.tree_shares is not None and len(self.tree_shares) != self.tree_depth:
            raise SchemaError(
                "setting 'tree_shares' has one number for each level, the count windows' first; "
                "give as many as tree_depth says"
            )
        if self.levels is None:
            raise SchemaError(
                f"setting 'windows' is 'tree' and no such tree has less noise than the "
                f"{self.kept_windows} flat windows that are kept; leave it 'flat', or give "
                f"tree_radix and tree_depth by hand"
            )

    @property
    def kept_windows(self) -> int | None:
        """Sealed windows within retention at most; None where windows are cut by rows."""
        if self.window_us is None:
            return None
        return max(1, math.ceil(self.retention_us / self.window_us) - 1)

    @property
    def levels(self) -> Levels | None:
        """The tree of windows; None where they are flat.

        >>> Settings(epsilon=1, count_window="1d", windows="tree").levels.radix
        7
        """
        if self.windows == "flat":
            return None
        kept, radix, depth = self.kept_windows, self.tree_radix, self.tree_depth
        if radix is not None and depth is not None:
            shares = self.tree_shares
            if shares is not None:
                return Levels(radix, tuple(share / sum(shares) for share in shares))
            if kept is None:
                return Levels(radix, (1 / depth,) * depth)
            return tree(kept, radix, depth, self.mechanism)
        return best(kept or 1, self.mechanism, radix, depth)

    def settled(self) -> Settings:
        """The same with the tree written down: a later version may search for another one.

        >>> Settings(epsilon=1, count_window="1d", windows="tree").settled().tree_depth
        3
        """
        levels = self.levels
        if levels is None:
            return self
        radix, shares = levels.radix, levels.shares
        return replace(self, tree_radix=radix, tree_depth=levels.depth, tree_shares=shares)

    def _check_at_most(self, small: str, low: int | None, large: str, high: int | None) -> None:
        """Refuse two knobs in the wrong order; one that is None is in order."""
        if low is not None and high is not None and low > high:
            raise SchemaError(
                f"setting {small!r} ({getattr(self, small)}) must be at most {large!r} "
                f"({getattr(self, large)}); lower {small} or raise {large}"
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

    @property
    def reserves(self) -> dict[str, Fraction]:
        """What a window keeps back of its budget at most, exact on the decimals as written."""
        kept = {
            "weights": self.weights_share,
            "bins": self.bins_share,
            "selection": self.selection_share,
            "rebuild": self.rebuild_share,
        }
        return {name: Fraction(repr(share)) for name, share in kept.items()}

    @property
    def weighted(self) -> bool:
        """Whether tables share the budget by weights that are read from rows."""
        return self.private and self.weights != "equal" and self.shares is None

    @classmethod
    def knobs(cls) -> tuple[Knob, ...]:
        """Return every knob with its symbol, unit, default and meaning, in order."""
        return tuple(
            Knob(
                name=f.name,
                default=None if f.default is MISSING else f.default,
                required=f.default is MISSING,
                **{key: f.metadata[key] for key in ("symbol", "unit", "help", "store")},
            )
            for f in fields(cls)
        )

    def to_dict(self) -> dict[str, object]:
        """Return plain lists, dicts, text and numbers."""
        told: dict[str, object] = {f.name: getattr(self, f.name) for f in fields(self)}
        shares = None if self.shares is None else dict(self.shares)
        levels = None if self.tree_shares is None else list(self.tree_shares)
        return told | {"shares": shares, "columns": list(self.columns), "tree_shares": levels}

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
