"""The hot window on disk: batches of raw rows in steps, each step under a key of its own.

What is known of a batch beyond its number of rows and its arrival (where its record lies,
how many rows were refused or late, which windows they went to) follows from what its rows
hold. So it stands in the catalogue sealed under the step's key, and dies with it.
"""

from __future__ import annotations

import json
import sqlite3
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.settings import Settings
from pyramidion.counts.windows import Slots
from pyramidion.errors import FormatError, PyramidionError, StorageError
from pyramidion.storage import records
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.idempotency import CONTENT, Once, content_digest, key_digest
from pyramidion.storage.segments import Segments

Parts = Sequence[tuple[int, int]]
"""Window and rows of each part of a batch, in the order the rows lie there."""

STEP, ONCE = "hot step", "idempotency keys of a hot step"
CLOSED = -(1 << 62)  # the slot of a step that takes no more rows, whatever time it is
GRAIN = 256  # bytes that what is sealed of a batch is filled up to
ASKED = 500  # values in one query; some builds of SQLite take no more than 999

_PACKED = np.dtype("<i8")  # of numbers in a receipt: all take the same room, whatever they are


@dataclass(frozen=True)
class Receipt:
    """What became of a batch.

    ``late`` rows are among the accepted ones: they came after their window was sealed and
    were counted in the populating one. ``blanked`` rows are, too: with a unit, they are
    beyond the k-th of their person in a block, and touched no table.
    """

    accepted: int
    refused: int
    late: int
    blanked: int = 0

    @property
    def public(self) -> dict[str, int]:
        """What a sender may be told: all but ``blanked``.

        How many rows are blanked follows from the rows that others sent of the same person, and
        from whether the person was erased.
        """
        return {"accepted": self.accepted, "refused": self.refused, "late": self.late}


@dataclass(frozen=True)
class Stored:
    """A batch that is hot: where its record lies, and what became of its rows."""

    number: int
    start: int
    length: int
    receipt: Receipt
    parts: Parts
    counted: bytes = b""
    """With a unit, a bit for each row in the order they lie there: 0 where it was blanked."""
    erased: Sequence[int] = ()
    """How many rows of each part were erased since they came; empty: nobody asked for that."""
    receipts: bytes = field(default=b"", repr=False)
    """Where several arrivals are in it, what became of each that came under a key, packed."""
    contents: bytes | None = field(default=None, repr=False)
    """Keyed hashes of what came under each key, packed; None: stored before there were any."""

    def has(self, place: int, content: bytes) -> bool:
        """Whether this came under a key, by its keyed hash, as far as that is known."""
        if self.contents is None:
            return True
        return self.contents[place * CONTENT : (place + 1) * CONTENT] == content

    def receipt_of(self, place: int) -> Receipt:
        """What became of one of the arrivals that came under a key."""
        if not self.receipts:
            return self.receipt
        return Receipt(*np.frombuffer(self.receipts, _PACKED).reshape(-1, 4)[place].tolist())

    @property
    def lie(self) -> Parts:
        """Window and rows of each part as they lie there: `parts` less what was erased."""
        if not self.erased:
            return self.parts
        both = zip(self.parts, self.erased, strict=True)
        return [(window, rows - gone) for (window, rows), gone in both]

    @property
    def rows(self) -> int:
        """How many rows lie there; the receipt says how many came."""
        return sum(rows for _, rows in self.lie)

    def less(self, left: NDArray[np.bool_]) -> Stored:
        """The same with only some of its rows: all that is told of the others stays as it was."""
        ends = np.cumsum([rows for _, rows in self.lie])[:-1]
        lost = [int(part.size - part.sum()) for part in np.split(left, ends)]
        before = self.erased or [0] * len(lost)
        bits = np.packbits(self.unpacked[left]).tobytes() if self.counted else b""
        return replace(
            self,
            erased=[one + more for one, more in zip(before, lost, strict=True)],
            counted=bits.ljust(len(self.counted), b"\0"),
        )

    @property
    def unpacked(self) -> NDArray[np.bool_]:
        """Which rows count, in the order they lie there."""
        bits = np.frombuffer(self.counted, dtype=np.uint8)
        return np.unpackbits(bits, count=self.rows).astype(np.bool_)

    def sealed(self, key: DataKey) -> bytes:
        """All of it, for the catalogue.

        How long it is does not tell how many rows were blanked, or erased.
        """
        told = asdict(self)
        blanked, counted = told["receipt"].pop("blanked"), told.pop("counted")
        receipts, contents = told.pop("receipts"), told.pop("contents")
        told |= {"receipts": b64encode(receipts).decode()} if receipts else {}
        told |= {} if contents is None else {"contents": b64encode(contents).decode()}
        erased = [f"{rows:20}" for rows in told.pop("erased")]
        told |= {"erased": erased} if erased else {}
        if counted:
            told |= {"counted": b64encode(counted).decode(), "blanked": f"{blanked:20}"}
        data = json.dumps(told).encode()
        data += b" " * (-len(data) % GRAIN)
        return b"".join(sealed(key.key, [data], self._context(self.number)))

    @classmethod
    def opened(cls, number: int, data: bytes, key: DataKey) -> Stored:
        """What `sealed` made."""
        what = f"what the catalogue knows of batch {number}"
        told = json.loads(opened(key.key, data, cls._context(number), what=what))
        parts = [(window, rows) for window, rows in told["parts"]]
        place = told["number"], told["start"], told["length"]
        receipt = Receipt(**told["receipt"], blanked=int(told.get("blanked", 0)))
        erased = [int(rows) for rows in told.get("erased", ())]
        counted, receipts = (b64decode(told.get(name, "")) for name in ("counted", "receipts"))
        contents = b64decode(told["contents"]) if "contents" in told else None
        return cls(*place, receipt, parts, counted, erased, receipts, contents)

    @staticmethod
    def _context(number: int) -> bytes:
        return f"of batch {number}".encode()


