"""Fitted models of LightGBM as bytes: its own text, after a line of JSON with the classes.

LightGBM's reader trusts its text: a count that does not fit, a branch that leads out of its tree or
no trees per round end the process. So LightGBM never sees the bytes that came. They are read here
into numbers, the numbers are checked, and LightGBM gets a text that is written from them:

    classes          one, or one per tree of a round; two may share a tree
    objective        a known name with known facts about it, as many classes as trees of a round
    columns          as many as are named
    trees            whole rounds of them; no categories, no linear leaves
    a tree           so many leaves, one node less; a branch leads to a later node or to a leaf of
                     the tree, and asks for a column that exists; all numbers are finite

What is not needed to predict (parameters, how many rows came to each leaf) is left out, so it does
not leave the store either.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from pyramidion.errors import FormatError, SchemaError, refuse_missing

BROKEN = "an exported model of LightGBM is damaged; export it again"

PLAIN = (
    *("regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma"),
    *("tweedie", "cross_entropy", "cross_entropy_lambda", "lambdarank", "rank_xendcg"),
)
"""Objectives that give one number for a row."""

_NUMBER = r"[0-9.e+-]+"
OBJECTIVE = re.compile(
    rf"(?P<plain>{'|'.join(PLAIN)})(?P<sqrt> sqrt)?"
    rf"|binary sigmoid:(?P<binary>{_NUMBER})"
    rf"|multiclass num_class:(?P<classes>[0-9]+)"
    rf"|multiclassova num_class:(?P<apart>[0-9]+) sigmoid:(?P<sigmoid>{_NUMBER})"
)


class Boosted:
    """A booster with the verbs of the estimator it comes from."""

    def __init__(self, booster: Any, classes: list[Any] | None) -> None:
        self.booster = booster
        self.n_features_in_: int = booster.num_feature()
        if classes is not None:
            self.classes_ = np.array(classes)
            self.predict_proba = self._chances

    def _chances(self, X: Any) -> NDArray[np.float64]:
        given = self._scores(X)
        return given if given.ndim == 2 else np.vstack([1.0 - given, given]).T

    def _scores(self, X: Any) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.booster.predict(X, validate_features=False)
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class, or the expected number."""
        if not hasattr(self, "classes_"):
            return self._scores(X)
        likeliest: NDArray[Any] = self.classes_[self._chances(X).argmax(axis=1)]
        return likeliest


def written(estimator: Any) -> bytes:
    """The bytes of an LGBMClassifier or LGBMRegressor."""
    classes = estimator.classes_.tolist() if is_classifier(estimator) else None
    text: str = estimator.booster_.model_to_string(num_iteration=-1, start_iteration=0)
    try:
        model = _Model.of(text, classes)
    except FormatError:
        raise SchemaError(
            f"{type(estimator).__name__} cannot be exported: it has linear trees, categorical "
            f"splits or an objective that no edge may load; train it without"
        ) from None
    return f"{json.dumps({'classes': classes})}\n{model.text()}".encode()


def read(data: bytes) -> Boosted:
    """The model, from numbers that were checked; raises a `FormatError` for all others."""
    refuse_missing("a model of LightGBM", ["lightgbm"], "models")
    try:
        head, _, text = data.decode().partition("\n")
        classes = json.loads(head)["classes"]
        model = _Model.of(text, classes)
        return Boosted(import_module("lightgbm").Booster(model_str=model.text()), classes)
    except FormatError:
        raise
    except Exception:  # LightGBM's own, or of JSON
        raise FormatError(BROKEN) from None


def _refuse(broken: object) -> None:
    if broken:
        raise FormatError(BROKEN)


Facts = dict[str, str]


def _facts(lines: Iterable[str]) -> Facts:
    """The lines of a part of the text, as ``name=value``."""
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _whole(text: str) -> int:
    _refuse(not re.fullmatch("-?[0-9]{1,9}", text))
    return int(text)


def _wholes(facts: Facts, name: str, size: int) -> NDArray[np.int64]:
    found = [_whole(each) for each in facts.get(name, "").split()]
    _refuse(len(found) != size)
    return np.array(found, dtype=np.int64)


def _floats(facts: Facts, name: str, size: int) -> list[float]:
    try:
        found = [float(each) for each in facts.get(name, "").split()]
    except ValueError:
        raise FormatError(BROKEN) from None
    _refuse(len(found) != size or not all(map(math.isfinite, found)))
    return found


def _line(name: str, values: Iterable[Any], form: Callable[[Any], str] = str) -> str:
    return f"{name}={' '.join(map(form, values))}"


