"""A vault's files, a custodian, engineers and a broker by a clock that the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pyramidion.counts.deadline import HighWater
from pyramidion.errors import StorageError
from pyramidion.storage.audit_log import AuditLog
from pyramidion.vault.broker import Broker
from pyramidion.vault.broker_server import BrokerServer
from pyramidion.vault.documents import Grant, Request
from pyramidion.vault.envelope import Envelope, Header
from pyramidion.vault.key_pairs import PrivateKey
from pyramidion.vault.parquet import digest_of, encrypted, marked
from pyramidion.vault.reader import GrantedRows, open_grant
from pyramidion.vault.stream import challenge_context

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
NOON = 20_000 * DAY
CANARY = "a-value-that-must-not-be-on-any-disk"
CUSTODIAN, ENGINEER, OTHER = (PrivateKey.new() for _ in range(3))


class Memory:
    """A place in memory that counts what is read."""

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}
        self.gets: Counter[str] = Counter()
        self.reading: Callable[[str], None] = lambda _: None

    def get(self, name: str) -> bytes:
        self.gets[name] += 1
        self.reading(name)
        if name not in self.files:
            raise StorageError(f"{name} is not in the vault; restore it from a copy of the vault")
        return bytes(self.files[name])


class Times:
    """The clocks that a high-water clock looks at."""

    def __init__(self) -> None:
        self.wall = NOON
        self.passed = 0

    def pass_(self, length: int) -> None:
        self.wall += length
        self.passed += length

    def clock(self, latest: int = 0) -> HighWater:
        return HighWater(latest, wall=lambda: self.wall, passing=lambda: self.passed)


class Desk:
    """Three hours of rows, one file each, four rows to a file: a quarter of an hour apart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place, self.times = Memory(), Times()
        self.log = AuditLog(folder / "audit.db")
        self.envelopes = [self.seal(f"hour-{n}", n * HOUR) for n in range(3)]
        self.broker = self.started()

    def seal(
        self, name: str, first: int, batches: int = 4, rows: int = 1, random: int = 0
    ) -> Envelope:
        """A file in the place; so many random bytes of each value keep it from being small."""
        key = PrivateKey.new().public.sealing  # 32 random bytes
        tables = []
        for number in range(batches):
            noise = np.random.default_rng(number).bytes(rows * random).hex()
            values = [
                f"{CANARY} {name} {number}{noise[row * 2 * random : (row + 1) * 2 * random]}"
                for row in range(rows)
            ]
            table = pa.table({"carrier": values, "late": [number] * rows})
            at = NOON - DAY + first + number * (HOUR // batches)
            tables.append(marked(table, number, at, [(1, rows)]))
        table = pa.concat_tables(tables)
        arrived = table.column("_arrived").to_pylist()
        data = encrypted(table, key, store="s", name=name)
        self.place.files[f"{name}.parquet"] = data
        header = Header(
            *(name, "s", CUSTODIAN.public.fingerprint, min(arrived), max(arrived)),
            *(0, batches - 1, table.num_rows, data.size, ("carrier", "late"), digest_of(data)),
        )
        return Envelope.seal(header, key, CUSTODIAN.public)

    def started(self) -> Broker:
        """A broker as after a restart: a new key, the clock by the log."""
        clock = self.times.clock(self.log.latest())
        return Broker(self.place, "s", CUSTODIAN.public, self.log, clock)

    def request(self, *hours: int, **more: Any) -> Request:
        """Ada asks for the carriers of some hours."""
        hours = hours or (0, 1, 2)
        given = {
            "store": "s",
            "now": self.times.wall,
            "engineer": "Ada",
            "key": ENGINEER,
            "broker": self.broker.public,
            "first": NOON - DAY + min(hours) * HOUR,
            "last": NOON - DAY + (max(hours) + 1) * HOUR,
            "columns": ["carrier"],
            "reason": "a bug",
        }
        return Request.make([self.envelopes[hour] for hour in hours], **given | more)

    def grant(
        self, *hours: int, lasts: int = HOUR, custodian: PrivateKey = CUSTODIAN, **more: Any
    ) -> Grant:
        """The custodian approves."""
        request = self.request(*hours, **more)
        now = self.times.wall
        return Grant.make(request, custodian, now=now, expires=now + lasts)

    def stream(self, grant: Grant, key: PrivateKey = ENGINEER) -> Iterator[bytes]:
        """Present a grant and answer the challenge, without a network."""
        challenge = self.broker.present(grant.to_json())
        return self.broker.open(key.open(challenge.sealed, challenge_context(grant)))

    def kinds(self) -> list[str]:
        """What the log says happened, but for brokers that started."""
        found = [entry.kind for entry in self.log.entries() if entry.kind.startswith("vault.")]
        return [kind for kind in found if kind != "vault.broker"]

    def said(self, kind: str) -> list[dict[str, Any]]:
        """The facts of the entries of a kind."""
        return [dict(entry.facts) for entry in self.log.entries() if entry.kind == kind]

    @contextmanager
    def served(self) -> Iterator[str]:
        """The broker at an address."""
        server = BrokerServer(self.broker)
        server.start()
        try:
            yield server.address
        finally:
            server.stop()

    def opened(self, grant: Grant, key: PrivateKey = ENGINEER) -> pa.Table:
        """All rows of a grant, over the network."""
        with self.served() as address, self.rows(grant, address, key) as rows:
            return rows.read_all()

    def rows(self, grant: Grant, address: str, key: PrivateKey = ENGINEER) -> GrantedRows:
        """Open a grant over the network."""
        return open_grant(grant.to_json(), key, address)
