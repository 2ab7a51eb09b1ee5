"""Brokers that are killed: nothing raw is left anywhere, and no grant is revived."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyramidion.counts.deadline import wall
from pyramidion.errors import PyramidionError, StateError
from pyramidion.storage.audit_log import AUDIT_LOG, AuditLog
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.home import CATALOGUE
from pyramidion.vault.documents import Grant
from pyramidion.vault.envelope import Envelope
from pyramidion.vault.erase_person import Order
from pyramidion.vault.key_pairs import PublicKey
from pyramidion.vault.reader import open_grant, rewrite_files
from tests.vault.desk import CANARY, CUSTODIAN, ENGINEER, HOUR, Desk
from tests.waiting import PATIENCE


@dataclass
class Shop:
    """A store's directory and its vault's, with what a broker reads of them."""

    desk: Desk
    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @contextmanager
    def broker(self, kill_at: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
        """A broker in a process of its own, and its address."""
        homes = {name: str(self.folder / "home") for name in ("HOME", "TMPDIR")}
        process = subprocess.Popen(
            [sys.executable, "-m", "pyramidion", "vault", "broker", "--data", "store", "--json"],
            cwd=self.folder,
            env={**os.environ, **homes, "PYRAMIDION_KILL_AT": kill_at},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            self.public = PublicKey.from_code(told["broker"])
            yield process, told["address"]
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def take(self, envelope: Envelope) -> None:
        """Have a file in the place and in the catalogue."""
        header = envelope.header
        data = self.desk.place.files[f"{header.name}.parquet"]
        (self.folder / "place" / f"{header.name}.parquet").write_bytes(data)
        names = ("name", "first", "last", "first_batch", "last_batch", "rows", "digest")
        values = [getattr(header, name) for name in names]
        catalogue = Catalogue(self.store / CATALOGUE)
        catalogue.run(
            f"INSERT INTO vault_files ({', '.join(names)}, envelope) "  # noqa: S608
            f"VALUES ({', '.join('?' * len(names))}, '')",
            *values,
        )
        catalogue.close()

    def grant(self, **more: Any) -> Grant:
        """All rows, for the broker that runs."""
        request = self.desk.request(broker=self.public, **more)
        return Grant.make(request, CUSTODIAN, now=wall(), expires=wall() + HOUR)

    def rows(self, grant: Grant, address: str) -> int:
        """How many rows come before all have, or the broker is gone."""
        rows = 0
        with suppress(PyramidionError), open_grant(grant.to_json(), ENGINEER, address) as stream:
            for batch in stream.batches():
                rows += batch.num_rows
        return rows

    def erased(self, grant: Grant, address: str) -> int:
        """How many files come rewritten before the broker is gone."""
        order, files = Order("carrier", f"{CANARY} hour-1 2", {}), 0
        with suppress(PyramidionError):
            for _ in rewrite_files(grant.to_json(), ENGINEER, address, order):
                files += 1
        return files

    def check(self, rows: int) -> None:
        """Nothing raw is on the disk, and the log is sound and has what was read."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        assert len(files) > 4
        assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
        log = AuditLog(self.store / AUDIT_LOG)
        try:
            assert log.verify().sound
            if rows:
                assert "vault.opened" in [entry.kind for entry in log.entries()]
        finally:
            log.close()


@pytest.fixture
def shop(desk: Desk, folder: Path) -> Shop:
    made = Shop(desk, folder)
    for name in ("store", "place", "home"):
        (folder / name).mkdir()
    told = {"url": str(folder / "place"), "custodian": CUSTODIAN.public.to_code()}
    catalogue = Catalogue(made.store / CATALOGUE, new=True)
    catalogue.note(store="s", vault=json.dumps(told))
    catalogue.close()
    for envelope in desk.envelopes:
        made.take(envelope)
    return made


POINTS = [
    "broker.held",
    "broker.logged",
    "broker.fetched",
    "broker.decrypted",
    "broker.decrypted:3",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_broker_killed_at_any_step_leaves_nothing_raw(shop: Shop, point: str) -> None:
    with shop.broker(point) as (process, address):
        old = shop.grant()
        rows = shop.rows(old, address)
        assert process.wait(PATIENCE) == -9
    assert rows == (8 if point.endswith(":3") else 0)
    shop.check(rows)
    if point == POINTS[-1]:
        assert (shop.store / "broker.json").exists()  # a killed one leaves it
        with shop.broker() as (_, address):
            with pytest.raises(StateError, match="started again"):
                open_grant(old.to_json(), ENGINEER, address)
            assert shop.rows(shop.grant(), address) == 12


@pytest.mark.parametrize(("point", "files"), [("broker.ordered", 0), ("broker.read:3", 2)])
def test_a_broker_killed_while_it_erases_leaves_nothing_raw(
    shop: Shop, point: str, files: int
) -> None:
    with shop.broker(point) as (process, address):
        assert shop.erased(shop.grant(purpose="erase"), address) == files
        assert process.wait(PATIENCE) == -9
    shop.check(0)


def test_a_broker_killed_in_the_middle_of_rows_leaves_nothing_raw(shop: Shop) -> None:
    envelope = shop.desk.seal("large", 0, batches=4, rows=60_000)
    shop.desk.envelopes[0] = envelope
    shop.take(envelope)
    for came in (1, 3):
        with shop.broker() as (process, address):
            stream = open_grant(shop.grant().to_json(), ENGINEER, address)
            batches, rows = stream.batches(), 0
            for _ in range(came):
                rows += next(batches).num_rows
            process.kill()
            with suppress(PyramidionError):
                rows += sum(batch.num_rows for batch in batches)
        shop.check(rows)


def test_a_second_broker_for_a_store_is_refused(shop: Shop) -> None:
    with shop.broker():
        done = subprocess.run(
            [sys.executable, "-m", "pyramidion", "vault", "broker", "--data", "store"],
            cwd=shop.folder,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "answers at http://127.0.0.1:" in done.stderr
