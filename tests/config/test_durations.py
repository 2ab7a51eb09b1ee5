"""Lengths and points of time: read as written, kept as whole microseconds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.config.durations import FIRST, LAST, LONGEST, UNITS, microseconds, since_epoch, told
from pyramidion.errors import SchemaError

DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30d", 30 * DAY),
        ("12h", DAY // 2),
        ("15m", 900_000_000),
        ("90s", 90_000_000),
        ("1w", 7 * DAY),
        ("500ms", 500_000),
        ("7us", 7),
        ("1d12h", 36 * 3_600_000_000),
        (" 1 d 12 h ", 36 * 3_600_000_000),
        ("1m1ms", 60_001_000),
    ],
)
def test_a_duration_is_read_as_people_write_it(text, length):
    assert microseconds(text) == length


def test_lengths_of_python_numpy_and_pandas_are_durations_too():
    assert microseconds(timedelta(days=1, microseconds=1)) == DAY + 1
    assert microseconds(np.timedelta64(30, "D")) == 30 * DAY
    assert microseconds(pd.Timedelta("90s")) == 90_000_000


@given(st.integers(1, LONGEST))
def test_a_length_told_is_the_length_read(length):
    assert microseconds(told(length)) == length


@given(st.dictionaries(st.sampled_from(list(UNITS)), st.integers(1, 10**5), min_size=1))
def test_the_parts_of_a_duration_add_up(parts):
    text = "".join(f"{parts[unit]}{unit}" for unit in UNITS if unit in parts)
    assert microseconds(text) == sum(number * UNITS[unit] for unit, number in parts.items())


@given(st.timedeltas(timedelta(microseconds=1), timedelta(days=3_650_000)))
def test_a_timedelta_is_told_without_loss(length):
    assert timedelta(microseconds=microseconds(told(microseconds(length)))) == length


@pytest.mark.parametrize(
    "given",
    ["", "d", "30", "30 days", "-1d", "1.5h", "12h1d", "1d1d", "٣d", "30D", "1" * 19 + "d",
     30, 1.5, None, True, b"30d", np.timedelta64(5, "ns"), np.timedelta64("NaT")],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_how_to_write_one(given):
    with pytest.raises(SchemaError, match=r'the thing must be a duration.*write it like "30d"'):
        microseconds(given, "the thing")


@pytest.mark.parametrize("given", ["0s", timedelta(0), timedelta(-1), "3650000d1us", "99999999w"])
def test_a_duration_is_above_0_and_within_64_bits(given):
    with pytest.raises(SchemaError, match="longer than 0 and at most 10,000 years"):
        microseconds(given)


@pytest.mark.parametrize(
    "given",
    [
        1577836800,
        1577836800.0,
        "2020-01-01",
        "2020-01-01T02:00+02:00",
        "2020-01-01T00:00Z",
        date(2020, 1, 1),
        datetime(2020, 1, 1),
        datetime(2020, 1, 1, tzinfo=UTC),
        datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        pd.Timestamp("2020-01-01"),
    ],
)
def test_a_moment_is_read_in_any_form_and_is_utc_without_a_zone(given):
    assert since_epoch(given) == 1577836800 * 10**6


@given(st.integers(FIRST, LAST))
def test_a_float_of_seconds_tells_every_microsecond_apart(since):
    assert since_epoch(since / 10**6) == since


@pytest.mark.parametrize("given", ["", "tomorrow", None, True, b"0", pd.NaT, [0]])
def test_what_is_no_moment_is_refused_with_how_to_write_one(given):
    with pytest.raises(SchemaError, match="the thing must be seconds since 1970 or a date; write"):
        since_epoch(given, "the thing")


@pytest.mark.parametrize(
    "given", [float("nan"), float("inf"), 1e300, LAST, "1699-12-31", date(2201, 1, 1)]
)
def test_a_moment_lies_between_1700_and_2200(given):
    with pytest.raises(SchemaError, match="finite moment between the years 1700 and 2200"):
        since_epoch(given)
