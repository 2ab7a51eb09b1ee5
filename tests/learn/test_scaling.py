from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pyramidion.learn.recipes import estimator_of, recipe_of
from pyramidion.learn.scaling import FlooredScaler


@parametrize_with_checks([FlooredScaler()])
def test_it_is_an_estimator_of_scikit_learn(estimator, check) -> None:
    check(estimator)


def columns(*deviations: float) -> np.ndarray:
    """Normal columns with these deviations."""
    return np.random.default_rng(0).normal(3.0, deviations, (2_000, len(deviations)))


def test_columns_above_the_floor_are_standardised() -> None:
    X = columns(0.06, 1.0, 40.0)
    np.testing.assert_allclose(
        FlooredScaler().fit_transform(X), StandardScaler().fit_transform(X), atol=1e-9
    )


def test_a_column_below_the_floor_stays_small() -> None:
    scaled = FlooredScaler(floor=0.05).fit_transform(columns(0.01))
    assert scaled.std() == pytest.approx(0.2, rel=0.05)
    assert scaled.mean() == pytest.approx(0.0, abs=1e-9)


def test_a_constant_column_becomes_zero() -> None:
    assert not FlooredScaler().fit_transform(np.full((5, 1), 7.0)).any()


def test_the_inverse_gives_the_features_back() -> None:
    X = columns(0.01, 2.0)
    scaler = FlooredScaler().fit(X)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X)


@pytest.mark.parametrize("floor", [0.0, -1.0, float("nan")])
def test_a_floor_that_is_none_is_refused(floor: float) -> None:
    with pytest.raises(ValueError, match="floor must be above 0"):
        FlooredScaler(floor=floor).fit(columns(1.0))


def test_single_precision_stays_single() -> None:
    X = columns(1.0).astype(np.float32)
    assert FlooredScaler().fit_transform(X).dtype == np.float32


def test_means_far_from_zero_are_taken_exactly_also_in_single_precision() -> None:
    X = (1_000.0 + columns(1.0)).astype(np.float32)
    assert FlooredScaler().fit_transform(X).std() == pytest.approx(1.0, rel=1e-3)


def test_a_recipe_holds_it() -> None:
    pipeline = make_pipeline(FlooredScaler(floor=0.2), LogisticRegression())
    again = estimator_of(recipe_of(pipeline))
    assert again.steps[0][1].floor == 0.2


def test_a_swamped_column_does_not_outvote_a_good_one() -> None:
    """Noise that is drawn anew between training and serving must not move predictions."""
    random = np.random.default_rng(1)
    y = random.integers(0, 2, 400)
    good = y + random.normal(0, 1, 400)
    swamped = random.normal(0, 0.002, 400) + 0.001 * y
    train = np.stack([good, swamped], axis=1)
    served = np.stack([good, np.full(400, 0.02)], axis=1)  # moved by ten of its deviations
    moved = {}
    for scaler in (FlooredScaler(), StandardScaler()):
        model = make_pipeline(scaler, LogisticRegression()).fit(train, y)
        change = model.predict_proba(served) - model.predict_proba(train)
        moved[type(scaler).__name__] = np.abs(change).mean()
    assert 3 * moved["FlooredScaler"] < moved["StandardScaler"]
