"""Syncs that fail: what was acknowledged is counted once, and a retry tells of what was not."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyramidion import FailedError, Pyramid, StorageError
from pyramidion.counts.arena import Arena
from tests.memory import in_memory
from tests.store import inspect
from tests.store.inspect import settled
from tests.store.stores import DAY, Stand, cells, exact, observed, rows, same
from tests.store.syncing import LIFE, LOG, ROWS, Life, arrivals, compiler, library

FAILED = "FailedError"
CASES = [
    *((f"log-{n}", LOG, n, "crash") for n in range(1, 36)),
    *((f"commit-{n}", LOG, n, "commit") for n in range(3, 9)),
    *((f"close-{n}", LOG, n, "close") for n in range(3, 36, 8)),
    *((f"rows-{n}", ROWS, n, "crash") for n in range(1, 8)),
    *((f"folder-{n}", "/hot", n, "crash") for n in (1, 2)),
]


BRIEF = {name for name, where, n, _ in CASES if where != LOG or n % 3 == 0 or n == 1}
"""The log is synced at every commit: `make test` has every third of these fail."""


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Stores that ended after one of their syncs had failed, by name."""
    selected = {
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and "ended" in getattr(item, "fixturenames", ())
    }
    cases = [case for case in CASES if case[0] in selected]
    if compiler() is None:
        pytest.skip("there is no C compiler, and syncs fail by a library in C")
    with in_memory() as folder:
        words = [sys.executable, "-m", "tests.store.syncing", str(folder), json.dumps(cases)]
        given = os.environ | {"LD_PRELOAD": str(library(folder))}
        done = subprocess.run(words, env=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        yield folder


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in BRIEF else pytest.mark.campaign) for name, *_ in CASES],
)
def test_failed_sync_counts_each_row_once(ended: Path, name: str) -> None:
    folder = ended / name
    assert not (folder / "broke").exists(), (folder / "broke").read_text()
    told = [json.loads(line) for line in (folder / "told").read_text().splitlines()]
    first = next((n for n, answers in enumerate(told) if FAILED in answers), len(LIFE))
    assert not any(set(answers) - {"Receipt", "Advance"} for answers in told[:first])
    assert all(set(answers) == {FAILED} for answers in told[first:])  # it stays failed
    assert len(told) == len(LIFE)
    life = Life(folder)
    with life.open(LIFE[min(first, len(LIFE) - 1)].day) as store:
        for turn in LIFE[first:]:
            answers = life.live(store, turn)
            assert FAILED not in answers
            assert set(answers) <= {"Receipt", "Advance"}
        settled(store)
        assert same(counted(store), exact(store, tables(store)[0], all_sent()))


def tables(store: Pyramid) -> list[Arena]:
    """The tables of windows that populate, and the complete ones."""
    windows = inspect.windows(store).values()
    found = [*(window.arena for window in windows), inspect.served(store)]
    return [arena for arena in found if arena is not None]


def counted(store: Pyramid) -> dict[str, Any]:
    """What all of them count."""
    first, *others = map(cells, tables(store))
    return {name: sum((more[name] for more in others), first[name]) for name in first}


def all_sent() -> list[Any]:
    return [arrival.batch for turn in LIFE for arrival in arrivals(turn)]


# --- what a store that has failed does --------------------------------------------------------


