"""What was done is told by the audit log, once, also where the log failed or the process died."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pyramidion import AuditLog, Pyramid, SchemaError, StorageError
from pyramidion.storage import outbox as untold
from pyramidion.storage.outbox import UNTOLD
from tests.store import inspect
from tests.store.peopling import EXACT, PEOPLE, of
from tests.store.stores import DAY, HOUR, START, Stand, observed, rows
from tests.vault.vaults import refusing, vault_of

NOISY = EXACT | {"epsilon": 1.0}


class KilledError(BaseException):
    """The process dies here."""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The log takes nothing for a while."""

    @contextmanager
    def for_a_while() -> Iterator[None]:
        def full(*_: Any, **__: Any) -> None:
            raise StorageError("the log is full")

        with monkeypatch.context() as patched:
            patched.setattr(AuditLog, "append", full)
            yield

    return for_a_while


def told(store: Pyramid, *but: str) -> list[tuple[str, Any]]:
    """Kinds and reasons of what was done since the store was made."""
    found = [entry for entry in store.audit_log.entries() if entry.number > 1]
    return [(e.kind, e.facts.get("why")) for e in found if e.kind not in but]


def waiting(store: Pyramid) -> str:
    return inspect.catalogue(store).about(UNTOLD, "nothing")


def test_an_erasure_that_a_broken_log_did_not_tell_is_told_by_advance(
    stand: Stand, broken: Any
) -> None:
    store = stand.create(PEOPLE, **NOISY)
    observed(store, of(["anna", "ben"]))
    with broken(), pytest.raises(StorageError, match="the log is full"):
        store.erase_person("anna", why="request 4")
    assert store.status().deletions[-1].why == "request 4"
    assert told(store) == []
    stand.clock.pass_(HOUR)
    store.advance()
    assert told(store) == [("person.erased", "request 4")]
    assert store.audit_log.latest() == int(START) * 1_000_000  # when it was done
    assert waiting(store) == "nothing"
    assert store.audit_log.verify().sound


@pytest.mark.parametrize("verb", ["reseed", "withdraw", "rebuild"])
def test_every_deed_is_told_when_the_store_is_opened_again(
    stand: Stand, broken: Any, verb: str
) -> None:
    store = stand.create(rebuild_share=0.2)
    observed(store, rows(20))
    (window,) = store.admin.reseed(why="first").sealed
    why = "x" * 2_000
    verbs = {
        "reseed": lambda: store.admin.reseed(why=why),
        "withdraw": lambda: store.groups.withdraw("a", why=why),
        "rebuild": lambda: store.admin.rebuild(window, why=why),
    }
    with broken(), pytest.raises(StorageError, match="the log is full"):
        verbs[verb]()
    kinds = {"reseed": "store.reseeded", "withdraw": "tables.withdrawn"}
    expected = [("store.reseeded", "first"), (kinds.get(verb, "tables.rebuilt"), "x" * 1_000)]
    assert told(stand.reopen()) == expected


def test_what_is_done_twice_while_the_log_is_broken_is_told_twice(
    stand: Stand, broken: Any
) -> None:
    store = stand.create()
    with broken():
        for _ in range(2):
            with pytest.raises(StorageError, match="the log is full"):
                store.admin.reseed(why="again")
    store.admin.reseed(why="again")  # at the same moment, by a clock that stands still
    assert told(store) == [("store.reseeded", "again")] * 3


@pytest.mark.parametrize("point", ["log.noted", "log.told"])
def test_a_deed_is_told_once_wherever_the_process_died_after_it(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    store = stand.create(PEOPLE, **NOISY)
    observed(store, of(["anna", "ben"]))

    def reach(name: str) -> None:
        if name == point:
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(untold, "reach", reach)
        for why in ("one", "two"):
            with pytest.raises(KilledError):
                store.erase_person("anna", why=why)
    assert told(stand.reopen()) == [("person.erased", "one"), ("person.erased", "two")]
    assert waiting(stand.reopen()) == "nothing"


def test_a_deed_that_breaks_off_after_its_erasure_is_told(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    observed(store, rows(5))

    def fails(*_: Any) -> None:
        raise StorageError("the holder is away")

    with monkeypatch.context() as patched:
        patched.setattr(inspect.keys(store), "finish", fails)
        with pytest.raises(StorageError, match="the holder is away"):
            store.groups.withdraw("a", why="asked for")
    assert told(store) == [("tables.withdrawn", "asked for")]


def test_a_deed_that_fails_before_its_erasure_is_not_told_also_where_a_window_was_sealed_first(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    observed(store, rows(5))
    (window,) = inspect.windows(store).values()
    window.closed = True  # so that withdrawing seals it first

    def fails(*_: Any) -> None:
        raise StorageError("full")

    monkeypatch.setattr("pyramidion.store.transitions._left_of_windows", fails)
    with pytest.raises(StorageError, match="full"):
        store.groups.withdraw("a", why="sealed")
    assert store.status().deletions[-1].why == "sealed"
    assert told(store) == []
    assert waiting(store) == "nothing"


def test_a_reason_that_no_entry_may_have_is_refused_before_anything_is_erased(
    stand: Stand,
) -> None:
    store = stand.create(PEOPLE, **NOISY)
    observed(store, of(["anna", "ben"]))
    before = store.status().deletions
    with pytest.raises(SchemaError, match="the fact 'why'"):
        store.erase_person("anna", why="\ud800")
    assert store.status().deletions == before


# --- of a vault -----------------------------------------------------------------------------


def test_a_broken_log_keeps_no_row_from_the_vault_and_tells_of_its_files_later(
    stand: Stand, broken: Any
) -> None:
    stand.vault = stand.folder / "vault"
    store = stand.create(vault_retention="2d")
    with broken():
        observed(store, rows(5))
        vault_of(store).seal()
        vault_of(store).carry()
        assert observed(store, rows(6)).accepted == 6
        stand.clock.pass_(2 * DAY)
        store.advance()
    assert [kind for kind, _ in told(store)] == []
    kinds = [kind for kind, _ in told(stand.reopen())]
    assert kinds.count("vault.sealed") == 2
    assert kinds[:2] == ["vault.sealed", "vault.stored"]
    assert "vault.erased" in kinds


def test_rows_that_left_unsealed_while_the_log_was_broken_are_told(
    stand: Stand, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.vault = stand.folder / "vault"
    store = stand.create(vault_every="30d")
    observed(store, rows(5))
    stand.clock.pass_(4 * DAY)
    with broken():
        refusing(monkeypatch, 1)
        with pytest.raises(OSError, match="the disk refuses"):
            store.advance()
    store.advance()
    assert [kind for kind, _ in told(store)] == ["vault.lost"]
