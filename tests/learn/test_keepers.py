"""What leaves for an edge holds no row: every estimator that may be registered is trained and read.

Rows are looked for as they are, side by side in any array; and so is anything else that has a
number for each row, from which rows can be computed.
"""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import all_estimators

from pyramidion.errors import SchemaError
from pyramidion.learn import payloads_lightgbm, payloads_skops, payloads_vowpal
from pyramidion.learn.keepers import keeper_in
from pyramidion.learn.vowpal import VowpalClassifier, VowpalRegressor

ROWS = 113
random = np.random.default_rng(0)
X = random.normal(size=(ROWS, 3)).astype(np.float32)
CLASS = (X[:, 0] + random.normal(size=ROWS) > 0).astype(int)
NUMBER = np.exp(X[:, 1] + random.normal(size=ROWS))

KINDS: dict[str, Any] = dict(all_estimators(["classifier", "regressor", "transformer", "cluster"]))
"""All that can be a model, or a step of one."""
INNER = [
    {"estimator": LogisticRegression()},
    {"estimator": Ridge()},
    {"estimators": [("a", LogisticRegression()), ("b", LogisticRegression())]},
    {"estimators": [("a", Ridge()), ("b", Ridge())]},
    {"estimator": LogisticRegression(), "param_grid": {"C": [1.0]}},
    {"estimator": LogisticRegression(), "param_distributions": {"C": [1.0, 2.0]}, "n_iter": 1},
    {"steps": [("scale", StandardScaler()), ("last", LogisticRegression())]},
    {"transformers": [("scale", StandardScaler(), [0, 1, 2])]},
    {"transformer_list": [("scale", StandardScaler())]},
    {"n_components": 1},
    {"n_components": 2},
]
"""What estimators are made of that need something."""
UNTRIED = {
    *("ClassifierChain", "RegressorChain", "MultiOutputClassifier", "MultiOutputRegressor"),
    *("MultiTaskElasticNet", "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV"),
    *("CountVectorizer", "DictVectorizer", "TfidfVectorizer", "HashingVectorizer"),
    *("FeatureHasher", "PatchExtractor", "TfidfTransformer"),
    *("LabelBinarizer", "LabelEncoder", "MultiLabelBinarizer"),
    *("FrozenEstimator", "KernelCenterer", "SparseCoder"),
}
"""Those that take several labels, text, labels alone, or square matrices: no model here can."""


def trained(kind: Any) -> Any | None:
    """An estimator of this kind that has learned the rows; None where none can."""
    for given in ({}, *INNER):
        try:
            made = kind(**given)
            is_number = is_regressor(made) and not is_classifier(made)
        except Exception:  # noqa: S112 it needs something else
            continue
        for rows in (X, np.abs(X), X[:, :1]):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return made.fit(rows, NUMBER if is_number else CLASS)
            except Exception:  # noqa: S112 it takes other rows, or other parameters
                continue
    return None


def arrays(data: bytes) -> Iterator[NDArray[Any]]:
    """All numbers in a payload, as they stand there."""
    if data[:2] != b"PK":
        found = re.findall(rb"-?\d+\.?\d*(?:e[-+]?\d+)?", data)
        yield np.array([float(each) for each in found])
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                yield np.load(io.BytesIO(archive.read(name)), allow_pickle=False)


def leaks(data: bytes) -> set[str]:
    """What a payload tells of single rows."""
    found = set()
    for array in arrays(data):
        if array.dtype.kind != "f":
            continue
        numbers = array.astype(np.float64)
        if any(has_row(numbers.ravel(order=order)) for order in ("C", "F")):
            found.add("a row")
        if len(array.shape) in (1, 2) and ROWS in array.shape:
            found.add("a number for each row")
    return found


def has_row(numbers: NDArray[np.float64]) -> bool:
    """Whether a row stands in it, all values side by side."""
    if len(numbers) < X.shape[1]:
        return False
    there = np.lib.stride_tricks.sliding_window_view(numbers.astype(np.float32), X.shape[1])
    near = there[np.isin(there[:, 0], X[:, 0])]
    return any((near == row).all(axis=1).any() for row in X)


@pytest.mark.parametrize("name", KINDS)
def test_what_leaves_holds_no_row(name: str) -> None:
    made = trained(KINDS[name])
    if made is None:
        assert name in UNTRIED
        return
    if keeper_in(made) is not None:
        return
    try:
        data = payloads_skops.written(made)
    except SchemaError:
        return
    assert leaks(data) == set()


@pytest.mark.parametrize(
    "made",
    [
        RadiusNeighborsClassifier(algorithm="brute", radius=9.0),
        KNeighborsClassifier(algorithm="brute"),
        KNeighborsClassifier(),
        SVC(),
        SVC(kernel="linear"),
        SVC(probability=True),
        make_pipeline(StandardScaler(), SVC()),
        make_pipeline(Nystroem(n_components=20), LogisticRegression()),
        BaggingClassifier(KNeighborsClassifier(algorithm="brute"), n_estimators=2),
        StackingClassifier([("a", SVC())], LogisticRegression()),
        CalibratedClassifierCV(LogisticRegression(), method="isotonic"),
        CalibratedClassifierCV(SVC()),
    ],
    ids=lambda made: re.sub(r"\W+", "-", str(made)),
)
def test_who_keeps_rows_is_known_wherever_it_stands(made: Any) -> None:
    assert keeper_in(made.fit(X, CLASS)) is not None


@pytest.mark.parametrize("name", ["SVC", "KernelRidge", "Nystroem", "KNNImputer", "LabelSpreading"])
def test_rows_would_be_found_in_what_keeps_them(name: str) -> None:
    assert "a row" in leaks(payloads_skops.written(trained(KINDS[name])))


def test_scores_would_be_found_in_what_keeps_them() -> None:
    made = trained(KINDS["PLSRegression"])
    assert leaks(payloads_skops.written(made)) == {"a number for each row"}


def test_what_boosts_and_what_vowpal_learned_hold_no_row() -> None:
    for made in (LGBMClassifier(verbose=-1), LGBMRegressor(verbose=-1)):
        made.fit(X, CLASS)
        assert keeper_in(made) is None
        assert leaks(payloads_lightgbm.written(made)) == set()
    for kind in (VowpalClassifier, VowpalRegressor):
        made = kind().fit(X, CLASS)
        assert keeper_in(made) is None
        written = payloads_vowpal.written(made)
        assert X[0].tobytes() not in written
        assert X[0].astype(np.float64).tobytes() not in written
