"""Versions of models: one number, one thing that was learned; and when that must be gone."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge, SGDRegressor

from pyramidion import Model, Pyramid, StateError
from pyramidion.storage.versions import AFAR, STRETCH, drawn, dropped, leap
from tests.store import inspect
from tests.store.inspect import settled
from tests.store.stores import DAY, SECOND, START, Stand
from tests.store.teaching import Parrot, go_on, lived, marked, stepped

pytestmark = pytest.mark.usefixtures("trainer")


def fact(store: Pyramid) -> dict[str, int]:
    told: dict[str, int] = json.loads(inspect.catalogue(store).about("versions", "{}"))
    return told


def test_a_version_grows_with_each_training(stand: Stand) -> None:
    store = lived(stand)
    seen = [store.register("ridge", Ridge()).version, store.models.retrain("ridge").version]
    stepped(stand, store)
    seen += [store.models["ridge"].version, store.register("ridge", LinearRegression()).version]
    assert seen == [1, 2, 3, 4]


def test_each_model_has_versions_of_its_own(stand: Stand) -> None:
    store = lived(stand)
    store.register("ridge", Ridge())
    store.models.retrain("ridge")
    assert store.register("other", Ridge()).version == 1


def test_a_model_that_has_learned_nothing_has_no_version(stand: Stand) -> None:
    model = lived(stand, (7,)).register("ridge", Ridge())
    assert not model.available
    assert (model.version, model.took, model.expires) == (0, None, None)


def test_versions_grow_on_when_the_store_is_opened_again(stand: Stand) -> None:
    store = lived(stand)
    store.register("ridge", Ridge())
    before = store.models.retrain("ridge").version
    store = settled(stand.reopen())
    assert store.models["ridge"].version == before + 1


def test_versions_grow_on_when_a_name_comes_back(stand: Stand) -> None:
    store = lived(stand)
    store.register("ridge", Ridge())
    before = store.models.retrain("ridge").version
    store.models.unregister("ridge")
    assert store.register("ridge", Ridge()).version == before + 1


def test_no_name_is_kept_of_a_model_that_was_forgotten(stand: Stand) -> None:
    store = lived(stand)
    store.register("ridge", Ridge())
    store.models.unregister("ridge")
    assert fact(store) == {"": 1}


def test_no_name_is_kept_of_a_model_that_could_not_be_registered(
    stand: Stand, tmp_path: Path
) -> None:
    store = lived(stand)
    note = tmp_path / "note"
    note.write_text("raise")
    with pytest.raises(StateError, match="was not registered"):
        store.register("parrot", Parrot(str(note)))
    assert fact(store) == {"": 1}


def test_versions_of_the_store_that_went_on_are_passed_over_by_its_backup(
    stand: Stand, tmp_path: Path
) -> None:
    store = lived(stand)
    store.register("ridge", Ridge())
    store.admin.backup(tmp_path / "backup")
    later = store.models.retrain("ridge").version
    store.close()
    restored = stand.held(Pyramid.restore(tmp_path / "backup", tmp_path / "again", **stand.given))
    assert settled(restored).models["ridge"].version > AFAR > later
    assert restored.register("new", Ridge()).version > AFAR


def test_a_version_is_set_aside_before_the_training_begins(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = lived(stand)
    store.register("ridge", Ridge())
    seen = []
    monkeypatch.setattr(
        inspect.parts(store).training._trainer, "before", lambda: seen.append(fact(store))
    )
    store.models.retrain("ridge")
    assert seen == [{"ridge": 2}]


def test_a_training_that_fails_takes_a_version_too(stand: Stand, tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_text("")
    store = lived(stand)
    store.register("parrot", Parrot(str(note)))
    note.write_text("raise")
    store.models.retrain("parrot")
    assert fact(store) == {"parrot": 2}  # or the catalogue would tell what the rows were like


def test_a_model_is_another_version_after_each_batch_it_learns(stand: Stand) -> None:
    store = lived(stand)
    seen = [store.register("quick", SGDRegressor()).version]
    for _ in range(2):
        store.observe(marked(11))
        seen.append(store.models["quick"].version)
    seen.append(store.models.retrain("quick").version)
    store = settled(stand.reopen())
    seen.append(store.models["quick"].version)
    assert seen == [1, 2, 3, STRETCH + 2, 2 * STRETCH + 3]


def test_a_model_whose_versions_are_used_up_learns_no_more_until_it_is_trained(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyramidion.store.training.STRETCH", 1)
    store = lived(stand)
    store.register("quick", SGDRegressor())
    seen = []
    for _ in range(3):
        store.observe(marked(11))
        seen.append((store.models["quick"].version, store.models["quick"].rows))
    assert seen == [(2, 24), (2, 24), (2, 24)]
    again = store.models.retrain("quick")
    assert (again.version, again.rows) == (3, 36)


# --- when it must be gone ------------------------------------------------


def test_a_model_expires_when_its_oldest_row_leaves(stand: Stand) -> None:
    store = lived(stand)  # hot rows of days 9, 10 and 11, each for three days
    model = store.register("ridge", Ridge())
    assert model.expires == int((START + 12 * DAY) * SECOND)
    stand.clock.now = START + 12 * DAY - 1
    store.advance()
    assert store.models["ridge"].fitted is model.fitted
    stand.clock.now = START + 12 * DAY
    store.advance()
    assert not model.available
    assert store.models["ridge"].expires == int((START + 13 * DAY) * SECOND)


def test_a_model_expires_when_a_window_behind_its_features_retires(stand: Stand) -> None:
    store = lived(stand, (7, 8, 9, 10, 11), retention="12d", hot_window="5d")
    model = store.register("ridge", Ridge())
    assert model.expires == int((START + 12 * DAY) * SECOND)  # window 1 began with day 0
    stand.clock.now = START + 12 * DAY
    assert store.advance().retired == [1]
    assert not model.available


def test_a_model_that_learns_online_expires_with_the_oldest_row_all_the_same(
    stand: Stand,
) -> None:
    store = lived(stand)
    model = store.register("quick", SGDRegressor())
    go_on(stand, store, 11.5)
    assert store.models["quick"].rows > model.rows
    assert store.models["quick"].expires == model.expires


def test_a_model_of_a_window_bound_by_rows_expires_with_the_retention(stand: Stand) -> None:
    store = lived(stand, hot_window=None, hot_rows=1_000, hot_step_rows=6)
    model: Model = store.register("ridge", Ridge())
    assert model.expires == int((START + 50 * DAY) * SECOND)


def test_how_long_a_training_took_is_told(stand: Stand) -> None:
    model = lived(stand).register("ridge", Ridge())
    assert model.took is not None
    assert 0 < model.took < 600


# --- the numbers ------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("draw"), st.sampled_from("abc"), st.integers(1, 5)),
            st.tuples(st.sampled_from(["drop", "leap"]), st.sampled_from("abc"), st.just(0)),
        )
    )
)
def test_no_number_is_ever_drawn_twice_for_a_name(moves: list[Any]) -> None:
    catalogue: Any = Book()
    last: dict[str, int] = {}
    for move, name, size in moves:
        if move == "draw":
            first = drawn(catalogue, {name: size})[name]
            assert first > last.get(name, 0)
            last[name] = first + size - 1
        elif move == "drop":
            dropped(catalogue, name)
        else:
            leap(catalogue)


class Book:
    """The facts of a catalogue, in memory."""

    def __init__(self) -> None:
        self._facts: dict[str, str] = {}

    def about(self, name: str, default: str) -> str:
        return self._facts.get(name, default)

    def note(self, **facts: str) -> None:
        self._facts |= facts

    def transaction(self) -> Any:
        return nullcontext()
