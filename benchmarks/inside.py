"""A service that times its own predictions: what is not network and framework.

Started by the benchmark of the service instead of `pyramidion serve`; writes medians in
microseconds, of rows ("0") and vectors ("1"), to the file that TIMES names, once a second: what
unmarshalling, featurizing and predicting took. The parts of a row are timed again, alone, while no
request is answered.
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
from pyramidion.learn.models import Model
from pyramidion.web.bodies import JSON, json_from
from pyramidion.web.service import routes_models
from pyramidion.web.service.calls import Call

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
    """Predicting one row that keeps which one it was."""

    def asked(call: Call, model: Model, body: bytes) -> Any:
        _row[:] = [(call.pyramid.snapshot(), body)]
        return function(call, model, body)

    return asked


def _tell(path: Path) -> None:
    while True:
        time.sleep(1)
        if all(map(len, _said)) and _row and _read:
            ((snapshot, body),) = _row
            decoded = _repeated(lambda body: json_from(body, JSON), body)
            made = _repeated(
                lambda body, of=snapshot: of.featurize_one(json_from(body, JSON)), body
            )
            row, vector = _median(_said[0]), _median(_said[1])
            parts = (decoded, max(0.0, made - decoded), max(0.0, row - made))
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
    vars(routes_models)["_features"] = _reading(routes_models._features)
    vars(routes_models)["_one"] = _keeping(routes_models._one)
    vars(routes_models)["_predict_once"] = _saying(routes_models._predict_once)
    threading.Thread(target=_tell, args=(Path(os.environ[TIMES]),), daemon=True).start()
    run_program()
