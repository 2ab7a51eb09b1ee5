"""One observation from observe to erase, seen by an attacker who keeps every version of every file.

The attacker (`tests.store.archive`) has all that the store ever wrote and the store keys that
exist at the moment of the attack. While the marked row is hot that is enough to read it, which
shows that the attack works; once it is erased it is not.
"""

from __future__ import annotations

import struct
import traceback
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pyramidion import KeyHolderError, Pyramid, PyramidionError, StorageError
from pyramidion.storage.pins import FACTS
from tests.store import inspect
from tests.store.archive import Counts, loot, watched
from tests.store.life import (
    DAY,
    EVERYBODY,
    FORKED,
    LEAVES,
    MARKED,
    NAME,
    NAMED,
    ONCE,
    RETIRES,
    SCHEMA,
    SCORE,
    SETTINGS,
    WITHDRAWN,
    Batch,
    Life,
    Moment,
    reopened,
    rows,
)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    made = Life(tmp_path_factory.mktemp("life"))
    with watched(made.archive, made.key_archive):
        made.run()
    yield made
    made.store.close()
    made.archive.close()
    made.key_archive.close()


# --- while it is hot ------------------------------------------------------------------------


@pytest.mark.slow
def test_while_a_row_is_hot_the_archive_and_the_present_keys_yield_it(life):
    for moment in ("the marked row is hot", "the marked row is hot for the last day"):
        found = life.moments[moment].loot
        assert NAME in found.values("name")
        assert SCORE in found.values("score")
        assert found.links(ONCE)


def test_while_rows_are_hot_two_states_of_their_tables_subtract_to_exact_counts(life):
    found = life.moments["the marked row is hot"].loot
    assert [state.kind for state in found.states if state.rows == 0] == ["checkpoint"]
    runs = [
        [batch.number for batch in life.between(window, earlier.rows, later.rows)]
        for window, earlier, later in found.differences()
    ]
    assert runs == [[1, 2, 3, 4, 5]]


def test_with_every_key_that_ever_was_the_archive_yields_all_there_ever_was(life):
    found = loot(life.archive, life.store_keys)
    assert NAME in found.values("name")
    assert found.links(ONCE)
    assert {batch.number for batch in life.batches} <= found.batches.keys()
    names = found.values("name")
    assert all(batch.names <= names for batch in life.batches if batch.day < WITHDRAWN)
    files = {file for file, _ in life.archive.tables()}
    assert {tables.file for tables in found.tables} == files
    assert len(files) > 20


def test_keys_are_found_in_raw_bytes_without_asking_sqlite(life):
    keys = {key for each in life.archive.catalogues() for key in each.keys}
    found = life.archive.wrapped({purpose for _, purpose, _ in keys})
    assert len(found) == 8 + len(FACTS)  # a pin of each fact, and of windows and ledger
    assert all(wrapped in found[purpose] for _, purpose, wrapped in keys)


# --- once its step has left -------------------------------------------------------------------


def _after(life: Life, moment: str) -> Iterator[Moment]:
    names = list(life.moments)
    for name in names[names.index(moment) :]:
        yield life.moments[name]


def test_once_its_step_has_left_the_archive_and_the_present_keys_do_not_yield_the_row(life):
    for moment in _after(life, "the step of the marked row has left"):
        assert moment.loot.keys
        assert NAME not in moment.loot.values("name")
        assert SCORE not in moment.loot.values("score")


def test_once_its_step_has_left_nothing_links_its_idempotency_key(life):
    for moment in _after(life, "the step of the marked row has left"):
        assert moment.loot.digests
        assert not moment.loot.links(ONCE)


def test_at_every_moment_exactly_the_rows_that_are_hot_can_be_read(life):
    for name, moment in life.moments.items():
        gone = {b.number for b in life.batches if b.day == FORKED}  # with the store that had them
        hot = moment.hot - (gone if name == "a backup was restored" else set())
        for found in (moment.loot.batches, moment.loot.known):
            assert {each for each in found if each <= life.batches[-1].number} == hot, name


def test_at_every_moment_states_of_a_table_differ_by_exact_counts_of_hot_rows_alone(life):
    seen = 0
    for name, moment in life.moments.items():
        for window, earlier, later in moment.loot.differences():
            between = life.between(window, earlier.rows, later.rows)
            assert {batch.number for batch in between} <= moment.hot, (name, window)
            assert _same(later.minus(earlier).cells, between), (name, window)
            seen += bool(between)
    assert seen > 5


