"""Fitted models of LightGBM as bytes: its own text, after a line of JSON with the classes.

LightGBM walks its trees without checking where a branch leads, so the text is looked over first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from pyramidion.errors import FormatError
from pyramidion.extras import refuse_missing

BROKEN = "an exported model of LightGBM is damaged; export it again"


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
    head = json.dumps({"classes": classes})
    text: str = estimator.booster_.model_to_string(num_iteration=-1, start_iteration=0)
    return f"{head}\n{text}".encode()


def read(data: bytes) -> Boosted:
    """The model."""
    refuse_missing("a model of LightGBM", ["lightgbm"], "models")
    try:
        head, _, text = data.decode().partition("\n")
        classes = json.loads(head)["classes"]
        _refuse_broken(text)
        booster = import_module("lightgbm").Booster(model_str=text)
        return Boosted(booster, classes)
    except FormatError:
        raise
    except Exception:  # LightGBM's own
        raise FormatError(BROKEN) from None


def _refuse_broken(text: str) -> None:
    """Raise for a tree whose branches lead out of it, or back, or ask for other columns."""
    head, *trees = text.split("\nTree=")
    columns = int(dict(_facts(head))["max_feature_idx"]) + 1
    for tree in trees:
        facts = dict(_facts(tree.partition("\nend of trees")[0]))
        leaves = int(facts["num_leaves"])
        if int(facts["num_cat"]) or int(facts.get("is_linear", 0)) or leaves < 1:
            raise FormatError(BROKEN)
        inner = leaves - 1
        left, right, feature = (
            np.array(facts.get(name, "").split(), dtype=np.int64)
            for name in ("left_child", "right_child", "split_feature")
        )
        counted = [
            len(facts.get(name, "").split())
            for name in ("threshold", "decision_type", "leaf_value")
        ]
        _check(left, right, feature, inner, columns)
        if inner and counted != [inner, inner, leaves]:
            raise FormatError(BROKEN)


def _facts(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, found, value = line.partition("=")
        if found:
            yield name, value


def _check(left: Any, right: Any, feature: Any, inner: int, columns: int) -> None:
    """Branches lead to nodes that come later, or to leaves, which are the negative ones."""
    place = np.arange(inner)
    if not all(len(each) == inner for each in (left, right, feature)):
        raise FormatError(BROKEN)
    for child in (left, right):
        later = (child > place) & (child < inner)
        leaf = (child < 0) & (~child <= inner)
        if not (later | leaf).all():
            raise FormatError(BROKEN)
    if ((feature < 0) | (feature >= columns)).any():
        raise FormatError(BROKEN)
