"""What may stand in a schema or a setting: names, values, numbers and keys.

Every function takes ``what``, the thing as a person would name it, and either
gives the value back in its plain, stored form or raises :class:`SchemaError`
with one sentence: the thing, the rule, the remedy.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Set
from itertools import pairwise

from pyramidion.errors import SchemaError

Value = str | int | float | bool | bytes

SMALLEST, LARGEST = -(2**63), 2**64 - 1
"""Whole numbers an Arrow column can hold: int64 and uint64 together."""
COMPARED = 100
"""Characters of a name that is compared with others; how long that takes grows with the square."""


def plain(value: object) -> object:
    """Return a NumPy scalar or a subclass of a Python type as the plain Python value.

    NumPy is not imported for this: its scalars have ``ndim`` 0 and an ``item``.
    """
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value)
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def checked_name(what: str, name: object) -> str:
    """Return a column's name: text, not empty.

    >>> checked_name("a feature", "carrier")
    'carrier'
    """
    name = plain(name)
    if not isinstance(name, str):
        raise SchemaError(
            f"the name of {what} must be text, not {type(name).__name__}; "
            f"write the column's name in quotes"
        )
    if not name.strip():
        raise SchemaError(f"the name of {what} is empty; write the column's name")
    if not encodable(name):
        raise SchemaError(f"the name {name!r} of {what} is not valid Unicode; rename the column")
    return name


def checked_items(what: str, given: object) -> tuple[object, ...]:
    """Return a list, tuple, array or other ordered collection as a tuple."""
    if not isinstance(given, str | bytes | Mapping | Set) and isinstance(given, Iterable):
        try:
            return tuple(given)
        except TypeError:  # a NumPy array of no dimension says it is iterable and is not
            pass
    raise SchemaError(
        f"{what} must be a list in a fixed order, not {type(given).__name__}; write [..., ...]"
    )


def checked_values(what: str, given: object, at_least: int = 1) -> tuple[Value, ...]:
    """Return distinct values a column can hold, in the order given.

    Values are told apart by Python's equality, so ``True``, ``1`` and ``1.0``
    are one value.

    >>> checked_values("the domain of 'carrier'", ["AA", "UA"])
    ('AA', 'UA')
    """
    values = tuple(_checked_value(what, value) for value in checked_items(what, given))
    if len(values) < at_least:
        raise SchemaError(f"{what} must hold at least {at_least} value(s); list them")
    seen: dict[Value, Value] = {}
    for value in values:
        if value in seen:
            raise SchemaError(
                f"{what} holds {seen[value]!r} and {value!r}, which count as the same value "
                f"(True == 1 == 1.0); keep one of them"
            )
        seen[value] = value
    return values


def _checked_value(what: str, value: object) -> Value:
    value = plain(value)
    if value is None:
        raise SchemaError(f"{what} holds None; remove it, a missing value is never listed")
    if not isinstance(value, str | int | float | bytes):
        raise SchemaError(
            f"{what} holds a {type(value).__name__}; "
            f"use only text, numbers, true, false or bytes, for example by converting it to text"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise SchemaError(f"{what} holds {value!r}; remove it, values must be finite")
    if isinstance(value, int) and not SMALLEST <= value <= LARGEST:
        raise SchemaError(f"{what} holds a whole number beyond 64 bits; write it as text")
    if isinstance(value, str) and not encodable(value):
        raise SchemaError(f"{what} holds {value!r}, which is not valid Unicode; correct the text")
    return value


def encodable(text: str) -> bool:
    """Whether UTF-8 can hold the text; a lone surrogate it cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def checked_number(what: str, number: object) -> float:
    """Return a finite number as a float."""
    number = plain(number)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise SchemaError(
            f"{what} must be a number, not {type(number).__name__}; write it without quotes"
        )
    try:
        number = float(number)
    except OverflowError:  # a whole number that no float can hold
        number = math.inf
    if not math.isfinite(number):
        raise SchemaError(f"{what} must be finite; write a number that is not inf or nan")
    return number + 0.0  # -0.0 becomes 0.0


