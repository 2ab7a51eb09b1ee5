"""Real Redis servers for tests, on free ports of this machine, without persistence."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyramidion.storage.redis import RedisTables
from tests.ports import free_port
from tests.waiting import PATIENCE, wait_for

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
        wait_for(self._answers)

    def asked(self, *command: str) -> bytes:
        """What it says to a command."""
        asked = ["redis-cli", "-p", str(self.port), *command]
        return subprocess.run(asked, check=True, capture_output=True, timeout=PATIENCE).stdout

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


class Outage:
    """Has a server end before a command of a child, and start again, empty, before a later one.

    The child asks for it by a pipe, and waits: what it sees of the server follows from what it does
    itself. Commands are counted by kind, as in ``SET:2``; of a pipeline, the first. The server is
    back after ``uses`` uses of the table store that find it away; with none, at once.
    """

    def __init__(self, server: RedisServer, end: str, uses: int) -> None:
        self.server, self.end, self.uses = server, end, uses
        self._kind, _, count = end.partition(":")
        self._count = int(count)
        self._asked, self._ask = os.pipe()
        self._done, self._answer = os.pipe()

    @contextmanager
    def of_child(self) -> Iterator[None]:
        """In the child: watch its commands."""
        from redis.connection import AbstractConnection

        send, redis = AbstractConnection.send_packed_command, RedisTables._redis

        def sent(connection: Any, packed: list[bytes], **named: Any) -> None:
            self._before(packed[0].split(b"\r\n", 3)[2].decode())
            send(connection, packed, **named)

        def used(tables: RedisTables) -> Any:
            self._used()
            return redis(tables)

        os.close(self._asked)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AbstractConnection, "send_packed_command", sent)
            patch.setattr(RedisTables, "_redis", used)
            yield

    def _before(self, kind: str) -> None:
        if kind == self._kind:
            self._count -= 1
            if self._count == 0:
                self._change()
                self._used()

    def _used(self) -> None:
        if self._count <= 0 <= self.uses:
            self.uses -= 1
            if self.uses < 0:
                self._change()

    def _change(self) -> None:
        """Have the server ended or started."""
        os.write(self._ask, b"?")
        assert os.read(self._done, 1)

    def seen(self) -> bool:
        """In the parent: end and start the server when asked, until the child is gone.

        Whether it was; the server runs at the end.
        """
        os.close(self._ask)
        changes = [self.server.kill, self.server.start]
        while os.read(self._asked, 1):
            changes.pop(0)()
            os.write(self._answer, b"!")
        if len(changes) == 1:
            self.server.start()
        for pipe in (self._asked, self._done, self._answer):
            os.close(pipe)
        return len(changes) < 2


class RedisCluster:
    """Three servers that share the keys."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        flags = ("--cluster-enabled", "yes", "--cluster-node-timeout", "60000")
        self.servers = [RedisServer(folder / str(number), *flags) for number in range(3)]
        hosts = [f"127.0.0.1:{server.port}" for server in self.servers]
        flags = ("--cluster-replicas", "0", "--cluster-yes")
        command = ["redis-cli", "--cluster", "create", *hosts, *flags]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        self.ready()
        self.url = f"redis+cluster://{hosts[0]}"

    def ready(self) -> None:
        """Wait until all three know that all slots are served."""
        for server in self.servers:
            wait_for(lambda server=server: b"cluster_state:ok" in server.asked("cluster", "info"))

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


def needed() -> None:
    """Skip where there is no Redis."""
    pytest.importorskip("redis", reason="redis-py is not installed here")
    if shutil.which("redis-server") is None or shutil.which("redis-cli") is None:
        pytest.skip(ABSENT)
