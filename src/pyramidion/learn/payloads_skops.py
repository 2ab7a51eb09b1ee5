"""Fitted estimators of scikit-learn as bytes, by skops: names of classes and arrays, never code.

What may be in such bytes is listed here, and looked over before skops sees them: who wrote them
may be anybody. Loading imports the modules of these classes and of no others; no function is ever
named, called or made. Trees are looked over once more when they are there: scikit-learn walks them
without checking where a branch leads.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import all_estimators

from pyramidion.errors import FormatError, SchemaError, refuse_missing
from pyramidion.learn.keepers import parts

SCHEMA = "schema.json"
DAMAGED = "a tree of an exported model is damaged; export it again"
_LOSSES = (
    *("AbsoluteError", "ExponentialLoss", "HuberLoss", "PinballLoss", "HalfSquaredError"),
    *("HalfBinomialLoss", "HalfGammaLoss", "HalfMultinomialLoss", "HalfPoissonLoss"),
)
_LINKS = (
    *("HalfLogitLink", "IdentityLink", "Interval", "LogitLink", "LogLink", "MultinomialLogit"),
)
_NUMBERS = (
    *("bool", "bool_", "str_", "bytes_", "float16", "float32", "float64"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
INNER = frozenset(
    {
        "pyramidion.learn.scaling.FlooredScaler",
        "pyramidion.learn.vowpal.VowpalClassifier",
        "pyramidion.learn.vowpal.VowpalRegressor",
        "pyramidion.learn.vowpal_network.Network",
        "pyramidion.learn.vowpal_rows.Units",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        *(f"sklearn._loss.link.{name}" for name in _LINKS),
        *(f"sklearn._loss.loss.{name}" for name in _LOSSES),
    }
)
"""What estimators are made of, beside other estimators."""
SCALARS = frozenset(f"numpy.{name}" for name in _NUMBERS)
LOSSES = frozenset(f"sklearn._loss._loss.Cy{name}" for name in _LOSSES)
LOADERS = {
    "BytesNode": frozenset({"builtins.bytes"}),
    "DTypeNode": frozenset({"numpy.dtype"}),
    "DictNode": frozenset({"builtins.dict", "sklearn.utils._bunch.Bunch"}),
    "JsonNode": frozenset({"builtins.str"}),
    "ListNode": frozenset({"builtins.list"}),
    "LossNode": LOSSES,
    "NdArrayNode": SCALARS | {"numpy.ndarray"},
    "RandomGeneratorNode": frozenset({"numpy.random._generator.Generator"}),
    "RandomStateNode": frozenset({"numpy.random.mtrand.RandomState"}),
    "TreeNode": frozenset({"sklearn.tree._tree.Tree"}),
    "TupleNode": frozenset({"builtins.tuple"}),
    "TypeNode": SCALARS | {"builtins.str", "builtins.float", "builtins.int"},
}
"""How things are put together again, and which may be so; `ObjectNode` beside, for estimators."""
BITS = ('"MT19937"', '"PCG64"')
"""What a generator may draw by, as it stands there."""


WALKERS = frozenset(
    {
        "sklearn.ensemble._forest",
        "sklearn.ensemble._gb",
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting",
        "sklearn.tree._classes",
    }
)
"""Where the estimators are that walk trees."""


def written(estimator: Any) -> bytes:
    """The bytes of an estimator; raises for one that has something in it that is not listed."""
    refuse_missing("exporting a model of scikit-learn", ["skops"], "models")
    kind = type(estimator).__name__
    try:
        data: bytes = import_module("skops.io").dumps(estimator)
    except Exception:  # whatever it is, it may quote what was learned
        raise SchemaError(f"{kind} cannot be exported: skops cannot write it") from None
    strangers = sorted(_strangers(_schema(data)))
    if strangers:
        raise SchemaError(
            f"{kind} cannot be exported: it holds {strangers[0]}, which no edge may load; register "
            f"another estimator"
        )
    return data


def read(data: bytes) -> Any:
    """The estimator; nothing that is not listed is imported, whatever the bytes say."""
    refuse_missing("a model of scikit-learn", ["skops"], "models")
    strangers = sorted(_strangers(_schema(data)))
    if strangers:
        raise FormatError(f"an exported model may not hold {strangers[0]}; export it again")
    trusted = [*INNER, "sklearn.tree._tree.Tree", "sklearn.utils._bunch.Bunch", "numpy.dtype"]
    try:
        found = import_module("skops.io").loads(data, trusted=trusted)
    except Exception:
        raise FormatError(
            "an exported model cannot be put together again; export it again, by the same versions "
            "of scikit-learn and skops"
        ) from None
    if not isinstance(found, BaseEstimator):
        raise FormatError("an exported model is not an estimator; export it again")
    try:
        for tree in _trees(found):
            _refuse_broken(tree)
    except (AttributeError, LookupError, TypeError, ValueError):  # of what is no tree
        raise FormatError(DAMAGED) from None
    return found


# --- before anything is loaded ----------------------------------------------------------------


def _schema(data: bytes) -> Any:
    """What the bytes say they hold; neither compressed nor damaged."""
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            if all(each.compress_type == ZIP_STORED for each in archive.infolist()):
                return json.loads(archive.read(SCHEMA))
    except (BadZipFile, KeyError, ValueError, RecursionError, NotImplementedError):
        raise FormatError("an exported model is damaged; export it again") from None
    raise FormatError("an exported model is compressed within; export it again")


def _strangers(schema: Any) -> Iterator[str]:
    """All that is named in it and that is not listed."""
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            waiting += each.values()
            if {"__class__", "__module__", "__loader__"} & each.keys() and not _listed(each):
                loader = each.get("__loader__")
                yield f"{each.get('__module__')}.{each.get('__class__')} by {loader}"


def _listed(node: dict[str, Any]) -> bool:
    if node.keys() >= {"__id__", "__loader__"} and node["__loader__"] == "CachedNode":
        return True
    name = f"{node.get('__module__')}.{node.get('__class__')}"
    if node.get("__loader__") == "ObjectNode":
        return name in INNER or name in _estimators()
    if node.get("__loader__") == "RandomGeneratorNode" and not _draws(node):
        return False
    return name in LOADERS.get(str(node.get("__loader__")), ())


def _draws(node: dict[str, Any]) -> bool:
    """Whether a generator draws by what is listed: its name is called when it is made again."""
    try:
        inner = node["content"]["bit_generator"]["content"]["bit_generator"]["content"]
    except (KeyError, TypeError):
        return False
    return inner in BITS


@cache
def _estimators() -> frozenset[str]:
    """The estimators of scikit-learn, by the modules that they are in."""
    return frozenset(f"{kind.__module__}.{kind.__qualname__}" for _, kind in all_estimators())


# --- after -------------------------------------------------------------------------------------


def _trees(thing: Any) -> Iterator[tuple[Any, Any, Any, Any, int]]:
    """Left, right, feature, whether it is a leaf, of each node of each tree; and the columns.

    Columns are those that the estimator which walks the tree checks its rows for.
    """
    for part in parts(thing):
        if isinstance(part, BaseEstimator) and type(part).__module__ in WALKERS:
            for inner in parts(part):
                kind = type(inner).__name__
                if kind == "Tree":
                    left, right, leaf = _branches(inner)
                    yield left, right, inner.feature, leaf, part.n_features_in_
                elif kind == "TreePredictor":
                    yield *_predictor(inner.nodes), part.n_features_in_


def _branches(tree: Any) -> tuple[Any, Any, Any]:
    return tree.children_left, tree.children_right, tree.children_left == -1


def _predictor(nodes: Any) -> tuple[Any, Any, Any, Any]:
    if nodes["is_categorical"].any():
        raise FormatError("an exported tree asks for categories; export it again")
    left, right, feature = (nodes[n].astype(np.int64) for n in ("left", "right", "feature_idx"))
    return left, right, feature, nodes["is_leaf"].astype(bool)


def _refuse_broken(tree: tuple[Any, Any, Any, Any, int]) -> None:
    """Raise for a tree whose branches lead out of it, or back."""
    left, right, feature, leaf, columns = tree
    if not isinstance(columns, int):
        raise FormatError(DAMAGED)
    inner, place = ~leaf, np.arange(len(left))
    sound = len(left) > 0 and (
        (left > place)[inner].all()
        and (right > place)[inner].all()
        and (left < len(left))[inner].all()
        and (right < len(left))[inner].all()
        and (feature >= 0)[inner].all()
        and (feature < columns)[inner].all()
    )
    if not sound:
        raise FormatError(DAMAGED)