def _same(found: Counts, batches: list[Batch]) -> bool:
    return all(
        (cells == sum((batch.counts[name] for batch in batches), np.zeros_like(cells))).all()
        for name, cells in found.items()
    )


# --- once its window is over ------------------------------------------------------------------


def test_until_its_window_is_past_retention_its_tables_can_be_read(life):
    window = life.batches[MARKED - 1].window
    kinds = {
        tables.kind
        for tables in life.moments["the window of the marked row is sealed"].loot.tables
        if window in tables.windows
    }
    assert {"sealed", "complete"} <= kinds
    late = life.moments["day 129.5"].loot.tables
    assert {"sealed", "complete"} <= {t.kind for t in late if window in t.windows}


def test_once_its_window_is_erased_no_table_that_counts_the_row_can_be_read(life):
    window = life.batches[MARKED - 1].window
    for moment in _after(life, "the window of the marked row is erased"):
        assert moment.loot.tables
        assert not [tables for tables in moment.loot.tables if window in tables.windows]
        assert not [state for state in moment.loot.states if window in state.windows]
        assert "unknown" not in {tables.kind for tables in moment.loot.tables}


# --- once a feature is withdrawn --------------------------------------------------------------


def test_until_a_feature_is_withdrawn_its_tables_and_values_can_be_read(life):
    found = life.moments["names are known"].loot
    assert {"checkpoint", "sealed", "complete"} <= {
        t.kind for t in found.tables if NAMED & set(t.cells)
    }
    assert "name" in found.columns


def test_once_a_feature_is_withdrawn_no_table_and_no_value_of_it_can_be_read(life):
    for moment in _after(life, "names are withdrawn"):
        assert {"checkpoint", "sealed", "complete"} <= {t.kind for t in moment.loot.tables}
        assert not [tables for tables in moment.loot.tables if NAMED & set(tables.cells)]
        assert moment.loot.columns == {"t", "score", "town"}


# --- copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backup", ["backup 1", "backup 2", "backup 3"])
def test_a_backup_made_before_an_erasure_can_be_neither_restored_nor_opened(life, backup, tmp_path):
    for use in (
        lambda: Pyramid.restore(life.disk / backup, tmp_path / "again", **life.given),
        lambda: Pyramid.open(life.disk / backup, **life.given),
    ):
        with pytest.raises(KeyHolderError, match="destroyed by an erasure"):
            use()
    assert not list(tmp_path.iterdir())


def test_a_restored_backup_ends_the_store_that_it_was_made_of(life):
    with pytest.raises(KeyHolderError, match="taken over by a restored backup"):
        life.store.observe(rows("too late", life.day))
    before, after = (life.moments[name] for name in ("a backup was made", "a backup was restored"))
    forked = {batch.number for batch in life.batches if batch.day == FORKED}
    assert forked <= before.loot.batches.keys()
    assert not forked & after.loot.batches.keys()
    assert after.loot.batches


def test_a_backup_restored_after_its_rows_are_due_does_not_bring_them_back(tmp_path):
    life = Life(tmp_path)
    with watched(life.archive):
        store = Pyramid.create(life.disk / "store", SCHEMA, SETTINGS, **life.given)
        store.observe(rows("1", life.day, marked=True), key=ONCE)
        store.admin.backup(life.disk / "backup")
        store.close()
        life.attack("before")
        life.day = 103.1
        Pyramid.restore(life.disk / "backup", life.disk / "restored", **life.given).close()
        life.attack("after")
    assert NAME in life.moments["before"].loot.values("name")
    after = life.moments["after"].loot
    assert not after.batches
    assert not after.links(ONCE)
    assert after.tables
    assert not [1 for _, earlier, later in after.differences() if earlier.rows != later.rows]
    life.archive.close()


# --- an erasure that is broken off ----------------------------------------------------------------


ERASING = ("erase.before", "erase.added", "rewrap.half", "rewrap.before")
ERASED = (
    *("erase.committed", "erase.truncated", "erase.destroyed", "erase.unlinked", "erase.after"),
)
STEPPING = ("step.before", "checkpoint.before", "checkpoint.written", "checkpoint.after")
RETIRING = ("seal.before", "seal.written", "seal.after", "retire.before", "retire.written")


@pytest.mark.slow
@pytest.mark.parametrize("point", [*STEPPING, "step.checkpointed", *ERASING, *ERASED])
def test_wherever_the_erasure_of_rows_is_broken_off_the_next_open_finishes_it(
    life, point, tmp_path
):
    found = reopened(life.images[LEAVES, point], tmp_path)
    hot = {batch.number for batch in life.batches if 101 <= batch.day < LEAVES}
    assert found.batches.keys() == hot
    assert NAME not in found.values("name")
    assert not found.links(ONCE)
    assert found.states
    for window, earlier, later in found.differences():
        assert {b.number for b in life.between(window, earlier.rows, later.rows)} <= hot


