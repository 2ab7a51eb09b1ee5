"""The broker: the one process that opens what a custodian granted: for whom, what for, how long.

Its private key is made when it starts and is nowhere but in its memory: a grant is sealed to
it, and so ends with the process. Nothing it decrypts touches a disk.

    present     a grant that the custodian signed, for this store and this broker, not over:
                held, and answered with a challenge that the engineer's key alone opens
    open        the challenge's answer, once: the rows, sealed to the engineer
    erase       the same for a grant to erase: its files without one person's rows, encrypted
                under keys that are sealed to the custodian, so that no row leaves the broker
    revoke      the custodian's word that a grant is over, at once, running streams too
    expire      drops the grants whose time is over, by a clock that never goes back

The audit log has each step before it is taken, and each broker by its fingerprint: what was
granted to an earlier one is over. What cannot be logged does not happen.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyramidion.counts.deadline import HighWater
from pyramidion.errors import PyramidionError, SchemaError, StateError, StorageError
from pyramidion.storage.fault_points import reach
from pyramidion.vault.documents import Grant, Granted, Purpose, Revocation
from pyramidion.vault.erase_person import Order, rewritten
from pyramidion.vault.files import NAME
from pyramidion.vault.key_pairs import PrivateKey, PublicKey
from pyramidion.vault.parquet import ARRIVED, BATCH, BLANK, OWN, WINDOW, decrypted
from pyramidion.vault.stream import (
    END,
    ENVELOPE,
    FILE,
    SEALED,
    Sealer,
    challenge_context,
    cut,
    fault,
    pieces,
)

T = TypeVar("T")

ANSWER_WITHIN = 60_000_000  # microseconds that a challenge waits for its answer
CHALLENGES = 1_000  # that wait at a time; the oldest make room
REFUSALS = 100  # in a minute that have an entry, of what no custodian signed
OF_ONE = 10  # refusals of one grant that have an entry; then one in a minute
MINUTE = 60_000_000


class Place(Protocol):
    """Where the files lie."""

    def get(self, name: str) -> bytes:
        """The bytes of one."""


class Log(Protocol):
    """The audit log."""

    def append(self, kind: str, at: int, **facts: Any) -> Any:
        """Add an entry, durable on return."""

    def latest(self) -> int:
        """The time of the last entry, in microseconds."""


@dataclass(frozen=True)
class Challenge:
    """Bytes sealed to a grant's engineer; who opens them may have the rows."""

    grant: str
    sealed: bytes


