from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.clocked import NOW, Moved
from tests.web.service.services import Inside, Process


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    """A service without streams, in this process."""
    made = Inside(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """A service with a stream ``s`` that a module's tests read: a sealed window, and hot rows."""
    made = Inside(tmp_path_factory.mktemp("shared"))
    made.create()
    made.fill()
    yield made
    made.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts real services, which begin in the middle of a window."""
    made: list[Process] = []

    def start(*options: str, before: Sequence[str] = (), kill_at: str = "") -> Process:
        program = [*before, *Moved(tmp_path / "clock", NOW).words("pyramidion")]
        made.append(Process(tmp_path, *options, program=program, kill_at=kill_at))
        return made[-1]

    yield start
    for each in made:
        each.close()
