"""Versions of models: whole numbers that grow, and never name two things that were learned.

What a version names is gone when the store is closed, but somebody may have heard of it: a
prediction says which version made it, and an edge holds a copy. So numbers are set aside in the
catalogue before a model is trained, whether that succeeds or not: how often models were trained is
told by them, the erasure of a person included, and nothing else.

A model that learns between trainings is another one after every batch. It takes its numbers from
a stretch that is set aside with its training. The highest number of all names that were
forgotten is kept, and a name that is new begins after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyramidion.storage.catalogue import Catalogue

FACT = "versions"
STRETCH = 10**9  # versions of one training that goes on learning: batches until the next one
AFAR = 10**13  # versions left out after restoring a backup: the store went on after it was made
_OTHERS = ""  # all names that are not there any more


def drawn(catalogue: Catalogue, wanted: Mapping[str, int]) -> dict[str, int]:
    """Set aside so many versions for each name; the first of each. Durable when this returns."""
    with catalogue.transaction():
        known = _known(catalogue)
        first = {name: known.get(name, known.get(_OTHERS, 0)) + 1 for name in wanted}
        _write(catalogue, known | {name: first[name] + wanted[name] - 1 for name in wanted})
    return first


def dropped(catalogue: Catalogue, name: str) -> None:
    """Forget a name, not how far its versions went."""
    with catalogue.transaction():
        known = _known(catalogue)
        last = max(known.pop(name, 0), known.get(_OTHERS, 0))
        _write(catalogue, known | {_OTHERS: last})


def leap(catalogue: Catalogue) -> None:
    """Pass over all versions that another copy of the store may have given."""
    with catalogue.transaction():
        known = {_OTHERS: 0} | _known(catalogue)
        _write(catalogue, {name: last + AFAR for name, last in known.items()})


def _known(catalogue: Catalogue) -> dict[str, int]:
    """The last version that was set aside for each name."""
    known: dict[str, int] = json.loads(catalogue.about(FACT, "{}"))
    return known


def _write(catalogue: Catalogue, known: Mapping[str, int]) -> None:
    catalogue.note(**{FACT: json.dumps(known)})
