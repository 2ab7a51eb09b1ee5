"""Requests, grants and envelopes: what opens, for whom, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from pyramidion.errors import FormatError, KeyHolderError, SchemaError
from pyramidion.vault.documents import Grant, Request, Revocation
from pyramidion.vault.envelope import Envelope, Header, joined
from pyramidion.vault.key_pairs import PrivateKey, PublicKey
from pyramidion.vault.parquet import decrypted, digest_of, encrypted, marked, unmarked

HOUR = 3600 * 10**6
CUSTODIAN, BROKER, ENGINEER, OTHER = (PrivateKey.new() for _ in range(4))
ROWS = pa.table({"carrier": ["AA", "UA", None], "late": [0, 1, 1]})


def file(name: str = "a", first: int = 0, last: int = HOUR - 1) -> tuple[Envelope, pa.Buffer]:
    key = PrivateKey.new().public.sealing  # 32 random bytes
    table = marked(ROWS, 7, first, [(1, 2), (2, 1)])
    data = encrypted(table, key, store="s", name=name)
    header = Header(
        *(name, "s", CUSTODIAN.public.fingerprint, first, last, 7, 7, 3, data.size),
        *(("carrier", "late"), digest_of(data)),
    )
    return Envelope.seal(header, key, CUSTODIAN.public), data


def request(*envelopes: Envelope, **more: object) -> Request:
    given = {"first": 0, "last": HOUR, "columns": ["carrier"], "reason": "a bug", "store": "s"}
    return Request.make(
        envelopes,
        **{"now": 1, "engineer": "Ada", "key": ENGINEER, "broker": BROKER.public} | given | more,
    )


def granted(*envelopes: Envelope) -> Grant:
    return Grant.make(request(*envelopes), CUSTODIAN, now=2, expires=3)


def test_a_request_becomes_a_grant_that_the_broker_opens() -> None:
    envelope, data = file()
    asked = Request.from_json(request(envelope).to_json())
    grant = Grant.make(asked, CUSTODIAN, now=2, expires=3)
    grant = Grant.from_json(grant.to_json(), CUSTODIAN.public)
    (one,) = grant.files
    rows = pa.Table.from_batches(decrypted(data, grant.file_key(one, BROKER), one.header))
    assert unmarked(rows).equals(ROWS)
    assert rows.column("_window").to_pylist() == [1, 1, 2]


@pytest.mark.parametrize("who", [OTHER, ENGINEER, CUSTODIAN])
def test_a_grant_opens_for_its_broker_alone(who: PrivateKey) -> None:
    grant = granted(file()[0])
    with pytest.raises(FormatError, match="sealed to another key"):
        grant.file_key(grant.files[0], who)


@pytest.mark.parametrize("field", ["expires", "columns", "engineer", "key", "last", "purpose"])
def test_a_file_key_is_granted_for_what_the_grant_says_alone(field: str) -> None:
    grant = granted(file()[0])
    longer = {"expires": 99, "columns": ("late",), "engineer": "Eve", "key": OTHER.public}
    changed = replace(grant, **{field: (longer | {"last": 99, "purpose": "erase"})[field]})
    with pytest.raises(FormatError, match="not signed by this store's custodian"):
        Grant.from_json(changed.to_json(), CUSTODIAN.public)
    with pytest.raises(FormatError, match="another purpose"):
        changed.file_key(changed.files[0], BROKER)


def test_the_key_of_one_granted_file_does_not_open_as_another_s() -> None:
    grant = granted(file("a")[0], file("b")[0])
    first, second = grant.files
    with pytest.raises(FormatError, match="another purpose"):
        grant.file_key(replace(first, header=second.header), BROKER)


def test_somebody_else_s_grant_is_refused() -> None:
    with pytest.raises(FormatError, match="sealed to another key"):
        Grant.make(request(file()[0]), OTHER, now=2, expires=3)
    grant = granted(file()[0])
    forged = replace(grant, custodian=OTHER.public, signature=b"")
    forged = replace(forged, signature=OTHER.sign(forged.body()))
    with pytest.raises(FormatError, match="not signed by this store's custodian"):
        Grant.from_json(forged.to_json(), CUSTODIAN.public)


def test_a_custodian_refuses_a_request_that_slips_in_a_file_of_another_hour() -> None:
    with pytest.raises(FormatError, match="no row that the request is about"):
        granted(file("a")[0], file("b", 5 * HOUR, 6 * HOUR)[0])


def test_a_request_that_was_changed_is_refused() -> None:
    told = json.loads(request(file()[0]).to_json())
    for field, value in {"reason": "fun", "last": 2 * HOUR, "columns": ["late"]}.items():
        with pytest.raises(FormatError, match="changed after it was signed"):
            Request.from_json(json.dumps(told | {field: value}))


def test_an_envelope_with_another_header_does_not_open() -> None:
    envelope, _ = file()
    for field, value in {"name": "b", "last": 1, "rows": 1, "digest": "0", "store": "t"}.items():
        other = replace(envelope, header=replace(envelope.header, **{field: value}))
        with pytest.raises(FormatError):
            other.key(CUSTODIAN)
    assert len(envelope.key(CUSTODIAN)) == 32


def test_a_locked_file_opens_with_the_custodian_s_half_and_the_store_s_lock_together() -> None:
    envelope, data = file()
    key, lock = envelope.key(CUSTODIAN), bytes(range(32))
    made = Envelope.seal(envelope.header, key, CUSTODIAN.public, lock=lock)
    locked = Envelope.from_bytes(made.to_bytes())
    with pytest.raises(FormatError):
        replace(locked, locked=False).key(CUSTODIAN)
    for alone in (lock, locked.key(CUSTODIAN)):
        with pytest.raises(FormatError, match="is damaged"):
            list(decrypted(data, alone, envelope.header))
    assert joined(locked.key(CUSTODIAN), lock) == key
    asked = Request.from_json(request(locked, locks={"a": lock}).to_json())
    grant = Grant.make(asked, CUSTODIAN, now=2, expires=3)
    assert grant.file_key(grant.files[0], BROKER) == key


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_file_with_a_flipped_bit_is_named_and_refused(place: int) -> None:
    envelope, data = file()
    changed = bytearray(data)
    changed[place] ^= 1
    with pytest.raises(FormatError, match="vault file a is damaged"):
        list(decrypted(bytes(changed), envelope.key(CUSTODIAN), envelope.header))


def test_a_file_is_bound_to_its_name_even_where_its_digest_is_believed() -> None:
    envelope, data = file("a")
    header = replace(envelope.header, name="b")
    with pytest.raises(FormatError, match="vault file b is damaged"):
        list(decrypted(data, envelope.key(CUSTODIAN), header))


def test_a_private_key_opens_with_its_passphrase_alone() -> None:
    text = OTHER.to_text("correct horse")
    assert PrivateKey.from_text(text, "correct horse").public == OTHER.public
    with pytest.raises(KeyHolderError, match="passphrase does not open"):
        PrivateKey.from_text(text, "wrong")
    assert PublicKey.from_text(OTHER.public.to_text()) == OTHER.public


def test_a_revocation_is_the_custodian_s() -> None:
    text = Revocation.make("id", CUSTODIAN, now=1).to_json()
    assert Revocation.from_json(text, CUSTODIAN.public).grant == "id"
    with pytest.raises(FormatError, match="not signed by this store's custodian"):
        Revocation.from_json(text, OTHER.public)


@pytest.mark.parametrize("bad", [{"reason": " "}, {"first": HOUR}, {"engineer": ""}])
def test_a_request_that_says_too_little_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(SchemaError):
        request(file()[0], **bad)
