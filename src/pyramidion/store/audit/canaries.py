"""Canaries: rows that differ from all others in every feature, let in or left out by fair coins.

The auditor knows everything but the coins: the schema, the secret, every canary and its
label. So it knows each canary's cells, and takes off what all *other* canaries added. What
is left is noise, or noise and one canary. Cells and signs are found here by arithmetic of
our own, not by the kernels that are audited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.features import Categorical
from pyramidion.config.label import Label
from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts import kernels
from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import Layout

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Words = NDArray[np.uint64]

LABEL, PROPENSITY = "label", "propensity"
_FACTORS = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)  # of the mix that signs come from


def schema_like(like: Schema, canaries: int) -> Schema:
    """A schema with the tables of another, in which every canary has a value of its own.

    Declared domains and bins become domains of canaries: dense tables still, and the noise
    of a table does not depend on how wide it is. All labels become one of as many classes.
    Times and units are left out: rows come by the clock.

    >>> like = Schema(features=[Categorical("a"), Categorical("b", domain=[1])],
    ...               label=Label("y", classes=[0, 1, 2]), groups=[("a", "b")])
    >>> made = schema_like(like, 100)
    >>> made.table_names, made.features[1].codes, made.cardinality
    (('a', 'b', 'a,b'), 102, 3)
    """
    features = [
        Categorical(feature.name, _values(place, canaries) if feature.dense else None)
        for place, feature in enumerate(like.features)
    ]
    used = set(like.feature_names)
    return Schema(
        features=features,
        label=Label(_free(LABEL, used), classes=list(range(like.cardinality))),
        groups=like.groups,
        weight=None if like.weight is None else _free(PROPENSITY, used),
    )


def plain_schema(tables: int, *, labels: int = 2, weighted: bool = False) -> Schema:
    """Open features alone; from four tables on one has a domain and one is a group."""
    single = tables - (tables > 3)
    names = [f"f{place}" for place in range(single)]
    features = [Categorical(name) for name in names]
    if tables > 3:
        features[-1] = Categorical(names[-1], [0])
    return Schema(
        features=features,
        label=Label(LABEL, classes=list(range(labels))),
        groups=[names[:2]] if tables > 3 else (),
        weight=PROPENSITY if weighted else None,
    )


def _values(place: int, canaries: int) -> list[int]:
    """The values of all canaries in one feature."""
    return list(range(place * canaries, (place + 1) * canaries))


def _free(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    return name


@dataclass(frozen=True)
class Canaries:
    """Canaries of one schema, their labels and their coins.

    Each is ``k`` rows of the largest weight Ω, all in or all out: the most that the
    guarantee says it hides.
    """

    schema: Schema
    settings: Settings
    labels: Integers
    included: Flags

    @classmethod
    def drawn(
        cls, schema: Schema, settings: Settings, count: int, random: np.random.Generator
    ) -> Canaries:
        """Labels evenly and coins fairly, at random."""
        labels = random.integers(0, schema.cardinality, count)
        return cls(schema, settings, labels, random.random(count) < 0.5)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def weight(self) -> int:
        """What a canary adds to each of its cells: k Ω."""
        return self.settings.k * self.settings.omega

    def features(self) -> pa.Table:
        """One row for each canary, features alone."""
        names = self.schema.feature_names
        return pa.table({name: np.array(_values(i, len(self))) for i, name in enumerate(names)})

    def rows(self, chosen: Flags | None = None) -> pa.Table:
        """The rows that are observed: k of each canary that its coin lets in, or of some."""
        let_in = np.flatnonzero(self.included if chosen is None else chosen)
        told = self.features().append_column(self.schema.labels[0].name, pa.array(self.labels))
        if self.schema.weight is not None:  # below p_min, so that weights must be clipped to Ω
            least = np.full(len(self), (self.settings.p_min or 1.0) / 2)
            told = told.append_column(self.schema.weight, pa.array(least))
        return told.take(pa.array(np.repeat(let_in, self.settings.k)))


def counts(
    layout: Layout, table: int, keys: Words, labels: Integers, weights: Integers
) -> Integers:
    """Exact cells[hash row, bucket, label] of some rows, by arithmetic of our own."""
    spec = layout.tables[table]
    made = np.zeros((spec.rows, spec.width, layout.labels), dtype=np.int64)
    buckets, signs = placements(layout, table, keys)
    hash_row = np.arange(spec.rows)[:, None]
    np.add.at(made, (hash_row, buckets, labels[None, :]), signs * weights[None, :])
    return made


def seen(
    arena: Arena, keys: Sequence[Words], labels: Integers, included: Flags, *, weight: int = 1
) -> list[Floats]:
    """What is left in each canary's own cells of sealed tables once all *others* are known.

    For each table but the prior, [hash row, canary]: noise where the canary was left out,
    noise plus its weight where it was let in.
    """
    found, added = [], weight * included.astype(np.int64)
    for table in range(1, len(arena.layout.tables)):
        exact = counts(arena.layout, table, keys[table - 1], labels, added)
        rest = arena.cells(table).astype(np.int64) - exact
        buckets, signs = placements(arena.layout, table, keys[table - 1])
        own = signs * rest[np.arange(len(buckets))[:, None], buckets, labels[None, :]]
        found.append((own + added).astype(np.float64))
    return found


def placements(layout: Layout, table: int, keys: Words) -> tuple[Integers, Integers]:
    """Bucket and sign of each key in each hash row of a table: [hash row, key]."""
    plan, spec = layout.plan[table], layout.tables[table]
    if spec.kind == "dense":
        return keys[None].astype(np.int64), np.ones((1, keys.size), dtype=np.int64)
    rows = spec.rows
    multipliers = plan[kernels.PLAN_MULTIPLIER : kernels.PLAN_MULTIPLIER + rows, None]
    addends = plan[kernels.PLAN_ADDEND : kernels.PLAN_ADDEND + rows, None]
    buckets = (multipliers * keys[None] + addends) >> plan[kernels.PLAN_SHIFT]
    if spec.kind == "count-min":
        return buckets.astype(np.int64), np.ones(buckets.shape, dtype=np.int64)
    mixed = keys ^ plan[kernels.PLAN_SALT]
    for factor in _FACTORS:
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(33)
    bits = (mixed[None] >> np.arange(rows, dtype=np.uint64)[:, None]) & np.uint64(1)
    return buckets.astype(np.int64), 1 - 2 * bits.astype(np.int64)
