"""One person in the vault: erased under a grant, and nobody sees whose rows they were."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pyramidion import PrivacyError, Pyramid, SchemaError, StateError
from pyramidion.cli import main
from pyramidion.vault.broker_server import BrokerServer, announced, broker_at
from pyramidion.vault.documents import Grant
from pyramidion.vault.erase_person import Order
from pyramidion.vault.key_pairs import PrivateKey
from pyramidion.vault.reader import open_grant, read_grant, rewrite_files
from tests.secrets_on_disk import secret
from tests.store.peopling import EXACT, PEOPLE, of
from tests.store.stores import CUSTODIAN, DAY, HOUR, START, Clock, tiny, unpin

ADA = PrivateKey.new()
EVER = 1 << 53


class Vaulted:
    """A store of people with a vault of three hours, and its broker."""

    def __init__(self, folder: Path, server: BrokerServer, store: Pyramid) -> None:
        self.folder, self.server, self.store = folder, server, store

    def grant(self, purpose: str, **more: Any) -> str:
        assert self.store.vault is not None
        now = int(time.time() * 1e6)
        given = {"columns": ["who", "a"], "reason": "x", "engineer": "Ada", "key": ADA}
        request = self.store.vault.request(
            *(0, EVER),
            **given | {"broker": self.server.broker.public, "now": now, "purpose": purpose} | more,
        )
        return Grant.make(request, CUSTODIAN, now=now, expires=now + 60_000_000).to_json()

    def erase(self, person: str, grant: str | None = None, **more: Any) -> list[str]:
        grant = self.grant("erase") if grant is None else grant
        line = {"key": ADA, "broker": self.server.address}
        return self.store.admin.erase_from_vault(person, grant, **line | more)

    def people(self) -> list[str]:
        with open_grant(self.grant("read"), ADA, self.server.address) as rows:
            return rows.read_all().column("who").to_pylist()

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [dict(e.facts) for e in self.store.audit_log.entries() if e.kind == kind]


@pytest.fixture
def vaulted(folder: Path, request: pytest.FixtureRequest) -> Iterator[Vaulted]:
    clock = Clock()
    store = Pyramid.create(
        folder / "store",
        PEOPLE,
        tiny(**EXACT | {"epsilon": 1.0, "vault_retention": getattr(request, "param", None)}),
        keys=f"file:{folder / 'keys' / 'store.key'}",
        clock=clock,
        vault=str(folder / "vault"),
        custodian=CUSTODIAN.public,
    )
    for who in (["anna", "ben"], ["ben", "carl"], ["anna", "carl", "anna"]):
        store.observe(of(who, clock.now))
        clock.now += HOUR
    assert store.vault is not None
    store.vault.seal()
    store.vault.carry()
    with store, broker_at(store.path) as broker:
        server = BrokerServer(broker)
        server.start()
        yield Vaulted(folder, server, store)
        server.stop()


@pytest.mark.parametrize("vaulted", [None, "365d"], indirect=True)
def test_a_person_is_erased_from_every_granted_file(vaulted: Vaulted) -> None:
    assert vaulted.people() == ["anna", "ben", "ben", "carl", "anna", "carl", "anna"]
    vault = vaulted.store.vault
    assert vault is not None
    before = vault.files()
    made = vaulted.erase("anna", why="request 17")
    vault.carry()
    assert vaulted.people() == ["ben", "ben", "carl", "carl"]
    assert sorted(made) == [file.name for file in vault.files()]
    assert {file.name for file in before}.isdisjoint(made)
    assert vault.verify() == []


def test_nobody_sees_which_files_the_person_was_in_nor_how_often(vaulted: Vaulted) -> None:
    vault = vaulted.store.vault
    assert vault is not None

    def seen() -> list[tuple[int, ...]]:
        return [(f.first, f.last, f.first_batch, f.last_batch, f.rows) for f in vault.files()]

    before = seen()
    assert len(vaulted.erase("anna")) == len(before)
    assert seen() == before
    assert len(vaulted.erase("nobody")) == len(before)
    assert seen() == before
    said = vaulted.said("person.erased")
    granted = [each["grant"] for each in vaulted.said("vault.granted")]
    about = {"why": "asked for", "files": len(before)}
    assert said == [about | {"grant": each} for each in granted]


def test_deletion_records_of_vault_files_are_those_of_a_person(vaulted: Vaulted) -> None:
    before = len(vaulted.store.status().deletions)
    made = vaulted.erase("anna", why="past its time")  # as a file that is past its time
    records = vaulted.store.status().deletions[before:]
    assert len(records) == len(made)
    assert all(record.of_person for record in records)
    assert records[0].what.startswith("rows of a person in vault file of ")


def test_the_old_files_are_gone_from_the_place(vaulted: Vaulted) -> None:
    vault = vaulted.store.vault
    assert vault is not None
    before = {path.name for path in (vaulted.folder / "vault").iterdir()}
    vaulted.erase("anna")
    vault.carry()
    after = {path.name for path in (vaulted.folder / "vault").iterdir()}
    assert len(before) == len(after) == 6
    assert before.isdisjoint(after)


def test_read_grant_erases_nobody(vaulted: Vaulted) -> None:
    with pytest.raises(SchemaError, match="vault request --erase"):
        vaulted.erase("anna", vaulted.grant("read"))
    assert len(vaulted.people()) == 7


def test_erase_grant_gives_no_rows(vaulted: Vaulted) -> None:
    with pytest.raises(SchemaError, match="gives no rows"):
        open_grant(vaulted.grant("erase"), ADA, vaulted.server.address)


def test_reason_that_names_the_person_is_refused(vaulted: Vaulted) -> None:
    with pytest.raises(PrivacyError, match="names the person"):
        vaulted.erase("anna", why="anna asked")


def test_grant_of_another_custodian_is_refused(vaulted: Vaulted) -> None:
    other = PrivateKey.new()
    grant = replace(read_grant(vaulted.grant("erase")), custodian=other.public)
    forged = replace(grant, signature=other.sign(grant.body())).to_json()
    with pytest.raises(StateError, match="not of this store's custodian"):
        vaulted.erase("anna", forged)


def test_grant_of_replaced_files_is_refused(vaulted: Vaulted) -> None:
    grant = vaulted.grant("erase")
    vaulted.erase("ben")
    with pytest.raises(StateError, match="make a new request"):
        vaulted.erase("anna", grant)


def test_store_without_vault_says_so(folder: Path, vaulted: Vaulted) -> None:
    keys = f"file:{folder / 'keys' / 'other.key'}"
    settings = tiny(**EXACT | {"epsilon": 1.0})
    other = Pyramid.create(folder / "other", PEOPLE, settings, keys=keys, clock=Clock())
    grant, line = vaulted.grant("erase"), {"key": ADA, "broker": vaulted.server.address}
    with other, pytest.raises(StateError, match="no vault"):
        other.admin.erase_from_vault("anna", grant, **line)


def test_whole_number_erases_its_text_too(vaulted: Vaulted) -> None:
    clock = Clock()
    vaulted.store.observe(of(["7", "8"], clock.now))
    vaulted.erase(7)  # type: ignore[arg-type]
    assert "7" not in vaulted.people()
    assert "8" in vaulted.people()


def test_file_that_the_broker_was_not_told_to_make_is_refused(vaulted: Vaulted) -> None:
    vault = vaulted.store.vault
    assert vault is not None
    order = Order("who", "anna", {})
    grant, before = vaulted.grant("erase"), vault.files()
    first, second, *_ = rewrite_files(grant, ADA, vaulted.server.address, order)
    cut = replace(first, data=first.data[:-1])
    swapped = replace(first, name=second.name)
    for made in (cut, swapped):
        with pytest.raises(StateError, match="another file"):
            vault.swap(made, None, why="x")
    assert vault.files() == before


def run(*words: object) -> int:
    return main([str(word) for word in words])


class Desk:
    """Commands about a store with a vault, and the documents that they carry."""

    def __init__(self, vaulted: Vaulted) -> None:
        self.folder, self.path = vaulted.folder, vaulted.store.path
        self.broker = vaulted.server.broker.public.fingerprint
        self.key, self.text = self.folder / "custodian.key", self.folder / "passphrase"
        secret(self.key, CUSTODIAN.to_text("long enough"))
        secret(self.text, "long enough\n")
        keys = f"file:{self.folder / 'keys' / 'store.key'}"
        self.store = ("--data", self.path, "--keys", keys, "--now", START + DAY)

    def asked(self, name: str, *words: object) -> tuple[object, ...]:
        paths = (self.folder / f"{name}.{end}" for end in ("request", "grant", "key"))
        request, grant, ours = paths
        ask = ("vault", "request", *words, "--reason", "request 17", "--output", request)
        assert run(*ask, "--key-output", ours, *self.store) == 0
        give = ("vault", "grant", request, "--key", self.key, "--expires", "1h", "--yes")
        give = (*give, "--broker", self.broker)
        assert run(*give, "--output", grant, "--passphrase-file", self.text) == 0
        return ("--grant", grant, "--key", ours)

    def listed(self, *words: object) -> int:
        broken_in = ("--from", START + 1.5 * HOUR, "--to", START + 2.5 * HOUR)
        return run("exposure", *broken_in, "--persons", self.people, *self.store, *words)

    @property
    def people(self) -> Path:
        return self.folder / "people"


ALL = ("--from", START, "--to", START + DAY, "--columns", "who")


def test_people_are_listed_only_if_the_grant_has_every_file_that_is_there_now(
    vaulted: Vaulted, capsys: pytest.CaptureFixture[str]
) -> None:
    desk, store = Desk(vaulted), vaulted.store
    store.close()
    with announced(desk.path, vaulted.server):
        grant = desk.asked("list", *ALL)
        erase = ("erase-person", "--person", "nobody", "--why", "request 17", *desk.store)
        assert run(*erase, *desk.asked("erase", "--erase")) == 0  # all files have new names
        assert desk.listed(*grant) == 2
        assert "request them from" in capsys.readouterr().err
        assert not desk.people.exists()
        assert desk.listed(*desk.asked("again", *ALL)) == 0
    assert "not listed" not in capsys.readouterr().err


def test_erase_grant_opens_and_lists_nothing(
    vaulted: Vaulted, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(vaulted)
    vaulted.store.close()
    with announced(desk.path, vaulted.server):
        grant = desk.asked("erase", "--erase")
        rows = desk.folder / "rows.parquet"
        opened = ("vault", "open", grant[1], "--key", grant[3], "--output", rows)
        assert run(*opened, "--data", desk.path) == 2
        assert "gives no rows" in capsys.readouterr().err
        assert desk.listed(*grant) == 2
        assert "gives no rows" in capsys.readouterr().err
    assert not rows.exists()
    assert not desk.people.exists()


def test_people_are_not_listed_by_a_grant_of_other_columns_or_of_another_store(
    vaulted: Vaulted, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(vaulted)
    vaulted.store.close()
    with announced(desk.path, vaulted.server):
        assert desk.listed(*desk.asked("other", *ALL[:-1], "a")) == 2
        assert "does not give the column 'who'" in capsys.readouterr().err
        grant = desk.asked("list", *ALL)
        unpin(desk.path, desk.folder / "keys" / "store.key")
        with closing(sqlite3.connect(desk.path / "catalogue.db")) as db, db:
            db.execute("UPDATE about SET value = 'another' WHERE name = 'store'")
        assert desk.listed(*grant) == 2
        assert "for another store" in capsys.readouterr().err
    assert not desk.people.exists()


def test_exposed_rows_that_the_vault_does_not_give_are_told(
    vaulted: Vaulted, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(vaulted)
    vaulted.erase("anna")
    vaulted.store.close()
    with announced(desk.path, vaulted.server):
        assert desk.listed(*desk.asked("list", *ALL)) == 0
    assert "the vault has 4 of the 7 exposed observations" in capsys.readouterr().err
    assert desk.people.read_text() == '"ben"\n"carl"\n'


@pytest.mark.parametrize("vaulted", ["365d"], indirect=True)
def test_a_shell_erases_a_person_and_lists_the_people_that_a_break_in_exposed(
    vaulted: Vaulted, capsys: pytest.CaptureFixture[str]
) -> None:
    desk, folder = Desk(vaulted), vaulted.folder
    path, store, asked = desk.path, desk.store, desk.asked
    vaulted.store.close()
    with announced(path, vaulted.server):
        short = asked("short", "--from", START + 2 * HOUR, "--to", START + DAY)
        assert desk.listed(*short) == 2
        assert "request them from" in capsys.readouterr().err
        assert not (folder / "people").exists()
        grant = asked("list", "--from", START, "--to", START + DAY, "--columns", "who")
        assert desk.listed(*grant) == 0
        assert (folder / "people").read_text() == '"anna"\n"ben"\n"carl"\n'
        assert (folder / "people").stat().st_mode & 0o77 == 0
        erase = ("erase-person", "--person", "anna", "--why", "request 17", *store)
        assert run(*erase) == 0
        assert "vault request --erase" in capsys.readouterr().out
        assert run(*erase, *asked("erase", "--erase")) == 0
        assert "rewritten: 3 files of the vault" in capsys.readouterr().out
        rows = folder / "rows.parquet"
        read = asked("read", "--from", START, "--to", START + DAY, "--columns", "who")[1::2]
        opened = ("vault", "open", read[0], "--key", read[1], "--output", rows, "--data", path)
        assert run(*opened, "--quiet") == 0
    found = pq.read_table(rows).column("who").to_pylist()
    assert sorted(found) == ["ben", "ben", "carl", "carl"]
