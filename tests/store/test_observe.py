"""Observing: when it returns the rows are durable, hot, counted and handed on, each once."""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pyramidion.errors import KeyHolderError, ObservationError, StateError, StorageError
from pyramidion.storage.hot import Receipt
from pyramidion.storage.idempotency import Once
from tests.store import inspect
from tests.store.inspect import born, populating, sealed
from tests.store.stores import (
    DAY,
    HOUR,
    START,
    Stand,
    cells,
    exact,
    failing_once,
    noise,
    observed,
    rows,
    same,
    states,
)

# --- each row once ----------------------------------------------------------------------


def test_every_row_is_counted_once_on_the_noise_the_window_was_born_with(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    birth = born(store, monkeypatch)
    batches = [rows(size, seed=size) for size in (1, 7, 300, 5_000)]
    for batch in batches:
        assert store.observe(batch) == Receipt(batch.num_rows, 0, 0)
    assert same(noise(store, populating(store), batches), cells(birth[0]))
    assert any(found.any() for found in cells(birth[0]).values())


def test_reopening_counts_every_row_once_on_the_same_noise(stand: Stand) -> None:
    store = stand.create()
    batches = [rows(50, seed=seed) for seed in range(4)]
    for batch in batches:
        store.observe(batch)
    before = noise(store, populating(store), batches)
    for _ in range(2):
        store = stand.reopen()
        assert same(noise(store, populating(store), batches), before)
        assert store.status().hot_rows == populating(store).rows == 200


def test_rows_counted_in_a_checkpoint_are_not_counted_again(stand: Stand) -> None:
    store = stand.create(checkpoint_rows=60)
    batches = [rows(50, seed=seed) for seed in range(5)]
    for batch in batches:
        observed(store, batch)
    before = noise(store, populating(store), batches)
    assert any(window.after for window in inspect.windows(store).values())
    store = stand.reopen()
    assert same(noise(store, populating(store), batches), before)


def test_each_window_is_replayed_from_its_own_checkpoint(stand: Stand) -> None:
    store = stand.create(checkpoint_rows=60)
    now = stand.clock.pass_(10 * DAY - HOUR / 2)
    times = np.r_[np.full(40, now), np.full(10, now + HOUR)]
    batches = [rows(50, times, seed=seed) for seed in range(4)]
    for batch in batches:
        observed(store, batch)
    after = {number: window.after for number, window in inspect.windows(store).items()}
    assert after[1] > after[2] == 0
    before = {number: cells(populating(store, number)) for number in (1, 2)}
    store = stand.reopen()
    for number in (1, 2):
        assert same(cells(populating(store, number)), before[number])


def test_without_privacy_the_tables_are_the_exact_counts(stand: Stand) -> None:
    store = stand.create(epsilon=float("inf"))
    batches = [rows(100, seed=1), rows(100, seed=2)]
    for batch in batches:
        store.observe(batch)
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert same(cells(sealed(store, 1)), exact(store, sealed(store, 1), batches))


def test_hot_rows_are_the_rows_that_came(stand: Stand) -> None:
    store = stand.create()
    batch = rows(20)
    store.observe(batch)
    ((_, kept, parts),) = inspect.hot(stand.reopen()).batches()
    assert kept.to_pydict() == batch.to_pydict()
    assert parts == [(1, 20)]


def test_columns_the_schema_does_not_name_are_not_kept(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(3).append_column("ssn", pa.array(["1", "2", "3"])))
    ((_, kept, _),) = inspect.hot(store).batches()
    assert set(kept.column_names) == {"t", "y", "a", "b"}


def test_values_of_other_rows_in_a_dictionary_are_not_kept(stand: Stand) -> None:
    store = stand.create()
    batch = rows(600)
    names = pa.DictionaryArray.from_arrays([0] * 600, ["mine", "somebody-else's"])
    store.observe(batch.set_column(2, "a", names))
    step = inspect.hot(store).steps[0]
    (batch,) = step.batches
    data = inspect.parts(store).segments.read(
        step.file, batch.start, batch.length, step.key.key, "batch 1"
    )
    assert b"mine" in data
    assert b"somebody-else's" not in data


# --- containers ----------------------------------------------------------------------------


def as_dicts(batch: pa.Table) -> Any:
    return batch.to_pylist()


def as_columns(batch: pa.Table) -> Any:
    return batch.to_pydict()


def as_record_batch(batch: pa.Table) -> Any:
    return batch.to_batches()[0]


def as_categories(batch: pa.Table) -> Any:
    return batch.to_pandas().astype({"a": "category", "b": "category"})


def as_views(batch: pa.Table) -> Any:
    column = batch["a"].combine_chunks().cast(pa.string_view())
    return batch.set_column(batch.column_names.index("a"), "a", column)


CONTAINERS = {
    "dicts": as_dicts,
    "dict of columns": as_columns,
    "record batch": as_record_batch,
    "pandas": pa.Table.to_pandas,
    "pandas categories": as_categories,
    "polars": pl.from_arrow,
    "views": as_views,
}


@pytest.mark.parametrize("form", CONTAINERS)
def test_rows_count_the_same_in_every_container_and_after_reopening(
    stand: Stand, form: str
) -> None:
    store = stand.create(epsilon=float("inf"))
    batch = rows(40)
    assert store.observe(CONTAINERS[form](batch)).accepted == 40
    store = stand.reopen()
    assert same(cells(populating(store)), exact(store, populating(store), [batch]))


@pytest.mark.parametrize("form", CONTAINERS)
def test_every_container_may_span_two_windows(stand: Stand, form: str) -> None:
    store = stand.create(epsilon=float("inf"))
    now = stand.clock.pass_(10 * DAY - HOUR / 2)
    batch = rows(40, np.tile([now, now + HOUR], 20))
    assert store.observe(CONTAINERS[form](batch)).accepted == 40
    store = stand.reopen()
    for number, part in ((1, batch[::2]), (2, batch[1::2])):
        arena = populating(store, number)
        assert same(cells(arena), exact(store, arena, [part]))


def test_a_single_dict_is_a_batch_of_one(stand: Stand) -> None:
    assert stand.create().observe(rows(1).to_pylist()[0]) == Receipt(1, 0, 0)


def test_an_empty_batch_is_accepted_and_opens_no_window(stand: Stand) -> None:
    store = stand.create()
    for empty in (rows(0), [], rows(0).to_pandas()):
        assert store.observe(empty, key="k") == Receipt(0, 0, 0)
    assert store.status().windows == ()
    assert store.ledger.report().windows == ()


# --- bad rows ---------------------------------------------------------------------------------


def with_bad_labels() -> list[dict[str, Any]]:
    batch = rows(6).to_pylist()
    batch[1]["y"], batch[4]["y"] = 7, None
    return batch


def test_bad_rows_refuse_the_whole_batch_by_number(stand: Stand) -> None:
    store = stand.create()
    with pytest.raises(ObservationError) as caught:
        store.observe(with_bad_labels())
    assert sorted(row for found in caught.value.problems.values() for row in found) == [1, 4]
    assert store.status().hot_rows == 0


def test_bad_rows_are_left_out_and_counted_when_asked_for(stand: Stand) -> None:
    store = stand.create(epsilon=float("inf"))
    batch = with_bad_labels()
    assert store.observe(batch, errors="skip") == Receipt(4, 2, 0)
    good = [row for number, row in enumerate(batch) if number not in (1, 4)]
    store = stand.reopen()
    assert same(cells(populating(store)), exact(store, populating(store), [good]))


def test_a_batch_of_bad_rows_alone_changes_nothing(stand: Stand) -> None:
    store = stand.create()
    bad = [row | {"y": 9} for row in rows(3).to_pylist()]
    assert store.observe(bad, errors="skip") == Receipt(0, 3, 0)
    assert store.status().windows == ()


def test_a_message_never_holds_a_value(stand: Stand) -> None:
    batch = rows(2).to_pylist()
    batch[0]["y"] = "4111-1111-1111-1111"
    with pytest.raises(ObservationError) as caught:
        stand.create().observe(batch)
    assert "4111" not in f"{caught.value} {caught.value.problems}"


# --- idempotency --------------------------------------------------------------------------------


def test_the_same_key_again_changes_nothing_and_gets_the_same_receipt(stand: Stand) -> None:
    store = stand.create()
    batch = with_bad_labels()
    first = store.observe(batch, key="k", errors="skip")
    assert store.observe(batch, key="k", errors="skip") == first
    assert store.observe(rows(9), key="other").accepted == 9
    assert stand.reopen().observe(batch, key="k", errors="skip") == first
    assert stand.reopen().status().hot_rows == 4 + 9


def test_a_key_works_across_the_steps_of_the_hot_window(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5), key="k")
    stand.clock.pass_(2 * DAY)
    store.observe(rows(5, stand.clock.now))
    assert store.observe(rows(5), key="k") == Receipt(5, 0, 0)
    assert store.status().hot_rows == 10


