"""From rows to features, noise included: ``.venv/bin/python -m examples.whole_fit``.

`make bench` times the parts. This times what a user calls, on the same 1,000,000
rows of 39 features, beside scikit-learn's TargetEncoder. One thread each.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks import rows
from sklearn.preprocessing import TargetEncoder

from pyramidion import CountFeaturizer
from pyramidion.warm import warm

ROWS = 1_000_000


def seconds(run: Callable[[], object]) -> float:
    """The faster of two runs."""
    taken = []
    for _ in range(2):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> None:
    """Time both and print three lines."""
    warm()
    X, y = rows.matrix(ROWS)
    table = rows.table(X, y)
    features, click = table.drop_columns(["click"]), table["click"]
    ours = CountFeaturizer(epsilon=1.0, schema=rows.schema())
    theirs = TargetEncoder(target_type="binary")
    print(f"{ROWS:,} rows, 39 features, one thread")
    print(f"{'':<16}{'CountFeaturizer':>18}{'TargetEncoder':>18}")
    for verb, own, other in (
        ("fit", lambda: ours.fit(features, click), lambda: theirs.fit(X, y)),
        ("transform", lambda: ours.transform(features), lambda: theirs.transform(X)),
        (
            "fit_transform",
            lambda: ours.fit_transform(features, click),
            lambda: theirs.fit_transform(X, y),
        ),
    ):
        print(f"{verb:<16}{seconds(own):>16.1f} s{seconds(other):>16.1f} s", flush=True)


if __name__ == "__main__":
    main()
