"""The order of things, seen in what a process that is killed leaves on the disk."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pyramidion import Pyramid
from pyramidion.store.audit.trial import Trial, cells_of
from tests.dying import died
from tests.store import inspect
from tests.store.stores import SCHEMA, START, exact, rows, tiny


def observed(folder: Path) -> None:
    """Make a store and observe two batches."""
    keys, clock = f"file:{folder}/key", lambda: START
    with Pyramid.create(folder / "store", SCHEMA, tiny(), keys=keys, clock=clock) as store:
        store.observe(rows(50))
        store.observe(rows(50, seed=1))


def killed_at(point: str, folder: Path) -> Path:
    """The store of a process that died there."""
    assert died(lambda: observed(folder), at=point)
    return folder / "store"


def ask(store: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"{(store / 'catalogue.db').as_uri()}?mode=ro", uri=True)) as db:
        return db.execute(query).fetchall()


def files(store: Path) -> set[str]:
    return {file.name for file in (store / "tables").iterdir()}


def test_before_the_noise_exists_the_charge_is_durable(tmp_path: Path) -> None:
    store = killed_at("charge.after", tmp_path)
    charged = ask(store, "SELECT purpose FROM ledger WHERE kind = 'table'")
    assert {name for (name,) in charged} == {"", *SCHEMA.table_names}
    assert files(store) == set()
    assert ask(store, "SELECT count(*) FROM batches") == [(0,)]


def test_before_the_first_row_is_written_the_noise_is_durable(tmp_path: Path) -> None:
    store = killed_at("append.before", tmp_path)
    known = ask(store, "SELECT file FROM arenas WHERE kind = 'checkpoint' AND current = 1")
    assert len(known) == 1
    assert files(store) == {name for (name,) in known}
    assert ask(store, "SELECT count(*) FROM batches") == [(0,)]


@pytest.mark.parametrize("acknowledged", [1, 2])
def test_after_a_crash_acknowledged_rows_are_on_the_noise_that_was_there_before_them(
    tmp_path: Path, acknowledged: int
) -> None:
    path = killed_at(f"commit.after:{acknowledged}", tmp_path)
    before = files(path)
    clock = [START]
    keys = f"file:{tmp_path}/key"
    with Pyramid.open(path, keys=keys, clock=lambda: clock[0]) as store:
        made = Trial(store, clock)
        assert files(path) == before
        noise = made.on_disk(1)
        arena = inspect.populating(store, 1)
        counted = exact(store, arena, [rows(50), rows(50, seed=1)][:acknowledged])
        for own, drawn, count in zip(cells_of(arena), noise, counted.values(), strict=True):
            np.testing.assert_array_equal(own.reshape(-1) - count, drawn.reshape(-1))
        assert any(count.any() for count in counted.values())
