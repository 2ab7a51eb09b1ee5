"""Erasing one person: no hot row of theirs is left, and nothing else is another than before."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier

from pyramidion import Categorical, Pyramid, Schema, StateError
from pyramidion.errors import FormatError, ObservationError, PrivacyError, SchemaError, StorageError
from pyramidion.storage.data_keys import DataKey
from pyramidion.storage.hot import Receipt, Stored
from pyramidion.store.hot_rows import HotRows
from tests.store import inspect
from tests.store.archive import Archive, Loot, keys_in, loot, watched
from tests.store.inspect import populating, settled
from tests.store.peopling import EVENTS, EXACT, PEOPLE, Event, a_stand, arenas, batches, of
from tests.store.stores import (
    DAY,
    HOUR,
    START,
    Stand,
    cells,
    exact,
    failing_once,
    observed,
    same,
    states,
)
from tests.store.test_training_set import off
from tests.vault.vaults import sealed

NOISY = {"k": 2, "p_min": 0.5, "delta": 0.0}


def hot(store: Pyramid) -> pa.Table:
    """All hot rows, in the order they lie there."""
    return pa.concat_tables([table for _, table, _ in inspect.hot(store).batches()])


def who(store: Pyramid) -> list[Any]:
    return hot(store)["who"].to_pylist()


def others(batch: pa.Table, person: str = "a") -> pa.Table:
    return batch.filter(pc.not_equal(batch["who"], person))


def public(store: Pyramid) -> str:
    """All that stands in the clear, but for what is drawn."""
    ask, found = inspect.catalogue(store).all, dict[str, Any]()
    for table, columns in {
        "table_sets": "*",
        "arenas": "kind, coalesce(number, 0), after, current, tables",
        "steps": "number, slot, start, rows",
        "batches": "number, step, rows, arrived, length(sealed)",
        "deletions": "kind, ids, what, why, at, done",
        "keys": "purpose, length(wrapped)",
        "uncounted": "block, length(sealed)",
        "ledger": "*",
    }.items():
        found[table] = sorted(tuple(row) for row in ask(f"SELECT {columns} FROM {table}"))  # noqa: S608
    folders = (store.path / "hot", store.path / "tables")
    found["sizes"] = [sorted(file.stat().st_size for file in f.iterdir()) for f in folders]
    told = dataclasses.asdict(store.status()) | {"path": "", "bytes": 0, "deletions": ()}
    return json.dumps([found, told], default=str)


# --- the rows ------------------------------------------------------------------------------


def test_no_hot_row_of_an_erased_person_is_left_and_all_others_are(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    made = [of(list("abac"), START), of(list("cab"), START + DAY, seed=1)]
    for number, batch in enumerate(made):
        stand.clock.now = START + number * DAY
        observed(store, batch)
    store.erase_person("a")
    left = pa.concat_tables([others(batch) for batch in made]).select(hot(store).column_names)
    assert hot(store).equals(left)
    assert hot(stand.reopen()).equals(left)


def test_a_person_is_found_by_number_or_text_whichever_way_the_rows_came(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    text = of(["7", "8"])
    observed(store, text)
    observed(store, text.set_column(4, "who", pa.array([7, 8])))
    observed(store, text.set_column(4, "who", pa.array(["7", "8"], pa.large_string())))
    observed(store, text.set_column(4, "who", pa.array(["7", "8"]).dictionary_encode()))
    mixed = text.drop_columns(["who"]).to_pylist()
    observed(store, [row | {"who": name} for row, name in zip(mixed, (7, "8"), strict=True)])
    store.erase_person(7)
    left = [name for _, table, _ in inspect.hot(store).batches() for name in table["who"]]
    assert len(left) == 5
    store.erase_person("8")
    assert HotRows(inspect.parts(store).lifecycle).totals == {1: 0}
    store.erase_person("9")
    assert observed(stand.reopen(), text).blanked == 2


def test_a_person_who_is_named_a_little_otherwise_stays(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["a", "A", "a ", "aa"]))
    store.erase_person("a")
    assert who(store) == ["A", "a ", "aa"]


def test_a_batch_of_one_person_alone_stays_as_an_empty_one(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["a"] * 3))
    store.erase_person("a")
    store = stand.reopen()
    assert hot(store).num_rows == 0
    assert inspect.last_batch(store) == 1
    assert observed(store, of(["b"])).accepted == 1
    assert who(store) == ["b"]


def test_two_people_are_erased_one_after_the_other(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(list("abcabcc")))
    store.erase_person("a")
    store.erase_person("b")
    store = stand.reopen()
    assert who(store) == ["c", "c", "c"]
    assert inspect.hot(store).counted(1).tolist() == [True, True, False]


def test_a_feature_can_be_withdrawn_after_somebody_was_erased(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(list("abab")))
    store.erase_person("a")
    store.groups.withdraw("b", why="regulation")
    store.erase_person("c")
    store = stand.reopen()
    assert who(store) == ["b", "b"]
    assert "b" not in hot(store).column_names


# --- what it says, and to whom ---------------------------------------------------------------


def test_from_outside_it_looks_the_same_whoever_is_erased() -> None:
    shown = []
    for person in ("a", "b", "nobody"):
        with a_stand() as stand:
            store = stand.create(PEOPLE, **NOISY)
            observed(store, of(["a"] * 6_000 + ["b"]), key="once")
            stand.clock.pass_(DAY)
            observed(store, of(["c", "b"] * 30, stand.clock.now, seed=1))
            done = store.erase_person(person, why="request 17")
            shown.append((done, public(store)))
            stand.close()
    assert shown[0] == shown[1] == shown[2]
    assert "request 17" in shown[0][1]


def compressed(table: pa.Table, *_: object) -> bytes:
    """A record as older versions wrote it."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_older_compressed_records_do_not_show_who_is_erased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = []
    for person in ("a", "b", "nobody"):
        with a_stand() as stand:
            store = stand.create(PEOPLE, **NOISY)
            with monkeypatch.context() as older:
                older.setattr("pyramidion.storage.records.to_bytes", compressed)
                observed(store, of(["a"] * 6_000 + ["b"]))
            store.erase_person(person, why="request 17")
            assert person not in who(store)
            shown.append(public(store))
            stand.close()
    assert shown[0] == shown[1] == shown[2]


