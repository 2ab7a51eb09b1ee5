"""A plan predicts the noise that the tables of a real store are born with."""

from __future__ import annotations

from typing import Any

import pytest

from pyramidion import Plan, Pyramid, Schema, Settings, plan
from pyramidion.privacy.prediction import born
from tests.store import inspect
from tests.store.inspect import populating
from tests.store.peopling import of
from tests.store.stores import SCHEMA, Stand, observed, tiny

SHAPES: dict[str, dict[str, Any]] = {
    "flat": {},
    "tree": {"windows": "tree", "tree_radix": 2, "tree_depth": 3, "retention": "90d"},
}


def schema_of(unit: str | None) -> Schema:
    return Schema(
        time="t", label=SCHEMA.label, features=SCHEMA.features, groups=SCHEMA.groups, unit=unit
    )


def planned(schema: Schema, settings: Settings) -> Plan:
    return plan(schema, rows=1_000, distinct={"a": 40, "a,b": 80}, settings=settings)


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("windows", SHAPES)
@pytest.mark.parametrize("unit", [None, "who"])
def test_predicted_noise_is_that_of_a_store(
    stand: Stand, unit: str | None, windows: str, delta: float
) -> None:
    schema = schema_of(unit)
    predicted = planned(schema, tiny(k=3, delta=delta, **SHAPES[windows]))
    chosen = predicted.settings
    store = stand.held(Pyramid.create(stand.path, schema, chosen, **stand.given))
    observed(store, of(["a", "b"]))
    assert chosen.windows == windows
    assert {table.name: table.cell_noise for table in predicted.tables} == {
        table.name: table.variance**0.5 for table in populating(store).layout.tables[1:]
    }
    nodes = inspect.nodes(store)
    assert {node.level for node in nodes} == ({1, 2} if windows == "tree" else set())
    for node in nodes:
        variances = tuple(table.variance for table in node.arena.layout.tables)
        assert variances == born(schema, chosen, node.level).variances


def test_plans_for_people_hide_k_rows_of_each_block() -> None:
    """28 days and the hour that rows may be early meet five blocks of seven days."""
    given = {"delta": 0.0, "count_window": "28d", "retention": "90d", "hot_window": "7d"}
    of_people = planned(schema_of("who"), tiny(k=20, unit_block="7d", **given))
    of_rows = planned(schema_of(None), tiny(k=100, **given))
    noise = [[table.cell_noise for table in each.tables] for each in (of_people, of_rows)]
    assert noise[0] == noise[1]
    assert of_people.why[1].startswith("noise hides 100 rows of a person (column 'who')")
