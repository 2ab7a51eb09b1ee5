"""From batches to acknowledgements: durable, hot, counted and handed on, each row once.

    judge the rows ── write the records ──┬── sync ──────────────┬── commit ── the vault takes them
                                          └── count in memory ───┘

Batches that come together share one commit (`pyramidion.store.commit`), and those that are
alike are judged as one (`pyramidion.store.batching`); each has an answer of its own.

A crash before the commit leaves nothing: the records lie beyond the length that the
catalogue knows, and the counts were in memory. A failure takes the counts back. After the
commit a batch is acknowledged, whatever becomes of it in the vault: the vault seals what it
took behind the scenes, knows in the catalogue how far it has come, and reads what it has not
sealed from the hot window again, at the latest before these rows leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from pyramidion.errors import PyramidionError, StateError
from pyramidion.rows.containers import Batch
from pyramidion.rows.observations import Door, Errors, Observations
from pyramidion.storage.hot import Parts, Receipt
from pyramidion.storage.idempotency import Once
from pyramidion.store.batching import Arrival, Bundle, Refusal, Waiting, bundled, told, waiting
from pyramidion.store.clocks import FOLLOWS, StoreClock
from pyramidion.store.commit import Answers, Commit, Taken, other_content
from pyramidion.store.state import Leaving, Observer, StoreState
from pyramidion.store.window_opener import WindowOpener

__all__ = ["Arrival", "Arrivals", "Resume", "Taker"]


class Taker(Protocol):
    """A vault, as those see it who observe."""

    def ready(self) -> None:
        """Wait until a batch can be taken; what keeps it from sealing is raised here."""

    def take(self, number: int, arrived: tuple[int, int], table: pa.Table, parts: Parts) -> None:
        """Take a batch by its number, once it is hot; it is sealed later.

        Its first and its last row ``arrived`` then.
        """

    def leave(self, batches: list[int]) -> None:
        """Seal these, where that is not done yet: they leave the hot window."""

    def left(self) -> None:
        """They have left, also those that could not be sealed."""

    def close(self) -> None:
        """Finish what is being sealed."""


Resume = tuple[bytes, int, int]
"""An import, the rows of it that came before a batch, and those that came with it.

