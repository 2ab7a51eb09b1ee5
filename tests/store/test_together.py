"""Observing together: one commit for many arrivals, and each is answered as if it came alone."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pyramidion import Arrival, Pyramid, Schema
from pyramidion.errors import ObservationError, PyramidionError, StateError, StorageError
from pyramidion.storage import records
from pyramidion.storage.hot import Receipt, Stored
from pyramidion.storage.idempotency import CONTENT
from tests.store import inspect, teaching
from tests.store.inspect import populating, sealed, settled
from tests.store.peopling import EXACT, PEOPLE, a_stand, arenas, of
from tests.store.stores import (
    DAY,
    HOUR,
    SCHEMA,
    START,
    TIMELESS,
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
from tests.vault import vaults


def each(batch: pa.Table) -> list[Arrival]:
    """An arrival for each row."""
    return [Arrival([row]) for row in batch.to_pylist()]


def kept(store: Pyramid) -> list[pa.Table]:
    """The batches that are hot."""
    return [table for _, table, _ in inspect.hot(store).batches()]


def bad(size: int = 1) -> list[dict[str, Any]]:
    return [row | {"y": 9} for row in rows(size).to_pylist()]


# --- the same as one after the other -----------------------------------------------------------

NOW = START + 10 * DAY - HOUR / 2
ROW = st.fixed_dictionaries(
    {
        "t": st.sampled_from([NOW, NOW, NOW + HOUR, NOW - 9 * DAY, NOW - 11 * DAY, NOW + DAY]),
        "y": st.sampled_from([0, 1, 1, 1, 0, 9, None, "1", True]),
        "a": st.sampled_from(["u", "v", 1, 2.0, 2.5, None, True, b"u", float("nan"), 1 << 70]),
        "b": st.sampled_from(["x", "y", "z", None]),
        "who": st.sampled_from(["1", "2", 1, 2, 2, True, 2.0, b"1", None]),
        "p": st.sampled_from([0.5, 1, 1.0, 2.0]),
    }
)
PLAIN = st.fixed_dictionaries(
    {
        "t": st.sampled_from([NOW, NOW + HOUR, NOW - 11 * DAY]),
        "y": st.sampled_from([0, 1]),
        "a": st.sampled_from(["u", "v"]),
        "b": st.sampled_from(["x", "z"]),
        "who": st.sampled_from(["1", "2", "3"]),
        "p": st.sampled_from([0.5, 1.0]),
    }
)


def as_table(made: list[dict[str, Any]]) -> Any:
    try:
        return pa.Table.from_pylist(made)
    except (pa.ArrowException, OverflowError):
        return made


def as_categories(made: list[dict[str, Any]]) -> Any:
    table = as_table(made)
    if not isinstance(table, pa.Table) or not made or table["b"].type != pa.string():
        return made
    return table.set_column(3, "b", table["b"].dictionary_encode())


FORMS = [
    *[list] * 4,
    *[as_table] * 2,
    as_categories,
    lambda made: made[0] if len(made) == 1 else made,
    lambda made: {name: [row[name] for row in made] for name in made[0]} if made else made,
    lambda made: [{name: row[name] for name in row if name != "a"} for row in made],
    lambda made: [*made, None],
]
ARRIVALS = st.lists(
    st.builds(
        lambda made, form, key, errors: Arrival(form(made), key, errors),
        st.one_of(
            st.lists(PLAIN, max_size=3), st.lists(PLAIN, max_size=1), st.lists(ROW, max_size=3)
        ),
        st.sampled_from(FORMS),
        st.sampled_from([None, None, "k", "l", ""]),
        st.sampled_from(["refuse", "refuse", "skip"]),
    ),
    min_size=1,
    max_size=12,
)
STORES: list[tuple[Schema, dict[str, Any]]] = [
    (PEOPLE, EXACT),
    (PEOPLE, EXACT | {"max_rows_per_window": 5}),
    (SCHEMA, {"epsilon": float("inf")}),
    (TIMELESS, {"epsilon": float("inf"), "count_window": 4}),
]


def alone(store: Pyramid, arrivals: Sequence[Arrival]) -> Iterator[Receipt | PyramidionError]:
    """The naive twin."""
    for arrival in arrivals:
        try:
            yield observed(store, arrival.batch, key=arrival.key, errors=arrival.errors)
        except PyramidionError as problem:
            yield problem


def told(answers: Sequence[Receipt | PyramidionError]) -> list[Any]:
    return [(type(answer), str(answer), getattr(answer, "problems", None)) for answer in answers]


def windows_of(store: Pyramid) -> dict[int, tuple[int, str, int]]:
    """Number, state and rows of windows with rows, by their slot: which is opened first differs."""
    query = "SELECT slot, number, state, rows FROM table_sets WHERE level = 0 AND rows > 0"
    return {slot: (*more,) for slot, *more in inspect.catalogue(store).all(query)}


def hot(store: Pyramid) -> Counter[Any]:
    """The hot rows as they are counted: keys, label, weight, and the slot of each."""
    lifecycle, found = inspect.parts(store).lifecycle, Counter[Any]()
    slots = {number: slot for slot, (number, *_) in windows_of(store).items()}
    for number, table, parts in inspect.hot(store).batches():
        counted = lifecycle.recounted(number, records.batch_of(table))
        goes = [slots[window] for window, size in parts for _ in range(size)]
        weights = np.broadcast_to(counted.weights, len(counted))
        keys = counted.matrix(0, len(counted)).T.tolist()
        for row in zip(goes, keys, counted.labels.tolist(), weights.tolist(), strict=True):
            found[str(row)] += 1
    return found


@pytest.mark.slow
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(made=st.sampled_from(STORES), arrivals=ARRIVALS, cut=st.integers(0, 12))
def test_arrivals_together_are_answered_and_counted_as_one_after_the_other(
    made: tuple[Schema, dict[str, Any]], arrivals: list[Arrival], cut: int
) -> None:
    with a_stand() as one, a_stand() as other:
        stores = [stand.create(made[0], **made[1]) for stand in (one, other)]
        one.clock.now = other.clock.now = NOW
        due = list(alone(stores[0], arrivals))
        found = stores[1].observe_all(arrivals[:cut]) + stores[1].observe_all(arrivals[cut:])
        settled(stores[1])
        assert told(found) == told(due)
        assert hot(stores[1]) == hot(stores[0])
        tables = [arenas(store) for store in stores]
        assert tables[0].keys() == tables[1].keys()
        for slot in tables[0]:
            assert same(cells(tables[0][slot]), cells(tables[1][slot]))
        one_, other_ = (windows_of(store) for store in stores)
        assert {s: w[1:] for s, w in one_.items()} == {s: w[1:] for s, w in other_.items()}
        again = [Arrival(rows(0), key) for key in ("k", "l")]
        assert told(other.reopen().observe_all(again)) == told(list(alone(one.reopen(), again)))


# --- one commit ----------------------------------------------------------------------------------


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each sync of rows."""
    real, seen = os.fdatasync, list[int]()
    monkeypatch.setattr(os, "fdatasync", lambda file: (seen.append(file), real(file)))
    return seen


