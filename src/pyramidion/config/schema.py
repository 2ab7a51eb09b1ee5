"""What an observation is: features, label, groups, and the columns that help.

A schema is written by people before any observation is seen. It is public,
frozen and hashable, reads and writes TOML, and refuses what cannot be counted
at once rather than at the first batch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyramidion.config import toml
from pyramidion.config.bins import Cuts
from pyramidion.config.checks import Value, checked_items, checked_keys, checked_name, fill, nearest
from pyramidion.config.features import Categorical, Continuous, Feature, feature_from_dict
from pyramidion.config.label import Label, label_from_dict
from pyramidion.config.spelling import spelled
from pyramidion.errors import SchemaError

__all__ = ["Categorical", "Continuous", "Feature", "Label", "Schema", "Value"]

MOST_CELLS = 4096
"""Joint label classes: each is one more noisy cell in every row of every table."""

READ = re.compile(r"@[0-9]+$")
"""How the name of a table ends whose bins were read from the window of that number."""

KEYS = ("time", "weight", "unit", "groups", "label", "features")


@dataclass(frozen=True, init=False)
class Schema:
    """Features, label and groups of one stream of observations.

    Each feature has a count table of its own; each group, a tuple of feature
    names, is counted together in one more. Several labels are counted jointly.
    ``time`` names the event time, ``weight`` the propensity, ``unit`` the person.

    >>> schema = Schema(
    ...     time="time",
    ...     label=Label("late", classes=[0, 1]),
    ...     features=[Categorical("origin"), Categorical("dest")],
    ...     groups=[("origin", "dest")],
    ... )
    >>> schema.tables
    (('origin',), ('dest',), ('origin', 'dest'))
    """

    features: tuple[Feature, ...]
    label: Label | tuple[Label, ...]
    groups: tuple[tuple[str, ...], ...]
    time: str | None
    weight: str | None
    unit: str | None

    def __init__(
        self,
        *,
        features: Iterable[Feature],
        label: Label | Iterable[Label],
        groups: Iterable[Sequence[str]] = (),
        time: str | None = None,
        weight: str | None = None,
        unit: str | None = None,
    ) -> None:
        labels = _checked_labels(label)
        fill(
            self,
            features=_checked_features(features),
            label=labels[0] if len(labels) == 1 else labels,
            groups=tuple(map(_checked_group, checked_items("groups", groups))),
            time=None if time is None else checked_name("the time column", time),
            weight=None if weight is None else checked_name("the weight column", weight),
            unit=None if unit is None else checked_name("the unit column", unit),
        )
        _refuse_shared_columns(self)
        _refuse_wide_labels(self)
        _refuse_unknown_parts(self)
        _refuse_same_tables(self)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels, one or several."""
        return self.label if isinstance(self.label, tuple) else (self.label,)

    @property
    def cardinality(self) -> int:
        """How many joint classes the labels have: cells in one row of a table."""
        return math.prod(label.cardinality for label in self.labels)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The features' names, in order."""
        return tuple(feature.name for feature in self.features)

    @property
    def tables(self) -> tuple[tuple[str, ...], ...]:
        """The features counted in each table: every feature alone, then the groups."""
        return (*((name,) for name in self.feature_names), *self.groups)

    @property
    def table_names(self) -> tuple[str, ...]:
        """The tables' names: their features joined by commas."""
        return tuple(map(",".join, self.tables))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Every column an observation must have, each once."""
        labels = (label.name for label in self.labels)
        columns = (self.time, *self.feature_names, *labels, self.weight, self.unit)
        return tuple(dict.fromkeys(column for column in columns if column is not None))

    @cached_property
    def _by_name(self) -> dict[str, Feature]:
        return {feature.name: feature for feature in self.features}

    def feature(self, name: str) -> Feature:
        """Return the feature of this name."""
        if name in self._by_name:
            return self._by_name[name]
        raise SchemaError(f"there is no feature {name!r}; {nearest(name, self.feature_names)}")

    def codes(self, table: Iterable[str]) -> int | None:
        """Return the rows of a dense table of these features; None when one of them is open.

        >>> carrier = Categorical("carrier", domain=["AA", "UA"])
        >>> delay = Continuous("delay", edges=[0])
        >>> late = Label("late", classes=[0, 1])
        >>> Schema(features=[carrier, delay], label=late).codes(("carrier", "delay"))
        12
        """
        rows = [self.feature(name).codes for name in table]
        known = [codes for codes in rows if codes is not None]
        return math.prod(known) if len(known) == len(rows) else None

    @property
    def binned(self) -> dict[str, tuple[int, tuple[float, float]]]:
        """Bins and bounds of the columns whose edges a store reads from rows, privately."""
        some = (*self.features, *self.labels)
        continuous = [column for column in some if isinstance(column, Continuous | Label)]
        return {c.name: (c.bins, c.bounds) for c in continuous if c.bins and c.bounds}

    @cached_property
    def moving(self) -> frozenset[str]:
        """The names of the tables whose bins are read from rows; of all, where the label's are.

        >>> features = [Categorical("carrier"), Continuous("distance", bins=4, bounds=(0, 5000))]
        >>> sorted(Schema(features=features, label=Label("late", classes=[0, 1])).moving)
        ['distance']
        """
        if any(label.bins is not None for label in self.labels):
            return frozenset(("", *self.table_names))
        named = zip(self.table_names, self.tables, strict=True)
        return frozenset(name for name, parts in named if not self.binned.keys().isdisjoint(parts))

    def refuse_alike(self) -> None:
        """Refuse declared values that are one where values are read by their text.

        Not when a schema is made: streams that read values by their type may have such ones.
        """
        for feature in self.features:
            if isinstance(feature, Categorical) and feature.domain is not None:
                _refuse_alike(f"the domain of feature {feature.name!r}", feature.domain)
        for label in self.labels:
            _refuse_alike(f"the classes of label {label.name!r}", label.classes or ())

    def cut(self, cuts: Cuts) -> Schema:
        """Return the schema with bins cut at edges that were read from rows."""
        return self._with(
            features=[
                feature.cut(cuts.of(feature.name)) if isinstance(feature, Continuous) else feature
                for feature in self.features
            ],
            label=[label.cut(cuts.of(label.name)) for label in self.labels],
        )

    def only(self, names: Iterable[str]) -> Schema:
        """Return the schema of some tables, groups in the order of their names."""
        names = list(dict.fromkeys(map(bare, names)))
        by_name = {",".join(group): group for group in self.groups}
        return self._with(
            features=[feature for feature in self.features if feature.name in names],
            groups=[by_name[name] for name in names if name in by_name],
        )

    def plus(self, group: Iterable[str]) -> Schema:
        """Return the schema with one more group."""
        return self._with(groups=(*self.groups, tuple(group)))

    def less(self, name: str) -> Schema:
        """Return the schema without a feature and the groups it is in, or without a group."""
        if name in map(",".join, self.groups):
            return self._with(groups=[group for group in self.groups if ",".join(group) != name])
        self.feature(name)  # says which names there are
        if name == self.unit:
            raise SchemaError(
                f"feature {name!r} is also the unit that people are protected by; a stream without "
                f"it needs a store of its own"
            )
        if len(self.features) == 1:
            raise SchemaError(f"feature {name!r} is the only one; a store must count at least one")
        return self._with(
            features=[feature for feature in self.features if feature.name != name],
            groups=[group for group in self.groups if name not in group],
        )

    def _with(self, **changes: Any) -> Schema:
        names = ("features", "label", "groups", "time", "weight", "unit")
        return Schema(**({name: getattr(self, name) for name in names} | changes))

    def to_dict(self) -> dict[str, object]:
        """Return plain lists, dicts, text and numbers, as TOML and JSON hold them."""
        labels = [label.to_dict() for label in self.labels]
        told: dict[str, object] = {
            "time": self.time,
            "weight": self.weight,
            "unit": self.unit,
            "groups": [list(group) for group in self.groups] or None,
            "label": labels[0] if len(labels) == 1 else labels,
            "features": [feature.to_dict() for feature in self.features],
        }
        return {key: value for key, value in told.items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Schema:
        """Make a schema from what :meth:`to_dict` gives."""
        told = checked_keys("the schema", data, KEYS)
        for key in ("label", "features"):
            if key not in told:
                table = "[[features]]" if key == "features" else "[label]"
                raise SchemaError(f"the schema has no {key}; add a {table} table")
        label = told["label"]
        label = list(map(label_from_dict, label if isinstance(label, list) else [label]))
        features = enumerate(checked_items("features", told["features"]), start=1)
        made = [feature_from_dict(feature, position) for position, feature in features]
        return cls(**(told | {"label": label, "features": made}))  # type: ignore[arg-type]

    def to_toml(self) -> str:
        """Return the schema as the text of a schema file."""
        return toml.written(self.to_dict())

    @classmethod
    def from_toml(cls, source: str | Path) -> Schema:
        """Read a schema file, or its text; a ``[settings]`` table beside it is left alone."""
        data, where = toml.read(source, "schema")
        try:
            told = checked_keys("the schema", data, (*KEYS, "settings"))
            return cls.from_dict({key: told[key] for key in told if key != "settings"})
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from error


def _refuse_alike(what: str, values: Iterable[Value]) -> None:
    seen: dict[object, Value] = {}
    for value in values:
        text = spelled(value)
        if text is None:
            raise SchemaError(
                f"{what} holds {value!r}, which is a missing value; remove it, a missing value is "
                f"never listed"
            )
        if isinstance(value, float) and abs(value) >= 2.0**53:
            raise SchemaError(
                f"{what} holds {value!r}, a float of 2^53 or more, which no row may have; write a "
                f"whole number or text"
            )
        if text in seen:
            raise SchemaError(
                f"{what} holds {seen[text]!r} and {value!r}, which have the same text and count as "
                f"the same value; keep one of them"
            )
        seen[text] = value


def bare(table: str) -> str:
    """Return a table's name without the window that its bins were read from.

    >>> bare("origin,distance@7"), bare("origin")
    ('origin,distance', 'origin')
    """
    return READ.sub("", table)


def _checked_labels(given: object) -> tuple[Label, ...]:
    one = isinstance(given, Label | str | bytes) or not isinstance(given, Iterable)
    labels = (given,) if one else checked_items("label", given)
    if not labels:
        raise SchemaError("the schema has no label; give label=Label(...)")
    return tuple(map(_label, labels))


def _checked_features(given: object) -> tuple[Feature, ...]:
    features = checked_items("features", given)
    if not features:
        raise SchemaError("the schema has no features; list at least one Categorical or Continuous")
    return tuple(map(_feature, features))


def _feature(given: object) -> Feature:
    if isinstance(given, Categorical | Continuous):
        return given
    raise SchemaError(
        f"features must be Categorical or Continuous, not {type(given).__name__}; "
        f'write Categorical("name") or Continuous("name", edges=[...])'
    )


def _label(given: object) -> Label:
    if isinstance(given, Label):
        return given
    raise SchemaError(
        f"label must be a Label or a list of Labels, not {type(given).__name__}; "
        f'write Label("name", classes=[0, 1])'
    )


def _checked_group(given: object) -> tuple[str, ...]:
    parts = [checked_name("a feature in a group", part) for part in checked_items("a group", given)]
    if len(parts) < 2:
        raise SchemaError(
            f"group {tuple(parts)} has fewer than two features; "
            f"name two or more, each feature has a table of its own already"
        )
    if len(set(parts)) < len(parts):
        raise SchemaError(f"group {tuple(parts)} names a feature twice; name each once")
    return tuple(parts)


def _refuse_shared_columns(schema: Schema) -> None:
    """One column, one role; only a unit may be a feature too."""
    roles = [("a feature", name) for name in schema.feature_names]
    roles += [("a label", label.name) for label in schema.labels]
    single = {"the time": schema.time, "the weight": schema.weight, "the unit": schema.unit}
    roles += [(role, name) for role, name in single.items() if name is not None]
    taken: dict[str, str] = {}
    for role, name in roles:
        before = taken.get(name)
        if before == role:
            raise SchemaError(f"column {name!r} is declared twice as {role}; remove one of them")
        if before is not None and (before, role) != ("a feature", "the unit"):
            raise SchemaError(
                f"column {name!r} is both {before} and {role}; a column has one role, "
                f"so remove one of them"
            )
        taken[name] = role


def _refuse_wide_labels(schema: Schema) -> None:
    if schema.cardinality > MOST_CELLS:
        raise SchemaError(
            f"the labels have {schema.cardinality} joint classes and at most {MOST_CELLS} can be "
            f"counted; use fewer labels, classes or edges"
        )


def _refuse_unknown_parts(schema: Schema) -> None:
    names = schema.feature_names
    known = set(names)
    for group in schema.groups:
        for part in group:
            if part not in known:
                raise SchemaError(
                    f"group {group} names {part!r}, which is not a feature; {nearest(part, names)}"
                )


def _refuse_same_tables(schema: Schema) -> None:
    groups, names = set[frozenset[str]](), set[str]()
    for table, name in zip(schema.tables, schema.table_names, strict=True):
        if frozenset(table) in groups:
            raise SchemaError(f"group {table} is there twice, the order does not matter; drop one")
        if READ.search(name):
            raise SchemaError(
                f"table {name!r} is called as if its bins were read from a window; rename the "
                f"column, without @ and a number at the end"
            )
        if name in names:
            raise SchemaError(f"two tables would be called {name!r}; rename a column with a comma")
        groups.add(frozenset(table))
        names.add(name)
