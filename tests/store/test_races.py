"""Two things at once, at the worst moment: each interleaving is forced, none is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyramidion import Pyramid
from pyramidion.errors import ObservationError, StateError
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import Replay, in_order
from pyramidion.storage.hot import Receipt
from pyramidion.storage.segments import Segments
from tests.store import inspect
from tests.store.inspect import populating, settled
from tests.store.stores import DAY, HOUR, SCHEMA, SECOND, START, Stand, observed, rows, states
from tests.waiting import PATIENCE as LONG


def beside(work: Callable[[], Any]) -> None:
    """Do some work in another thread, and wait until it is done."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LONG)
    assert not thread.is_alive()


def of(folder: Path, **tables: pa.Table) -> Replay:
    """A history of some files, in the order given, ten rows at a time."""
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    files = [DataFile(folder / f"{name}.parquet") for name in tables]
    return in_order(files, SCHEMA, chunk=10)


# --- a history ----------------------------------------------------------------------------


@pytest.fixture
def lived(stand: Stand) -> Pyramid:
    """A store with a sealed window, a populating one and hot rows."""
    store = stand.create()
    for day in range(13):
        stand.clock.now = START + day * DAY
        observed(store, rows(5, stand.clock.now, seed=day))
    store.advance()
    assert [state for state, _ in states(store).values()] == ["sealed", "populating"]
    return store


def astray(stand: Stand) -> pa.Table:
    """Rows of now, and one whose time was given in milliseconds."""
    now = stand.clock.now
    return pa.concat_tables([rows(4, now), rows(1, now * 1_000)])


def kept(store: Pyramid) -> tuple[Any, ...]:
    """What a clock that ran ahead would have erased, and that clock."""
    found = store.status()
    clock = int(inspect.catalogue(store).about("clock"))
    sealed = [window for window in found.windows if window.state == "sealed"]
    return found.at, clock, sealed, len(found.windows), found.hot_steps, found.deletions


def test_a_row_from_afar_refuses_its_piece_and_does_not_move_the_clock(
    stand: Stand, lived: Pyramid, tmp_path: Path
) -> None:
    before, hot = kept(lived), lived.status().hot_rows
    with pytest.raises(ObservationError, match="future"):
        list(lived.replay(of(tmp_path, bad=astray(stand))))
    settled(lived)
    assert kept(lived) == before
    assert lived.status().hot_rows == hot + 4  # the piece before it, which ends with its window
    assert kept(stand.reopen()) == before


def test_a_row_from_afar_is_left_out_and_does_not_move_the_clock(
    stand: Stand, lived: Pyramid, tmp_path: Path
) -> None:
    before, hot = kept(lived), lived.status().hot_rows
    receipts = list(lived.replay(of(tmp_path, bad=astray(stand)), errors="skip"))
    assert sum(receipt.accepted for receipt in receipts) == 4
    assert sum(receipt.refused for receipt in receipts) == 1
    assert kept(lived) == before
    assert lived.status().hot_rows == hot + 4
    assert kept(stand.reopen()) == before


def test_two_replays_of_one_history_in_turns_count_each_row_once(
    stand: Stand, tmp_path: Path
) -> None:
    store = stand.create()
    one, other = (store.replay(of(tmp_path, part=rows(40))) for _ in range(2))
    assert next(one).accepted == next(other).accepted == 10
    with pytest.raises(StateError, match="imported already"):
        next(one)
    assert sum(receipt.accepted for receipt in other) == 20
    assert store.status().hot_rows == populating(store).rows == 40


# --- locks --------------------------------------------------------------------------------


class Watched:
    """A lock that tells when somebody has to wait for it, and is not waited for for ever."""

    waiting = threading.Event()

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waiting.set()
            if not self._lock.acquire(timeout=LONG):
                raise AssertionError("two threads wait for each other")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_spending_while_a_window_opens_waits_for_nobody_who_waits_for_it(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watched, "waiting", threading.Event())
    instead = SimpleNamespace(RLock=Watched)
    monkeypatch.setattr("pyramidion.storage.catalogue.threading", instead)
    store = stand.create(selection_share=0.1)
    observed(store, rows(5))
    ledger, problems = store.ledger, list[BaseException]()
    real, amount = ledger.open, Fraction(1, 10**6)

    def spend() -> None:
        try:
            ledger.spend("selection", amount, [1], 0)
        except BaseException as problem:
            problems.append(problem)

    spender = threading.Thread(target=spend, daemon=True)

    def open_(*given: Any, **named: Any) -> None:  # in a transaction already
        spender.start()
        assert Watched.waiting.wait(LONG)
        real(*given, **named)

    monkeypatch.setattr(ledger, "open", open_)
    stand.clock.pass_(10 * DAY)
    assert store.observe(rows(5, stand.clock.now)).accepted == 5
    spender.join(LONG)
    assert not spender.is_alive()
    assert problems == []
    uses = [line for line in ledger.report().windows[0].lines if line.kind == "spend"]
    assert [line.amount for line in uses] == [amount]


