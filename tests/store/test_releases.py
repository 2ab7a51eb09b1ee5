"""Every release ends all older copies of the store: with its charge, before anything is read."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pyramidion
from pyramidion import Pyramid, Schema
from pyramidion.errors import KeyHolderError, StorageError
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.storage.key_holders import FileHolder
from pyramidion.store.hot_rows import HotRows
from tests.dying import died
from tests.store import inspect
from tests.store import test_bins as bins
from tests.store import test_selection as selection
from tests.store import test_weights as weights
from tests.store.inspect import settled
from tests.store.stores import DAY, SCHEMA, START, Stand, failing_once, observed, rows
from tests.store.test_bulk import HISTORY, counted
from tests.store.test_trees import TREE


@dataclass(frozen=True)
class Kind:
    """A kind of release: a store that has not made it, and how it is made."""

    schema: Schema
    settings: dict[str, Any]
    prepare: Callable[[Stand, Pyramid], object]
    release: Callable[[Stand, Pyramid], object]
    erases: bool = False
    """Whether it is an erasure, too, which is recorded as one."""

    def prepared(self, stand: Stand) -> Pyramid:
        """A store just before the release."""
        store = stand.create(self.schema, **self.settings)
        self.prepare(stand, store)
        return settled(store)


def _at(day: float) -> Callable[[Stand, Pyramid], object]:
    """Let it be a day; what is due then is done."""

    def advanced(stand: Stand, store: Pyramid) -> None:
        stand.clock.now = START + day * DAY
        store.advance()

    return advanced


def _fed(make: Callable[[float], Any], *days: float, then: float | None = None) -> Any:
    """Observe a batch on each of some days, and let another day come."""

    def fed(stand: Stand, store: Pyramid) -> None:
        for day in days:
            _at(day)(stand, store)
            observed(store, make(day))
        if then is not None:
            _at(then)(stand, store)

    return fed


def _bulk(_: Stand, store: Pyramid) -> None:
    bulk = store.bulk()
    bulk.take(*counted(bulk, HISTORY[0]))


def _plain(day: float) -> Any:
    return rows(50, START + day * DAY)


def _chosen(day: float) -> Any:
    return selection.batch(2000, day)


KINDS = {
    "selection": Kind(
        selection.SCHEMA,
        selection.MUCH,
        _fed(_chosen, 1),
        lambda _, store: store.groups.select(share=Fraction(1, 2)),
    ),
    "a computation of one's own": Kind(
        selection.SCHEMA,
        selection.MUCH,
        _fed(_chosen, 1),
        lambda _, store: store.ledger.spend("selection", Fraction(1, 100), [1], now=0),
    ),
    "automatic selection": Kind(
        selection.SCHEMA,
        selection.MUCH | {"selection_every": 1},
        _fed(_chosen, 8.0),
        _at(9.5),
    ),
    "weights": Kind(weights.SCHEMA, weights.MUCH, _fed(weights.batch, 8.0), _at(9.5)),
    "bins": Kind(bins.SCHEMA, bins.MUCH, _fed(lambda day: bins.batch(2000, day), 8.0), _at(9.5)),
    "bulk": Kind(SCHEMA, {}, lambda *_: None, _bulk),
    "rebuild": Kind(
        SCHEMA,
        {"rebuild_share": 0.3},
        _fed(_plain, 9.0, then=10.5),
        lambda _, store: store.admin.rebuild(1, why="tampered with"),
        erases=True,
    ),
    "seal": Kind(SCHEMA, {}, _fed(_plain, 9.0), _at(10.5), erases=True),
    "node": Kind(SCHEMA, TREE, _fed(_plain, 9.0, 19.0), _at(20.5), erases=True),
    "reseed": Kind(
        SCHEMA,
        {},
        _fed(_plain, 1.0),
        lambda _, store: store.admin.reseed(why="a break-in"),
        erases=True,
    ),
}
PAID = {name: kind for name, kind in KINDS.items() if name not in ("seal", "node", "reseed")}
"""Those that are charged when they are made; the others were at birth."""

every = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
every_paid = pytest.mark.parametrize("kind", PAID.values(), ids=list(PAID))


def held(stand: Stand) -> set[str]:
    """The names of the store keys that exist."""
    return set(FileHolder(stand.key).keys())


def released(store: Pyramid) -> tuple[int, int, int]:
    """How often reserves were spent, how many windows are sealed, how much was read from them."""
    catalogue = inspect.catalogue(store)
    return (
        catalogue.one("SELECT count(*) FROM ledger WHERE kind = 'spend'"),
        catalogue.one("SELECT count(*) FROM table_sets WHERE level = 0 AND state = 'sealed'"),
        catalogue.one("SELECT count(*) FROM readings"),
    )


def charges(store: Pyramid) -> int:
    """How many lines the ledger has."""
    return len(inspect.catalogue(store).lines())


def copied(stand: Stand) -> Path:
    """A second copy of the directory, made by hand while the store is in use."""
    copy = stand.folder / "copy"
    shutil.copytree(stand.path, copy)
    return copy


@every
def test_a_backup_from_before_does_not_open(kind: Kind, stand: Stand) -> None:
    store = kind.prepared(stand)
    store.admin.backup(stand.folder / "backup")
    kind.release(stand, store)
    stand.close()
    with pytest.raises(KeyHolderError, match="destroyed by an erasure or a release"):
        Pyramid.restore(stand.folder / "backup", stand.folder / "restored", **stand.given)


@every
def test_a_copy_of_the_directory_does_not_open(kind: Kind, stand: Stand) -> None:
    store = kind.prepared(stand)
    copy = copied(stand)
    kind.release(stand, store)
    with pytest.raises(KeyHolderError, match="destroyed by an erasure or a release"):
        stand.open(copy)


@every
def test_a_copy_that_is_open_releases_nothing(
    kind: Kind, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kind.prepared(stand)
    other = stand.open(copied(stand))
    before, now = released(other), stand.clock.now
    kind.release(stand, store)
    settled(store)
    stand.clock.now = now
    monkeypatch.setattr(HotRows, "of", lambda *_: pytest.fail("a row was read"))
    with pytest.raises(KeyHolderError, match="does not have the key of this store"):
        kind.release(stand, other)
    assert released(other) == before


@every
def test_a_backup_from_after_opens(kind: Kind, stand: Stand) -> None:
    store = kind.prepared(stand)
    kind.release(stand, store)
    settled(store).admin.backup(stand.folder / "backup")
    stand.close()
    again = stand.folder / "restored"
    restored = stand.held(Pyramid.restore(stand.folder / "backup", again, **stand.given))
    assert restored.admin.verify() == []


@every_paid
def test_older_keys_are_gone_before_anything_is_read(
    kind: Kind, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kind.prepared(stand)
    before, paid = held(stand), charges(store)
    seen: list[tuple[set[str], bool]] = []

    def watch(place: Any, name: str) -> None:
        real = getattr(place, name)

        def call(*given: Any, **more: Any) -> Any:
            seen.append((held(stand) & before, charges(store) > paid))
            return real(*given, **more)

        monkeypatch.setattr(place, name, call)

    watch(HotRows, "of")
    watch(TableDesign, "arena")
    kind.release(stand, store)
    assert bool(seen) == (kind is not KINDS["a computation of one's own"])
    assert held(stand) & before == set()
    assert all(old == set() and charged for old, charged in seen)


@every
def test_only_erasures_are_recorded_as_deletions(kind: Kind, stand: Stand) -> None:
    store = kind.prepared(stand)
    before = len(store.status().deletions)
    kind.release(stand, store)
    after = store.status().deletions
    assert (len(after) > before) == kind.erases
    assert all(record.done is not None for record in after)


@every_paid
def test_the_data_keys_are_the_same_after_a_renewal(kind: Kind, stand: Stand) -> None:
    store = kind.prepared(stand)
    query = "SELECT id FROM keys WHERE purpose NOT LIKE 'pin of %'"
    old = {row["id"] for row in inspect.catalogue(store).all(query)}
    kept = {number: inspect.keys(store).get(number) for number in old}
    kind.release(stand, store)
    found = {row["id"] for row in inspect.catalogue(store).all(query)}
    assert kind.erases or old <= found
    assert all(inspect.keys(store).get(number) == kept[number] for number in old & found)


# --- an older key that cannot be destroyed ----------------------------------------------------


@every_paid
def test_nothing_is_read_or_lost_where_an_older_key_cannot_be_destroyed(
    kind: Kind, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kind.prepared(stand)
    spent = {w.number: w.spent for w in store.ledger.report().windows}
    read: list[object] = []
    real = HotRows.of
    monkeypatch.setattr(HotRows, "of", lambda *given: read.append(given) or real(*given))
    failing_once(monkeypatch, FileHolder, "drop", StorageError("the holder is away"))
    with suppress(StorageError):  # a reading that fails stops no new window
        kind.release(stand, store)
    assert read == []
    assert not inspect.readings(store).of("selection")
    report = {w.number: w.spent for w in store.ledger.report().windows}
    assert {number: report[number] for number in spent} == spent


@every_paid
def test_nothing_is_read_where_another_copy_renewed_its_key_at_the_same_time(
    kind: Kind, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that lets two copies change keys at once: each destroys the other's."""
    store = kind.prepared(stand)
    before, real = released(store), FileHolder.drop

    def dropped(self: FileHolder, names: Any) -> None:
        real(self, [*names, inspect.catalogue(store).about("store_key")])
        self.add("another.key", bytes(32))

    monkeypatch.setattr(FileHolder, "drop", dropped)
    monkeypatch.setattr(HotRows, "of", lambda *_: pytest.fail("a row was read"))
    with pytest.raises(KeyHolderError, match="does not have the key of this store"):
        kind.release(stand, store)
    assert released(store)[1:] == before[1:]


