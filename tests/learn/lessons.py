"""Small problems with a known answer, for estimators to learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = tuple[NDArray[np.float32], NDArray[Any]]


def linear(rows: int = 1_500, seed: int = 0) -> Arrays:
    """Four columns like probabilities, of which the last says nothing; two classes."""
    random = np.random.default_rng(seed)
    X = (0.4 + 0.1 * random.normal(size=(rows, 4))).astype(np.float32)
    score = (X - 0.4) @ np.array([20.0, -10.0, 5.0, 0.0]) - 0.5
    return X, random.random(rows) < 1 / (1 + np.exp(-score))


def three(rows: int = 3_000, seed: int = 0) -> Arrays:
    """Three classes, the second rare, from a softmax of two columns."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 3)).astype(np.float32)
    scores = np.stack([X[:, 0], X[:, 1] - 2, -X[:, 0]], axis=1) + random.gumbel(size=(rows, 3))
    return X, np.array(["early", "late", "never"])[scores.argmax(axis=1)]


def crossed(rows: int = 3_000, seed: int = 0) -> Arrays:
    """XOR: neither column says anything alone."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 2)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0) ^ (random.random(rows) < 0.05)


def shifted(X: NDArray[Any]) -> NDArray[Any]:
    return 5_000 + 800 * X[:, 0] - 300 * X[:, 1]


def far(X: NDArray[Any]) -> NDArray[Any]:
    """Ten rows thirty times as far from the centre as they were."""
    return 30 * X[:10] - 29 * X.mean(axis=0)