def commits(store: Pyramid) -> list[str]:
    """Grows with each transaction."""
    seen: list[str] = []
    inspect.catalogue(store)._db.set_trace_callback(
        lambda sql: seen.append(sql) if sql == "COMMIT" else None
    )
    return seen


def test_arrivals_that_are_alike_are_one_batch_in_one_commit(
    stand: Stand, syncs: list[int]
) -> None:
    store = stand.create()
    store.observe(rows(1))
    syncs.clear()
    seen = commits(store)
    batch = rows(40, seed=1)
    assert store.observe_all(each(batch)) == [Receipt(1, 0, 0)] * 40
    assert (len(syncs), len(seen)) == (1, 1)
    assert kept(store)[1].to_pydict() == batch.to_pydict()


def test_arrivals_that_are_not_alike_are_several_batches_in_one_commit(
    stand: Stand, syncs: list[int]
) -> None:
    store = stand.create()
    store.observe(rows(1))
    syncs.clear()
    seen = commits(store)
    batches = [rows(size, seed=size) for size in (2, 3, 4, 5)]
    forms = [batches[0], batches[1].to_pylist(), batches[2].to_pandas(), batches[3]]
    answers = store.observe_all([Arrival(form, str(n)) for n, form in enumerate(forms)])
    assert answers == [Receipt(size, 0, 0) for size in (2, 3, 4, 5)]
    assert (len(syncs), len(seen)) == (1, 1)
    before = noise(store, populating(store), [rows(1), *batches])
    store = stand.reopen()
    assert [table.to_pydict() for table in kept(store)[1:]] == [b.to_pydict() for b in batches]
    assert same(noise(store, populating(store), [rows(1), *batches]), before)
    assert store.observe_all([Arrival(form, str(n)) for n, form in enumerate(forms)]) == answers


