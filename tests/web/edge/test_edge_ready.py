"""An edge is ready once its models have predicted; no kernel is compiled in its event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pyramidion import Pyramid
from pyramidion.counts.snapshot import Snapshot
from pyramidion.learn.estimators import estimator_named
from pyramidion.web.edge.copies import HeldModel
from tests.store.stores import SECOND, Stand
from tests.waiting import wait_for
from tests.web.client.service import Service
from tests.web.edge.conftest import Edge
from tests.web.edge.test_edge import LATE, asked
from tests.web.edge.test_edge_process import ROWS, World, world  # noqa: F401
from tests.web.edge.toys import Toy, export


def test_edge_is_ready_once_its_models_have_predicted(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, load = threading.Event(), HeldModel.load

    def later(model: HeldModel, snapshot: Snapshot) -> Iterator[None]:
        go_on.wait()
        return load(model, snapshot)

    monkeypatch.setattr(HeldModel, "load", later)
    for model in edge.copies._models.values():
        model._loaded = None
    try:
        told = edge.http.get("/readyz")
        names = ["flights/delay", "flights/late", "flights/lost"]
        assert (told.status_code, told.json()["lacking"]) == (503, names)
        assert edge.http.get("/healthz").status_code == 200
    finally:
        go_on.set()
    wait_for(lambda: edge.http.get("/readyz").status_code == 200)


def test_a_model_that_has_not_predicted_answers_in_a_thread(
    edge: Edge, service: Service, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, load, loops, predict = threading.Event(), HeldModel.load, list[bool](), Toy.predict_proba

    def later(model: HeldModel, snapshot: Snapshot) -> Iterator[None]:
        go_on.wait()
        return load(model, snapshot)

    def noted(model: Toy, snapshot: Snapshot, rows: object) -> object:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loops.append(False)
        else:
            loops.append(True)
        return predict(model, snapshot, rows)

    monkeypatch.setattr(HeldModel, "load", later)
    try:
        service.exports["late"] = export(0.5, int(stand.clock.now * SECOND), version=2)
        wait_for(lambda: edge.post(LATE, asked(1)[0]).json()["version"] == 2)
        monkeypatch.setattr(Toy, "predict_proba", noted)
        assert edge.post(LATE, asked(1)[0]).status_code == 200
        assert loops == [False]
    finally:
        go_on.set()
    wait_for(lambda: edge.copies.is_loaded("flights", "late"))
    loops.clear()
    assert edge.post(LATE, asked(1)[0]).status_code == 200
    assert True in loops


def test_no_kernel_is_compiled_in_the_event_loop_of_an_edge(
    world: World,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys, noted = f"file:{world.folder / 'store.key'}", world.folder / "noted"
    with Pyramid.open(world.folder / "store", keys=keys) as store:
        store.register("late", estimator_named("LogisticRegression", {}))
    world.begin_upstream()
    words = [sys.executable, "-m", "tests.web.edge.noting", str(noted)]
    monkeypatch.setattr(world.clock, "words", lambda _: words)
    world.begin_edge("--model", "late")

    def answered(body: Any) -> httpx.Response:
        return world.http.post(f"/v1/streams/flights/{LATE}", json=body)

    wait_for(lambda: answered(ROWS[0]).status_code == 200)
    for waited_for in (lambda: True, world.ready):  # as early as can be, and in the loop
        wait_for(waited_for)
        for value in ("x", 3, 1 << 63, 0.5, True, None):
            assert answered(ROWS[0] | {"a": value}).status_code == 200
        names = world.http.post("/v1/streams/flights/features", json=ROWS[0]).json()["names"]
        assert answered({"features": [0.0] * len(names)}).status_code == 200
    assert not noted.exists(), noted.read_text()
