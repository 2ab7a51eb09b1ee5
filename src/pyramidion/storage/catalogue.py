"""What a store holds, in SQLite: every change is one transaction, durable on commit.

Nothing in it is readable without keys that die: data keys stand wrapped; row
totals and arrival times are public. Deleted pages stay in the write-ahead log until
it is truncated, so every erasure ends with `truncate_log`. No AUTOINCREMENT:
``sqlite_sequence`` remembers.

    about       name, value       schema, settings, the store key's name, counters, by what
                                  open values are known
    keys        wrapped data keys
    table_sets  windows (level 0) and nodes of a tree over them: state, borders, row total, see
                `pyramidion.storage.table_sets`
    members     which windows a table set counts
    arenas      table files: checkpoint or sealed tables of a table set, or the complete tables
    steps       hot steps, one segment file each
    batches     each batch of hot rows: when they arrived by the store's time, and when they came by
                the clock; what its rows tell is sealed under its step's key
    arrivals    which batch has what came under an idempotency key, by a keyed hash of that
    ledger      what each window spent, see `pyramidion.privacy.ledger`
    deletions   what was erased, when by the clock, why, and in which key holder, see
                `pyramidion.storage.deletions`
    imports     how far each import came, by a keyed hash of its files' names, rows and times; and
                each numbered sequence of batches, by one of its name
    models      the recipe of each, never what it learned
    readings    quantiles and bin edges, private, sealed under keys that die with their window
    past_steps  hot steps that have left: when rows arrived in them, how many, and by the clock when
                they came and when they left
    uncounted   people erased in a block: a keyed hash of each, sealed, gone when it is over
    vault_files files sealed to the custodian: when their rows arrived, and whether they are away
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from pyramidion.config.spelling import BY_TYPE
from pyramidion.config.spelling import FACT as KEYED
from pyramidion.errors import FormatError, StateError, StorageError
from pyramidion.privacy.ledger import Line
from pyramidion.storage import deletions
from pyramidion.storage.disk import Health

FORMAT = 12
FORGOTTEN = "all tables"
"""The purpose of what tables cost that are not named any more, as those of a forgotten window."""

DATES = (
    *(("batches", column) for column in ("arrived", "since", "came")),
    *(("past_steps", column) for column in ("start", "stop", "came_first", "came_last", "left")),
    *(("deletions", column) for column in ("at", "done")),
    ("ledger", "at"),
    ("vault_files", "gone"),
)
"""The columns that are dated by the clock."""

BUSY = 5.0  # seconds that a reader from outside, such as a backup tool, is waited for

MODELS = "CREATE TABLE models (name TEXT PRIMARY KEY, recipe TEXT NOT NULL) STRICT;"
READINGS = """CREATE TABLE readings (
    window INTEGER NOT NULL, purpose TEXT NOT NULL,
    key INTEGER NOT NULL REFERENCES keys, sealed BLOB NOT NULL,
    PRIMARY KEY (window, purpose)) STRICT;"""
PAST_STEPS = """CREATE TABLE past_steps (
    number INTEGER PRIMARY KEY, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    rows INTEGER NOT NULL, left INTEGER NOT NULL) STRICT;"""
CAME = (
    "ALTER TABLE batches ADD COLUMN came INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE batches ADD COLUMN since INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE past_steps ADD COLUMN came_first INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE past_steps ADD COLUMN came_last INTEGER NOT NULL DEFAULT 0",
)
"""When rows came by the clock: rows of a history arrive at the times that they say themselves,
the first of a batch at ``since``."""
VAULT_FILES = """CREATE TABLE vault_files (
    name TEXT PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
    first_batch INTEGER NOT NULL, last_batch INTEGER NOT NULL, rows INTEGER NOT NULL,
    digest TEXT NOT NULL, envelope TEXT NOT NULL,
    lock INTEGER REFERENCES keys, stored INTEGER, gone INTEGER) STRICT;"""
UNCOUNTED = """CREATE TABLE uncounted (
    key INTEGER PRIMARY KEY REFERENCES keys, block INTEGER NOT NULL,
    sealed BLOB NOT NULL) STRICT;"""
BATCHES = """CREATE TABLE batches (
    number INTEGER PRIMARY KEY, step INTEGER NOT NULL REFERENCES steps, rows INTEGER NOT NULL,
    arrived INTEGER NOT NULL, sealed BLOB NOT NULL) STRICT;"""
BATCHES_OF_STEP = "CREATE INDEX batches_of_step ON batches (step);"
ARRIVALS = """CREATE TABLE arrivals (
    once BLOB PRIMARY KEY, batch INTEGER NOT NULL REFERENCES batches, place INTEGER NOT NULL)
    STRICT, WITHOUT ROWID;"""
ARRIVALS_OF_BATCH = "CREATE INDEX arrivals_of_batch ON arrivals (batch);"
TABLE_SETS = """CREATE TABLE table_sets (
    level INTEGER NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL, slot INTEGER NOT NULL,
    start INTEGER, stop INTEGER, rows INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (level, number)) STRICT, WITHOUT ROWID;"""
MEMBERS = """CREATE TABLE members (
    level INTEGER NOT NULL, number INTEGER NOT NULL, window INTEGER NOT NULL,
    PRIMARY KEY (level, number, window),
    FOREIGN KEY (level, number) REFERENCES table_sets) STRICT, WITHOUT ROWID;"""
MEMBERS_OF_WINDOW = "CREATE INDEX members_of_window ON members (window);"
ARENAS = """CREATE TABLE arenas (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, level INTEGER, number INTEGER,
    key INTEGER NOT NULL REFERENCES keys, file TEXT NOT NULL, after INTEGER NOT NULL,
    current INTEGER NOT NULL, tables TEXT NOT NULL,
    FOREIGN KEY (level, number) REFERENCES table_sets) STRICT;"""
SHARED = """CREATE TABLE shared (
    name TEXT PRIMARY KEY, key INTEGER REFERENCES keys, file TEXT NOT NULL, layout TEXT NOT NULL,
    chunks INTEGER NOT NULL) STRICT;"""
TABLES = f"""
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE keys (id INTEGER PRIMARY KEY, purpose TEXT NOT NULL, wrapped BLOB NOT NULL) STRICT;
{TABLE_SETS}
{MEMBERS}
{MEMBERS_OF_WINDOW}
{ARENAS}
CREATE TABLE steps (
    number INTEGER PRIMARY KEY, slot INTEGER NOT NULL, start INTEGER NOT NULL,
    key INTEGER NOT NULL REFERENCES keys, once INTEGER NOT NULL REFERENCES keys,
    file TEXT NOT NULL, rows INTEGER NOT NULL DEFAULT 0) STRICT;
{BATCHES}
{BATCHES_OF_STEP}
{ARRIVALS}
{ARRIVALS_OF_BATCH}
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY, window INTEGER NOT NULL, kind TEXT NOT NULL, purpose TEXT NOT NULL,
    amount TEXT NOT NULL, at INTEGER NOT NULL, why TEXT NOT NULL) STRICT;
