"""The ledger: what each window has spent, and the refusal of what does not fit.

A window has one budget, (ε, δ) told as ρ or as pure ε, and its lines say where it goes:

    budget    the whole, written first; its purpose is the unit
    table     what the noise of a table costs, charged in full at the window's birth
    node      what a node of a tree costs, charged to every window whose rows it takes
    reserve   set aside at birth for what is computed from its rows while they are hot
    spend     such a computation, paid from the reserve
    refund    a spend that paid for nothing: it failed before a row was read
    forfeit   a reserve given up, because what was spent of it is not known

Three rules. *Spend first, act second*: lines are durable before the noisy thing
exists, so a crash can waste budget but not overspend it. *Whoever may be read
pays*: a computation is charged in full to every window that can have a row in
it, sealed ones too, for their rows are disjoint and each row's loss is whole.
*No older copy pays again*: in a store, a spend ends every copy that does not
have its line, before it returns.

Amounts are exact fractions: a thousand spends of a thousandth are the reserve
and not a little more. The ledger keeps nothing in memory; what the book says is
so, also after a restart. One ledger writes a book.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, ROUND_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from threading import RLock
from types import MappingProxyType
from typing import Literal, Protocol

from pyramidion.config.settings import Settings
from pyramidion.errors import PrivacyError
from pyramidion.privacy.budget import budget_of, epsilon_of

Kind = Literal["budget", "table", "node", "reserve", "spend", "refund", "forfeit"]


USES = ("spend", "forfeit")  # what takes from a reserve
BORN = ("table", "node")  # what noise was drawn for
DIGITS = 6  # of an amount in a message


@dataclass(frozen=True)
class Line:
    """One durable row. ``at`` is in microseconds; ``why`` is free text, never data."""

    window: int
    kind: Kind
    purpose: str
    amount: Fraction
    at: int
    why: str = ""


class Book(Protocol):
    """Where lines live: SQLite in the store, a list in memory."""

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """Held from reading to writing; re-entrant."""

    def lines(self, window: int | None = None) -> list[Line]:
        """Return the lines of a window, or all, in the order written."""

    def write(self, lines: Sequence[Line]) -> None:
        """Add lines, all or none, durable on return.

        None is ever changed or dropped; but of a window that is forgotten, the lines of its
        tables may be summed: how they shared can follow from rows that are forgotten, too. So
        may those of tables that were dropped, where rows told which they are.
        """


Call = Callable[[], None]
Release = Callable[[Call, Call], None]
"""Charges what is about to be released: by a call that writes the lines, and one that gives them
back. When it returns no older copy of the book can be charged for the same rows."""

NOT_READ = "no row was read: an older store key could not be destroyed"


def _at_once(charge: Call, _: Call) -> None:
    """Charge a book that has no copies."""
    charge()


class MemoryBook:
    """The readable reference: a list, for tests and for what need not survive."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self.lock: AbstractContextManager[bool] = RLock()

    def lines(self, window: int | None = None) -> list[Line]:
        """Return the lines of a window, or all, in the order written."""
        return [line for line in self._lines if window in (None, line.window)]

    def write(self, lines: Sequence[Line]) -> None:
        """Add lines."""
        self._lines = [*self._lines, *lines]


