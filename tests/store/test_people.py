"""At most k rows of a person count in a block, whatever happens to the store meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramidion import Categorical, Pyramid, Schema
from pyramidion.errors import FormatError, StorageError
from pyramidion.privacy.contributions import hidden_of
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import in_order
from pyramidion.storage.fault_points import arm
from pyramidion.storage.hot import Receipt
from tests.campaign import examples
from tests.dying import died
from tests.store import inspect
from tests.store.inspect import populating, settled
from tests.store.peopling import (
    EVENTS,
    EXACT,
    PEOPLE,
    Event,
    Model,
    a_stand,
    arenas,
    batches,
    expected,
    lived,
    of,
)
from tests.store.stores import DAY, HOUR, START, Stand, cells, failing_once, observed, same, tiny
from tests.store.test_nothing_outlives import Life
from tests.store.test_training_set import off
from tests.vault.vaults import sealed

BLOCKS = st.sampled_from([(None, 3), ("1d", 1), ("2d", 2)])


def modelled(events: list[Event], block: int) -> tuple[Model, list[int]]:
    model = Model(EXACT["k"], block)
    return model, [model.observe(batch, now) for _, now, batch in batches(events)]


# --- the bound -----------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=examples(25, 100))
@given(EVENTS, BLOCKS)
def test_exactly_the_first_k_rows_of_a_person_in_a_block_are_in_the_tables(
    events: list[Event], block: tuple[str | None, int]
) -> None:
    with a_stand() as stand:
        store, blanked = lived(stand, events, unit_block=block[0])
        model, told = modelled(events, block[1])
        assert blanked == told
        found = arenas(store)
        assert {slot: arena.rows for slot, arena in found.items()} == dict(model.accepted)
        for slot, arena in found.items():
            assert same(cells(arena), expected(store, arena, model.counted.get(slot, [])))


@pytest.mark.slow
@settings(max_examples=examples(15, 100))
@given(EVENTS, BLOCKS)
def test_without_one_person_no_window_differs_by_more_than_its_noise_hides(
    events: list[Event], block: tuple[str | None, int]
) -> None:
    def others(batch: pa.Table) -> pa.Table:
        return batch.filter(pc.not_equal(batch["who"], "a"))

    with a_stand() as stand, a_stand() as beside:
        store, _ = lived(stand, events, unit_block=block[0])
        neighbour, _ = lived(beside, events, others, unit_block=block[0])
        hidden, omega = hidden_of(store.schema, store.settings), store.settings.omega
        left = arenas(neighbour)
        for slot, arena in arenas(store).items():
            found = cells(arena)
            without = cells(left[slot]) if slot in left else dict.fromkeys(found, 0)
            for table in arena.layout.tables:
                gone = np.abs(found[table.name] - without[table.name]).sum()
                assert gone <= hidden * omega * table.rows


@pytest.mark.slow
@settings(max_examples=examples(15, 100))
@given(EVENTS, BLOCKS, st.integers(0, 2**12 - 1))
def test_without_some_rows_of_a_person_later_ones_move_up(
    events: list[Event], block: tuple[str | None, int], which: int
) -> None:
    """So a window differs by twice what its noise hides, and by no more."""

    def fewer(batch: pa.Table) -> pa.Table:
        places = np.arange(batch.num_rows)
        gone = pc.and_(pc.equal(batch["who"], "a"), pa.array((which >> places) & 1 == 1))
        return batch.filter(pc.invert(gone))

    with a_stand() as stand, a_stand() as beside:
        store, _ = lived(stand, events, unit_block=block[0])
        neighbour, _ = lived(beside, events, fewer, unit_block=block[0])
        hidden, omega = hidden_of(store.schema, store.settings), store.settings.omega
        left = arenas(neighbour)
        for slot, arena in arenas(store).items():
            found = cells(arena)
            without = cells(left[slot]) if slot in left else dict.fromkeys(found, 0)
            for table in arena.layout.tables:
                gone = np.abs(found[table.name] - without[table.name]).sum()
                assert gone <= 2 * hidden * omega * table.rows


def test_rows_that_move_up_change_as_many_again(stand: Stand) -> None:
    schema = Schema(label=PEOPLE.label, features=PEOPLE.features, unit="who")
    store = stand.create(schema, **EXACT | {"p_min": None})
    rows = of(["a"] * 4).drop_columns(["t", "p"]).set_column(0, "y", pa.array([0, 0, 1, 1]))
    with a_stand() as beside:
        neighbour = beside.create(schema, **EXACT | {"p_min": None})
        store.observe(rows)
        neighbour.observe(rows.slice(2))
        (one,), (other,) = arenas(store).values(), arenas(neighbour).values()
        change = np.abs(cells(one)[""] - cells(other)[""]).sum()
        assert change == 2 * EXACT["k"]


def test_the_bound_is_reached_so_less_noise_would_not_do(stand: Stand) -> None:
    settings = EXACT | {"origin": START, "count_window": "8d", "p_min": None}
    schema = Schema(time="t", label=PEOPLE.label, features=PEOPLE.features, unit="who")
    store = stand.create(schema, **settings)
    window = START + 24 * DAY  # begins with a block, and rows may come an hour before
    for moment in (window - HOUR, *(window + day * DAY for day in (0, 2, 5, 7.9))):
        stand.clock.now = moment
        store.advance()
        observed(store, of(["a"] * 9, max(moment, window)))
    (arena,) = arenas(store).values()
    assert inspect.parts(store).people.hidden == EXACT["k"] * 4
    assert cells(arena)[""].sum() == inspect.parts(store).people.hidden


def test_how_a_stream_is_cut_into_batches_does_not_matter(stand: Stand) -> None:
    who = list(np.random.default_rng(1).choice(list("abcdefgh"), 60))
    batch, found = of(who), list[Any]()
    for size in (60, 7, 1):
        with a_stand() as beside:
            store = beside.create(PEOPLE, **EXACT)
            for start in range(0, 60, size):
                store.observe(batch.slice(start, size))
            found.append(cells(populating(store)))
    assert same(found[0], found[1])
    assert same(found[0], found[2])


def test_people_without_event_times_are_bounded_by_when_they_come(stand: Stand) -> None:
    schema = Schema(label=PEOPLE.label, features=PEOPLE.features, unit="who")
    store = stand.create(schema, epsilon=float("inf"), k=3, unit_block="1d")
    assert inspect.parts(store).people.hidden == 3 * 10
    assert store.observe(of(["a"] * 5)).blanked == 2
    stand.clock.pass_(DAY)
    assert store.observe(of(["a"] * 5)).blanked == 2


def test_a_person_may_be_a_feature_too(stand: Stand) -> None:
    schema = Schema(label=PEOPLE.label, features=[Categorical("who")], unit="who")
    store = stand.create(schema, epsilon=float("inf"))
    assert observed(store, of(["a", "b", "a"])) == Receipt(3, 0, 0, 1)
    assert cells(populating(store))[""].sum() == 2


# --- whatever happens -----------------------------------------------------------------------


def test_a_store_that_is_opened_again_knows_the_people_of_the_running_block(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    assert observed(store, of(["a", "b"])).blanked == 0
    assert observed(stand.reopen(), of(["a", "a", "b", "c"])) == Receipt(4, 0, 0, 1)
    assert observed(stand.reopen(), of(["a", "b", "c"])) == Receipt(3, 0, 0, 2)


def test_a_checkpoint_does_not_make_people_forgotten(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT, checkpoint_rows=1)
    observed(store, of(["a", "a"]))
    store.advance()
    assert observed(stand.reopen(), of(["a"])).blanked == 1


def test_blanked_rows_are_not_counted_when_a_store_counts_hot_rows_again(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    batch = of(["a"] * 5 + ["b"])
    observed(store, batch)
    counted = expected(store, populating(store), [batch.take([0, 1, 5])])
    assert same(cells(populating(store)), counted)
    again = stand.reopen()
    assert same(cells(populating(again)), counted)


def test_rows_of_one_batch_in_two_windows_are_known_again_each_by_itself(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    now = stand.clock.pass_(10 * DAY - HOUR / 2)
    ahead = now + 0.9 * HOUR  # in the next window
    batch = of(list("aaaab"), [ahead, now, ahead, now, now])
    assert observed(store, batch).blanked == 2
    kept = [batch.take([1, 4]), batch.take([0])]
    assert [arena.rows for arena in arenas(store).values()] == [3, 2]
    for again in (lambda held=store: held, stand.reopen):
        store = again()
        for arena, rows in zip(arenas(store).values(), kept, strict=True):
            assert same(cells(arena), expected(store, arena, [rows]))


def crashed(folder: Path, where: str) -> None:
    """In a child: two batches, in the second of which it is killed."""
    store = Stand(folder).open()
    store.observe(of(["a", "b"]))
    arm(where)
    store.observe(of(["a", "c", "c", "c"], seed=1))


@pytest.mark.parametrize(
    ("where", "blanked"),
    [("append.synced", 5), ("commit.before", 5), ("commit.after", 8)],
)
def test_after_a_kill_people_are_known_by_what_was_acknowledged(
    stand: Stand, where: str, blanked: int
) -> None:
    stand.create(PEOPLE, **EXACT)
    stand.close()
    assert died(lambda: crashed(stand.folder, where))
    store = stand.open()
    receipt = observed(store, of(["a"] * 3 + ["b"] * 3 + ["c"] * 3, seed=2))
    assert receipt.blanked == blanked
    assert cells(populating(store))[""].sum() >= 6


def test_a_batch_that_fails_does_not_use_up_what_its_people_have(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create(PEOPLE, **EXACT)
    batch = of(["a", "a", "b", "a"])
    for name in ("acknowledge", "append"):
        left = failing_once(monkeypatch, inspect.hot(store), name, StorageError("full"))
        with pytest.raises(StorageError):
            store.observe(batch)
        assert not left
    assert observed(store, batch) == Receipt(4, 0, 0, 1)
    assert observed(store, batch).blanked == 3


def test_a_batch_sent_again_gets_the_same_receipt_and_counts_nobody_twice(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    first = store.observe(of(["a"] * 5), key="once")
    assert first == Receipt(5, 0, 0, 3)
    assert store.observe(of(["a"] * 5), key="once") == first
    assert stand.reopen().observe(of(["a"] * 5), key="once") == first


def test_rows_that_are_refused_use_up_nothing(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    batch = of(["a", "a", "a"]).set_column(1, "y", pa.array([7, 7, 1]))
    assert store.observe(batch, errors="skip") == Receipt(1, 2, 0, 0)
    assert store.observe(of(["a", "a"])) == Receipt(2, 0, 0, 1)


def test_a_clock_that_goes_back_while_the_store_is_closed_lets_nobody_count_anew(
    stand: Stand,
) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["a"] * 2))
    stand.clock.now = START + 4 * DAY
    store.advance()
    assert store.status().hot_rows == 0
    stand.clock.now = START
    store = stand.reopen()
    assert observed(store, of(["a"] * 2, START)).blanked == 0
    stand.clock.now = START + 3 * DAY  # the same block
    assert observed(store, of(["a"] * 2, START)).blanked == 2


def test_who_asked_for_the_time_in_a_block_that_is_over_counts_in_the_running_one(
    stand: Stand,
) -> None:
    store = stand.create(PEOPLE, **EXACT)
    early = store.now
    stand.clock.pass_(4 * DAY)
    assert observed(store, of(["a"], stand.clock.now)).blanked == 0
    store.advance()
    assert inspect.parts(store).arrivals.take(of(["a", "a"], START), early).blanked == 1


def test_who_asked_for_the_time_in_a_window_that_is_sealed_counts_in_the_next_one(
    stand: Stand,
) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["a"]))
    early = store.now
    stand.clock.pass_(10.5 * DAY)
    store.advance()
    assert inspect.parts(store).arrivals.take(of(["a"], START), early) == Receipt(1, 0, 1, 0)
    assert len(arenas(store)) == 2


def test_a_window_that_is_over_takes_no_more_rows_of_people(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["a"]))
    now = int(stand.clock.pass_(10 * DAY) * 1e6)
    assert inspect.parts(store).arrivals.take(of(["a"]), now) == Receipt(1, 0, 1, 0)
    assert len(arenas(store)) == 2


def test_withdrawing_a_feature_keeps_the_bound(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["a"] * 5))
    store.groups.withdraw("b", why="regulation")
    assert observed(store, of(["a", "b"])).blanked == 1
    again = stand.reopen()
    assert observed(again, of(["a", "b", "b"])).blanked == 2
    assert cells(populating(again))[""].sum() <= 4 * again.settings.omega


def test_a_restored_store_knows_the_people_of_its_running_block(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["a"] * 2))
    store.admin.backup(stand.folder / "copy")
    stand.close()
    restored = stand.held(
        Pyramid.restore(stand.folder / "copy", stand.folder / "restored", **stand.given)
    )
    assert observed(restored, of(["a", "b"])).blanked == 1


def test_a_store_that_cannot_read_whose_rows_are_hot_does_not_open(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT, checkpoint_rows=1)
    observed(store, of(["a"] * 2))
    store.advance()
    stand.close()
    for file in (stand.path / "hot").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(FormatError):
        stand.open()


# --- a history ------------------------------------------------------------------------------


def test_a_history_counts_people_block_by_block_however_large_its_pieces(
    stand: Stand, tmp_path: Path
) -> None:
    times = START + np.sort(np.random.default_rng(3).uniform(0, 25 * DAY, 400))
    whole = of(list(np.random.default_rng(4).choice(list("abcdef"), 400)), times)
    pq.write_table(whole, tmp_path / "history.parquet")
    stand.clock.now = START + 25 * DAY
    store = stand.create(PEOPLE, **EXACT, unit_block="1d")
    history = in_order([DataFile(tmp_path / "history.parquet")], PEOPLE)
    receipts = list(store.replay(history))
    model = Model(EXACT["k"], 1)
    blanked = sum(model.observe(whole.slice(i, 1), float(times[i])) for i in range(400))
    assert sum(receipt.blanked for receipt in receipts) == blanked > 50
    for slot, arena in arenas(store).items():
        assert same(cells(arena), expected(store, arena, model.counted[slot]))


# --- hot rows ---------------------------------------------------------------------------------


def test_blanked_rows_are_hot_and_in_the_public_totals_and_the_vault(stand: Stand) -> None:
    stand.vault = stand.folder / "vault"
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["a"] * 9))
    (window,) = store.status().windows
    assert (window.rows, store.status().hot_rows, sealed(store)[1].num_rows) == (9, 9, 9)


def test_a_training_set_takes_off_what_was_counted_and_no_more(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(list("ab") * 50))
    stand.clock.pass_(8 * DAY)  # the first rows leave, their counts stay
    store.advance()
    old = cells(populating(store))
    stand.clock.pass_(1.5 * DAY)
    late = of(list("aaaab") * 3, stand.clock.now, seed=1)
    assert observed(store, late).blanked == 11
    stand.clock.pass_(DAY)
    store.advance()
    training = store.training_set()
    assert same(cells(off(training)), old)
    assert training.X.shape[0] == 15


def test_a_model_learns_from_blanked_rows_too(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    stand.clock.pass_(9.5 * DAY)
    observed(store, of(["a"] * 20, stand.clock.now))
    stand.clock.pass_(DAY)
    store.advance()
    hot = [len(rows.observations) for rows in inspect.parts(store).serving.hot_rows()]
    assert hot == [20]


# --- nothing of the counter outlives its rows ---------------------------------------------------


def test_when_rows_leave_nothing_is_known_of_their_people(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    observed(store, of(["a"] * 5))
    people, hot = inspect.parts(store).people, inspect.hot(store)
    assert (len(people), len(hot._blanked)) == (1, 1)
    stand.clock.now = START + 4 * DAY
    store.advance()
    assert store.status().hot_rows == 0
    assert (len(people), len(hot._blanked)) == (0, 0)
    assert inspect.catalogue(store).one("SELECT count(*) FROM batches") == 0


class PeopledLife(Life):
    """All a store can do, with people in it."""

    schema = Schema(
        time="t",
        label=Life.schema.label,
        features=Life.schema.features,
        groups=Life.schema.groups,
        unit="who",
    )


@pytest.mark.slow
def test_who_the_rows_are_of_shows_in_nothing_that_is_public(tmp_path: Path) -> None:
    def contents(who: str) -> Any:
        return lambda size: {
            "score": [1.0, 2.5, 3.5, 2.5][:size],
            "name": ["a", "b", "c", "d"][:size],
            "town": ["x", "y", "x", "y"][:size],
            "shop": ["s"] * size,
            "who": list(who[:size]),
        }

    told = []
    for name, who in (("many", "abcd"), ("one", "aaaa")):
        life = PeopledLife(tmp_path / name, contents(who))
        life.run()
        life.store.close()
        life.archive.close()
        told.append([said for _, said in life.shown])
    assert told[0] == told[1]


def test_how_many_were_blanked_does_not_show_in_the_length_of_what_is_sealed(
    tmp_path: Path,
) -> None:
    lengths = []
    for name, who in (("many", [str(i) for i in range(5_000)]), ("one", ["a"] * 5_000)):
        stand = Stand(tmp_path / name)
        stand.folder.mkdir()
        store = stand.create(PEOPLE, **EXACT)
        settled(store)
        blanked = store.observe(of(who)).blanked
        lengths.append(inspect.catalogue(store).one("SELECT length(sealed) FROM batches"))
        stand.close()
        assert blanked == (0 if name == "many" else 4_998)
    assert lengths[0] == lengths[1]


def test_settings_of_the_tests_are_what_the_model_thinks() -> None:
    made = tiny(**EXACT)
    assert (made.unit_block_us, made.window_us) == (3 * DAY * 1e6, 10 * DAY * 1e6)
