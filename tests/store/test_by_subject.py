"""The properties of a store that group its methods: models, groups, publisher, shards, admin."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sklearn.linear_model import Ridge

from pyramidion import FormatError, Pyramid, StateError
from tests.store.peopling import EXACT, PEOPLE
from tests.store.stores import CUSTODIAN, SCHEMA, Stand, tiny

OWN = (
    *("create", "join", "open", "restore", "close"),
    *("observe", "observe_all", "observe_turn", "replay", "bulk", "advance"),
    *("snapshot", "as_of", "featurize", "training_set", "register", "predict", "predict_proba"),
    *("erase_person", "status", "exposure"),
)


@pytest.fixture
def store(stand: Stand) -> Pyramid:
    return stand.create()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Pyramid:
    stand = Stand(tmp_path_factory.mktemp("closed"))
    store = stand.create()
    stand.close()
    return store


def test_a_store_has_21_methods_of_its_own() -> None:
    public = {name: what for name, what in vars(Pyramid).items() if not name.startswith("_")}
    methods = {name for name, what in public.items() if not isinstance(what, property)}
    assert methods == set(OWN)
    assert len(OWN) == 21


def test_models_are_a_live_mapping(store: Pyramid) -> None:
    models = store.models
    assert models == {}
    assert not models
    two, one = (store.register(name, Ridge()) for name in ("two", "one"))
    assert models == {"one": one, "two": two} == dict(store.models)
    assert list(models) == list(models.keys()) == ["one", "two"]
    assert models["two"] is two
    assert models.get("three") is None
    assert "three" not in models
    with pytest.raises(KeyError):
        models["three"]
    models.unregister("two")
    assert len(models) == 1


def test_values_and_items_of_models_are_of_one_moment(store: Pyramid) -> None:
    one, two = (store.register(name, Ridge()) for name in ("one", "two"))
    values, items = store.models.values(), store.models.items()
    store.models.unregister("one")
    assert list(values) == [one, two]
    assert list(items) == [("one", one), ("two", two)]


def test_an_admin_object_knows_a_vault_that_is_attached_later(stand: Stand) -> None:
    admin = stand.create(PEOPLE, **EXACT).admin
    given: dict[str, Any] = {"key": CUSTODIAN, "broker": "http://127.0.0.1:1"}
    with pytest.raises(StateError, match="this store has no vault"):
        admin.erase_from_vault("ann", "not a grant", **given)
    admin.attach_vault(str(stand.folder / "vault"), CUSTODIAN.public)
    with pytest.raises(FormatError, match="grant"):
        admin.erase_from_vault("ann", "not a grant", **given)


def test_a_store_that_is_no_shard_has_no_shard_status(store: Pyramid) -> None:
    assert store.shards.status() is None
    with pytest.raises(StateError, match="no shard of a stream"):
        store.shards.remove("one", why="a test")


CALLS: dict[str, Callable[[Pyramid], Any]] = {
    "unregister": lambda store: store.models.unregister("a"),
    "retrain": lambda store: store.models.retrain("a"),
    "learning_curve": lambda store: store.models.learning_curve("a"),
    "loss": lambda store: store.models.loss("a"),
    "export": lambda store: store.models.export("a"),
    "add": lambda store: store.groups.add(["a", "b"]),
    "select": lambda store: store.groups.select(),
    "groups": lambda store: store.groups.status(),
    "withdraw": lambda store: store.groups.withdraw("a", why="a test"),
    "start": lambda store: store.publisher.start("file:/nowhere"),
    "stop": lambda store: store.publisher.stop(),
    "card": lambda store: store.publisher.card(stream="s", signer=Ed25519PrivateKey.generate()),
    "shards": lambda store: store.shards.status(),
    "remove": lambda store: store.shards.remove("one", why="a test"),
    "vault": lambda store: store.vault,
    "backup": lambda store: store.admin.backup("/nowhere"),
    "verify": lambda store: store.admin.verify(),
    "mend": lambda store: store.admin.mend(),
    "rebuild": lambda store: store.admin.rebuild(1, why="a test"),
    "reseed": lambda store: store.admin.reseed(why="a test"),
    "due": lambda store: store.admin.due(),
    "confirm_clock": lambda store: store.admin.confirm_clock(why="a test"),
    "correct_clock": lambda store: store.admin.correct_clock(why="a test"),
    "check_key_holder": lambda store: store.admin.check_key_holder(),
    "note": lambda store: store.admin.note("a.test"),
    "attach_vault": lambda store: store.admin.attach_vault("/nowhere", CUSTODIAN.public),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_closed_store_refuses_every_method(closed: Pyramid, name: str) -> None:
    with pytest.raises(StateError, match="this store is closed"):
        CALLS[name](closed)


def test_a_store_that_is_dropped_without_close_is_freed_at_once(stand: Stand) -> None:
    store = Pyramid.create(stand.path, SCHEMA, tiny(), **stand.given)
    assert (len(store.models), store.shards.status(), store.admin.verify()) == (0, None, [])
    assert store.groups.status()
    freed = weakref.ref(store)
    gc.collect()
    gc.disable()
    try:
        del store
        assert freed() is None
    finally:
        gc.enable()
