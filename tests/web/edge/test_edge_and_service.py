"""The real service and an edge beside it, each a process: one is killed, the other goes on."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clocked import NOW, Moved
from tests.secrets_on_disk import secret
from tests.store.stores import TIMELESS, rows
from tests.waiting import PATIENCE, wait_for
from tests.web.edge.test_edge_process import begun
from tests.web.service.services import Process

LATE = "/v1/streams/s/models/late/predictions"
ROWS = rows(3, seed=9).drop_columns(["t", "y"]).to_pylist()
LIFE = 3_600.0
"""Seconds that an exported model lives: a step of the hot window."""


class Story:
    """A `pyramidion serve` with a stream and a model, and a `pyramidion edge` that copies it."""

    def __init__(self, folder: Path, certificate: tuple[Path, Path] | None) -> None:
        self._folder = folder
        self._pair: tuple[str, ...] = ()
        if certificate is not None:
            chain, key = map(str, certificate)
            self._pair = ("--certificate", chain, "--certificate-key", key)
        self._verify = True if certificate is None else ssl.create_default_context(cafile=chain)
        self.clock = Moved(folder / "clock", NOW)
        """Of both; at the beginning of a step."""
        self.service = Process(folder, *self._pair, program=self.clock.words("pyramidion"))
        self.service.verify = self._verify
        self.edge: subprocess.Popen[str] | None = None
        self.http = httpx.Client()
        self._made = 0

    def fill(self) -> None:
        """Two windows' rows, of which one is sealed; a model that learned from all."""
        self.service.create(
            schema=TIMELESS, count_window=50, hot_step=f"{LIFE:g}s", hot_window="1d", max_skew="1s"
        )
        self.more()
        wait_for(lambda: self._windows() == 1)
        self.more(20)
        told = {"estimator": "LogisticRegression"}
        made = self.service.caller().put("/v1/streams/s/models/late", json=told)
        assert made.status_code < 300, made.text

    def more(self, size: int = 50) -> None:
        """The service gets rows."""
        self._made += 1
        told = rows(size, seed=self._made).drop_columns(["t"]).to_pylist()
        answer = self.service.caller().post("/v1/streams/s/observations", json=told)
        assert answer.json()["accepted"] == size, answer.text

    def retrain(self) -> None:
        """The model learns from what came."""
        answer = self.service.caller().post("/v1/streams/s/models/late/retrain")
        assert answer.status_code < 300, answer.text

    def _windows(self) -> int:
        told = self.service.caller().get("/v1/streams/s/windows").json()["windows"]
        return sum(window["state"] == "sealed" for window in told)

    def begin_edge(self) -> None:
        """An edge with a token of its own, who answers those of the service."""
        own = self._folder / "edge.token"
        secret(own, self.service.token("predict"))
        trusted = ("--trust", self._pair[1]) if self._pair else ()
        self.edge = begun(
            *self.clock.words("pyramidion"),
            "edge", "--from", self.service.url, "--token-file", str(own),
            "--token-hash-file", str(self.service.data / ".service" / "tokens.json"),
            "--stream", "s", "--model", "late", "--port", "0", "--every", "0.3",
            *self._pair, *trusted,
        )  # fmt: skip
        assert self.edge.stdout is not None
        asker = {"Authorization": f"Bearer {self.service.token('predict')}"}
        self.http = httpx.Client(
            base_url=self.edge.stdout.readline().split()[-1],
            headers=asker, timeout=PATIENCE, verify=self._verify,
        )  # fmt: skip

    def ready(self) -> bool:
        """Whether the edge has all that it wants."""
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def predicted(self) -> dict[str, Any]:
        """What the edge says of some rows."""
        answer = self.http.post(LATE, json=ROWS)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def life(self) -> float:
        """How many seconds the edge's model still lives."""
        expires: int = self.http.get("/v1/streams/s/models/late").json()["expires"]
        return expires / 1e6 - self.clock()

    def close(self) -> None:
        """Stop both."""
        self.http.close()
        self.service.close()
        if self.edge is not None and self.edge.poll() is None:
            self.edge.kill()
            self.edge.wait()


Begin = Callable[..., Story]


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Begin]:
    made: list[Story] = []

    def begin(certificate: tuple[Path, Path] | None = None) -> Story:
        made.append(Story(tmp_path, certificate))
        made[-1].fill()
        made[-1].begin_edge()
        wait_for(made[-1].ready)
        return made[-1]

    yield begin
    for each in made:
        each.close()


def test_an_edge_predicts_while_the_service_is_dead_until_its_copies_end(story: Begin) -> None:
    told = story()
    before = told.predicted()
    there = told.service.caller("predict").post(LATE, json=ROWS).json()
    assert before == there  # the same numbers of the same version

    told.service.kill()
    for _ in range(20):
        assert told.predicted() == before
    told.clock.pass_(told.life() / 2)
    assert told.predicted() == before

    told.service.start()
    told.more()
    told.retrain()
    # A restart alone trains a new version, from the same rows.
    wait_for(lambda: told.ready() and told.predicted()["probabilities"] != before["probabilities"])
    after = told.predicted()
    assert after["version"] > before["version"]

    told.service.kill()
    assert told.predicted()["version"] >= after["version"]
    told.clock.pass_(told.life() + 1)
    wait_for(lambda: not told.ready())
    answer = told.http.post(LATE, json=ROWS)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "ExpiredError"
    assert answer.headers["Retry-After"] == "1"


def test_an_edge_speaks_tls_by_certificate_files(
    story: Begin, certificate: tuple[Path, Path]
) -> None:
    told = story(certificate)
    assert told.http.base_url.scheme == "https"
    assert len(told.predicted()["probabilities"]) == len(ROWS)
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{told.http.base_url}/healthz", timeout=PATIENCE)  # nobody vouches for it
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{told.http.base_url.port}/healthz", timeout=PATIENCE)
