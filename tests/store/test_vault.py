"""What a store owes its vault: every accepted batch in one sealed file, by a growing number."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyramidion import Pyramid, StateError
from tests.store import inspect
from tests.store.inspect import populating
from tests.store.stores import CUSTODIAN, DAY, HOUR, Stand, cells, exact, observed, rows, same
from tests.vault.vaults import batches, refusing, sealed, vault_of


@pytest.fixture(autouse=True)
def vault(stand: Stand) -> None:
    stand.vault = stand.folder / "vault"


def test_every_batch_is_sealed_once_and_whole(stand: Stand) -> None:
    store = stand.create()
    given = [rows(5, seed=seed) for seed in range(3)]
    for batch in given:
        store.observe(batch)
    found = sealed(stand.reopen())
    assert list(found) == [1, 2, 3]
    names = found[1].column_names
    assert [t.to_pydict() for t in found.values()] == [b.select(names).to_pydict() for b in given]


def test_numbers_grow_and_are_never_given_twice(stand: Stand) -> None:
    store = stand.create()
    for day in range(30):
        observed(store, rows(2, stand.clock.now))
        if day % 7 == 0:
            store = stand.reopen()
        stand.clock.pass_(DAY)
    found = sealed(store)
    assert list(found) == sorted(found)
    assert sum(table.num_rows for table in found.values()) == 60


def test_rows_left_out_are_not_sealed(stand: Stand) -> None:
    store = stand.create()
    batch = rows(4).to_pylist()
    batch[2]["y"] = 9
    store.observe(batch, errors="skip")
    assert sealed(store)[1].num_rows == 3


def test_a_batch_sent_again_is_sealed_once(stand: Stand) -> None:
    store = stand.create()
    for _ in range(3):
        store.observe(rows(5), key="k")
    assert list(sealed(store)) == [1]


def test_what_could_not_be_sealed_is_sealed_before_the_next_batch(
    stand: Stand, monkeypatch: Any
) -> None:
    store = stand.create(vault_rows=5)
    refusing(monkeypatch, 1)
    assert store.observe(rows(5)).accepted == 5  # acknowledged: it must not be sent again
    store.observe(rows(6))
    found = sealed(store)
    assert list(found) == [1, 2]
    assert sum(t.num_rows for t in found.values()) == store.status().hot_rows == 11


def test_a_retry_under_the_same_key_is_sealed_and_counted_once(
    stand: Stand, monkeypatch: Any
) -> None:
    store = stand.create(epsilon=float("inf"), vault_rows=5)
    refusing(monkeypatch, 1)
    store.observe(rows(5), key="k")
    assert store.observe(rows(5), key="k").accepted == 5
    assert list(sealed(store)) == [1]
    assert same(cells(populating(store)), exact(store, populating(store), [rows(5)]))


def test_what_is_not_sealed_when_a_store_closes_is_sealed_after_the_next_open(
    stand: Stand, monkeypatch: Any
) -> None:
    store = stand.create(vault_rows=3)
    store.observe(rows(3))
    vault_of(store).seal()
    refusing(monkeypatch, 1)
    store.observe(rows(5))
    found = sealed(stand.reopen())
    assert list(found) == [1, 2]
    assert found[2].to_pydict() == rows(5).select(found[2].column_names).to_pydict()


def test_a_vault_that_is_attached_later_gets_what_is_observed_from_then_on(stand: Stand) -> None:
    place, stand.vault = stand.vault, None
    stand.create().observe(rows(3))
    store = stand.reopen()
    store.admin.attach_vault(str(place), CUSTODIAN.public)
    store.observe(rows(4))
    assert list(sealed(store)) == [2]
    assert list(batches(stand.reopen())) == [2]  # nobody need say again that it has a vault


def test_rows_do_not_leave_the_hot_window_before_they_are_sealed(stand: Stand) -> None:
    store = stand.create(vault_every="30d")
    store.observe(rows(5))
    stand.clock.pass_(4 * DAY)
    assert batches(store) == {}
    store.advance()
    assert store.status().hot_rows == 0
    assert batches(store)[1].num_rows == 5


def test_a_batch_over_two_windows_lies_in_the_vault_as_in_the_hot_window(stand: Stand) -> None:
    store, batch = stand.create(), rows(20)
    now = stand.clock.pass_(10 * DAY - 60)  # a minute before the window ends
    batch = batch.set_column(0, "t", pa.array([now + 120.0 * (row % 2) for row in range(20)]))
    store.observe(batch)
    ((number, kept, parts),) = inspect.hot(store).batches()
    assert len(parts) == 2
    assert sealed(store)[number].to_pydict() == kept.to_pydict()


def test_nothing_more_is_accepted_while_rows_cannot_be_sealed(
    stand: Stand, monkeypatch: Any
) -> None:
    store = stand.create(vault_rows=5)
    with monkeypatch.context() as refusals:
        refusing(refusals, 1_000)
        store.observe(rows(5))
        with pytest.raises(OSError, match="the disk refuses"):
            vault_of(store).seal()  # whoever asks is told, and waits for the thread that seals
        with pytest.raises(OSError, match="the disk refuses"):
            store.observe(rows(6))
    assert store.status().hot_rows == 5
    assert store.observe(rows(6)).accepted == 6
    assert sum(t.num_rows for t in sealed(store).values()) == 11


def test_rows_leave_in_time_also_when_they_cannot_be_sealed_to_the_end(
    stand: Stand, monkeypatch: Any
) -> None:
    store = stand.create(vault_every="30d")
    store.observe(rows(5))
    refusing(monkeypatch, 1)
    stand.clock.pass_(4 * DAY)
    with pytest.raises(OSError, match="the disk refuses"):
        store.advance()
    assert store.status().hot_rows == 0
    assert not store.advance()
    assert not store.status().due  # what is gone is not waited for


def test_a_call_from_within_the_stores_threads_is_refused_instead_of_waiting_for_ever(
    stand: Stand,
) -> None:
    store, said = stand.create(), []

    def hook(*_: Any) -> None:
        for verb in (store.advance, lambda: store.observe(rows(1))):
            with pytest.raises(StateError, match="from within its own threads") as refusal:
                verb()
            said.append(refusal)

    inspect.parts(store).arrivals.taken = hook
    store.observe(rows(2))
    assert len(said) == 2


def test_a_restored_store_gives_no_number_that_the_other_copy_may_have_given(
    stand: Stand,
) -> None:
    store = stand.create()
    store.observe(rows(3))
    store.admin.backup(stand.folder / "backup")
    store.observe(rows(4))
    theirs = sealed(store)
    stand.close()
    place = stand.folder / "restored"
    store = stand.held(Pyramid.restore(stand.folder / "backup", place, **stand.given))
    store.observe(rows(5))
    ours = sealed(store)
    assert ours.keys() & theirs.keys() == {1}
    assert ours[max(ours)].num_rows == 5
    assert theirs[2].num_rows == 4


# --- hot rows that are rewritten ------------------------------------------------------------


def test_a_feature_that_is_withdrawn_is_not_sealed_any_more(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    vault_of(store).seal()
    store.observe(rows(6))
    store.groups.withdraw("b", why="asked for")
    store.observe(rows(7).drop_columns(["b"]))
    found = sealed(store)
    assert ["b" in table.column_names for table in found.values()] == [True, False, False]


def test_rows_that_are_rewritten_while_they_are_sealed_are_sealed_as_they_are_then(
    stand: Stand, monkeypatch: Any
) -> None:
    store = stand.create()
    store.observe(rows(5))
    sealer, sync = vault_of(store)._sealer, []

    def rewriting(path: Any) -> None:
        if not sync:
            sync.append(path)
            sealer._rewritten()

    monkeypatch.setattr("pyramidion.vault.writer.sync", rewriting)
    vault_of(store).seal()
    assert sync
    assert list(batches(store)) == [1]
    vault_of(store).carry()  # waits for the thread that may be carrying
    assert stand.files("vault-backlog") == set()  # nothing of the first try is left


def test_spans_begin_at_multiples_of_their_length_from_the_origin(stand: Stand) -> None:
    store = stand.create()
    stand.clock.pass_(HOUR - 1)
    store.observe(rows(1))
    stand.clock.pass_(2)
    observed(store, rows(1))
    vault_of(store).seal()
    first, second = vault_of(store).files()
    assert (first.last_batch, second.first_batch) == (1, 2)
