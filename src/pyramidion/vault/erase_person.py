"""Erasing one person from files of the vault: the broker rewrites them, nobody reads them.

The machine that seals cannot read what it sealed. A custodian grants the files *to erase*, and
the broker, which a grant is sealed to, is the only process that decrypts them:

    order       column, person and the new locks, sealed to the broker by the grant's engineer
    rewritten   a file with the person's rows blank, encrypted under a fresh key, which is
                sealed to the custodian: all that the engineer receives

A blank row has no value, window 0, and the batch and arrival that it had, which are public. So
a file has as many rows as before. *All* granted files are rewritten, whoever is in them: which
ones changed would tell when the person was there. Reading the vault gives no blank rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyramidion.config.spelling import BY_TEXT, BY_TYPE
from pyramidion.errors import FormatError, SchemaError, StateError
from pyramidion.storage.ciphers import new_key
from pyramidion.vault.documents import Grant
from pyramidion.vault.envelope import Envelope, Header, canonical
from pyramidion.vault.files import name_of
from pyramidion.vault.key_pairs import PrivateKey, PublicKey, coded, decoded
from pyramidion.vault.parquet import BLANK, GROUP, OWN, WINDOW, digest_of, encrypted
from pyramidion.vault.stream import context_of


@dataclass(frozen=True)
class Order:
    """What an engineer tells a broker to erase; sealed to that broker."""

    column: str
    person: str | int
    locks: Mapping[str, bytes]
    """The lock of each new file, by the name of the old one; empty where files have none."""

    def seal(self, grant: Grant, token: bytes) -> bytes:
        """For the broker of a grant, in answer to its challenge."""
        locks = {name: coded(lock) for name, lock in self.locks.items()}
        said = {"column": self.column, "person": self.person, "locks": locks}
        return grant.broker.seal(canonical(said), _context(grant, token))

    @classmethod
    def open(cls, sealed: bytes, grant: Grant, token: bytes, broker: PrivateKey) -> Self:
        """What `seal` made."""
        told: Any = json.loads(broker.open(sealed, _context(grant, token)))
        try:
            column, person, locks = told["column"], told["person"], dict(told["locks"])
        except (KeyError, TypeError, ValueError):
            raise _unlike() from None
        whole = isinstance(person, int) and not isinstance(person, bool)
        if not isinstance(column, str) or not (whole or isinstance(person, str)):
            raise _unlike()
        return cls(column, person, {n: decoded(lock, "an order") for n, lock in locks.items()})

    @property
    def digest(self) -> bytes:
        """Tells two people apart."""
        return sha256(canonical([self.column, str(self.person)])).digest()


@dataclass(frozen=True)
class Rewritten:
    """A file without a person's rows, as it comes from the broker: encrypted."""

    name: str
    """The file that it takes the place of."""
    data: bytes
    envelope: Envelope


def rewritten(
    table: pa.Table, header: Header, order: Order, custodian: PublicKey
) -> tuple[pa.Buffer, Envelope]:
    """All rows of a file, with a person's rows blank, under a key that the custodian opens."""
    if table.num_rows != header.rows:
        raise FormatError(
            f"vault file {header.name} did not come whole, so it is left as it is; ask again"
        )
    table = table.select([*header.columns, *OWN])
    table = blanked(table, _theirs(table, header, order))
    name, key = name_of(header.first), new_key()
    data = encrypted(table, key, store=header.store, name=name, group=GROUP)
    made = replace(header, name=name, size=data.size, digest=digest_of(data))
    return data, Envelope.seal(made, key, custodian, lock=order.locks.get(header.name))


def blanked(table: pa.Table, theirs: NDArray[np.bool_]) -> pa.Table:
    """A table with some rows blank.

    >>> rows = pa.table({"who": ["ann", "bob"], "_batch": [1, 1], "_arrived": [9, 9],
    ...                  "_window": [4, 4]})
    >>> blanked(rows, np.array([True, False])).to_pylist()[0]
    {'who': None, '_batch': 1, '_arrived': 9, '_window': 0}
    """
    gone = pa.array(theirs)
    for place, field in enumerate(table.schema):
        if field.name in OWN and field.name != WINDOW:
            continue
        blank = pa.scalar(BLANK if field.name == WINDOW else None, field.type)
        column = pc.if_else(gone, blank, table.column(place))
        table = table.set_column(place, field.name, column)
    return table


def _theirs(table: pa.Table, header: Header, order: Order) -> NDArray[np.bool_]:
    """The rows of the order's person; blank ones are nobody's."""
    from pyramidion.rows.validation import Judge, person_bytes
    from pyramidion.storage import records

    if order.column not in header.columns:
        raise SchemaError(
            f"vault file {header.name} has no column that names people as the order does; name "
            f"the column of the schema's unit"
        )
    raw = records.batch_of(table.select([order.column])).columns[order.column]
    # Only streams that know values by their type have a person whose name is empty.
    keyed_by = BY_TEXT if order.person != "" else BY_TYPE
    people = person_bytes(order.column, raw, Judge(table.num_rows), keyed_by)
    (person,) = person_bytes(order.column, [str(order.person)], Judge(1), keyed_by)
    same = pc.equal(people, pa.scalar(person.as_py(), people.type))
    found: NDArray[np.bool_] = np.asarray(pc.fill_null(same, False))
    return found


def refuse_unlike(old: Header, made: Rewritten, custodian: PublicKey, *, locked: bool) -> None:
    """Raise for a rewritten file that is not what the broker was told to make."""
    header = made.envelope.header
    expected = replace(
        old,
        name=header.name,
        size=len(made.data),
        digest=digest_of(made.data),
        custodian=custodian.fingerprint,
    )
    if header != expected or header.name == old.name or made.envelope.locked != locked:
        raise StateError(
            f"the broker sent another file than vault file {old.name} rewritten, so that one is "
            f"left as it is; check which broker answers"
        )


def _context(grant: Grant, token: bytes) -> bytes:
    return b"pyramidion vault order\n" + context_of(grant, token)


def _unlike() -> FormatError:
    return FormatError("an order to erase is damaged; upgrade pyramidion on both sides")