def test_the_last_of_several_batches_may_be_left_out_and_all_are_synced(
    stand: Stand, syncs: list[int]
) -> None:
    store = stand.create(max_rows_per_window=10)
    store.observe(rows(1))
    syncs.clear()
    group = [Arrival(rows(3)), Arrival(rows(4).to_pandas()), Arrival(rows(5))]
    *good, full = store.observe_all(group)
    assert good == [Receipt(3, 0, 0), Receipt(4, 0, 0)]
    assert "window 1 has room for 2 rows and 5 came for it" in str(full)
    assert len(syncs) == 1
    assert stand.reopen().status().hot_rows == 8


def test_windows_by_rows_that_several_arrivals_fill_take_each_row_once(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window=10, epsilon=float("inf"))
    batch = rows(35)
    assert store.observe_all(each(batch)) == [Receipt(1, 0, 0)] * 35
    settled(store)
    assert [v for _, v in states(store).items() if v[1]] == [
        ("sealed", 10),
        ("sealed", 10),
        ("sealed", 10),
        ("populating", 5),
    ]
    second = sealed(store, 2)
    assert same(cells(second), exact(store, second, [batch.slice(10, 10)]))


def test_no_arrivals_are_no_commit(stand: Stand, syncs: list[int]) -> None:
    store = stand.create()
    assert store.observe_all([]) == []
    assert not syncs


# --- each its own answer -------------------------------------------------------------------------


def test_a_bad_arrival_refuses_itself_alone_and_says_its_own_rows(stand: Stand) -> None:
    store = stand.create()
    two = [*rows(1).to_pylist(), *bad()]
    group = [*each(rows(2)), Arrival(two), Arrival(bad()), *each(rows(2, seed=1))]
    answers = store.observe_all(group)
    assert [isinstance(a, Receipt) for a in answers] == [True, True, False, False, True, True]
    assert str(answers[2]).startswith("1 of 2 rows cannot be counted (row 1: column 'y'")
    assert str(answers[3]).startswith("1 of 1 rows cannot be counted (row 0: column 'y'")
    assert store.status().hot_rows == 4
    assert len(kept(store)) == 1


def test_a_refusal_keeps_no_row_alive(stand: Stand) -> None:
    (answer,) = stand.create().observe_all([Arrival(bad())])
    assert isinstance(answer, ObservationError)
    assert answer.__traceback__ is None
    assert answer.__context__ is None


def test_arrivals_that_skip_and_such_that_refuse_are_one_batch(stand: Stand) -> None:
    store = stand.create()
    mixed = [*rows(2).to_pylist(), *bad()]
    group = [Arrival(mixed, errors="skip"), Arrival(mixed), Arrival(bad(), errors="skip")]
    skipped, refused, nothing = store.observe_all(group)
    assert skipped == Receipt(2, 1, 0)
    assert isinstance(refused, ObservationError)
    assert nothing == Receipt(0, 1, 0)
    assert len(kept(store)) == 1


def test_a_container_that_cannot_be_read_refuses_itself_alone(stand: Stand) -> None:
    store = stand.create()
    odd = [Arrival(7), Arrival(rows(2).drop_columns(["a"])), Arrival(pd.DataFrame({"q": [1]}))]
    answers = store.observe_all([*each(rows(1)), *odd, Arrival(rows(2), errors="drop")])  # type: ignore[arg-type]
    assert answers[0] == Receipt(1, 0, 0)
    assert all(isinstance(answer, ObservationError) for answer in answers[1:])


