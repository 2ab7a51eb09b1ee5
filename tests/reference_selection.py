"""Naive twins of the scores of groups: exact fractions, one pair of rows at a time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction

Row = tuple[tuple[int, ...], int]
"""Values of the features, and the label."""


def quality(rows: Sequence[Row], group: Sequence[int], prior: Sequence[Fraction]) -> Fraction:
    """½ Σ over keys of Σ over pairs of different rows of ⟨e_y - π, e_y′ - π⟩ / n."""
    by_key: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for values, label in rows:
        by_key[tuple(values[f] for f in group)].append(label)
    total = Fraction(0)
    for labels in by_key.values():
        for i, one in enumerate(labels):
            for j, other in enumerate(labels):
                if i != j:
                    total += inner(one, other, prior) / (2 * len(labels))
    return total


def inner(one: int, other: int, prior: Sequence[Fraction]) -> Fraction:
    """⟨e_one - π, e_other - π⟩."""
    classes = range(len(prior))
    return sum(
        ((Fraction(one == c) - prior[c]) * (Fraction(other == c) - prior[c]) for c in classes),
        Fraction(0),
    )


def later(rows: Sequence[Row], group: Sequence[int]) -> int:
    """Rows that are not the first of their key."""
    return len(rows) - len({tuple(values[f] for f in group) for values, _ in rows})


def gain(rows: Sequence[Row], one: Sequence[int], other: Sequence[int], prior: Sequence[Fraction]):
    """Q of both together, less what each says of as many rows: per row from 0 to 1/16."""
    whole = quality(rows, [*one, *other], prior)
    for part in (one, other):
        own = later(rows, part)
        each = quality(rows, part, prior) / own if own else Fraction(0)
        whole -= later(rows, [*one, *other]) * min(max(each, Fraction(0)), Fraction(1, 16))
    return whole


def information(rows: Sequence[Row], group: Sequence[int]) -> float:
    """n times the mutual information of a group and the label, in nats."""
    n = len(rows)
    joint = Counter((tuple(values[f] for f in group), label) for values, label in rows)
    keys, labels = Counter(key for key, _ in joint.elements()), Counter(y for _, y in rows)
    return sum(
        count * math.log(n * count / (keys[key] * labels[label]))
        for (key, label), count in joint.items()
    )
