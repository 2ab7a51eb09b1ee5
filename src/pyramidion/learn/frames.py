"""What scikit-learn users hand over, as columns and as a schema.

Nothing here looks at values to decide what is counted, and no row changes how
another one is read: a schema is guessed from the names of columns alone. A type is no
declaration, since containers infer it from rows (one None makes objects of a column
of booleans); so at a finite epsilon a column that is not declared is an open category
of any value, in a sketch of one size. Arrays without a type are judged value by value.
Classes are declared, or follow from a boolean label, which no row can be otherwise
without being refused; reading them off ``y`` would reveal which labels occur, and is
done only at epsilon = inf.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from scipy.sparse import issparse

from pyramidion.config.schema import Categorical, Feature, Label, Schema
from pyramidion.errors import ObservationError, PrivacyError, SchemaError
from pyramidion.rows.containers import Batch, Raw, columns_of, is_columnar, pandas_column

Kind = Literal["bool", "float", "other"]


@dataclass(frozen=True)
class Frame:
    """Columns in their container, by name; those of arrays are called x0, x1, ..."""

    names: list[str]
    source: Any = field(repr=False)
    by_position: bool = False
    from_dicts: bool = False

    def batch(self, names: Sequence[str]) -> Batch:
        """The named columns."""
        if not self.by_position:
            taken, length = columns_of(self.source, names)
        else:
            places = {name: self.names.index(name) for name in names if name in self.names}
            taken, length = {n: self._at(at) for n, at in places.items()}, len(self.source)
        return Batch({name: _wide(column) for name, column in taken.items()}, length)

    def _at(self, position: int) -> Raw:
        source = self.source
        return pandas_column(
            source.iloc[:, position] if hasattr(source, "iloc") else source[:, position]
        )

    def kind(self, name: str) -> Kind:
        """The type that the container gives a column; object columns have none."""
        if self.from_dicts:
            return "other"
        if isinstance(self.source, pa.Table | pa.RecordBatch):
            kind = self.source.schema.field(name).type
            if pa.types.is_boolean(kind):
                return "bool"
            return "float" if pa.types.is_floating(kind) else "other"
        return _declared(self._dtype(name))

    def _dtype(self, name: str) -> Any:
        source, position = self.source, self.names.index(name)
        if isinstance(source, Mapping):
            return getattr(source[name], "dtype", getattr(source[name], "type", None))
        if hasattr(source, "iloc"):
            return source.dtypes.iloc[position]
        if hasattr(source, "columns"):
            return source.schema[name]
        return source.dtype


def _wide(column: Raw) -> Raw:
    """Short floats as doubles: an array has one type for all, and scikit-learn asks for either."""
    if not isinstance(column, list) and column.type in (pa.float16(), pa.float32()):
        return column.cast(pa.float64())
    return column


def _declared(dtype: Any) -> Kind:
    """By name, so that pandas', polars' and NumPy's types need not be imported."""
    told = str(dtype).lower()
    if told.startswith("bool"):
        return "bool"
    return "float" if told.startswith(("float", "double")) else "other"


def frame_of(X: Any) -> Frame:
    """X as columns; refuses what has none, without quoting a value."""
    if issparse(X):
        raise TypeError("X is sparse, and counts need dense columns; pass X.toarray()")
    if isinstance(X, pa.Table | pa.RecordBatch):
        return Frame(list(X.schema.names), X)
    if is_columnar(X):
        return Frame(list(X), X)
    if isinstance(X, Mapping):
        X = [X]
    if isinstance(X, list | tuple) and X and isinstance(X[0], Mapping):
        return Frame(list(X[0]), X, from_dicts=True)
    columns = getattr(X, "columns", None)
    if columns is None:
        array = _array(X)
        return Frame([f"x{j}" for j in range(array.shape[1])], array, by_position=True)
    if all(isinstance(name, str) for name in columns):
        return Frame(list(columns), X)
    return Frame([f"x{j}" for j in range(len(columns))], X, by_position=True)


