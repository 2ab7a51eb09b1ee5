"""A service that times its own predictions: what is not network and framework.

Started by the benchmark of the service instead of `pyramidion serve`; writes medians in
microseconds, of rows ("0") and vectors ("1"), to the file that TIMES names, once a second.
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
from pyramidion.serve import routes_predictions

TIMES = "PYRAMIDION_BENCH_TIMES"

_read: list[list[float]] = [[], []]
_said: list[list[float]] = [[], []]
_kind = [0]


def _timed(function: Callable[..., Any], kind: int | None) -> Callable[..., Any]:
    """A function that keeps how long it took; reading says of which kind a request is."""

    def timed(*given: Any) -> Any:
        start = time.perf_counter()
        found = function(*given)
        took = (time.perf_counter() - start) * 1e6
        if kind is None:
            _said[_kind[0]].append(took)
        else:
            _kind[0] = kind
            _read[kind].append(took)
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
    vars(routes_predictions)["_features"] = _timed(routes_predictions._features, 1)
    vars(routes_predictions)["_asked"] = _timed(routes_predictions._asked, None)
    Snapshot.vector_of_json = _timed(Snapshot.vector_of_json, 0)  # type: ignore[method-assign]
    threading.Thread(target=_tell, args=(Path(os.environ[TIMES]),), daemon=True).start()
    run_program()