@dataclass(frozen=True)
class _Tree:
    """A tree whose branches end in its leaves."""

    feature: list[int]
    decision: list[int]
    left: list[int]
    right: list[int]
    threshold: list[float]
    leaf: list[float]

    @classmethod
    def of(cls, facts: Facts, columns: int) -> _Tree:
        leaves = _whole(facts.get("num_leaves", ""))
        _refuse(leaves < 1 or _whole(facts.get("num_cat", "")))
        _refuse(_whole(facts.get("is_linear", "0")))
        leaf, inner = _floats(facts, "leaf_value", leaves), leaves - 1
        if not inner:  # LightGBM leaves the nodes' lines empty, or out
            return cls([], [], [], [], [], leaf)
        feature, decision, left, right = (
            _wholes(facts, name, inner)
            for name in ("split_feature", "decision_type", "left_child", "right_child")
        )
        _refuse(((feature < 0) | (feature >= columns)).any())
        # Bit 0: a category. Bit 1: where missing goes. Bits 2 and 3: what is missing; no fourth.
        _refuse(((decision < 0) | (decision >= 12) | (decision & 1 > 0)).any())
        place = np.arange(inner)
        for child in (left, right):
            later = (child > place) & (child < inner)
            outer = (child < 0) & (~child <= inner)
            _refuse(not (later | outer).all())
        threshold = _floats(facts, "threshold", inner)
        wholes = feature.tolist(), decision.tolist(), left.tolist(), right.tolist()
        return cls(*wholes, threshold, leaf)

    def lines(self, number: int) -> Iterator[str]:
        yield f"Tree={number}"
        yield f"num_leaves={len(self.leaf)}"
        yield "num_cat=0"
        if self.feature:
            yield _line("split_feature", self.feature)
            yield _line("threshold", self.threshold, repr)
            yield _line("decision_type", self.decision)
            yield _line("left_child", self.left)
            yield _line("right_child", self.right)
        yield _line("leaf_value", self.leaf, repr)
        yield "is_linear=0"
        yield "shrinkage=1"
        yield ""


@dataclass(frozen=True)
class _Model:
    """All that predicts, as numbers."""

    columns: int
    width: int
    """Trees of a round, which are the classes, or one."""
    objective: str
    average: bool
    trees: list[_Tree]

    @classmethod
    def of(cls, text: str, classes: object) -> _Model:
        """The model in a text, once every number in it was checked."""
        head, *trees = text.partition("\nend of trees")[0].split("\nTree=")
        facts = _facts(head.split("\n"))
        columns = len(facts.get("feature_names", "").split())
        width = _whole(facts.get("num_tree_per_iteration", ""))
        _refuse(columns < 1 or _whole(facts.get("max_feature_idx", "")) != columns - 1)
        _refuse(_whole(facts.get("num_class", "")) != width or width < 1)
        _refuse(not trees or len(trees) % width)
        objective = _objective(facts.get("objective", ""), width)
        _refuse(not _fits(classes, width))
        made = [_Tree.of(_facts(tree.split("\n")), columns) for tree in trees]
        return cls(columns, width, objective, "average_output" in facts, made)

    def text(self) -> str:
        """The text for LightGBM; the same for the same numbers."""
        lines = ["tree", "version=v4"]
        lines += [f"num_class={self.width}", f"num_tree_per_iteration={self.width}"]
        lines += ["label_index=0", f"max_feature_idx={self.columns - 1}"]
        lines += [f"objective={self.objective}", *["average_output"] * self.average]
        lines += [_line("feature_names", (f"Column_{n}" for n in range(self.columns)))]
        lines += [_line("feature_infos", ["none"] * self.columns), ""]
        for number, tree in enumerate(self.trees):
            lines += tree.lines(number)
        lines += ["end of trees", "", "parameters:", "end of parameters", ""]
        return "\n".join([*lines, "pandas_categorical:null", ""])


def _objective(text: str, width: int) -> str:
    """An objective, written again; LightGBM makes room for as many classes as it says."""
    found = OBJECTIVE.fullmatch(text)
    if found is None:
        raise FormatError(BROKEN)
    many = found["classes"] or found["apart"]
    _refuse(_whole(many or "1") != width or (many and width < 2))
    for slope in (found["binary"], found["sigmoid"]):
        if slope is not None:
            (value,) = _floats({"": slope}, "", 1)
            _refuse(value <= 0)
    return text


def _fits(classes: object, width: int) -> bool:
    """Whether the classes are as many as the trees of a round give chances for."""
    if classes is None:
        return width == 1
    if not isinstance(classes, list) or not all(isinstance(e, str | int | float) for e in classes):
        return False
    return len(classes) == width if width > 1 else len(classes) in (1, 2)