def _array(X: Any) -> Any:
    """A 2-D array. Without a type of its own it becomes objects: no row may recast another."""
    try:
        array = np.asarray(X) if hasattr(X, "dtype") else np.asarray(X, dtype=object)
    except ValueError:
        raise ValueError("X has rows of different lengths; every row needs each column") from None
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {'scalar' if array.ndim == 0 else f'{array.ndim}D'} array "
            f"instead. Reshape your data either using array.reshape(-1, 1) if your data has a "
            f"single feature or array.reshape(1, -1) if it contains a single sample."
        )
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported; send real and imaginary parts as columns")
    return array


def labels_of(y: Any, labels: Sequence[Label]) -> dict[str, Raw]:
    """The labels' columns: by name from a frame, otherwise in order."""
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None; counts are counts of labels"
        )
    names = [label.name for label in labels]
    if isinstance(y, pa.Array | pa.ChunkedArray):
        return {names[0]: y}
    if hasattr(y, "columns") or isinstance(y, pa.Table | pa.RecordBatch):
        known = frame_of(y)
        if not known.by_position and set(names) <= set(known.names):
            return columns_of(y, names)[0]
    values = _typed(y)
    if values.ndim == 2 and values.shape[1] == 1 and len(names) == 1:
        warnings.warn("A column-vector y was passed when a 1d array was expected", stacklevel=5)
        values = np.asarray(values).ravel()
    if values.ndim == 1 and len(names) == 1:
        return {names[0]: pandas_column(values)}
    if values.ndim != 2 or values.shape[1] != len(names):
        raise ObservationError(f"y has not one column for each label; send {', '.join(names)}")
    array = np.asarray(values)
    return {name: pandas_column(array[:, j]) for j, name in enumerate(names)}


def _typed(y: Any) -> Any:
    """y with the type its container declares, or as objects."""
    return (
        y
        if hasattr(y, "dtype") and hasattr(y, "ndim")
        else np.asarray(y, dtype=None if hasattr(y, "dtype") else object)
    )


def guess_schema(
    frame: Frame,
    *,
    declared: Iterable[Feature],
    groups: Iterable[Sequence[str]],
    label: Label | Sequence[Label],
    weight: str | None,
    private: bool,
) -> Schema:
    """A schema from names; declared features win, the rest are categories."""
    given = {feature.name: feature for feature in declared}
    if frame.from_dicts and private:
        if not given:
            raise PrivacyError(
                "the columns of dicts are known only from the rows themselves, and may tell what a "
                "row holds; declare them with features=[...] or schema="
            )
        return Schema(features=given.values(), label=label, groups=groups, weight=weight)
    unknown = [name for name in given if name not in frame.names]
    if unknown:
        raise SchemaError(
            f"feature {unknown[0]!r} is declared and X has no such column; its columns are "
            f"{', '.join(map(repr, frame.names))}"
        )
    features = [
        given.get(name) or _guess(name, frame.kind(name), private=private)
        for name in frame.names
        if name != weight
    ]
    return Schema(features=features, label=label, groups=groups, weight=weight)


def _guess(name: str, kind: Kind, *, private: bool) -> Feature:
    if kind == "bool" and not private:
        return Categorical(name, domain=[False, True])
    if kind == "bool":
        warnings.warn(
            f"column {name!r} holds booleans and is counted in a sketch, since a row may hold "
            f"anything; for a small table with less noise declare "
            f"features=[Categorical({name!r}, domain=[False, True])]",
            stacklevel=6,
        )
    if kind == "float":
        warnings.warn(
            f"column {name!r} holds floats and is counted by exact value; to count it in bins "
            f"declare features=[Continuous({name!r}, bins=4, bounds=(low, high))]",
            stacklevel=6,
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
    if _declared(getattr(y, "dtype", getattr(y, "type", None))) == "bool":
        return Label(name, classes=[False, True])
    if private:
        raise PrivacyError(
            "the classes of y are not declared, and reading them off the data would reveal which "
            "labels occur; pass classes=[...], or label=Label(name, edges=[...]) for numbers"
        )
    return Label(name, classes=_seen(np.asarray(y)))


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
