"""What is logged: who and what, never a value, a query, a token, or what an error says."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import StreamingResponse

from pyramidion import Pyramid
from pyramidion.web.bodies import ARROW
from pyramidion.web.logs import MOST, logged
from tests.store.stores import rows
from tests.waiting import PATIENCE
from tests.web.service.security.guarded import (
    MARKER,
    MODEL,
    STREAM,
    Guarded,
    Listening,
    arrow_bytes,
    captured,
    code_of,
    lines_of,
)

S = f"/v1/streams/{STREAM}"


def requests(log: io.StringIO) -> list[dict[str, Any]]:
    return [line for line in lines_of(log) if line["event"] == "request"]


def test_a_request_is_one_line_with_who_what_and_how_long(guarded: Guarded) -> None:
    token = guarded.token("predict")
    body = json.dumps([{"a": "1", "b": "x"}])
    kind = {"Content-Type": "application/json"}
    with captured() as log:
        guarded.ask("POST", f"{S}/features", token=token, content=body, headers=kind)
    (line,) = requests(log)
    assert line.pop("seconds") > 0
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "event": "request",
        "method": "POST",
        "route": "/v1/streams/{stream}/features",
        "status": 200,
        "token": token.split("_")[1],
    }  # and no more: how long bodies are tells of the rows in them


def test_what_has_no_route_is_told_without_its_path(guarded: Guarded) -> None:
    with captured() as log:
        guarded.client.get(f"/{MARKER}?{MARKER}={MARKER}")
        guarded.client.request(MARKER, f"/{MARKER}")
    assert [(line["route"], line["method"]) for line in requests(log)] == [
        ("none", "GET"),
        ("none", "other"),
    ]
    assert MARKER not in log.getvalue()


def hidden(guarded: Guarded) -> list[Callable[[], Any]]:
    """Requests with a marker wherever a caller can put one."""
    row = {"t": guarded.clock.now, "y": 1, "a": MARKER, "b": MARKER}
    bad = row | {"y": MARKER, "t": MARKER}
    table = rows(3, guarded.clock.now).to_pylist()
    arrow = arrow_bytes(rows(3, guarded.clock.now)).replace(b"y", b"Z")

    def ask(method: str, path: str, **given: Any) -> Callable[[], Any]:
        return lambda: guarded.ask(method, path, **given)

    return [
        ask("POST", f"{S}/observations", json=[row]),
        ask("POST", f"{S}/observations", json=[bad]),
        ask("POST", f"{S}/observations?errors=skip", json=[row, bad]),
        ask("POST", f"{S}/observations?errors={MARKER}", json=table),
        ask("POST", f"{S}/observations", json=table, headers={"Idempotency-Key": MARKER}),
        ask("POST", f"{S}/observations", content=arrow, headers={"Content-Type": ARROW}),
        ask("POST", f"{S}/observations", content=MARKER),
        ask("POST", f"{S}/features", json=[row]),
        ask("POST", f"{S}/features", json=[{MARKER: MARKER}]),
        ask("POST", f"{S}/models/{MODEL}/predictions", json=row),
        ask("POST", f"{S}/models/{MARKER}/predictions", json=row),
        ask("GET", f"{S}/training-set?label={MARKER}"),
        ask("GET", f"/v1/streams/{MARKER}"),
        ask("DELETE", f"{S}/tables/{MARKER}?why={MARKER}"),
        ask("DELETE", f"/v1/tokens/{MARKER}"),
        ask("GET", f"{S}/exposure?from={MARKER}&to={MARKER}"),
        ask("PUT", f"{S}/models/x", json={"estimator": MARKER}),
        ask("PUT", f"/v1/streams/{MARKER}", json={"schema": MARKER, "settings": {MARKER: 1}}),
        ask("GET", "/v1/streams", token=f"pyr_{MARKER}"),
        ask("GET", "/v1/streams", headers={MARKER: MARKER, "User-Agent": MARKER}),
    ]


def test_no_value_a_caller_sends_is_found_in_logs_or_metrics(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    with captured() as log:
        for ask in hidden(guarded):
            answer = ask()
            assert answer.status_code != 500
    assert len(requests(log)) == len(hidden(guarded))
    assert MARKER not in log.getvalue()
    assert MARKER not in guarded.ask("GET", "/metrics", "admin").text


def test_an_error_nobody_foresaw_is_told_by_its_place_alone(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        try:
            raise KeyError(MARKER)
        except KeyError:
            raise ValueError(f"row {MARKER}") from None

    monkeypatch.setattr(Pyramid, "snapshot", broken)
    with captured() as log:
        answer = guarded.ask("POST", f"{S}/features", json=[{"a": MARKER, "b": "x"}])
    assert (answer.status_code, code_of(answer)) == (500, "Unforeseen")
    (line,) = [line for line in lines_of(log) if line["level"] == "error"]
    assert line["event"] == "unforeseen ValueError"
    assert any("test_logs.py" in place for place in line["places"])
    assert "KeyError" in line["places"]
    assert MARKER not in log.getvalue() + answer.text + "".join(capfd.readouterr())


def test_an_error_in_the_middle_of_an_answer_cuts_it_off_and_quotes_nothing(
    guarded: Guarded,
    listening: Callable[[Guarded], Listening],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def broken() -> Iterator[bytes]:
        yield b"begun\n"
        raise ValueError(MARKER)

    def streamed(*_: object, **given: Any) -> StreamingResponse:
        return StreamingResponse(broken(), **given)

    monkeypatch.setattr("pyramidion.web.service.routes_rows.StreamingResponse", streamed)
    place = listening(guarded)
    head = f"GET {S}/training-set HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {guarded.token()}"
    with captured() as log:
        found = place.send(f"{head}\r\n\r\n".encode())
    assert found.startswith(b"HTTP/1.1 200")
    assert b"begun" in found
    assert not found.endswith(b"0\r\n\r\n")
    assert "unforeseen ValueError" in [line["event"] for line in lines_of(log)]
    assert MARKER not in log.getvalue() + "".join(capfd.readouterr())


def test_other_packages_are_told_by_where_they_speak() -> None:
    with captured() as log:
        try:
            raise ValueError(MARKER)
        except ValueError:
            logging.getLogger("uvicorn.error").exception("said %s", MARKER)
            logging.getLogger("asyncio").exception(MARKER)
        logging.getLogger("some.library").warning("a row: %s", MARKER)
        logging.getLogger("uvicorn.access").warning("GET /%s", MARKER)
        warnings.warn(MARKER, UserWarning, stacklevel=1)
    events = [line["event"] for line in lines_of(log)]
    assert events == ["uvicorn.error", "asyncio", "some.library", "py.warnings"]
    assert MARKER not in log.getvalue()


def test_a_thread_that_dies_quotes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise ValueError(MARKER)

    with captured() as log:
        thread = threading.Thread(target=broken)
        thread.start()
        thread.join()
    assert "a thread ended by an error" in log.getvalue()
    assert MARKER not in log.getvalue() + "".join(capfd.readouterr())


def test_who_does_not_read_the_log_keeps_nobody_waiting() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        log = logging.getLogger("pyramidion.serve")
        made = logged(stream)
        made.__enter__()
        for _ in range(MOST + 5_000):
            log.info("x" * 100)
        with os.fdopen(reading) as reader:
            found = threading.Thread(target=reader.read)
            found.start()
            made.__exit__(None, None, None)
            stream.close()
            found.join()


def test_what_did_not_fit_is_told() -> None:
    with captured() as log:
        handler: Any = next(h for h in logging.getLogger().handlers if hasattr(h, "_dropped"))
        for _ in range(MOST + 3_000):
            logging.getLogger("pyramidion.serve").info("x")
    kept = [line for line in lines_of(log) if line["event"] == "x"]
    lost = sum(line["lines"] for line in lines_of(log) if line["event"] == "lines dropped")
    assert len(kept) + lost == MOST + 3_000
    assert handler._dropped == 0


def test_logging_is_left_as_it_was() -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers), threading.excepthook, logging.raiseExceptions
    with captured():
        pass
    after = root.level, list(root.handlers), threading.excepthook, logging.raiseExceptions
    assert before == after


def test_the_process_logs_json_lines_alone(tmp_path: Path) -> None:
    words = ["serve", "--data", str(tmp_path / "d"), "--port", "0", "--json", "--rate", "7"]
    with subprocess.Popen(
        [sys.executable, "-m", "pyramidion", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert httpx.get(f"{url}/healthz", timeout=PATIENCE).status_code == 200
        process.terminate()
        _, told = process.communicate(timeout=PATIENCE)
    first, *lines = told.splitlines()
    assert "nobody has a token yet" in first
    events = [json.loads(line)["event"] for line in lines]
    assert any(event.startswith("Started server process") for event in events)
    assert "request" in events
