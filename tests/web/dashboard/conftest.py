from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.dashboard.filled import Filled
from tests.web.service.security.guarded import OTHER, STREAM, Guarded


@pytest.fixture(scope="package")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A service whose stream has all that the pages show."""
    made = Filled(tmp_path_factory.mktemp("filled"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A service with two streams, asked without a socket."""
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    made.create(STREAM, OTHER)
    made.fill()
    yield made
    made.close()
