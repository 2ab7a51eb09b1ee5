"""The client and the real service: every verb that both have."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pyramidion import Client
from pyramidion.errors import (
    ForbiddenError,
    MissingError,
    ObservationError,
    PrivacyError,
    UnknownCallerError,
)
from pyramidion.web.client.answers import Receipt
from tests.store.stores import DAY, SCHEMA, rows, tiny

pytest.importorskip("pyramidion.web.service.app", reason="this package has no service")
services: Any = pytest.importorskip("tests.web.service.services")


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made = services.Inside(tmp_path_factory.mktemp("service"))
    made.create()
    made.fill()
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(inside: Any) -> Iterator[Client]:
    with Client(inside.url, token=inside.token(), clock=inside.clock) as made:
        yield made


@pytest.fixture(scope="module")
def store(inside: Any) -> Any:
    return inside.service._streams["s"].pyramid


def test_rows_go_in_and_features_come_out(client: Client, inside: Any, store: Any) -> None:
    some = rows(5, inside.clock.now, seed=9)
    for batch in (some, some.to_pylist(), some.to_pylist()[0], some.to_pandas()):
        assert client.observe("s", batch).accepted in (1, 5)
    assert client.observe("s", some, key="once") == Receipt(5, 0, 0)
    assert client.observe("s", some, key="once") == Receipt(5, 0, 0)
    assert client.features("s", some).equals(store.featurize(some))
    bad = [*some.to_pylist(), {"a": "x"}]
    with pytest.raises(ObservationError):
        client.observe("s", bad)


def test_a_snapshot_featurizes_here_as_the_store_does(client: Client, store: Any) -> None:
    with client.snapshot("s", every=3600) as fresh:
        assert fresh.featurize(rows(20)).equals(store.featurize(rows(20)))
        held = fresh.current
        assert not fresh.renew()
        assert fresh.current is held


def test_a_training_set_is_the_stores(client: Client, store: Any) -> None:
    X, y = client.training_set("s")
    mine, theirs = store.training_set()
    np.testing.assert_array_equal(X, mine)
    np.testing.assert_array_equal(y, theirs)


def test_models_are_registered_and_asked(client: Client, store: Any) -> None:
    assert client.register("s", "m", "LogisticRegression", {"C": 0.5})["available"]
    some = rows(6, seed=8)
    np.testing.assert_allclose(client.predict_proba("s", "m", some), store.predict_proba("m", some))
    np.testing.assert_array_equal(client.predict("s", "m", some), store.predict("m", some))
    one = some.to_pylist()[0]
    np.testing.assert_allclose(
        client.predict_proba("s", "m", one), store.predict_proba("m", [one]), rtol=1e-6
    )
    assert client.model("s", "m")["version"] >= 1
    assert list(client.models("s")) == ["m"]
    assert client.loss("s", "m")["model"] == "m"
    client.retrain("s", "m")
    client.unregister("s", "m")
    assert client.models("s") == {}


def test_what_is_there_is_told(client: Client, store: Any, inside: Any) -> None:
    assert "s" in client.streams()
    assert client.status("s")["stream"] == "s"
    assert len(client.windows("s")) == len(store.status().windows)
    assert len(client.tables("s")) == len(store.status().tables)
    assert client.groups("s") == [("a", "b")]
    assert [each["state"] for each in client.trials("s")] == ["by hand"]
    with pytest.raises(PrivacyError, match="kept nothing back"):
        client.select_groups("s")
    assert client.ledger("s")["windows"]
    assert client.exposure("s", inside.clock.now - DAY, inside.clock.now)
    assert client.audit_log("s")
    assert isinstance(client.advance("s"), dict)


def test_streams_and_tokens_come_and_go(client: Client, inside: Any) -> None:
    for name, epsilon in (("new", 1.0), ("open", math.inf)):
        client.create(name, SCHEMA, tiny(epsilon=epsilon))
        assert inside.service._streams[name].pyramid.settings == tiny(epsilon=epsilon)
    token = client.add_token("somebody", ["observe"], ["new"])
    with Client(inside.url, token=token) as other:
        assert other.streams() == ["new"]
        with pytest.raises(ForbiddenError):
            other.models("new")
        with pytest.raises(MissingError):
            other.observe("s", [])
    (known,) = (each for each in client.tokens() if each["name"] == "somebody")
    client.remove_token(known["id"])
    with Client(inside.url, token=token) as other, pytest.raises(UnknownCallerError):
        other.streams()


def test_a_snapshot_is_renewed_when_a_window_seals(inside: Any) -> None:
    inside.create("rolling")  # days pass, so this is the last test of the module
    inside.fill("rolling")
    token = inside.token("predict")
    with (
        Client(inside.url, token=token, clock=inside.clock) as client,
        client.snapshot("rolling", every=0.05) as fresh,
    ):
        held = fresh.current
        inside.service._streams["rolling"].pyramid.groups.withdraw("a,b", why="not needed")
        services.wait_for(lambda: fresh.current is not held)
        assert not any("a*b" in name for name in fresh.names)
