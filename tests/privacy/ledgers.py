"""Ledgers for tests: windows charged for three tables, on a book in memory."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from pyramidion import Settings
from pyramidion.privacy.ledger import Book, Ledger, Line, MemoryBook

RESERVES = {"weights": Fraction(1, 20), "bins": Fraction(0), "selection": Fraction(1, 10)}
KEPT = {purpose: share for purpose, share in RESERVES.items() if share}
TABLES = {"": Fraction(1, 50), "carrier": Fraction(33, 100), "selection": Fraction(1, 2)}
PURE = Fraction(3)  # of epsilon = 3
EVERY = [{"epsilon": 3, "delta": 0}, {"epsilon": 3, "delta": 1e-6}, {"epsilon": math.inf}]


def opened(*windows: int, book: Book | None = None, **settings: Any) -> Ledger:
    told = {"epsilon": 3, "delta": 0, "weights_share": 0.05, "selection_share": 0.1} | settings
    ledger = Ledger(MemoryBook() if book is None else book, Settings(**told))
    for window in windows:
        ledger.open(window, TABLES, KEPT, now=window)
    return ledger


def lines_of(ledger: Ledger) -> list[Line]:
    return [line for window in ledger.report().windows for line in window.lines]
