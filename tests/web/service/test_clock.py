"""A stream whose clock jumps: it is told, and an admin says which clock is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.store.stores import DAY, SECOND
from tests.store.test_clock_alarm import Machine
from tests.waiting import wait_for
from tests.web.dashboard.filled import logged_in
from tests.web.service.services import Inside, error_of, told_rows


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def jumped(tmp_path: Path, machine: Machine) -> Iterator[Inside]:
    """A service whose clock was set ahead by 400 days while it ran."""
    clock: Any = machine.clock
    made = Inside(tmp_path, clock=clock)
    try:
        made.create()
        sent = made.caller("observe").post(
            "/v1/streams/s/observations", json=told_rows(20, machine.wall)
        )
        assert sent.status_code == 200, sent.text
        assert ready(made) == (200, {"ready": True})
        machine.jump(400 * DAY)
        wait_for(lambda: ready(made)[0] == 503)
        yield made
    finally:
        made.close()


def ready(made: Inside) -> tuple[int, Any]:
    told = httpx.get(f"{made.url}/readyz")
    return told.status_code, told.json()


def test_alarm_is_told_everywhere(jumped: Inside, machine: Machine) -> None:
    assert ready(jumped) == (503, {"ready": False, "reasons": ["clock"]})
    caller = jumped.caller("train")
    clock = caller.get("/v1/streams/s/clock").json()
    assert clock["now"] == int((machine.wall - 400 * DAY) * SECOND)
    assert clock["problem"].startswith("the system's clock is 34,560,000 seconds ahead")
    status = caller.get("/v1/streams/s").json()
    assert status["clock"]["alarm"] == clock["alarm"] == clock["now"]
    metrics = jumped.caller("admin").get("/metrics").text
    assert 'pyramidion_clock_alarm{stream="s"} 1.0' in metrics
    assert 'pyramidion_trouble{stream="s"} 1.0' in metrics
    page = logged_in(jumped.url, jumped.token("admin")).get("/streams/s").text
    assert "the system&#39;s clock is 34,560,000 seconds ahead" in page


def test_service_goes_on_during_an_alarm(jumped: Inside, machine: Machine) -> None:
    caller = jumped.caller("observe", "train")
    for at in (machine.wall, machine.wall - 400 * DAY):
        sent = caller.post("/v1/streams/s/observations", json=told_rows(5, at))
        assert (sent.status_code, sent.json()["accepted"]) == (200, 5)
    assert caller.get("/v1/streams/s").json()["hot_rows"] == 30


def test_admin_corrects_the_clock(jumped: Inside, machine: Machine) -> None:
    admin, body = jumped.caller("admin"), {"answer": "correct", "why": "a battery"}
    sent = admin.post("/v1/streams/s/clock", json=body)
    assert error_of(sent) == (409, "StateError")
    machine.jump(-400 * DAY)
    told = admin.post("/v1/streams/s/clock", json=body)
    assert (told.status_code, told.json()["problem"]) == (200, "")
    wait_for(lambda: ready(jumped)[0] == 200)
    assert admin.get("/v1/streams/s").json()["hot_rows"] == 20


def test_admin_confirms_the_clock(jumped: Inside, machine: Machine) -> None:
    admin, body = jumped.caller("admin"), {"answer": "confirm", "why": "right"}
    told = admin.post("/v1/streams/s/clock", json=body).json()
    assert (told["now"], told["alarm"]) == (int(machine.wall * SECOND), None)
    assert admin.get("/v1/streams/s").json()["hot_rows"] == 0


@pytest.mark.parametrize(
    "body", [{}, {"answer": "confirm"}, {"answer": "yes", "why": "x"}, {"answer": 1, "why": ""}]
)
def test_answer_has_a_verb_and_a_reason(jumped: Inside, body: dict[str, Any]) -> None:
    sent = jumped.caller("admin").post("/v1/streams/s/clock", json=body)
    assert error_of(sent) == (422, "FormatError")


def test_nobody_else_settles_the_clock(jumped: Inside) -> None:
    body = {"answer": "confirm", "why": "x"}
    sent = jumped.caller("observe", "train", "predict").post("/v1/streams/s/clock", json=body)
    assert error_of(sent) == (403, "ForbiddenError")
