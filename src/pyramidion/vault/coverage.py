"""Which batches the files of a vault must have: every one that was acknowledged, by its number.

A batch is in a sealed file, or it is hot and will be, or no file needs to have it: it came before
there was a vault, its file was erased, its number was never given (after a restore), or it left
unsealed and the audit log has a ``vault.lost``. Any other batch is missing without a reason.
Numbers that no file needs to have, except lost ones, are stored in the catalogue as ranges.

Stores without a vault import this, too, so it needs nothing of the extra ``vault``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyramidion.storage.batches import Batches
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.outbox import AuditOutbox
from pyramidion.storage.vault_files import VaultFiles

Range = tuple[int, int]
"""Numbers of batches, from the first to the last."""
UNOWED = "unowed"
LOST = "vault.lost"


def united(ranges: Iterable[Range]) -> list[Range]:
    """The same numbers in as few ranges as they need, in order.

    >>> united([(7, 9), (1, 3), (4, 4), (8, 12)])
    [(1, 4), (7, 12)]
    """
    made: list[Range] = []
    for first, last in sorted(ranges):
        if made and first <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(last, made[-1][1])
        elif first <= last:
            made.append((first, last))
    return made


def gaps(last: int, covered: Iterable[Range]) -> list[Range]:
    """The numbers from 1 to ``last`` that no range has.

    >>> gaps(9, [(2, 3), (3, 5), (7, 7)])
    [(1, 1), (6, 6), (8, 9)]
    """
    found, start = [], 1
    for first, end in [*united(covered), (last + 1, last + 1)]:
        if start <= min(first - 1, last):
            found.append((start, min(first - 1, last)))
        start = max(start, end + 1)
    return found


def unowed(catalogue: Catalogue) -> list[Range]:
    """Numbers that no file need have."""
    return [(first, last) for first, last in json.loads(catalogue.about(UNOWED, "[]"))]


def forgo(catalogue: Catalogue, *ranges: Range) -> None:
    """Owe these no more; within the transaction that has them go."""
    catalogue.note(unowed=json.dumps(united([*unowed(catalogue), *ranges])))


def begin(catalogue: Catalogue) -> None:
    """A vault that is new here, or from before this was kept, owes what comes from now on."""
    if not catalogue.about(UNOWED, ""):
        forgo(catalogue, (1, int(catalogue.about("vaulted", "0"))))


def lost(log: AuditOutbox) -> list[Range]:
    """Batches that left the hot window unsealed, as the audit log tells or is about to."""
    told = [entry.facts for entry in log.entries() if entry.kind == LOST]
    told += [note.facts for note in log.notes() if note.kind == LOST]
    ends = [(facts.get("first_batch"), facts.get("last_batch")) for facts in told]
    return [(one, two) for one, two in ends if isinstance(one, int) and isinstance(two, int)]


def missing(catalogue: Catalogue, told: Iterable[Range]) -> list[Range]:
    """Acknowledged batches that are owed and in no file, hot neither, nor ``told`` to be lost."""
    with catalogue.transaction():  # one moment for all
        covered = VaultFiles(catalogue).batches()
        hot = Batches(catalogue).after(int(catalogue.about("vaulted", "0")))
        last = int(catalogue.about("next_batch", "1")) - 1
        covered += [(row["number"], row["number"]) for row in hot]
        return gaps(last, [*covered, *unowed(catalogue), *told])
