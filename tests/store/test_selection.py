"""Groups chosen by a store: who pays, what is counted, how trials end, and what is forgotten."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion import Categorical, Label, Pyramid, Schema, SchemaError, Settings
from pyramidion.counts.selection import Coded
from pyramidion.errors import FormatError, PrivacyError, StateError
from pyramidion.privacy.budget import budget_of
from pyramidion.privacy.selection import select
from pyramidion.storage.catalogue import FORGOTTEN
from pyramidion.storage.table_files import TableFiles
from pyramidion.store.group_trials import drop_failed
from pyramidion.store.hot_rows import HotRows
from tests.store import inspect
from tests.store.inspect import populating, sealed
from tests.store.stores import DAY, START, Stand, cells, observed

NAMES = ("a", "b", "c", "d")
SCHEMA = Schema(
    time="t",
    label=Label("y", classes=[0, 1]),
    features=[Categorical(name, domain=list(range(4))) for name in NAMES],
)
MUCH: dict[str, Any] = {
    "epsilon": 30.0,
    "selection_share": 0.4,
    "selection_groups": 1,
    "trial_windows": 2,
    "retention": "40d",
}


def batch(size: int, day: float, seed: int = 0, strength: float = 0.4) -> pa.Table:
    """Rows of which b and d together tell the label."""
    rng = np.random.default_rng([seed, int(day * 10)])
    values = {name: rng.integers(0, 4, size) for name in NAMES}
    p = 0.5 - strength / 2 + strength * ((values["b"] + values["d"]) % 2)
    return pa.table(
        {"t": np.full(size, START + day * DAY), "y": (rng.random(size) < p).astype(int), **values}
    )


def at(stand: Stand, store: Pyramid, day: float) -> Pyramid:
    stand.clock.now = START + day * DAY
    store.advance()
    return store


def fed(stand: Stand, store: Pyramid, *days: float, size: int = 3000, **given: Any) -> Pyramid:
    for day in days:
        at(stand, store, day)
        observed(store, batch(size, day, **given))
    return store


def spends(store: Pyramid) -> dict[int, list[Fraction]]:
    """What each window paid for selections."""
    return {
        window.number: [
            line.amount
            for line in window.lines
            if (line.kind, line.purpose) == ("spend", "selection")
        ]
        for window in store.ledger.report().windows
    }


def tables(store: Pyramid) -> dict[int, dict[str, Fraction]]:
    """What each window paid for tables, as the ledger names them."""
    return {
        window.number: {line.purpose: line.amount for line in window.lines if line.kind == "table"}
        for window in store.ledger.report().windows
    }


def totals(store: Pyramid) -> list[tuple[Fraction, Fraction, Fraction]]:
    """What each window spent and has left, and what its tables cost."""
    cost = {number: sum(paid.values(), Fraction(0)) for number, paid in tables(store).items()}
    windows = store.ledger.report().windows
    return [(window.spent, window.left, cost[window.number]) for window in windows]


def standing(stand: Stand, name: str) -> bool:
    """Whether a name stands in the files of a closed store, in the clear."""
    stand.close()
    files = [path for path in stand.path.rglob("*") if path.is_file()]
    return any(name.encode() in path.read_bytes() for path in files)


def states(store: Pyramid) -> dict[str, str]:
    return {group.name: group.state for group in store.groups.status()}


# --- who pays ---------------------------------------------------------------------------------


def test_every_window_whose_rows_are_hot_pays_in_full_sealed_ones_too(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 9, 11)
    assert [w.state for w in store.status().windows] == ["sealed", "populating"]
    done = store.groups.select()
    whole = budget_of(store.settings)[1] * Fraction("0.4")
    assert (done.groups, done.windows, done.rows) == (("b,d",), (1, 2), 6000)
    assert done.charged == whole
    assert spends(store) == {1: [whole], 2: [whole]}
    line = store.ledger.report().windows[0].lines[-1]
    assert (line.kind, line.why) == ("spend", "groups were chosen")


def test_a_selection_that_does_not_fit_is_refused_and_chooses_nothing(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select(share=Fraction(2, 3))
    with pytest.raises(PrivacyError, match=r"window 1 has rho .* left for selection"):
        store.groups.select(share=Fraction(2, 3))
    store = stand.reopen()
    with pytest.raises(PrivacyError, match="left for selection"):
        store.groups.select(share=Fraction(2, 3))
    assert store.groups.select(share=Fraction(1, 3)).windows == (1,)


def test_nothing_is_chosen_where_nothing_was_kept_back_or_no_row_is_hot(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH | {"selection_share": 0.0}), 1)
    with pytest.raises(PrivacyError, match="kept nothing back for group selection"):
        store.groups.select()
    at(stand, store, 8)
    with pytest.raises(StateError, match="no hot rows"):
        store.groups.select()
    with pytest.raises(PrivacyError, match="above 0 and at most 1"):
        store.groups.select(share=2)


def test_nothing_is_charged_where_no_pair_could_be_chosen(stand: Stand) -> None:
    schema = replace(SCHEMA, features=SCHEMA.features[:3]).plus(("a", "b")).plus(("b", "c"))
    store = fed(stand, stand.create(schema.plus(("a", "c")), **MUCH | {"selection_every": 1}), 1)
    with pytest.raises(StateError, match=r"no pair of features .* nothing can be chosen"):
        store.groups.select()
    fed(stand, store, 11)  # nor by itself
    assert spends(store) == {1: [], 2: []}


def test_nothing_is_charged_for_one_row_that_no_other_can_agree_with(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1, size=1)
    with pytest.raises(StateError, match="fewer than two hot rows"):
        store.groups.select()
    assert spends(store) == {1: []}


# --- people -----------------------------------------------------------------------------------


def of_people(size: int, day: float) -> pa.Table:
    """Rows of which b and d together tell the label, each of somebody else."""
    return batch(size, day).append_column("who", pa.array(range(size)))


def test_a_pair_is_found_in_one_batch_of_rows_that_say_whose_they_are(stand: Stand) -> None:
    store = stand.create(replace(SCHEMA, unit="who"), **MUCH | {"hot_window": "5d"})
    at(stand, store, 1)
    observed(store, of_people(6000, 1))
    assert store.groups.select().groups == ("b,d",)


def test_a_pair_is_found_in_a_batch_of_more_rows_than_are_read_for_twice_the_noise(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyramidion.counts.selection.MOST_CODES", 4 * 6000)
    hidden = []

    def chosen(*given: Any, k: int, **more: Any) -> Any:
        hidden.append(k)
        return select(*given, k=k, **more)

    monkeypatch.setattr("pyramidion.store.select_groups.select", chosen)
    store = stand.create(replace(SCHEMA, unit="who"), **MUCH | {"hot_window": "5d"})
    at(stand, store, 1)
    observed(store, of_people(8000, 1))
    assert store.groups.select().groups == ("b,d",)
    assert hidden == [2 * inspect.parts(store).people.hidden]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["top-k", "center"])
def test_a_selection_does_not_tell_whether_a_person_had_rows(stand: Stand, method: str) -> None:
    schema = replace(SCHEMA, unit="who")
    store = stand.create(schema, **MUCH | {"selection": method, "hot_window": "5d"})
    rows = batch(2000, 1)
    who = ["ann" if number < 7 else str(number) for number in range(2000)]
    at(stand, store, 1)
    observed(store, rows.append_column("who", pa.array(who)))
    store.erase_person("ann")
    assert store.groups.select(share=Fraction(1, 2)).rows == store.status().hot_rows == 2000


def test_a_reserve_that_is_partly_spent_stops_no_new_window(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH | {"selection_every": 1}), 1)
    store.groups.select(share=Fraction(2, 3))
    fed(stand, store, 5, 11, 15)
    assert len(store.status().windows) == 2
    whole = budget_of(store.settings)[1] * Fraction("0.4")
    assert all(sum(paid) <= whole for paid in spends(store).values())


def test_the_charge_is_durable_before_a_row_is_looked_at(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)

    def looked(*_: object) -> None:
        raise StateError("as if killed")

    monkeypatch.setattr(HotRows, "of", looked)
    with pytest.raises(StateError, match="as if killed"):
        store.groups.select()
    assert len(spends(store)[1]) == 1
    assert store.schema.groups == ()


def arriving(store: Pyramid, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rows arrive after a selection was charged, and before it reads any."""
    real, waiting = Coded.of, [rows]

    def late(batches: Any, classes: int, came: Any = None) -> Coded:
        if waiting:
            thread = Thread(target=store.observe, args=[waiting.pop()])
            thread.start()
            thread.join(60)
            assert not thread.is_alive()
        return real(batches, classes, came)

    monkeypatch.setattr(Coded, "of", late)


