"""Whether the vault has what was sealed: every file, whole, no other, and every batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyramidion.errors import FormatError
from pyramidion.vault.drafts import envelope_of, parquet_of
from pyramidion.vault.envelope import Envelope
from pyramidion.vault.owing import Range
from pyramidion.vault.parquet import digest_of


@dataclass(frozen=True)
class Problem:
    """A file of the vault that is not as it was sealed, or batches that no file has."""

    name: str
    why: str


def problems(
    rows: Sequence[sqlite3.Row], get: Callable[[str], bytes], names: Sequence[str]
) -> Iterator[Problem]:
    """What is wrong with the files of a catalogue, and which the place has beyond them."""
    digests = {row[kind]: row["name"] for row in rows for kind in ("digest", "envelope")}
    known = {made(row["name"]) for row in rows for made in (parquet_of, envelope_of)}
    for row in rows:
        for made, digest in ((parquet_of, row["digest"]), (envelope_of, row["envelope"])):
            why = _wrong(row, made(row["name"]), digest, get, digests)
            if why is not None:
                yield Problem(made(row["name"]), why)
    for name in names:
        if name not in known:
            yield Problem(name, "unknown to this store")


def uncovered(batches: Range) -> Problem:
    """Batches that were acknowledged and are nowhere.

    >>> uncovered((7, 7)).name
    'batch 7'
    """
    first, last = batches
    name = f"batch {first}" if first == last else f"batches {first} to {last}"
    return Problem(name, "in no file, and the audit log has no vault.lost that tells why")


def _wrong(
    row: sqlite3.Row,
    name: str,
    digest: str,
    get: Callable[[str], bytes],
    digests: dict[str, str],
) -> str | None:
    try:
        data = get(name)
    except OSError:
        return "missing"
    found = digest_of(data)
    if found == digest:
        return None
    if found in digests:
        return f"swapped: it is that of {digests[found]}"
    if name == envelope_of(row["name"]):
        return "changed" if _opened(data) is not None else "truncated or changed"
    size = _size(row, get)
    if size is not None and len(data) != size:
        return f"{'truncated' if len(data) < size else 'too long'}: {len(data)} of {size} bytes"
    return "changed"


def _size(row: sqlite3.Row, get: Callable[[str], bytes]) -> int | None:
    """How long a file was sealed, as its envelope says, if that is sound."""
    try:
        data = get(envelope_of(row["name"]))
    except OSError:
        return None
    envelope = _opened(data) if digest_of(data) == row["envelope"] else None
    return None if envelope is None else envelope.header.size


def _opened(data: bytes) -> Envelope | None:
    try:
        return Envelope.from_bytes(data)
    except FormatError:
        return None
