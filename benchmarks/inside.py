"""A service that times its own predictions: what is not network and framework.

Started by the benchmark of the service instead of `pyramidion serve`; writes medians in
microseconds, of rows ("0") and vectors ("1"), to the file that TIMES names, once a second: what
unmarshalling, featurizing and predicting took. One kernel does all three for a row, so its first
parts are timed alone, when nobody asks: from JSON to keys, and from JSON to features.
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
from pyramidion.counts.snapshot import Snapshot
from pyramidion.learn.answers import Answers
from pyramidion.web.service import routes_predictions

TIMES = "PYRAMIDION_BENCH_TIMES"

_read: list[float] = []
_said: list[list[float]] = [[], []]
_kind = [0]
_row: list[tuple[Snapshot, bytes]] = []


def _reading(function: Callable[..., Any]) -> Callable[..., Any]:
    """Unmarshalling that keeps how long it took, and that this is a vector."""

    def timed(*given: Any) -> Any:
        start = time.perf_counter()
        found = function(*given)
        _read.append((time.perf_counter() - start) * 1e6)
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


def _keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Asking by a row that keeps which one it was."""

    def asked(answers: Answers, body: bytes, snapshot: Snapshot) -> Any:
        _row[:] = [(snapshot, body)]
        return function(answers, body, snapshot)

    return asked


def _tell(path: Path) -> None:
    while True:
        time.sleep(1)
        if all(map(len, _said)) and _row and _read:
            ((snapshot, body),) = _row
            keys = _repeated(snapshot._json.keys, body)
            made = _repeated(snapshot.vector_of_json, body)
            row, vector = _median(_said[0]), _median(_said[1])
            parts = (keys, max(0.0, made - keys), max(0.0, row - made))
            path.write_text(json.dumps({0: parts, 1: (_median(_read), 0.0, vector)}))


def _repeated(work: Callable[[bytes], object], body: bytes) -> float:
    took = []
    for _ in range(1_000):
        start = time.perf_counter()
        work(body)
        took.append((time.perf_counter() - start) * 1e6)
    return _median(took)


def _median(took: list[float]) -> float:
    return statistics.median(took[-1_500:])


def run() -> None:
    """Serve."""
    vars(routes_predictions)["_features"] = _reading(routes_predictions._features)
    type.__setattr__(Answers, "proba_json", _keeping(Answers.proba_json))
    vars(routes_predictions)["_asked"] = _saying(routes_predictions._asked)
    threading.Thread(target=_tell, args=(Path(os.environ[TIMES]),), daemon=True).start()
    run_program()