Of a numbered sequence: its batches.
"""

Origin = tuple[Resume | None, bool]
"""How far that sequence has come with a batch, and whether its rows are a history."""


class Arrivals(Observer):
    """Takes batches in, one group of them at a time."""

    def __init__(
        self,
        lifecycle: StoreState,
        opener: WindowOpener,
        clock: StoreClock,
        threads: int,
        taken: Callable[[int, Observations, Batch], None],
    ) -> None:
        self._state, self._opener = lifecycle, opener
        self._clock = clock
        self.vault: Taker | None = None
        self._threads = threads
        self.taken = taken
        """Called with the rows of each batch, as they came, once acknowledged."""

    def take(
        self,
        data: Any,
        now: int,
        once: str | None = None,
        errors: Errors = "refuse",
        resume: Resume | None = None,
        *,
        history: bool = False,
    ) -> Receipt:
        """Accept a batch; all that `Receipt` says is durable when this returns.

        Rows of a ``history`` arrive at the time that they say themselves.
        """
        arrival = Arrival(data, once, errors, content=b"")
        (answer,) = self.take_all([arrival], now, resume, history=history)
        if isinstance(answer, PyramidionError):
            raise answer
        return answer

    def take_turn(self, data: Any, now: int, sequence: str, turn: int, errors: Errors) -> Receipt:
        """Accept a batch of a numbered sequence once, however long ago it came before.

        How far the sequence has come is noted in the commit of its batch, by a keyed hash of its
        name and without an end: who repeats a batch may do so at any time, and nobody tells when
        it is over. The name and the numbers are the sender's, and tell nothing of a row.
        """
        once, catalogue = f"{sequence} {turn}", self._state.catalogue
        key = self._state.names.of(f"turns of {sequence}".encode())
        done = catalogue.imported(key) or 0
        if turn + 1 < done:
            raise StateError(
                f"batch {turn} of this sequence came after batch {done - 1}, so its sender has "
                f"forgotten some and may count them twice; go on under another name, from where "
                f"the store's last rows end"
            )
        if turn < done:
            asked = Once(once)
            return self._state.hot.seen({asked}).get(asked) or Receipt(0, 0, 0)
        return self.take(data, now, once, errors, (key, turn, turn + 1))

    def take_all(
        self,
        arrivals: Sequence[Arrival],
        now: int,
        resume: Resume | None = None,
        *,
        history: bool = False,
    ) -> list[Receipt | PyramidionError]:
        """Accept batches in one commit, or as few as the windows that they go to allow.

        Each has its receipt, or why it was not accepted; what fails for all is told to all that
        were not acknowledged before.
        """
        answers: Answers = {}
        came = self._clock.present() if history else now
        try:
            if self.vault is not None:
                self.vault.ready()
            group = self._waiting(arrivals, answers)
            while group:
                self._turn(group, answers, (now, came), (resume, history))
                group = [each for each in group if each.place not in answers]
        except PyramidionError as problem:
            for place in range(len(arrivals)):
                answers.setdefault(place, told(problem))
        return [answers[place] for place in range(len(arrivals))]

    def _waiting(self, arrivals: Sequence[Arrival], answers: Answers) -> list[Waiting]:
        """Arrivals that can be judged. Columns only ever become fewer, so these can be again."""
        group, columns = [], self._state.schema.columns
        for place, arrival in enumerate(arrivals):
            try:
                group.append(waiting(arrival, place, columns))
            except PyramidionError as problem:
                answers[place] = told(problem)
        return group

    def _turn(
        self,
        group: Sequence[Waiting],
        answers: Answers,
        times: tuple[int, int],
        origin: Origin,
    ) -> None:
        """Answer some of a group, at best all.

        Not those for whom a window must be opened first, by rows of the others; and nobody where
        the schema changed meanwhile, or something else came.
        """
        lifecycle, (now, came) = self._state, times
        with lifecycle.arrivals:
            self._answer_seen(group, answers)
            door, last = lifecycle.door, lifecycle.last_batch()
            now = self._arrival(now, origin)
            latest = self._clock.horizon(now) + lifecycle.settings.max_skew_us
        group = [each for each in group if each.place not in answers]
        refused: Answers = {}
        bundles = self._bundles(group, door, latest, refused)
        slots = self._missing(bundles, now, refused)
        _answer_refused(group, refused, answers)
        for slot in slots:
            self._opener.open(slot, now)
        taken, vault = list[Taken](), self.vault
        with lifecycle.arrivals:
            if door is lifecycle.door and last == lifecycle.last_batch():
                now = self._arrival(now, origin)
                came = came if origin[1] else self._clock.arrival(came)
                taken = self._take(bundles, answers, (now, came), origin)
                _answer_refused(group, refused, answers)
            for each in taken:
                if vault is not None:
                    since = each.since(now, history=origin[1])
                    vault.take(each.number, (since, now), each.table, each.windows)
        for each in taken:
            self.taken(each.number, each.bundle.found, each.bundle.batch)

    def _arrival(self, now: int, origin: Origin) -> int:
        """When rows arrive that asked for the time before; rows of a history say it themselves."""
        live = now if origin[1] else self._clock.arrival(now)
        return self._state.people.arrival(live)

    def _answer_seen(self, group: Sequence[Waiting], answers: Answers) -> None:
        asked = {each.once for each in group if each.once is not None}
        seen = self._state.hot.seen(asked) if asked else {}
        for each in group:
            if each.once in seen:
                answers[each.place] = seen[each.once] or other_content()

    def _bundles(
        self, group: Sequence[Waiting], door: Door, latest: int, refused: Answers
    ) -> list[Bundle]:
        """What can be accepted; who has no such row is refused."""
        bundles = []
        for each in bundled(group, door, latest, self._state.settings.window_rows):
            if isinstance(each, Refusal):
                refused[each.place] = each.problem
                continue
            some = [member for member in each.members if member.rows]
            refused |= {m.place: Receipt(0, m.refused, 0) for m in each.members if not m.rows}
            if some:
                bundles.append(each.only(some))
        return bundles

    def _missing(self, bundles: list[Bundle], now: int, refused: Answers) -> list[int]:
        """Slots to be opened; a bundle that no window takes is refused, and not one any more."""
        slots: set[int] = set()
        for bundle in list(bundles):
            try:
                with self._state.arrivals:
                    places = self._state.place(bundle.found, now)
                slots.update(slot for slot in places if isinstance(slot, int))
            except StateError as problem:  # more rows than a window has: one arrival's
                refused |= {member.place: told(problem) for member in bundle.members}
                bundles.remove(bundle)
        return sorted(slots)

    def _take(
        self,
        bundles: Sequence[Bundle],
        answers: Answers,
        times: tuple[int, int],
        origin: Origin,
    ) -> list[Taken]:
        """Take bundles up to the first one that has no window yet; those that were."""
        commit = Commit(self._state, *times, answers, self._threads)
        try:
            for number, bundle in enumerate(bundles, 1):
                if not commit.add(bundle, last=number == len(bundles)):
                    break
            if commit.taken:
                commit.commit(lambda last: self._note(last, origin), history=origin[1])
                self._clock.rows_came(times[0], history=origin[1])
        except BaseException:
            commit.take_back()
            raise
        return commit.taken

    def _note(self, last: int, origin: Origin) -> None:
        """Within the transaction."""
        resume, history = origin
        follows = self._clock.becomes(history=history)
        if follows != self._clock.noted:
            self._state.catalogue.note(**{FOLLOWS: follows})
        if resume is not None:
            self._go_on(*resume)
        if self.vault is None:  # one that is attached later is not owed this
            self._state.catalogue.note(vaulted=last)

    def _go_on(self, key: bytes, before: int, after: int) -> None:
        catalogue = self._state.catalogue
        found = catalogue.imported(key) or 0
        if found > before:
            raise StateError(
                "these rows are being imported already, so some would be counted twice; wait for "
                "the other import to end"
            )
        catalogue.note_import(key, after)

    def rows_leaving(self, leaving: Leaving) -> None:
        """Have the vault seal what leaves."""
        if self.vault is not None:
            self.vault.leave([batch.number for step in leaving.steps for batch in step.batches])

    def rows_left(self) -> None:
        """The vault need not hold it any longer."""
        if self.vault is not None:
            self.vault.left()

    def close(self) -> None:
        """Let the vault finish."""
        if self.vault is not None:
            self.vault.close()


def _answer_refused(group: Sequence[Waiting], refused: Answers, answers: Answers) -> None:
    """Return errors for rejected arrivals, except for retries of an earlier one under its key.

    A retry gets the result of the first one, and waits until that is known.
    """
    taken: dict[tuple[str, str] | None, tuple[Once, Receipt]] = {}
    pending: set[tuple[str, str] | None] = set()
    for each in group:
        once, name = each.once, each.once and each.once.name
        if each.place in refused and name not in pending:
            first = taken.get(name, (once, refused[each.place]))
            answers.setdefault(each.place, first[1] if first[0] == once else other_content())
        answer = answers.get(each.place)
        if answer is None and once is not None:
            pending.add(name)
        if isinstance(answer, Receipt) and answer.accepted and once is not None:
            taken.setdefault(name, (once, answer))
