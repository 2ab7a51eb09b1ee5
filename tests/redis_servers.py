"""Real Redis servers for tests, on free ports of this machine, without persistence."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ABSENT = "there is no redis-server here; run `make system` as root"


class RedisServer:
    """One server; it can be killed and started again, which loses all it had."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.folder, self.more = folder, more
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        asked = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        command = ["redis-server", *asked, "--save", "", "--appendonly", "no", *self.more]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        _until(self._answers)

    def asked(self, *command: str) -> bytes:
        """What it says to a command."""
        asked = ["redis-cli", "-p", str(self.port), *command]
        return subprocess.run(asked, check=True, capture_output=True, timeout=30).stdout

    def _answers(self) -> bool:
        """Whether it speaks, be it to ask for a password."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
                line.sendall(b"PING\r\n")
                return line.recv(7).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def away(self) -> Iterator[None]:
        """Without it; then it is back, empty."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """It takes connections and answers nothing; then it goes on, with all it had."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


class RedisCluster:
    """Three servers that share the keys."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        flags = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        self.servers = [RedisServer(folder / str(number), *flags) for number in range(3)]
        hosts = [f"127.0.0.1:{server.port}" for server in self.servers]
        flags = ("--cluster-replicas", "0", "--cluster-yes")
        command = ["redis-cli", "--cluster", "create", *hosts, *flags]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        self.ready()
        self.url = f"redis+cluster://{hosts[0]}"

    def ready(self) -> None:
        """Wait until all three know that all slots are served."""
        for server in self.servers:
            _until(lambda server=server: b"cluster_state:ok" in server.asked("cluster", "info"))

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("a server of the test does not come up; see its log")
        time.sleep(0.02)


def free_port() -> int:
    """A port that is free, as is the one of a cluster's bus above it."""
    while True:
        with socket.socket() as one, socket.socket() as bus:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                bus.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            return port


def needed() -> None:
    """Skip where there is no Redis."""
    pytest.importorskip("redis", reason="redis-py is not installed here")
    if shutil.which("redis-server") is None or shutil.which("redis-cli") is None:
        pytest.skip(ABSENT)
