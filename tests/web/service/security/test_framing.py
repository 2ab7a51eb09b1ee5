"""Request smuggling: no body is handled as a request, however it is framed and segmented."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from pyramidion.web.connection_slots import ConnectionSlots
from pyramidion.web.connections import PIPELINED, Connection
from pyramidion.web.limits import Limits
from tests import framing
from tests.waiting import PATIENCE
from tests.web.service.security.guarded import STREAM, Guarded, Listening


class Cut(Listening):
    """The service behind connections that cut what arrives."""

    path = f"/v1/streams/{STREAM}/observations"
    unreadable = 422

    def __init__(self, guarded: Guarded) -> None:
        self.cutting = framing.Cutting()
        self.token = guarded.token("observe")
        super().__init__(guarded, self.cutting.kind)


@pytest.fixture(scope="module")
def server(guarded: Guarded) -> Iterator[Cut]:
    made = Cut(guarded)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("check", "name"), framing.CHECKS, ids=lambda each: getattr(each, "__name__", each)
)
def test_body_is_no_request(server: Cut, check: Callable[[Any, str], None], name: str) -> None:
    check(server, name)


async def healthy(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})


class Wire:
    """Stands for a transport."""

    def __init__(self) -> None:
        self.sent, self.closing = b"", False

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, _: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def test_pipelined_requests_are_bounded() -> None:
    async def fed() -> Wire:
        config = uvicorn.Config(healthy, ws="none", log_config=None)
        config.load()
        state = {"config": config, "server_state": ServerState(), "app_state": {}}
        made = Connection(Limits(), ConnectionSlots(lambda: 10), **state)
        wire = Wire()
        made.connection_made(wire)  # type: ignore[arg-type]
        made.data_received(framing.ASKED * 2 * PIPELINED)
        while not wire.closing:
            await asyncio.sleep(0)
        made.connection_lost(None)
        return wire

    found = asyncio.run(asyncio.wait_for(fed(), PATIENCE)).sent
    assert found.count(b"HTTP/1.1 200") == PIPELINED + 1
    assert found.count(b"HTTP/1.1 400") == 1
