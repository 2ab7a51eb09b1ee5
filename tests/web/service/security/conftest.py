from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyramidion.web.limits import Limits
from tests.store.stores import CUSTODIAN
from tests.web.service.security.guarded import OTHER, STREAM, Guarded, Listening


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A service with two streams, a model and a vault, which tests ask and do not change."""
    folder = tmp_path_factory.mktemp("guarded")
    made = Guarded(folder, Limits(stranger_burst=1_000_000))
    made.create(STREAM, OTHER)
    made.fill()
    made.pyramid(OTHER).admin.attach_vault(str(folder / "vault"), CUSTODIAN.public)
    yield made
    made.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[..., Guarded]]:
    """Makes services with limits of their own, and an empty stream."""
    made: list[Guarded] = []

    def make(limits: Limits | None = None, **given: Any) -> Guarded:
        made.append(Guarded(tmp_path / str(len(made)), limits, **given))
        made[-1].create(STREAM)
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def listening() -> Iterator[Callable[[Guarded], Listening]]:
    """Puts services behind real sockets."""
    made: list[Listening] = []

    def listen(guarded: Guarded) -> Listening:
        made.append(Listening(guarded))
        return made[-1]

    yield listen
    for each in made:
        each.close()
