"""One row through a linear model: what scikit-learn says, to the last digits it can know."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from pyramidion import FlooredScaler
from pyramidion.learn.jobs import aligned
from pyramidion.learn.linear import Linear

COLUMNS = 5
LIMITS = {"min_value": -(2.0**20), "max_value": 2.0**20, "allow_nan": False}

random = np.random.default_rng(0)
X = random.normal(size=(300, COLUMNS)).astype(np.float32) * [1, 10, 0.1, 3, 0] + [0, 5, -3, 0, 7]
TWO = np.where(X[:, 0] + random.normal(size=300) > 0, "late", "early")
THREE = np.where(X[:, 3] > 3, "very", TWO)
CLASSES = ("very", "late", "never", "early")


@cache
def fitted(kind: int, precision: str, labels: int) -> Any:
    model = [
        LogisticRegression(),
        LogisticRegressionCV(Cs=2, cv=2),
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(with_mean=False), LogisticRegression(fit_intercept=False)),
        make_pipeline(StandardScaler(with_std=False), LogisticRegression()),
        make_pipeline(FlooredScaler(), LogisticRegression()),
        make_pipeline(FlooredScaler(), StandardScaler(), LogisticRegression()),
    ][kind]
    return model.fit(X.astype(precision), {2: TWO, 3: THREE}[labels])


MODELS = list(product(range(7), ("float32", "float64"), (2, 3)))


def exactly(model: Any, row: Any) -> tuple[Any, float]:
    """The probabilities by long doubles, and how large the sums' parts are."""
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    z, size = row.astype(np.longdouble), np.abs(row).astype(np.longdouble)
    for scaler in steps[:-1]:
        mean = scaler.mean_ if getattr(scaler, "with_mean", True) else 0
        scale = scaler.scale_ if getattr(scaler, "with_std", True) else 1
        z, size = (z - mean) / scale, (size + np.abs(mean)) / scale
    scores = steps[-1].coef_.astype(np.longdouble) @ z + steps[-1].intercept_
    if len(scores) == 1:
        scores = np.array([0, scores[0]])
    powers = np.exp(scores - scores.max())
    return powers / powers.sum(), 1 + float((np.abs(steps[-1].coef_) @ size).max())


@pytest.mark.parametrize("which", MODELS, ids=str)
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_it_says_what_scikit_learn_says(which: Any, data: Any) -> None:
    model, bits = fitted(*which), 32 if which[1] == "float32" else 64
    values = st.floats(**LIMITS, width=bits)  # type: ignore[arg-type]
    row = data.draw(arrays(which[1], COLUMNS, elements=values))
    quick = Linear.of(model, CLASSES)
    assert quick is not None
    kept = row.copy()
    found = quick.chances(row)
    asked = aligned(model.predict_proba(row[None]), model.classes_, CLASSES)[0]
    expected, size = exactly(model, row)
    exact = aligned(np.asarray(expected, dtype=np.float64)[None], model.classes_, CLASSES)[0]
    np.testing.assert_allclose(found, exact, rtol=1e-15 * COLUMNS * size, atol=1e-15)
    np.testing.assert_allclose(found, asked, atol=8 * np.finfo(which[1]).eps * size, rtol=0)
    assert np.array_equal(row, kept)


@pytest.mark.parametrize(
    "estimator",
    [
        GaussianNB(),
        SGDClassifier(loss="log_loss"),
        make_pipeline(MinMaxScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), GaussianNB()),
    ],
    ids=str,
)
def test_other_models_are_left_to_scikit_learn(estimator: Any) -> None:
    assert Linear.of(estimator.fit(X, TWO), CLASSES) is None


def test_numbers_are_left_to_scikit_learn() -> None:
    assert Linear.of(Ridge().fit(X, X[:, 0]), ()) is None


def test_a_kind_of_logistic_regression_is_left_to_scikit_learn() -> None:
    class Other(LogisticRegression):  # type: ignore[misc]
        """Who knows what it does."""

    assert Linear.of(Other().fit(X, TWO), CLASSES) is None


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_is_left_to_scikit_learn(wrong: float) -> None:
    quick = Linear.of(LogisticRegression().fit(X, TWO), CLASSES)
    assert quick is not None
    with np.errstate(invalid="ignore"):
        assert quick.chances(np.array([0, 0, wrong, 0, 0])) is None


def test_rows_of_another_width_are_left_to_scikit_learn() -> None:
    quick = Linear.of(LogisticRegression().fit(X, TWO), CLASSES)
    assert quick is not None
    assert quick.chances(np.zeros(COLUMNS + 1)) is None


def test_probabilities_of_single_precision_add_up_to_one_for_scikit_learn() -> None:
    random = np.random.default_rng(5)
    X = random.normal(size=(500, 3)).astype(np.float32)
    y = random.integers(0, 2, 500)
    model = LogisticRegression().fit(X, y)
    chances = aligned(model.predict_proba(X), model.classes_, (0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_loss(y, chances)