@dataclass(frozen=True, kw_only=True)
class WindowReport:
    """What one window has spent, and the (ε, δ) that this gives its observations."""

    number: int
    unit: str
    budget: Fraction
    lines: tuple[Line, ...]
    spent: Fraction
    left: Fraction
    epsilon: float
    delta: float

    def used(self, purpose: str) -> Fraction:
        """Return what was spent or forfeited of the reserve for a purpose."""
        return _used(self.lines, purpose)

    def to_dict(self, *, lines: bool = True) -> dict[str, object]:
        """Return plain values for JSON: amounts as number and as exact text; no ε is None.

        Without ``lines`` there are their sums alone.
        """
        told: dict[str, object] = {
            "number": self.number,
            "unit": self.unit,
            **_told(budget=self.budget, spent=self.spent, left=self.left),
            **_promised(self.epsilon, self.delta),
            **_told(tables=_sum(self.lines, *BORN)),
            "reserves": [
                {"purpose": line.purpose}
                | _told(reserved=line.amount, used=self.used(line.purpose))
                | _told(left=_left(self.lines, line.purpose))
                for line in self.lines
                if line.kind == "reserve"
            ],
        }
        if not lines:
            return told
        return told | {
            "lines": [
                {"kind": line.kind, "purpose": line.purpose, "at": line.at, "why": line.why}
                | _told(amount=line.amount)
                for line in self.lines
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """The whole ledger. Windows hold disjoint observations: ε and δ are the largest window's.

    They do not hold disjoint people. Where these are protected, ``unit`` is the column that tells
    them apart, ε and δ are those of a person in one window, and ``composed_epsilon`` and
    ``composed_delta`` those of a person in all windows that are ``retained``; else None.
    """

    windows: tuple[WindowReport, ...]
    k: int
    unit: str | None = None
    retained: int | None = None
    composed_epsilon: float | None = None
    composed_delta: float | None = None
    shards: int = 1
    """How many stores at most take rows of the stream, this one among them."""

    @property
    def noise_variance(self) -> int:
        """Noise of the sum of all shards, in that of this one: their noise is independent."""
        return self.shards

    @property
    def epsilon(self) -> float:
        """The largest ε of a window; inf: no promise."""
        return max((window.epsilon for window in self.windows), default=0.0)

    @property
    def delta(self) -> float:
        """The largest δ of a window."""
        return max((window.delta for window in self.windows), default=0.0)

    def to_dict(self, *, lines: bool = True) -> dict[str, object]:
        """Return plain values for JSON; where there is no promise, ε is None."""
        windows = [window.to_dict(lines=lines) for window in self.windows]
        told = {"k": self.k, **_promised(self.epsilon, self.delta), "windows": windows}
        if self.shards > 1:
            told |= {"shards": self.shards, "noise_variance": self.noise_variance}
        return told if self.unit is None else told | self.composed()

    def composed(self) -> dict[str, object]:
        """Return what people have spent in all windows as plain values; empty without a unit."""
        if self.composed_epsilon is None or self.composed_delta is None:
            return {}
        promise = _promised(self.composed_epsilon, self.composed_delta)
        told = {f"composed_{name}": value for name, value in promise.items()}
        return {"unit": self.unit, "retained": self.retained, **told}

    def __str__(self) -> str:
        used = {line.purpose: 0 for w in self.windows for line in w.lines if line.kind in _RESERVED}
        rows = [["window", "unit", "tables", *used, "left", "ε", "δ"]]
        for window in self.windows:
            spent = [_sum(window.lines, *BORN), *(window.used(purpose) for purpose in used)]
            amounts = [*(_text(amount, up=True) for amount in spent), _text(window.left)]
            promise = [f"{window.epsilon:.{DIGITS}g}", f"{window.delta:g}"]
            rows.append([str(window.number), window.unit, *amounts, *promise])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.rjust, row, widths)) for row in rows)
        return "\n".join([*lines, f"spent on {self._spent()}", *self._sharded()])

    def _sharded(self) -> list[str]:
        """What several shards cost: noise, and no privacy."""
        if self.shards == 1:
            return []
        return [
            f"one of at most {self.shards} shards: each row is in one of them, so what they spend "
            f"does not add up; their sum has {self.noise_variance} times the noise variance of one"
        ]

    def _spent(self) -> str:
        """On whom, and what."""
        if self.epsilon == math.inf:
            return "nothing: NO privacy, counts and what was chosen from rows are exact"
        told = f"({self.epsilon:.{DIGITS}g}, {self.delta:g})"
        if self.composed_epsilon is None:
            return f"any {self.k} observation{'s' if self.k != 1 else ''}: {told}"
        whole = f"({self.composed_epsilon:.{DIGITS}g}, {self.composed_delta:g})"
        windows = f"{self.retained} retained window{'s' if self.retained != 1 else ''}"
        person = f"any person (column {self.unit!r})"
        return f"{person}: {told} in a window, {whole} in {windows} together"


