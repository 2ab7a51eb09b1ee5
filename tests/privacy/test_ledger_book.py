"""What a ledger wrote in its book stays written: through restarts, full disks and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyramidion import PrivacyError, Settings
from pyramidion.privacy.budget import budget_of
from pyramidion.privacy.ledger import Ledger, Line, MemoryBook
from tests.privacy.ledgers import EVERY, KEPT, PURE, RESERVES, TABLES, opened


class BrokenBook(MemoryBook):
    broken = False

    def write(self, lines: Sequence[Line]) -> None:
        if self.broken:
            raise OSError("the disk is full")
        super().write(lines)


# Durability


@pytest.mark.parametrize("settings", EVERY)
def test_a_ledger_reopened_on_its_book_goes_on_where_it_was(settings: dict[str, Any]) -> None:
    book = MemoryBook()
    first = opened(0, 1, book=book, **settings)
    unit, budget = budget_of(Settings(**settings))
    first.spend("selection", budget / 15, [0], now=1)
    second = opened(book=book, **settings)
    assert second.report() == first.report()
    if unit != "none":
        with pytest.raises(PrivacyError, match="was asked"):
            second.spend("selection", budget / 15, [0, 1], now=2)
    with pytest.raises(PrivacyError, match="charged already"):
        second.open(1, TABLES, KEPT, now=2)


@pytest.mark.parametrize(
    "act",
    [
        lambda ledger: ledger.open(1, TABLES, KEPT, now=1),
        lambda ledger: ledger.spend("selection", Fraction(1, 5), [0], now=1),
        lambda ledger: ledger.forfeit([0], now=1, why=""),
    ],
)
def test_a_book_that_cannot_be_written_leaves_nothing_recorded(
    act: Callable[[Ledger], None],
) -> None:
    book = BrokenBook()
    ledger = opened(0, book=book)
    before = ledger.report()
    book.broken = True
    with pytest.raises(OSError, match="full"):
        act(ledger)
    book.broken = False
    assert ledger.report() == before
    act(ledger)  # and the lock is free again


def test_all_lines_of_an_act_are_one_write() -> None:
    class CountingBook(MemoryBook):
        writes = 0

        def write(self, lines: Sequence[Line]) -> None:
            self.writes += 1
            super().write(lines)

    book = CountingBook()
    ledger = opened(0, 1, 2, book=book)
    assert book.writes == 3
    ledger.spend("selection", Fraction(1, 10), [0, 1, 2], now=1)
    assert book.writes == 4
    ledger.forfeit([0, 1, 2], now=2, why="restored")
    assert book.writes == 5


def test_threads_together_spend_no_more_than_the_reserve() -> None:
    book = MemoryBook()
    meet = threading.Barrier(4)

    class SlowBook(MemoryBook):
        def lines(self, window: int | None = None) -> list[Line]:
            found = book.lines(window)
            threading.Event().wait(0.001)  # lets the others in between reading and writing
            return found

        def write(self, lines: Sequence[Line]) -> None:
            book.write(lines)

    ledger = opened(0, book=SlowBook())

    def work() -> None:
        meet.wait()
        for _ in range(5):
            try:
                ledger.spend("selection", PURE / 100, [0], now=1)
            except PrivacyError:
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.left(0, "selection") == 0
    assert len([line for line in book.lines() if line.kind == "spend"]) == 10


def test_a_memory_book_keeps_every_line_and_hands_out_copies() -> None:
    book = MemoryBook()
    a, b, c = (Line(window, "budget", "rho", Fraction(1), 0) for window in (0, 1, 0))
    book.write([a, b])
    book.write([c])
    book.lines().clear()
    assert book.lines() == [a, b, c]
    assert book.lines(1) == [b]


# Whatever happens, in whatever order

NUMBERS = st.integers(0, 4)
SHARES = st.integers(-1, 12).map(lambda hundredths: Fraction(hundredths, 100))


class Anything(RuleBasedStateMachine):
    """Opens, spends, forfeits, restarts and fails in any order; a naive twin keeps count."""

    @initialize(delta=st.sampled_from([0.0, 1e-6]))
    def begin(self, delta: float) -> None:
        self.book = BrokenBook()
        self.delta = delta
        self.budget = budget_of(Settings(epsilon=3, delta=delta))[1]
        self.left: dict[tuple[int, str], Fraction] = {}
        self.restart()

    @rule()
    def restart(self) -> None:
        self.ledger = opened(book=self.book, delta=self.delta)

    @rule(broken=st.booleans())
    def disk(self, broken: bool) -> None:
        self.book.broken = broken

    def attempt(self, act: Callable[[], None], *, allowed: bool) -> bool:
        before = self.book.lines()
        if allowed and not self.book.broken:
            act()
            return True
        with pytest.raises((PrivacyError, OSError)):
            act()
        assert self.book.lines() == before
        return False

    @rule(window=NUMBERS, extra=st.sampled_from([Fraction(0), Fraction(1, 10**20)]))
    def open(self, window: int, extra: Fraction) -> None:
        tables = TABLES | {"carrier": TABLES["carrier"] + extra}
        allowed = not extra and (window, "bins") not in self.left
        if self.attempt(lambda: self.ledger.open(window, tables, KEPT, now=0), allowed=allowed):
            for purpose, share in RESERVES.items():
                self.left[window, purpose] = share * self.budget

    @rule(purpose=st.sampled_from(list(RESERVES)), share=SHARES, windows=st.lists(NUMBERS))
    def spend(self, purpose: str, share: Fraction, windows: list[int]) -> None:
        amount = share * self.budget
        allowed = amount > 0 and windows != []
        allowed = allowed and all(self.left.get((w, purpose), -1) >= amount for w in windows)
        if self.attempt(
            lambda: self.ledger.spend(purpose, amount, windows, now=0), allowed=allowed
        ):
            for window in set(windows):
                self.left[window, purpose] -= amount

    @rule(windows=st.lists(NUMBERS, max_size=2))
    def forfeit(self, windows: list[int]) -> None:
        allowed = all((window, "bins") in self.left for window in windows)
        if self.attempt(lambda: self.ledger.forfeit(windows, 0, "why"), allowed=allowed):
            for window, purpose in self.left:
                if window in windows:
                    self.left[window, purpose] = Fraction(0)

    @invariant()
    def nothing_is_overspent_or_lost(self) -> None:
        for (window, purpose), left in self.left.items():
            assert self.ledger.left(window, purpose) == left >= 0
            unused = sum(self.left[window, name] for name in RESERVES)
            assert self.ledger.spent(window) == self.budget - unused <= self.budget


Anything.TestCase.settings = how(max_examples=60, stateful_step_count=30, deadline=None)
test_no_window_overspends_whatever_is_asked_of_it = Anything.TestCase