def test_a_damaged_table_refuses_itself_alone(stand: Stand) -> None:
    store = stand.create()
    offsets = pa.py_buffer(np.array([0, -5, 1], np.int32).tobytes())
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"x")])
    good = [rows(2, seed=seed) for seed in range(3)]
    broken = good[0].set_column(2, "a", column)
    answers = store.observe_all([Arrival(table) for table in (*good, broken, *good)])
    assert [isinstance(answer, Receipt) for answer in answers] == [True] * 3 + [False] + [True] * 3
    assert "column 'a' is damaged" in str(answers[3])


def test_an_overfull_window_refuses_who_does_not_fit_and_takes_who_does(stand: Stand) -> None:
    store = stand.create(max_rows_per_window=10)
    sizes = (4, 4, 4, 1, 2)
    answers = store.observe_all([Arrival(rows(size).to_pylist()) for size in sizes])
    assert [isinstance(answer, Receipt) for answer in answers] == [True, True, False, True, False]
    assert "window 1 has room for 2 rows and 4 came for it" in str(answers[2])
    assert isinstance(answers[4], StateError)
    assert states(store)[1] == ("populating", 9)


def test_late_and_blanked_rows_are_told_to_who_sent_them(stand: Stand) -> None:
    store = stand.create(PEOPLE, **EXACT)
    stand.clock.now = NOW
    times = [(["a", "a"], NOW), (["a", "b"], START - DAY), (["b", "b"], [NOW + HOUR, START - DAY])]
    group = [Arrival(of(who, at).to_pylist()) for who, at in times]
    assert store.observe_all(group) == [
        Receipt(2, 0, 0, 0),
        Receipt(2, 0, 2, 1),
        Receipt(2, 0, 1, 1),
    ]
    assert len(kept(store)) == 1
    stored = [s for step in inspect.hot(store).steps for s in step.batches]
    assert stored[0].receipt == Receipt(6, 0, 3, 2)


# --- keys ----------------------------------------------------------------------------------------


def test_each_key_gives_its_own_receipt_again_also_after_reopening(stand: Stand) -> None:
    store = stand.create()
    mixed = [*rows(2).to_pylist(), *bad()]
    group = [Arrival(rows(1).to_pylist()), Arrival(mixed, "one", "skip"), Arrival(rows(3), "two")]
    first = store.observe_all(group)
    assert first[1:] == [Receipt(2, 1, 0), Receipt(3, 0, 0)]
    for reopened in (False, True):
        again = stand.reopen() if reopened else store
        assert again.observe_all(group[1:]) == first[1:]
        assert again.status().hot_rows == 6


def test_two_under_one_key_are_one(stand: Stand) -> None:
    store = stand.create()
    group = [Arrival(rows(2).to_pylist(), "k")] * 3
    assert store.observe_all(group) == [Receipt(2, 0, 0)] * 3
    assert store.status().hot_rows == populating(store).rows == 2


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("other", [rows(2, seed=8), rows(3), bad()])
def test_other_content_under_a_key_is_refused(stand: Stand, other: Any, together: bool) -> None:
    store = stand.create()
    group = [Arrival(rows(2), "k"), Arrival(other, "k"), Arrival(rows(2), "k")]
    first, second, third = store.observe_all(group) if together else alone(store, group)
    assert first == third == Receipt(2, 0, 0)
    assert isinstance(second, StateError)
    assert "other rows" in str(second)
    assert stand.reopen().status().hot_rows == 2


def test_key_of_another_sender_is_another_key(stand: Stand) -> None:
    store = stand.create()
    group = [Arrival(rows(2, seed=n), "k", sender=name) for n, name in enumerate(["", "a", "b"])]
    assert store.observe_all(group) == [Receipt(2, 0, 0)] * 3
    assert store.observe_all(group) == [Receipt(2, 0, 0)] * 3
    assert store.status().hot_rows == 6


