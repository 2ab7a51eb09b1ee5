"""Load beyond what a service takes: it says so, loses nothing, and is itself again at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import httpx
import pytest

from tests.serve.observing import OBSERVATIONS, Observer, send, unanswered_but_there
from tests.serve.services import Process, told_rows
from tests.store.stores import TIMELESS

WAITING = 8
"""Observations that may wait, which makes the knee one that a test reaches."""
STAGES = (1, 4, 16, 64)
SECONDS = 1.0
PREDICTIONS = "/v1/streams/asked/models/m/predictions"


class Asking(threading.Thread):
    """Somebody who asks for predictions all the while."""

    def __init__(self, caller: httpx.Client) -> None:
        super().__init__()
        self._caller = caller
        self.answers: list[tuple[int, float]] = []
        """The status of each, and how long it took."""
        self.go_on = True

    def run(self) -> None:
        """Ask, until told to stop."""
        while self.go_on:
            begun = time.monotonic()
            answer = self._caller.post(PREDICTIONS, json={"a": "1", "b": "x"})
            self.answers.append((answer.status_code, time.monotonic() - begun))
            time.sleep(0.01)


@pytest.fixture
def served(process: Callable[..., Process]) -> Process:
    """A real service with a stream to observe, and one with a model to ask."""
    made = process("--waiting", str(WAITING))
    made.create(epsilon=float("inf"), delta=0.0)
    made.create("asked", TIMELESS, count_window="100 rows", hot_rows=1000)
    caller = made.caller()
    rows = [{name: row[name] for name in ("y", "a", "b")} for row in told_rows(150, 0.0)]
    for part in (rows[:100], rows[100:]):
        assert caller.post("/v1/streams/asked/observations", json=part).status_code == 200
    caller.post("/v1/streams/asked/advance")
    told = caller.put("/v1/streams/asked/models/m", json={"estimator": "LogisticRegression"})
    assert told.json()["available"], told.text
    return made


def loaded(served: Process, connections: int) -> list[Observer]:
    """So many who observe for a while, and are done."""
    made = [Observer(served.caller("observe"), f"{connections}-{n}") for n in range(connections)]
    for each in made:
        each.start()
    time.sleep(SECONDS)
    for each in made:
        each.go_on = False
    for each in made:
        each.join()
    return made


def test_at_the_knee_some_are_turned_away_and_nothing_acknowledged_is_lost(
    served: Process,
) -> None:
    asking = Asking(served.caller("predict"))
    asking.start()
    acknowledged: list[str] = []
    refused: dict[int, list[httpx.Response]] = {}
    for connections in STAGES:
        made = loaded(served, connections)
        assert not [each.open for each in made if each.open]  # everybody was answered
        acknowledged += [key for each in made for key in each.acknowledged]
        refused[connections] = [answer for each in made for answer in each.refused]
        if refused[connections]:
            break
    caller = served.caller("observe")
    for number in range(20):  # the load has fallen: everybody is taken at once
        answer = send(caller, f"after-{number}")
        assert answer.status_code == 200, answer.text
        acknowledged.append(f"after-{number}")
    asking.go_on = False
    asking.join()

    assert refused.pop(connections), "there was no knee"
    assert connections > WAITING
    assert not any(refused.values())  # below it nobody is turned away
    assert {status for status, _ in asking.answers} == {200}
    assert len(asking.answers) > 10
    assert served.stop() == 0
    assert unanswered_but_there(served, acknowledged, []) == 0


def test_who_is_turned_away_is_told_when_to_come_back(served: Process) -> None:
    refused = [answer for each in loaded(served, 4 * WAITING) for answer in each.refused]
    assert {answer.status_code for answer in refused} == {429}
    for answer in refused:
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.json()["error"]["code"] == "BusyError"
    metrics = served.caller("admin").get("/metrics").text
    assert 'pyramidion_trouble{stream="s"} 0.0' in metrics
    assert served.caller("observe").post(OBSERVATIONS, json=told_rows(1, time.time())).is_success
