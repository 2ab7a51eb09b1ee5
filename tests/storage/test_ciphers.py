"""Bytes at rest: any change of a byte, a place, a key or a context is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.errors import FormatError
from pyramidion.storage import ciphers
from pyramidion.storage.ciphers import NONCE, TAG, new_key, opened, sealed, sealed_size

KEY = bytes(range(32))
CONTEXT = b"batch 7"
HEAD = ciphers._head.size
SMALL = 16  # bytes of a chunk here; a megabyte outside


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ciphers, "CHUNK", SMALL)


def shut(data: bytes, key: bytes = KEY, context: bytes = CONTEXT) -> bytes:
    return b"".join(sealed(key, [data], context))


def open_(data: bytes, key: bytes = KEY, context: bytes = CONTEXT) -> bytearray:
    return opened(key, data, context, what="file.rows")


def chunks(data: bytes) -> list[bytes]:
    """The sealed chunks of a file, without its head."""
    size = NONCE + SMALL + TAG
    return [data[at : at + size] for at in range(HEAD, len(data), size)]


@pytest.mark.parametrize("length", [0, 1, SMALL - 1, SMALL, SMALL + 1, 2 * SMALL, 5 * SMALL + 3])
def test_what_was_sealed_is_opened(length: int) -> None:
    data = bytes(range(length))
    assert open_(shut(data)) == data


@given(st.binary(max_size=4 * SMALL), st.binary(max_size=20))
def test_any_bytes_come_back_in_any_context(data: bytes, context: bytes) -> None:
    assert open_(shut(data, context=context), context=context) == data


@given(st.lists(st.binary(max_size=3 * SMALL), max_size=5))
def test_bytes_in_several_parts_are_sealed_as_one(parts: list[bytes]) -> None:
    whole = b"".join(sealed(KEY, parts, CONTEXT))
    assert len(whole) == sealed_size(sum(map(len, parts)))
    assert open_(whole) == b"".join(parts)


@pytest.mark.parametrize("length", [0, 1, SMALL, SMALL + 1, 3 * SMALL, 3 * SMALL + 1])
def test_the_size_is_known_beforehand(length: int) -> None:
    assert len(shut(bytes(length))) == sealed_size(length)


@pytest.mark.parametrize("length", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_chunks_of_a_megabyte_meet_without_a_gap(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ciphers, "CHUNK", 1 << 20)
    data = bytes(length)
    parts = list(sealed(KEY, [data], CONTEXT))
    assert max(map(len, parts)) <= (1 << 20) + NONCE + TAG
    assert open_(b"".join(parts)) == data


def test_nothing_of_the_plain_bytes_is_in_the_sealed_ones() -> None:
    assert b"secret rows" not in shut(b"secret rows" * 20)


def test_every_byte_is_vouched_for() -> None:
    whole = shut(bytes(2 * SMALL + 5))
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        with pytest.raises(FormatError, match=r"file\.rows"):
            open_(bytes(damaged))


def test_every_bit_of_a_chunk_is_vouched_for() -> None:
    whole = shut(b"x")
    for place in range(HEAD, len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            with pytest.raises(FormatError):
                open_(bytes(damaged))


def test_a_file_cut_anywhere_is_refused() -> None:
    whole = shut(bytes(3 * SMALL))
    for length in range(len(whole)):
        with pytest.raises(FormatError, match=r"file\.rows"):
            open_(whole[:length])


def test_a_file_that_goes_on_is_refused() -> None:
    whole = shut(bytes(3 * SMALL))
    for more in (b"\0", chunks(whole)[-1], whole):
        with pytest.raises(FormatError, match="cut off or too long"):
            open_(whole + more)


@pytest.mark.parametrize("order", [[1, 0, 2], [0, 0, 2], [1, 1, 2], [0, 2, 1], [0, 1, 1]])
def test_chunks_cannot_be_moved_or_repeated(order: list[int]) -> None:
    whole = shut(bytes(range(3 * SMALL)))
    found = chunks(whole)
    with pytest.raises(FormatError, match="damaged or under another key"):
        open_(whole[:HEAD] + b"".join(found[place] for place in order))


def test_a_last_chunk_cannot_be_left_out_even_with_a_head_that_says_so() -> None:
    whole, shorter = shut(bytes(3 * SMALL)), shut(bytes(2 * SMALL))
    forged = shorter[:HEAD] + b"".join(chunks(whole)[:2])
    with pytest.raises(FormatError, match="damaged or under another key"):
        open_(forged)


def test_a_chunk_of_another_file_under_the_same_key_does_not_fit() -> None:
    one, other = shut(bytes(2 * SMALL)), shut(bytes(2 * SMALL), context=b"batch 8")
    forged = one[:HEAD] + chunks(one)[0] + chunks(other)[1]
    with pytest.raises(FormatError, match="damaged or under another key"):
        open_(forged)


def test_a_record_cannot_be_mixed_with_one_written_before_it_under_the_same_key() -> None:
    old, new = shut(bytes(2 * SMALL + 5)), shut(bytes(2 * SMALL + 7))
    forged = new[:HEAD] + chunks(old)[0] + b"".join(chunks(new)[1:])
    with pytest.raises(FormatError, match="damaged or under another key"):
        open_(forged)


def test_another_key_or_context_opens_nothing() -> None:
    whole = shut(b"rows")
    for key, context in ((new_key(), CONTEXT), (KEY, b"batch 8"), (KEY, b"")):
        with pytest.raises(FormatError, match="under another key"):
            open_(whole, key, context)


def test_a_newer_version_says_upgrade() -> None:
    whole = shut(b"rows")
    newer = ciphers._head.pack(ciphers.MAGIC, ciphers.VERSION + 1, 4) + whole[HEAD:]
    with pytest.raises(FormatError, match="upgrade"):
        open_(newer)


@pytest.mark.parametrize("foreign", [b"", b"PYRC", b"SQLite format 3\0" * 9, bytes(100)])
def test_foreign_bytes_are_refused(foreign: bytes) -> None:
    with pytest.raises(FormatError, match=r"file\.rows is not a file of ours"):
        open_(foreign)


def test_nonces_never_repeat() -> None:
    seen = [
        chunk[:NONCE] for _ in range(50) for chunk in chunks(shut(bytes(10 * SMALL), context=b""))
    ]
    assert len(set(seen)) == len(seen) == 500


def test_new_keys_are_256_bits_and_differ() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert {len(key) for key in keys} == {32}
