"""Lengths and points of time: read as people write them, kept as whole microseconds.

A length is text such as ``"30d"`` or ``"1d12h"``, or a timedelta; a point is
seconds since 1970, a date or ISO text. Microseconds are what Arrow columns and
Python's own times hold, and as whole numbers they add up without rounding.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from pyramidion.errors import SchemaError

UNITS = {
    "w": 7 * 86_400_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
"""Microseconds in each unit, the longest first."""

LONGEST = 10_000 * 365 * UNITS["d"]
"""Ten thousand years: added to any date, this stays far inside 64 bits."""

TEXT = re.compile(r"\s*+".join(f"(?:([0-9]{{1,18}})\\s*+{unit})?" for unit in UNITS))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
FIRST, LAST = ((datetime(y, 1, 1, tzinfo=UTC) - EPOCH) // TICK for y in (1700, 2200))
"""Between these years a float of seconds still tells every microsecond apart."""


def microseconds(given: object, what: str = "the duration") -> int:
    """Return a length of time in microseconds; ``what`` names it where it is refused.

    >>> microseconds("30d"), microseconds("1d 12h"), microseconds(timedelta(seconds=90))
    (2592000000000, 129600000000, 90000000)
    """
    if getattr(getattr(given, "dtype", None), "kind", "") == "m":
        given = given.item()  # type: ignore[attr-defined]  # NumPy's timedelta64
    if isinstance(given, timedelta):
        length = given // TICK
    else:
        found = TEXT.fullmatch(given.strip()) if isinstance(given, str) else None
        if found is None or not any(found.groups()):
            raise SchemaError(
                f"{what} must be a duration: whole numbers with the units w, d, h, m, s, ms or us, "
                f'the longest first; write it like "30d", "12h" or "1d12h"'
            )
        length = sum(
            int(number or 0) * unit
            for number, unit in zip(found.groups(), UNITS.values(), strict=True)
        )
    if not 0 < length <= LONGEST:
        raise SchemaError(
            f"{what} must be longer than 0 and at most 10,000 years; write one between, "
            f'like "30d" or "1us"'
        )
    return length


def told(length: int) -> str:
    """Return a length as text, the same for equal lengths; weeks are told as days.

    >>> told(2_592_000_000_000), told(129_600_000_000), told(500_000)
    ('30d', '1d12h', '500ms')
    """
    parts = []
    for name, unit in list(UNITS.items())[1:]:
        number, length = divmod(length, unit)
        parts.append(f"{number}{name}" if number else "")
    return "".join(parts)


def moment(at: int) -> str:
    """Return a point of time as text that every tool reads.

    >>> moment(1_735_689_600_000_000)
    '2025-01-01T00:00:00Z'
    """
    return (EPOCH + at * TICK).isoformat().replace("+00:00", "Z")


def since_epoch(given: object, what: str = "the moment") -> int:
    """Return a point of time in microseconds since 1970; without a zone it is UTC.

    >>> since_epoch(1.5), since_epoch("1970-01-02"), since_epoch(datetime(1970, 1, 1, 1))
    (1500000, 86400000000, 3600000000)
    """
    given = given.isoformat() if isinstance(given, date) else given
    try:
        if isinstance(given, str):
            moment = datetime.fromisoformat(given)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            since = (moment - EPOCH) // TICK
        elif isinstance(given, int | float) and not isinstance(given, bool):
            since = round(Fraction(given) * 10**6) if math.isfinite(given) else LAST + 1
        else:
            raise ValueError
    except (ValueError, OverflowError) as error:
        raise SchemaError(
            f"{what} must be seconds since 1970 or a date; write a number, or text "
            f'like "2020-01-01" or "2020-01-01T06:00+02:00"'
        ) from error
    if not FIRST <= since <= LAST:
        raise SchemaError(
            f"{what} must be a finite moment between the years 1700 and 2200; "
            f"write seconds since 1970 or a date there"
        )
    return since
