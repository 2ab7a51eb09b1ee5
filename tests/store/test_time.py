"""The time that a store goes by: its clock, or the rows of an imported history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pyramidion import Pyramid
from pyramidion.errors import ExpiredError
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import Replay, in_order
from pyramidion.store.clocks import SystemClock
from pyramidion.store.schedule import Due
from tests.store import inspect
from tests.store.inspect import settled
from tests.store.stores import DAY, SCHEMA, SECOND, START, TIMELESS, Stand, observed, rows

TODAY = START + 4_000 * DAY
HISTORY = rows(500, START + np.arange(500) * DAY / 20)  # 25 days: 2 windows sealed, 60 rows hot
END = int((START + 499 * DAY / 20) * SECOND)


def saved(folder: Path, table: Any = HISTORY, schema: Any = SCHEMA) -> Replay:
    pq.write_table(table, folder / "history.parquet")
    return in_order([DataFile(folder / "history.parquet")], schema)


@pytest.fixture
def today(stand: Stand) -> Stand:
    """A stand with a system's clock that shows a time long after the history."""
    stand.clock = SystemClock(lambda: TODAY)  # type: ignore[assignment]
    return stand


@pytest.fixture
def imported(today: Stand, tmp_path: Path) -> Pyramid:
    store = today.create()
    assert sum(receipt.accepted for receipt in store.replay(saved(tmp_path))) == 500
    return store


def kept(store: Pyramid) -> tuple[int, int]:
    """Hot rows, and rows in sealed windows."""
    status = settled(store).status()
    return status.hot_rows, status.summarised_rows


# --- an imported history -----------------------------------------------------------------


def test_imported_history_sets_the_time(imported: Pyramid) -> None:
    assert imported.now == END
    assert imported.status().clock.follows == "rows"
    assert imported.status().clock.present == TODAY * SECOND


def test_imported_history_stays_when_the_store_is_opened(today: Stand, imported: Pyramid) -> None:
    store = today.reopen()
    store.advance()
    store.snapshot().featurize(rows(5))
    assert kept(store) == (60, 400)
    assert store.now == END


def test_live_rows_move_the_time_to_the_clock(today: Stand, imported: Pyramid) -> None:
    observed(imported, rows(10, TODAY))
    assert imported.status().clock.follows == "system"
    assert imported.now == TODAY * SECOND
    assert kept(imported) == (10, 0)
    assert today.reopen().status().clock.follows == "system"


def test_refused_live_rows_do_not_move_the_time(imported: Pyramid) -> None:
    assert imported.observe(rows(3, TODAY + 9 * DAY), errors="skip").accepted == 0
    assert imported.now == END
    assert kept(imported) == (60, 400)


def test_history_after_live_rows_does_not_set_the_time(today: Stand, tmp_path: Path) -> None:
    store = today.create()
    observed(store, rows(10, TODAY))
    list(store.replay(saved(tmp_path)))
    assert store.now == TODAY * SECOND


def test_history_without_event_times_comes_now(today: Stand, tmp_path: Path) -> None:
    store = today.create(TIMELESS)
    list(store.replay(saved(tmp_path, HISTORY.drop_columns(["t"]), TIMELESS)))
    assert store.now == TODAY * SECOND


def test_given_clock_is_trusted_after_an_import(stand: Stand, tmp_path: Path) -> None:
    stand.clock.now = TODAY
    store = stand.create()
    list(store.replay(saved(tmp_path)))
    store.advance()
    assert kept(store) == (0, 0)


def test_store_from_before_goes_by_the_system(today: Stand, imported: Pyramid) -> None:
    inspect.catalogue(imported).run("DELETE FROM about WHERE name = 'clock_follows'")
    assert kept(today.reopen()) == (0, 0)


# --- what is about to be erased -------------------------------------------------------------


def test_due_tells_what_would_be_erased(imported: Pyramid) -> None:
    assert not imported.admin.due().erases
    due = imported.admin.due(TODAY)
    assert (due.at, due.retired, due.steps, due.rows) == (int(TODAY * SECOND), (1, 2, 3), 3, 60)
    assert due.sealed == (3,)
    assert kept(imported) == (60, 400)


def test_open_announces_before_it_erases(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(10))
    stand.close()
    stand.clock.pass_(20 * DAY)
    said: list[tuple[Due, int]] = []

    def announce(due: Due) -> None:
        said.append((due, len(list((stand.path / "hot").iterdir()))))

    stand.held(Pyramid.open(stand.path, **stand.given, announce=announce))
    ((due, files),) = said
    assert (due.steps, due.rows, due.retired, files) == (1, 10, (), 1)
    assert not list((stand.path / "hot").iterdir())


def test_open_announces_nothing_where_nothing_goes(stand: Stand) -> None:
    observed(stand.create(), rows(10))
    stand.close()
    stand.held(Pyramid.open(stand.path, **stand.given, announce=lambda _: pytest.fail("said")))


# --- reading ------------------------------------------------------------------------------------


@pytest.fixture
def overdue(stand: Stand) -> Stand:
    """A store whose hot rows, and one of whose two sealed windows, are past their time."""
    store = stand.create()
    for _ in range(3):
        observed(store, rows(10, stand.clock.now))
        stand.clock.pass_(10 * DAY)
        store.advance()
    observed(store, rows(10, stand.clock.now))
    stand.close()
    stand.clock.now = START + 55 * DAY
    return stand


def test_reader_erases_nothing(overdue: Stand) -> None:
    files = {name: overdue.files(name) for name in ("hot", "tables")}
    store = overdue.held(Pyramid.open(overdue.path, **overdue.given, advance=False))
    for read in (store.snapshot, store.training_set):
        with pytest.raises(ExpiredError, match=r"past (its|their) time and may not be read"):
            read()
    assert settled(store).status().due
    assert {name: overdue.files(name) for name in files} == files
    assert kept(store) == (10, 30)


def test_reader_reads_what_is_within_its_time(overdue: Stand) -> None:
    overdue.clock.now = START + 45 * DAY
    store = overdue.held(Pyramid.open(overdue.path, **overdue.given, advance=False))
    assert store.snapshot().featurize(rows(3)).num_rows == 3
    assert kept(store) == (10, 30)


def test_reader_that_advances_erases(overdue: Stand) -> None:
    store = overdue.held(Pyramid.open(overdue.path, **overdue.given, advance=False))
    assert store.advance().retired == [1]
    assert store.snapshot().guarantee.windows == 3