@pytest.mark.parametrize(
    "form",
    [
        lambda table: table.to_pylist(),
        lambda table: table.to_pandas(),
        lambda table: pa.concat_tables([table.slice(0, 3), table.slice(3)]),
        lambda table: pa.concat_tables([rows(4), table]).slice(4),
        lambda table: pa.concat_tables([table, rows(4)]).combine_chunks().slice(0, 7),
    ],
)
def test_retry_is_recognised_in_any_chunks(stand: Stand, form: Callable[[Any], Any]) -> None:
    store = stand.create()
    receipt = store.observe(form(rows(7)), key="k")
    again = pa.concat_tables([rows(7).slice(0, 2), rows(7).slice(2)])
    same = again if isinstance(form(rows(7)), pa.Table) else form(rows(7))
    assert store.observe(same, key="k") == receipt
    assert store.status().hot_rows == 7


@pytest.mark.parametrize("form", [pa.Table.to_pylist, lambda table: table])
def test_retry_is_recognised_without_a_withdrawn_column(
    stand: Stand, form: Callable[[Any], Any]
) -> None:
    store = stand.create()
    receipt = store.observe(form(rows(5)), key="k")
    store.groups.withdraw("b", why="asked for")
    assert store.observe(form(rows(5)), key="k") == receipt
    assert store.status().hot_rows == 5


def test_content_is_no_hash_that_store_keys_open(stand: Stand) -> None:
    # With the same step, the same rows under two keys have different hashes: a guess of the rows
    # is worth nothing without the sender's key.
    store = stand.create()
    store.observe_all([Arrival(rows(1), key, content=b"same") for key in ("one", "two")])
    found = inspect.hot(store).steps[0].batches[0].contents
    assert found is not None
    assert len(found) == 2 * CONTENT
    assert found[:CONTENT] != found[CONTENT:]
    assert b"same" not in found


def test_key_from_before_contents_were_bound_is_still_known(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(2), key="k")
    for step in inspect.hot(store).steps:
        stored = [replace(batch, contents=None) for batch in step.batches]
        for each in stored:
            inspect.catalogue(store).run(
                "UPDATE batches SET sealed = ? WHERE number = ?", each.sealed(step.key), each.number
            )
    store = stand.reopen()
    retry, other = Arrival(rows(2), "k", sender="a"), Arrival(rows(3), "l", sender="a")
    assert store.observe_all([retry, other]) == [Receipt(2, 0, 0), Receipt(3, 0, 0)]
    assert store.status().hot_rows == 5


def test_a_key_whose_first_arrival_was_refused_is_the_second_ones(stand: Stand) -> None:
    store = stand.create()
    refused, taken = store.observe_all([Arrival(bad(), "k"), Arrival(rows(2).to_pylist(), "k")])
    assert isinstance(refused, ObservationError)
    assert taken == Receipt(2, 0, 0)


def test_keys_leave_with_their_rows_and_are_nowhere_in_clear(stand: Stand) -> None:
    store = stand.create()
    store.observe_all([Arrival([row], f"4711-{row['a']}") for row in rows(9).to_pylist()])
    for file in stand.folder.rglob("*"):
        assert file.is_dir() or b"4711-" not in file.read_bytes()
    assert inspect.catalogue(store).one("SELECT count(*) FROM arrivals") > 1
    stand.clock.pass_(4 * DAY)
    store.advance()
    assert inspect.catalogue(store).one("SELECT count(*) FROM arrivals") == 0


def test_how_long_what_is_known_of_a_batch_is_does_not_tell_what_became_of_its_rows(
    stand: Stand,
) -> None:
    step = Sealing(stand)
    lengths = {step.length(late, refused) for late in (0, 7) for refused in (0, 123_456)}
    assert len(lengths) == 1


