"""A history replayed into a store: by event time, windows rolling, going on where it broke off."""

from __future__ import annotations

import time
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyramidion import Pyramid
from pyramidion.errors import ObservationError
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import Replay, in_order
from tests.store import inspect
from tests.store.inspect import populating, sealed
from tests.store.stores import (
    DAY,
    SCHEMA,
    START,
    TIMELESS,
    Stand,
    cells,
    exact,
    observed,
    rows,
    same,
    states,
    tiny,
    unpin,
)

LENGTH = 47.0  # days


def history(size: int = 2_000) -> pa.Table:
    return rows(size, START + np.sort(np.random.default_rng(5).uniform(0, LENGTH, size)) * DAY)


def saved(folder: Path, *tables: pa.Table) -> list[DataFile]:
    files = []
    for number, table in enumerate(tables):
        path = folder / f"part-{number}.parquet"
        pq.write_table(table, path)
        files.append(DataFile(path))
    return files


def of(folder: Path, *tables: pa.Table, schema: Any = SCHEMA, chunk: int = 300) -> Replay:
    return in_order(saved(folder, *tables), schema, chunk=chunk)


def between(table: pa.Table, start: float, stop: float) -> pa.Table:
    days = (table["t"].to_numpy() - START) / DAY
    return table.filter(pa.array((days >= start) & (days < stop)))


@pytest.fixture
def past(stand: Stand) -> Stand:
    """A stand whose clock stands where the history ends."""
    stand.clock.now = START + LENGTH * DAY
    return stand


def test_every_row_is_counted_in_its_own_window(past: Stand, tmp_path: Path) -> None:
    store, table = past.create(epsilon=float("inf")), history()
    receipts = list(store.replay(of(tmp_path, table)))
    assert sum(receipt.accepted for receipt in receipts) == 2_000
    assert sum(receipt.late for receipt in receipts) == 0
    assert [state for state, _ in states(store).values()] == ["sealed"] * 4 + ["populating"]
    for number in (1, 2, 3, 4):
        arena = sealed(store, number)
        part = between(table, 10 * (number - 1), 10 * number)
        assert same(cells(arena), exact(store, arena, [part]))
    arena = populating(store)
    assert same(cells(arena), exact(store, arena, [between(table, 40, 50)]))


def test_what_is_hot_at_the_end_is_what_would_be_had_it_come_row_by_row(
    past: Stand, tmp_path: Path
) -> None:
    store, table = past.create(), history()
    list(store.replay(of(tmp_path, table)))
    last = (table["t"].to_numpy()[-1] - START) / DAY
    first = np.floor(last) - 2  # three days, in steps of one
    kept = pa.concat_tables([hot for _, hot, _ in inspect.hot(store).batches()])
    assert sorted(kept["t"].to_pylist()) == between(table, first, 99)["t"].to_pylist()
    assert store.status().hot_steps == 3


def test_files_in_any_order_and_unsorted_rows_give_the_same(past: Stand, tmp_path: Path) -> None:
    table = history()
    shuffled = table.take(np.random.default_rng(1).permutation(2_000))
    store = past.create(epsilon=float("inf"))
    list(store.replay(of(tmp_path, shuffled.slice(0, 700), shuffled.slice(700))))
    for number in (1, 2, 3, 4):
        arena = sealed(store, number)
        part = between(table, 10 * (number - 1), 10 * number)
        assert same(cells(arena), exact(store, arena, [part]))


def test_a_replay_that_was_broken_off_goes_on_where_it_was(past: Stand, tmp_path: Path) -> None:
    store, table = past.create(epsilon=float("inf")), history()
    taken = 0
    for receipt in store.replay(of(tmp_path, table)):
        taken += receipt.accepted
        if taken > 900:
            break
    now, past.clock.now = past.clock.now, 0.0  # held, or what is begun would be sealed at once
    store = past.reopen()
    past.clock.now = now
    assert store.admin.replayed(of(tmp_path, table)) == taken
    rest = sum(receipt.accepted for receipt in store.replay(of(tmp_path, table)))
    assert taken + rest == 2_000
    for number in (1, 2, 3, 4):
        arena = sealed(store, number)
        part = between(table, 10 * (number - 1), 10 * number)
        assert same(cells(arena), exact(store, arena, [part]))


def test_the_same_history_again_adds_nothing(past: Stand, tmp_path: Path) -> None:
    store = past.create()
    list(store.replay(of(tmp_path, history())))
    before = states(store)
    assert list(past.reopen().replay(of(tmp_path, history()))) == []
    assert states(past.reopen()) == before


def test_another_history_is_not_taken_for_the_same(past: Stand, tmp_path: Path) -> None:
    store = past.create()
    list(store.replay(of(tmp_path, history())))
    later = rows(100, past.clock.pass_(DAY))
    assert sum(r.accepted for r in store.replay(of(tmp_path, later))) == 100


