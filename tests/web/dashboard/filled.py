"""A service whose stream has all that the pages show, and ways into it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

from pyramidion import Categorical, Continuous, Label, Schema
from pyramidion.learn.estimators import estimator_named
from tests.store.stores import CUSTODIAN, DAY, SECOND
from tests.waiting import PATIENCE
from tests.web.service.services import Inside

STREAM, OTHER, MODEL = "flights", "empty", "late"
SCHEMA_OF_FLIGHTS = Schema(
    time="t",
    label=Label("late", classes=[0, 1]),
    features=[
        Categorical("carrier", domain=["AA", "DL", "UA", "WN"]),
        Categorical("origin", domain=["EWR", "JFK", "LGA"]),
        Categorical("tailnum"),
        Continuous("distance", bins=4, bounds=(0, 5_000)),
    ],
    groups=[("carrier", "origin")],
)
SETTINGS = {
    "buckets": 64,
    "count_window": "5d",
    "retention": "30d",
    "hot_window": "3d",
    "hot_step": "1d",
    "weights_share": 0.05,
    "rebuild_share": 0.05,
    "vault_rows": 500,
}
PAGES = (
    *("", "/windows", "/ledger", "/ledger/2", "/tables", "/groups", "/models", "/exposure"),
    *("/vault", "/audit-log", "/deletions"),
)
"""Of a stream."""
NEWER = 20_500 * DAY


def flights(size: int, at: float, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    carrier = random.choice(["AA", "DL", "UA", "WN"], size, p=[0.1, 0.2, 0.3, 0.4])
    late = random.random(size) < np.where(carrier == "WN", 0.6, 0.2)
    return pa.table(
        {
            "t": np.full(size, at),
            "late": late.astype(np.int64),
            "carrier": carrier,
            "origin": random.choice(["EWR", "JFK", "LGA"], size),
            "tailnum": random.integers(0, 30, size).astype(str),
            "distance": random.integers(100, 4_000, size).astype(np.float64),
        }
    )


class Filled(Inside):
    """Forty days of flights: windows erased, sealed and populating, a vault, a model, grants."""

    def __init__(self, folder: Path, days: int = 42) -> None:
        super().__init__(folder)
        self.clock.now = NEWER  # before the first row: pictures of it go into the documents
        self.create(STREAM, SCHEMA_OF_FLIGHTS, **SETTINGS)
        self.create(OTHER)
        self.pyramid = self.service._streams[STREAM].pyramid
        self.pyramid.admin.attach_vault(str(folder / "vault"), CUSTODIAN.public)
        for day in range(days):
            self.pyramid.observe(flights(300 + 10 * (day % 7), self.clock.now, day))
            self.clock.pass_(DAY)
            self.pyramid.advance()
        self.pyramid.observe(flights(120, self.clock.now, days))
        self.pyramid.register(MODEL, estimator_named("LogisticRegression", {}))
        self._grants()

    def _grants(self) -> None:
        now = self.service.now
        told: dict[str, Any] = {"engineer": "Ada", "purpose": "read", "columns": ["carrier"]}
        told |= {"files": 2, "first": now - 5 * SECOND, "last": now}
        self.pyramid.admin.note("vault.granted", grant="1f" * 8, expires=now + 900 * SECOND, **told)
        self.pyramid.admin.note("vault.opened", grant="1f" * 8, rows=900, **told)
        self.pyramid.admin.note("vault.granted", grant="2e" * 8, expires=now + 900 * SECOND, **told)
        self.pyramid.admin.note("vault.revoked", grant="2e" * 8, held=1)

    def browser(self, *roles: str, token: str | None = None, **given: Any) -> httpx.Client:
        """Somebody who is logged in."""
        return logged_in(self.url, token or self.token(*roles, **given))


def logged_in(url: str, token: str) -> httpx.Client:
    made = httpx.Client(base_url=url, headers={"Origin": url}, timeout=PATIENCE)
    answer = made.post("/login", data={"token": token})
    assert answer.status_code == 303, answer.text
    return made


def word_of(text: str) -> str:
    """The session's word, as a page has it."""
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found
    return found[1]
