"""MovieLens 1M: models on counts and 1 % of the ratings, beside matrix factorization on all.

Split by time, 80 % to train; counts from the training part; models train on its
newest 1 %, featurized with the complete tables less those rows' own counts. The
loss is divided by that of Vowpal Wabbit's matrix factorization (rank 10, 20 passes, the
paper's parameters) on all training ratings, which a campaign measures again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import vowpalwabbit
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from pyramidion import CountFeaturizer
from tests.seeding import seeded

HOT = 0.01
BASELINE = 0.58467
"""Log loss of matrix factorization; it takes 20 seconds and depends on no code of ours."""
FACTORIZATION = (
    "--loss_function logistic --link logistic -q ui --rank 10 --l2 0.001 -l 0.015 -b 18 "
    "--passes 20 --decay_learning_rate 0.97 --power_t 0 --quiet"
)


@dataclass
class Ratings:
    X: pd.DataFrame
    y: NDArray[np.bool_]
    train: int


@pytest.fixture(scope="module")
def ratings(movielens: Path) -> Ratings:
    def read(name: str, *columns: str) -> pd.DataFrame:
        lines = (movielens / name).read_text(encoding="latin-1").splitlines()
        return pd.DataFrame([line.split("::") for line in lines], columns=columns)

    rated = read("ratings.dat", "user", "movie", "rating", "time")
    movies = read("movies.dat", "movie", "title", "genres")
    rated = rated.astype({"rating": int, "time": int})
    rated = rated.sort_values(["time", "user", "movie"], kind="stable")
    genres = movies.set_index("movie")["genres"].str.get_dummies("|").astype(bool)
    X = rated[["user", "movie"]].join(genres, on="movie").reset_index(drop=True)
    return Ratings(X, (rated["rating"] >= 4).to_numpy(), int(0.8 * len(X)))


def matrix_factorization(ratings: Ratings, folder: Path) -> float:
    """Log loss of matrix factorization trained on all training ratings."""
    pairs = list(zip(ratings.X["user"], ratings.X["movie"], ratings.y, strict=True))
    lines = [f"{1 if y else -1} |u {u} |i {m}" for u, m, y in pairs[: ratings.train]]
    (folder / "train").write_text("\n".join(lines))
    files = f"-d {folder}/train --cache_file {folder}/cache -k -f {folder}/model"
    learner = vowpalwabbit.Workspace(f"{files} {FACTORIZATION}")
    learner.run_parser()
    learner.finish()
    model = vowpalwabbit.Workspace(f"-i {folder}/model -t --quiet")
    predicted = [model.predict(f"|u {u} |i {m}") for u, m, _ in pairs[ratings.train :]]
    model.finish()
    return float(log_loss(ratings.y[ratings.train :], np.clip(predicted, 1e-6, 1 - 1e-6)))


def losses(ratings: Ratings, epsilon: float) -> dict[str, float]:
    """Log losses of both models on counts at this ε, trained on the newest 1 %."""
    past = slice(0, ratings.train)
    hot = slice(ratings.train - int(HOT * ratings.train), ratings.train)
    future = slice(ratings.train, None)
    featurizer = CountFeaturizer(epsilon=epsilon, n_jobs=2)
    featurizer.fit(ratings.X[past], ratings.y[past])
    rows = featurizer._observations(ratings.X[hot], ratings.y[hot])
    X = np.asarray(featurizer.snapshot_.without(rows).array(rows))
    new = np.asarray(featurizer.transform(ratings.X[future]))
    mean, deviation = X.mean(axis=0), np.maximum(X.std(axis=0), 0.01)
    trees: Any = lightgbm.LGBMClassifier(
        n_estimators=100,
        num_leaves=8,
        learning_rate=0.05,
        subsample=0.5,
        subsample_freq=1,
        min_child_samples=50,
        random_state=0,
        verbose=-1,
    )
    linear = LogisticRegression(max_iter=1000)
    y, truth = ratings.y[hot], ratings.y[future]
    linear.fit((X - mean) / deviation, y)
    trees.fit(X, y)
    return {
        "logistic regression": log_loss(truth, linear.predict_proba((new - mean) / deviation)),
        "boosted trees": log_loss(truth, trees.booster_.predict(new)),
    }


@pytest.mark.campaign
@pytest.mark.slow
def test_baseline_is_as_strong_as_the_papers(ratings: Ratings, tmp_path: Path) -> None:
    measured = matrix_factorization(ratings, tmp_path)
    assert measured == pytest.approx(BASELINE, abs=0.001)
    assert measured < 0.59  # the paper's, on 22 times the ratings: 0.537


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "linear", "trees"), [(math.inf, 1.02, 1.03), (1.0, 1.08, 1.13)]
)
def test_models_on_counts_come_close_to_matrix_factorization(
    ratings: Ratings, epsilon: float, linear: float, trees: float
) -> None:
    """The noise comes from a seed.

    The bounds at ε = 1 hold for other seeds too: ten gave 1.048 ± 0.005 for logistic regression
    and 1.077 ± 0.009 for trees, so that the bounds are six standard deviations away (1e-9).
    """
    with seeded("MovieLens"):
        loss = losses(ratings, epsilon)
    assert loss["logistic regression"] / BASELINE < linear
    assert loss["boosted trees"] / BASELINE < trees