def test_the_clock_follows_the_rows_and_old_windows_retire_on_the_way(
    past: Stand, tmp_path: Path
) -> None:
    store = past.create(retention="20d")
    list(store.replay(of(tmp_path, history())))
    assert [state for state, _ in states(store).values()][:2] == ["erased"] * 2
    assert store.status().at / 1e6 == pytest.approx(START + LENGTH * DAY, abs=DAY)
    assert inspect.catalogue(store).one("SELECT count(*) FROM keys WHERE purpose='hot step'") == 3


def test_rows_may_go_on_after_a_replay(past: Stand, tmp_path: Path) -> None:
    store = past.create()
    list(store.replay(of(tmp_path, history())))
    past.clock.now = START + (LENGTH + 0.1) * DAY
    assert observed(store, rows(5, past.clock.now)).late == 0
    assert states(store)[5][0] == "populating"


def test_rows_from_the_future_are_refused_and_do_not_move_the_clock(
    past: Stand, tmp_path: Path
) -> None:
    store = past.create()
    table = pa.concat_tables([history(100), rows(1, past.clock.now + DAY)])
    with pytest.raises(ObservationError, match="max_skew"):
        list(store.replay(of(tmp_path, table)))
    receipts = list(store.replay(of(tmp_path, table), errors="skip"))
    assert sum(receipt.refused for receipt in receipts) == 1
    assert int(inspect.catalogue(store).about("clock")) <= past.clock.now * 1e6


def test_a_history_longer_ago_than_the_clock_still_rolls(stand: Stand, tmp_path: Path) -> None:
    given = stand.given | {"clock": time.time}
    store = stand.held(Pyramid.create(stand.path, SCHEMA, tiny(), **given))
    receipts = list(store.replay(of(tmp_path, history())))
    assert sum(receipt.late for receipt in receipts) == 0
    assert len(store.ledger.report().windows) >= 5


def test_bad_rows_refuse_or_are_skipped(past: Stand, tmp_path: Path) -> None:
    table = history(200)
    labels = table["y"].to_numpy().copy()
    labels[[3, 150]] = 9
    bad = table.set_column(1, "y", pa.array(labels))
    store = past.create()
    with pytest.raises(ObservationError):
        list(store.replay(of(tmp_path, bad)))
    receipts = list(store.replay(of(tmp_path, bad), errors="skip"))
    assert sum(receipt.refused for receipt in receipts) == 2
    assert sum(count for _, count in states(store).values()) == 198


def test_windows_by_rows_are_cut_at_their_rows(past: Stand, tmp_path: Path) -> None:
    store = past.create(count_window=128)
    list(store.replay(of(tmp_path, history(1_000))))
    assert [count for _, count in states(store).values()] == [128] * 7 + [104]


def test_without_event_times_rows_keep_the_order_of_the_files(past: Stand, tmp_path: Path) -> None:
    store = past.create(TIMELESS, count_window=100)
    table = history(250)
    list(store.replay(of(tmp_path, table, schema=TIMELESS, chunk=70)))
    assert [count for _, count in states(store).values()] == [100, 100, 50]


def test_equal_histories_give_equal_fingerprints_and_no_names_in_the_store(
    past: Stand, tmp_path: Path
) -> None:
    store = past.create()
    list(store.replay(of(tmp_path, history(50))))
    ((key,),) = inspect.catalogue(store).all("SELECT input FROM imports")
    assert key != of(tmp_path, history(50)).fingerprint[: len(key)]
    past.close()
    assert b"part-0" not in (past.path / "catalogue.db").read_bytes()


def test_imports_that_were_known_by_the_secret_alone_are_known_still(
    stand: Stand, tmp_path: Path
) -> None:
    """As in a store of format 7."""
    table = history(300)
    stand.clock.now = START + LENGTH * DAY
    store = stand.create()
    assert sum(receipt.accepted for receipt in store.replay(of(tmp_path, table))) == 300
    catalogue, secret = inspect.catalogue(store), inspect.secret(store)
    former = blake2b(of(tmp_path, table).fingerprint, key=secret, digest_size=16).digest()
    catalogue.run("UPDATE imports SET input = ?", former)
    catalogue.run("DELETE FROM keys WHERE id = ?", int(catalogue.about("names")))
    catalogue.run("DELETE FROM about WHERE name = 'names'")
    stand.close()
    unpin(stand.path, stand.key)
    store = stand.open()
    assert store.admin.replayed(of(tmp_path, table)) == 300
    assert inspect.catalogue(store).one("SELECT input FROM imports") != former


def test_the_secret_does_not_confirm_what_was_imported(stand: Stand, tmp_path: Path) -> None:
    table = history(300)
    stand.clock.now = START + LENGTH * DAY
    store = stand.create()
    list(store.replay(of(tmp_path, table)))
    found = inspect.catalogue(store).one("SELECT input FROM imports")
    secret, fingerprint = inspect.secret(store), of(tmp_path, table).fingerprint
    assert found != blake2b(fingerprint, key=secret, digest_size=16).digest()
