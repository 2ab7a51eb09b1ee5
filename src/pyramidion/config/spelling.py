"""The text of a value: what makes 7, 7.0, "7" and "7.0" one category in every format.

A stream reads categories *by their text*: CSV has nothing else, and a container may cast a
value for the sake of another row. The rule looks at one value alone:

    text of a whole number     that number, with or without .0, .00, ... behind it; in 64 bits,
                               without +, blanks, or zeros before it: "007" stays text
    true, True, TRUE           1
    false, False, FALSE        0
    empty text                 missing
    a number with a fraction   the shortest text that is that double, as Python and JSON write it
    a date                     its ISO 8601 text, 2013-01-31
    bytes                      the text that they are in UTF-8
    a UUID                     its text with dashes
    any other text             itself

What has no text that all writers agree on is refused: 32-bit floats and decimals with a
fraction, times, durations (`pyramidion.rows.hashing_values`). Streams made before this rule
read open categories *by type*, where "7" is not 7; each stream records which rule it has.
"""

from __future__ import annotations

import re

from pyramidion.config.checks import LARGEST, SMALLEST, Value

BY_TYPE, BY_TEXT = "type", "text"
"""By what a stream knows the values of open categories; recorded with it."""

KEYED_BY = BY_TEXT
"""By what a new stream does."""

FACT = "keyed_by"
"""The fact in the catalogue that says it."""

_WHOLE = re.compile(rb"(-?(?:0|[1-9][0-9]{0,19}))(?:\.0+)?")
_TRUTH = {
    text: int(text.lower() == b"true")
    for text in (b"true", b"True", b"TRUE", b"false", b"False", b"FALSE")
}


def whole_of(text: bytes) -> int | None:
    """The whole number, or truth value as 1 or 0, that text is; None for any other text.

    >>> whole_of(b"7"), whole_of(b"-7.0"), whole_of(b"True"), whole_of(b"007"), whole_of(b"7.5")
    (7, -7, 1, None, None)
    """
    found = _WHOLE.fullmatch(text)
    if found is None:
        return _TRUTH.get(text)
    number = int(found[1])
    return number if SMALLEST <= number <= LARGEST else None


def spelled(value: Value) -> int | bytes | None:
    """A declared value as every format has it: a whole number, other text, or None if missing.

    >>> spelled(True) == spelled("1") == spelled("1.0") == spelled(1.0) == 1
    True
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() else repr(value).encode()
    if isinstance(value, int):
        return int(value)
    text = value.encode() if isinstance(value, str) else value
    whole = whole_of(text)
    return (text or None) if whole is None else whole
