"""Rebuilding tampered tables from rows: a second release, charged again, or refused."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.naive_bayes import BernoulliNB

from pyramidion import Categorical, Label, Pyramid, Schema
from pyramidion.errors import ObservationError, PrivacyError, StateError, StorageError
from pyramidion.privacy.budget import budget_of
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.storage.table_files import TableFiles
from pyramidion.store import rebuild as rebuilding
from pyramidion.store.rebuild import Rebuild
from tests.store import inspect
from tests.store import test_bins as bins
from tests.store.inspect import born, sealed, settled
from tests.store.stores import DAY, Stand, cells, exact, noise, observed, rows, same, states
from tests.store.test_repair import complete, file_of, flip, tamper, three
from tests.store.test_spending import committed

WHY = "tampered with"


def reserving(stand: Stand, **settings: Any) -> Pyramid:
    return three(stand, **{"rebuild_share": 0.2} | settings)


def spends(store: Pyramid, window: int) -> list[tuple[str, Fraction, str]]:
    (report,) = (each for each in store.ledger.report().windows if each.number == window)
    return [(ln.purpose, ln.amount, ln.why) for ln in report.lines if ln.kind == "spend"]


# --- what comes of it -----------------------------------------------------------------------


def test_a_flipped_bit_is_mended_from_hot_rows(stand: Stand) -> None:
    store = reserving(stand, epsilon=math.inf)
    right, all_ = cells(sealed(store, 2)), complete(store)
    path = file_of(store, "sealed", 2)
    flip(path)
    assert [each.window for each in store.admin.verify()] == [2]
    assert store.admin.rebuild(2, why=WHY) == Rebuild(2, 30, "none", Fraction(0))
    assert same(cells(sealed(store, 2)), right)
    assert same(complete(store), all_)
    assert store.admin.verify() == []
    assert not path.exists()
    store = stand.reopen()
    assert same(complete(store), all_)
    assert store.admin.verify() == []


def test_tables_changed_with_the_right_key_are_rebuilt(stand: Stand) -> None:
    store = reserving(stand, epsilon=math.inf)
    right, all_ = cells(sealed(store, 1)), complete(store)
    tamper(store, "sealed", 1)
    assert not same(cells(sealed(store, 1)), right)
    store.admin.rebuild(1, why=WHY)
    assert same(cells(sealed(store, 1)), right)
    assert same(complete(store), all_)


def test_rows_may_be_given_where_they_are_not_hot_any_more(stand: Stand) -> None:
    store = stand.create(epsilon=math.inf)
    observed(store, rows(30))
    stand.clock.pass_(15 * DAY)
    store.advance()
    assert store.status().hot_rows == 0
    right = cells(sealed(store, 1))
    tamper(store, "sealed", 1)
    assert store.admin.rebuild(1, rows(30), why=WHY).rows == 30
    assert same(cells(sealed(store, 1)), right)


def test_a_batch_that_went_to_two_windows_is_counted_where_it_belongs(stand: Stand) -> None:
    store = stand.create(epsilon=math.inf, max_skew="10d", hot_window="40d")
    at = stand.clock.now + np.array([0, 10 * DAY] * 20)
    observed(store, rows(40, at))
    observed(store, rows(40, at, seed=1))
    store.admin.reseed(why="as if somebody was in")
    for window in (1, 2):
        right = cells(sealed(store, window))
        tamper(store, "sealed", window)
        assert store.admin.rebuild(window, why=WHY).rows == 40
        assert same(cells(sealed(store, window)), right)


def test_where_complete_tables_lack_a_window_it_is_in_them_again(stand: Stand) -> None:
    store = reserving(stand, epsilon=math.inf)
    all_, paths = complete(store), [file_of(store, "complete"), file_of(store, "sealed", 2)]
    stand.close()
    for path in paths:
        flip(path)
    store = stand.open()
    store.admin.rebuild(2, why=WHY)
    assert inspect.lacking(store) == set()
    assert same(complete(store), all_)
    assert store.admin.verify() == []


def test_one_rebuilt_while_another_is_damaged_leaves_that_one_out(stand: Stand) -> None:
    store = reserving(stand, epsilon=math.inf)
    all_ = complete(store)
    for window in (1, 3):
        flip(file_of(store, "sealed", window))
    store.admin.rebuild(1, why=WHY)
    assert inspect.lacking(store) == {3}
    assert store.snapshot().rows == 60
    store.admin.rebuild(3, why=WHY)
    assert same(complete(store), all_)
    assert store.admin.verify() == []


def test_tables_of_now_are_rebuilt_and_those_withdrawn_are_not(stand: Stand) -> None:
    store = reserving(stand)
    store.groups.withdraw("a,b", why="asked for")
    store.admin.rebuild(2, why=WHY)
    assert set(cells(sealed(store, 2))) == {"", "a", "b"}
    assert spends(store, 2)[0][1] == store.ledger.report().windows[1].budget / 5


def test_a_table_that_the_window_never_had_is_not_in_it_afterwards(stand: Stand) -> None:
    plain = Schema(
        time="t",
        label=Label("y", classes=[0, 1]),
        features=[Categorical("a"), Categorical("b", domain=["x", "y"])],
    )
    store = stand.create(plain, hot_window="50d", rebuild_share=0.2)
    observed(store, rows(30))
    store.groups.add(("a", "b"))
    store.admin.reseed(why="as if")
    observed(store, rows(30, seed=1))
    store.admin.reseed(why="as if")
    store.admin.rebuild(1, why=WHY)
    store.admin.rebuild(2, why=WHY)
    assert [set(cells(sealed(store, window))) for window in (1, 2)] == [
        {"", "a", "b"},
        {"", "a", "b", "a,b"},
    ]


def test_snapshots_of_before_expire_and_models_are_trained_again(
    stand: Stand, trainer: None
) -> None:
    store = reserving(stand, epsilon=math.inf)
    store.register("m", BernoulliNB())
    old, before = store.snapshot(), store.models["m"].fitted
    store.admin.rebuild(2, why=WHY)
    with pytest.raises(StateError, match="has expired: window 2 was rebuilt"):
        old.featurize(rows(1))
    assert store.snapshot().rows == 90
    settled(store)
    assert store.models["m"].fitted is not before


def test_the_deletion_record_says_what_was_replaced(stand: Stand) -> None:
    store = reserving(stand)
    store.admin.rebuild(2, why=WHY)
    last = store.status().deletions[-1]
    assert (last.what, last.why) == ("former tables of window 2", WHY)


# --- what it costs ---------------------------------------------------------------------------


def test_the_window_pays_all_of_its_reserve_in_a_line_of_the_ledger(stand: Stand) -> None:
    store = reserving(stand)
    unit, budget = budget_of(store.settings)
    assert store.admin.rebuild(2, why=WHY) == Rebuild(2, 30, unit, budget / 5)
    assert spends(store, 2) == [("rebuild", budget / 5, WHY)]
    assert spends(store, 1) == spends(store, 3) == []
    assert store.ledger.left(2, "rebuild") == 0
    assert store.ledger.spent(2) == budget
    assert store.ledger.report().epsilon <= store.settings.epsilon


def test_the_charge_is_durable_before_the_noise_is_drawn(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reserving(stand)
    before, seen = committed(stand), []
    real = TableDesign.arena

    def drawn(self: TableDesign, *given: Any) -> Any:
        seen.append(committed(stand))
        return real(self, *given)

    monkeypatch.setattr(TableDesign, "arena", drawn)
    store.admin.rebuild(2, why=WHY)
    assert seen == [before + 1]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("share", [1, Fraction(1, 3)])
def test_noise_is_that_of_what_was_charged_divided_as_at_birth(
    stand: Stand, delta: float, share: Fraction | int
) -> None:
    store = reserving(stand, delta=delta, shares={"a": 3})
    first = {table.name: table for table in sealed(store, 2).layout.tables}
    paid = {ln.purpose: ln.amount for ln in inspect.catalogue(store).lines(2) if ln.kind == "table"}
    store.admin.rebuild(2, why=WHY, share=share)
    ((_, amount, _),) = spends(store, 2)
    scale = sum(paid.values()) / amount
    for table in sealed(store, 2).layout.tables:
        if delta:
            least = Fraction(table.rows) / (2 * paid[table.name] / scale)
            assert table.variance >= float(least) * (1 - 1e-9)
            assert table.variance == pytest.approx(float(least), rel=0.01)
        else:
            scale_of = float(table.rows * scale / paid[table.name])
            assert table.variance == pytest.approx(2 * scale_of**2, rel=0.01)
        assert table.variance > first[table.name].variance


def test_tables_born_again_have_nothing_of_the_first_birth(stand: Stand) -> None:
    first = inspect.birth(stand.create(delta=0.0), 1)
    before = first.layout, first.noises, first.variances
    again = first.again({"a": Fraction(1, 10), "": Fraction(1, 100)})
    assert list(again.layout.index) == ["", "a"]
    assert [noise.scale for noise in again.noises] == [100, 20]  # one row, and two
    assert again.variances == tuple(noise.variance for noise in again.noises)
    assert (first.layout, first.noises, first.variances) == before


def test_counts_are_within_the_larger_noise_and_the_noise_is_new(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reserving(stand, buckets=4096, epsilon=4.0)
    batch = [rows(30, stand.clock.now - 20 * DAY, seed=1)]
    old = noise(store, sealed(store, 2), batch)
    drawn = born(store, monkeypatch)
    store.admin.rebuild(2, why=WHY)
    assert drawn == []  # no window was opened
    new = noise(store, sealed(store, 2), batch)
    layout = sealed(store, 2).layout
    for table in layout.tables:
        found = new[table.name]
        if found.size > 1_000:
            assert found.var() == pytest.approx(table.variance, rel=0.1)
            assert abs(np.corrcoef(found, old[table.name])[0, 1]) < 6 / math.sqrt(found.size)
        assert np.abs(found).max() < 8 * math.sqrt(table.variance)


def test_complete_tables_know_the_noise_they_have_then(stand: Stand) -> None:
    store = reserving(stand)
    store.admin.rebuild(2, why=WHY)
    for number, table in enumerate(inspect.served(store).layout.tables):
        each = [sealed(store, window).layout.tables[number].variance for window in (1, 2, 3)]
        assert table.variance == pytest.approx(sum(each))
        assert table.windows == 3


# --- when it is refused --------------------------------------------------------------------------


def unchanged(store: Pyramid, stand: Stand) -> Any:
    return store.ledger.report(), stand.files("tables"), states(store)


def test_a_second_one_is_refused_once_the_reserve_is_spent(stand: Stand) -> None:
    store = reserving(stand, delta=0.0)
    store.admin.rebuild(2, why=WHY)
    before = unchanged(store, stand)
    refusal = (
        r"^window 2 has epsilon 0 left for rebuild and 0\.2 was asked; "
        r"raise `rebuild_share` for windows to come$"
    )
    for _ in range(2):
        with pytest.raises(PrivacyError, match=refusal):
            store.admin.rebuild(2, why=WHY)
        assert unchanged(store, stand) == before
        store = stand.reopen()


def test_a_portion_may_be_spent_and_the_refusal_says_what_would_fit(stand: Stand) -> None:
    store = reserving(stand, delta=0.0)
    store.admin.rebuild(2, why=WHY, share=Fraction(3, 4))
    refusal = r"has epsilon 0\.05 left for rebuild and 0\.2 was asked; ask for at most 0\.05"
    with pytest.raises(PrivacyError, match=refusal):
        store.admin.rebuild(2, why=WHY)
    store.admin.rebuild(2, why=WHY, share=Fraction(1, 4))
    assert store.ledger.left(2, "rebuild") == 0


def test_without_a_reserve_it_is_refused_and_nothing_is_drawn(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = three(stand, delta=0.0)
    before = unchanged(store, stand)
    monkeypatch.setattr(TableDesign, "arena", None)
    with pytest.raises(PrivacyError, match=r"window 1 has epsilon 0 left for rebuild and 1 was"):
        store.admin.rebuild(1, why=WHY)
    assert unchanged(store, stand) == before


def test_after_a_backup_was_restored_no_window_of_before_has_a_reserve(stand: Stand) -> None:
    store = reserving(stand)
    store.admin.backup(stand.folder / "backup")
    stand.close()
    place = stand.folder / "restored"
    store = stand.held(Pyramid.restore(stand.folder / "backup", place, **stand.given))
    with pytest.raises(PrivacyError, match="window 1 has rho 0 left for rebuild"):
        store.admin.rebuild(1, why=WHY)


@pytest.mark.parametrize("share", [0, 2, -1, True, 0.5, Fraction(3, 2)])
def test_a_share_must_be_exact_and_at_most_the_whole(stand: Stand, share: Any) -> None:
    store = reserving(stand)
    with pytest.raises(PrivacyError, match=r"write 1 or Fraction\(1, 2\)"):
        store.admin.rebuild(2, why=WHY, share=share)


def test_too_few_hot_rows_are_refused_and_cost_nothing(stand: Stand) -> None:
    store = stand.create(rebuild_share=0.2)
    observed(store, rows(20))
    stand.clock.pass_(8 * DAY)
    observed(store, rows(10, stand.clock.now))
    stand.clock.pass_(2 * DAY)
    store.advance()
    assert store.status().hot_rows == 10
    before = unchanged(store, stand)
    with pytest.raises(StateError, match="took 30 rows and not all of them are hot any more"):
        store.admin.rebuild(1, why=WHY)
    assert unchanged(store, stand) == before


@pytest.mark.parametrize("size", [0, 29, 31])
def test_another_number_of_rows_is_refused_and_costs_nothing(stand: Stand, size: int) -> None:
    store = reserving(stand)
    before = unchanged(store, stand)
    with pytest.raises(StateError, match=f"window 2 took 30 rows and {size} were given"):
        store.admin.rebuild(2, rows(size), why=WHY)
    assert unchanged(store, stand) == before


def test_given_rows_are_judged_by_the_same_door(stand: Stand) -> None:
    store = reserving(stand)
    bad = rows(30).set_column(1, "y", pa.array([7] * 30))
    before = unchanged(store, stand)
    with pytest.raises(ObservationError, match="is not one of the label's declared classes"):
        store.admin.rebuild(2, bad, why=WHY)
    assert unchanged(store, stand) == before


def test_only_sealed_windows_are_rebuilt(stand: Stand) -> None:
    store = reserving(stand)
    with pytest.raises(StateError, match="window 4 is populating, and only"):
        store.admin.rebuild(4, why=WHY)
    with pytest.raises(StateError, match="there is no window 9"):
        store.admin.rebuild(9, why=WHY)
    stand.clock.pass_(20 * DAY)
    with pytest.raises(StateError, match="window 1 is past its retention"):
        store.admin.rebuild(1, why=WHY)
    store.advance()
    with pytest.raises(StateError, match="window 1 is erased, and only"):
        store.admin.rebuild(1, why=WHY)


def test_hot_rows_that_cannot_be_read_cost_nothing(stand: Stand) -> None:
    store = reserving(stand)
    flip(store.path / "hot" / inspect.hot(store).steps[1].file)
    before = unchanged(store, stand)
    with pytest.raises(Exception, match=r"\.rows is damaged"):
        store.admin.rebuild(2, why=WHY)
    assert unchanged(store, stand) == before


def test_one_that_breaks_off_wastes_the_charge_and_nothing_else(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reserving(stand)
    before, all_ = cells(sealed(store, 2)), complete(store)
    with monkeypatch.context() as patch:
        patch.setattr(TableFiles, "write", lambda *_: (_ for _ in ()).throw(StorageError("full")))
        with pytest.raises(StorageError, match="full"):
            store.admin.rebuild(2, why=WHY, share=Fraction(1, 2))
    assert len(spends(store, 2)) == 1
    assert same(cells(sealed(store, 2)), before)
    store.admin.rebuild(2, why=WHY, share=Fraction(1, 2))
    assert len(spends(store, 2)) == 2
    assert not same(complete(store), all_)
    assert store.admin.verify() == []


def test_exact_counts_are_those_of_the_rows(stand: Stand) -> None:
    store = reserving(stand, epsilon=math.inf)
    store.admin.rebuild(3, why=WHY)
    batch = rows(30, stand.clock.now - 10 * DAY, seed=2)
    assert same(cells(sealed(store, 3)), exact(store, sealed(store, 3), [batch]))


def test_of_rows_that_are_given_a_person_has_at_most_as_many_as_the_noise_hides() -> None:
    units = np.array([7, 7, 3, 7, 3, 9], dtype=np.uint64)
    assert rebuilding._place_of_each(units).tolist() == [0, 1, 0, 2, 1, 0]
    assert rebuilding._place_of_each(units[:0]).tolist() == []


def test_a_window_in_read_bins_is_rebuilt_in_them(stand: Stand) -> None:
    given = {"epsilon": math.inf, "bins_share": 0.2, "rebuild_share": 0.1, "hot_window": "40d"}
    *_, (store, batches) = bins.three_windows(stand, **given)
    before = cells(sealed(store, 2))
    assert "x@1" in before
    store.admin.rebuild(2, why="a test")
    assert same(before, cells(sealed(store, 2)))
    store.admin.rebuild(1, batches[0], why="a test")
    assert set(cells(sealed(store, 1))) == {"", "a"}
