"""A service that times its own predictions: what is not network and framework.

Started by the benchmark of the service instead of `pyramidion serve`; writes medians in
microseconds, of rows ("0") and vectors ("1"), to the file that TIMES names, once a second: what
unmarshalling took, which a row has none of by itself, and what predicting took.
"""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyramidion.cli import run as run_program
from pyramidion.serve import routes_predictions

TIMES = "PYRAMIDION_BENCH_TIMES"

_read: list[list[float]] = [[0.0], []]
_said: list[list[float]] = [[], []]
_kind = [0]


def _reading(function: Callable[..., Any]) -> Callable[..., Any]:
    """Unmarshalling that keeps how long it took, and that this is a vector."""

    def timed(*given: Any) -> Any:
        start = time.perf_counter()
        found = function(*given)
        _read[1].append((time.perf_counter() - start) * 1e6)
        _kind[0] = 1
        return found

    return timed


def _saying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Predicting that keeps how long it took."""

    def timed(*given: Any) -> Any:
        start = time.perf_counter()
        found = function(*given)
        _said[_kind[0]].append((time.perf_counter() - start) * 1e6)
        _kind[0] = 0
        return found

    return timed


def _tell(path: Path) -> None:
    while True:
        time.sleep(1)
        if all(map(len, _said)):
            told = {kind: (_median(_read[kind]), _median(_said[kind])) for kind in (0, 1)}
            path.write_text(json.dumps(told))


def _median(took: list[float]) -> float:
    return statistics.median(took[-1_500:])


def run() -> None:
    """Serve."""
    vars(routes_predictions)["_features"] = _reading(routes_predictions._features)
    vars(routes_predictions)["_asked"] = _saying(routes_predictions._asked)
    threading.Thread(target=_tell, args=(Path(os.environ[TIMES]),), daemon=True).start()
    run_program()
