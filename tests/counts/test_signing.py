"""Signed bytes: what the service wrote, whole and of the right kind, or nothing."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.counts.signing import MAGIC, key_from, key_text, sign, unsign
from pyramidion.errors import FormatError

SIGNER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = SIGNER.public_key()
DATA = sign(SIGNER, "snapshot", "flights", {"made": 1}, b"tables" * 10)


def test_what_was_signed_comes_back() -> None:
    header, payload = unsign(DATA, "snapshot", "flights", KEY)
    assert (header, bytes(payload)) == ({"made": 1, "stream": "flights"}, b"tables" * 10)


@pytest.mark.parametrize("place", range(len(DATA)))
def test_a_flipped_bit_anywhere_is_refused(place: int) -> None:
    changed = bytearray(DATA)
    changed[place] ^= 1
    with pytest.raises(FormatError) as refused:
        unsign(bytes(changed), "snapshot", "flights", KEY)
    assert str(refused.value).count(".") == 0


@pytest.mark.parametrize("length", range(len(DATA)))
def test_what_was_cut_off_is_refused(length: int) -> None:
    with pytest.raises(FormatError):
        unsign(DATA[:length], "snapshot", "flights", KEY)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    for given_ in (data, MAGIC + data, DATA + data[:1] if data else b""):
        with pytest.raises(FormatError):
            unsign(given_, "snapshot", "flights", KEY)


def test_another_key_is_refused() -> None:
    with pytest.raises(FormatError, match="another key signed it"):
        unsign(DATA, "snapshot", "flights", Ed25519PrivateKey.generate().public_key())


def test_another_kind_is_refused_and_named() -> None:
    with pytest.raises(FormatError, match="is a signed snapshot and no model"):
        unsign(DATA, "model", "flights", KEY)


def test_another_stream_is_refused() -> None:
    with pytest.raises(FormatError, match="not of stream 'clicks'"):
        unsign(DATA, "snapshot", "clicks", KEY)


def test_header_cannot_rename_the_stream() -> None:
    data = sign(SIGNER, "snapshot", "flights", {"stream": "clicks"}, b"")
    assert unsign(data, "snapshot", "flights", KEY)[0] == {"stream": "flights"}


def test_parts_of_two_do_not_go_together() -> None:
    other = sign(SIGNER, "snapshot", "flights", {"made": 2}, b"TABLES" * 10)
    mixed = {DATA[:at] + other[at:] for at in range(len(DATA))} - {DATA, other}
    assert len(mixed) > 50
    for data in mixed:
        with pytest.raises(FormatError):
            unsign(data, "snapshot", "flights", KEY)


def test_a_newer_format_asks_for_an_upgrade() -> None:
    newer = DATA[: len(MAGIC)] + (2).to_bytes(4, "little") + DATA[len(MAGIC) + 4 :]
    with pytest.raises(FormatError, match="format 2, this version reads up to 1; upgrade"):
        unsign(newer, "snapshot", "flights", KEY)


def test_a_key_is_text_and_back() -> None:
    assert key_text(key_from(key_text(KEY))) == key_text(KEY)
    assert key_text(key_from(KEY.public_bytes_raw().hex())) == key_text(KEY)


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:zz", "rsa:" + "00" * 32, "00" * 31])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="no public key of a service"):
        key_from(text)
