"""Spells of time that a store remembers, for the exposure report: names and times, no more.

    model    from when to when a model of this name was registered
    clock    when records may be dated wrongly, until a person set the store's time
    replay   in stores that were made by earlier versions: when a history was replayed, by the
             clock, and which hot steps and windows it filled. Now each batch has that itself

A spell is dropped when it has been over for longer than the store's retention.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Literal

from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.table_sets import TableSets

FACT, NONE = "spells", "[]"
"""What a new store knows; one that has no such fact was made before spells were kept."""


@dataclass(frozen=True, kw_only=True)
class Spell:
    """From ``since`` to ``until``, in microseconds; None: it goes on, or was broken off.

    A replay filled hot steps and windows from the first of two numbers on, up to and without
    the second. A model without a name stands for any that there may have been.
    """

    kind: Literal["model", "clock", "replay"]
    name: str | None = None
    since: int = 0
    until: int | None = None
    steps: tuple[int, int | None] = (0, 0)
    windows: tuple[int, int | None] = (0, 0)

    def meets(self, start: int, stop: int) -> bool:
        """Whether it goes on at some moment from start to stop.

        >>> spell = Spell(kind="model", since=2, until=4)
        >>> spell.meets(0, 1), spell.meets(0, 2), spell.meets(4, 9), spell.meets(5, 9)
        (False, True, True, False)
        """
        return self.since <= stop and (self.until is None or self.until >= start)


def spells(catalogue: Catalogue) -> list[Spell]:
    """All that are remembered, in the order they began."""
    told = catalogue.about(FACT, "")
    if not told:
        return [Spell(kind="model")]
    return [
        Spell(**each | {"steps": tuple(each["steps"]), "windows": tuple(each["windows"])})
        for each in json.loads(told)
    ]


def forget_spells(catalogue: Catalogue, before: int) -> None:
    """Drop the spells that were over before a time; within a transaction."""
    known = spells(catalogue)
    kept = [spell for spell in known if spell.until is None or spell.until > before]
    if kept != known:
        _write(catalogue, kept)


def registered(catalogue: Catalogue, name: str, now: int) -> None:
    """Note that a model is registered; within a transaction."""
    known = _ended(catalogue, lambda spell: spell.kind == "model" and spell.name is None, now)
    if not any(_is_model(spell, name) for spell in known):
        _write(catalogue, [*known, Spell(kind="model", name=name, since=now)])


def unregistered(catalogue: Catalogue, name: str, now: int) -> None:
    """Note that a model is not registered any more; within a transaction."""
    _write(catalogue, _ended(catalogue, lambda spell: _is_model(spell, name), now))


def doubted(catalogue: Catalogue, since: int, now: int) -> None:
    """Note that the store's time was set to ``now``, and was wrong since a time at most.

    What is dated later became part of the past; within a transaction.
    """
    known = [
        replace(
            spell,
            since=min(spell.since, now),
            until=None if spell.until is None else min(spell.until, now),
        )
        for spell in spells(catalogue)
    ]
    _write(catalogue, [*known, Spell(kind="clock", since=since, until=now)])


def end_replays(catalogue: Catalogue, now: int) -> None:
    """Replays that an earlier version began, and was killed in, are over now."""
    known = spells(catalogue)
    if not any(map(_goes_on, known)):
        return
    step = int(catalogue.about("next_step", "1"))
    window = TableSets(catalogue).next_window()
    _write(
        catalogue,
        [
            replace(
                spell, until=now, steps=(spell.steps[0], step), windows=(spell.windows[0], window)
            )
            if _goes_on(spell)
            else spell
            for spell in known
        ],
    )


def _goes_on(spell: Spell) -> bool:
    return spell.kind == "replay" and spell.until is None


def _is_model(spell: Spell, name: str) -> bool:
    return spell.kind == "model" and spell.name == name and spell.until is None


def _ended(catalogue: Catalogue, which: Callable[[Spell], bool], now: int) -> list[Spell]:
    """All spells; some of them are over now."""
    return [
        replace(spell, until=now) if which(spell) and spell.until is None else spell
        for spell in spells(catalogue)
    ]


def _write(catalogue: Catalogue, kept: list[Spell]) -> None:
    catalogue.note(**{FACT: json.dumps([asdict(spell) for spell in kept])})