@dataclass
class Step:
    """One step of the hot window."""

    number: int
    slot: int
    start: int
    file: str
    key: DataKey
    once: DataKey
    """Keys the digests of idempotency keys, which so die with the step."""
    rows: int = 0
    batches: list[Stored] = field(default_factory=list)
    known: bool = True
    """Whether the catalogue has it."""
    closed: bool = False
    """Whether it is about to leave, and takes no more rows."""
    unbound: bool = False
    """Whether keys in it may be from before they were bound to callers and contents."""

    @property
    def length(self) -> int:
        """Bytes of its file that were acknowledged."""
        return self.batches[-1].start + self.batches[-1].length if self.batches else 0


@dataclass
class Appended:
    """A record that is being written and not yet acknowledged."""

    step: Step
    before: int | Appended
    """Where it lies, or behind which one that is being written."""
    written: Future[int] = field(default_factory=Future)
    """Its length, once it is durable, or the last one is that is appended with it."""

    def start(self) -> int:
        """Where it lies, once what lies before it is written."""
        if not isinstance(self.before, int):
            self.before = self.before.start() + self.before.written.result()
        return self.before


@dataclass(frozen=True)
class Fresh:
    """A batch that is written and counted, to be made known; what became of its arrivals."""

    number: int
    appended: Appended
    receipts: Sequence[tuple[Once | None, Receipt]]
    """How each arrival in it is recognised, and its receipt."""
    parts: Parts
    counted: NDArray[np.bool_] | None = None
    since: int | None = None
    """When its first row arrived, if not with all others: it is of a history."""

    @property
    def receipt(self) -> Receipt:
        """What became of all of its rows."""
        return Receipt(*(sum(each) for each in zip(*map(_numbers, self._each), strict=True)))

    @property
    def _each(self) -> list[Receipt]:
        return [receipt for _, receipt in self.receipts]

    def stored(self) -> Stored:
        """As it is kept."""
        bits = b"" if self.counted is None else np.packbits(self.counted).tobytes()
        place = self.number, self.appended.start(), self.appended.written.result()
        keyed = [_numbers(receipt) for once, receipt in self.receipts if once is not None]
        several = keyed if len(self.receipts) > 1 else []
        receipts = np.array(several, dtype=_PACKED).tobytes()
        secret = self.appended.step.once.key
        contents = b"".join(content_digest(once, secret) for once in self._keyed)
        return Stored(*place, self.receipt, self.parts, bits, (), receipts, contents)

    @property
    def _keyed(self) -> list[Once]:
        return [once for once, _ in self.receipts if once is not None]

    def digests(self) -> list[tuple[bytes, int, int]]:
        """The keys as the catalogue keeps them, with where the receipt of each is."""
        secret = self.appended.step.once.key
        return [(key_digest(once, secret), self.number, n) for n, once in enumerate(self._keyed)]


