"""File descriptors: half-open connections take none from the stores."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyramidion.errors import StorageError
from pyramidion.web import descriptors
from tests.clocked import NOW
from tests.waiting import PATIENCE, wait_for
from tests.web.service.services import Process, told_rows

LIMIT = 256
OPENED = 600
Start = Callable[..., Process]


def limited(soft: int, hard: int | None = None) -> list[str]:
    """Run a command that may have so many descriptors."""
    script = f'ulimit -Sn {soft} && ulimit -Hn {hard or soft} && exec "$@"'
    return ["sh", "-c", script, "sh"]


def soft_limit(pid: int) -> int:
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize(
    ("tls", "begun"), [(False, b"POST /v1/streams/s/observations HTTP/1.1\r\n"), (True, b"")]
)
def test_half_open_connections_fail_no_commit(
    process: Start, certificate: tuple[Path, Path], tls: bool, begun: bytes
) -> None:
    chain, key = certificate
    more = ("--certificate", str(chain), "--certificate-key", str(key)) if tls else ()
    served = process(*more, before=limited(LIMIT))
    served.verify = ssl.create_default_context(cafile=str(chain)) if tls else True
    served.create("s", epsilon=float("inf"), delta=0.0)
    address = "127.0.0.1", int(served.url.rpartition(":")[2])
    with contextlib.ExitStack() as held:
        for _ in range(OPENED):
            made = held.enter_context(socket.create_connection(address, timeout=PATIENCE))
            with contextlib.suppress(OSError):  # of one that was dropped already
                made.sendall(begun)
        served.create("t", epsilon=float("inf"), delta=0.0)  # opens files
        for name in ("s", "t"):
            rows = told_rows(3, NOW)
            answer = served.caller("observe").post(f"/v1/streams/{name}/observations", json=rows)
            assert answer.status_code == 200, answer.text
            assert answer.json()["accepted"] == 3
        caller = served.caller()
        wait_for(lambda: caller.get("/readyz").json() == {"ready": True})
    served.hang_up()
    assert served.stop() == 0


def test_soft_limit_is_raised_to_the_hard_one(process: Start) -> None:
    served = process(before=limited(LIMIT, 1_000))
    wait_for(lambda: served.caller().get("/healthz").status_code == 200)
    assert soft_limit(served.process.pid) == 1_000


def test_service_without_descriptors_is_refused(tmp_path: Path) -> None:
    words = ["-m", "pyramidion", "serve", "--data", str(tmp_path), "--port", "0"]
    found = subprocess.run(
        [*limited(100), sys.executable, *words],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert found.returncode != 0
    assert "need 112 file descriptors" in found.stderr
    assert "Traceback" not in found.stderr


def test_connections_have_what_streams_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 1_024))
    assert descriptors.for_connections(0) == 1_024 - descriptors.OWN
    assert descriptors.for_connections(10) == 1_024 - descriptors.OWN - 10 * descriptors.STREAM
    descriptors.refuse_few(28)
    with pytest.raises(StorageError, match="29 streams need 1040 file descriptors"):
        descriptors.refuse_few(29)


def test_scarce_descriptors_are_noticed_and_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not descriptors.scarce()
    opened: list[int] = []
    real = os.open

    def few(path: str, flags: int) -> int:
        if len(opened) == descriptors.SPARE - 1:
            raise OSError(errno.EMFILE, "too many open files")
        opened.append(real(path, flags))
        return opened[-1]

    monkeypatch.setattr(os, "open", few)
    assert descriptors.scarce()
    for each in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)