@pytest.mark.parametrize("parts", range(1, 60))
def test_how_long_what_is_kept_of_a_batch_is_does_not_tell_how_many_rows_it_lost(
    parts: int,
) -> None:
    came = [(window, 100_000) for window in range(parts)]
    lengths = {
        len(Stored(1, 0, 9, Receipt(1, 0, 0), came, b"1", [lost] * parts).sealed(DataKey.new("")))
        for lost in (0, 9, 10, 99_999)
    }
    assert len(lengths) == 1


def test_the_deletion_record_says_neither_who_nor_how_many(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["anna"] * 5))
    store.erase_person("anna", why="request 17")
    (record,) = store.status().deletions
    assert (record.what, record.why) == ("rows of a person", "request 17")
    assert record.done is not None


def test_public_totals_are_what_they_were(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(list("aaab")))
    before = store.status()
    store.erase_person("a")
    for after in (store.status(), stand.reopen().status()):
        assert (after.hot_rows, after.windows) == (before.hot_rows, before.windows)


def test_a_batch_sent_again_gets_the_same_receipt(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    batch = of(list("aaab"))
    receipt = store.observe(batch, key="once")
    assert receipt == Receipt(4, 0, 0, 1)
    store.erase_person("a")
    assert store.observe(batch, key="once") == receipt
    assert stand.reopen().observe(batch, key="once") == receipt


def test_a_reason_that_names_the_person_is_refused_without_naming_them(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["anna", "ann"]))
    for why in ("anna asked", "asked by Anna."):
        with pytest.raises(PrivacyError) as problem:
            store.erase_person("anna", why=why)
        assert "anna" not in str(problem.value).lower()
    assert who(store) == ["anna", "ann"]
    store.erase_person("ann", why="anna's sister asked")
    assert who(store) == ["anna"]