def test_a_key_leaves_with_its_rows(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5), key="k")
    stand.clock.pass_(3 * DAY)
    store.advance()
    assert inspect.hot(store).seen([Once("k")]) == {}
    assert store.observe(rows(5, stand.clock.now), key="k").accepted == 5
    assert states(store) == {1: ("populating", 10)}


def test_the_key_itself_is_in_no_file(stand: Stand) -> None:
    stand.create().observe(rows(5), key="invoice-4711-of-ada")
    stand.close()
    for file in stand.folder.rglob("*"):
        assert file.is_dir() or b"4711-of-ada" not in file.read_bytes()


def test_the_same_key_leaves_another_trace_in_each_step(stand: Stand) -> None:
    store = stand.create()
    traces = []
    for _ in range(3):
        observed(store, rows(5, stand.clock.now), key="k")
        ((trace,),) = inspect.catalogue(store).all("SELECT once FROM arrivals")
        traces.append(trace)
        stand.clock.pass_(3 * DAY)
        store.advance()
    assert len(set(traces)) == 3


def test_a_batch_that_was_refused_may_come_again_under_its_key(stand: Stand) -> None:
    store = stand.create()
    with pytest.raises(ObservationError):
        store.observe(with_bad_labels(), key="k")
    assert store.observe(rows(6), key="k").accepted == 6


