"""How often the statistical audit finds halved noise, and how often it cries wolf.

python -m tests.store.audit.power [RUNS]
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

from pyramidion import Settings
from pyramidion.privacy import table_noise
from pyramidion.store.audit.statistical import measure

RUNS = 20
CASES: list[tuple[dict[str, Any], int]] = [
    ({"epsilon": 1.0}, 20_000),
    ({"epsilon": 3.0}, 8_000),
    ({"epsilon": 1.0, "delta": 0, "rows": 1}, 2_000),
    ({"epsilon": 1.0, "delta": 0, "rows": 5}, 10_000),
    ({"epsilon": 1.0, "delta": 0, "rows": 5}, 30_000),
    ({"epsilon": 3.0, "delta": 0, "rows": 5}, 10_000),
]


def halved() -> AbstractContextManager[Any]:
    """Half the noise in every table, while the ledger says nothing of it."""
    scale, variance = table_noise.laplace_scale, table_noise.gaussian_variance
    return patch.multiple(
        table_noise,
        laplace_scale=lambda **given: scale(**given) / 2,
        gaussian_variance=lambda **given: variance(**given) / 4,
    )


def alarms(settings: Settings, canaries: int, runs: int, noise: AbstractContextManager[Any]) -> int:
    """How many of so many audits raise the alarm."""
    with noise:
        return sum(measure(settings, canaries=canaries).alarm for _ in range(runs))


def main(runs: int = RUNS) -> None:
    """Print a row for each case."""
    _say("noise     ε  hash rows  canaries  halved: found  as stated: alarms  seconds an audit")
    for given, canaries in CASES:
        settings, began = Settings(**given), time.perf_counter()
        found = alarms(settings, canaries, runs, halved())
        false = alarms(settings, canaries, runs, nullcontext())
        each = (time.perf_counter() - began) / (2 * runs)
        _say(
            f"{settings.mechanism:<8} {settings.epsilon:>2g} {settings.rows:>10} {canaries:>9,} "
            f"{f'{found} of {runs}':>14} {f'{false} of {runs}':>18} {each:>17.1f}"
        )


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