@pytest.fixture
def failed(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> Pyramid:
    """A store with ten rows, whose next sync of a segment file has failed."""
    store = stand.create()
    observed(store, rows(10), key="first")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", failing(errno.EIO))
        with pytest.raises(FailedError, match="open the store again"):
            store.observe(rows(5), key="second")
    return store


def failing(code: int) -> Any:
    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_failed_store_takes_nothing(failed: Pyramid) -> None:
    for verb in (
        lambda: failed.observe(rows(5), key="second"),
        lambda: failed.observe_turn(rows(5), "sequence", 0),
        failed.advance,
        lambda: failed.admin.reseed(why="x"),
        lambda: failed.groups.withdraw("a", why="x"),
        lambda: failed.admin.backup(failed.path.parent / "copy"),
    ):
        with pytest.raises(FailedError):
            verb()


def test_failed_store_tells_so(failed: Pyramid) -> None:
    status = failed.status()
    assert (status.state, status.hot_rows) == ("failed: reopen", 10)
    assert status.to_dict()["state"] == "failed: reopen"


def test_retry_after_reopening_is_taken_once(stand: Stand, failed: Pyramid) -> None:
    store = stand.reopen()
    assert store.status().state == "open"
    for _ in range(2):
        assert store.observe(rows(5), key="second").accepted == 5
    assert store.status().hot_rows == 15


def test_failed_store_destroys_no_key(stand: Stand, failed: Pyramid) -> None:
    before = stand.key.read_bytes()
    stand.clock.pass_(20 * DAY)
    with pytest.raises(FailedError):
        failed.advance()
    assert stand.key.read_bytes() == before


def test_full_disk_is_no_failure(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stand.create()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", failing(errno.ENOSPC))
        with pytest.raises(StorageError, match="full disk"):
            store.observe(rows(5))
    assert store.observe(rows(5)).accepted == 5


class Refusing:
    """A connection whose next commit fails."""

    def __init__(self, db: sqlite3.Connection, code: int) -> None:
        self._db, self._code = db, code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        if sql != "COMMIT":
            return self._db.execute(sql, *given)
        problem = sqlite3.OperationalError("disk I/O error")
        problem.sqlite_errorcode = self._code
        raise problem


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_SHMSIZE])
def test_lost_commit_is_a_failure(stand: Stand, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    catalogue = inspect.catalogue(stand.create())
    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "_db", Refusing(catalogue._db, code))
        with pytest.raises(FailedError), catalogue.transaction():
            catalogue.note(anything=0)
    with pytest.raises(FailedError):
        catalogue.note(anything=1)
    assert catalogue.about("clock", "none") == "none"


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_READ])
def test_other_errors_are_no_failure(stand: Stand, code: int) -> None:
    catalogue = inspect.catalogue(stand.create())
    problem = sqlite3.OperationalError("no")
    problem.sqlite_errorcode = code
    with pytest.raises(StorageError), catalogue.transaction():
        raise problem
    catalogue.note(anything=1)


def test_file_of_a_lost_commit_stays(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stand.create()
    observed(store, rows(10))
    files = inspect.table_files(store)
    (window,) = inspect.windows(store).values()
    before = stand.files("tables")
    real = files.supersede

    def lost(*given: Any, **named: Any) -> None:
        real(*given, **named)
        problem = sqlite3.OperationalError("disk I/O error")
        problem.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise problem

    monkeypatch.setattr(files, "supersede", lost)
    with pytest.raises(FailedError):
        inspect.checkpoint(store, window)
    assert len(stand.files("tables")) == len(before) + 1  # the catalogue on disk may name it


def test_files_stay_if_the_disk_fails_while_removal_waits(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    lifecycle = inspect.parts(store).lifecycle
    lost = stand.path / "hot" / "0123456789abcdef.rows"  # of a commit that only the disk has
    lost.touch()

    class Failing:
        def __enter__(self) -> None:
            inspect.catalogue(store).health.fail()

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(lifecycle, "arrivals", Failing())
    with pytest.raises(FailedError):
        lifecycle.remove_strangers()
    assert lost.exists()
    monkeypatch.undo()


def test_service_with_a_failed_disk_is_not_ready(tmp_path: Path) -> None:
    import httpx

    from tests.web.service.services import Inside, error_of, told_rows, wait_for

    made = Inside(tmp_path)
    try:
        made.create()
        inspect.catalogue(made.service._streams["s"].pyramid).health.fail()
        wait_for(lambda: "disk" in httpx.get(f"{made.url}/readyz").json().get("reasons", []))
        assert httpx.get(f"{made.url}/readyz").status_code == 503
        sent = made.caller("observe").post(
            "/v1/streams/s/observations", json=told_rows(3, made.clock.now)
        )
        assert error_of(sent) == (503, "FailedError")
        assert made.caller("train").get("/v1/streams/s").json()["state"] == "failed: reopen"
    finally:
        made.close()
