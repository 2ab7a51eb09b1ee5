"""The OpenAPI document and the service agree: asked at random, it answers as it says it does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from pyramidion.serve.limits import Limits
from tests.serve.security.guarded import MARKER, OTHER, STREAM, Guarded, bearer

FEW = settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