class Broker:
    """Streams granted rows to engineers. Several threads may use it."""

    def __init__(
        self,
        place: Place,
        store: str,
        custodian: PublicKey,
        log: Log,
        clock: HighWater | None = None,
    ) -> None:
        self.store, self.custodian = store, custodian
        self._key = PrivateKey.new()
        self._place, self._log = place, log
        self._clock = clock or HighWater(log.latest())
        self._lock = threading.RLock()
        self._held: dict[str, Grant] = {}
        self._until: dict[str, int] = {}
        self._over: dict[str, str] = {}
        self._unlogged: list[str] = []
        self._challenges: dict[str, tuple[str, int]] = {}
        self._refusals: deque[int] = deque(maxlen=REFUSALS)
        self._refused: dict[str, tuple[int, int]] = {}
        self._people: dict[str, bytes] = {}
        self._append("vault.broker", broker=self.public.fingerprint)

    @property
    def public(self) -> PublicKey:
        """What grants are sealed to."""
        return self._key.public

    def held(self) -> list[Grant]:
        """The grants that are live."""
        self.expire()
        with self._lock:
            return list(self._held.values())

    # --- the steps ------------------------------------------------------------------------

    def present(self, text: str | bytes) -> Challenge:
        """Take a grant in, and challenge who came with it."""
        with self._lock:
            grant = self._checked(lambda: Grant.from_json(text, self.custodian))
            token = os.urandom(32)
            sealed = self._checked(lambda: self._challenge(grant, token), grant.id)
            if grant.id not in self._held:
                self._append("vault.granted", **_told(grant), expires=grant.expires)
                self._held[grant.id] = grant
                self._until[grant.id] = self._clock() + grant.expires - grant.issued
                reach("broker.held")
            self._challenges[_name(token)] = (grant.id, self._clock() + ANSWER_WITHIN)
            while len(self._challenges) > CHALLENGES:
                del self._challenges[next(iter(self._challenges))]
        return Challenge(grant.id, sealed)

    def _challenge(self, grant: Grant, token: bytes) -> bytes:
        self._refuse_foreign(grant)
        return grant.key.seal(token, challenge_context(grant))

    def open(self, token: bytes) -> Iterator[bytes]:
        """The bytes of a stream, for who opened the challenge; an entry is made before."""
        with self._lock:
            grant = self._used(token, "read")
            self._append("vault.opened", **_told(grant), rows=_rows_of(grant))
            reach("broker.logged")
        return self._streamed(grant, Sealer(grant, token, self._key), self._pieces(grant))

    def erase(self, token: bytes, order: bytes) -> Iterator[bytes]:
        """The granted files, rewritten without the rows of the person whom the order names."""
        with self._lock:
            grant = self._used(token, "erase")
            told = self._checked(lambda: Order.open(order, grant, token, self._key), grant.id)
            self._checked(lambda: self._refuse_second(grant, told), grant.id)
            self._append("vault.rewritten", **_told(grant), rows=_rows_of(grant))
            reach("broker.ordered")
        sealer = Sealer(grant, token, self._key)
        return self._streamed(grant, sealer, self._rewritten(grant, told))

    def _used(self, token: bytes, purpose: Purpose) -> Grant:
        """The live grant that a token answers for, if it is for this purpose."""
        grant = self._checked(lambda: self._answered(token))
        self._checked(lambda: self._refuse_over(grant), grant.id)
        self._checked(lambda: grant.refuse_unless(purpose), grant.id)
        return grant

    def revoke(self, text: str | bytes) -> str:
        """End a grant, held or still to come; its id."""
        with self._lock:
            revocation = self._checked(lambda: Revocation.from_json(text, self.custodian))
            ended = revocation.grant
            if self._over.get(ended) != _REVOKED:
                held = self._held.pop(ended, None)  # also where the log then fails
                self._over[ended] = _REVOKED
                self._append("vault.revoked", grant=ended, held=int(held is not None))
        return ended

    def expire(self) -> None:
        """Drop what is over; each gets its entry, later if the log cannot take it now."""
        with self._lock:
            now = self._clock()
            for grant in [g for g in self._held.values() if self._end(g) <= now]:
                del self._held[grant.id]
                self._over[grant.id] = _EXPIRED
                self._unlogged.append(grant.id)
            while self._unlogged:
                self._append("vault.expired", grant=self._unlogged[0])
                del self._unlogged[0]

    def _end(self, grant: Grant) -> int:
        """When a grant ends: no longer than meant, also if the custodian's clock is ahead."""
        return min(grant.expires, self._until.get(grant.id, grant.expires))

    def close(self) -> None:
        """End all grants, and running streams at their next piece."""
        with self._lock, suppress(PyramidionError):
            held, self._held = self._held, {}
            self._challenges.clear()
            self._over |= dict.fromkeys(held, _ENDED)
            for grant in held:
                self._append("vault.expired", grant=grant, why="the broker was stopped")

    # --- what is refused ------------------------------------------------------------------

    def _refuse_foreign(self, grant: Grant) -> None:
        if grant.store != self.store:
            raise StateError("this grant is for another store; take it to the broker of that one")
        if grant.broker != self.public:
            raise StateError(
                "this grant is for another broker, or for this one before it was started again, "
                "which ends all grants; make a new request"
            )
        if not all(NAME.fullmatch(file.header.name) for file in grant.files):
            raise SchemaError("this grant names a file as no vault names one; ask who requested it")
        known = {name for file in grant.files for name in file.header.columns} | set(OWN)
        if grant.files and not known.issuperset(grant.columns):
            raise SchemaError("this grant names a column that its files do not have; ask again")
        self._refuse_over(grant)
        held = self._held.get(grant.id)
        if held is not None and held.digest != grant.digest:
            raise StateError(f"grant {grant.id} has the name of another one; have it made again")

    def _refuse_over(self, grant: Grant) -> None:
        self.expire()
        with self._lock:
            over = self._over.get(grant.id)
            if over is None and self._end(grant) <= self._clock():
                over = _EXPIRED
        if over is not None:
            raise StateError(f"grant {grant.id} {over}")

    def _refuse_second(self, grant: Grant, order: Order) -> None:
        """One person for a grant: the sizes of rewritten files could tell who is in them."""
        if self._people.setdefault(grant.id, order.digest) != order.digest:
            raise StateError(
                f"grant {grant.id} was used for another person; make a new request for this one"
            )

    def _answered(self, token: bytes) -> Grant:
        held, until = self._challenges.pop(_name(token), ("", 0))
        if held not in self._held or until <= self._clock():
            self.expire()
            raise StateError(
                f"grant {held} {self._over[held]}"
                if held in self._over
                else "this answers no challenge that waits for one; present the grant again"
            )
        return self._held[held]

    def _checked(self, check: Callable[[], T], grant: str | None = None) -> T:
        """What a check gives; a refusal is logged and raised."""
        try:
            return check()
        except PyramidionError as error:
            self._note(grant, str(error))
            raise

    def _note(self, grant: str | None, why: str) -> None:
        """Log a refusal; only so many of what nobody signed, or of one grant: disks fill up."""
        if grant is not None:
            if self._has_entry(grant):
                self._append("vault.refused", grant=grant, why=why)
            return
        now, times = self._clock(), self._refusals
        if len(times) == REFUSALS and times[0] > now - MINUTE:
            return
        times.append(now)
        if len(times) == REFUSALS and times[0] > now - MINUTE:
            why = "too many refusals in a minute: the next ones have no entries"
        self._append("vault.refused", grant=None, why=why)

    def _has_entry(self, grant: str) -> bool:
        """Whether this refusal of a signed grant is logged: one of the first, or a minute later."""
        (before, last), now = self._refused.get(grant, (0, 0)), self._clock()
        if before >= OF_ONE and last > now - MINUTE:
            return False
        self._refused[grant] = before + 1, now
        return True

    def _append(self, kind: str, **facts: Any) -> None:
        entry = self._log.append(kind, self._clock(), **facts)
        self._clock.seen(entry.at)

    # --- rows -----------------------------------------------------------------------------

    def _streamed(
        self, grant: Grant, sealer: Sealer, frames: Iterator[tuple[bytes, bytes]]
    ) -> Iterator[bytes]:
        yield sealer.opening
        try:
            for kind, piece in frames:
                self._refuse_over(grant)
                yield sealer.frame(kind, piece)
            return
        except PyramidionError as error:
            why: PyramidionError = error
        except Exception:  # its words may quote a row
            why = StorageError("the broker could not read the vault; look at the machine it is on")
        with suppress(PyramidionError), self._lock:  # it has ended, logged or not
            self._note(grant.id, str(why))
        yield sealer.frame(*fault(why))

    def _pieces(self, grant: Grant) -> Iterator[tuple[bytes, bytes]]:
        for file in grant.files:
            yield FILE, file.header.name.encode()
            for batch in self._rows(grant, file):
                reach("broker.decrypted")
                yield from pieces(batch)
        yield END, b""

    def _rewritten(self, grant: Grant, order: Order) -> Iterator[tuple[bytes, bytes]]:
        for file in grant.files:
            yield FILE, file.header.name.encode()
            batches = list(self._decrypted(grant, file, [*file.header.columns, *OWN]))
            reach("broker.read")
            table = pa.Table.from_batches(batches)
            data, envelope = rewritten(table, file.header, order, self.custodian)
            yield from cut(data, SEALED)
            yield ENVELOPE, envelope.to_bytes()
        yield END, b""

    def _rows(self, grant: Grant, file: Granted) -> Iterator[pa.RecordBatch]:
        """The granted rows and columns of a file; without rows, one batch that has none."""
        header = file.header
        asked = [n for n in grant.columns if n in header.columns or n in OWN]
        columns = list(dict.fromkeys([*asked, BATCH, ARRIVED]))
        read = list(dict.fromkeys([*columns, WINDOW]))
        first = True
        for batch in self._decrypted(grant, file, read):
            kept = _between(batch, grant).select(columns)
            if kept.num_rows or first:
                yield kept
            first = False

    def _decrypted(
        self, grant: Grant, file: Granted, columns: list[str]
    ) -> Iterator[pa.RecordBatch]:
        data = self._place.get(f"{file.header.name}.parquet")
        reach("broker.fetched")
        return decrypted(data, grant.file_key(file, self._key), file.header, columns)


