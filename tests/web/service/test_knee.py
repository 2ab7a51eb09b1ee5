"""Load beyond what a service takes: it says so, loses nothing, and is itself again at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.clocked import NOW, Moved
from tests.store.stores import TIMELESS
from tests.waiting import wait_for
from tests.web.service.gated import Gate
from tests.web.service.observing import send, unanswered_but_there
from tests.web.service.services import Process, told_rows

WAITING = 8
"""Observations that may wait, which makes the knee one that a test reaches."""
AT_ONCE = 4 * WAITING
PREDICTIONS = "/v1/streams/asked/models/m/predictions"


class Knee:
    """A real service with a stream to observe behind a gate, and one with a model to ask."""

    def __init__(self, folder: Path) -> None:
        self.gate, clock = Gate(folder / "gate"), Moved(folder / "clock", NOW)
        program = [*clock.words("tests.web.service.gated"), str(self.gate.file), "pyramidion"]
        self.served = Process(folder, "--waiting", str(WAITING), program=program)
        self.served.create(epsilon=float("inf"), delta=0.0)
        self.served.create("asked", TIMELESS, count_window="100 rows", hot_rows=1000)
        caller = self.served.caller()
        rows = [{name: row[name] for name in ("y", "a", "b")} for row in told_rows(150, 0.0)]
        for part in (rows[:100], rows[100:]):
            assert caller.post("/v1/streams/asked/observations", json=part).status_code == 200
        caller.post("/v1/streams/asked/advance")
        told = caller.put("/v1/streams/asked/models/m", json={"estimator": "LogisticRegression"})
        assert told.json()["available"], told.text

    def loaded(self) -> dict[str, httpx.Response]:
        """More at once than may wait, while nothing is observed; predictions are asked beside."""
        keys = [f"at once {number}" for number in range(AT_ONCE)]
        callers = {key: self.served.caller("observe") for key in keys}
        asking = self.served.caller("predict")
        with ThreadPoolExecutor(AT_ONCE) as pool, self.gate.closed():
            sent = {key: pool.submit(send, callers[key], key) for key in keys}
            wait_for(lambda: sum(each.done() for each in sent.values()) == AT_ONCE - WAITING)
            for _ in range(10):
                answer = asking.post(PREDICTIONS, json={"a": "1", "b": "x"})
                assert answer.status_code == 200, answer.text
            assert sum(each.done() for each in sent.values()) == AT_ONCE - WAITING
        return {key: each.result() for key, each in sent.items()}


@pytest.fixture
def knee(tmp_path: Path) -> Iterator[Knee]:
    made = Knee(tmp_path)
    yield made
    made.served.close()


def test_at_the_knee_some_are_turned_away_and_nothing_acknowledged_is_lost(knee: Knee) -> None:
    answers = knee.loaded()
    acknowledged = [key for key, answer in answers.items() if answer.status_code == 200]
    assert len(acknowledged) == WAITING
    for answer in (answers[key] for key in answers.keys() - acknowledged):
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.json()["error"]["code"] == "BusyError"
    metrics = knee.served.caller("admin").get("/metrics").text
    assert 'pyramidion_trouble{stream="s"} 0.0' in metrics
    caller = knee.served.caller("observe")
    for number in range(20):  # the load has fallen: everybody is taken at once
        answer = send(caller, f"after-{number}")
        assert answer.status_code == 200, answer.text
        acknowledged.append(f"after-{number}")
    assert knee.served.stop() == 0
    assert unanswered_but_there(knee.served, acknowledged, []) == 0
