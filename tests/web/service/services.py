"""Services for tests: one in this process with a clock that stands still, or a real process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import uvicorn

from pyramidion.config.schema import Schema
from pyramidion.config.toml import written
from pyramidion.web.bodies import ARROW
from pyramidion.web.limits import Limits
from pyramidion.web.listen import bound
from pyramidion.web.service.app import create_app
from pyramidion.web.service.service import Service
from pyramidion.web.service.tokens import Tokens
from pyramidion.web.tokens import EVERY, ROLES
from tests.ports import free_port
from tests.store.stores import DAY, SCHEMA, TINY, Clock, rows
from tests.waiting import PATIENCE, wait_for

PROGRAM = (sys.executable, "-m", "pyramidion")
ARROW_IN = {"Content-Type": ARROW}
ARROW_OUT = {"Accept": ARROW}


def told_rows(size: int, at: float, seed: int = 0) -> list[dict[str, Any]]:
    """Rows for a JSON body."""
    found: list[dict[str, Any]] = rows(size, at, seed).to_pylist()
    return found


def arrow_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def arrow_table(data: bytes) -> pa.Table:
    """What an Arrow stream holds, to its end."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal, which must have the one shape."""
    told = answer.json()
    assert set(told) == {"error"}
    assert {"code", "message"} <= set(told["error"]) <= {"code", "message", "problems"}
    assert told["error"]["message"]
    return answer.status_code, told["error"]["code"]


class Callers:
    """Clients of one service, each with a token."""

    def __init__(self, data: Path) -> None:
        self._tokens = Tokens.of(data)
        self._made: list[httpx.Client] = []
        self.url = ""
        self.verify: Any = True

    def token(self, *roles: str, streams: Iterable[str] = (EVERY,)) -> str:
        """A new token."""
        return self._tokens.add("test", roles or ROLES, streams, 0)

    def caller(self, *roles: str, streams: Iterable[str] = (EVERY,)) -> httpx.Client:
        """Somebody with roles; without any named: with all."""
        return self.known(self.token(*roles, streams=streams))

    def known(self, token: str) -> httpx.Client:
        """Who has a token."""
        given = {"Authorization": f"Bearer {token}"}
        made = httpx.Client(base_url=self.url, headers=given, timeout=PATIENCE, verify=self.verify)
        self._made.append(made)
        return made

    def hang_up(self) -> None:
        """Close all connections."""
        for client in self._made:
            client.close()


class Inside(Callers):
    """A service in a thread of this process; its clock is the test's."""

    def __init__(
        self, folder: Path, limits: Limits | None = None, clock: Clock | None = None
    ) -> None:
        self.data = folder / "data"
        self.keys = f"file:{folder}/keys/{{stream}}.key"
        self.clock = clock or Clock()
        super().__init__(self.data)
        self.service = Service(self.data, keys=self.keys, clock=self.clock, limits=limits)
        self._socket = bound("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            create_app(self.service), log_config=None, access_log=False, timeout_keep_alive=600
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        wait_for(lambda: self._server.started)

    def create(self, name: str = "s", schema: Schema = SCHEMA, **settings: Any) -> None:
        """Make a stream, as an admin does."""
        body = {"schema": schema.to_toml(), "settings": TINY | settings}
        made = self.caller("admin").put(f"/v1/streams/{name}", json=body)
        assert made.status_code == 201, made.text

    def fill(self, name: str = "s", size: int = 200) -> None:
        """Have a stream with a sealed window and hot rows."""
        store = self.service._streams[name].pyramid
        store.observe(rows(size, self.clock.now, seed=1))
        self.clock.pass_(10 * DAY)
        store.advance()
        store.observe(rows(size, self.clock.now, seed=2))

    def close(self) -> None:
        """Stop."""
        self.hang_up()
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self.service.close()


class Process(Callers):
    """A `pyramidion serve` of its own, always at one port; ``kill_at`` is a kill point."""

    def __init__(
        self, folder: Path, *options: str, program: Sequence[str] = PROGRAM, kill_at: str = ""
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.keys = f"file:{folder}/keys/{{stream}}.key"
        self._options = options
        self._program, self._kill_at = program, kill_at
        self._port = free_port()
        super().__init__(self.data)
        self.start()

    def start(self) -> None:
        """Start it; returns when it answers."""
        words = ["serve", "--data", str(self.data), "--keys", self.keys, "--port", str(self._port)]
        self.process = subprocess.Popen(
            [*self._program, *words, "--json", *self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYRAMIDION_KILL_AT": self._kill_at},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        self.url = json.loads(line)["url"]

    def create(self, name: str = "s", schema: Schema = SCHEMA, **settings: Any) -> None:
        """Make a stream, as an admin does."""
        file = f"{schema.to_toml()}\n{written({'settings': TINY | settings})}"
        kind = {"Content-Type": "application/toml"}
        made = self.caller("admin").put(f"/v1/streams/{name}", content=file, headers=kind)
        assert made.status_code == 201, made.text

    def stop(self) -> int:
        """Ask it to stop; how it ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Take the power away."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def close(self) -> None:
        """Stop, if it runs."""
        self.hang_up()
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