@pytest.mark.parametrize("unit", [None, "who"])
def test_rows_that_arrive_during_a_selection_are_not_in_it(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, unit: str | None
) -> None:
    store = stand.create(replace(SCHEMA, unit=unit), **MUCH | {"hot_window": "5d"})
    at(stand, store, 1)
    observed(store, of_people(2000, 1))
    read = []

    def chosen(coded: Coded, *given: Any, **more: Any) -> Any:
        read.append(coded.came)
        return select(coded, *given, **more)

    monkeypatch.setattr("pyramidion.store.select_groups.select", chosen)
    arriving(store, of_people(300, 1), monkeypatch)
    assert store.groups.select().rows == 2000
    assert read == [2000]
    assert store.status().hot_rows == 2300


def damage(stand: Stand) -> dict[Path, bytes]:
    """Flip a bit in every file of hot rows; what they were."""
    files = {path: path.read_bytes() for path in (stand.path / "hot").iterdir()}
    for path, data in files.items():
        path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    return files


def test_unreadable_rows_cost_nothing(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    files = damage(stand)
    with pytest.raises(FormatError, match="damaged"):
        store.groups.select()
    assert spends(store) == {1: []}
    for path, data in files.items():
        path.write_bytes(data)
    assert store.groups.select().windows == (1,)


def test_unreadable_rows_cost_nothing_in_automatic_selection(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH | {"selection_every": 1}), 8.5)
    damage(stand)
    fed(stand, store, 10.5)
    assert len(store.status().windows) == 2
    assert spends(store) == {1: [], 2: []}


