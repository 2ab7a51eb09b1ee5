"""The audit log of a store: append-only, hash-chained, signed, in a SQLite file of its own.

Several processes may append: each entry is one transaction that holds the file from its first
look to its end. The same transaction puts the successor's private key in the place of the one
that signed; deleted bytes are overwritten and the write-ahead log is emptied after each entry,
so that no key which has signed is left in the files. `pyramidion.storage.audit_chain` says what an
entry is, and how a log is verified.

    entries    number, line       each entry as it is exported
    signer     private            the key that signs the next entry, and nothing before it
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Self

from pyramidion.errors import FormatError, StateError, StorageError
from pyramidion.storage.audit_chain import (
    COPIED,
    Chain,
    Entry,
    Fact,
    Verification,
    fresh,
    genesis,
    public,
    signed,
    verify_lines,
)
from pyramidion.storage.catalogue import in_words, told
from pyramidion.storage.disk import explained, sync

__all__ = ["AUDIT_LOG", "AuditLog", "Entry", "Fact", "Verification", "verify_lines"]

AUDIT_LOG = "audit.db"
FORMAT = 1
BUSY = 30.0  # seconds that an append waits for those of other processes
SHORTLY = 100  # milliseconds that it waits for readers; the next one empties what is left
PAGE = 1_000  # entries that are read at a time, so that a reader is in nobody's way
ALL = -(2**63)
AWAY = "keep it as evidence, and move it away for the store to begin another one"

TABLES = f"""
CREATE TABLE entries (number INTEGER PRIMARY KEY, line TEXT NOT NULL) STRICT;
CREATE TABLE signer (id INTEGER PRIMARY KEY CHECK (id = 1), private BLOB NOT NULL) STRICT;
PRAGMA user_version={FORMAT};
"""


class AuditLog:
    """The log in a file, which is made where there is none.

    ``new=True`` refuses a file that is there. `read` opens one that is left untouched.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path, self._reading = path, False
        with explained(path):
            if new and path.exists():
                raise StateError(f"{path} exists already; open it, or choose another path")
            if not path.exists():
                _begin(path)
        self._connect(f"{path.absolute().as_uri()}?mode=rw")
        with self._explained():
            for setting in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
                self._db.execute(f"PRAGMA {setting}")
            self._empty_log()

    @classmethod
    def read(cls, path: Path) -> Self:
        """The log in a file, to look at: nothing is changed, nobody who appends is disturbed."""
        log = cls.__new__(cls)
        log.path, log._reading = path, True
        if not path.exists():
            raise StorageError(f"there is no audit log at {path}; give the right path")
        address = f"{path.absolute().as_uri()}?mode=ro"
        try:
            log._connect(address)
        except StorageError:  # on a disk that takes no writes, where nobody else can append
            if path.with_name(f"{path.name}-wal").exists():
                raise
            log._connect(f"{address}&immutable=1")
        return log

    def _connect(self, address: str) -> None:
        self._lock, self._owner = threading.RLock(), os.getpid()
        with self._explained():
            self._db = sqlite3.connect(
                address, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY
            )
        try:
            with self._explained():
                found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found != FORMAT:
                raise FormatError(
                    f"{self.path} has format {found} and this version reads {FORMAT}; upgrade "
                    f"pyramidion, or give the path of an audit log"
                )
        except BaseException:
            self._db.close()
            raise

    def _explained(self) -> AbstractContextManager[None]:
        return in_words(self.path, f"{self.path} is damaged or not an audit log; {AWAY}")

    # --- entries in -----------------------------------------------------------------------

    def append(self, kind: str, at: int, **facts: Fact) -> Entry:
        """Add an entry, durable on return; its time is ``at``, or the last entry's if later.

        Facts are text, whole numbers, None, and lists of text and numbers. Never one that
        tells what stands in a row.
        """
        self._refuse_unfit()
        with self._lock, self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                entry, following = signed(self._last(), self._signer(), kind, at, facts)
                self._db.execute("INSERT INTO entries VALUES (?, ?)", (entry.number, entry.line))
                self._db.execute("UPDATE signer SET private = ?", (following,))
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._empty_log()
        return entry

    def _last(self) -> Entry:
        found = self._db.execute("SELECT line FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        try:
            return Entry.of(found[0])
        except (TypeError, ValueError):
            raise FormatError(
                f"the last entry of {self.path} was edited or removed and none can follow; {AWAY}"
            ) from None

    def _signer(self) -> bytes:
        found = self._db.execute("SELECT private FROM signer").fetchone()
        if found is None or len(found[0]) != 32:
            raise FormatError(f"{self.path} has no key to sign with; {AWAY}")
        return bytes(found[0])

    def _empty_log(self) -> None:
        """No key that has signed stays in the write-ahead log; a reader may put that off."""
        self._db.execute(f"PRAGMA busy_timeout={SHORTLY}")
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self._db.execute(f"PRAGMA busy_timeout={round(BUSY * 1_000)}")

    def _refuse_unfit(self) -> None:
        if self._reading:
            raise StateError(f"{self.path} was opened to be read; open it as AuditLog(path)")
        if os.getpid() != self._owner:
            raise StateError(
                "this audit log was opened by the process that this one was forked from; open it "
                "here again"
            )

    # --- entries out ----------------------------------------------------------------------

    def entries(self, since: int = 0) -> Iterator[Entry]:
        """The entries in order, from this number on."""
        for number, line in self._lines(since):
            try:
                yield Entry.of(line)
            except ValueError:
                raise FormatError(
                    f"entry {number} of {self.path} was edited; verify the log"
                ) from None

    def export(self, since: int = 0) -> Iterator[str]:
        """The entries as JSON lines, each with its end; `verify_lines` checks them elsewhere."""
        return (f"{line}\n" for _, line in self._lines(since))

    def _lines(self, since: int = ALL) -> Iterator[tuple[int, str]]:
        for page, _ in self._pages(since):
            yield from page

    def _pages(self, since: int) -> Iterator[tuple[list[tuple[int, str]], bytes | None]]:
        """Some entries at a time, and the signer at the same moment."""
        while True:
            with self._lock, self._explained():
                self._db.execute("BEGIN")
                try:
                    query = "SELECT number, line FROM entries WHERE number >= ? ORDER BY number"
                    page = self._db.execute(f"{query} LIMIT {PAGE}", (since,)).fetchall()
                    signer = self._db.execute("SELECT private FROM signer").fetchone()
                finally:
                    self._db.execute("COMMIT")
            yield page, signer and bytes(signer[0])
            if len(page) < PAGE:
                return
            since = page[-1][0] + 1

    @property
    def head(self) -> str:
        """The hash of the last entry; noted elsewhere, it tells a log that was cut off."""
        with self._lock, self._explained():
            return self._last().hash

    @property
    def first(self) -> str:
        """The hash of entry 0: the log's fingerprint."""
        return next((entry.hash for entry in self.entries(ALL)), "")

    @property
    def length(self) -> int:
        """How many entries there are: the number of the next one."""
        with self._lock, self._explained():
            return self._last().number + 1

    def latest(self) -> int:
        """The time of the last entry in microseconds; 0 before anything happened."""
        with self._lock, self._explained():
            return self._last().at

    def verify(
        self, *, head: str | None = None, first: str | None = None, copy: bool = False
    ) -> Verification:
        """Check every entry, and that the key which signs next is the one the last one names.

        With ``copy`` it is the log of a backup, which has another one.
        """
        chain, signer = Chain(head=head, first=first), None
        for page, signer in self._pages(ALL):  # noqa: B007  # the last one counts
            for number, line in page:
                chain.add(line)
                if chain.last is not None and chain.last.number != number:
                    chain.problems.append(f"entry {chain.last.number} is stored as {number}")
        chain.problems += _wrong_signer(chain.last, signer, copy)
        return chain.end()

    # --- files ----------------------------------------------------------------------------

    def copy_to(self, path: Path, at: int, **facts: Fact) -> Entry:
        """Write the log for a copy of the store to a new file, and note that it was copied.

        The copy gets a key of its own, which signs a ``store.restored`` there and fits nothing
        else: who has the copy cannot write what followed here.
        """
        private = fresh()
        entry = self.append(COPIED, at, key=public(private), **facts)
        lines = ((number, line) for number, line in self._lines() if number <= entry.number)
        _write(path, lines, private)
        return entry

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, self._explained():
            self._db.close()


def _wrong_signer(last: Entry | None, signer: bytes | None, copy: bool) -> Iterator[str]:
    if last is None:
        return
    try:
        key = None if signer is None else public(signer)
    except ValueError:
        key = None
    if key != (last.facts.get("key") if copy and last.kind == COPIED else last.next):
        yield (
            f"entry {last.number} is the last one, and it does not name the key that is kept to "
            f"sign next: entries after it were cut off, or the key was changed"
        )


def _begin(path: Path) -> None:
    """A new log under its name, whole or not at all; one that came meanwhile is left alone."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    entry, private = genesis()
    try:
        _write(draft, [(0, entry.line)], private)
        with closing(sqlite3.connect(draft)) as db:
            db.execute("PRAGMA journal_mode=WAL")  # once for all: it cannot be set while in use
        os.link(draft, path)
        sync(path.parent)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)


def _write(path: Path, lines: Iterable[tuple[int, str]], private: bytes) -> None:
    """A log in one file that only its owner may read."""
    with explained(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.executescript(f"PRAGMA synchronous=FULL; BEGIN;{TABLES}")
                db.executemany("INSERT INTO entries VALUES (?, ?)", lines)
                db.execute("INSERT INTO signer VALUES (1, ?)", (private,))
                db.execute("COMMIT")
        except BaseException as problem:
            path.unlink(missing_ok=True)
            if isinstance(problem, sqlite3.Error):
                raise told(problem, path) from None
            raise