def test_a_key_that_another_copy_adds_meanwhile_is_destroyed(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KINDS["selection"].prepared(stand)
    late, real = [f"{inspect.catalogue(store).about('store')}.late"], FileHolder.drop

    def dropped(self: FileHolder, names: Any) -> None:
        while late:
            self.add(late.pop(), bytes(32))
        real(self, names)

    monkeypatch.setattr(FileHolder, "drop", dropped)
    store.groups.select()
    assert held(stand) == {inspect.catalogue(store).about("store_key")}


def test_a_holder_that_destroys_nothing_is_named(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KINDS["selection"].prepared(stand)
    monkeypatch.setattr(FileHolder, "drop", lambda *_: None)
    with pytest.raises(KeyHolderError, match="still has store keys that were destroyed"):
        store.groups.select()


def test_what_was_not_read_can_be_paid_for_again(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KINDS["selection"].prepared(stand)
    failing_once(monkeypatch, FileHolder, "drop", StorageError("the holder is away"))
    with pytest.raises(StorageError, match="the holder is away"):
        store.groups.select()
    assert store.groups.select().windows == (1,)
    kinds = [line.kind for line in store.ledger.of_window(1).lines if line.purpose == "selection"]
    assert kinds == ["reserve", "spend", "refund", "spend"]
    assert store.ledger.left(1, "selection") == 0


def test_refund_waits_until_the_key_holder_is_back(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KINDS["selection"].prepared(stand)

    def away(_: FileHolder) -> None:
        raise KeyHolderError("the holder is away")

    with monkeypatch.context() as patch:

        def reach(point: str) -> None:
            if point == "renew.committed":
                patch.setattr(FileHolder, "keys", away)

        patch.setattr("pyramidion.storage.data_keys.reach", reach)
        with pytest.raises(KeyHolderError, match="the holder is away"):
            store.groups.select()
    store.advance()  # finishes what was broken off
    assert store.groups.select().windows == (1,)
    kinds = [line.kind for line in store.ledger.of_window(1).lines if line.purpose == "selection"]
    assert kinds == ["reserve", "spend", "refund", "spend"]


def test_what_fails_after_a_row_was_read_is_not_given_back(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KINDS["selection"].prepared(stand)

    def failed(*_: object, **__: object) -> None:
        raise StorageError("while scores are computed")

    monkeypatch.setattr("pyramidion.store.select_groups.select", failed)
    with pytest.raises(StorageError, match="while scores are computed"):
        store.groups.select()
    assert store.ledger.left(1, "selection") == 0


# --- a crash ----------------------------------------------------------------------------------


POINTS = {
    "renew.before": 0,
    "renew.added": 0,
    "rewrap.half": 0,
    "rewrap.before": 0,
    "renew.committed": 1,
    "erase.truncated:2": 1,
    "erase.destroyed:2": 1,
    "renew.after": 1,
    "select.spent": 1,
}
"""Where a selection is killed, and how often it is paid for then."""


def went_on(stand: Stand) -> None:
    """A backup, then the release."""
    store = KINDS["selection"].prepared(stand)
    store.admin.backup(stand.folder / "backup")
    store.groups.select()


@pytest.mark.slow
@pytest.mark.parametrize(("point", "paid"), POINTS.items())
def test_a_crash_leaves_the_store_before_or_after_the_charge(
    point: str, paid: int, stand: Stand
) -> None:
    assert died(lambda: went_on(Stand(stand.folder)), at=point)
    stand.clock.now = START + DAY
    store = stand.open()
    assert len(held(stand)) == 1
    assert len(selection.spends(store)[1]) == paid
    assert store.status().hot_rows == 2000
    stand.close()
    again = stand.folder / "restored"
    if paid:
        with pytest.raises(KeyHolderError, match="destroyed by an erasure or a release"):
            Pyramid.restore(stand.folder / "backup", again, **stand.given)
    else:
        restored = stand.held(Pyramid.restore(stand.folder / "backup", again, **stand.given))
        assert restored.status().hot_rows == 2000


# --- nobody charges in another way ------------------------------------------------------------


def _callers(name: str) -> set[str]:
    """The modules that call a method of a store's ledger."""
    package = Path(pyramidion.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if f"ledger.{name}(" in text else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == name
                and ast.unparse(node.func.value).endswith("ledger")
            ):
                found.add(path.relative_to(package).as_posix())
    return found


def test_windows_are_charged_at_birth_or_by_a_release() -> None:
    assert _callers("open") == {"store/transitions.py", "store/bulk.py"}
