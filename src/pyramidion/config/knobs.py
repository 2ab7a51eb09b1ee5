"""How a knob of the settings is described and checked.

A check takes the knob's name and what was given, and returns what is stored or
raises :class:`SchemaError` naming the knob, the rule and the remedy. The
functions here make such checks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyramidion.config import durations
from pyramidion.config.checks import (
    checked_items,
    checked_name,
    checked_number,
    checked_whole,
    nearest,
    plain,
)
from pyramidion.errors import SchemaError

Check = Callable[[str, object], object]

MOST_ROWS = 2**40
ROWS = re.compile(r"([0-9]{1,18}(?:_[0-9]{1,18}){0,6})\s*rows?")


@dataclass(frozen=True)
class Knob:
    """One setting, told for docs and command line. ``default`` is None when ``required``.

    ``store``: only a store has it; counting in memory does not.
    """

    name: str
    symbol: str
    unit: str
    default: object
    required: bool
    help: str
    store: bool


def about(symbol: str, unit: str, check: Check, told: str) -> dict[str, object]:
    """Return a knob's description, as metadata of its dataclass field."""
    return {"symbol": symbol, "unit": unit, "check": check, "help": told, "store": False}


def of_store(unit: str, check: Check, told: str) -> dict[str, object]:
    """Return the description of a knob that only a store has; the paper has no symbol for it."""
    return about("", unit, check, told) | {"store": True}


def whole(low: int, high: int) -> Check:
    """Check for a whole number from ``low`` to ``high``."""
    return lambda name, given: checked_whole(f"setting {name!r}", given, low, high)


count = whole(1, MOST_ROWS)


def number(rule: str, holds: Callable[[float], bool], *, infinite: bool = False) -> Check:
    """Check for a number of which ``rule`` holds; ``infinite`` lets inf pass."""

    def check(name: str, given: object) -> float:
        given = plain(given)
        if infinite and given == math.inf:
            return math.inf
        number = checked_number(f"setting {name!r}", given)
        if not holds(number):
            raise SchemaError(f"setting {name!r} must be {rule}, not {number!r}; write one that is")
        return number

    return check


reserve = number("at least 0 and below 1", lambda share: 0 <= share < 1)


def optional(check: Check) -> Check:
    """Let None pass a check, and ``"none"``: TOML has no other way to say it."""
    return lambda name, given: (
        None
        if given is None or (isinstance(given, str) and given == "none")
        else check(name, given)
    )


def one_of(*choices: str) -> Check:
    """Check for one of some words."""

    def check(name: str, given: object) -> str:
        if not isinstance(given, str) or given not in choices:
            raise SchemaError(f"setting {name!r} cannot be {given!r}; {nearest(given, choices)}")
        return given

    return check


def several_of(*choices: str) -> Check:
    """Check for a list of some words, at least one, each once."""
    one = one_of(*choices)

    def check(name: str, given: object) -> tuple[object, ...]:
        chosen = tuple(one(name, item) for item in checked_items(f"setting {name!r}", given))
        if not chosen or len(set(chosen)) < len(chosen):
            raise SchemaError(
                f"setting {name!r} must name at least one of {', '.join(choices)}, each once"
            )
        return chosen

    return check


def numbers(name: str, given: object) -> tuple[float, ...]:
    """Check for a list of numbers above 0.

    >>> numbers("tree_shares", [3, 2, 1])
    (3.0, 2.0, 1.0)
    """
    found = tuple(
        checked_number(f"setting {name!r}", item)
        for item in checked_items(f"setting {name!r}", given)
    )
    if not found or min(found) <= 0:
        raise SchemaError(f"setting {name!r} must be numbers above 0; write them like [3, 2, 1]")
    return found


def power_of_two(name: str, given: object) -> int:
    """Check for a power of two that fits a hash row.

    >>> power_of_two("buckets", 1024)
    1024
    """
    number = checked_whole(f"setting {name!r}", given, 2, 2**28)
    if number & (number - 1):
        below = 1 << (number.bit_length() - 1)
        raise SchemaError(
            f"setting {name!r} must be a power of two; write {below} or {2 * below} instead"
        )
    return number


def duration(name: str, given: object) -> str:
    """Check for a length of time; equal ones are stored as the same text.

    >>> duration("retention", "52w 1d"), duration("hot_step", "24h")
    ('365d', '1d')
    """
    return durations.told(durations.microseconds(given, f"setting {name!r}"))


def window(name: str, given: object) -> str | int:
    """Check for the length of a window: a duration, or a whole number of rows.

    >>> window("count_window", "4w"), window("count_window", "1_000_000 rows")
    ('28d', 1000000)
    """
    if isinstance(given, str):
        found = ROWS.fullmatch(given.strip())
        given = given if found is None else int(found[1])
    elif getattr(getattr(given, "dtype", None), "kind", "") != "m":  # a timedelta64 is no number
        given = plain(given)
    if isinstance(given, bool | float) or (isinstance(given, str) and given.strip().isdecimal()):
        raise SchemaError(
            f"setting {name!r} must be a duration or a whole number of rows; "
            f'write it like "30d" or "1_000_000 rows"'
        )
    if isinstance(given, int):
        return checked_whole(f"setting {name!r}", given, 1, MOST_ROWS)
    return duration(name, given)


def moment(name: str, given: object) -> float:
    """Check for a point of time; stored as seconds since 1970, to the microsecond.

    >>> moment("origin", "2020-01-01")
    1577836800.0
    """
    return durations.since_epoch(plain(given), f"setting {name!r}") / 10**6


def shares(name: str, given: object) -> tuple[tuple[str, float], ...] | None:
    """Check for relative shares by table name; stored sorted, as pairs, to be hashable.

    >>> shares("shares", {"origin,dest": 1, "carrier": 2})
    (('carrier', 2.0), ('origin,dest', 1.0))
    """
    given = given.items() if isinstance(given, Mapping) else given
    pairs = tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(_is_pair(pair) for pair in pairs):
        raise SchemaError(
            f"setting {name!r} must map table names to numbers; "
            f'write {{"carrier": 2, "origin,dest": 1}}'
        )
    return tuple(sorted(dict(_share(*pair) for pair in pairs).items())) or None


def _share(table: object, share: object) -> tuple[str, float]:
    table = checked_name("a table in setting 'shares'", table)
    number = checked_number(f"the share of table {table!r}", share)
    if number <= 0:
        raise SchemaError(f"the share of table {table!r} must be above 0; raise it")
    return table, number


def _is_pair(given: object) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2
