"""The vault of one store: raw history that this machine writes and cannot read.

    writer     batches into files, each under a key that is sealed to the custodian
    backlog    files on their way to the place, tried again until it has them
    places     where they are stored

The catalogue knows each file by name, arrivals, rows and digests. With `vault_retention`
what is sealed to the custodian is locked, too, under a key of this store that is destroyed when
the file's time is over: after that not even the custodian can open it, in any copy.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from pyramidion.errors import SchemaError, StateError
from pyramidion.storage.batches import Batches
from pyramidion.storage.data_keys import PAST, DataKey
from pyramidion.storage.deletions import of_vault
from pyramidion.storage.disk import remove
from pyramidion.storage.home import BACKLOG
from pyramidion.storage.hot import Parts
from pyramidion.storage.outbox import MOST_WHY
from pyramidion.storage.table_sets import TableSets
from pyramidion.storage.vault_files import VaultFiles
from pyramidion.vault.backlog import Backlog, both
from pyramidion.vault.coverage import LOST, begin, forgo, lost, missing
from pyramidion.vault.documents import Grant, Purpose, Request
from pyramidion.vault.envelope import Envelope
from pyramidion.vault.erase_person import Rewritten, refuse_unlike
from pyramidion.vault.files import (
    HIGHEST,
    LOCK,
    LOWEST,
    Files,
    FileStatus,
    SealedFile,
    VaultStatus,
    know,
    told_of,
)
from pyramidion.vault.key_pairs import PrivateKey, PublicKey
from pyramidion.vault.parquet import digest_of
from pyramidion.vault.places import Place, local_path, place_at
from pyramidion.vault.verification import Problem, adoptable, problems, uncovered
from pyramidion.vault.writer import Arrived, Sealer, StoreParts, sealed_whole, store_sealed

REPLACED = "rows of it were erased"


def attached(url: str, custodian: PublicKey, store: Path) -> str:
    """What the catalogue says of a vault; refuses a place that cannot be one, and makes it."""
    path = local_path(url)
    if path is not None and path.resolve().is_relative_to(store.resolve()):
        raise SchemaError(
            f"a vault may not lie in its store, which a thief takes whole; choose a path outside "
            f"{store}"
        )
    place = place_at(url)
    place.make()
    return json.dumps({"url": place.url, "custodian": custodian.to_code()})


class Vault:
    """Seals what is observed, and knows what was sealed; reads none of it."""

    def __init__(self, told: str, store: StoreParts) -> None:
        said = json.loads(told)
        self.custodian = PublicKey.from_code(said["custodian"])
        self.place: Place = place_at(said["url"])
        self._parts = store
        self._catalogue, self._log = store.catalogue, store.log
        self.store = store.catalogue.about("store")
        self._backlog = Backlog(
            store.catalogue, store.folder / BACKLOG, self.place, store.present, store.log
        )
        self._sealer = Sealer(store, self.custodian, self._backlog.folder)
        self._sealer.sealed.append(self._after)
        self._files = Files(store.catalogue, store.keys, self._backlog.get)
        self._oldest = self._files.oldest()
        begin(store.catalogue)
        self._losing: list[sqlite3.Row] = []
        """Batches that are about to leave the hot window, and are in no sealed file."""

    @property
    def url(self) -> str:
        """Where the files lie, without credentials."""
        return self.place.url

    # --- rows in --------------------------------------------------------------------------

    def ready(self) -> None:
        """Wait until a batch can be taken; raises what keeps files from being sealed."""
        self._sealer.ready()

    def take(self, number: int, arrived: Arrived, table: pa.Table, parts: Parts) -> None:
        """Take a batch that is durable and hot; it is sealed later, behind the scenes."""
        self._sealer.take(number, arrived, table, parts)

    def seal(self) -> None:
        """Seal every batch that was acknowledged; durable in the backlog on return."""
        self._sealer.seal()

    def settle(self) -> None:
        """Wait until no row is in memory here that was erased from the hot window before."""
        self._sealer.settle()

    def leave(self, batches: Iterable[int]) -> None:
        """Seal before these batches leave the hot window, where they are not sealed yet."""
        self._losing = self._waiting(set(batches))
        if self._losing:
            try:
                self.seal()
            finally:
                self._losing = [r for r in self._losing if r["number"] > self._sealer.vaulted]

    def _waiting(self, batches: set[int]) -> list[sqlite3.Row]:
        found = Batches(self._catalogue).after(self._sealer.vaulted)
        return [row for row in found if row["number"] in batches]

    def losing(self) -> None:
        """Note which batches leave the hot window now and could not be sealed, if some do.

        Within the transaction of an erasure.
        """
        gone = self._losing
        if gone and not Batches(self._catalogue).has(gone[0]["number"]):
            arrived = [row["arrived"] for row in gone]
            self._log.note(
                LOST,
                self._parts.present(),
                first_batch=gone[0]["number"],
                last_batch=gone[-1]["number"],
                rows=sum(row["rows"] for row in gone),
                first=min(arrived),
                last=max(arrived),
            )

    def left(self) -> None:
        """Tell the log which batches have left the hot window and could not be sealed."""
        self._losing = []
        self._log.make_up()

    def _after(self, files: Sequence[SealedFile]) -> None:
        self._backlog.fresh.update(file.header.name for file in files)
        self._log.make_up()
        self._oldest = self._files.oldest()
        self._backlog.wake()

    # --- time passes ------------------------------------------------------------------------

    def due(self, now: int) -> bool:
        """Whether `advance` would seal or erase something. Takes no lock."""
        kept = self._parts.settings.vault_retention_us
        over = kept is not None and self._oldest is not None and self._oldest + kept <= now
        return over or self._sealer.due(now)

    def advance(self, now: int, *, held: bool = False) -> None:
        """Seal spans that are over, erase files past their time, and see to the backlog.

        While ``held`` nothing is erased.
        """
        if self._sealer.due(now):
            self._sealer.seal(now)
        if not held:
            self._forget(now)
        self._backlog.wake()

    def _forget(self, now: int) -> None:
        kept = self._parts.settings.vault_retention_us
        if kept is None:
            return
        rows = self._files.past(kept, now)
        if rows:
            self._erase(rows, PAST, now, of_person=False)
        self._oldest = self._files.oldest()

    def _erase(
        self,
        rows: Sequence[sqlite3.Row],
        why: str,
        now: int,
        anew: SealedFile | None = None,
        *,
        of_person: bool = True,
    ) -> None:
        """Destroy the locks of files, then have their objects deleted.

        ``anew``: the file that has what is left of their rows. The deletion record says whether
        they go for the sake of a person, which not everybody is told.
        """

        def forget() -> None:
            at = self._parts.present()
            if anew is None:
                forgo(self._catalogue, *((r["first_batch"], r["last_batch"]) for r in rows))
            else:
                self._know(anew)
            for row in rows:
                VaultFiles(self._catalogue).set_gone(row["name"], at)
                self._log.note("vault.erased", at, file=row["name"], why=why[:MOST_WHY])

        locks = [row["lock"] for row in rows if row["lock"] is not None]
        spans = [f"{_shown(row['first'])} to {_shown(row['last'])}" for row in rows]
        files = of_vault(spans, person=of_person)
        # Without locks, too: no backup from before may bring a file back from its backlog.
        self._parts.erase(files, why, now, keys=locks, before=forget)
        for row in rows:
            remove(self._backlog.folder, both(row["name"]))
        self._log.make_up()
        self._backlog.wake()

    # --- what is there ------------------------------------------------------------------------

    def files(self, first: int | None = None, last: int | None = None) -> list[FileStatus]:
        """The sealed files with rows that arrived from ``first`` up to, not with, ``last``."""
        return [FileStatus.of(row) for row in self._files.between(first, last)]

    def envelopes(self, first: int | None = None, last: int | None = None) -> list[Envelope]:
        """The envelopes of these files, as they lie in the place."""
        return [self._files.envelope(row) for row in self._files.between(first, last)]

    def locks(self, first: int | None = None, last: int | None = None) -> dict[str, bytes]:
        """The locks of those of these files that have one, by name."""
        rows = [row for row in self._files.between(first, last) if row["lock"] is not None]
        return {row["name"]: self._files.lock(row) for row in rows}

    def request(
        self,
        first: int,
        last: int,
        *,
        columns: Sequence[str],
        reason: str,
        engineer: str,
        key: PrivateKey,
        broker: PublicKey,
        now: int,
        purpose: Purpose = "read",
    ) -> Request:
        """Ask the custodian for rows that arrived from ``first`` up to, not with, ``last``.

        What waits is sealed first, so that the range is whole. To ``erase`` a person, whole files
        are asked for, with all that they have, and the grant gives none of it to read.
        """
        self.seal()
        files = self.envelopes(first, last)
        if not files:
            raise StateError("the vault has no rows that arrived then; ask for another time")
        if purpose == "erase":
            columns = list(dict.fromkeys(n for f in files for n in f.header.columns))
        request = Request.make(
            files,
            store=self.store,
            now=now,
            engineer=engineer,
            key=key,
            broker=broker,
            first=first,
            last=last,
            columns=columns,
            reason=reason,
            purpose=purpose,
            locks=self.locks(first, last),
        )
        self._log.append(
            "vault.requested",
            now,
            request=request.digest,
            engineer=engineer,
            first=first,
            last=last,
            purpose=purpose,
            columns=list(columns),
            reason=reason,
            files=len(files),
            names=digest_of("\n".join(sorted(file.header.name for file in files)).encode()),
        )
        return request

    def status(self) -> VaultStatus:
        """What the vault holds, and what is on its way."""
        files, waiting = self.files(), self._backlog.waiting()
        gone = VaultFiles(self._catalogue).gone()
        hot = Batches(self._catalogue).after(self._sealer.vaulted)
        return VaultStatus(
            url=self.url,
            custodian=self.custodian.fingerprint,
            files=len(files),
            rows=sum(file.rows for file in files),
            first=min((file.first for file in files), default=None),
            last=max((file.last for file in files), default=None),
            alone=self._alone(),
            waiting_rows=sum(row["rows"] for row in hot),
            backlog_files=len(waiting),
            backlog_bytes=self._backlog.size(),
            backlog_since=min((row["last"] for row in waiting), default=None),
            to_delete=len(gone),
            problem=self._backlog.problem if waiting or gone else None,
        )

    def _alone(self) -> int:
        """Rows of files, at most, that no window has any more, less those that are hot.

        No row arrives after its window ended, so rows of erased windows arrived before the last
        of these did.
        """
        erased = [row for row in TableSets(self._catalogue).windows("erased") if row["rows"]]
        ends = [HIGHEST if row["stop"] is None else row["stop"] for row in erased]
        last = max(ends, default=LOWEST)
        hot = Batches(self._catalogue).rows_until(self._sealer.vaulted, last)
        return max(0, self._files.rows_before(last) - hot)

    def carry(self) -> None:
        """Take the backlog to the place now; raises what the place raises."""
        self._backlog.carry()

    def verify(self) -> list[Problem]:
        """Read every file: those that are missing, cut off, changed, swapped, or unknown.

        And batches that no file has, where no ``vault.lost`` in the audit log tells why.
        """
        rows = self._files.between()
        gone = {row["name"] for row in VaultFiles(self._catalogue).gone()}
        names = [name for name in self.place.names() if name.partition(".")[0] not in gone]
        nowhere = missing(self._catalogue, lost(self._log))
        return [*problems(rows, self._backlog.get, names), *map(uncovered, nowhere)]

    def adopt(self, names: Iterable[str]) -> list[FileStatus]:
        """Take in files of the place that another copy of this store sealed, by your word.

        All that `verification` can check is checked; compare digests with that copy's audit log.
        """
        lock, now = self._parts.settings.vault_retention_us is not None, self._parts.present()
        files = [
            adoptable(self.place, name, self.store, self.custodian, lock=lock)
            for name in dict.fromkeys(names)
        ]
        known = VaultFiles(self._catalogue).names()
        if twice := [f.header.name for f in files if f.header.name in known]:
            raise StateError(f"the vault has the file {twice[0]} already; name others")
        with self._catalogue.transaction():
            for file in files:
                know(self._catalogue, self._parts.keys, file, stored=now)
                self._log.note("vault.adopted", now, **told_of(file.header))
        self._log.make_up()
        self._oldest = self._files.oldest()
        return [FileStatus.of(row) for f in files for row in self._files.named(f.header.name)]

    # --- rows out for good ----------------------------------------------------------------------

    def replace(
        self, name: str, tables: Sequence[pa.Table], *, why: str = REPLACED, now: int | None = None
    ) -> str | None:
        """Seal what is left of a file's rows anew, and erase the old file; the new name, if any.

        The tables have the columns of the file, ``_batch``, ``_arrived`` and ``_window`` too.
        """
        now = self._parts.now() if now is None else now
        rows = self._files.named(name)
        if not rows:
            raise StateError(f"the vault has no file {name}; see its `files`")
        left = [table for table in tables if table.num_rows]
        if not left:
            self._erase(rows, why, now)
            return None
        table = pa.concat_tables(left)
        sealed = sealed_whole(
            self._backlog.folder, self.store, table, self.custodian, lock=self._locked
        )
        self._erase(rows, why, now, sealed)
        self._after([sealed])
        return sealed.header.name

    @property
    def _locked(self) -> bool:
        """Whether files that are sealed now have a lock."""
        return self._parts.settings.vault_retention_us is not None

    def new_locks(self, names: Iterable[str]) -> dict[str, DataKey]:
        """A fresh lock for each file that takes the place of one of these, where files have one."""
        return {name: DataKey.new(LOCK) for name in names} if self._locked else {}

    def swap(self, made: Rewritten, lock: DataKey | None, *, why: str) -> str:
        """Put a file that a broker rewrote in the place of the old one; the new name."""
        rows = self._files.named(made.name)
        if not rows:
            raise StateError(f"the vault has no file {made.name}; see its `files`")
        old = self._files.envelope(rows[0]).header
        refuse_unlike(old, made, self.custodian, locked=lock is not None)
        sealed = store_sealed(self._backlog.folder, made.data, made.envelope, lock)
        self._erase(rows, why, self._parts.now(), sealed)
        self._after([sealed])
        return sealed.header.name

    def _know(self, file: SealedFile) -> None:
        know(self._catalogue, self._parts.keys, file)
        self._log.note("vault.sealed", self._parts.present(), **told_of(file.header))

    def refuse_strange(self, grant: Grant) -> None:
        """Raise for a grant of another custodian, store or state of a file than this vault's."""
        known = {row["name"]: row["digest"] for row in self._files.between()}
        strange = [f for f in grant.files if known.get(f.header.name) != f.header.digest]
        if grant.custodian != self.custodian or grant.store != self.store or strange:
            raise StateError(
                "this grant is not of this store's custodian, or not of files that its vault has "
                "now; make a new request"
            )

    def close(self) -> None:
        """Finish what is being sealed, and try the place once more, shortly."""
        self._sealer.close()
        self._backlog.close()


def _shown(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment // 1_000_000, UTC):%Y-%m-%d %H:%M}"
