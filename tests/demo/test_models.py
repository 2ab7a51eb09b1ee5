from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from pyramidion.demo.models import LOGISTIC, TREES, Levelled, estimators, shift, shifted
from pyramidion.learn.recipes import estimator_of, recipe_of


def rows(rate: float, remembered: float, size: int = 4_000) -> tuple[NDArray, NDArray]:
    """Log-odds around a remembered rate, weakly telling labels that came at another one."""
    random = np.random.default_rng(0)
    y = (random.random(size) < rate).astype(int)
    level = np.log(remembered / (1 - remembered))
    return level + 0.1 * (y - rate)[:, None] + random.normal(0, 0.2, (size, 3)), y


def mean(model: Levelled, X: NDArray) -> float:
    return float(model.predict_proba(X)[:, 1].mean())


def test_without_trust_the_training_rows_set_the_level() -> None:
    X, y = rows(0.1, 0.4)
    model = Levelled(LogisticRegression(), trust=0.0).fit(X, y)
    plain = LogisticRegression().fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X))


def test_with_trust_the_counts_set_the_level() -> None:
    X, y = rows(0.1, 0.4)
    assert mean(Levelled(LogisticRegression(), trust=1.0).fit(X, y), X) == pytest.approx(
        0.4, abs=0.05
    )


def test_columns_that_are_no_log_odds_do_not_move_the_level() -> None:
    X, y = rows(0.1, 0.4)
    more = np.column_stack([X, np.zeros(len(X))])  # the surplus of a group
    model = Levelled(LogisticRegression(), features=X.shape[1]).fit(more, y)
    assert model.shift_ == Levelled(LogisticRegression()).fit(X, y).shift_


def test_half_the_trust_is_half_way_in_log_odds() -> None:
    X, y = rows(0.1, 0.4)
    half, full = (Levelled(LogisticRegression(), trust=trust).fit(X, y) for trust in (0.5, 1.0))
    assert half.shift_ == pytest.approx(full.shift_ / 2)
    assert half.shift_ > 0.5


def test_probabilities_are_shares_and_classes_their_columns() -> None:
    X, y = rows(0.3, 0.3)
    model = Levelled(LogisticRegression()).fit(X, np.array(["no", "yes"])[y])
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    expected = np.where(model.predict_proba(X)[:, 1] > 0.5, "yes", "no")
    assert (model.predict(X) == expected).all()


def test_a_level_needs_two_classes() -> None:
    X, y = rows(0.3, 0.3)
    with pytest.raises(ValueError, match="two classes"):
        Levelled(LogisticRegression()).fit(X, y + (X[:, 0] > X[:, 1]))


def test_a_shift_there_and_back_changes_nothing() -> None:
    p = np.array([0.01, 0.3, 0.9])
    np.testing.assert_allclose(shifted(shifted(p, shift(0.2, 0.7, 1)), shift(0.7, 0.2, 1)), p)


@pytest.mark.parametrize("name", [LOGISTIC, TREES])
def test_recipes_hold_both_models(name: str) -> None:
    chosen = estimators(5)[name]
    again = estimator_of(recipe_of(chosen))
    assert repr(again) == repr(chosen).replace(", verbose=-1", "")  # nobody hears it


def test_trees_never_find_a_flight_less_late_for_worse_odds() -> None:
    X, y = rows(0.3, 0.3)
    model = estimators(3)[TREES].fit(X, y)
    worse = X + np.array([0.0, 0.5, 0.0])
    assert (model.predict_proba(worse)[:, 1] >= model.predict_proba(X)[:, 1]).all()