class Ledger:
    """Charges windows, and refuses what their budgets cannot pay.

    >>> ledger = Ledger(MemoryBook(), Settings(epsilon=1, delta=0))
    >>> tables = {"": Fraction(1, 50), "carrier": Fraction(22, 25)}
    >>> ledger.open(0, tables, {"selection": Fraction(1, 10)}, now=0)
    >>> ledger.spend("selection", Fraction(3, 50), [0], now=1)
    >>> ledger.spent(0), ledger.left(0, "selection")
    (Fraction(24, 25), Fraction(1, 25))
    >>> ledger.spend("selection", Fraction(3, 50), [0], now=2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pyramidion.errors.PrivacyError: window 0 has epsilon 0.04 left for selection and 0.06 was ...
    """

    def __init__(
        self,
        book: Book,
        settings: Settings,
        *,
        unit: str | None = None,
        retained: Callable[[], Collection[int]] = tuple,
        release: Release = _at_once,
    ) -> None:
        self._book = book
        self._release = release
        self._settings = settings
        self._person = unit
        self._retained = retained
        self._unit, self._budget = budget_of(settings)
        self._reserves = settings.reserves
        self._lock = book.lock  # one order of locks, whoever comes from above

    def open(
        self,
        window: int,
        tables: Mapping[str, Fraction],
        reserves: Mapping[str, Fraction],
        now: int,
        nodes: Mapping[str, Fraction] = MappingProxyType({}),
    ) -> None:
        """Charge the birth of a window: its budget, its tables and reserves by their shares.

        In a tree, also the ``nodes`` that take its rows, those that were born before, too. Call it
        before the noise exists, and once: a window is charged for one draw.
        """
        for share in (*tables.values(), *reserves.values(), *nodes.values()):
            if _exact(share) <= 0:
                raise PrivacyError("a table or reserve with a share of 0 or less; raise its share")
        asked, kept = (self._budget * sum(of.values()) for of in (tables, reserves))
        asked += self._budget * sum(nodes.values())
        if asked + kept > self._budget:
            raise PrivacyError(
                f"window {window} has {self._unit} {_text(self._budget)} and its tables ask for "
                f"{_text(asked, up=True)}, its reserves for {_text(kept, up=True)}; give the "
                f"tables at most {_text(max(self._budget - kept, Fraction(0)))} or lower a share"
            )
        born = [Line(window, "budget", self._unit, self._budget, now)]
        for name, share in tables.items():
            born.append(Line(window, "table", name, self._budget * share, now))
        for name, share in nodes.items():
            born.append(Line(window, "node", name, self._budget * share, now))
        for purpose, share in reserves.items() if self._budget else ():
            born.append(Line(window, "reserve", purpose, self._budget * share, now))
        with self._lock:
            if self._book.lines(window):
                raise PrivacyError(
                    f"window {window} is charged already and a second draw would be a second "
                    f"release; use the noise it was born with"
                )
            self._book.write(born)

    def spend(
        self, purpose: str, amount: Fraction, windows: Sequence[int], now: int, why: str = ""
    ) -> None:
        """Charge a computation in full to every window that can have a row in what it reads.

        Call it before the computation. All windows pay from their reserves for
        this purpose, or none does and the refusal names the first that cannot.
        Without privacy (ε = inf) lines of amount 0 are written. In a store it
        renews the store key: older copies of the store do not open any more.
        """
        if _exact(amount) < 0 or (amount == 0 and self._budget):
            raise PrivacyError("a charge must be above 0; ask for what the computation costs")
        if not windows:
            raise PrivacyError(f"no window pays for {purpose}; name all that it can read rows of")
        amount = Fraction(amount) if self._budget else Fraction(0)

        def charge() -> None:
            with self._lock:
                self._refuse_short(purpose, amount, windows)
                self._write_each("spend", purpose, amount, windows, now, why)

        def refund() -> None:
            self._write_each("refund", purpose, amount, windows, now, NOT_READ)

        self._refuse_short(purpose, amount, windows)  # before anything is renewed for it
        self._release(charge, refund)

    def _refuse_short(self, purpose: str, amount: Fraction, windows: Sequence[int]) -> None:
        left = {window: self._left_of(window, purpose) for window in windows}
        short = [window for window in left if amount > left[window]]
        if short:
            raise PrivacyError(self._refusal(purpose, amount, left, short))

    def _write_each(
        self, kind: Kind, purpose: str, amount: Fraction, windows: Sequence[int], now: int, why: str
    ) -> None:
        each = dict.fromkeys(windows)
        self._book.write([Line(window, kind, purpose, amount, now, why) for window in each])

    def can_pay(self, window: int, purpose: str) -> bool:
        """Whether a window has something left for a purpose; without privacy, whether it is new."""
        if self._budget:
            return self._left_of(window, purpose) > 0
        kinds = [line.kind for line in self._lines_of(window) if line.purpose == purpose]
        return kinds.count("spend") == kinds.count("refund")

    def forfeit(self, windows: Sequence[int], now: int, why: str) -> None:
        """Give up all that is left of all reserves.

        After a backup is restored, what was spent since it was made is not known;
        as all of it may be, none of it can be spent.
        """
        with self._lock:
            lines: list[Line] = []
            for window in dict.fromkeys(windows):
                own = self._lines_of(window)
                for purpose in [line.purpose for line in own if line.kind == "reserve"]:
                    if left := _left(own, purpose):
                        lines.append(Line(window, "forfeit", purpose, left, now, why))
            self._book.write(lines)

    def left(self, window: int, purpose: str) -> Fraction:
        """Return what a window can still spend on a purpose: its reserve less its uses."""
        return self._left_of(window, purpose)

    def spent(self, window: int) -> Fraction:
        """Return what a window has spent: tables, spends and forfeits, less refunds."""
        return _spent(self._lines_of(window))

    def report(self) -> Report:
        """Return every window's lines, sums and (ε, δ), by number."""
        own: dict[int, list[Line]] = {}
        for line in self._book.lines():
            own.setdefault(line.window, []).append(line)
        windows = tuple(self._report_of(window, own[window]) for window in sorted(own))
        report = Report(windows=windows, k=self._settings.k, shards=self._settings.shards)
        return report if self._person is None else self._composed(report)

    def of_window(self, window: int) -> WindowReport:
        """Return the lines, sums and (ε, δ) of one window."""
        return self._report_of(window, self._lines_of(window))

    def over(self, windows: Collection[int]) -> tuple[float, float]:
        """Return what some windows tell together about who may have rows in all of them.

        >>> ledger = Ledger(MemoryBook(), Settings(epsilon=1, delta=0))
        >>> for window in (1, 2, 3):
        ...     ledger.open(window, {"": Fraction(1)}, {}, now=0)
        >>> ledger.over([1, 3]), ledger.over([])
        ((2.0, 0.0), (0.0, 0.0))
        """
        if not windows:
            return 0.0, 0.0
        reports = [self._report_of(window, self._lines_of(window)) for window in windows]
        if len(reports) == 1:
            return reports[0].epsilon, reports[0].delta
        return _promise(self._unit, self._together(reports), self._settings.delta)

    def _together(self, windows: Sequence[WindowReport]) -> Fraction:
        """What windows have spent on who may be in all of them.

        A node that took rows of m windows has m times as many of a person's: in ρ that costs m²
        times as much, in ε m times.
        """
        spent = sum((window.spent for window in windows), Fraction(0))
        if self._unit != "rho":
            return spent
        nodes: dict[str, list[Fraction]] = {}
        for line in (line for window in windows for line in window.lines if line.kind == "node"):
            nodes.setdefault(line.purpose, []).append(line.amount)
        return spent + sum(((len(each) - 1) * sum(each) for each in nodes.values()), Fraction(0))

    def _composed(self, report: Report) -> Report:
        """A person may be in every window, so what the retained ones have spent adds up."""
        known = set(self._retained())
        kept = [window for window in report.windows if window.number in known]
        spent = self._together(kept)
        epsilon, delta = _promise(self._unit, spent, self._settings.delta) if kept else (0.0, 0.0)
        return replace(
            report,
            unit=self._person,
            retained=len(kept),
            composed_epsilon=epsilon if len(kept) > 1 else min(epsilon, report.epsilon),
            composed_delta=delta,
        )

    def _report_of(self, window: int, lines: Sequence[Line]) -> WindowReport:
        whole = _whole(window, lines)
        spent = _spent(lines)
        epsilon, delta = _promise(whole.purpose, spent, self._settings.delta)
        if whole.purpose == self._unit and spent <= self._budget:
            epsilon = min(epsilon, self._settings.epsilon)  # the way there and back rounds up
        return WindowReport(
            number=window,
            unit=whole.purpose,
            budget=whole.amount,
            lines=tuple(lines),
            spent=spent,
            left=whole.amount - spent,
            epsilon=epsilon,
            delta=delta,
        )

    def _lines_of(self, window: int) -> list[Line]:
        lines = self._book.lines(window)
        _whole(window, lines)
        return lines

    def _left_of(self, window: int, purpose: str) -> Fraction:
        lines = self._lines_of(window)
        unit = _whole(window, lines).purpose
        if unit != self._unit:
            raise PrivacyError(
                f"window {window} was charged in the unit {unit!r} and the settings now say "
                f"{self._unit!r}; a stream keeps its epsilon and delta, or starts anew"
            )
        known = {line.purpose for line in lines if line.kind == "reserve"}
        known |= set(self._reserves)
        if self._budget and purpose not in known:
            told = ", ".join(sorted(known)) or "none"
            raise PrivacyError(f"window {window} has no reserve for {purpose!r}, only for: {told}")
        return _left(lines, purpose)

    def _refusal(
        self, purpose: str, amount: Fraction, left: Mapping[int, Fraction], short: Sequence[int]
    ) -> str:
        first, most = short[0], min(left.values())
        ways = [f"raise `{purpose}_share` for windows to come"]
        if most:
            ways.insert(0, f"ask for at most {_text(most)}")
        waits = purpose != "rebuild"  # that reads no other window, however long one waits
        if waits and amount <= self._budget * self._reserves.get(purpose, Fraction(0)):
            ways.append(f"wait until only window {max(short) + 1} and later are read")
        return (
            f"window {first} has {self._unit} {_text(left[first])} left for {purpose} and "
            f"{_text(amount, up=True)} was asked; {', or '.join(ways)}"
        )