@pytest.mark.slow
@pytest.mark.parametrize("point", [*RETIRING, "retire.after", *ERASING, *ERASED])
def test_wherever_the_erasure_of_a_window_is_broken_off_the_next_open_finishes_it(
    life, point, tmp_path
):
    window = life.batches[MARKED - 1].window
    found = reopened(life.images[RETIRES, point], tmp_path)
    assert {"sealed", "complete"} <= {tables.kind for tables in found.tables}
    assert not [tables for tables in found.tables if window in tables.windows]


@pytest.mark.slow
@pytest.mark.parametrize("point", ERASED)
def test_wherever_a_withdrawal_is_broken_off_once_it_counts_the_next_open_finishes_it(
    life, point, tmp_path
):
    found = reopened(life.images[WITHDRAWN, point], tmp_path)
    assert {"sealed", "complete"} <= {tables.kind for tables in found.tables}
    assert not [tables for tables in found.tables if NAMED & set(tables.cells)]
    assert found.columns == {"t", "score", "town"}


def test_an_erasure_that_the_key_holder_refused_is_finished_by_the_next_advance(
    tmp_path, monkeypatch
):
    life = Life(tmp_path)
    with watched(life.archive):
        store = Pyramid.create(life.disk / "store", SCHEMA, SETTINGS, **life.given)
        store.observe(rows("1", life.day, marked=True), key=ONCE)
        life.day = LEAVES
        with monkeypatch.context() as patch:
            patch.setattr(type(inspect.keys(store).holder), "drop", _fails)
            with pytest.raises(PyramidionError, match="the disk is full"):
                store.advance()
        life.attack("refused")
        store.advance()
        life.attack("finished")
        store.close()
    assert NAME in life.moments["refused"].loot.values("name")
    assert not life.moments["finished"].loot.batches
    assert not life.moments["finished"].loot.links(ONCE)
    life.archive.close()


# --- in clear -------------------------------------------------------------------------------------


def test_no_version_of_any_file_holds_a_value_in_clear(life):
    texts = (NAME, ONCE, EVERYBODY, str(SCORE))
    clear = [text.encode(code) for text in texts for code in ("utf-8", "utf-16-le")]
    clear += [struct.pack(code, SCORE) for code in ("<d", ">d")]
    versions = [*life.archive.versions, *life.key_archive.versions]
    assert len(versions) > 300
    assert any(b"regulation" in data for _, data in versions)  # what is public is in clear
    for name, data in versions:
        assert not [text for text in clear if text in data], name


def test_no_error_warning_or_log_tells_a_value(life, tmp_path, caplog, monkeypatch):
    made = Life(tmp_path)
    store = Pyramid.create(made.disk / "store", SCHEMA, SETTINGS, **made.given)
    row = {"t": made.day * DAY, "score": SCORE, "name": NAME, "town": "x"}
    told: list[str] = []

    def refused(use: Callable[[], object]) -> None:
        with pytest.raises(PyramidionError) as problem:
            use()
        told.extend(traceback.format_exception(problem.value))
        told.append(repr(getattr(problem.value, "problems", "")))

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for bad in ({"score": NAME}, {"t": NAME}, {"t": 1e9}, {"score": None}, {"name": object()}):
            refused(lambda bad=bad: store.observe([row, row | bad], key=ONCE))
        refused(lambda: store.observe([row], key=ONCE * 100))
        with monkeypatch.context() as patch:
            patch.setattr(type(inspect.keys(store)), "must_be_held", _fails)
            refused(lambda: store.observe([row], key=ONCE))
        (made.holder / "key").rename(made.holder / "elsewhere")
        refused(lambda: store.observe([row], key=ONCE))
        (made.holder / "elsewhere").rename(made.holder / "key")
        assert store.observe([row], key=ONCE).accepted == 1
        store.close()
        refused(lambda: store.observe([row], key=ONCE))
        for segment in (made.disk / "store" / "hot").iterdir():
            segment.write_bytes(segment.read_bytes()[:-1] + b"?")
        refused(lambda: Pyramid.open(made.disk / "store", **made.given))
    assert len(told) > 20
    for text in [*told, *(str(each.message) for each in warned), caplog.text]:
        assert not [value for value in (NAME, ONCE, str(SCORE)) if value in text]


def _fails(*_: object) -> None:
    raise StorageError("the disk is full")
