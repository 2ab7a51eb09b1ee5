"""Commands of the vault: keys, requests, grants, rows, in this process; the guide has the rest."""

from __future__ import annotations

import io
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from pyramidion import BrokerServer, PrivateKey, PublicKey, Request, broker_at
from pyramidion.cli import options
from pyramidion.vault.broker_server import announced
from tests.cli.shell import NOW, Done, Shell
from tests.secrets_on_disk import secret
from tests.store.stores import rows

PASSPHRASE = "a horse and a battery"  # noqa: S105
HOUR = 3_600.0


@pytest.fixture
def custodian(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The custodian's key."""
    monkeypatch.setenv("PYRAMIDION_PASSPHRASE", PASSPHRASE)
    done = shell.main("vault", "keygen", "--output", str(shell.folder / "custodian"), "--json")
    monkeypatch.delenv("PYRAMIDION_PASSPHRASE")
    return Path(done.told["private"])


@pytest.fixture
def shop(shell: Shell, custodian: Path) -> Iterator[Shell]:
    """A store with a vault, some rows in it, and a broker."""
    vault = ["--vault", shell.folder / "sealed", "--custodian", custodian.with_suffix(".pub")]
    assert shell("create", shell.schema(), *vault).code == 0
    with shell.open() as store:
        store.observe(rows(5, NOW))
    with broker_at(shell.path) as broker:
        server = BrokerServer(broker)
        with announced(shell.path, server):
            server.start()
            yield shell
            server.stop()


def request(shop: Shell, name: str = "request", *more: object) -> Done:
    """Ask for the hour that has rows."""
    paths = [shop.folder / f"{name}.{end}" for end in ("json", "key")]
    asked = ["--from", NOW - HOUR, "--to", NOW + HOUR, "--reason", "a bug", "--as", "Ada"]
    written = ["--output", paths[0], "--key-output", paths[1]]
    return shop("vault", "request", *asked, *written, *more)


def grant(shop: Shell, *more: object, name: str = "grant", expires: str = "2h") -> Done:
    """Approve it, for the broker that is there."""
    if "--yes" in more and "--broker" not in more:
        more = (
            *more,
            "--broker",
            json.loads((shop.path / "broker.json").read_text())["fingerprint"],
        )
    return bare_grant(shop, *more, name=name, expires=expires)


def bare_grant(shop: Shell, *more: object, name: str = "grant", expires: str = "2h") -> Done:
    secret(shop.folder / "passphrase", f"{PASSPHRASE}\n")
    words = [
        *("vault", "grant", shop.folder / "request.json", "--key", shop.folder / "custodian.key"),
        *("--expires", expires, "--output", shop.folder / f"{name}.json"),
        *("--passphrase-file", shop.folder / "passphrase", *more),
    ]
    return shop.main(*map(str, words))


def opened(shop: Shell, output: object, *more: object) -> Done:
    """Read it."""
    words = [
        *("vault", "open", shop.folder / "grant.json", "--key", shop.folder / "request.key"),
        *("--data", shop.path, "--output", output, *more),
    ]
    return shop.main(*map(str, words))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- keys -------------------------------------------------------------------------------------


def test_keygen_writes_a_pair_under_the_passphrase(custodian: Path) -> None:
    pair = PrivateKey.from_text(custodian.read_text(), PASSPHRASE)
    assert pair.public == PublicKey.from_text(custodian.with_suffix(".pub").read_text())
    assert mode(custodian) == 0o600


def keygen(shell: Shell, where: Path, monkeypatch: pytest.MonkeyPatch, secret: str | None) -> Done:
    if secret is not None:
        monkeypatch.setenv("PYRAMIDION_PASSPHRASE", secret)
    return shell.main("vault", "keygen", "--output", str(where))


def test_keygen_overwrites_nothing(
    shell: Shell, custodian: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = custodian.read_bytes()
    done = keygen(shell, shell.folder / "custodian", monkeypatch, PASSPHRASE)
    assert (done.code, custodian.read_bytes()) == (2, before)
    assert "exists already" in done.err


@pytest.mark.parametrize("secret", ["", "short", "elevenchars"])
def test_keygen_refuses_a_short_passphrase(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    done = keygen(shell, shell.folder / "key", monkeypatch, secret)
    assert done.code == 2
    assert "needs 12 letters" in done.err
    assert not list(shell.folder.glob("key*"))


def test_keygen_asks_twice(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [PASSPHRASE, "another passphrase"]
    monkeypatch.setattr(options, "_asked", lambda _: answers.pop(0))
    done = keygen(shell, shell.folder / "key", monkeypatch, None)
    assert "differ" in done.err
    assert not answers


def test_without_a_terminal_there_is_nobody_to_ask(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    done = keygen(shell, shell.folder / "key", monkeypatch, None)
    assert "no terminal to ask for a passphrase" in done.err


def test_a_private_key_never_lies_beside_the_data(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    request(shop)  # what was observed is sealed
    for where, why in ((shop.path / "hot", "in the store"), (shop.folder / "sealed", "beside")):
        done = keygen(shop, where / "key", monkeypatch, PASSPHRASE)
        assert done.code == 2
        assert why in done.err
        assert not list(where.glob("key*"))


# --- requests ---------------------------------------------------------------------------------


def test_a_request_says_what_is_asked(shop: Shell) -> None:
    told = request(shop, "request", "--columns", "a,b", "--json").told
    assert (told["columns"], told["rows"], told["engineer"]) == (["a", "b"], 5, "Ada")
    made = Request.from_json((shop.folder / "request.json").read_text())
    assert made.key.fingerprint == told["engineer_fingerprint"]
    assert mode(shop.folder / "request.key") == 0o600


def test_all_columns_are_asked_for_unless_some_are_named(shop: Shell) -> None:
    assert sorted(request(shop, "request", "--json").told["columns"]) == ["a", "b", "t", "y"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--columns", "a,price"], "'price' is no column"),
        (["--columns", ","], "is no column"),
        (["--from", NOW + HOUR], "ends before it begins|no rows that arrived then"),
        (["--to", NOW - HOUR / 2], "no rows that arrived then"),
        (["--reason", " "], "needs a reason"),
        (["--broker-at", "http://127.0.0.1:1"], "no broker answers"),
    ],
)
def test_a_request_that_cannot_be_made_leaves_no_key(
    shop: Shell, more: list[object], why: str
) -> None:
    done = request(shop, "request", *more)
    assert done.code in (2, 3)
    assert re.search(why, done.err)
    assert not (shop.folder / "request.key").exists()
    assert not (shop.folder / "request.json").exists()


def test_a_store_without_a_vault_says_so(filled: Shell) -> None:
    for words in (["status"], ["files"], ["verify"]):
        assert "has no vault" in filled("vault", *words).err
    assert "has no vault" in filled.main("vault", "broker", "--data", str(filled.path)).err
    assert "no broker runs for the store" in request(filled).err


# --- grants -----------------------------------------------------------------------------------


def test_a_grant_shows_what_is_asked_before_it_is_given(shop: Shell) -> None:
    request(shop)
    done = grant(shop, "--yes")
    assert done.code == 0, done.err
    asked = Request.from_json((shop.folder / "request.json").read_text())
    told = shop("vault", "status", "--json").told
    facts = ("Ada", "a bug", "5 rows", asked.broker.fingerprint, asked.key.fingerprint)
    for fact in (*facts, f"store     {told['store']}"):
        assert fact in done.out
    assert f"store      {asked.store}" in shop("vault", "status").out
    assert "what was read by then was read" in done.out


def test_a_grant_needs_a_yes(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    request(shop)
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert "give --yes" in grant(shop).err
    monkeypatch.setattr("sys.stdin", Terminal("no\n"))
    assert "was not approved" in grant(shop).err
    assert not (shop.folder / "grant.json").exists()
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert grant(shop).code == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_grant_without_a_question_needs_the_broker_s_fingerprint(shop: Shell) -> None:
    request(shop)
    done = bare_grant(shop, "--yes")
    assert done.code == 2
    assert "give --broker FINGERPRINT" in done.err
    assert not (shop.folder / "grant.json").exists()


def test_a_grant_refuses_other_fingerprints(shop: Shell) -> None:
    request(shop)
    asked = Request.from_json((shop.folder / "request.json").read_text())
    for who, key in (("broker", asked.broker), ("engineer", asked.key)):
        done = grant(shop, "--yes", f"--{who}", "0" * 32)
        assert done.code == 2
        assert f"the {who} of this request has the fingerprint {key.fingerprint}" in done.err
    right = ["--broker", asked.broker.fingerprint, "--engineer", asked.key.fingerprint.upper()]
    assert grant(shop, "--yes", *right).code == 0


@pytest.mark.parametrize("expires", ["yesterday", "0h", "2001-01-01", ""])
def test_a_grant_needs_a_time_to_come(shop: Shell, expires: str) -> None:
    request(shop)
    done = grant(shop, "--yes", expires=expires)
    assert done.code == 2
    assert "--expires" in done.err


def test_a_wrong_passphrase_gives_nothing(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    request(shop)
    monkeypatch.setattr("tests.cli.test_cli_vault.PASSPHRASE", "not the one at all")
    done = grant(shop, "--yes")
    assert done.code == 3
    assert "does not open this private key" in done.err


def test_a_request_cannot_write_over_what_the_custodian_sees(shop: Shell) -> None:
    request(shop)
    path = shop.folder / "request.json"
    asked = Request.from_json(path.read_text())
    key = PrivateKey.from_text((shop.folder / "request.key").read_text(), "")
    evil = replace(asked, reason="fun\x1b[2K\rwhy       a bug\u202e", signature=b"")
    path.write_text(replace(evil, signature=key.sign(evil.body())).to_json())
    done = grant(shop, "--yes")
    assert done.code == 0, done.err
    assert "\x1b" not in done.out
    assert "\\x1b[2K\\rwhy" in done.out


# --- rows -------------------------------------------------------------------------------------


def test_rows_come_in_every_format(shop: Shell) -> None:
    request(shop, "request", "--columns", "a")
    grant(shop, "--yes")
    for suffix in ("parquet", "arrow", "csv", "ndjson"):
        path = shop.folder / f"rows.{suffix}"
        assert opened(shop, path, "--json").told["rows"] == 5
        assert mode(path) == 0o600
    table = parquet.read_table(shop.folder / "rows.parquet")
    assert table.column_names == ["a", "_batch", "_arrived"]
    assert table.column("a").to_pylist() == rows(5, NOW).column("a").to_pylist()


def test_rows_stream_to_stdout(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    request(shop)
    grant(shop, "--yes")
    sink = io.BytesIO()
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", io.TextIOWrapper(sink, write_through=True))
        opened(shop, "-", "--quiet")
        assert pa.ipc.open_stream(sink.getvalue()).read_all().num_rows == 5


@pytest.mark.parametrize("name", ["custodian.key", "passphrase"])
def test_a_secret_that_others_may_read_is_refused(shop: Shell, name: str) -> None:
    request(shop)
    secret(shop.folder / "passphrase", f"{PASSPHRASE}\n")
    (shop.folder / name).chmod(0o644)
    broker = json.loads((shop.path / "broker.json").read_text())["fingerprint"]
    words = ["vault", "grant", shop.folder / "request.json", "--expires", "2h", "--yes"]
    words += ["--key", shop.folder / "custodian.key", "--output", shop.folder / "grant.json"]
    words += ["--passphrase-file", shop.folder / "passphrase", "--broker", broker]
    done = shop.main(*map(str, words))
    assert done.code == 3
    assert f"chmod 600 {shop.folder / name}" in done.err
    assert not (shop.folder / "grant.json").exists()


def test_a_key_under_a_passphrase_needs_it(shop: Shell) -> None:
    secret(shop.folder / "ada", "the passphrase of Ada")
    request(shop, "request", "--passphrase-file", shop.folder / "ada")
    grant(shop, "--yes")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stdin", io.StringIO(""))
        assert "no terminal" in opened(shop, shop.folder / "rows.csv").err
    path = shop.folder / "rows.csv"
    assert opened(shop, path, "--passphrase-file", shop.folder / "ada").code == 0


def test_a_read_that_breaks_off_leaves_no_file(shop: Shell) -> None:
    request(shop)
    grant(shop, "--yes")
    with shop.open() as store:
        store.vault.carry()
        (file,) = store.vault.files()
    sealed = shop.folder / "sealed" / f"{file.name}.parquet"
    os.truncate(sealed, 100)
    done = opened(shop, shop.folder / "rows.csv")
    assert done.code == 3
    assert file.name in done.err
    assert not (shop.folder / "rows.csv").exists()
    found = shop("vault", "verify")
    assert found.code == 3
    assert "truncated" in found.out


def test_a_file_that_was_erased_since_is_not_given_though_the_place_has_it(shop: Shell) -> None:
    request(shop)
    grant(shop, "--yes")
    with shop.open() as store:
        store.vault.carry()
        (file,) = store.vault.files()
        kept = {path.name: path.read_bytes() for path in (shop.folder / "sealed").iterdir()}
        store.vault.replace(file.name, [])
        store.vault.carry()
    for name, data in kept.items():  # as if somebody had kept a copy
        (shop.folder / "sealed" / name).write_bytes(data)
    done = opened(shop, shop.folder / "rows.csv")
    assert done.code == 2
    assert f"vault file {file.name} was erased" in done.err


def test_open_overwrites_nothing_and_says_what_it_cannot_write(shop: Shell) -> None:
    request(shop)
    grant(shop, "--yes")
    (shop.folder / "rows.csv").write_text("mine")
    assert "exists already" in opened(shop, shop.folder / "rows.csv").err
    assert "no known format" in opened(shop, shop.folder / "rows.xls").err
    assert (shop.folder / "rows.csv").read_text() == "mine"


def test_open_must_know_where_the_broker_is(shop: Shell) -> None:
    request(shop)
    grant(shop, "--yes")
    words = ["vault", "open", shop.folder / "grant.json", "--key", shop.folder / "request.key"]
    assert "where does the broker answer" in shop.main(*map(str, words), "--output", "x.csv").err


# --- ends -------------------------------------------------------------------------------------


def test_a_grant_is_revoked_at_once_or_by_a_document(shop: Shell) -> None:
    request(shop)
    for name, way in (("grant", "direct"), ("second", "carried")):
        grant(shop, "--yes", name=name)
        document = shop.folder / f"{name}.json"
        key = ["--key", shop.folder / "custodian.key"]
        key += ["--passphrase-file", shop.folder / "passphrase"]
        to_broker = ["--data", shop.path]
        if way == "carried":
            carried = shop.folder / "revocation.json"
            words = ["vault", "revoke", document, *key, "--output", carried]
            assert "ends when the broker gets it" in shop.main(*map(str, words)).out
            document, key = carried, []
        done = shop.main(*map(str, ["vault", "revoke", document, *key, *to_broker]))
        assert "is over; what was read was read" in done.out
        (shop.folder / "grant.json").write_text((shop.folder / f"{name}.json").read_text())
        assert "taken back by the custodian" in opened(shop, shop.folder / "rows.csv").err


def test_a_revocation_needs_a_key_and_somewhere_to_go(shop: Shell) -> None:
    request(shop)
    grant(shop, "--yes")
    words = ["vault", "revoke", str(shop.folder / "grant.json")]
    assert "has to go somewhere" in shop.main(*words).err
    assert "give --key" in shop.main(*words, "--data", str(shop.path)).err


# --- what is there ----------------------------------------------------------------------------


def test_status_files_and_verify_tell_what_was_sealed(shop: Shell) -> None:
    request(shop)
    with shop.open() as store:
        store.vault.carry()
    told = shop("vault", "status", "--json").told
    assert (told["files"], told["rows"], told["waiting_rows"]) == (1, 5, 0)
    (file,) = shop("vault", "files", "--json").told
    assert file["rows"] == 5
    assert shop("vault", "files", "--to", NOW - HOUR).out.startswith("there is no sealed file")
    assert "1 file, 5 rows" in shop("vault", "status").out
    assert file["name"] in shop("vault", "files").out
    assert shop("vault", "verify").out == "every sealed file is as it was sealed\n"
    assert shop("vault", "verify", "--json").told == []


def test_a_broker_is_found_by_the_store_s_directory(shop: Shell) -> None:
    note = json.loads((shop.path / "broker.json").read_text())
    assert request(shop, "one", "--json").told["broker_fingerprint"] == (
        PublicKey.from_code(note["broker"]).fingerprint
    )
    (shop.path / "broker.json").write_text(json.dumps(note | {"broker": "another"}))
    assert "another broker answers" in request(shop, "two").err


def test_a_store_without_a_vault_gets_one(filled: Shell, custodian: Path) -> None:
    given = ["--vault", filled.folder / "sealed", "--custodian", custodian.with_suffix(".pub")]
    done = filled("vault", "attach", *given)
    assert done.out.startswith(f"rows are sealed in {filled.folder}/sealed from now on")
    with filled.open() as store:
        store.observe(rows(5, NOW))
    told = filled("vault", "status", "--json").told
    assert told["waiting_rows"] + told["rows"] == 5  # what came before is not owed to it
    again = filled("vault", "attach", *given)
    assert (again.code, "has a vault already" in again.err) == (2, True)