class HotWindow:
    """Raw rows of the last steps; nothing else on this machine has raw rows."""

    def __init__(
        self, catalogue: Catalogue, keys: DataKeys, segments: Segments, settings: Settings
    ) -> None:
        self._catalogue = catalogue
        self._keys = keys
        self._segments = segments
        self._settings = settings
        self._slots = Slots.of_steps(settings)
        self.widths: records.Widths = {}
        """What the length of a record follows from, besides the number of its rows."""
        rows = catalogue.all("SELECT * FROM steps ORDER BY number")
        self.steps = [self._step(row) for row in rows]
        self._blanked = {
            batch.number: batch for step in self.steps for batch in step.batches if batch.counted
        }
        for step in self.steps:
            segments.cut(step.file, step.length)
        self.first = 0
        """The number of the first step that takes rows: since clocks disagree, or all."""
        self.rewrote: list[Callable[[], None]] = []
        """Called when hot rows were changed, by who holds the lock of arrivals."""

    def _step(self, row: sqlite3.Row) -> Step:
        key, once = (
            DataKey(row[name], purpose, self._keys.get(row[name]))
            for name, purpose in (("key", STEP), ("once", ONCE))
        )
        found = self._catalogue.all(
            "SELECT number, sealed FROM batches WHERE step = ? ORDER BY number", row["number"]
        )
        batches = [Stored.opened(each["number"], each["sealed"], key) for each in found]
        place = row["number"], row["slot"], row["start"], row["file"]
        unbound = any(batch.contents is None for batch in batches)
        return Step(*place, key, once, row["rows"], batches, unbound=unbound)

    @property
    def rows(self) -> int:
        """Raw rows that are kept."""
        return sum(step.rows for step in self.steps)

    # --- in -------------------------------------------------------------------------

    def append(
        self,
        number: int,
        table: pa.Table,
        now: int,
        before: Appended | None = None,
        last: bool = True,
    ) -> Appended:
        """Write a batch; it counts for nothing until `acknowledge` is in a transaction.

        It lies behind the one ``before`` it, in the same step, where that is not known yet. All
        are durable when the ``last`` one is.
        """
        step = self._current(now) if before is None else before.step
        made = Appended(step, step.length if before is None else before)
        make = partial(records.to_bytes, table, self.widths)
        key, context = step.key.key, f"batch {number}"
        append = self._segments.append
        made.written = append(step.file, made.start, make, key, context, last=last)
        return made

    def sync(self, appended: Appended) -> None:
        """Wait until a batch is durable that was not appended as the last one."""
        self._segments.sync(appended.step.file).result()

    def _current(self, now: int) -> Step:
        slot, most = self._slots.at(now), self._settings.step_rows
        last = self.steps[-1] if self.steps else None
        takes = last is not None and not last.closed and last.slot >= slot
        room = last is not None and (most is None or last.rows < most)
        if last is not None and takes and room and last.number >= self.first:
            return last
        key, once = DataKey.new(STEP), DataKey.new(ONCE)
        number, start = int(self._catalogue.about("next_step", "1")), self._slots.start(slot)
        return Step(number, slot, start, _file(key), key, once, known=False)

    def acknowledge(self, fresh: Sequence[Fresh], now: int, came: int) -> list[Stored]:
        """Make batches of one step known, which came at a time of the clock; in a transaction."""
        step, run = fresh[0].appended.step, self._catalogue.run
        if not step.known:
            self._add(step)
        made = [each.stored() for each in fresh]
        rows = sum(stored.receipt.accepted for stored in made)
        run("UPDATE steps SET rows = rows + ? WHERE number = ?", rows, step.number)
        for stored, each in zip(made, fresh, strict=True):
            run(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)",
                stored.number,
                step.number,
                stored.receipt.accepted,
                now,
                stored.sealed(step.key),
                came,
                now if each.since is None else each.since,
            )
        digests = [digest for each in fresh for digest in each.digests()]
        self._catalogue.run_all("INSERT INTO arrivals VALUES (?, ?, ?)", digests)
        return made

    def _add(self, step: Step) -> None:
        """Make a step known; within a transaction."""
        self._keys.add(step.key)
        self._keys.add(step.once)
        self._catalogue.run(
            "INSERT INTO steps (number, slot, start, key, once, file) VALUES (?, ?, ?, ?, ?, ?)",
            step.number,
            step.slot,
            step.start,
            step.key.id,
            step.once.id,
            step.file,
        )
        self._catalogue.note(next_step=step.number + 1)

    def acknowledged(self, step: Step, made: Sequence[Stored]) -> None:
        """After the transaction: from here on the batches are hot."""
        for stored in made:
            step.rows += stored.receipt.accepted
            if stored.counted:  # first: who finds the batch finds which of its rows count
                self._blanked[stored.number] = stored
            step.batches.append(stored)
        if not step.known:
            step.known = True
            self.steps.append(step)

    def seen(self, asked: Collection[Once]) -> dict[Once, Receipt | None]:
        """The receipts of what came before, while it is hot; None: something else came so."""
        found: dict[Once, Receipt | None] = {}
        for step in self.steps:
            secret, named = step.once.key, dict[bytes, list[Once]]()
            for once in asked:
                named.setdefault(key_digest(once, secret), []).append(once)
                if step.unbound and once.sender:
                    named.setdefault(key_digest(Once(once.key), secret), []).append(once)
            for some in _in_pieces(list(named), ASKED):
                marks = ", ".join("?" * len(some))
                query = f"SELECT * FROM arrivals WHERE once IN ({marks})"  # noqa: S608
                for digest, number, place in self._catalogue.all(query, *some):
                    batch = step.batches[bisect_left(step.batches, number, key=_number)]
                    for once in named[digest]:
                        if digest == key_digest(once, secret) or batch.contents is None:
                            same = batch.has(place, content_digest(once, secret))
                            found[once] = batch.receipt_of(place) if same else None
        return found

    # --- out ------------------------------------------------------------------------

    def batches(
        self, wanted: Callable[[int, Parts], bool] = lambda *_: True
    ) -> Iterator[tuple[int, pa.Table, Parts]]:
        """Batches by number, with their raw rows and the windows these went to."""
        for step in list(self.steps):
            for batch in list(step.batches):
                if wanted(batch.number, batch.parts):
                    yield batch.number, self._read(step, batch), batch.lie

    def stored(self, wanted: Callable[[int], bool]) -> list[Stored]:
        """What is known of some batches, by number."""
        known = (batch for step in list(self.steps) for batch in list(step.batches))
        return [batch for batch in known if wanted(batch.number)]

    def counted(self, number: int) -> NDArray[np.bool_] | None:
        """Which rows of a batch count, in the order they lie there; None: all."""
        batch = self._blanked.get(number)
        return None if batch is None else batch.unpacked

    def _read(self, step: Step, batch: Stored) -> pa.Table:
        return records.from_bytes(self._data(step, batch))

    def _data(self, step: Step, batch: Stored) -> bytearray:
        return self._segments.read(
            step.file, batch.start, batch.length, step.key.key, f"batch {batch.number}"
        )

    def leaving(self, now: int) -> list[Step]:
        """The steps whose time is over, or that are more than the rows to be kept."""
        limit, most = self._settings.hot_window_us, self._settings.hot_rows
        limit = self._settings.retention_us if limit is None else limit
        due = [step for step in self.steps if step.start + limit <= now]
        left = [step for step in self.steps if step not in due]
        while most is not None and len(left) > 1 and sum(step.rows for step in left) > most:
            due.append(left.pop(0))
        return due

    def forget(self, steps: Sequence[Step], at: int) -> None:
        """Drop steps from the catalogue; within the transaction that drops their keys.

        What is public of them stays as long as the store keeps anything: when rows arrived in
        them, how many, and by the clock when they came and when they left: ``at``.
        """
        for step in steps:
            self._catalogue.run(
                "INSERT OR REPLACE INTO past_steps "
                "SELECT step, min(since), max(arrived), sum(rows), ?, min(came), max(came) "
                "FROM batches WHERE step = ? GROUP BY step",
                at,
                step.number,
            )
            self._catalogue.run(
                "DELETE FROM arrivals WHERE batch IN (SELECT number FROM batches WHERE step = ?)",
                step.number,
            )
            self._catalogue.run("DELETE FROM batches WHERE step = ?", step.number)
            self._catalogue.run("DELETE FROM steps WHERE number = ?", step.number)

    def forget_past(self, horizon: int) -> None:
        """Drop what is known of steps that left, if their first row came that long ago."""
        first = self._catalogue.one("SELECT min(came_first) FROM past_steps")
        if first is not None and first <= horizon:
            self._catalogue.run("DELETE FROM past_steps WHERE came_first <= ?", horizon)

    def forgotten(self, steps: Sequence[Step]) -> None:
        """After the transaction: these steps are over; their files go later."""
        self._segments.forget()
        gone = {step.number for step in steps}
        self.steps = [step for step in self.steps if step.number not in gone]
        for batch in (batch for step in steps for batch in step.batches):
            self._blanked.pop(batch.number, None)

    def close(self, steps: Sequence[Step]) -> None:
        """Have these steps take no more rows, also after a restart; within a transaction.

        The next row begins a step under keys of its own.
        """
        for step in steps:
            self._catalogue.run("UPDATE steps SET slot = ? WHERE number = ?", CLOSED, step.number)
            step.closed = True

    def refuse_unreadable(self, numbers: Collection[int]) -> None:
        """Raise where the record of one of these batches is damaged or gone."""
        for step in list(self.steps):
            for batch in list(step.batches):
                if batch.number in numbers:
                    self._data(step, batch)

    def damaged(self) -> Iterator[tuple[int, PyramidionError]]:
        """The numbers of batches that cannot be read, and why."""
        for step in list(self.steps):
            for batch in list(step.batches):
                try:
                    self._read(step, batch)
                except (FormatError, StorageError) as problem:
                    yield batch.number, problem

    # --- rewriting --------------------------------------------------------------------

    def rewritten(self, change: Callable[[pa.Table], pa.Table]) -> list[tuple[Step, Step]]:
        """Each step with its rows changed, in a new file under a new key, not yet known."""

        def made(old: Step, new: Step) -> None:
            for batch in old.batches:
                self._again(new, batch, change(self._read(old, batch)))

        return [(step, self._rewritten(step, made)) for step in self.steps]

    def less(self, gone: Callable[[pa.Table], NDArray[np.bool_]]) -> list[tuple[Step, Step]]:
        """Each step without some rows, in a new file under a new key, not yet known.

        All steps are written anew and no record becomes shorter, so that from outside nobody
        sees which rows go, how many, or whether any does.
        """

        def made(old: Step, new: Step) -> None:
            for batch in old.batches:
                data = self._data(old, batch)
                table = records.from_bytes(data)
                left = ~gone(table)
                kept = records.some(table, np.flatnonzero(left))
                self._again(new, batch.less(left), kept, len(data))

        return [(step, self._rewritten(step, made)) for step in self.steps]

    def _rewritten(self, old: Step, made: Callable[[Step, Step], None]) -> Step:
        key = DataKey.new(STEP)
        new = Step(old.number, old.slot, old.start, _file(key), key, old.once, old.rows)
        new.closed, new.unbound = old.closed, old.unbound
        made(old, new)
        return new

    def _again(self, new: Step, batch: Stored, table: pa.Table, least: int = 0) -> None:
        make = partial(records.to_bytes, table, self.widths, batch.receipt.accepted, least)
        start, context = new.length, f"batch {batch.number}"
        length = self._segments.append(new.file, start, make, new.key.key, context).result()
        new.batches.append(replace(batch, start=start, length=length))

    def replace(self, made: Sequence[tuple[Step, Step]]) -> None:
        """Make rewritten steps known in place of the old ones; within a transaction."""
        for _, new in made:
            self._keys.add(new.key)
            self._catalogue.run(
                "UPDATE steps SET key = ?, file = ? WHERE number = ?",
                new.key.id,
                new.file,
                new.number,
            )
            for batch in new.batches:
                self._catalogue.run(
                    "UPDATE batches SET sealed = ? WHERE number = ?",
                    batch.sealed(new.key),
                    batch.number,
                )

    def replaced(self, made: Sequence[tuple[Step, Step]]) -> None:
        """After the transaction: these are the steps; the old files go later."""
        self._segments.forget()
        self.steps = [new for _, new in made]
        batches = [batch for step in self.steps for batch in step.batches]
        self._blanked = {batch.number: batch for batch in batches if batch.counted}
        for call in self.rewrote:
            call()


def _file(key: DataKey) -> str:
    return f"{key.id:016x}.rows"


def _numbers(receipt: Receipt) -> tuple[int, ...]:
    """In their order; `dataclasses.astuple` copies each, and a commit may have a thousand."""
    return tuple(vars(receipt).values())


def _number(batch: Stored) -> int:
    return batch.number


def _in_pieces(digests: list[bytes], most: int) -> Iterator[list[bytes]]:
    for start in range(0, len(digests), most):
        yield digests[start : start + most]
