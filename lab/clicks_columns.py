"""The columns of generated clicks: Criteo-Kaggle's numbers of values, and about its quartiles."""

from __future__ import annotations

from typing import NamedTuple


class Category(NamedTuple):
    """A categorical column."""

    values: int
    exponent: float
    """Of its Zipf distribution; anything above 0 but 1."""
    link: float
    """How likely a row takes its segment's value, at correlation 1."""
    scale: float
    """Deviation of its values' weights."""


class Count(NamedTuple):
    """A numeric column: whole parts of log-normal numbers."""

    median: float
    spread: float
    """Deviation of the logarithm."""
    share: float
    """How much of that is the segment's: its correlation with the logarithm, at correlation 1."""
    missing: float
    gap: int
    """Columns of one gap are missing together."""
    slope: float
    hump: float = 0.0
    none: float = 0.0
    """What a missing value adds."""


CATEGORIES = {
    "C1": Category(1_460, 1.5, 0.3, 0.30),
    "C2": Category(583, 1.05, 0.3, 0.45),
    "C3": Category(10_131_227, 1.02, 0.3, 0.20),
    "C4": Category(2_202_608, 1.1, 0.4, 0.25),
    "C5": Category(305, 1.8, 0.0, 0.20),
    "C6": Category(24, 1.3, 0.2, 0.30),
    "C7": Category(12_517, 1.05, 0.5, 0.40),
    "C8": Category(633, 1.6, 0.0, 0.15),
    "C9": Category(3, 2.0, 0.1, 0.10),
    "C10": Category(93_145, 1.1, 0.5, 0.35),
    "C11": Category(5_683, 1.05, 0.5, 0.35),
    "C12": Category(8_351_593, 1.03, 0.4, 0.20),
    "C13": Category(3_194, 1.05, 0.6, 0.30),
    "C14": Category(27, 1.2, 0.3, 0.40),
    "C15": Category(14_992, 1.05, 0.4, 0.30),
    "C16": Category(5_461_306, 1.03, 0.4, 0.20),
    "C17": Category(10, 1.1, 0.2, 0.40),
    "C18": Category(5_652, 1.1, 0.5, 0.35),
    "C19": Category(2_173, 1.2, 0.3, 0.20),
    "C20": Category(4, 0.5, 0.0, 0.15),
    "C21": Category(7_046_547, 1.03, 0.4, 0.20),
    "C22": Category(18, 1.2, 0.0, 0.15),
    "C23": Category(15, 1.1, 0.3, 0.25),
    "C24": Category(286_181, 1.15, 0.6, 0.25),
    "C25": Category(105, 1.1, 0.2, 0.20),
    "C26": Category(142_572, 1.15, 0.3, 0.25),
}
"""The columns and how many values each has in Criteo-Kaggle."""

COUNTS = {
    "I1": Count(1.7, 1.4, 0.3, 0.451, 0, 0.35, none=-0.25),
    "I2": Count(3.0, 2.8, 0.2, 0.0, 0, 0.15),
    "I3": Count(6.0, 1.6, 0.3, 0.213, 1, 0.15, none=-0.05),
    "I4": Count(4.0, 1.2, 0.4, 0.214, 1, -0.10),
    "I5": Count(2_800.0, 2.0, 0.5, 0.026, 2, -0.40, none=0.2),
    "I6": Count(32.0, 1.8, 0.5, 0.223, 1, -0.40),
    "I7": Count(3.0, 1.8, 0.4, 0.043, 2, 0.40, none=-0.3),
    "I8": Count(7.0, 1.6, 0.2, 0.001, 2, 0.0, hump=0.25),
    "I9": Count(39.0, 1.7, 0.4, 0.043, 2, 0.10, hump=-0.30),
    "I10": Count(1.2, 0.7, 0.2, 0.451, 0, 0.20, none=-0.1),
    "I11": Count(2.0, 1.1, 0.5, 0.043, 2, 0.50, none=-0.2),
    "I12": Count(1.0, 1.0, 0.1, 0.765, 3, 0.15),
    "I13": Count(4.0, 1.25, 0.3, 0.214, 1, -0.20),
}
"""The numeric columns, with about Criteo's quartiles and gaps."""