_RESERVED = ("reserve", *USES)


def _exact(amount: object) -> Fraction:
    if isinstance(amount, bool) or not isinstance(amount, int | Fraction):
        raise PrivacyError("budgets are exact; write an int or a fractions.Fraction")
    return Fraction(amount)


def _sum(lines: Iterable[Line], *kinds: str, purpose: str | None = None) -> Fraction:
    """Exact; shares have few denominators, and adding numerators spares a thousand divisions."""
    parts: dict[int, int] = {}
    for line in lines:
        if line.kind in kinds and purpose in (None, line.purpose):
            amount = line.amount
            parts[amount.denominator] = parts.get(amount.denominator, 0) + amount.numerator
    return sum((Fraction(top, bottom) for bottom, top in parts.items()), Fraction(0))


def _used(lines: Sequence[Line], purpose: str | None = None) -> Fraction:
    return _sum(lines, *USES, purpose=purpose) - _sum(lines, "refund", purpose=purpose)


def _spent(lines: Sequence[Line]) -> Fraction:
    return _sum(lines, *BORN) + _used(lines)


def _left(lines: Sequence[Line], purpose: str) -> Fraction:
    return _sum(lines, "reserve", purpose=purpose) - _used(lines, purpose)


def _whole(window: int, lines: Iterable[Line]) -> Line:
    for line in lines:
        if line.kind == "budget":
            return line
    raise PrivacyError(f"window {window} has no budget in the ledger; open it before its noise")


@lru_cache(maxsize=1024)  # windows of a stream mostly spend the same
def _promise(unit: str, spent: Fraction, delta: float) -> tuple[float, float]:
    if unit == "epsilon":
        return math.nextafter(float(spent), math.inf) if float(spent) < spent else float(spent), 0.0
    if unit == "rho" and delta > 0:
        return epsilon_of(rho=float(spent), delta=delta), delta
    return math.inf, 1.0


def _promised(epsilon: float, delta: float) -> dict[str, object]:
    return {"epsilon": epsilon if epsilon < math.inf else None, "delta": delta}


def _told(**amounts: Fraction) -> dict[str, object]:
    told: dict[str, object] = {}
    for name, amount in amounts.items():
        told |= {name: float(amount), f"{name}_exact": str(amount)}
    return told


def _text(amount: Fraction, *, up: bool = False) -> str:
    """Digits for people: what fits is rounded down, what is asked or spent up."""
    rounding = Context(prec=DIGITS, rounding=ROUND_UP if up else ROUND_DOWN)
    digits = rounding.divide(Decimal(amount.numerator), Decimal(amount.denominator))
    digits = digits.normalize()
    return f"{digits:f}" if not digits or digits >= Decimal("1e-6") else f"{digits:g}"
