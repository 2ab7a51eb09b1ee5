"""Models that nobody tends: new rows are learned at once, and time trains them again."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.store.stores import DAY
from tests.waiting import wait_for
from tests.web.service.services import Inside, told_rows

MODELS, OBSERVATIONS = "/v1/streams/s/models", "/v1/streams/s/observations"
ROW = {"a": "1", "b": "x"}


@pytest.fixture
def caller(inside: Inside) -> httpx.Client:
    """Somebody with all roles but admin, of a stream with a sealed window and hot rows."""
    inside.create()
    inside.fill()
    return inside.caller("observe", "train", "predict")


def registered(caller: httpx.Client, name: str, estimator: str, **params: Any) -> dict[str, Any]:
    told = caller.put(f"{MODELS}/{name}", json={"estimator": estimator, "params": params})
    assert told.status_code == 200, told.text
    found: dict[str, Any] = told.json()
    return found


def told(caller: httpx.Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = caller.get(f"{MODELS}/{name}").json()
    return found


def asked(caller: httpx.Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = caller.post(f"{MODELS}/{name}/predictions", json=ROW).json()
    return found


def test_new_rows_are_learned_at_once_by_a_model_that_can(
    inside: Inside, caller: httpx.Client
) -> None:
    first = registered(caller, "online", "SGDClassifier", loss="log_loss", random_state=0)
    other = registered(caller, "whole", "LogisticRegression")
    before = asked(caller, "online")
    inside.clock.pass_(60)
    rows = [{**row, "y": 1, **ROW} for row in told_rows(50, inside.clock.now)]
    assert caller.post(OBSERVATIONS, json=rows).json()["accepted"] == 50
    wait_for(lambda: told(caller, "online")["version"] > first["version"])

    online = told(caller, "online")
    assert online["rows"] == first["rows"] + 50
    assert (online["trained"], online["took"]) == (first["trained"], first["took"])  # not again
    after = asked(caller, "online")
    assert before["version"] == first["version"] < after["version"] == online["version"]
    wanted = inside.service._streams["s"].pyramid.predict_proba("online", [ROW])
    assert np.allclose(after["probabilities"], wanted, atol=1e-6)
    assert told(caller, "whole") == other


def test_a_hot_step_trains_models_again_though_nobody_calls(
    inside: Inside, caller: httpx.Client
) -> None:
    first = registered(caller, "m", "LogisticRegression")
    assert first["rows"] == 200
    assert first["took"] > 0
    loss = caller.get(f"{MODELS}/m/loss").json()
    inside.clock.pass_(2 * DAY)
    assert caller.post(OBSERVATIONS, json=told_rows(120, inside.clock.now)).is_success
    assert told(caller, "m") == first  # no row has left
    inside.clock.pass_(2 * DAY)
    wait_for(lambda: told(caller, "m")["rows"] == 120)  # by the service's timer

    again = told(caller, "m")
    assert again["available"]
    assert again["version"] > first["version"]
    assert again["trained"] == int(inside.clock.now) * 1_000_000
    assert again["took"] > 0
    assert again["expires"] > inside.clock.now * 1_000_000
    assert asked(caller, "m")["version"] == again["version"]
    newer = caller.get(f"{MODELS}/m/loss").json()
    assert (loss["tested"], newer["tested"]) == (40, 24)  # a fifth of the hot rows, each time
    assert newer["at"] > loss["at"]
    assert newer["loss"] != loss["loss"]
