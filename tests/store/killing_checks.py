"""What is asked of a store that was killed and reopened. Each fact is checked after each kill."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyramidion import Pyramid
from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import PRIOR
from pyramidion.storage.catalogue import FORGOTTEN
from pyramidion.vault.envelope import Envelope, joined
from pyramidion.vault.key_pairs import PrivateKey
from pyramidion.vault.parquet import BATCH, decrypted
from pyramidion.vault.vault import Vault
from tests.store import inspect
from tests.store import killing_workload as work
from tests.store.killing_model import Born, Model, digest

Problem = tuple[str, str]
"""The fact that does not hold, and what was found instead."""

CUSTODIAN = PrivateKey(bytes(range(64)))
MICRO = 1_000_000

FACTS = {
    "reopens": "the store opens and goes on",
    "receipts": "a batch that is sent again is known, whether its first sender was killed or not",
    "counted once": "tables hold the acknowledged rows, each once, and the noise of their birth",
    "complete": "complete tables are the sum of the sealed windows",
    "states": "windows are in the state that the time says, and their row totals are right",
    "hot": "hot rows are the acknowledged ones of the live steps, in order",
    "vault": "an acknowledged batch is in one sealed file, which the custodian opens, or hot",
    "checkpoints": "a checkpoint lacks only rows that are hot",
    "ledger": "nothing that was spent is forgotten, and all that was born is paid for",
    "files": "the catalogue knows every file, and every file it knows is there",
    "keys": "every key is used and opens; the holder has one store key",
    "withdrawn": "what was withdrawn is in no table and no hot row, and the rest is",
    "deletions": "every erasure that began is recorded and complete",
    "audit log": "the audit log is sound",
}


def problems(store: Pyramid, model: Model, now: int) -> Iterator[Problem]:
    """All that is wrong with a store, at a time at which it has done what was due."""
    look = Look(store, model, now)
    yield from look.tables()
    yield from look.complete()
    yield from look.states()
    yield from look.hot()
    yield from look.vault()
    yield from look.checkpoints()
    yield from look.ledger()
    yield from look.files()
    yield from look.keys()
    yield from look.deletions()
    yield from (("audit log", problem) for problem in store.audit_log.verify().problems)


class Look:
    """One look at an open store."""

    def __init__(self, store: Pyramid, model: Model, now: int) -> None:
        self.store, self.model, self.now = store, model, now
        self.catalogue = inspect.catalogue(store)
        self.windows = self._all("SELECT * FROM table_sets WHERE level = 0 ORDER BY number")
        self.arenas = self._all("SELECT * FROM arenas")
        self.read = {row["file"]: self._read(row) for row in self.arenas if row["current"]}
        full = [row for row in self.windows if row["rows"]]
        by_rows = model.settings.window_rows is not None
        slots = [row["slot"] for row in full]
        self.ours = {
            row["number"]: (place, 0)
            if by_rows
            else (slots[place], slots[:place].count(slots[place]))
            for place, row in enumerate(full)
        }
        """Windows that have rows, as the model calls them."""

    def _all(self, sql: str) -> list[sqlite3.Row]:
        return self.catalogue.all(sql)

    def _read(self, row: sqlite3.Row) -> Arena:
        key = inspect.keys(self.store).get(row["key"])
        return inspect.table_files(self.store).read(row["file"], key)

    def sealed(self) -> dict[int, Arena]:
        """The sealed windows, as they are on disk."""
        return {
            row["number"]: self.read[row["file"]]
            for row in self.arenas
            if row["kind"] == "sealed" and row["current"] and row["level"] == 0
        }

    # --- counts ------------------------------------------------------------------------

    def tables(self) -> Iterator[Problem]:
        """Cells less exact counts are the noise that the window was born with."""
        held = {number: window.arena for number, window in inspect.windows(self.store).items()}
        for number, arena in [*held.items(), *self.sealed().items()]:
            found = cells(arena)
            exact = self.model.exact(self.ours[number]) if number in self.ours else {}
            rest = {name: digest(found[name] - exact.get(name, 0)) for name in found}
            born = self.model.noise.get(number)
            if born is None or (number in self.sealed() and self._rebuilt(number, rest, born)):
                born = self._birth(rest)
            if born is None:
                yield "counted once", f"window {number} has noise that nobody drew"
                continue
            self.model.noise[number] = born
            for name in rest:
                if rest[name] != born.tables.get(name):
                    yield "counted once", f"table {name!r} of window {number} has other noise"
            if rest.keys() != born.tables.keys() - born.lost:
                yield "withdrawn", f"window {number} has the tables {sorted(rest)}"
            if arena.rows != self.model.rows.get(self.ours.get(number, (-1, 0)), 0):
                yield "counted once", f"window {number} says it has {arena.rows} rows"

    def _rebuilt(self, number: int, rest: dict[str, str], born: Born) -> bool:
        """Whether a window has other noise than it was known by, and has paid for that."""
        query = "SELECT * FROM ledger WHERE kind = 'spend' AND purpose = 'rebuild'"
        paid = sum(row["window"] == number for row in self._all(query))
        fresh = paid > self.model.rebuilt.get(number, 0)
        self.model.rebuilt[number] = paid
        return fresh and not rest.items() <= born.tables.items()

    def _birth(self, rest: dict[str, str]) -> Born | None:
        taken = [id(born) for born in self.model.noise.values()]
        for born in self.model.born:
            if id(born) not in taken and rest.items() <= born.tables.items():
                return born
        return None

    def complete(self) -> Iterator[Problem]:
        """In memory and on disk, table by table."""
        total: dict[str, Any] = defaultdict(int)
        for arena in self.sealed().values():
            for name, found in cells(arena).items():
                total[name] = total[name] + found
        rows = sum(arena.rows for arena in self.sealed().values())
        held = [
            self.read[row["file"]]
            for row in self.arenas
            if row["kind"] == "complete" and row["current"]
        ]
        served = inspect.served(self.store)
        if len(held) > 1 or bool(held) != (served is not None):
            yield "complete", f"{len(held)} files with complete tables"
        held += [served] if served is not None else []
        if bool(total) != bool(held):
            yield "complete", f"{len(total)} tables are sealed, {len(held)} are complete"
        for arena in held:
            found = cells(arena)
            if found.keys() != total.keys() or arena.rows != rows:
                yield "complete", f"{sorted(found)}, {arena.rows} rows, not {sorted(total)}, {rows}"
            elif any((found[name] != total[name]).any() for name in found):
                yield "complete", "they are not the sum"

    def states(self) -> Iterator[Problem]:
        """Also of windows that are erased, whose totals stay."""
        due = self.model.states(self.now)
        found = {self.ours[row["number"]]: row["state"] for row in self.windows if row["rows"]}
        live = {window: state for window, state in found.items() if state != "erased"}
        if live != due:
            yield "states", f"windows are {live}, not {due}"
        totals = {self.ours[row["number"]]: row["rows"] for row in self.windows if row["rows"]}
        if totals != self.model.rows or len(totals) != len(self.ours):
            yield "states", f"windows have {totals} rows, not {self.model.rows}"
        by_state = {row["number"]: row["state"] for row in self.windows}
        if set(by_state.values()) - {"populating", "sealed", "erased"}:
            yield "states", f"{by_state}"
        populating = {number for number, state in by_state.items() if state == "populating"}
        held = inspect.windows(self.store).keys()
        if populating != held:
            yield "states", f"{populating} are populating, {held} held"

    # --- rows ----------------------------------------------------------------------------

    def hot(self) -> Iterator[Problem]:
        """Rows and the windows they went to, as the segments have them."""
        found = {number: (t, parts) for number, t, parts in inspect.hot(self.store).batches()}
        due = {batch.number: batch for batch in self.model.hot(self.now)}
        if list(found) != list(due):
            yield "hot", f"batches {list(found)} are hot, not {list(due)}"
        columns = set(work.SCHEMA.columns) - self.model.withdrawn
        for number in found.keys() & due.keys():
            table, parts = found[number]
            if set(table.column_names) != columns:
                yield "withdrawn", f"batch {number} has the columns {table.column_names}"
            elif table.to_pydict() != due[number].rows.select(table.column_names).to_pydict():
                yield "hot", f"batch {number} has other rows"
            if [(self.ours.get(window), rows) for window, rows in parts] != due[number].parts:
                yield "hot", f"batch {number} went to {parts}, not {due[number].parts}"
        rows = sum(batch.rows.num_rows for batch in due.values())
        hot = inspect.hot(self.store).rows
        if hot != rows:
            yield "hot", f"{hot} rows are hot, not {rows}"

    def vault(self) -> Iterator[Problem]:
        """By number and content; a file that was looked at once is not read again."""
        vault, vaulted = self.store.vault, int(self.catalogue.about("vaulted", "0"))
        files = {file.name: file for file in vault.files()}
        for envelope in vault.envelopes():
            name = envelope.header.name
            if name not in self.model.files:
                self.model.files[name] = _batches(vault, envelope)
        sealed = [number for name in files for number in self.model.files[name]]
        if twice := {number for number in sealed if sealed.count(number) > 1}:
            yield "vault", f"batches {twice} are in two files"
        for name in files:
            for number, rows in self.model.files[name].items():
                if number not in self.model.batches:
                    yield "vault", f"batch {number} was never acknowledged"
                elif kept(self.model.batches[number].rows) != rows:
                    yield "vault", f"batch {number} has other rows"
        hot = {batch.number for batch in self.model.hot(self.now)}
        kept_for = self.model.settings.vault_retention_us
        for number, batch in self.model.batches.items():
            arrived = self.model.steps[batch.step].slot * work.STEP
            over = kept_for is not None and arrived + kept_for // MICRO <= self.now
            if number not in sealed and not over and (number <= vaulted or number not in hot):
                yield "vault", f"batch {number} is in no file and not hot, {vaulted} are sealed"
        if kept_for is not None:
            old = [f.name for f in files.values() if f.last + kept_for <= self.now * MICRO]
            if old:
                yield "vault", f"{old} are past their time"
        if problems := vault.verify():
            yield "vault", f"{problems}"

    def checkpoints(self) -> Iterator[Problem]:
        """Superseded ones too, while their key lives: two subtract to exact counts."""
        hot = {batch.number for batch in self.model.hot(self.now)}
        for row in self.arenas:
            if row["kind"] == "checkpoint" and row["level"] == 0 and row["number"] in self.ours:
                lacks = self.model.lacking(self.ours[row["number"]], row["after"]) - hot
                if lacks:
                    yield "checkpoints", f"one of window {row['number']} lacks batches {lacks}"

    # --- what it cost, what is there -------------------------------------------------------

    def ledger(self) -> Iterator[Problem]:
        """Lines are only ever added, but for tables of forgotten windows, which are summed."""
        lines = [tuple(row) for row in self._all("SELECT * FROM ledger ORDER BY id")]
        before, self.model.ledger = self.model.ledger, lines
        summed = {line[1] for line in lines if line[3] == FORGOTTEN}
        if (old := _but_tables(before, summed)) != _but_tables(lines, summed)[: len(old)]:
            yield "ledger", "lines are gone or changed"
        for window in summed & {line[1] for line in before}:
            if _cost(before, window) != _cost(lines, window):
                yield "ledger", f"the tables of window {window} cost something else in all"
        for window in {line[1] for line in lines if line not in before}:
            budget, tables, reserves, uses = (
                sum(Fraction(line[4]) for line in lines if line[1] == window and line[2] in kinds)
                for kinds in (("budget",), ("table",), ("reserve",), ("spend", "forfeit"))
            )
            if tables + reserves > budget or uses > reserves:
                yield "ledger", f"window {window} is overspent"
        paid = {(line[1], line[2], line[3]) for line in lines}
        charged = {window for window, kind, _ in paid if kind == "budget"}
        draws = len(charged) + sum(line[2:4] == ("spend", "rebuild") for line in lines)
        if {row["number"] for row in self.windows} - charged or len(self.model.born) > draws:
            yield "ledger", f"{draws} births are charged, {len(self.model.born)} were"
        for row in [row for row in self.arenas if row["current"]]:
            for name in self.read[row["file"]].layout.index if row["level"] == 0 else ():
                if (row["number"], "table", name) not in paid:
                    yield "ledger", f"window {row['number']} did not pay for {name!r}"
        for why, windows in self.model.spent.items():
            if sorted(line[1] for line in lines if line[6] == why) != windows:
                yield "ledger", f"what was spent on {why} is not written once for each window"

    def files(self) -> Iterator[Problem]:
        """In both folders, and beside them."""
        for folder, table in (("hot", "steps"), ("tables", "arenas WHERE current = 1")):
            known = {row["file"] for row in self._all(f"SELECT file FROM {table}")}  # noqa: S608
            found = {file.name for file in (self.store.path / folder).iterdir()}
            if known != found:
                yield "files", f"{folder}: {found - known} not known, {known - found} not there"
        lengths = {step.file: step.length for step in inspect.hot(self.store).steps}
        sizes = {file: (self.store.path / "hot" / file).stat().st_size for file in lengths}
        if sizes != lengths:
            yield "files", "a segment has bytes that nobody acknowledged"
        beside = {"lock", "hot", "tables", "vault-backlog"}
        beside |= {f"{db}.db{end}" for db in ("catalogue", "audit") for end in ("", "-wal", "-shm")}
        strangers = {file.name for file in self.store.path.iterdir()} - beside
        if strangers:
            yield "files", f"{strangers} in the store"

    def keys(self) -> Iterator[Problem]:
        """Those in the catalogue and the one in the holder."""
        keys = inspect.keys(self.store)
        holder = keys.holder
        used = {int(self.catalogue.about(name)) for name in ("secret", "names")}
        used |= {row["key"] for row in self.arenas}
        used |= {row[name] for row in self._all("SELECT * FROM steps") for name in ("key", "once")}
        used |= {row["lock"] for row in self._all("SELECT * FROM vault_files") if row["lock"]}
        pins = "SELECT id FROM keys WHERE purpose LIKE 'pin of %'"  # open checks what they pin
        used |= {row["id"] for row in self._all(pins)}
        found = {row["id"] for row in self._all("SELECT id FROM keys")}
        if used != found:
            yield "keys", f"{len(found - used)} open nothing, {len(used - found)} are missing"
        for number in found:
            keys.get(number)
        if list(holder.keys()) != [self.catalogue.about("store_key")]:
            yield "keys", f"the holder has {len(holder.keys())} keys"

    def deletions(self) -> Iterator[Problem]:
        """Records are only ever added."""
        found = [tuple(row) for row in self._all("SELECT what, why, holder, at FROM deletions")]
        if found[: len(self.model.deletions)] != self.model.deletions:
            yield "deletions", "records are gone"
        self.model.deletions = found
        if self.catalogue.one("SELECT 1 FROM deletions WHERE done IS NULL"):
            yield "deletions", "one is not complete"
        names = set(self.store.schema.table_names) | {PRIOR}
        for file, arena in self.read.items():
            if arena.layout.index.keys() - names:
                yield "withdrawn", f"{file} has the tables {sorted(arena.layout.index)}"


def _batches(vault: Vault, envelope: Envelope) -> dict[int, list[list[Any]]]:
    """The batches of a file, read as the custodian can with the store's lock."""
    header, key = envelope.header, envelope.key(CUSTODIAN)
    if envelope.locked:
        key = joined(key, vault.locks()[header.name])
    data = vault._backlog.get(f"{header.name}.parquet")
    table = pa.Table.from_batches(decrypted(data, key, header))
    numbers = sorted(set(table[BATCH].to_pylist()))
    return {n: kept(table.filter(pc.equal(table[BATCH], n))) for n in numbers}


def kept(table: pa.Table) -> list[list[Any]]:
    """The rows of a batch without the columns that may be withdrawn, in no order."""
    return sorted(map(list, zip(*(table[name].to_pylist() for name in "typab"), strict=True)))


def cells(arena: Arena) -> dict[str, np.ndarray]:
    """The cells of each table, also while they populate."""
    index = arena.layout.index
    return {name: arena._flat(place).astype(np.int64) for name, place in index.items()}


def _but_tables(lines: list[Any], windows: set[int]) -> list[Any]:
    """Lines of the ledger without those of the tables of some windows."""
    return [line for line in lines if line[1] not in windows or line[2] != "table"]


def _cost(lines: list[Any], window: int) -> Fraction:
    """What the tables of a window cost in all."""
    amounts = [Fraction(line[4]) for line in lines if line[1:3] == (window, "table")]
    return sum(amounts, Fraction(0))
