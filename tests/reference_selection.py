"""Naive twins of the scores of groups: exact fractions, one pair of rows at a time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction

Row = tuple[tuple[int, ...], int]
"""Values of the features, and the label."""


def stretches(rows: Sequence[Row]) -> list[int]:
    """The stretch of time that each row came in, of eight."""
    return [8 * i // len(rows) for i in range(len(rows))]


def quality(rows: Sequence[Row], group: Sequence[int], prior: Sequence[Fraction]) -> Fraction:
    """½ Σ over keys of Σ over pairs of rows of different stretches of ⟨e_y - π, e_y′ - π⟩ / n."""
    by_key: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    for (values, label), stretch in zip(rows, stretches(rows), strict=True):
        by_key[tuple(values[f] for f in group)].append((label, stretch))
    total = Fraction(0)
    for labels in by_key.values():
        for one, here in labels:
            for other, there in labels:
                if here != there:
                    total += inner(one, other, prior) / (2 * len(labels))
    return total


def inner(one: int, other: int, prior: Sequence[Fraction]) -> Fraction:
    """⟨e_one - π, e_other - π⟩."""
    classes = range(len(prior))
    return sum(
        ((Fraction(one == c) - prior[c]) * (Fraction(other == c) - prior[c]) for c in classes),
        Fraction(0),
    )


def meeting(rows: Sequence[Row], group: Sequence[int]) -> Fraction:
    """Σ over keys of the pairs of rows of different stretches, per row of the key."""
    by_key: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for (values, _), stretch in zip(rows, stretches(rows), strict=True):
        by_key[tuple(values[f] for f in group)].append(stretch)
    return sum(
        (
            Fraction(sum(here != there for here in found for there in found), len(found))
            for found in by_key.values()
        ),
        Fraction(0),
    )


def gain(rows: Sequence[Row], one: Sequence[int], other: Sequence[int], prior: Sequence[Fraction]):
    """Q of both together, less what each says of as many rows: per row from 0 to 1/16."""
    whole = quality(rows, [*one, *other], prior)
    for part in (one, other):
        own = meeting(rows, part)
        each = quality(rows, part, prior) / own if own else Fraction(0)
        whole -= meeting(rows, [*one, *other]) * min(max(each, Fraction(0)), Fraction(1, 16))
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


def agreement_across(windows: Sequence[Sequence[Sequence[int]]], priors: Sequence) -> Fraction:
    """How much rows of different windows agree: cells[window][bucket][label], a prior for each."""
    above, below = Fraction(0), Fraction(0)
    for t, one in enumerate(windows):
        for u, other in enumerate(windows):
            if t == u:
                continue
            for here, there in zip(one, other, strict=True):
                n, m = sum(here), sum(there)
                below += n * m
                for label, (a, b) in enumerate(zip(here, there, strict=True)):
                    above += (a - priors[t][label] * n) * (b - priors[u][label] * m)
    return above / below / 2