@pytest.mark.parametrize("reads", [1])
def test_who_asked_what_is_due_before_a_seal_does_not_switch_retention_off(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    store = stand.create()
    observed(store, rows(30))
    stand.clock.pass_(5 * DAY)
    assert store.advance().rows_erased == 30  # from here on nothing is known of sealed windows
    real, came, goes = inspect.catalogue(store).all, threading.Event(), threading.Event()
    left, now = [reads], int(stand.clock.now * SECOND)
    asker = threading.Thread(target=lambda: inspect.parts(store).schedule.is_due(now), daemon=True)

    def all_(sql: str, *values: object) -> Any:
        found = real(sql, *values)
        if threading.current_thread() is asker:
            left[0] -= 1
            if not left[0]:
                came.set()
                assert goes.wait(LONG)
        return found

    monkeypatch.setattr(inspect.catalogue(store), "all", all_)
    asker.start()
    assert came.wait(LONG)
    stand.clock.pass_(10 * DAY)
    assert store.advance().sealed == [1]
    goes.set()
    asker.join(LONG)
    stand.clock.pass_(300 * DAY)
    assert store.status().due
    assert store.advance().retired == [1]
    assert states(store)[1][0] == "erased"


# --- a stream that can be read once ---------------------------------------------------------


def test_a_stream_is_whole_though_the_schema_changes_between_judging_and_placing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    store.groups.withdraw("a,b", why="on trial")
    table, real, opened = rows(40), inspect.parts(store).opener.open, list[int]()

    def open_(slot: int, now: int) -> int:  # after the rows were judged, before they are placed
        opened.append(real(slot, now))
        if len(opened) == 1:
            beside(lambda: store.groups.add(["a", "b"]))
        return opened[-1]

    monkeypatch.setattr(inspect.parts(store).opener, "open", open_)
    stream = pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(7)))
    assert observed(store, stream) == Receipt(40, 0, 0)
    assert ("a", "b") in store.schema.groups
    assert opened == [1]
    assert store.status().hot_rows == populating(store).rows == 40


# --- opening again ----------------------------------------------------------------------------


def test_a_window_that_was_prepared_does_not_make_reopening_read_what_checkpoints_have(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create(checkpoint_rows=50, hot_window="20d")
    for turn in range(12):  # the last three come in the last day of the window
        observed(store, rows(60, stand.clock.now, seed=turn))
        stand.clock.pass_(DAY if turn < 9 else 3 * HOUR)
    older, prepared = inspect.windows(store).values()
    assert (older.arena.rows, prepared.arena.rows) == (720, 0)
    assert older.after > prepared.after  # checkpoints went on after it was prepared
    observed(store, rows(20, stand.clock.now, seed=99))
    stand.close()
    real, read = Segments.read, list[str]()

    def spy(self: Segments, *given: Any) -> Any:
        read.append(given[-1])
        return real(self, *given)

    monkeypatch.setattr(Segments, "read", spy)
    store = stand.open()
    assert len(read) == 1
    assert populating(store, 1).rows == 740


# --- closing ----------------------------------------------------------------------------------


def closing_at(store: Pyramid, monkeypatch: pytest.MonkeyPatch, turn: int) -> None:
    """Have another thread close the store when this one hands on its n-th piece of work."""
    real, left, me = ThreadPoolExecutor.submit, [turn], threading.current_thread()

    def submit(self: ThreadPoolExecutor, *given: Any, **named: Any) -> Any:
        if threading.current_thread() is me:
            left[0] -= 1
            if not left[0]:
                beside(store.close)
        return real(self, *given, **named)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)


def test_rows_that_come_as_the_store_closes_are_refused_in_its_own_words(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    observed(store, rows(5))
    closing_at(store, monkeypatch, turn=1)
    with pytest.raises(StateError, match="closed; open it again"):
        store.observe(rows(7))
    assert stand.reopen().status().hot_rows == 5


def test_rows_that_are_in_before_the_store_closes_get_their_receipt(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create(checkpoint_rows=1)  # so that there is something to be done after them
    observed(store, rows(5))
    closing_at(store, monkeypatch, turn=2)
    assert store.observe(rows(7)) == Receipt(7, 0, 0)
    with pytest.raises(StateError, match="closed; open it again"):
        store.status()
    assert stand.reopen().status().hot_rows == 12


def test_a_store_that_closes_before_it_is_asked_what_is_due_gives_no_other_error(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    observed(store, rows(5))
    stand.clock.pass_(5 * DAY)
    store.advance()  # erases, so the next question goes to the catalogue
    real = inspect.parts(store).schedule.is_due

    def is_due(now: int, **held: bool) -> bool:
        beside(store.close)
        return real(now, **held)

    monkeypatch.setattr(inspect.parts(store).schedule, "is_due", is_due)
    with suppress(StateError):  # what it says, it has its own words for
        assert store.observe(rows(7, stand.clock.now)).accepted == 7
    assert stand.reopen().status().hot_rows == 7
