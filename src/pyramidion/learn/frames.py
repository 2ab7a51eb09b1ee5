"""What scikit-learn users hand over, as columns and as a schema.

Nothing here looks at values to decide what is counted: which columns there
are, and their types, is all that a schema may be guessed from. Classes are
declared, or follow from a boolean label; reading them off ``y`` would reveal
which labels occur, and is done only at epsilon = inf.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pyramidion.batches import Batch, Raw, columns_of, pandas_column
from pyramidion.errors import ObservationError, PrivacyError, SchemaError
from pyramidion.schema import Categorical, Feature, Label, Schema


def names_of(X: Any) -> list[str] | None:
    """The names of the columns, or None where they are known by position alone."""
    if isinstance(X, pa.Table | pa.RecordBatch):
        return list(X.schema.names)
    columns = getattr(X, "columns", None)
    if columns is not None:
        names = list(columns)
        return names if all(isinstance(name, str) for name in names) else None
    if isinstance(X, Mapping):
        return list(X)
    if isinstance(X, list | tuple) and X and isinstance(X[0], Mapping):
        return list(X[0])
    return None


def batch_of(X: Any, names: Sequence[str]) -> Batch:
    """The named columns; an array's columns take the names in order."""
    if names_of(X) is not None:
        return Batch(*columns_of(X, names))
    columns = [X.iloc[:, j] for j in range(X.shape[1])] if hasattr(X, "iloc") else X.T
    if len(columns) != len(names):
        raise ObservationError(
            f"X has {len(columns)} columns where {len(names)} were fitted; send the same columns"
        )
    taken = {name: pandas_column(column) for name, column in zip(names, columns, strict=True)}
    return Batch(taken, len(X))


def labels_of(y: Any, labels: Sequence[Label]) -> dict[str, Raw]:
    """The labels' columns: by name from a frame, otherwise in order."""
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None; counts are counts of labels"
        )
    names = [label.name for label in labels]
    known = names_of(y)
    if known is not None and set(names) <= set(known):
        return columns_of(y, names)[0]
    if isinstance(y, pa.Array | pa.ChunkedArray):
        return {names[0]: y}
    values = y if hasattr(y, "dtype") else np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1 and len(names) == 1:
        warnings.warn("A column-vector y was passed when a 1d array was expected", stacklevel=4)
        values = np.asarray(values).ravel()
    if values.ndim == 1 and len(names) == 1:
        return {names[0]: pandas_column(values)}
    if values.ndim != 2 or values.shape[1] != len(names):
        raise ObservationError(f"y has not one column for each label; send {', '.join(names)}")
    array = np.asarray(values)
    return {name: pandas_column(array[:, j]) for j, name in enumerate(names)}


def guess_schema(
    batch: Batch,
    *,
    declared: Iterable[Feature],
    groups: Iterable[Sequence[str]],
    label: Label | Sequence[Label],
    weight: str | None,
) -> Schema:
    """A schema from columns' names and types; declared features win, the rest are categories."""
    given = {feature.name: feature for feature in declared}
    unknown = [name for name in given if name not in batch.columns]
    if unknown:
        raise SchemaError(
            f"feature {unknown[0]!r} is declared and X has no such column; its columns are "
            f"{', '.join(map(repr, batch.columns))}"
        )
    features = [
        given.get(name) or _guess(name, column)
        for name, column in batch.columns.items()
        if name != weight
    ]
    return Schema(features=features, label=label, groups=groups, weight=weight)


def _guess(name: str, column: Raw) -> Feature:
    kind = None if isinstance(column, list) else column.type
    if kind is not None and pa.types.is_boolean(kind):
        return Categorical(name, domain=[False, True])
    if kind is not None and pa.types.is_floating(kind):
        warnings.warn(
            f"column {name!r} holds floats and is counted by exact value; to count it in bins "
            f"declare features=[Continuous({name!r}, bins=4, bounds=(low, high))]",
            stacklevel=5,
        )
    return Categorical(name)


def guess_label(y: Any, taken: Iterable[str], classes: Any, *, private: bool) -> Label:
    """The label, from declared classes, or a boolean y, or (without privacy) the values of y."""
    if y is None:
        labels_of(None, [])
    name = getattr(y, "name", None)
    if not isinstance(name, str) or not name or name in taken:
        name = "y" if "y" not in taken else "label"
    if classes is not None:
        return Label(name, classes=classes)
    values = np.asarray(y)
    if values.dtype == np.bool_:
        return Label(name, classes=[False, True])
    if private:
        raise PrivacyError(
            "the classes of y are not declared, and reading them off the data would reveal which "
            "labels occur; pass classes=[...], or label=Label(name, edges=[...]) for numbers"
        )
    return Label(name, classes=_seen(values))


def _seen(values: Any) -> list[Any]:
    if values.ndim == 2 and values.shape[1] == 1:
        values = values.ravel()
    if values.dtype.kind == "f" and not np.array_equal(values, np.floor(values)):
        raise ValueError(
            "Unknown label type: continuous; declare label=Label(name, edges=[...]) to count a "
            "number in bins"
        )
    seen = [value.item() if isinstance(value, np.generic) else value for value in np.unique(values)]
    if len(seen) < 2:
        raise ValueError("y has 1 class, and counts need at least two; pass classes=[...]")
    return seen