CREATE TABLE deletions (
    id INTEGER PRIMARY KEY, what TEXT NOT NULL, why TEXT NOT NULL, holder TEXT NOT NULL,
    at INTEGER NOT NULL, done INTEGER) STRICT;
CREATE TABLE imports (input BLOB PRIMARY KEY, rows INTEGER NOT NULL) STRICT;
{MODELS}
{READINGS}
{PAST_STEPS}
{VAULT_FILES}
{UNCOUNTED}
{SHARED}
{"".join(f"{each};" for each in (*CAME, *deletions.COLUMNS))}
"""

_KEYS_APART = (
    "DROP INDEX batches_of_step",
    "ALTER TABLE batches RENAME TO former",
    BATCHES,
    BATCHES_OF_STEP,
    "INSERT INTO batches SELECT number, step, rows, arrived, sealed FROM former",
    ARRIVALS,
    ARRIVALS_OF_BATCH,
    "INSERT INTO arrivals SELECT once, number, 0 FROM former WHERE once IS NOT NULL",
    "DROP TABLE former",
)
"""Idempotency keys in a table of their own: a batch may have come in several arrivals."""

_FORMER_NODES = """CREATE TABLE nodes (
    number INTEGER PRIMARY KEY, level INTEGER NOT NULL, place INTEGER NOT NULL,
    state TEXT NOT NULL) STRICT;"""
_FORMER_MEMBERS = """CREATE TABLE members (
    node INTEGER NOT NULL REFERENCES nodes, window INTEGER NOT NULL REFERENCES windows,
    PRIMARY KEY (node, window)) STRICT, WITHOUT ROWID;"""
_ONE_TABLE = (
    TABLE_SETS,
    "INSERT INTO table_sets SELECT 0, number, state, slot, start, stop, rows FROM windows",
    "INSERT INTO table_sets SELECT level, number, state, place, NULL, NULL, 0 FROM nodes",
    "DROP INDEX members_of_window",
    "ALTER TABLE members RENAME TO former_members",
    MEMBERS,
    MEMBERS_OF_WINDOW,
    "INSERT INTO members SELECT 0, number, number FROM windows",
    "INSERT INTO members SELECT level, number, window FROM former_members "
    "JOIN nodes ON number = node",
    "DROP TABLE former_members",
    "ALTER TABLE arenas RENAME TO former_arenas",
    ARENAS,
    "INSERT INTO arenas SELECT id, kind, CASE WHEN window IS NULL THEN level ELSE 0 END, "
    "coalesce(window, node), key, file, after, current, tables "
    "FROM former_arenas LEFT JOIN nodes ON number = node",
    "DROP TABLE former_arenas",
    "ALTER TABLE readings RENAME TO former_readings",
    READINGS,
    "INSERT INTO readings SELECT window, purpose, key, sealed FROM former_readings",
    "DROP TABLE former_readings",
    "DROP TABLE nodes",
    "DROP TABLE windows",
)
"""Windows and nodes in one table."""

Migration = Callable[[sqlite3.Connection], object]
MIGRATIONS: dict[int, Migration] = {
    1: lambda db: db.execute(MODELS),
    2: lambda db: (
        db.execute(READINGS),
        db.execute("ALTER TABLE arenas ADD COLUMN tables TEXT NOT NULL DEFAULT ''"),
    ),
    3: lambda db: (db.execute(PAST_STEPS), db.execute(VAULT_FILES), db.execute(UNCOUNTED)),
    4: lambda db: [db.execute(step) for step in _KEYS_APART],
    5: lambda db: (
        *(db.execute(each) for each in (_FORMER_NODES, _FORMER_MEMBERS, MEMBERS_OF_WINDOW)),
        db.execute("ALTER TABLE arenas ADD COLUMN node INTEGER REFERENCES nodes"),
    ),
    6: lambda db: db.execute(SHARED),
    7: lambda db: (
        *(db.execute(each) for each in CAME),
        db.execute("UPDATE batches SET came = arrived, since = arrived"),
        db.execute("UPDATE past_steps SET came_first = start, came_last = stop"),
    ),
    8: lambda db: db.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (KEYED, BY_TYPE)),
    9: deletions.give_types,
    10: lambda db: [db.execute(step) for step in _ONE_TABLE],
    11: lambda _: None,  # windows and ledger are authenticated, at the first open
}
"""What brings a catalogue of one format to the next; all run in one transaction at open."""


def told(problem: sqlite3.Error, path: Path) -> FormatError | StateError | StorageError:
    """An error of SQLite as one sentence."""
    if isinstance(problem, sqlite3.ProgrammingError):
        return StateError(f"{path} is closed; open it again")
    code = (getattr(problem, "sqlite_errorcode", None) or 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StorageError(f"{path} is on a full disk; free some space, nothing was lost")
    if code == sqlite3.SQLITE_READONLY:
        return StorageError(f"{path} is on a read-only disk; mount it writable")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StorageError(f"{path} cannot be opened; see to the path and its rights")
    if code == sqlite3.SQLITE_IOERR:
        return StorageError(f"{path} cannot be read or written; see to the disk, nothing was lost")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageError(f"{path} is held by another program; end it and try again")
    return FormatError(f"{path} is damaged or not a catalogue; restore it from a backup")


_LOST = (
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_TRUNCATE,
)
"""Errors after which it is not known what is on the disk: the commit may be there after a crash."""
_LOST_AT_COMMIT = (
    *_LOST,
    sqlite3.SQLITE_IOERR_SHMMAP,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_NOMEM,
)
"""The same of a commit: SQLite extends the log's index after the log has the commit."""


