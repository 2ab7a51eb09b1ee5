"""Real processes: certificates, a stop that loses nothing, and no power at all."""

from __future__ import annotations

import signal
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.waiting import PATIENCE, wait_for
from tests.web.service.observing import ROWS, Observer, send, unanswered_but_there
from tests.web.service.services import Process

CONNECTIONS = 8


def observers(served: Process, token: str) -> list[Observer]:
    made = [Observer(served.known(token), f"o{n}") for n in range(CONNECTIONS)]
    for each in made:
        each.start()
    return made


def nothing_lost_or_twice(served: Process, made: list[Observer], token: str) -> None:
    """Of a service that ended: what was acknowledged is there once; the rest can be sent again."""
    known = [key for each in made for key in each.acknowledged]
    unknown = [each.open for each in made if each.open]
    assert len(set(known)) == len(known)
    unanswered_but_there(served, known, unknown)
    served.start()
    caller = served.known(token)
    for key in [*known, *unknown]:
        assert send(caller, key).json()["accepted"] == ROWS
    assert served.stop() == 0
    assert unanswered_but_there(served, [*known, *unknown], []) == 0


Start = Callable[..., Process]


def test_a_stop_as_soon_as_it_says_where_it_serves_closes_the_stores(tmp_path: Path) -> None:
    process = Process(tmp_path)
    try:
        assert process.stop() in (0, 130)  # before the server takes signals, or after
    finally:
        process.close()


def test_a_stop_finishes_what_was_taken(process: Start) -> None:
    served = process()
    served.create(epsilon=float("inf"), delta=0.0)
    token = served.token("observe")
    made = observers(served, token)
    wait_for(lambda: all(len(each.acknowledged) > 3 for each in made))
    assert served.stop() == 0
    for each in made:
        each.join()
        assert not each.refused
    for each in made:
        assert each.acknowledged
    nothing_lost_or_twice(served, made, token)


def test_without_power_nothing_acknowledged_is_lost_and_nothing_counted_twice(
    process: Start,
) -> None:
    served = process(kill_at="commit.after:10")
    served.create(epsilon=float("inf"), delta=0.0)
    token = served.token("observe")
    made = observers(served, token)
    assert served.process.wait(PATIENCE) == -signal.SIGKILL
    served._kill_at = ""
    for each in made:
        each.join()
    nothing_lost_or_twice(served, made, token)


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
        httpx.get(f"{served.url}/healthz", timeout=PATIENCE)  # nobody vouches for it
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http{served.url.removeprefix('https')}/healthz", timeout=PATIENCE)