@pytest.mark.parametrize("person", [None, 1.5, True, b"a", 2**70, "\ud800", ["a"]])
def test_what_names_nobody_is_refused_without_quoting_it(stand: Stand, person: Any) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["a"]))
    with pytest.raises(ObservationError, match="is text or a whole number") as problem:
        store.erase_person(person)
    assert repr(person) not in str(problem.value)
    assert problem.value.__context__ is None
    assert who(store) == ["a"]


def test_a_store_that_does_not_know_people_refuses(stand: Stand) -> None:
    store = stand.create()
    with pytest.raises(SchemaError, match="names no unit"):
        store.erase_person("a")


# --- what is counted -------------------------------------------------------------------------


def test_populating_tables_stay_what_they_were_also_after_a_crash(stand: Stand) -> None:
    store = stand.create(PEOPLE, **NOISY)
    observed(store, of(list("abacab")))
    before = cells(populating(store))
    store.erase_person("a")
    (window,) = inspect.windows(store).values()
    assert (window.after, window.fresh) == (1, 6)  # the next checkpoint comes when it would have
    assert same(cells(populating(store)), before)
    assert same(cells(populating(stand.reopen())), before)


def test_rows_after_an_erasure_are_counted_once_also_after_a_crash(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    made = [of(list("ab")), of(list("cd"), seed=1)]
    observed(store, made[0])
    store.erase_person("a")
    observed(store, made[1])
    counted = exact(store, populating(store), made)
    assert same(cells(populating(store)), counted)
    store = stand.reopen()
    assert same(cells(populating(store)), counted)
    assert populating(store).rows == 4


def test_one_state_of_each_populating_window_is_left(stand: Stand) -> None:
    store = stand.create(PEOPLE, **NOISY, checkpoint_rows=1)
    for number in range(3):
        observed(store, of(list("ab"), seed=number))
    kept = "SELECT count(*) FROM keys WHERE purpose = 'checkpoint'"
    assert inspect.catalogue(store).one(kept) > 1
    store.erase_person("a")
    assert inspect.catalogue(store).one(kept) == 1


def test_sealed_and_complete_tables_stay_what_they_were(stand: Stand) -> None:
    store = sealed_store(stand)
    held, told = store.snapshot(), cells(inspect.served(store))
    store.erase_person("a")
    assert same(cells(inspect.served(store)), told)
    assert store.snapshot() is held


def sealed_store(stand: Stand, **given: Any) -> Pyramid:
    """A store whose hot rows are in a sealed window."""
    store = stand.create(PEOPLE, **EXACT | given)
    observed(store, of(list("cd") * 60))
    stand.clock.pass_(9.5 * DAY)
    observed(store, of(list("aaabc") * 4, stand.clock.now, seed=1))
    stand.clock.pass_(DAY)
    store.advance()
    assert states(store)[1] == ("sealed", 140)
    return store


def test_a_training_set_takes_off_the_hot_rows_that_are_left_and_no_others(stand: Stand) -> None:
    store = sealed_store(stand)
    complete, batch = cells(inspect.served(store)), of(list("aaabc") * 4, START + 9.5 * DAY, 1)
    store.erase_person("a")
    training = store.training_set()
    left = others(batch)
    first = np.r_[0:2, 2:4]  # of b and c the first two rows each were counted
    counted = exact(store, inspect.served(store), [left.take(first)])
    assert same(cells(off(training)), {name: complete[name] - counted[name] for name in complete})
    assert training.X.shape[0] == len(training.y) == 8
    assert (training.reduced._counted.rows, training.reduced._counted.hidden) == ({2: 8}, 8)
    assert training.y.tolist() == left["y"].to_pylist()


def test_a_window_that_lost_rows_is_not_rebuilt_from_what_is_hot(stand: Stand) -> None:
    given = {"delta": 0.0, "epsilon": 1.0, "rebuild_share": 0.5, "hot_window": "20d"}
    store = stand.create(PEOPLE, **EXACT | given | {"unit_block": "5d"})
    observed(store, of(list("abab")))
    stand.clock.pass_(11 * DAY)
    store.advance()
    store.erase_person("nobody")
    assert store.admin.rebuild(1, why="as if", share=1).rows == 4
    store.erase_person("a")
    with pytest.raises(StateError, match="not all of them are hot any more"):
        store.admin.rebuild(1, why="as if")


def test_whether_weights_are_read_does_not_tell_how_many_rows_were_erased(stand: Stand) -> None:
    given = {"weights_share": 0.1, "weights_every": 1, "hot_window": "12d", "unit_block": "12d"}
    store = stand.create(PEOPLE, **NOISY | given)
    observed(store, of(["a"] * 1200))
    store.erase_person("a")
    hot = HotRows(inspect.parts(store).lifecycle)
    assert (hot.came, hot.totals) == ({1: 1200}, {1: 0})
    stand.clock.pass_(11 * DAY)
    store.advance()
    observed(store, of(["b"], stand.clock.now))
    assert list(inspect.readings(store).of("weights")) == [1]


# --- at most k rows of a person in a block ------------------------------------------------------


def test_who_was_erased_counts_no_more_in_the_same_block(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    assert observed(store, of(list("ab"))).blanked == 0
    store.erase_person("a")
    assert observed(store, of(list("aab"), seed=1)) == Receipt(3, 0, 0, 2)
    store = stand.reopen()
    assert observed(store, of(list("aab"), seed=2)) == Receipt(3, 0, 0, 3)
    store.erase_person("a")
    assert observed(stand.reopen(), of(list("a"), seed=3)).blanked == 1


def test_who_was_not_there_counts_no_more_either(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["b"]))
    store.erase_person("a")
    assert observed(store, of(["a"])).blanked == 1
    assert observed(stand.reopen(), of(["a"])).blanked == 1


def test_in_the_next_block_who_was_erased_counts_again(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT, unit_block="1d")
    observed(store, of(["a"] * 3))
    store.erase_person("a")
    stand.clock.pass_(DAY)
    assert observed(stand.reopen(), of(["a"] * 3, stand.clock.now)).blanked == 1


def test_what_is_known_of_an_erased_person_goes_with_the_first_erasure_after_the_block(
    stand: Stand,
) -> None:
    store = stand.create(PEOPLE, **EXACT, unit_block="1d")
    ask = inspect.catalogue(store).one
    count = "SELECT count(*) FROM uncounted"
    keys = "SELECT count(*) FROM keys WHERE purpose = 'erased person'"
    observed(store, of(["a"]))
    store.erase_person("a")
    store.erase_person("b")
    assert (ask(count), ask(keys)) == (2, 2)
    stand.clock.pass_(3 * DAY)
    assert store.advance().steps == 1
    assert (ask(count), ask(keys)) == (0, 0)


def test_nothing_is_kept_of_a_person_where_no_row_came_in_the_running_block(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT, unit_block="1d")
    count = "SELECT count(*) FROM uncounted"
    store.erase_person("a")
    assert inspect.catalogue(store).one(count) == 0
    observed(store, of(["a"]))
    stand.clock.pass_(1.5 * DAY)
    store.erase_person("a")
    assert inspect.catalogue(store).one(count) == 0
    assert len(inspect.parts(store).people) == 0
    assert observed(store, of(["a"] * 3, stand.clock.now)).blanked == 1


@pytest.mark.slow
@settings(max_examples=40)
@given(EVENTS, st.lists(st.integers(0, 11), max_size=3), st.sampled_from(["1d", "2d", None]))
def test_no_person_has_more_than_k_rows_of_a_block_in_the_tables(
    events: list[Event], erased: list[int], block: str | None
) -> None:
    """Counted by labels alone: each person has a value of their own."""
    schema = Schema(time="t", label=PEOPLE.label, features=[Categorical("who")], unit="who")
    length = {"1d": 1, "2d": 2, None: 3}[block] * DAY
    with a_stand() as stand:
        store = stand.create(schema, epsilon=float("inf"), k=2, unit_block=block)
        blocks: dict[float, int] = {}
        for number, (event, now, batch) in enumerate(batches(events)):
            stand.clock.now = now
            store = stand.reopen() if event.reopened else store
            receipt = observed(store, batch)
            here = sum(name == "a" for name in event.who)
            blocks[now // length] = blocks.get(now // length, 0) + here
            assert receipt.accepted == len(event.who)
            if number in erased:
                before = [cells(arena) for arena in arenas(store).values()]
                store.erase_person("a")
                now_held = [cells(arena) for arena in arenas(store).values()]
                assert all(same(one, other) for one, other in zip(before, now_held, strict=True))
                assert "a" not in [
                    name
                    for _, t, _ in inspect.hot(store).batches()
                    for name in t["who"].to_pylist()
                ]
        most = sum(min(2, count) for count in blocks.values())
        assert counted_of(store, "a") <= most


def counted_of(store: Pyramid, person: str) -> int:
    """Rows of one person in all tables: their own cell, where nobody else shares it."""
    total = 0
    for arena in arenas(store).values():
        one = exact(store, arena, [of([person]).select(["t", "y", "who"])])["who"]
        found = cells(arena)["who"]
        cell = np.flatnonzero(one)[0]
        labels = cell - cell % 2
        total += int(np.abs(found[labels : labels + 2]).sum())
    return total


# --- what learned from them ---------------------------------------------------------------------


def test_what_was_made_of_hot_rows_expires(stand: Stand) -> None:
    store = sealed_store(stand)
    training = store.training_set()
    training.X  # noqa: B018
    store.erase_person("a")
    with pytest.raises(StateError, match="expired"):
        training.X  # noqa: B018


@pytest.mark.slow
def test_models_are_trained_again_without_the_person(stand: Stand) -> None:
    store = sealed_store(stand)
    model = store.register("m", SGDClassifier(loss="log_loss", random_state=0))
    assert model.fitted.rows == 20
    store.erase_person("a")
    with pytest.raises(StateError):
        model.predict(store.snapshot(), of(["b"]))
    again = store.models["m"]
    assert again.available
    assert again.fitted is not model.fitted
    assert again.fitted.rows == 8


@pytest.mark.slow
def test_models_are_gone_before_the_rows_are(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sealed_store(stand)
    model = store.register("m", SGDClassifier(loss="log_loss", random_state=0))
    left = failing_once(monkeypatch, inspect.keys(store), "erase", StorageError("full"))
    with pytest.raises(StorageError):
        store.erase_person("a")
    assert not left
    assert not store.models["m"].available
    with pytest.raises(StateError):
        model.predict(store.snapshot(), of(["b"]))
    store.advance()
    assert store.models["m"].available


@pytest.mark.slow
def test_where_all_rows_were_one_persons_models_wait_for_others(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(list("cd") * 60))
    stand.clock.pass_(9.5 * DAY)
    observed(store, of(["a"] * 20, stand.clock.now, seed=1))
    stand.clock.pass_(DAY)
    store.advance()
    store.register("m", SGDClassifier(loss="log_loss", random_state=0))
    store.erase_person("a")
    assert "hot window is empty" in store.models["m"].why
    with pytest.raises(StateError, match="hot window is empty"):
        store.training_set().X  # noqa: B018
    observed(store, of(list("bc") * 4, stand.clock.now, seed=2))
    store.advance()
    assert store.models["m"].available


# --- at the same time --------------------------------------------------------------------------


def test_rows_that_come_meanwhile_are_counted_once_and_hot(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT | {"k": 1_000})
    made = [of(["a", "b", "c"], seed=number) for number in range(60)]
    with ThreadPoolExecutor(2) as threads:
        sent = [threads.submit(store.observe, batch) for batch in made]
        for person in ("nobody", "d", "e"):
            store.erase_person(person)
        for each in sent:
            each.result()
    before = exact(store, populating(store), made)
    assert same(cells(populating(store)), before)
    assert len(who(store)) == 180
    store.erase_person("a")
    store = stand.reopen()
    assert who(store).count("b") == who(store).count("c") == 60
    assert len(who(store)) == 120
    assert same(cells(populating(store)), before)


# --- failures -------------------------------------------------------------------------------------


def test_an_erasure_that_fails_before_the_commit_changes_nothing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create(PEOPLE, **NOISY)
    observed(store, of(list("ab")))
    before = cells(populating(store))
    left = failing_once(monkeypatch, inspect.hot(store), "replace", StorageError("full"))
    with pytest.raises(StorageError):
        store.erase_person("a")
    assert not left
    assert who(store) == ["a", "b"]
    assert len(stand.files("tables")) == 1
    observed(store, of(["a", "a"], seed=1))
    store = stand.reopen()
    assert who(store) == ["a", "b", "a", "a"]
    assert store.status().windows[0].rows == populating(store).rows == 4
    store.erase_person("a")
    assert who(store) == ["b"]
    assert {name: c.shape for name, c in before.items()}


def test_an_erasure_that_breaks_off_after_the_commit_is_finished_later(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create(PEOPLE, **NOISY)
    observed(store, of(list("ab")))
    failing_once(monkeypatch, inspect.keys(store), "finish", StorageError("full"))
    with pytest.raises(StorageError):
        store.erase_person("a")
    assert who(store) == ["b"]
    assert store.status().deletions[-1].done is None
    store.advance()
    assert store.status().deletions[-1].done is not None
    assert len(stand.files("hot")) == 1


def test_rows_that_cannot_be_read_stop_it_before_anything_goes(stand: Stand) -> None:
    store = stand.create(PEOPLE, **NOISY)
    observed(store, of(list("ab")))
    (file,) = (stand.path / "hot").iterdir()
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(FormatError):
        store.erase_person("a")
    assert store.status().deletions == ()


def test_what_the_vault_has_not_got_yet_it_gets_without_the_person(stand: Stand) -> None:
    stand.vault = stand.folder / "vault"
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(list("aba")))
    store.erase_person("a")
    observed(store, of(["c"], seed=1))
    found = {number: table["who"].drop_null() for number, table in sealed(store).items()}
    assert {number: who.to_pylist() for number, who in found.items()} == {1: ["b"], 2: ["c"]}


# --- an attacker with a perfect memory ----------------------------------------------------------


class Watch:
    """A store, every version of its files, and what they yield with the keys there are."""

    def __init__(self, folder: Path) -> None:
        self.stand = Stand(folder / "disk")
        self.stand.key = folder / "key"
        self.archive = Archive(folder / "disk")

    def loot(self) -> Loot:
        self.archive.look()
        return loot(self.archive, keys_in([self.stand.key.read_bytes()]))


@pytest.fixture
def watch(tmp_path: Path) -> Any:
    (tmp_path / "disk").mkdir()
    made = Watch(tmp_path)
    with watched(made.archive):
        yield made
        made.stand.close()
    made.archive.close()


def test_every_version_of_every_file_and_the_present_keys_yield_nothing_of_the_person(
    watch: Watch,
) -> None:
    store = watch.stand.create(PEOPLE, **NOISY, checkpoint_rows=2)
    for number in range(3):
        batch = of(["anna", "ben"], seed=number)
        marked = pa.array([f"anna's {number}", "ben's"])
        observed(store, batch.set_column(2, "a", marked))
    store.admin.backup(watch.stand.folder / "backup")
    found = watch.loot()
    assert "anna" in found.values("who")
    assert "anna's 2" in found.values("a")
    assert any(later.rows > earlier.rows for _, earlier, later in found.differences())
    store.erase_person("anna", why="request 17")
    found = watch.loot()
    assert found.values("who") == {"ben"}
    assert found.values("a") == {"ben's"}
    assert [state.rows for state in found.states] == [6]
    assert not [data for _, data in watch.archive.versions if b"anna" in data]


def test_after_the_block_no_key_opens_what_was_kept_of_the_person(watch: Watch) -> None:
    store = watch.stand.create(PEOPLE, **NOISY, unit_block="1d")
    observed(store, of(["anna", "ben"]))
    store.erase_person("anna", why="request 17")
    ((number,),) = inspect.catalogue(store).all("SELECT key FROM uncounted")
    assert number in watch.loot().keys
    watch.stand.clock.pass_(DAY + HOUR)
    observed(store, of(["ben"], watch.stand.clock.now))
    store.erase_person("ben", why="request 18")
    assert number not in watch.loot().keys
    assert inspect.catalogue(settled(store)).one("SELECT count(*) FROM uncounted") == 1