@contextmanager
def in_words(
    path: Path,
    damaged: str | None = None,
    health: Health | None = None,
    lost: Collection[int] = _LOST,
) -> Iterator[None]:
    """Have errors of SQLite be told; ``damaged`` is said of a file that is not what it should be.

    If the error is one of ``lost``, the store's ``health`` becomes failed. The error that SQLite
    raised is not kept: its text may quote what was bound.
    """
    try:
        yield
    except sqlite3.Error as problem:
        explanation = told(problem, path)
        if health is not None and getattr(problem, "sqlite_errorcode", None) in lost:
            explanation = health.fail()
    else:
        return
    if damaged is not None and isinstance(explanation, FormatError):
        explanation = FormatError(damaged)
    raise explanation


def facts(path: Path) -> dict[str, str]:
    """What a catalogue says about its store, without opening or changing it."""
    with in_words(path):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        with closing(db):
            return dict(db.execute("SELECT name, value FROM about").fetchall())


class Catalogue:
    """One connection to the store's database, shared by its threads."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.health = Health()
        self._depth = 0
        with self._explained():
            self._db = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=BUSY
            )
        try:
            with self._explained():
                self._prepare(new)
                self.seen = int(self._db.execute("PRAGMA data_version").fetchone()[0])
                """The `version` whose windows and ledger were found to be authentic."""
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, new: bool) -> None:
        self._db.row_factory = sqlite3.Row
        settings = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
        for setting in settings:
            self._db.execute(f"PRAGMA {setting}")
        if new:
            self._db.executescript(f"BEGIN;{TABLES}PRAGMA user_version={FORMAT};COMMIT;")
            os.chmod(self.path, 0o600)
        else:
            self._migrate()

    def _migrate(self) -> None:
        found = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if found > FORMAT:
            raise FormatError(
                f"{self.path} has format {found} and this version reads up to {FORMAT}; "
                f"upgrade pyramidion"
            )
        if found < 1:
            raise FormatError(f"{self.path} is not a catalogue; restore it from a backup")
        if found == FORMAT:
            return
        with self.transaction():
            for number in range(found, FORMAT):
                MIGRATIONS[number](self._db)
            self._db.execute(f"PRAGMA user_version={FORMAT}")

    def _explained(self, *, commits: bool = False) -> AbstractContextManager[None]:
        lost = _LOST_AT_COMMIT if commits else _LOST
        return in_words(self.path, health=self.health, lost=lost)

    @property
    def version(self) -> int:
        """A number that changes when another connection writes to the file, or checkpoints it."""
        return int(self.one("PRAGMA data_version"))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing; durable when left. Inside another one, a part of that."""
        with self.lock:
            if self._depth:
                yield
                return
            self.health.refuse()
            with self._explained():
                self._db.execute("BEGIN IMMEDIATE")
                self._depth = 1
                try:
                    yield
                    with self._explained(commits=True):
                        self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
                finally:
                    self._depth = 0

    def run(self, sql: str, *values: object) -> int:
        """Change something; gives the new row's id."""
        self.health.refuse()
        with self.lock, self._explained(commits=not self._depth):
            return int(self._db.execute(sql, values).lastrowid or 0)

    def run_all(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Change something for each of some values."""
        self.health.refuse()
        with self.lock, self._explained(commits=not self._depth):
            self._db.executemany(sql, rows)

    def all(self, sql: str, *values: object) -> list[sqlite3.Row]:
        """Every row of a query."""
        with self.lock, self._explained():
            return self._db.execute(sql, values).fetchall()

    def one(self, sql: str, *values: object) -> Any:
        """The first value of the first row of a query, or None."""
        rows = self.all(sql, *values)
        return rows[0][0] if rows else None

    # --- about --------------------------------------------------------------------

    def about(self, name: str, default: str | None = None) -> str:
        """One fact about the store."""
        found = self.one("SELECT value FROM about WHERE name = ?", name)
        if found is None and default is None:
            raise FormatError(f"{self.path} does not say its {name!r}; restore it from a backup")
        return str(default if found is None else found)

    def note(self, **facts: object) -> None:
        """Remember facts about the store."""
        for name, value in facts.items():
            self.run("INSERT OR REPLACE INTO about VALUES (?, ?)", name, str(value))

    def forget(self, name: str) -> None:
        """Forget a fact about the store."""
        self.run("DELETE FROM about WHERE name = ?", name)

    # --- deletion records ------------------------------------------------------------

    def deletions(self) -> list[sqlite3.Row]:
        """All deletion records, in order."""
        query = "SELECT what, why, holder, at, done, kind, ids FROM deletions ORDER BY id"
        return self.all(query)

    def last_deletion(self) -> int | None:
        """When something was erased last."""
        found = self.one("SELECT max(at) FROM deletions")
        return None if found is None else int(found)

    # --- models ----------------------------------------------------------------------

    def recipes(self) -> dict[str, str]:
        """The recipe of each model, by name."""
        rows = self.all("SELECT name, recipe FROM models ORDER BY name")
        return {row["name"]: row["recipe"] for row in rows}

    def set_recipe(self, name: str, recipe: str) -> None:
        """Store the recipe of a model."""
        self.run("INSERT OR REPLACE INTO models VALUES (?, ?)", name, recipe)

    def forget_recipe(self, name: str) -> None:
        """Forget the recipe of a model."""
        self.run("DELETE FROM models WHERE name = ?", name)

    # --- dates -----------------------------------------------------------------------

    def limit_dates(self, now: int) -> None:
        """Date everything that is dated later than now by now; within a transaction."""
        for table, column in DATES:
            self.run(f"UPDATE {table} SET {column} = ? WHERE {column} > ?", now, now)  # noqa: S608

    # --- imports ---------------------------------------------------------------------

    def imported(self, name: bytes) -> int | None:
        """How many rows of an import were taken, by a keyed hash of its name."""
        rows = self.one("SELECT rows FROM imports WHERE input = ?", name)
        return None if rows is None else int(rows)

    def note_import(self, name: bytes, rows: int) -> None:
        """Note how many rows of an import were taken."""
        self.run("INSERT OR REPLACE INTO imports VALUES (?, ?)", name, rows)

    # --- the ledger's book -----------------------------------------------------------

    def lines(self, window: int | None = None) -> list[Line]:
        """Lines of the ledger in the order they were written."""
        query = "SELECT window, kind, purpose, amount, at, why FROM ledger"
        if window is None:
            rows = self.all(f"{query} ORDER BY id")
        else:
            rows = self.all(f"{query} WHERE window = ? ORDER BY id", window)
        amounts = {text: Fraction(text) for text in {row["amount"] for row in rows}}  # few differ
        return [
            Line(number, kind, purpose, amounts[amount], at, why)
            for number, kind, purpose, amount, at, why in rows
        ]

    def births(self) -> dict[int, int]:
        """When each window was charged for its birth."""
        rows = self.all("SELECT window, at FROM ledger WHERE kind = 'budget'")
        return {row["window"]: row["at"] for row in rows}

    def first_line(self, kind: str, purpose: str) -> tuple[int, Fraction]:
        """Window and amount of the first line of the ledger for a purpose."""
        query = "SELECT window, amount FROM ledger WHERE kind = ? AND purpose = ? ORDER BY id"
        window, amount = self.all(query, kind, purpose)[0]
        return int(window), Fraction(amount)

    def write(self, lines: Sequence[Line]) -> None:
        """Add lines to the ledger, durable on return; all or none."""
        with self.transaction():
            for line in lines:
                self.run(
                    "INSERT INTO ledger (window, kind, purpose, amount, at, why) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    line.window,
                    line.kind,
                    line.purpose,
                    str(line.amount),
                    line.at,
                    line.why,
                )

    def sum_tables(self, windows: Collection[int]) -> None:
        """Leave of the tables of forgotten windows what they cost in all; in a transaction."""
        for window in windows:
            tables = [line for line in self.lines(window) if line.kind == "table"]
            if len(tables) > 1:
                self.run("DELETE FROM ledger WHERE window = ? AND kind = 'table'", window)
                total = sum((line.amount for line in tables), Fraction(0))
                self.write([replace(tables[0], purpose=FORGOTTEN, amount=total)])

    def unname_tables(self, gone: Callable[[str], bool]) -> None:
        """Leave of some tables what they cost together in each window; in a transaction.

        What each window spent stays the same, to the last digit.
        """
        found: dict[int, list[Line]] = {}
        for line in self.lines():
            if line.kind == "table" and (line.purpose == FORGOTTEN or gone(line.purpose)):
                found.setdefault(line.window, []).append(line)
        for window, tables in found.items():
            named = [line for line in tables if line.purpose != FORGOTTEN]
            if named:
                self.run_all(
                    "DELETE FROM ledger WHERE window = ? AND kind = 'table' AND purpose = ?",
                    [(window, line.purpose) for line in tables],
                )
                total = sum((line.amount for line in tables), Fraction(0))
                self.write([replace(named[0], purpose=FORGOTTEN, amount=total)])

    # --- files -----------------------------------------------------------------------

    def truncate_log(self) -> None:
        """Leave nothing that was deleted in the write-ahead log."""
        self.health.refuse()
        with self.lock, self._explained():
            busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StorageError(
                f"the log of {self.path} cannot be emptied while another program reads it, so an "
                f"erasure is not complete; end that program and advance() again"
            )

    def copy_to(self, path: Path) -> None:
        """A consistent copy of the database, in one file, marked as a backup."""
        self.health.refuse()
        with self.lock, self._explained():
            copy = sqlite3.connect(path)
            try:
                self._db.backup(copy)
                copy.execute("INSERT OR REPLACE INTO about VALUES ('copy', 'backup')")
                copy.commit()
                copy.execute("PRAGMA journal_mode=DELETE")
                os.chmod(path, 0o600)
            finally:
                copy.close()

    def close(self) -> None:
        """Empty the log and let go of the file."""
        with self.lock, self._explained():
            self._db.close()
