"""Request smuggling: no body is handled as a request, however it is framed and segmented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from pyramidion.web.connections import Connection
from tests import framing
from tests.web.edge.conftest import ASKER, Edge

CUTTING = framing.Cutting()


@dataclass
class Cut:
    """The edge behind connections that cut what arrives."""

    port: int
    path = "/v1/streams/flights/features"
    token = ASKER
    unreadable = 422
    cutting = CUTTING


@pytest.fixture
def kind() -> type[Any]:
    return CUTTING.kind(Connection)


@pytest.fixture
def server(edge: Edge) -> Cut:
    edge.made.admission.strange = lambda _: None  # type: ignore[method-assign]
    return Cut(httpx.URL(str(edge.http.base_url)).port or 0)


CHECKS = sorted({check for check, _ in framing.CHECKS}, key=lambda check: check.__name__)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_body_is_no_request(server: Cut, check: Callable[[Any, str], None]) -> None:
    for name in [name for each, name in framing.CHECKS if each is check]:
        check(server, name)
