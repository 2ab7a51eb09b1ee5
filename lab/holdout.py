"""Weights and groups from rows set aside for them: one window does what a store does over many.

A store reads weights from one window of twelve, which pays for it from its own budget, and
shares the budget of later windows by them. To show that with a past of one window, its oldest
rows are a window of their own: they pay all of their budget for the weights and are not
counted. The rest pays for its counts alone. No row is in both, so every row has the whole
promise, as in the paper (appendix, "Private Weighted Noise Infusion"). Groups are chosen from
such rows by the same rule, or from rows that are counted, too: then these pay a share of their
budget for the choice, and what is left for their counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.selection import Coded
from pyramidion.errors import PrivacyError
from pyramidion.privacy.budget import budget_of
from pyramidion.privacy.selection import Method, Wanted, select
from pyramidion.privacy.table_noise import sizes_of
from pyramidion.privacy.weights import read, weights_of
from pyramidion.rows.observations import Door

BEYOND = 1e6
"""An ε that hides nothing."""

WHOLE = Fraction(1)


def private_shares(
    batches: Iterable[pa.RecordBatch], schema: Schema, settings: Settings, *, exact: bool = False
) -> dict[str, float]:
    """Each table's share by the rule `Settings.weights`, read with all of these rows' budget.

    To compare with, ``exact`` reads them with a budget beyond any promise.
    """
    unit, budget = budget_of(replace(settings, epsilon=BEYOND) if exact else settings)
    if unit == "none":
        raise PrivacyError("weights are shares of a budget and there is none; set epsilon")
    door = Door(schema, settings, secrets.token_bytes(32))
    shapes = door.encoder.shapes
    rows = map(door.observations, batches)
    quantiles = read(rows, settings, shapes=shapes, budget=budget, unit=unit, k=settings.k)
    weights = weights_of(settings, sizes_of(settings, shapes), quantiles)
    return {table: float(weight) for table, weight in weights.items()}


def coded_rows(batches: Iterable[pa.RecordBatch], schema: Schema, settings: Settings) -> Coded:
    """Rows as groups are chosen from."""
    door = Door(schema, settings, secrets.token_bytes(32))
    return Coded.of(map(door.observations, batches), schema.cardinality)


def chosen_groups(
    coded: Coded,
    schema: Schema,
    settings: Settings,
    *,
    number: int,
    method: Method,
    share: Fraction = WHOLE,
) -> list[tuple[str, ...]]:
    """Groups by a method, chosen with a share of these rows' budget; exactly at epsilon = inf."""
    unit, budget = budget_of(settings)
    wanted = Wanted(number=number)
    found = select(coded, wanted, method=method, budget=share * budget, unit=unit, k=settings.k)
    return [tuple(schema.feature_names[feature] for feature in group) for group in found]