def checked_whole(what: str, number: object, low: int, high: int) -> int:
    """Return a whole number from ``low`` to ``high``."""
    number = plain(number)
    if isinstance(number, bool) or not isinstance(number, int):
        raise SchemaError(
            f"{what} must be a whole number, not {type(number).__name__}; "
            f"write one from {low} to {high}"
        )
    if not low <= number <= high:
        raise SchemaError(f"{what} is out of range; write a whole number from {low} to {high}")
    return number


def checked_cuts(what: str, given: object) -> tuple[float, ...]:
    """Return cut points: at least one, finite, strictly increasing.

    >>> checked_cuts("the edges of 'rating'", [2, 3, 4])
    (2.0, 3.0, 4.0)
    """
    cuts = tuple(checked_number(f"a number in {what}", cut) for cut in checked_items(what, given))
    if not cuts:
        raise SchemaError(f"{what} are empty; write at least one cut point")
    for left, right in pairwise(cuts):
        if left >= right:
            raise SchemaError(
                f"{what} must strictly increase, but {shown(left)} is followed by {shown(right)}; "
                f"sort them and drop repeats"
            )
    return cuts


def shown(number: float) -> str:
    """Return a float as people write it.

    >>> shown(2.0), shown(2.5)
    ('2', '2.5')
    """
    return repr(number).removesuffix(".0")


def bin_names(cuts: tuple[float, ...]) -> tuple[str, ...]:
    """Return the names of the bins between cut points.

    >>> bin_names((2.0, 3.0, 4.0))
    ('<2', '2..3', '3..4', '>=4')
    """
    inner = (f"{shown(a)}..{shown(b)}" for a, b in pairwise(cuts))
    return (f"<{shown(cuts[0])}", *inner, f">={shown(cuts[-1])}")


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the remedy for a name that is not known.

    >>> nearest("epsilom", ["epsilon", "delta"])
    "did you mean 'epsilon'?"
    >>> nearest("x", ["epsilon", "delta"])
    'use one of epsilon, delta'
    """
    known = list(known)
    short = [each for each in known if len(each) <= COMPARED]
    close = difflib.get_close_matches(str(name), short, n=1) if len(str(name)) <= COMPARED else []
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"


def checked_keys(what: str, data: object, known: Iterable[str]) -> dict[str, object]:
    """Return a table (dict) whose keys are all known."""
    if not isinstance(data, Mapping):
        raise SchemaError(
            f"{what} must be a table of named entries, not {type(data).__name__}; "
            f"use the keys {', '.join(known)}"
        )
    known = list(known)
    for key in data:
        if key not in known:
            raise SchemaError(f"{what} has no key {key!r}; {nearest(key, known)}")
    return dict(data)


def require_keys(what: str, told: Mapping[str, object], *keys: str) -> None:
    """Refuse a table that lacks a key."""
    for key in keys:
        if key not in told:
            raise SchemaError(f'{what} has no {key}; add {key} = "..."')


def dumped(values: Iterable[Value]) -> list[object]:
    """Return values as TOML and JSON can hold them: bytes become ``{hex = "..."}``.

    >>> dumped(["AA", b"\\x00\\xff"])
    ['AA', {'hex': '00ff'}]
    """
    return [{"hex": v.hex()} if isinstance(v, bytes) else v for v in values]


def loaded(what: str, values: object) -> object:
    """Return what :func:`dumped` was given; other things pass, to be checked later."""
    if not isinstance(values, list | tuple):
        return values
    return [_from_hex(what, v) if isinstance(v, Mapping) else v for v in values]


def _from_hex(what: str, table: Mapping[str, object]) -> bytes:
    try:
        ((key, digits),) = table.items()
        return bytes.fromhex(str(digits) if key == "hex" else "not hex")
    except ValueError as error:
        raise SchemaError(
            f'{what} lists a table that is not bytes; write bytes as {{ hex = "00ff" }}'
        ) from error


def fill(frozen: object, **fields: object) -> None:
    """Set the fields of a frozen dataclass that is being made."""
    for name, value in fields.items():
        object.__setattr__(frozen, name, value)