class Sealing:
    """Seals what is known of a batch of forty arrivals."""

    def __init__(self, stand: Stand) -> None:
        store = stand.create()
        store.observe(rows(1))
        self.key = inspect.hot(store).steps[0].key

    def length(self, late: int, refused: int) -> int:
        each = np.array([[1, refused, late, 0]] * 40, dtype="<i8").tobytes()
        stored = Stored(2, 0, 4_096, Receipt(40, 0, 0), [(1, 40)], erased=[], receipts=each)
        assert stored.receipt_of(39) == Receipt(1, refused, late)
        sealed = stored.sealed(self.key)
        assert Stored.opened(2, sealed, self.key) == stored
        return len(sealed)


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["fdatasync", "acknowledge", "append"])
def test_a_commit_that_fails_refuses_all_and_takes_all_counts_back(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    store = stand.create(PEOPLE, k=1, p_min=0.5, delta=0.0)
    store.observe(of(["z"]))
    before = cells(populating(store))
    names = [of(["a", "b"]), of(["b", "c"], seed=1).to_pylist(), of(["d"], seed=2).to_pandas()]
    group = [*(Arrival(name, str(n)) for n, name in enumerate(names)), Arrival(7)]
    place: Any = os if where == "fdatasync" else inspect.hot(store)
    problem = OSError(errno.ENOSPC, "full") if place is os else StorageError("a full disk")
    left = failing_once(monkeypatch, place, where, problem)
    answers = store.observe_all(group)
    assert not left
    assert [type(answer) for answer in answers] == [StorageError] * 3 + [ObservationError]
    assert len({id(answer) for answer in answers}) == 4
    assert same(cells(populating(store)), before)
    assert store.status().hot_rows == 1
    assert store.observe_all(group)[:3] == [
        Receipt(2, 0, 0),
        Receipt(2, 0, 0, 1),
        Receipt(1, 0, 0),
    ]
    assert stand.reopen().status().hot_rows == 6


def test_counting_that_fails_in_a_later_batch_takes_the_earlier_ones_back(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    store.observe(rows(1))
    arena = populating(store)
    before, real, calls = cells(arena), arena.add, []

    def add(*given: Any) -> None:
        calls.append(given)
        if len(calls) == 2:
            raise StorageError("out of memory")
        real(*given)

    monkeypatch.setattr(arena, "add", add)
    answers = store.observe_all([Arrival(rows(3)), Arrival(rows(4).to_pandas())])
    assert [type(answer) for answer in answers] == [StorageError] * 2
    assert same(cells(arena), before)
    assert arena.rows == 1


def test_the_schema_may_change_between_judging_and_placing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    lifecycle, calls = inspect.parts(store).lifecycle, list[int]()
    opener = inspect.parts(store).opener
    real = opener.open

    def open_(slot: int, now: int) -> int:
        if not calls:
            calls.append(slot)
            lifecycle.learn(store.schema.only(["a", "b"]))
        return real(slot, now)

    monkeypatch.setattr(opener, "open", open_)
    group = [*each(rows(5)), Arrival(rows(3).to_pandas())]
    assert [answer.accepted for answer in store.observe_all(group)] == [1] * 5 + [3]  # type: ignore[union-attr]
    assert calls
    assert populating(store).rows == store.status().hot_rows == 8


# --- those who are told --------------------------------------------------------------------------


def test_the_vault_gets_every_arrival_of_a_group(stand: Stand) -> None:
    stand.vault = stand.folder / "vault"
    store = stand.create()
    batches = [rows(3, seed=1), rows(4, seed=2), rows(5, seed=3)]
    store.observe_all([*each(batches[0]), Arrival(batches[1].to_pandas()), Arrival(batches[2])])
    found = [table.num_rows for _, table in sorted(vaults.sealed(store).items())]
    assert found == [3, 4, 5]


@pytest.mark.usefixtures("trainer")
def test_models_that_learn_online_learn_every_row_of_a_group_once(stand: Stand) -> None:
    store = teaching.lived(stand)
    store.register("learner", teaching.Learner())
    stand.clock.now = START + 11.5 * DAY
    days = [teaching.marked(day) for day in (11.25, 11.5)]
    store.observe_all([*each(days[0]), Arrival(days[1])])
    learned = teaching.fitted(store, "learner").y_.tolist()
    assert learned[-12:] == [label for day in days for label in day["y"].to_pylist()]
    assert Counter(learned).most_common(1)[0][1] == 1
