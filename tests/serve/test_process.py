"""Real processes: certificates, a stop that loses nothing, and no power at all."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.serve.services import Process, told_rows, wait_for

OBSERVATIONS = "/v1/streams/s/observations"
CONNECTIONS = 8
ROWS = 3


class Observer(threading.Thread):
    """Somebody who observes, one request after the other, and keeps what was acknowledged."""

    def __init__(self, caller: httpx.Client, name: str) -> None:
        super().__init__(name=name)
        self._caller = caller
        self.acknowledged: list[str] = []
        self.open = ""
        """The key of the request that no answer came to."""
        self.refused: list[int] = []
        self.go_on = True

    def run(self) -> None:
        """Observe until told to stop, or nobody answers."""
        number = 0
        while self.go_on:
            self.open = f"{self.name}-{number}"
            try:
                answer = send(self._caller, self.open)
            except httpx.HTTPError:
                return
            if answer.status_code == 200:
                self.acknowledged.append(self.open)
            else:
                self.refused.append(answer.status_code)
            self.open = ""
            number += 1


def send(caller: httpx.Client, key: str) -> httpx.Response:
    rows = told_rows(ROWS, time.time())
    return caller.post(OBSERVATIONS, json=rows, headers={"Idempotency-Key": key})


def observers(served: Process) -> list[Observer]:
    made = [Observer(served.caller("observe"), f"o{n}") for n in range(CONNECTIONS)]
    for each in made:
        each.start()
    wait_for(lambda: all(len(each.acknowledged) > 3 for each in made))
    return made


def hot_rows(served: Process) -> int:
    found: int = served.caller("admin").get("/v1/streams/s").json()["hot_rows"]
    return found


def counted(served: Process) -> int:
    """Rows that the windows hold, told exactly where there is no noise."""
    windows = served.caller("admin").get("/v1/streams/s/windows").json()["windows"]
    return sum(window["rows"] for window in windows)


def nothing_lost_or_twice(served: Process, made: list[Observer]) -> None:
    """What was acknowledged is there once; what was not can be sent again."""
    known = [key for each in made for key in each.acknowledged]
    assert len(set(known)) == len(known)
    assert hot_rows(served) >= ROWS * len(known)
    caller = served.caller("observe")
    for key in [*known[::7], *(each.open for each in made if each.open)]:
        assert send(caller, key).json()["accepted"] == ROWS
    sent = len(known) + sum(bool(each.open) for each in made)
    assert hot_rows(served) == ROWS * sent
    assert counted(served) == ROWS * sent


Start = Callable[..., Process]


def test_a_stop_as_soon_as_it_says_where_it_serves_closes_the_stores(tmp_path: Path) -> None:
    for _ in range(3):  # before the server takes signals, or after
        process = Process(tmp_path)
        try:
            assert process.stop() in (0, 130)
        finally:
            process.close()


def test_a_stop_finishes_what_was_taken(process: Start) -> None:
    served = process()
    served.create(epsilon=float("inf"), delta=0.0)
    made = observers(served)
    assert served.stop() == 0
    for each in made:
        each.join()
        assert not each.refused
    served.start()
    for each in made:
        assert each.acknowledged
    nothing_lost_or_twice(served, made)


def test_without_power_nothing_acknowledged_is_lost_and_nothing_counted_twice(
    process: Start,
) -> None:
    served = process()
    served.create(epsilon=float("inf"), delta=0.0)
    made = observers(served)
    served.kill()
    for each in made:
        each.join()
    served.start()
    nothing_lost_or_twice(served, made)


def test_a_stopped_service_has_let_go_of_its_stores(process: Start) -> None:
    served = process()
    served.create()
    served.stop()
    served.start()
    assert served.caller().get("/v1/streams").json() == {"streams": ["s"]}


# --- TLS ----------------------------------------------------------------------------------


def test_tls_by_certificate_files(process: Start, certificate: tuple[Path, Path]) -> None:
    chain, key = certificate
    served = process("--certificate", str(chain), "--certificate-key", str(key))
    assert served.url.startswith("https://")
    served.verify = ssl.create_default_context(cafile=str(chain))
    assert served.caller().get("/v1/streams").json() == {"streams": []}
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{served.url}/healthz")  # nobody vouches for it
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http{served.url.removeprefix('https')}/healthz")
