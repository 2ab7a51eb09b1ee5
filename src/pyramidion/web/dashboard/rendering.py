"""Templates. Everything they print is escaped, but for what is `Markup` already.

Numbers that the API tells are printed with their address in its answer, so that a test reads every
one of them off the screen and asks the API for it:

    {{ n(told.hot_rows, "#hot_rows") }}
    <data class="number" value="1234" data-number="#hot_rows">1,234</data>
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pyramidion.config.durations import EPOCH

DIGITS = 4
"""Of a number that is not whole."""


def number(value: float | None, address: str = "", unit: str = "") -> Markup:
    """A number as people read it, with its exact value beside it.

    >>> print(number(1234567, "#bytes"))
    <data class="number" value="1234567" data-number="#bytes">1,234,567</data>
    """
    at = Markup(' data-number="{}"').format(address) if address else ""
    exact = "" if value is None else repr(value)
    told = Markup('<data class="number" value="{}"{}>{}</data>').format(exact, at, text_of(value))
    return told + Markup("&nbsp;{}").format(unit) if unit else told


def text_of(value: float | None) -> str:
    """A number in few characters.

    >>> [text_of(v) for v in (1234567, 12.3456, 0.00001234, 3.0, None, 1e7, 123456.7)]
    ['1,234,567', '12.35', '1.234e-05', '3', '∞', '10,000,000', '123,457']
    """
    if value is None or value == math.inf:
        return "∞"
    if isinstance(value, int) or abs(value) >= 10 ** (DIGITS - 1):
        return f"{value:,.0f}"
    return f"{value:.{DIGITS}g}"


def moment(micros: int | None, absent: str = "–") -> Markup:
    """A time in UTC, to the second.

    >>> print(moment(86_460_000_000))
    <time datetime="1970-01-02T00:01:00Z">1970-01-02 00:01</time>
    """
    if micros is None:
        return Markup.escape(absent)
    at = EPOCH + timedelta(microseconds=micros)
    told = f"{at:%Y-%m-%d %H:%M:%S}".removesuffix(":00").removesuffix(" 00:00")
    return Markup('<time datetime="{}">{}</time>').format(f"{at:%Y-%m-%dT%H:%M:%SZ}", told)


def size(value: int) -> str:
    """Bytes in few characters.

    >>> size(999), size(12_345), size(3_400_000_000)
    ('999 bytes', '12.3 kB', '3.4 GB')
    """
    for unit, of in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if value >= of:
            return f"{value / of:.3g} {unit}"
    return f"{value} bytes"


def several(value: int, noun: str, nouns: str = "") -> str:
    """The noun that a number has.

    >>> several(1, "row"), several(2, "row"), several(0, "query", "queries")
    ('row', 'rows', 'queries')
    """
    return noun if value == 1 else nouns or f"{noun}s"


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("pyramidion.web.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"n": number, "several": several}
    made.filters |= {"moment": moment, "size": size, "text": text_of}
    return made


ENVIRONMENT = _environment()


def rendered(template: str, told: Mapping[str, Any]) -> str:
    """A template with what it tells."""
    return ENVIRONMENT.get_template(template).render(told)
