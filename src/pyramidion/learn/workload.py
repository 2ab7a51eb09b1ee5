"""What is learned from what: a label, perhaps coarser than it is counted, and some tables.

Workloads change and the raw history is gone. Whatever follows from hot rows and count tables
needs no history: another algorithm, fewer features or groups, classes merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.checks import Value, checked_items, dumped, loaded, nearest, plain
from pyramidion.config.schema import Label, Schema
from pyramidion.errors import SchemaError
from pyramidion.rows.containers import Batch
from pyramidion.rows.observations import Observations
from pyramidion.rows.validation import Judge, floats, numbers

Merge = Mapping[Value, Iterable[Value]]
Names = Iterable[str | Iterable[str]]
"""Features and groups; a group as a tuple of its features, or as their names joined by commas."""


@dataclass(frozen=True)
class Workload:
    """A label and the tables to learn it from, checked against a schema by `of`.

    >>> from pyramidion.config.schema import Categorical
    >>> late = Label("late", classes=["no", "a bit", "very"])
    >>> schema = Schema(features=[Categorical("carrier"), Categorical("dest")], label=late)
    >>> workload = Workload.of(schema, without=["dest"], merge={"yes": ["a bit", "very"]})
    >>> workload.classes
    ('no', 'yes')
    >>> workload.uses(("carrier", "dest"))
    False
    """

    label: Label
    only: tuple[str, ...] | None = None
    """Tables to use; None: all."""
    without: tuple[str, ...] = ()
    """Features (with every group they are in) and groups to leave out."""
    merge: tuple[tuple[Value, tuple[Value, ...]], ...] = ()
    """New classes, each with the classes it is made of."""

    @classmethod
    def of(
        cls,
        schema: Schema,
        label: str | None = None,
        only: Names | None = None,
        without: Names = (),
        merge: Merge | None = None,
    ) -> Workload:
        """A workload on a store of this schema."""
        chosen = _label_of(schema, label)
        known = schema.table_names
        some = None if only is None else _named("only", only, known)
        merged = _merged(chosen, merge)
        made = cls(chosen, some, _named("without", without, known), merged)
        if not any(made.uses(table) for table in schema.tables):
            raise SchemaError("no table is left to learn from; leave fewer out")
        return made

    def on(self, schema: Schema) -> Workload:
        """The same on a schema that has fewer tables by now, or more."""
        known = schema.table_names
        some = None if self.only is None else tuple(name for name in self.only if name in known)
        return replace(self, only=some)

    @property
    def classifies(self) -> bool:
        """Whether classes are predicted, not numbers."""
        return bool(self.merge) or not self.label.continuous

    @cached_property
    def classes(self) -> tuple[Value, ...]:
        """The classes that are predicted, in the order of the label's; none for a number."""
        if not self.classifies:
            return ()
        new = {old: name for name, olds in self.merge for old in olds}
        return tuple(dict.fromkeys(new.get(old, old) for old in _classes_of(self.label)))

    def uses(self, table: Sequence[str]) -> bool:
        """Whether a table, told by its features, is used."""
        name = ",".join(table)
        if self.only is not None and name not in self.only:
            return False
        return name not in self.without and not any(part in self.without for part in table)

    def y(self, schema: Schema, observations: Observations, batch: Batch) -> NDArray[Any]:
        """The labels of observations as they are learned."""
        if not self.classifies:
            column = numbers(self.label.name, batch.columns[self.label.name], Judge(batch.length))
            return floats(column)
        sizes = [label.cardinality for label in schema.labels]
        place = [label.name for label in schema.labels].index(self.label.name)
        codes = np.unravel_index(observations.labels, sizes)[place]
        found: NDArray[Any] = self._of_code[codes]
        return found

    @cached_property
    def _of_code(self) -> NDArray[Any]:
        new = {old: name for name, olds in self.merge for old in olds}
        return np.array([new.get(old, old) for old in _classes_of(self.label)])

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON; the label by its name."""
        return {
            "label": self.label.name,
            "only": None if self.only is None else list(self.only),
            "without": list(self.without),
            "merge": [[dumped([new]), dumped(olds)] for new, olds in self.merge],
        }

    @classmethod
    def from_dict(cls, schema: Schema, data: Mapping[str, Any]) -> Workload:
        """What `to_dict` told. A table that was withdrawn meanwhile is let go of."""
        what, only = "a stored workload", data["only"]
        merge: list[Any] = [
            [loaded(what, values) for values in (new, olds)] for new, olds in data["merge"]
        ]
        made = tuple((new, tuple(olds)) for (new,), olds in merge)
        some = None if only is None else tuple(only)
        return cls(_label_of(schema, data["label"]), some, tuple(data["without"]), made).on(schema)


def _classes_of(label: Label) -> tuple[Value, ...]:
    """The classes, or the names of the bins of a number."""
    return label.class_names if label.classes is None else label.classes


def _label_of(schema: Schema, name: str | None) -> Label:
    """The label to train on: the only one, or the one that is named."""
    by_name = {label.name: label for label in schema.labels}
    if name is None:
        if len(by_name) > 1:
            raise SchemaError(f"the schema has several labels; name one of {', '.join(by_name)}")
        return schema.labels[0]
    if not isinstance(name, str) or name not in by_name:
        raise SchemaError(f"there is no label {name!r}; {nearest(name, by_name)}")
    return by_name[name]


def _named(what: str, given: Names, known: Sequence[str]) -> tuple[str, ...]:
    found = []
    for item in checked_items(what, given):
        group = () if isinstance(item, str) else checked_items(f"a group in {what}", item)
        name = item if isinstance(item, str) else ",".join(map(str, group))
        if name not in known:
            raise SchemaError(f"{what} names {name!r}, which is no table; {nearest(name, known)}")
        found.append(name)
    return tuple(dict.fromkeys(found))


def _merged(label: Label, merge: Merge | None) -> tuple[tuple[Value, tuple[Value, ...]], ...]:
    if merge is None:
        return ()
    if not isinstance(merge, Mapping):
        raise SchemaError("merge must map each new class to the classes it is made of; write it so")
    if label.bins is not None:
        raise SchemaError(
            f"the bins of label {label.name!r} are read from rows and move, so they cannot be "
            f"merged by name; declare edges to merge bins"
        )
    classes = _classes_of(label)
    told = [(plain(new), checked_items(f"class {new!r}", olds)) for new, olds in merge.items()]
    made = tuple((new, tuple(plain(old) for old in olds)) for new, olds in told)
    taken = [old for _, olds in made for old in olds]
    for old in taken:
        if old not in classes:
            names = ", ".join(map(str, classes))
            raise SchemaError(f"label {label.name!r} has no class {old!r}; merge some of {names}")
        if taken.count(old) > 1:
            raise SchemaError(f"class {old!r} is merged into two; put it into one of them")
    for new, _ in made:
        if new in classes and new not in taken:
            raise SchemaError(
                f"class {new!r} is there already and not among those merged; name the new class "
                f"otherwise, or merge that one too"
            )
    whole = Workload(label, merge=made)  # type: ignore[arg-type]
    if len(whole.classes) < 2 or len({str(name) for name in whole.classes}) < len(whole.classes):
        raise SchemaError(
            f"merging leaves label {label.name!r} fewer than two classes that can be told apart; "
            f"merge fewer"
        )
    return made  # type: ignore[return-value]
