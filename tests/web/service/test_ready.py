"""`/readyz` is 200 only while every request can be answered; `/healthz` answers meanwhile."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pyramidion.learn.estimators import estimator_named
from pyramidion.store.pyramid import Pyramid
from pyramidion.web.service import routes_models, service, streams
from pyramidion.web.service import warming as warming_module
from pyramidion.web.service.service import Service
from pyramidion.web.service.warming import Warming
from tests.web.service.services import PATIENCE, Inside, told_rows, wait_for

MODEL = "late"


def ready(inside: Inside) -> tuple[int, list[str]]:
    """The status of `/readyz` and its reasons; `/healthz` must answer too."""
    assert httpx.get(f"{inside.url}/healthz").status_code == 200
    told = httpx.get(f"{inside.url}/readyz")
    assert told.json()["ready"] == (told.status_code == 200)
    return told.status_code, told.json().get("reasons", [])


def predicted(inside: Inside) -> httpx.Response:
    caller, row = inside.caller("predict"), told_rows(1, inside.clock.now)[0]
    return caller.post(f"/v1/streams/s/models/{MODEL}/predictions", json=row)


def filled(inside: Inside) -> Pyramid:
    inside.create()
    inside.fill()
    store = inside.service._streams["s"].pyramid
    store.register(MODEL, estimator_named("LogisticRegression", {}))
    return store


def test_service_is_ready_once_its_kernels_are_loaded(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(inside)
    go_on, loops = threading.Event(), list[bool]()
    one = routes_models._one

    def noted(*given: object) -> object:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loops.append(False)
        else:
            loops.append(True)
        return one(*given)  # type: ignore[arg-type]

    def steps() -> Iterator[None]:
        go_on.wait()
        yield

    monkeypatch.setattr(routes_models, "_one", noted)
    inside.service.warming = warming = Warming(steps)
    warming.begin()
    try:
        assert ready(inside) == (503, ["kernels"])
        assert predicted(inside).status_code == 200
        assert loops == [False]
    finally:
        go_on.set()
    wait_for(lambda: not warming.busy)
    assert ready(inside) == (200, [])
    assert predicted(inside).status_code == 200
    assert loops == [False, True]


def test_kernels_that_fail_are_loaded_again(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming_module, "RETRY", 0.01)
    go_on, failed = threading.Event(), threading.Event()

    def steps() -> Iterator[None]:
        if not go_on.is_set():
            failed.set()
            raise OSError
        yield

    inside.service.warming = Warming(steps)
    inside.service.warming.begin()
    assert failed.wait(PATIENCE)
    assert ready(inside) == (503, ["kernels"])
    go_on.set()
    wait_for(lambda: not inside.service.warming.busy)
    assert ready(inside) == (200, [])


def test_service_is_ready_once_its_models_are_trained(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(inside)
    inside.service.close()
    go_on, whole = threading.Event(), Pyramid.advance

    def advance(store: Pyramid) -> object:
        go_on.wait()
        return whole(store)

    monkeypatch.setattr(Pyramid, "advance", advance)
    again = Service(store.path.parent, keys=inside.keys, clock=inside.clock)
    try:
        assert again.reasons == ["models"]
        go_on.set()
        wait_for(lambda: not again.reasons)
        assert again._streams["s"].pyramid.models[MODEL].available
    finally:
        go_on.set()
        again.close()


def test_service_without_its_key_holder_is_not_ready(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(streams, "KEY_LOOKS", 1)
    inside.create()
    keys = tmp_path / "keys"
    keys.rename(tmp_path / "away")
    wait_for(lambda: inside.service.reasons)
    assert ready(inside) == (503, ["keys"])
    shutil.rmtree(keys, ignore_errors=True)  # a lock may have been made there
    (tmp_path / "away").rename(keys)
    wait_for(lambda: not inside.service.reasons)
    assert ready(inside) == (200, [])


def test_service_without_descriptors_is_not_ready(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "scarce", lambda: True)
    assert ready(inside) == (503, ["descriptors"])


LOOP = """
import asyncio, sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from tests.web.service.services import Inside, arrow_bytes, told_rows, rows, ARROW_IN
from tests.web.service.test_ready import MODEL, filled

made, compile_ = [], Dispatcher.compile

def noted(self, given):
    try:
        asyncio.get_running_loop()
        made.append(self.__name__)
    except RuntimeError:
        pass
    return compile_(self, given)

Dispatcher.compile = noted
inside = Inside(Path(sys.argv[1]))
if sys.argv[2] == "warm":
    inside.service.warming.begin()
    inside.service.warming._thread.join()
    assert not inside.service.warming.busy
elif sys.argv[2] == "warming":
    inside.service.warming.busy = True
filled(inside)
told, at = told_rows(3, inside.clock.now), "/v1/streams/s"
caller = inside.caller()
table = rows(3, inside.clock.now)
asked = [
    ("observations", {"json": told}), ("observations", {"json": told[0]}),
    ("observations", {"content": arrow_bytes(table), "headers": ARROW_IN}),
    ("features", {"json": told}), ("features", {"json": told[0]}),
    (f"models/{MODEL}/predictions", {"json": told[0]}),
    (f"models/{MODEL}/predictions", {"json": told}),
]
for path, given in asked:
    answer = caller.post(f"{at}/{path}", **given)
    assert answer.status_code == 200, (path, answer.text)
names = caller.post(f"{at}/features", json=told[0]).json()["rows"][0]
answer = caller.post(f"{at}/models/{MODEL}/predictions", json={"features": names})
assert answer.status_code == 200, answer.text
inside.close()
print(made)
"""


@pytest.mark.parametrize("when", ["warm", "warming"])
def test_no_kernel_is_compiled_in_the_event_loop(tmp_path: Path, when: str) -> None:
    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, "-c", LOOP, str(tmp_path), when],
        capture_output=True, text=True, timeout=600, check=False, cwd=root,
    )  # fmt: skip
    assert found.stdout == "[]\n", found.stdout + found.stderr