def test_with_people_all_rows_of_one_are_hidden_in_all_windows_that_are_read(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema(time="t", label=SCHEMA.label, features=SCHEMA.features, unit="who")
    store = stand.create(schema, **MUCH | {"k": 2, "hot_window": "4d"})
    hidden = []

    def chosen(*_: object, k: int, **__: object) -> list[Any]:
        hidden.append(k)
        return []

    monkeypatch.setattr("pyramidion.store.select_groups.select", chosen)
    for day in (9, 11):
        at(stand, store, day)
        rows = batch(50, day)
        observed(store, rows.append_column("who", pa.array(range(50))))
    assert store.groups.select().windows == (1, 2)
    assert hidden == [2 * inspect.parts(store).people.hidden]


# --- what is chosen is counted, apart -----------------------------------------------------------


def test_chosen_groups_are_counted_from_the_next_window_for_a_part_of_the_reserve(
    stand: Stand,
) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select()
    fed(stand, store, 11, 21)
    assert "b,d" not in cells(sealed(store, 1))
    assert "b,d" in cells(sealed(store, 2))
    budget = budget_of(store.settings)[1]
    first, second, _ = store.ledger.report().windows
    paid = {line.purpose: line.amount for line in second.lines if line.kind == "table"}
    before = {line.purpose: line.amount for line in first.lines if line.kind == "table"}
    assert paid.pop("b,d") == budget * Fraction("0.2")
    assert paid == before  # the other tables have what they had
    assert store.ledger.left(2, "selection") == budget * Fraction("0.2")
    assert second.spent + store.ledger.left(2, "selection") == second.budget


def test_tables_of_chosen_groups_share_by_the_root_of_their_cells(stand: Stand) -> None:
    wide = Categorical("c", domain=list(range(58)))  # with 'other' and 'missing' 60 codes, a has 6
    schema = replace(SCHEMA, features=(*SCHEMA.features[:2], wide))
    store = fed(stand, stand.create(schema, **MUCH | {"selection_groups": 3}), 1)
    store.groups.select()
    fed(stand, store, 11)
    lines = {line.purpose: line.amount for line in store.ledger.report().windows[1].lines}
    small, *large = (lines[group] for group in ("a,b", "a,c", "b,c"))
    assert small + sum(large) == budget_of(store.settings)[1] * Fraction("0.2")
    assert [float(share / small) for share in large] == pytest.approx([10**0.5] * 2, rel=1e-3)


def test_groups_by_hand_are_not_chosen_and_stay(stand: Stand) -> None:
    store = stand.create(SCHEMA.plus(("b", "d")), **MUCH | {"selection_groups": 3})
    fed(stand, store, 1)
    chosen = store.groups.select().groups
    assert "b,d" not in chosen
    assert len(chosen) == 3
    fed(stand, store, 11, 21, 31)
    assert states(store)["b,d"] == "by hand"
    assert ("b", "d") in store.schema.groups


def test_larger_groups_grow_from_pairs(stand: Stand) -> None:
    store = stand.create(SCHEMA, **MUCH | {"selection_groups": 2, "selection_parts": 3})
    pair, three = fed(stand, store, 1).groups.select().groups
    assert pair == "b,d"
    assert {"b", "d"} < set(three.split(","))


def test_without_privacy_the_best_are_chosen_and_lines_of_nothing_are_written(
    stand: Stand,
) -> None:
    given = MUCH | {"epsilon": math.inf, "selection": "leaky-mutual-information"}
    store = fed(stand, stand.create(SCHEMA, **given), 1)
    assert store.groups.select().groups == ("b,d",)
    assert spends(store)[1] == [0]


@pytest.mark.parametrize("method", ["top-k", "center", "leaky-mutual-information"])
def test_a_store_without_privacy_says_loudly_that_it_chose_exactly(
    stand: Stand, method: str
) -> None:
    given = MUCH | {"epsilon": math.inf, "selection": method}
    store = fed(stand, stand.create(SCHEMA, **given), 1)
    store.groups.select()
    report = store.ledger.report()
    assert report.windows[0].lines[-1].why == "groups were chosen exactly: NO privacy"
    assert "NO privacy" in str(report)
    fed(stand, store, 11)
    assert str(store.snapshot().guarantee).startswith("P1: NO privacy")


def test_exact_selection_needs_a_store_that_says_it_has_no_privacy() -> None:
    with pytest.raises(SchemaError, match="no budget covers"):
        Settings(epsilon=1.0, selection="leaky-mutual-information")


def test_a_schedule_chooses_once_in_so_many_windows(stand: Stand) -> None:
    given = MUCH | {"selection_every": 2, "trial_windows": 9}
    store = fed(stand, stand.create(SCHEMA, **given), 8.8)
    at(stand, store, 9.5)  # the next window is made
    assert store.schema.groups == (("b", "d"),)
    assert len(spends(store)[1]) == 1
    fed(stand, store, 18.8)
    at(stand, store, 19.5)
    fed(stand, store, 28.8)
    at(stand, store, 29.5)
    paid = spends(store)
    assert [len(paid[window]) for window in (1, 2, 3)] == [1, 0, 1]
    kept = {w.number for w in store.ledger.report().windows if _kept_back(w)}
    assert kept == {1, 3}


def _kept_back(window: Any) -> bool:
    return any((line.kind, line.purpose) == ("reserve", "selection") for line in window.lines)


# --- trials -----------------------------------------------------------------------------------


def test_a_group_that_tells_more_is_kept_and_says_why(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select()
    (group,) = store.groups.status()
    assert (group.state, group.windows, group.gain) == ("trial", 0, None)
    assert group.why == "no sealed window counts it yet"
    fed(stand, store, 11, 21)
    (group,) = store.groups.status()
    assert (group.state, group.windows) == ("kept", 1)
    assert group.gain == pytest.approx(0.04, abs=0.01)  # a square of 0.2
    assert group.error < group.gain / 3
    assert group.why.startswith("it tells 0.0")
    fed(stand, store, 31)
    assert states(store) == {"b,d": "kept"}


def test_a_group_that_tells_no_more_is_dropped_after_its_trial_and_not_chosen_again(
    stand: Stand,
) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1, strength=0.0)
    (name,) = store.groups.select().groups
    fed(stand, store, 11, 21, strength=0.0)
    assert states(store) == {name: "trial"}
    fed(stand, store, 31, strength=0.0)
    (group,) = store.groups.status()
    assert (group.name, group.state, group.windows) == (name, "dropped", 2)
    assert (group.gain, group.error) == (None, None)  # the windows they are of may go earlier
    assert group.why == "its tables told too little in 2 windows"
    assert inspect.parts(store).lifecycle.births.dropped == {name: [0.0, 0.0, 2.0]}
    assert store.schema.groups == ()
    assert name not in cells(sealed(store, 2))
    assert name not in cells(populating(store))
    told = store.status().deletions
    assert any(d.why == "its tables tell too little" for d in told)
    assert not any(name in d.what for d in told)
    store = stand.reopen()
    assert states(store) == {name: "dropped"}
    assert name not in store.groups.select().groups


def in_sessions(day: float, size: int = 3000) -> pa.Table:
    """Rows that come fifty at a time: of somebody whom b and d describe, and in one mood."""
    rng = np.random.default_rng([5, int(day * 10)])
    b, d = np.repeat(rng.integers(0, 4, (2, size // 50)), 50, axis=1)
    mood = np.repeat(rng.choice([0.2, 0.8], size // 50), 50)
    values = {"a": rng.integers(0, 4, size), "b": b, "c": rng.integers(0, 4, size), "d": d}
    y = (rng.random(size) < mood).astype(int)
    return pa.table({"t": np.full(size, START + day * DAY), "y": y, **values})


def test_a_group_that_tells_of_sessions_is_dropped_though_its_tables_say_much(
    stand: Stand,
) -> None:
    given = MUCH | {"epsilon": math.inf, "trial_windows": 4, "retention": "90d"}
    store = fed(stand, stand.create(SCHEMA, **given), 1)
    assert store.groups.select().groups == ("b,d",)
    for day in (11, 21):
        at(stand, store, day)
        observed(store, in_sessions(day))
    assert states(store) == {"b,d": "kept"}  # of one window nothing better is known
    for day in (31, 41, 51):
        at(stand, store, day)
        observed(store, in_sessions(day))
    assert states(store) == {"b,d": "dropped"}


def test_a_damaged_window_is_not_asked_about_a_group(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select()
    fed(stand, store, 11, 21, 31)
    asked = TableFiles.sealed

    def damaged(self: TableFiles, number: int, **given: Any) -> Any:
        if number == 2:
            raise FormatError("as if damaged")
        return asked(self, number, **given)

    monkeypatch.setattr(TableFiles, "sealed", damaged)
    store = stand.reopen()
    assert states(store) == {"b,d": "kept"}


def test_a_group_is_not_judged_by_tables_that_are_not_served_yet(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1, strength=0.0)
    (name,) = store.groups.select().groups
    fed(stand, store, 11, 21, strength=0.0)
    lifecycle = inspect.parts(store).lifecycle
    assert store.groups.status()[0].windows == 1
    lifecycle.published = False
    (group,) = store.groups.status()
    assert (group.state, group.windows, group.gain) == ("trial", 0, None)
    assert group.why == "no sealed window counts it yet"
    lifecycle.settings = replace(lifecycle.settings, trial_windows=1)
    assert drop_failed(lifecycle, 0) == []
    lifecycle.published = True
    now = int(stand.clock.now * 1e6)
    assert drop_failed(lifecycle, now) == [name]


def test_a_chosen_group_can_be_withdrawn_by_hand(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select()
    store.groups.withdraw("b,d", why="not wanted")
    assert store.groups.status() == []
    assert stand.reopen().groups.status() == []


def test_the_name_of_a_chosen_group_that_is_withdrawn_stands_nowhere_any_more(
    stand: Stand,
) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select()
    fed(stand, store, 11, 21)
    before, paid = totals(store), tables(store)[2]["b,d"]
    store.groups.withdraw("b,d", why="not wanted")
    assert totals(store) == before
    assert tables(store)[2][FORGOTTEN] == paid
    assert store.status().deletions[-1].what == "1 chosen group"
    (entry,) = (e for e in store.audit_log.entries() if e.kind == "tables.withdrawn")
    assert dict(entry.facts) == {"why": "not wanted"}
    assert not standing(stand, "b,d")


def test_a_chosen_group_that_goes_with_a_feature_leaves_the_ledger(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select()
    fed(stand, store, 11, 21)
    before = totals(store)
    store.groups.withdraw("d", why="not wanted")
    assert totals(store) == before
    assert "d" in tables(store)[2]  # a feature is public
    assert not standing(stand, "b,d")


# --- what is forgotten --------------------------------------------------------------------------


def test_what_was_chosen_is_known_after_a_restart_and_goes_with_the_window_it_is_from(
    stand: Stand,
) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select()
    fed(stand, store, 11, 21)
    store = stand.reopen()
    assert states(store) == {"b,d": "kept"}
    at(stand, store, 41)  # the first window is past its time
    assert store.groups.status() == []
    assert store.schema.groups == ()
    assert inspect.readings(store).of("selection") == {}
    assert "b,d" not in cells(sealed(store, 2))
    assert stand.reopen().schema.groups == ()


def test_names_of_groups_that_were_dropped_leave_the_ledger_and_totals_stay(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH | {"retention": "60d"}), 1, strength=0.0)
    (name,) = store.groups.select().groups
    fed(stand, store, 11, 21, strength=0.0)
    before, paid = totals(store), tables(store)
    fed(stand, store, 31, strength=0.0)
    assert states(store) == {name: "dropped"}
    assert totals(store)[:3] == before
    for number in (2, 3):
        expected = {**paid[number], FORGOTTEN: paid[number][name]}
        assert tables(store)[number] == {n: a for n, a in expected.items() if n != name}
    fed(stand, store, 41)
    (other,) = store.groups.select().groups
    fed(stand, store, 51)
    store.groups.withdraw(other, why="a second one")
    assert FORGOTTEN in tables(store)[6]
    fed(stand, store, 61, 82)
    assert list(tables(store)[3]) == [FORGOTTEN]  # all of a forgotten window
    assert not standing(stand, name)


def test_a_window_that_is_rebuilt_is_paid_for_the_tables_that_are_left(stand: Stand) -> None:
    given = MUCH | {"rebuild_share": 0.1, "hot_window": "20d"}
    store = fed(stand, stand.create(SCHEMA, **given), 1)
    store.groups.select()
    fed(stand, store, 11, 21)
    store.groups.withdraw("b,d", why="not wanted")
    assert store.admin.rebuild(2, why="again").rows == 3000
    assert "b,d" not in cells(sealed(store, 2))


def test_windows_that_end_without_a_row_do_not_keep_names_of_chosen_groups(
    stand: Stand,
) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select()
    at(stand, store, 11)
    assert store.admin.reseed(why="as if").opened == 2
    done = store.admin.reseed(why="as if again")
    assert (done.dropped, done.opened) == ((2,), 3)
    before = totals(store)
    assert list(tables(store)[2]) == [FORGOTTEN]
    at(stand, store, 21)  # nobody came to that, either
    assert list(tables(store)[3]) == [FORGOTTEN]
    assert totals(store)[: len(before)] == before


def test_a_window_that_was_charged_and_never_opened_does_not_keep_names(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select()

    def charged(point: str) -> None:
        if point == "charge.after":
            raise StateError("as if killed")

    with monkeypatch.context() as patched:
        patched.setattr("pyramidion.store.change.reach", charged)
        with pytest.raises(StateError, match="as if killed"):
            inspect.open_window(store, 1)
    before = totals(store)
    assert "b,d" in tables(store)[2]
    store = stand.reopen()
    assert list(tables(store)[2]) == [FORGOTTEN]
    assert totals(store)[:2] == before


def test_a_group_that_was_chosen_again_stays_with_the_later_window(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.select()
    fed(stand, store, 11, 21)
    assert store.groups.select().groups == ("b,d",)
    at(stand, store, 41)
    assert states(store) == {"b,d": "kept"}
    at(stand, store, 61)
    assert store.groups.status() == []
