"""The vault hook: every accepted batch once, by a number that only grows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyramidion import Pyramid, StateError
from tests.store.stores import DAY, Stand, cells, exact, observed, populating, rows, same


class Vault:
    """Takes batches by number; fails as often as it is told to."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}
        self.handed: list[int] = []
        self.failures = 0

    def __call__(self, number: int, table: pa.Table) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the vault is away")
        self.handed.append(number)
        self.batches.setdefault(number, table)

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.batches.values())


@pytest.fixture
def vault(stand: Stand) -> Vault:
    stand.vault = Vault()
    return stand.vault


def test_every_batch_is_handed_on_once_and_whole(stand: Stand, vault: Vault) -> None:
    store = stand.create()
    batches = [rows(5, seed=seed) for seed in range(3)]
    for batch in batches:
        store.observe(batch)
    stand.reopen()
    assert vault.handed == [1, 2, 3]
    assert [table.to_pydict() for table in vault.batches.values()] == [
        batch.to_pydict() for batch in batches
    ]


def test_numbers_grow_and_are_never_given_twice(stand: Stand, vault: Vault) -> None:
    store = stand.create()
    for day in range(30):
        observed(store, rows(2, stand.clock.now))
        if day % 7 == 0:
            store = stand.reopen()
        stand.clock.pass_(DAY)
    assert vault.handed == sorted(set(vault.handed))
    assert vault.rows == 60


def test_rows_left_out_are_not_handed_on(stand: Stand, vault: Vault) -> None:
    store = stand.create()
    batch = rows(4).to_pylist()
    batch[2]["y"] = 9
    store.observe(batch, errors="skip")
    assert vault.rows == 3


def test_a_batch_sent_again_is_handed_on_once(stand: Stand, vault: Vault) -> None:
    store = stand.create()
    for _ in range(3):
        store.observe(rows(5), key="k")
    assert vault.handed == [1]


def test_what_the_vault_did_not_take_is_handed_to_it_again_with_the_next_batch(
    stand: Stand, vault: Vault
) -> None:
    store = stand.create()
    vault.failures = 1
    assert store.observe(rows(5)).accepted == 5  # acknowledged: it must not be sent again
    store.observe(rows(6))
    assert vault.handed == [1, 2]
    assert vault.rows == store.status().hot_rows == 11


def test_a_retry_under_the_same_key_hands_on_and_counts_once(stand: Stand, vault: Vault) -> None:
    store = stand.create(epsilon=float("inf"))
    vault.failures = 1
    store.observe(rows(5), key="k")
    assert store.observe(rows(5), key="k").accepted == 5
    assert vault.handed == [1]
    assert same(cells(populating(store)), exact(store, populating(store), [rows(5)]))


def test_what_a_crash_kept_from_the_vault_is_handed_on_at_the_next_open(
    stand: Stand, vault: Vault
) -> None:
    store = stand.create()
    store.observe(rows(3))
    vault.failures = 1
    store.observe(rows(5))
    stand.reopen()
    assert vault.handed == [1, 2]
    assert vault.batches[2].to_pydict() == rows(5).to_pydict()


def test_a_store_opened_without_a_vault_owes_it_nothing_later(stand: Stand) -> None:
    stand.create().observe(rows(3))
    stand.close()
    stand.vault = vault = Vault()
    store = stand.open()
    store.observe(rows(4))
    assert vault.handed == [2]


def test_rows_do_not_leave_the_hot_window_before_the_vault_has_them(
    stand: Stand, vault: Vault
) -> None:
    store = stand.create()
    vault.failures = 1
    store.observe(rows(5))
    stand.clock.pass_(4 * DAY)
    store.advance()
    assert store.status().hot_rows == 0
    assert vault.rows == 5


def test_a_batch_over_two_windows_lies_in_the_vault_as_in_the_hot_window(
    stand: Stand, vault: Vault
) -> None:
    store, batch = stand.create(), rows(20)
    now = stand.clock.pass_(10 * DAY - 60)  # a minute before the window ends
    batch = batch.set_column(0, "t", pa.array([now + 120.0 * (row % 2) for row in range(20)]))
    store.observe(batch)
    ((number, kept, parts),) = store._lifecycle.hot.batches()
    assert len(parts) == 2
    assert vault.batches[number].to_pydict() == kept.to_pydict()


def test_nothing_more_is_accepted_while_the_vault_refuses(stand: Stand, vault: Vault) -> None:
    store = stand.create()
    vault.failures = 2
    store.observe(rows(5))
    with pytest.raises(ConnectionError):
        store.observe(rows(6))
    assert store.status().hot_rows == 5
    assert store.observe(rows(6)).accepted == 6
    assert vault.rows == 11


def test_rows_leave_in_time_also_when_the_vault_refuses_to_the_end(
    stand: Stand, vault: Vault
) -> None:
    store = stand.create()
    vault.failures = 2
    store.observe(rows(5))
    stand.clock.pass_(4 * DAY)
    with pytest.raises(ConnectionError):
        store.advance()
    assert store.status().hot_rows == 0
    assert not store.advance()


def test_a_hook_that_calls_its_store_is_refused_instead_of_waiting_for_ever(stand: Stand) -> None:
    said = []

    def hook(number: int, table: pa.Table) -> None:
        store = opened[0]
        for verb in (store.advance, lambda: store.observe(rows(1))):
            with pytest.raises(StateError, match="from within its own vault hook") as refusal:
                verb()
            said.append(refusal)

    stand.vault, opened = hook, []
    opened.append(stand.create())
    opened[0].observe(rows(2))
    assert len(said) == 2


def test_a_restored_store_gives_no_number_that_the_other_copy_may_have_given(
    stand: Stand, vault: Vault
) -> None:
    store = stand.create()
    store.observe(rows(3))
    store.backup(stand.folder / "backup")
    store.observe(rows(4))
    stand.close()
    place = stand.folder / "restored"
    store = stand.held(Pyramid.restore(stand.folder / "backup", place, **stand.given))
    store.observe(rows(5))
    assert vault.batches[2].num_rows == 4
    assert vault.batches[max(vault.batches)].num_rows == 5
    assert len(vault.batches) == 3
