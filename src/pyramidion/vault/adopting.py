"""Files of the place that the catalogue does not know, taken in by somebody's word.

After a restore the place may have files that the other copy sealed since the backup. Whoever
can write to the place can make a file that looks like one: an envelope is sealed to a public
key. So none is taken in by itself. Somebody names it, who compared its digest with the
``vault.sealed`` entry of the other copy's audit log or trusts the place, and the log says so.
That it is whole, and says that it is of this store, custodian and name, is checked here; that
its rows were written under that name is checked by who opens it.
"""

from __future__ import annotations

from pyramidion.errors import FormatError, SchemaError, StateError
from pyramidion.vault.custody import PublicKey
from pyramidion.vault.drafts import NAME, SealedFile, envelope_of, parquet_of
from pyramidion.vault.envelope import Envelope, Header
from pyramidion.vault.parquet import broken, digest_of
from pyramidion.vault.places import Place


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
