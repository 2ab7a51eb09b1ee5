"""Naive twins of the count tables and of the estimates: plain Python, one cell at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from statistics import median

from pyramidion.counts.layout import Layout

MASK = 2**64 - 1


@cache
def secret_words(secret: bytes, purpose: str, words: int) -> tuple[int, ...]:
    """The twin of `pyramidion.rows.hashing.derive`."""
    digest = blake2b(purpose.encode(), key=secret, digest_size=8 * words, person=b"pyramidion")
    raw = digest.digest()
    return tuple(int.from_bytes(raw[8 * i : 8 * i + 8], "little") for i in range(words))


def finalised(x: int) -> int:
    """MurmurHash3's 64-bit finaliser."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> 33)) * factor & MASK
    return x ^ (x >> 33)


@dataclass
class NaiveTable:
    """One count table as a dictionary from (hash row, bucket, label) to a count."""

    name: str
    kind: str
    rows: int
    width: int
    labels: int
    secret: bytes
    cells: Counter[tuple[int, int, int]] = field(default_factory=Counter)

    @classmethod
    def of(cls, layout: Layout, table: int) -> NaiveTable:
        """The twin of one table of a layout, empty."""
        spec = layout.tables[table]
        return cls(spec.name, spec.kind, spec.rows, spec.width, layout.labels, layout.secret)

    def bucket(self, row: int, key: int) -> int:
        """Multiply, add, and keep the top bits; a dense table has the key itself."""
        if self.kind == "dense":
            return key
        multiplier, addend = secret_words(self.secret, f"row {row} of {self.name}", 2)
        mixed = ((multiplier | 1) * key + addend) & MASK
        return mixed * self.width >> 64

    def sign(self, row: int, key: int) -> int:
        """+1 or -1, from a second hash of the key; +1 where a table has no signs."""
        if self.kind != "count-median":
            return 1
        salt = secret_words(self.secret, f"signs of {self.name}", 1)[0]
        return -1 if finalised(key ^ salt) >> row & 1 else 1

    def add(self, key: int, label: int, weight: int = 1) -> None:
        """Count one observation: once in each hash row."""
        for row in range(self.rows):
            self.cells[row, self.bucket(row, key), label] += weight * self.sign(row, key)

    def add_all(self, keys: Iterable[int], labels: Iterable[int], weights: Sequence[int]) -> None:
        """Count observations one by one; a single weight is everybody's."""
        for i, (key, label) in enumerate(zip(keys, labels, strict=True)):
            self.add(int(key), int(label), int(weights[i if len(weights) > 1 else 0]))

    def listed(self) -> list[list[list[int]]]:
        """cells[hash row][bucket][label]."""
        return [
            [[self.cells[row, bucket, label] for label in range(self.labels)] for bucket in buckets]
            for row, buckets in enumerate([range(self.width)] * self.rows)
        ]

    def row_counts(self, key: int, row: int, sizes: Sequence[int]) -> list[float]:
        """What one hash row says of a key, by class columns of labels with so many classes each."""
        bucket, sign = self.bucket(row, key), self.sign(row, key)
        columns = [0.0] * sum(sizes)
        for joint in range(self.labels):
            for column in class_columns(joint, sizes):
                columns[column] += sign * self.cells[row, bucket, joint]
        return columns

    def counts(self, key: int, sizes: Sequence[int], deviations: Sequence[float]) -> list[float]:
        """The estimated counts of a key: the least, or the middle, of what the rows say."""
        said = [self.row_counts(key, row, sizes) for row in range(self.rows)]
        if self.kind == "count-median":
            return [middle([r[c] for r in said], deviations[c]) for c in range(sum(sizes))]
        return [min(r[c] for r in said) for c in range(sum(sizes))]


def class_columns(joint: int, sizes: Sequence[int]) -> list[int]:
    """The class column of each label in a joint label; the first label is the slowest digit."""
    digits = []
    for size in reversed(sizes):
        digits.append(joint % size)
        joint //= size
    starts = [sum(sizes[:m]) for m in range(len(sizes))]
    return [start + digit for start, digit in zip(starts, reversed(digits), strict=True)]


def middle(values: Sequence[float], deviation: float) -> float:
    """The median, or the mean of the values within 3 deviations of it."""
    center = median(values)
    near = [v for v in values if abs(v - center) <= 3 * deviation]
    return sum(near) / len(near) if deviation > 0 and near else center


def shrunk(
    counts: Sequence[float],
    prior: Sequence[float],
    strength: float,
    spread: Sequence[float],
    shift: Sequence[float],
) -> tuple[list[float], bool]:
    """Shrinkage of one label's counts, and whether the prior outweighs them for some class.

    ``strength`` is a times the weight of an observation, ``spread`` (a + 1) V.
    """
    counts = [c - s for c, s in zip(counts, shift, strict=True)]
    n = max(sum(counts), 0.0)
    raw, backed_off = [], False
    for c, p, v in zip(counts, prior, spread, strict=True):
        bottom = n * n + strength * n + v
        kept = n / bottom if bottom > 0 else 0.0
        backed_off = backed_off or n * kept < 0.5
        raw.append(p + (min(max(c, 0.0), n) - p * n) * kept)
    return [p / sum(raw) for p in raw], backed_off


def joined(prior: Sequence[float], parts: Sequence[Sequence[float]]) -> list[float]:
    """What the parts of a group say together of one label: the prior times each part's lift."""
    lifted = [
        p * math.prod(max(part[i], min(1e-6, p)) / p for part in parts) for i, p in enumerate(prior)
    ]
    return [min(max(p / sum(lifted), 1e-6), 1 - 1e-6) for p in lifted]


def ratio(
    counts: Sequence[float],
    prior: Sequence[float],
    grain: float,
    spread: Sequence[float],
    limit: float,
) -> tuple[list[float], bool]:
    """The paper's ratio of one label's counts, and whether it fell back to the prior."""
    kept = [max(c, 0.0) for c in counts]
    s = sum(kept)
    deviations = [
        math.sqrt(p * (1 - p) * (s * grain + v)) / s if s > 0 else math.inf
        for p, v in zip(prior, spread, strict=True)
    ]
    if s <= 0 or max(deviations) > limit:
        return list(prior), True
    return [c / s for c in kept], False


def logit(p: float) -> float:
    """Log-odds, of at most one in a million either way."""
    p = min(max(p, 1e-6), 1 - 1e-6)
    return math.log(p / (1 - p))
