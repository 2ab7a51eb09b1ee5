from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyramidion import Client, Pyramid
from pyramidion.web.client import calls
from tests.store.conftest import stand, trainer  # noqa: F401
from tests.store.stores import DAY, Stand, observed, rows
from tests.web.client.service import TOKEN, Service, serving


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are short."""
    monkeypatch.setattr(calls, "FIRST", 0.001)
    monkeypatch.setattr(calls, "LONGEST", 0.01)


@pytest.fixture
def store(stand: Stand) -> Pyramid:  # noqa: F811
    """A store with a sealed window, and hot rows in the next one."""
    made = stand.create()
    observed(made, rows(200, stand.clock.now))
    stand.clock.pass_(10 * DAY)
    made.advance()
    observed(made, rows(60, stand.clock.now, seed=1))
    return made


@pytest.fixture
def service(store: Pyramid, stand: Stand) -> Iterator[Service]:  # noqa: F811
    with serving(store, stand.clock) as found:
        yield found


@pytest.fixture
def client(service: Service, stand: Stand) -> Iterator[Client]:  # noqa: F811
    with Client(service.url, token=TOKEN, clock=stand.clock) as made:
        yield made
