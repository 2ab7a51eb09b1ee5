"""Deletion records: typed, and records of earlier versions that are words alone."""

from __future__ import annotations

import sqlite3

import pytest

from pyramidion.storage import deletions
from pyramidion.storage.deletions import Deleted, give_types

MADE = [
    deletions.expired([3, 4], [1], [2]),
    deletions.expired([], [1, 2], []),
    deletions.sealed_set(0, 7),
    deletions.sealed_set(1, 7),
    deletions.ended([4], [5], [6]),
    deletions.ended([], [], []),
    deletions.withdrawn("carrier", chosen=False),
    deletions.withdrawn("x', window 1", chosen=False),
    deletions.withdrawn("hot step 1", chosen=False),
    deletions.dropped(1),
    deletions.dropped(12),
    deletions.bins([3, 14]),
    deletions.rebuilt(9),
    deletions.of_vault(["2013-01-01 to 2013-01-02"], person=False),
    deletions.of_vault(["2013-01-01 to 2013-01-02"], person=True),
    deletions.PERSON,
    deletions.RESTORED,
    deletions.DAMAGED,
    deletions.SHARED,
    deletions.LOST,
]


def typed(what: str, why: str) -> Deleted:
    """What a migration makes of a record in words."""
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE deletions (id INTEGER PRIMARY KEY, what TEXT, why TEXT)")
        db.execute("INSERT INTO deletions (what, why) VALUES (?, ?)", (what, why))
        give_types(db)
        ((kind, ids),) = db.execute("SELECT kind, ids FROM deletions").fetchall()
    return Deleted.read(kind, what, ids)


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.what)
def test_record_is_read_as_it_was_written(made: Deleted) -> None:
    assert Deleted.read(made.kind, made.what, made.ids) == made


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.what)
def test_words_of_earlier_versions_get_the_same_types(made: Deleted) -> None:
    found = typed(made.what, "past its time")
    if made.what == "1 chosen group":  # dropped or withdrawn: the words do not say
        assert found.kind in ("dropped", "withdrawn")
    else:
        assert found == made


def test_vault_files_that_went_for_a_person_are_of_a_person() -> None:
    assert typed("vault file of 2013-01-01 to 2013-01-02", "request 17").kind == "person"


def test_every_kind_is_made_somewhere() -> None:
    assert {made.kind for made in MADE} == set(deletions.KINDS)
