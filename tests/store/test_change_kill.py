"""A store that is killed anywhere inside `apply` reopens as before the change, or as after it.

Every kind of `Change` is made by a small scenario, and killed at every fault point that `apply`
reaches while it makes it. The state of the reopened store must be that of a kill at the first
point (nothing was done) or at the last one (all was done).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pyramidion import Pyramid
from pyramidion.errors import StateError
from pyramidion.storage import fault_points
from pyramidion.store import change
from tests.conftest import CHANCE
from tests.dying import died
from tests.store import inspect
from tests.store.peopling import PEOPLE, of
from tests.store.stores import DAY, START, Stand, cells, observed, rows
from tests.store.test_bulk import counted

TREE = {"windows": "tree", "tree_radix": 2, "tree_depth": 2}

ERASING = (
    *("erase.before", "erase.added", "rewrap.half", "rewrap.before", "erase.committed"),
    *("erase.truncated", "erase.destroyed", "erase.unlinked", "erase.after"),
)
RENEWING = (
    *("renew.before", "renew.added", "rewrap.half", "rewrap.before", "renew.committed"),
    *("erase.truncated", "erase.destroyed", "renew.after"),
)


class Scenario(NamedTuple):
    """How a change comes about: what is there before, and what is done then."""

    kind: fault_points.ChangeName
    before: Callable[[Stand], object]
    """Makes a store."""
    then: Callable[[Stand], object]
    """Opens it and makes the change, in a child."""
    points: tuple[str, ...] = ()
    """Fault points inside `apply`, between those that every change has."""


# --- what is there, and what is done -------------------------------------------------------------


def filled(stand: Stand, count: int = 1, **settings: Any) -> Pyramid:
    """A store with rows in some windows, of which all but the last are sealed."""
    store = stand.create(**settings)
    for number in range(count):
        stand.clock.now = START + 10 * number * DAY
        store.advance()
        observed(store, rows(12, stand.clock.now, seed=number))
    return store


def at(days: float, do: Callable[[Pyramid], object]) -> Callable[[Stand], object]:
    """Do something with the store, some days after the start."""

    def then(stand: Stand) -> object:
        stand.clock.now = START + days * DAY
        store = stand.held(Pyramid.open(stand.path, **stand.given, advance=False))
        return do(store)

    return then


def advance(store: Pyramid) -> object:
    return store.advance()


def checkpoint(store: Pyramid) -> None:
    (window,) = inspect.windows(store).values()
    inspect.checkpoint(store, window)


def prepared(stand: Stand) -> None:
    """A store whose next window is open, and has no row."""
    store = filled(stand)
    stand.clock.now = START + 9.9 * DAY
    observed(store, rows(3, stand.clock.now, seed=9))
    store.advance()
    assert len(inspect.windows(store)) == 2


def bulk(store: Pyramid) -> None:
    history = store.bulk("history")
    slot, counts = counted(history, rows(20, START - 15 * DAY))
    history.take(slot, counts)


def damaged(stand: Stand) -> None:
    store = filled(stand, 2)
    (file,) = inspect.table_files(store).windows()
    (stand.path / "tables" / file["file"]).write_bytes(b"damaged")


def half_open(stand: Stand) -> None:
    """A store that was killed between the charge for its first window and its birth."""
    stand.create()
    stand.close()
    folder = stand.folder
    assert died(at_folder(folder, at(0, lambda s: observed(s, rows(4)))), at="charge.after")


def backed_up(stand: Stand) -> None:
    store = filled(stand, 2)
    verb(store, "backup", stand.folder / "backup")
    stand.close()
    shutil.rmtree(stand.path)


def restore(stand: Stand) -> Pyramid:
    stand.clock.now = START + 10 * DAY
    backup = stand.folder / "backup"
    return stand.held(Pyramid.restore(backup, stand.path, **stand.given))


def shared(stand: Stand) -> None:
    filled(stand, 2).publisher.start(f"file:{stand.folder / 'shared'}")


def vaulted(stand: Stand) -> None:
    stand.vault = stand.folder / "vault"
    store = filled(stand, 1, vault_retention="5d", vault_every="1d")
    assert store.vault is not None
    store.vault.seal()


def verb(store: Any, name: str, *given: Any, **named: Any) -> Any:
    """Call a verb of the store, or of one of its parts."""
    parts = (store, *(getattr(store, part, None) for part in ("admin", "groups", "shards")))
    owner = next(part for part in parts if hasattr(part, name))
    return getattr(owner, name)(*given, **named)


def called(name: str, *given: Any, **named: Any) -> Callable[[Pyramid], object]:
    return lambda store: verb(store, name, *given, **named)


def at_folder(folder: Path, then: Callable[[Stand], object]) -> Callable[[], object]:
    return lambda: then(Stand(folder))


SCENARIOS = {
    "charge": Scenario("charge", Stand.create, at(0, lambda s: observed(s, rows(4)))),
    "charge that ends copies": Scenario("charge", Stand.create, at(0, bulk), RENEWING),
    "open": Scenario("open", Stand.create, at(0, lambda s: observed(s, rows(4)))),
    "open in a tree": Scenario(
        "open", lambda s: s.create(**TREE), at(0, lambda s: observed(s, rows(4)))
    ),
    "checkpoint": Scenario("checkpoint", filled, at(0, checkpoint)),
    "seal": Scenario("seal", filled, at(10, advance), ERASING),
    "seal in a tree": Scenario("seal", lambda s: filled(s, 2, **TREE), at(20, advance), ERASING),
    "abandon": Scenario("abandon", prepared, at(21, advance)),
    "retire": Scenario("retire", lambda s: filled(s, 2), at(52, advance)),
    "retire in a tree": Scenario("retire", lambda s: filled(s, 4, **TREE), at(52, advance)),
    "expire": Scenario("expire", lambda s: filled(s, 2), at(52, advance), ERASING),
    "expire rows": Scenario("expire", filled, at(5, advance), ERASING),
    "drop": Scenario(
        "drop", lambda s: filled(s, 2), at(10, called("withdraw", "a", why="test")), ERASING
    ),
    "drop in a tree": Scenario(
        "drop",
        lambda s: filled(s, 3, **TREE),
        at(20, called("withdraw", "a,b", why="test")),
        ERASING,
    ),
    "reseed": Scenario("reseed", filled, at(0, called("reseed", why="test")), ERASING),
    "bulk": Scenario("bulk", Stand.create, at(0, bulk)),
    "rebuild": Scenario(
        "rebuild",
        lambda s: filled(s, 2, rebuild_share=0.2, hot_window="30d"),
        at(10, called("rebuild", 1, why="test")),
        ERASING,
    ),
    "mend": Scenario("mend", damaged, at(10, called("mend")), ERASING),
    "person": Scenario(
        "person",
        lambda s: observed(s.create(PEOPLE, k=2, p_min=0.5), of(list("abac"))),
        at(0, called("erase_person", "a", why="request 17")),
        ERASING,
    ),
    "restore": Scenario("restore", backed_up, restore, ERASING),
    "recover": Scenario("recover", half_open, at(0, lambda _: None)),
    "unpublish": Scenario(
        "unpublish", shared, at(10, lambda store: store.publisher.stop()), ERASING
    ),
    "vault erase": Scenario("vault_erase", vaulted, at(8, advance), ERASING),
}


def test_every_kind_of_change_has_a_scenario() -> None:
    assert {scenario.kind for scenario in SCENARIOS.values()} == set(fault_points.CHANGES)


# --- killed everywhere -------------------------------------------------------------------------


def killed(scenario: Scenario, stand: Stand, point: str) -> bool:
    """Make the change in a child that is killed at a point inside `apply`; whether it was."""

    def work() -> None:
        CHANCE.repeat("every child")
        reach = change.reach

        def arm(name: str) -> None:
            if name == f"{scenario.kind}.before":
                fault_points.arm(point)
            reach(name)

        change.reach = arm
        scenario.then(Stand(stand.folder))

    return died(work)


def state(store: Pyramid) -> dict[str, Any]:
    """All that a store holds, but for what is drawn: names of files, keys."""
    sets, files = inspect.table_sets(store), inspect.table_files(store)
    catalogue = inspect.catalogue(store)
    served = inspect.served(store)
    return {
        "sets": [tuple(row) for row in catalogue.all("SELECT * FROM table_sets")],
        "members": {str(owner): sorted(windows) for owner, windows in sets.members().items()},
        "files": sorted(
            (row["kind"], row["level"], row["number"], row["after"], digest(files.of(row)))
            for row in catalogue.all(
                "SELECT * FROM arenas WHERE current = 1 AND kind <> 'complete'"
            )
            if not unreadable(files, row)
        ),
        "populating": {
            str(each.id): digest(each.arena)
            for each in [*inspect.windows(store).values(), *inspect.nodes(store)]
        },
        "served": None if served is None else digest(served),
        "hot": [(n, table.to_pylist()) for n, table, _ in inspect.hot(store).batches()],
        "ledger": [(ln.window, ln.kind, ln.purpose, ln.amount) for ln in catalogue.lines()],
        "deletions": [(each.kind, each.what) for each in store.status().deletions],
        "unfinished": [each.what for each in store.status().deletions if each.done is None],
        "schema": store.schema.to_toml(),
        "damage": [(each.kind, each.window) for each in verb(store, "verify")],
    }


def unreadable(files: Any, row: Any) -> bool:
    try:
        files.of(row)
    except Exception:
        return True
    return False


def digest(arena: Any) -> tuple[int, str]:
    """Rows and cells of tables."""
    found = blake2b(digest_size=16)
    for name, counts in sorted(cells(arena).items()):
        found.update(name.encode() + counts.tobytes())
    return arena.rows, found.hexdigest()


def reopened(scenario: Scenario, stand: Stand) -> dict[str, Any]:
    """The state of the store that a killed child left; nothing that is due is done."""
    stand.clock.now = START
    try:
        store = stand.held(Pyramid.open(stand.path, **stand.given, advance=False))
    except StateError:
        assert scenario.kind == "restore"
        store = restore(stand)
    found = state(store)
    stand.close()
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_reopened_store_is_as_before_or_as_after(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    stand = Stand(tmp_path / "origin")
    scenario.before(stand)
    stand.close()
    found: dict[str, dict[str, Any]] = {}
    ends = f"{scenario.kind}.before", f"{scenario.kind}.written", f"{scenario.kind}.after"
    for number, point in enumerate((*ends[:2], *scenario.points, ends[2])):
        copy = Stand(tmp_path / str(number))
        shutil.copytree(stand.folder, copy.folder)
        assert killed(scenario, copy, point), f"{point} was not reached"
        found[point] = reopened(scenario, copy)
    before, after = found[ends[0]], found[ends[2]]
    for point, each in found.items():
        wrong = {
            n: (each[n], before[n], after[n]) for n in each if each[n] not in (before[n], after[n])
        }
        assert not wrong, point
        assert each in (before, after), point
        assert each["unfinished"] == []
    assert found[ends[1]] == before
