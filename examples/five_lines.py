"""Private features in five lines, and what the privacy costs.

Flights are generated: 15 carriers, 300 origins, 300 destinations and 4,000
aeroplanes, each with an effect of its own on the chance of being late. So the
best possible loss is known, and the table at the end can say how much of the
way from a bare guess to that best each method goes.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import TargetEncoder

from pyramidion import CountFeaturizer

try:
    import pandas as pd

    frame_of = pd.DataFrame
except ImportError:  # pandas is not a dependency; an Arrow table does as well
    frame_of = pa.table

VALUES = {"carrier": 15, "origin": 300, "dest": 300, "tailnum": 4_000}
SEEN, LATER = 200_000, 50_000
BAR = 24

LINES = """\
    from pyramidion import CountFeaturizer
    featurizer = CountFeaturizer(epsilon=1.0, classes=[0, 1])
    model = make_pipeline(featurizer, LogisticRegression())
    model.fit(flights, late)
    model.predict_proba(new_flights)"""


def flights(rows: int, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Flights, whether each was late, and the chance it had of that."""
    world, random = np.random.default_rng(2013), np.random.default_rng(seed)
    columns, log_odds = {}, np.full(rows, -1.2)
    for name, values in VALUES.items():
        effects = world.normal(0.0, 0.6, values)
        often = np.arange(1, values + 1) ** -0.8
        chosen = random.choice(values, rows, p=often / often.sum())
        log_odds += effects[chosen]
        columns[name] = np.array([f"{name} {i}" for i in range(values)], dtype=object)[chosen]
    chance = 1 / (1 + np.exp(-log_odds))
    return frame_of(columns), (random.random(rows) < chance).astype(int), chance


def main() -> None:
    """Fit, compare, print."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    begun = time.perf_counter()
    seen, late, _ = flights(SEEN, seed=1)
    later, came_late, chance = flights(LATER, seed=2)
    print(f"\n{SEEN:,} generated flights, {late.mean():.0%} of them late\n\n{LINES}\n")

    worst = log_loss(came_late, np.full(LATER, late.mean()))
    best = log_loss(came_late, chance)

    def show(what: str, loss: float, told: str) -> None:
        gained = (worst - loss) / (worst - best)
        bar = "█" * round(BAR * gained)
        print(f"  {what:<34}{loss:8.4f}  {bar:<{BAR}}{gained:5.0%}  {told}", flush=True)

    print(f"  {f'loss on {LATER:,} later flights':<34}log loss  {'gained':<{BAR + 7}}time to fit")
    show("rate of late flights, no features", worst, "")
    private = CountFeaturizer(epsilon=1.0, classes=[0, 1])
    for what, featurizer in (
        ("private counts, ε = 1", private),
        ("exact counts, no privacy", CountFeaturizer(epsilon=np.inf, classes=[0, 1])),
        ("scikit-learn's TargetEncoder", TargetEncoder()),
    ):
        model = make_pipeline(featurizer, LogisticRegression())
        start = time.perf_counter()
        model.fit(seen, late)
        seconds = time.perf_counter() - start
        show(what, log_loss(came_late, model.predict_proba(later)), f"{seconds:.1f} s")
    show("the true chances", best, "")

    print(f"\n  the private tables   {private.privacy_}")
    print(f"  the training matrix  {private.fit_transform_privacy_}")
    print(f"\n  {time.perf_counter() - begun:.1f} s in all; docs/privacy.md says what this means\n")


if __name__ == "__main__":
    main()
