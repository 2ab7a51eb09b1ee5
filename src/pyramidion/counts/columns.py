"""Which columns features have, where each comes from, and what it is called.

Every table gives the same columns, in the order of the schema's tables. A group's table also
gives its *surplus*: the log-odds less what its parts say together. Linear models learn from the
one, trees from the other (see docs/evaluation.md, Q3). Raw values of small finite features
come after, one column per value. Names are unique, and hold none of the characters that LightGBM
refuses unless the schema's own names do (a group's parts are joined by ``*``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.schema import Continuous, Feature, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.counts import estimate_kernels, rate_kernels
from pyramidion.rows.encoding import TableShape

_SOURCES = {
    "probability": (rate_kernels.PROBABILITY, "P"),
    "log-odds": (rate_kernels.LOG_ODDS, "logit"),
    "count": (rate_kernels.COUNT, "count"),
}


class Columns:
    """The columns of a schema under some settings.

    >>> from pyramidion.config.schema import Categorical
    >>> schema = Schema(label=Label("late", classes=[0, 1]), features=[Categorical("carrier")])
    >>> Columns(schema, Settings(epsilon=1.0), [TableShape(("carrier",), None)]).names
    ['P(late=1|carrier)']
    """

    def __init__(self, schema: Schema, settings: Settings, shapes: Sequence[TableShape]) -> None:
        each = _each_table(schema.labels, settings.columns)
        shrunk = settings.estimate == "shrinkage"  # the paper's ratio knows no parts
        more = _surplus(schema.labels) if shrunk else []
        self.template: NDArray[np.int64] = np.array(
            [(s, i) for s, i, _ in each + more], dtype=np.int64
        )
        """Source and index of each column of a table; the last are those of groups alone."""
        given = [each if len(shape.parts) == 1 else each + more for shape in shapes]
        self.names = [
            name.format("*".join(shape.parts))
            for shape, some in zip(shapes, given, strict=True)
            for _, _, name in some
        ]
        self.parts = [shape.parts for shape, some in zip(shapes, given, strict=True) for _ in some]
        """The features of the table that each column comes from."""
        self.makeup = _makeup(shapes, list(map(len, given)), parts=shrunk)
        self.raw: list[tuple[int, int, int]] = []
        """Table, first column and codes of each feature whose raw value is passed through."""
        for table, shape in enumerate(shapes):
            codes = shape.codes
            if len(shape.parts) == 1 and codes is not None and codes <= settings.passthrough:
                self.raw.append((table, len(self.names), codes))
                raw = _raw_names(schema.feature(shape.parts[0]))
                self.names += raw
                self.parts += [shape.parts] * len(raw)
        self.names = _unique(self.names)

    def family(self, table: int) -> list[int]:
        """A table and, before it, those of its parts: what its features are made from.

        Tables are numbered without the prior's, which is the kernels' first.
        """
        parts = self.makeup[table + 1, estimate_kernels.MADE_PARTS :]
        return [*(int(part) - 1 for part in parts if part), table]

    def pass_through(self, table: int, keys: NDArray[np.uint64], out: NDArray[np.float32]) -> None:
        """Write a table's raw columns: one where a row has the value, zero elsewhere."""
        for raw, first, codes in self.raw:
            if raw == table:
                out[first : first + codes] = 0.0
                out[first + keys.astype(np.int64), np.arange(keys.size)] = 1.0


def _each_table(labels: Sequence[Label], wanted: Sequence[str]) -> list[tuple[int, int, str]]:
    """Source, index and name pattern of the columns that each table gives."""
    found, start = [], 0
    for number, label in enumerate(labels):
        classes = _named_classes(label)
        shown = classes[1:] if len(classes) == 2 else classes
        for column in wanted:
            if column == "back-off":
                found.append(
                    (rate_kernels.BACK_OFF, number, f"backoff({_quoted(label.name)}|{{}})")
                )
                continue
            source, symbol = _SOURCES[column]
            some = classes if column == "count" else shown
            for name in some:
                index = start + classes.index(name)
                found.append((source, index, f"{symbol}({_quoted(name)}|{{}})"))
        if label.continuous:
            found.append((rate_kernels.EXPECTED, number, f"E({_quoted(label.name)}|{{}})"))
        start += len(classes)
    return found


def _surplus(labels: Sequence[Label]) -> list[tuple[int, int, str]]:
    """Source, index and name pattern of the columns that groups have beside those of features."""
    wanted = _each_table(labels, ["log-odds"])
    return [
        (rate_kernels.SURPLUS, index, name.replace("logit(", "surplus(", 1))
        for source, index, name in wanted
        if source == rate_kernels.LOG_ODDS
    ]


def _makeup(
    shapes: Sequence[TableShape], columns: Sequence[int], *, parts: bool
) -> NDArray[np.int64]:
    """First column, columns and parts of each table, as kernels read them; the prior's has none."""
    number = {shape.parts[0]: t for t, shape in enumerate(shapes, 1) if len(shape.parts) == 1}
    groups = [shape.parts for shape in shapes if parts and len(shape.parts) > 1]
    most = max(map(len, groups), default=0)
    made = np.zeros((len(shapes) + 1, estimate_kernels.MADE_PARTS + most), dtype=np.int64)
    first = 0
    for row, shape, some in zip(made[1:], shapes, columns, strict=True):
        row[: estimate_kernels.MADE_PARTS] = first, some
        if shape.parts in groups:
            known = [number[part] for part in shape.parts if part in number]
            row[estimate_kernels.MADE_PARTS :][: len(known)] = known
        first += some
    return made


def _unique(names: list[str]) -> list[str]:
    """The names, each once: 'other' of a domain that lists 'other' becomes 'other (2)'.

    >>> _unique(["color=other", "color=other", "color=missing"])
    ['color=other', 'color=other (2)', 'color=missing']
    """
    given, taken = set(names), set[str]()
    found = []
    for name in names:
        number, free = 1, name
        while free in taken or (number > 1 and free in given):
            number += 1
            free = f"{name} ({number})"
        taken.add(free)
        found.append(free)
    return found


def _quoted(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")


def _named_classes(label: Label) -> list[str]:
    joiner = " " if label.continuous else "="
    return [f"{label.name}{joiner}{name}" for name in label.class_names]


def _raw_names(feature: Feature) -> list[str]:
    if isinstance(feature, Continuous):
        return [f"{feature.name} {name}" for name in (*feature.bin_names, "missing")]
    domain = [str(value) for value in feature.domain or ()]
    return [f"{feature.name}={name}" for name in (*domain, "other", "missing")]
