"""Deletion records: what an erasure destroyed, in types for programs and in words for people.

A record has a ``kind``, and the numbers of the hot steps, windows and tree nodes that it is about.
The words in ``what`` are for display alone: no code reads them.

    expired    hot steps, windows and nodes past their time
    sealed     populating states of a window or node, which its sealed tables replace
    ended      the same of all windows at once, by a reseed or when the store's time was set
    person     rows of one person, from the hot window or from files of the vault
    withdrawn  a feature or a group that somebody withdrew
    dropped    chosen groups that were not worth their tables
    bins       bins that were read from windows, and the tables in them
    rebuilt    former tables of a window that was counted again
    damaged    table files that could not be read
    vault      files of the vault past their time
    shared     keys of tables that were shared with others
    restored   keys of other copies of the store, when a backup became the store
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal[
    "expired",
    "sealed",
    "ended",
    "person",
    "withdrawn",
    "dropped",
    "bins",
    "rebuilt",
    "damaged",
    "vault",
    "shared",
    "restored",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

COLUMNS = (
    "ALTER TABLE deletions ADD COLUMN kind TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE deletions ADD COLUMN ids TEXT NOT NULL DEFAULT '{}'",
)


@dataclass(frozen=True)
class Deleted:
    """What one erasure destroys: its kind, the numbers it is about, and words for people."""

    kind: Kind
    what: str
    steps: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    names: tuple[str, ...] = field(default=())
    """Withdrawn features and groups, where their names are public."""

    @property
    def ids(self) -> str:
        """Numbers and names as JSON, for the catalogue."""
        every = {
            "steps": self.steps,
            "windows": self.windows,
            "nodes": self.nodes,
            "names": self.names,
        }
        return json.dumps({name: list(each) for name, each in every.items() if each})

    @classmethod
    def read(cls, kind: Kind, what: str, ids: str) -> Deleted:
        """What the catalogue has of it."""
        found = json.loads(ids)
        return cls(kind, what, **{name: tuple(each) for name, each in found.items()})


# --- the kinds ---------------------------------------------------------------------------


def expired(steps: Iterable[int], windows: Iterable[int], nodes: Iterable[int]) -> Deleted:
    """Hot steps, windows and nodes past their time.

    >>> expired([3], [1, 2], []).what
    'hot step 3, window 1, window 2'
    """
    steps, windows, nodes = tuple(steps), tuple(windows), tuple(nodes)
    words = [
        *(f"hot step {number}" for number in steps),
        *(f"window {number}" for number in windows),
        *(f"node {number}" for number in nodes),
    ]
    return Deleted("expired", ", ".join(words), steps, windows, nodes)


def sealed_set(level: int, number: int) -> Deleted:
    """Populating states of a table set: of a window (level 0), or of a node.

    >>> sealed_set(0, 3).what
    'populating states of window 3'
    """
    if level:
        return Deleted("sealed", f"populating states of node {number}", nodes=(number,))
    return Deleted("sealed", f"populating states of window {number}", windows=(number,))


def ended(full: Iterable[int], empty: Iterable[int], nodes: Iterable[int]) -> Deleted:
    """All populating windows and nodes at once: full ones are sealed, empty ones are dropped."""
    full, empty, nodes = tuple(full), tuple(empty), tuple(nodes)
    words = [
        *(f"populating states of window {number}" for number in full),
        *(f"noise of window {number}" for number in empty),
        *(f"populating states of node {number}" for number in nodes),
        "the former store key",
    ]
    return Deleted("ended", ", ".join(words), windows=full + empty, nodes=nodes)


def withdrawn(name: str, *, chosen: bool) -> Deleted:
    """A feature or group; the name of a chosen group follows from rows and is not kept.

    >>> withdrawn("carrier", chosen=False).what
    "feature or group 'carrier'"
    """
    if chosen:
        return Deleted("withdrawn", "1 chosen group")
    return Deleted("withdrawn", f"feature or group {name!r}", names=(name,))


def dropped(groups: int) -> Deleted:
    """Chosen groups, however they are called: their names follow from rows."""
    return Deleted("dropped", f"{groups} chosen group{'s' if groups != 1 else ''}")


def bins(windows: Iterable[int]) -> Deleted:
    """Bins that were read from windows, and the tables in them."""
    windows = tuple(windows)
    words = f"bins read from window {', '.join(map(str, windows))} and tables in them"
    return Deleted("bins", words, windows=windows)


def rebuilt(window: int) -> Deleted:
    """The former tables of a window."""
    return Deleted("rebuilt", f"former tables of window {window}", windows=(window,))


def of_vault(spans: Iterable[str], *, person: bool) -> Deleted:
    """Files of the vault, by their spans of time; or one person's rows in them."""
    words = ", ".join(f"vault file of {span}" for span in spans)
    return Deleted("person", f"{PERSON.what} in {words}") if person else Deleted("vault", words)


PERSON = Deleted("person", "rows of a person")
RESTORED = Deleted("restored", "keys of other copies")
DAMAGED = Deleted("damaged", "damaged table files")
SHARED = Deleted("shared", "the keys of shared tables")
LOST = Deleted("shared", "the key of shared tables")


# --- records that earlier versions wrote in words alone -----------------------------------

_FORMER: tuple[tuple[Kind, str], ...] = (
    ("expired", r"(?:hot step|window|node) \d+(?:, (?:hot step|window|node) \d+)*"),
    ("sealed", r"populating states of (?:window|node) \d+"),
    ("ended", r"(?:(?:populating states|noise) of (?:window|node) \d+, )*the former store key"),
    ("person", r"rows of a person(?: in .*)?"),
    ("vault", r"vault file of .*"),
    ("withdrawn", r"feature or group .*"),
    ("dropped", r"\d+ chosen groups?"),
    ("bins", r"bins read from window .*"),
    ("rebuilt", r"former tables of window \d+"),
    ("damaged", r"damaged table files"),
    ("shared", r"the keys? of shared tables"),
    ("restored", r"keys of other copies"),
)


def give_types(db: sqlite3.Connection) -> None:
    """Read the words of records that have no kind yet, once; within a migration."""
    for each in COLUMNS:
        db.execute(each)
    rows = db.execute("SELECT id, what, why FROM deletions").fetchall()
    for number, what, why in rows:
        found = _former(what, why)
        db.execute(
            "UPDATE deletions SET kind = ?, ids = ? WHERE id = ?", (found.kind, found.ids, number)
        )


def _former(what: str, why: str) -> Deleted:
    found = (kind for kind, words in _FORMER if re.fullmatch(words, what))
    kind: Kind = next(found, "withdrawn")
    if kind == "vault" and why != "past its time":  # it went for the sake of a person
        kind = "person"
    if kind == "withdrawn":
        name = re.fullmatch(r"feature or group '(.*)'|feature or group \"(.*)\"", what)
        return Deleted(kind, what, names=(name[1] or name[2],) if name else ())
    if kind == "bins":
        return Deleted(kind, what, windows=tuple(map(int, re.findall(r"\d+", what))))
    if kind not in ("expired", "sealed", "ended", "rebuilt"):
        return Deleted(kind, what)
    steps, windows, nodes = (
        tuple(int(number) for number in re.findall(rf"{noun} (\d+)", what))
        for noun in ("hot step", "window", "node")
    )
    return Deleted(kind, what, steps, windows, nodes)
