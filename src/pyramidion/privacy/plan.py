"""The planner: settings for a schema and what is expected of it, before any row is seen.

Given ε it proposes the settings that cost the probabilities of rows least; given a
target for the cost of a typical key in every table it says which ε that takes.
Everything it uses is public: the schema, and what a person says of the stream. So
planning spends nothing.

    population     how many rows, values and keys are expected
    sketch_errors  what noise and collisions do to a count
    rate_errors    what that does to a probability
    prediction     all tables under given settings
    proposals      the search for settings
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from pyramidion.config import toml
from pyramidion.config.checks import checked_number, checked_whole, nearest
from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.errors import SchemaError
from pyramidion.privacy.plan_reasons import reasons
from pyramidion.privacy.population import Expected
from pyramidion.privacy.prediction import Prediction, Predictor, TablePlan
from pyramidion.privacy.proposals import Alternative, Proposals

MEMORY = 1_000_000_000
"""Bytes for the tables of a window and the complete ones, unless another bound is told."""

WEIGHT_UNIT = 16  # propensities are then rounded by at most a sixteenth
_EPSILONS = (1e-3, 1e3)  # where a target's ε is looked for
_DIGITS = 3
_ROUNDS = 3  # of choosing settings for an ε and an ε for these settings


@dataclass(frozen=True)
class Plan:
    """Proposed settings, what they are predicted to do, and what else was considered."""

    schema: Schema
    settings: Settings
    """Ready for `Pyramid.create`."""
    expected: Expected
    target: float | None
    tables: tuple[TablePlan, ...]
    window_bytes: int
    """Bytes of the tables of one window; in a tree, of those of a node of each level, too."""
    complete_bytes: int
    """Bytes of the complete tables, all windows summed."""
    alternatives: tuple[Alternative, ...]
    """What was compared, the cheapest first."""

    @property
    def epsilon(self) -> float:
        """The ε that was told, or that the target takes."""
        return self.settings.epsilon

    @property
    def cost(self) -> float:
        """What noise and collisions cost the probabilities of a row: root mean square."""
        return self._prediction.cost

    @property
    def window_noise(self) -> float:
        """Noise of all windows summed, in windows that have the whole budget.

        Where they are flat it is that of all of them, in every shard.
        """
        levels, windows = self.settings.levels, self.expected.windows
        if levels is None:
            return float(windows * self.settings.shards)
        return levels.variance(windows, self.settings.mechanism)

    @property
    def levels(self) -> int:
        """Levels of a tree, that of the count windows among them; 1 where windows are flat."""
        return 1 if self.settings.levels is None else self.settings.levels.depth

    @property
    def writes(self) -> int:
        """Rows that are counted in a count window's time: each once in each level."""
        return self.expected.rows * self.levels

    def on_shards(self, shards: int) -> float:
        """The same cost if so many shards took the rows, each under noise of its own.

        >>> from pyramidion import Categorical, Label
        >>> late = Label("late", classes=[0, 1])
        >>> flights = Schema(features=[Categorical("carrier")], label=late)
        >>> three = plan(flights, rows=10_000, epsilon=1, shards=3)
        >>> three.on_shards(1) < three.cost < three.on_shards(9)
        True
        """
        predictor = Predictor(self.schema, self.expected)
        return predictor.predict(_sharded(self.settings, shards)).cost

    @property
    def worst(self) -> TablePlan:
        """The table whose typical key fares worst."""
        return self._prediction.worst

    @property
    def _prediction(self) -> Prediction:
        return Prediction(self.settings, self.tables, self.window_bytes, self.complete_bytes)

    def table(self, name: str) -> TablePlan:
        """One table's plan, by its name."""
        for table in self.tables:
            if table.name == name:
                return table
        names = [table.name for table in self.tables]
        raise SchemaError(f"the plan has no table {name!r}; {nearest(name, names)}")

    def epsilon_for(self, target: float, table: str | None = None) -> float:
        """The ε, to three digits, at which these settings cost no more than ``target``.

        In one table, or in all of them. ``inf`` where no ε is enough: collisions alone
        cost more, or keys have too few rows for the noise of any ε up to 1000.
        """
        checked = _checked_target(target)
        names = [self.table(table).name] if table else [t.name for t in self.tables]
        predictor = Predictor(self.schema, self.expected)
        return _epsilon_for(predictor, self.settings, checked, names)

    @property
    def why(self) -> tuple[str, ...]:
        """Why these settings: one sentence for each choice."""
        return reasons(self)

    def to_toml(self) -> str:
        """The ``[settings]`` table to paste below a schema: what differs from the defaults."""
        told, usual = self.settings.to_dict(), Settings(epsilon=self.epsilon).to_dict()
        kept = {
            name: "none" if value is None else value
            for name, value in told.items()
            if name in ("epsilon", "delta", "rows", "buckets") or value != usual[name]
        }
        if self.settings.shares:
            shares = dict(self.settings.shares)
            kept["shares"] = {toml.inline(name): share for name, share in shares.items()}
        return toml.written({"settings": kept})

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON; where there is no ε it is None."""
        settings = self.settings.to_dict()
        if not self.settings.private:
            settings["epsilon"] = None
        return {
            "settings": settings,
            "target": self.target,
            "rows": self.expected.rows,
            "windows": self.expected.windows,
            "shards": self.settings.shards,
            "window_noise": self.window_noise,
            "skew": self.expected.skew,
            "cost": self.cost,
            "tables": [table.to_dict() for table in self.tables],
            "window_bytes": self.window_bytes,
            "complete_bytes": self.complete_bytes,
            "writes": self.writes,
            "alternatives": [vars(alternative) for alternative in self.alternatives],
            "why": list(self.why),
        }


def plan(
    schema: Schema,
    *,
    rows: int,
    epsilon: float | None = None,
    target: float | None = None,
    delta: float | None = None,
    k: int | None = None,
    windows: int | None = None,
    shards: int | None = None,
    distinct: Mapping[str, int] | None = None,
    memory: int | None = None,
    skew: float = 1.0,
    settings: Settings | None = None,
) -> Plan:
    """Propose settings for a schema, and predict their errors and memory.

    ``rows`` are expected in a count window, ``windows`` are summed at most, and ``shards`` take
    them, each under noise of its own. ``distinct``
    says how many values an open feature or a group has over all windows; what is not told
    is guessed from the rows. Give ``epsilon``, or a ``target``: the standard deviation that
    noise and collisions may bring to the probability of a typical key of every table.
    Knobs that are not the planner's stay as in ``settings``, and so do ``epsilon``,
    ``delta``, ``k`` and the windows where they are not told here.

    >>> from pyramidion import Categorical, Label
    >>> rated = Label("liked", classes=[0, 1])
    >>> movies = Schema(features=[Categorical("user"), Categorical("movie")], label=rated)
    >>> planned = plan(movies, rows=1_000_000, epsilon=1, distinct={"user": 6040, "movie": 3700})
    >>> planned.settings.mechanism
    'laplace'
    """
    base = _sharded(_base(schema, settings, epsilon, target, delta, k), shards)
    count = _windows(settings) if windows is None else windows
    expected = Expected(rows, count, dict(distinct or {}), skew)
    expected.refuse_unknown(schema)
    bound = checked_whole("memory", MEMORY if memory is None else memory, 1, 2**60)
    predictor = Predictor(schema, expected)
    if target is None:
        chosen, compared = Proposals(predictor, base, bound, every_table=False).best()
    else:
        chosen, compared = _for_target(predictor, base, bound, _checked_target(target))
    told = predictor.predict(chosen)
    sizes = (told.window_bytes, told.complete_bytes)
    return Plan(schema, chosen, expected, target, told.tables, *sizes, compared)


def _base(
    schema: Schema,
    settings: Settings | None,
    epsilon: float | None,
    target: float | None,
    delta: float | None,
    k: int | None,
) -> Settings:
    """The knobs that are told, the others as they were or by default."""
    if (epsilon is None) == (target is None) and (settings is None or epsilon is not None):
        raise SchemaError(
            "a plan needs either epsilon or a target for the error, not both; give epsilon=1.0, "
            "or target=0.02 to be told which epsilon that takes"
        )
    told = {"delta": delta, "k": k, "epsilon": 1.0 if target is not None else epsilon}
    given = {name: value for name, value in told.items() if value is not None}
    base = Settings(**given) if settings is None else replace(settings, **given)  # type: ignore[arg-type]
    if schema.weight is None:
        return base
    if base.p_min is None:
        raise SchemaError(
            f"the schema has a weight column, {schema.weight!r}, and noise depends on the smallest "
            f"propensity; give settings=Settings(epsilon=1.0, p_min=0.1), with yours"
        )
    return replace(base, weight_unit=max(base.weight_unit, WEIGHT_UNIT))


def _sharded(base: Settings, shards: int | None) -> Settings:
    """The same for so many shards: what would be read from the rows of one is equal for all."""
    if shards is None or shards == base.shards:
        return base
    weights = "equal" if base.weighted else base.weights
    return replace(base, shards=shards, weights=weights)


def _windows(settings: Settings | None) -> int:
    """Sealed windows within retention at most; 1 where windows are not a length of time."""
    if settings is None or settings.window_us is None:
        return 1
    return max(1, math.ceil(settings.retention_us / settings.window_us) - 1)


def _checked_target(target: object) -> float:
    number = checked_number("target", target)
    if not 0 < number < 1:
        raise SchemaError(
            "target is the standard deviation of a probability, above 0 and below 1; "
            "write 0.02 for two percent points"
        )
    return number


def _for_target(
    predictor: Predictor, base: Settings, memory: int, target: float
) -> tuple[Settings, tuple[Alternative, ...]]:
    """Settings for an ε, the ε for these settings, and again until both stay."""
    names = predictor.schema.table_names
    best: tuple[Settings, tuple[Alternative, ...]] | None = None
    for _ in range(_ROUNDS):
        chosen, compared = Proposals(predictor, base, memory, every_table=True).best()
        epsilon = _epsilon_for(predictor, chosen, target, names)
        if epsilon >= (best[0].epsilon if best is not None else math.inf):
            if best is not None or base.epsilon == _EPSILONS[1]:
                break
        else:
            best = replace(chosen, epsilon=epsilon), compared
        base = replace(base, epsilon=min(epsilon, _EPSILONS[1]))
    if best is None:
        _refuse_target(predictor, chosen, target)
    return best


def _refuse_target(predictor: Predictor, settings: Settings, target: float) -> NoReturn:
    tables = predictor.predict(replace(settings, epsilon=_EPSILONS[1])).tables
    worst = max(tables, key=lambda table: table.cost)
    raise SchemaError(
        f"no epsilon up to {_EPSILONS[1]:g} brings the probabilities of table {worst.name!r} "
        f"within {target:g}: its typical key has {worst.typical:,.0f} rows; raise the target or "
        f"memory, or leave the table out"
    )


def _epsilon_for(
    predictor: Predictor, settings: Settings, target: float, names: Collection[str]
) -> float:
    def holds(epsilon: float) -> bool:
        return max(predictor.costs(replace(settings, epsilon=epsilon), names)) <= target

    low, high = _EPSILONS
    if not holds(high):
        return math.inf
    if holds(low):
        return low
    while high > low * 10**-_DIGITS + low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return _rounded_up(high)


def _rounded_up(number: float) -> float:
    digits = _DIGITS - 1 - math.floor(math.log10(number))
    return math.ceil(number * 10**digits) / 10**digits if digits > 0 else math.ceil(number)


# --- plans for schema files ----------------------------------------------------------------------


def settings_in(file: Mapping[str, object], *, told: bool) -> Settings | None:
    """A schema file's own settings, if it has any; an ε or a target that is told goes first.

    >>> settings_in({"settings": {"k": 2}}, told=True).k
    2
    >>> settings_in({}, told=True)
    """
    knobs = file.get("settings")
    if told and isinstance(knobs, Mapping):
        knobs = {**knobs, "epsilon": 1.0}
    return None if knobs is None else Settings.from_dict(knobs)  # type: ignore[arg-type]


def report(planned: Plan) -> dict[str, object]:
    """A plan in plain values, its settings as text, and the ε that each table asks for."""
    told = planned.to_dict() | {"toml": planned.to_toml()}
    if planned.target is not None:
        found = [planned.epsilon_for(planned.target, table.name) for table in planned.tables]
        told["epsilon_for_table"] = [e if e < math.inf else None for e in found]
    return told