_EXPIRED = "is over: its time has passed; make a new request"
_REVOKED = "was taken back by the custodian; ask the custodian why"
_ENDED = "is not held by this broker any more; present it again, or make a new request"


def _between(batch: pa.RecordBatch, grant: Grant) -> pa.RecordBatch:
    """The rows that arrived when the grant says, and were not erased."""
    arrived = batch.column(ARRIVED)
    late = pc.greater_equal(arrived, pa.scalar(grant.first, arrived.type))
    early = pc.less(arrived, pa.scalar(grant.last, arrived.type))
    there = pc.not_equal(batch.column(WINDOW), BLANK)
    return batch.filter(pc.and_(pc.and_(late, early), there))


def _told(grant: Grant) -> dict[str, Any]:
    """What entries say of a grant; the names of its files may be too many for one."""
    names = sorted(file.header.name for file in grant.files)
    return {
        "grant": grant.id,
        "request": grant.request,
        "custodian": grant.custodian.fingerprint,
        "engineer": grant.engineer,
        "first": grant.first,
        "last": grant.last,
        "columns": list(grant.columns),
        "purpose": grant.purpose,
        "files": len(grant.files),
        "names": sha256("\n".join(names).encode()).hexdigest(),
    }


def _rows_of(grant: Grant) -> int:
    return sum(file.header.rows for file in grant.files)


def _name(token: bytes) -> str:
    return sha256(token).hexdigest()
