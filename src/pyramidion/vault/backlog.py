"""Sealed files on their way to the vault's place: tried again until it takes them.

A file is durable in the backlog before the catalogue knows it. From there it goes to the
place, rows first and envelope last; then the catalogue says that it is stored; then it
leaves the backlog. Each step may be done twice. A place that is down delays all of this and
stops nobody who observes. Files that were erased are deleted in the same way: their key is
gone before.
"""

from __future__ import annotations

import mmap
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyramidion.errors import FormatError, StorageError
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.disk import explained, read, remove
from pyramidion.storage.fault_points import reach
from pyramidion.storage.outbox import AuditOutbox
from pyramidion.storage.vault_files import VaultFiles
from pyramidion.vault.envelope import Envelope
from pyramidion.vault.files import envelope_of, parquet_of
from pyramidion.vault.parquet import digest_of
from pyramidion.vault.places import Place

FIRST, MOST = 1.0, 60.0  # seconds until a place that failed is tried again
SHORT = 2.0  # seconds that closing waits for the place


class Backlog:
    """The folder of files that are sealed and not away yet, and who carries them."""

    def __init__(
        self,
        catalogue: Catalogue,
        folder: Path,
        place: Place,
        now: Callable[[], int],
        log: AuditOutbox,
    ) -> None:
        self._catalogue, self.folder, self._place, self._now = catalogue, folder, place, now
        self._files = VaultFiles(catalogue)
        self._log = log
        self.problem: str | None = None
        """What kind of error kept the last try from ending well."""
        self.fresh: set[str] = set()
        """Files that this process has sealed; of others, the bytes are looked at first."""
        self._carrying = threading.Lock()
        self._call, self._closed = threading.Event(), False
        self._thread: threading.Thread | None = None
        with explained(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        self.tidy()

    # --- what is there ------------------------------------------------------------------------

    def waiting(self) -> list[sqlite3.Row]:
        """Files that the place does not have, oldest first."""
        return self._files.waiting()

    def size(self) -> int:
        """Bytes that they take here; one that goes meanwhile takes none."""
        total = 0
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def tidy(self) -> None:
        """Remove what the catalogue does not expect here: such a file has no key, or is stored."""
        known = {both(row["name"]) for row in self.waiting()}
        with explained(self.folder):
            found = {path.name for path in self.folder.iterdir()}
        strangers = found.difference(*known)
        if strangers:
            remove(self.folder, strangers)

    def get(self, name: str) -> bytes:
        """An object, from here or from the place."""
        path = self.folder / name
        with suppress(FileNotFoundError):
            return path.read_bytes()
        return self._place.get(name)

    # --- on the way -----------------------------------------------------------------------------

    def wake(self) -> None:
        """Have what waits carried, behind the scenes."""
        if self._closed:
            return
        if self._thread is None and (self.waiting() or self._files.gone()):
            self._thread = threading.Thread(target=self._run, name="pyramidion vault", daemon=True)
            self._thread.start()
        self._call.set()

    def _run(self) -> None:
        wait, pause = None, FIRST
        while True:
            self._call.wait(wait)
            self._call.clear()
            try:
                self.carry()
                wait, pause = None, FIRST
            except Exception:  # it is in `problem`, and tried again
                wait, pause = pause, min(2 * pause, MOST)
            if self._closed:
                return

    def carry(self) -> None:
        """Carry all that waits now; raises what the place raises."""
        try:
            with self._carrying:
                for row in self._files.gone():
                    self._delete(row)
                for row in self.waiting():
                    self._store(row)
            self.problem = None
        except Exception as problem:
            self.problem = type(problem).__name__  # its text may tell more than a status should
            raise

    def _store(self, row: sqlite3.Row) -> None:
        name = row["name"]
        if (self.folder / parquet_of(name)).exists():
            self._put(row)
        elif not self._came(row):  # by another copy of the store
            raise StorageError(
                f"vault file {name} is neither in the backlog nor in the vault; restore the store "
                f"from a backup that has it"
            )
        reach("vault.stored")
        now = self._now()
        with self._catalogue.transaction():
            self._files.set_stored(name, now)
            self._log.note("vault.stored", now, file=name)
        reach("vault.settled")
        remove(self.folder, both(name))
        self.fresh.discard(name)
        self._log.make_up()

    def _put(self, row: sqlite3.Row) -> None:
        path, envelope = (self.folder / each for each in both(row["name"]))
        sealed = read(envelope)
        with explained(path):
            file = path.open("rb")
        with file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            known = row["name"] in self.fresh or digest_of(data) == row["digest"]
            if not known or digest_of(sealed) != row["envelope"]:
                raise FormatError(
                    f"vault file {row['name']} was changed in the backlog; restore it from a backup"
                )
            with memoryview(data) as view:
                self._place.put(path.name, view)
        self._place.put(envelope.name, sealed)
        if not self._came(row):
            raise StorageError(f"vault file {row['name']} did not come through whole; try again")

    def _came(self, row: sqlite3.Row) -> bool:
        """Whether the place has the file, as long as its envelope says; the catalogue does not."""
        size = self._place.size(parquet_of(row["name"]))
        if size is None:
            return False
        sealed = self._place.get(envelope_of(row["name"]))
        known = digest_of(sealed) == row["envelope"]
        return known and Envelope.from_bytes(sealed).header.size == size

    def _delete(self, row: sqlite3.Row) -> None:
        remove(self.folder, both(row["name"]))
        for name in reversed(both(row["name"])):
            self._place.delete(name)
        with self._catalogue.transaction():
            self._files.delete(row["name"])

    def close(self) -> None:
        """One more try, and a short one."""
        self._closed = True
        if self._thread is not None:
            self._call.set()
            self._thread.join(SHORT)


def both(name: str) -> tuple[str, str]:
    """The two objects of a file, in the order in which they are put."""
    return parquet_of(name), envelope_of(name)
