"""Whether the place has what was sealed, every file, whole, no other; which files may be adopted.

**Files to adopt.** After a restore the place may have files that the other copy sealed since the
backup. Whoever can write to the place can make a file that looks like one: an envelope is sealed to
a public key. So no file is adopted automatically. Somebody names it, who compared its digest with
the ``vault.sealed`` entry of the other copy's audit log or trusts the place, and the log records
that. That it is whole, and names this store, this custodian and its own name, is checked here; that
its rows were written under that name is checked when somebody opens it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyramidion.errors import FormatError, SchemaError, StateError
from pyramidion.vault.coverage import Range
from pyramidion.vault.envelope import Envelope, Header
from pyramidion.vault.files import NAME, SealedFile, envelope_of, parquet_of
from pyramidion.vault.key_pairs import PublicKey
from pyramidion.vault.parquet import broken, digest_of
from pyramidion.vault.places import Place


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


# --- files to adopt ------------------------------------------------------------------------------


def adoptable(
    place: Place, name: str, store: str, custodian: PublicKey, *, lock: bool
) -> SealedFile:
    """A file of the place that may be taken in; refuses one that does not fit.

    ``lock``: whether the files of this store are locked. The lock of another copy's is gone
    with that copy.
    """
    if not NAME.fullmatch(name):
        raise SchemaError("no vault names a file like that; give it as `vault verify` tells it")
    data = place.get(envelope_of(name))
    envelope = Envelope.from_bytes(data)
    header = envelope.header
    if (header.name, header.store, header.custodian) != (name, store, custodian.fingerprint):
        raise StateError(
            f"vault file {name} is of another store, custodian or name than this vault's; leave "
            f"it, or delete it"
        )
    if lock or envelope.locked:
        raise StateError(
            f"vault file {name} was locked by another copy of this store, and its lock is gone "
            f"with that copy; nobody opens it any more, so delete it"
        )
    _refuse_changed(place, header)
    return SealedFile(header, digest_of(data), None)


def _refuse_changed(place: Place, header: Header) -> None:
    rows = place.get(parquet_of(header.name))
    if len(rows) != header.size or digest_of(rows) != header.digest:
        raise broken(header)
    if header.rows < 1 or not 0 < header.first_batch <= header.last_batch:
        raise FormatError(
            f"vault file {header.name} says that it has no rows or no batches; leave it, or delete "
            f"it"
        )
