"""The catalogue: all of a change or nothing, durable on commit, and errors in our own words."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from pyramidion.errors import FormatError, StorageError
from pyramidion.privacy.ledger import Line
from pyramidion.storage import catalogue as module
from pyramidion.storage.catalogue import FORMAT, Catalogue


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    made = Catalogue(tmp_path / "catalogue.db", new=True)
    yield made
    made.close()


def test_facts_are_remembered_and_replaced(catalogue: Catalogue) -> None:
    catalogue.note(clock=7, store="x")
    catalogue.note(clock=8)
    assert (catalogue.about("clock"), catalogue.about("store")) == ("8", "x")
    assert catalogue.about("nothing", "else") == "else"
    with pytest.raises(FormatError, match="does not say its 'nothing'"):
        catalogue.about("nothing")


def broken_off(catalogue: Catalogue) -> None:
    with catalogue.transaction():
        catalogue.note(clock=2)
        with catalogue.transaction():
            catalogue.note(clock=3)
        raise KeyError


def test_a_transaction_that_fails_leaves_nothing(catalogue: Catalogue) -> None:
    catalogue.note(clock=1)
    with pytest.raises(KeyError):
        broken_off(catalogue)
    assert catalogue.about("clock") == "1"
    catalogue.note(clock=3)
    assert catalogue.about("clock") == "3"


def test_a_transaction_in_another_is_a_part_of_it(catalogue: Catalogue) -> None:
    with pytest.raises(KeyError), catalogue.transaction():
        broken_off(catalogue)
    assert catalogue.about("clock", "none") == "none"


def test_what_was_committed_is_there_for_another_reader(catalogue: Catalogue) -> None:
    with catalogue.transaction():
        catalogue.note(clock=5)
    with sqlite3.connect(catalogue.path) as other:
        assert other.execute("SELECT value FROM about").fetchall() == [("5",)]
    other.close()


def test_every_commit_is_synced(catalogue: Catalogue) -> None:
    assert catalogue.one("PRAGMA synchronous") == 2
    assert catalogue.one("PRAGMA journal_mode") == "wal"
    assert catalogue.one("PRAGMA secure_delete") == 1
    assert catalogue.one("PRAGMA foreign_keys") == 1


def test_no_table_remembers_deleted_numbers(catalogue: Catalogue) -> None:
    assert not catalogue.all("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'")
    assert "AUTOINCREMENT" not in module.TABLES.upper()


def test_nothing_deleted_is_left_in_the_log_or_the_file(catalogue: Catalogue) -> None:
    catalogue.note(card="4111-1111")
    log = Path(f"{catalogue.path}-wal")
    assert b"4111-1111" in log.read_bytes()
    catalogue.run("DELETE FROM about")
    catalogue.truncate_log()
    assert log.stat().st_size == 0
    assert b"4111-1111" not in catalogue.path.read_bytes()


def test_a_log_that_somebody_reads_cannot_be_emptied_and_that_is_said(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue.note(clock=1)
    catalogue._db.execute("PRAGMA busy_timeout=50")
    reader = sqlite3.connect(catalogue.path)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM about").fetchall()
    catalogue.note(clock=2)
    with pytest.raises(StorageError, match="erasure is not complete; end that program"):
        catalogue.truncate_log()
    reader.close()
    catalogue.truncate_log()


def test_threads_take_turns(catalogue: Catalogue) -> None:
    catalogue.note(count=0)

    def add() -> None:
        for _ in range(50):
            with catalogue.transaction():
                catalogue.note(count=int(catalogue.about("count")) + 1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert catalogue.about("count") == "200"


def test_ledger_lines_come_back_exactly(catalogue: Catalogue) -> None:
    lines = [
        Line(1, "budget", "rho", Fraction(1, 3), 5),
        Line(1, "table", "a,b", Fraction(10**40, 10**41 + 7), 6, "why"),
        Line(2, "budget", "rho", Fraction(1, 3), 7),
    ]
    catalogue.write(lines)
    assert catalogue.lines() == lines
    assert catalogue.lines(2) == lines[2:]
    catalogue.write([lines[0]])
    assert catalogue.lines() == [*lines, lines[0]]


def test_ledger_lines_are_written_all_or_none(catalogue: Catalogue) -> None:
    good, bad = Line(1, "budget", "rho", Fraction(1), 5), Line(1, "table", "a", Fraction(1), None)  # type: ignore[arg-type]
    with pytest.raises(FormatError):
        catalogue.write([good, bad])
    assert catalogue.lines() == []


def test_only_the_owner_can_read_it_and_its_copies(catalogue: Catalogue, tmp_path: Path) -> None:
    catalogue.copy_to(tmp_path / "copy.db")
    for name in ("catalogue.db", "copy.db"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 200])
def test_a_file_that_is_no_catalogue_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "catalogue.db"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"catalogue\.db"):
        Catalogue(path)


def test_a_catalogue_of_nobody_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(FormatError, match="is not a catalogue"):
        Catalogue(path)


def test_a_copy_is_one_file_marked_as_a_backup(catalogue: Catalogue, tmp_path: Path) -> None:
    catalogue.note(clock=9)
    catalogue.copy_to(tmp_path / "copy.db")
    assert {file.name for file in tmp_path.glob("copy*")} == {"copy.db"}
    copy = Catalogue(tmp_path / "copy.db")
    assert (copy.about("clock"), copy.about("copy")) == ("9", "backup")
    assert copy.one("PRAGMA user_version") == FORMAT
    copy.close()
    assert catalogue.about("copy", "") == ""


ERRORS = {
    sqlite3.SQLITE_FULL: (StorageError, "full disk"),
    sqlite3.SQLITE_READONLY: (StorageError, "read-only disk"),
    sqlite3.SQLITE_CANTOPEN: (StorageError, "cannot be opened"),
    sqlite3.SQLITE_IOERR | (13 << 8): (StorageError, "cannot be read or written"),
    sqlite3.SQLITE_BUSY: (StorageError, "held by another program"),
    sqlite3.SQLITE_CORRUPT: (FormatError, "damaged"),
    sqlite3.SQLITE_NOTADB: (FormatError, "not a catalogue"),
}


@pytest.mark.parametrize("code", ERRORS)
def test_errors_of_sqlite_name_the_file_and_the_remedy(code: int) -> None:
    kind, words = ERRORS[code]
    problem = sqlite3.OperationalError("disk I/O error")
    problem.sqlite_errorcode = code
    found = module.told(problem, Path("/stores/x/catalogue.db"))
    assert type(found) is kind
    assert words in str(found)
    assert "/stores/x/catalogue.db" in str(found)


def test_a_catalogue_that_another_program_holds_says_so(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue._db.execute("PRAGMA busy_timeout=50")
    other = sqlite3.connect(catalogue.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="held by another program"), catalogue.transaction():
        pass
    other.close()
    assert os.path.exists(catalogue.path)
    with catalogue.transaction():
        catalogue.note(clock=1)