@pytest.mark.parametrize("key", ["", "x" * 1_001, 7, b"k", "\ud800"])
def test_a_key_that_is_none_is_refused(stand: Stand, key: Any) -> None:
    with pytest.raises(ObservationError, match="an idempotency key"):
        stand.create().observe(rows(1), key=key)


# --- failures ------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_takes_the_counts_back_and_the_retry_works(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    first, second = rows(50, seed=1), rows(70, seed=2)
    store.observe(first)
    before = cells(populating(store))
    left = failing_once(monkeypatch, os, "fdatasync", OSError(errno.ENOSPC, "full"))
    with pytest.raises(StorageError, match="full disk; free some space, nothing was lost"):
        store.observe(second, key="k")
    assert not left
    assert same(cells(populating(store)), before)
    assert store.status().hot_rows == populating(store).rows == 50
    assert store.observe(second, key="k") == Receipt(70, 0, 0)
    after = noise(store, populating(store), [first, second])
    store = stand.reopen()
    assert same(noise(store, populating(store), [first, second]), after)
    assert store.status().hot_rows == 120


def test_a_commit_that_fails_takes_the_counts_back_and_the_retry_works(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    store.observe(rows(50))
    before = cells(populating(store))
    problem = StorageError("the catalogue is on a full disk")
    failing_once(monkeypatch, inspect.hot(store), "acknowledge", problem)
    with pytest.raises(StorageError, match="full disk"):
        store.observe(rows(70, seed=1))
    assert same(cells(populating(store)), before)
    assert store.observe(rows(70, seed=1)).accepted == 70
    assert stand.reopen().status().hot_rows == 120


def test_counting_that_fails_leaves_the_batch_out_of_every_window(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    now = stand.clock.pass_(10 * DAY - HOUR / 2)
    batch = rows(40, np.tile([now, now + HOUR], 20))
    store.observe(batch)
    before = {number: cells(populating(store, number)) for number in (1, 2)}
    failing_once(monkeypatch, populating(store, 2), "add", MemoryError())
    with pytest.raises(MemoryError):
        store.observe(batch)
    for number in (1, 2):
        assert same(cells(populating(store, number)), before[number])
    assert store.status().hot_rows == 40


def test_without_its_key_a_store_acknowledges_nothing(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(10))
    before = cells(populating(store))
    away = stand.key.rename(stand.key.with_suffix(".away"))
    with pytest.raises(KeyHolderError, match=r"does not have the key|holds no key"):
        store.observe(rows(10))
    assert same(cells(populating(store)), before)
    away.rename(stand.key)
    assert store.observe(rows(10)).accepted == 10
    assert stand.reopen().status().hot_rows == 20


def test_a_closed_store_takes_nothing(stand: Stand) -> None:
    store = stand.create()
    store.close()
    for verb in (lambda: store.observe(rows(1)), store.advance, store.status, store.snapshot):
        with pytest.raises(StateError, match="closed; open it again"):
            verb()
    store.close()


def test_the_clock_may_go_back_and_time_does_not(stand: Stand) -> None:
    store = stand.create()
    stand.clock.pass_(5 * DAY)
    store.observe(rows(5, stand.clock.now))
    stand.clock.now = START
    store.observe(rows(5))
    assert store.status().at == (START + 5 * DAY) * 1e6
    assert stand.reopen().status().at == (START + 5 * DAY) * 1e6


def test_pandas_rows_with_missing_values_count_as_missing(stand: Stand) -> None:
    store = stand.create(epsilon=float("inf"))
    frame = pd.DataFrame({"t": [START] * 3, "y": [0, 1, 0], "a": ["p", None, np.nan], "b": "x"})
    store.observe(frame)
    plain = [row | {"a": row["a"] if row["a"] == "p" else None} for row in frame.to_dict("records")]
    store = stand.reopen()
    assert same(cells(populating(store)), exact(store, populating(store), [plain]))
