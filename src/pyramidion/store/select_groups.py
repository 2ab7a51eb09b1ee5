"""Choosing groups from hot rows, privately: every window whose rows are read pays, in full.

The charge is durable before a row is looked at, and comes from what each window kept back at
its birth. A store that is killed in between has paid and has chosen nothing. What is chosen is
P2: it is counted from the next window on, and goes with the oldest window that was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from pyramidion.counts.selection import Coded
from pyramidion.errors import FormatError, PrivacyError, StateError, StorageError
from pyramidion.privacy.budget import budget_of
from pyramidion.privacy.quantiles import FEWEST_ROWS
from pyramidion.privacy.selection import Wanted, select
from pyramidion.storage.fault_points import reach
from pyramidion.storage.readings import Purpose
from pyramidion.store.hot_rows import HotRows
from pyramidion.store.state import StoreState

PURPOSE: Purpose = "selection"
TOLD = "groups were chosen"
EXACTLY = "groups were chosen exactly: NO privacy"


@dataclass(frozen=True)
class Selection:
    """What was chosen, from how many rows of which windows, and what each of these paid."""

    groups: tuple[str, ...]
    windows: tuple[int, ...]
    rows: int
    unit: str
    charged: Fraction


class Selecting:
    """Chooses groups when asked to, and by itself where `selection_every` says so."""

    def __init__(self, store: StoreState, threads: int = 1) -> None:
        self._store = store
        self._threads = threads

    def choose_if_due(self, now: int) -> None:
        """Choose before a window is born that is to count what is chosen."""
        store = self._store
        if store.settings.selection_every is None:
            return
        if not store.births.selects(store.sets.next_window() - 1) or not self._has_candidates():
            return
        hot = HotRows(store)
        came = self._came(hot)
        windows = [window for window in came if self._kept_back(window)]
        if sum(came[window] for window in windows) >= FEWEST_ROWS:
            left = [store.ledger.left(window, PURPOSE) for window in windows]
            most = min(left) if store.settings.private else None
            with suppress(FormatError, PrivacyError, StorageError):  # none stops a new window
                self._choose(hot, windows, Fraction(1), now, most)

    def choose(self, share: Fraction, now: int) -> Selection:
        """Choose groups for a share of what every window with hot rows kept back for it."""
        if not 0 < share <= 1:
            raise PrivacyError("a selection costs a share above 0 and at most 1; give one")
        with self._store.moves:
            hot = HotRows(self._store)
            came = self._came(hot)
            if not came:
                raise StateError("there are no hot rows to choose groups from; observe some first")
            if sum(came.values()) == 1:
                raise StateError(
                    "there are fewer than two hot rows to choose groups from, and no other agrees "
                    "with one; observe more first"
                )
            return self._choose(hot, sorted(came), share, now)

    def _came(self, hot: HotRows) -> dict[int, int]:
        """Rows that came, by window; of windows that are not forgotten."""
        known = self._store.sets.countable()
        return {window: rows for window, rows in hot.came.items() if window in known}

    def _kept_back(self, window: int) -> bool:
        """Whether a window can pay, and did not yet."""
        return self._store.ledger.can_pay(window, PURPOSE)

    def _choose(
        self,
        hot: HotRows,
        windows: Sequence[int],
        share: Fraction,
        now: int,
        most: Fraction | None = None,
    ) -> Selection:
        store, settings = self._store, self._store.settings
        wanted = self._wanted()
        amount = self._amount(windows, share)
        if not self._has_candidates():
            raise StateError(
                "there is no pair of features that is not a group already or was dropped, so "
                "nothing can be chosen; add features, or withdraw a group"
            )
        hot.refuse_unreadable(windows)
        amount = amount if most is None else min(amount, most)
        told = TOLD if settings.private else EXACTLY
        store.ledger.spend(PURPOSE, amount, windows, now, told)
        reach("select.spent")
        unit = budget_of(settings)[0]
        sizes = None if store.people.unit is None else hot.sizes(windows)
        coded = Coded.of(hot.of(windows), store.schema.cardinality, sizes)
        coded.threads = self._threads
        # A person may have rows in each window, and then changes scores by all of them.
        k = store.hidden * (len(windows) if store.people.unit is not None else 1)
        k *= 2 if coded.cut else 1  # rows of others may take the place of those that are blanked
        found = select(coded, wanted, method=settings.selection, budget=amount, unit=unit, k=k)
        names = [
            ",".join(store.schema.feature_names[feature] for feature in group) for group in found
        ]
        self._keep(names, windows)
        rows = sum(hot.sizes(windows))
        return Selection(tuple(names), tuple(windows), rows, unit, amount)

    def _amount(self, windows: Sequence[int], share: Fraction) -> Fraction:
        """A share of the least that one of the windows kept back at its birth."""
        if not self._store.settings.private:
            return Fraction(0)
        lines = {window: self._store.catalogue.lines(window) for window in windows}
        kept = {
            window: sum(
                (line.amount for line in own if (line.kind, line.purpose) == ("reserve", PURPOSE)),
                Fraction(0),
            )
            for window, own in lines.items()
        }
        for window in windows:
            if not kept[window]:
                raise PrivacyError(
                    f"window {window} kept nothing back for group selection, and its rows are hot; "
                    f"raise `selection_share`, or wait until later windows alone are hot"
                )
        return share * min(kept.values())

    def _has_candidates(self) -> bool:
        """Whether any pair could be chosen; who knows that it could not pays for nothing."""
        features, excluded = len(self._store.schema.features), self._wanted().excluded
        return any(True for pair in combinations(range(features), 2) if {*pair} not in excluded)

    def _wanted(self) -> Wanted:
        """Groups by hand, and those that were dropped, are not chosen; others may be again."""
        store, settings = self._store, self._store.settings
        place = {name: number for number, name in enumerate(store.schema.feature_names)}
        hand = [g for g in store.schema.groups if ",".join(g) not in store.births.chosen]
        known = [*hand, *(tuple(name.split(",")) for name in store.births.dropped)]
        excluded = frozenset(frozenset(place[name] for name in group) for group in known)
        return Wanted(
            number=settings.selection_groups, parts=settings.selection_parts, excluded=excluded
        )

    def _keep(self, names: Sequence[str], windows: Sequence[int]) -> None:
        store = self._store
        schema, there = store.schema, {frozenset(group) for group in store.schema.groups}
        for name in names:
            if frozenset(name.split(",")) not in there:
                schema = schema.plus(name.split(","))
        first = self._first_to_go(windows)
        values: dict[str, list[float]] = {"": [float(max(windows))]}
        values |= {name: [] for name in names}
        with store.catalogue.transaction():
            store.pins.note(schema=schema.to_toml())
            reading = store.readings.put(first, PURPOSE, values)
        store.readings.learned(reading)
        reach("select.kept")
        with store.arrivals:
            store.learn(schema)

    def _first_to_go(self, windows: Sequence[int]) -> int:
        """The window whose retention ends first; what was chosen goes with it."""
        start = {row["number"]: row["start"] or 0 for row in self._store.sets.windows()}
        return min(windows, key=lambda window: (start[window], window))
