"""Numbers, exposure, evolution and many features, on rows small enough to be quick."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lab import wide
from lab.datasets import DataSet, of_table
from lab.experiments import EXPERIMENTS, concerns, evolution, exposure, regression
from lab.experiments.experiment import QUICK
from lab.points import Point
from lab.raw_results import labels, loss
from lab.stores import Setup, counted, lesson, lost
from pyramidion.config.schema import Label, Schema
from tests.lab.small import SCHEMA, small


def stars(rows: int = 2_000) -> DataSet:
    """Ratings from 1 to 5 that the user tells."""
    random = np.random.default_rng(2)
    user = random.integers(0, 30, rows)
    rating = np.clip(np.round(1 + user % 5 + random.normal(0, 0.3, rows)), 1, 5)
    columns = {"time": np.arange(rows), "user": user, "rating": rating}
    label = Label("rating", edges=[1.5, 2.5, 3.5, 4.5])
    schema = Schema(time="time", label=label, features=SCHEMA.features[:1])
    return of_table("movielens-ratings", "made ratings", schema, pa.table(columns), "stars")


def points(name: str, data: DataSet) -> list[Point]:
    planned = EXPERIMENTS[name].plan(data, quick=True, seeds=1)
    assert planned is not None
    return [point for job in planned[1] for point in job.run()]


# --- numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("model", regression.MODELS, ids=lambda model: model.name)
def test_numbers_are_predicted_from_counts(model: regression.CountModel) -> None:
    data = stars()
    with counted(data, Setup(0.3, knobs=QUICK)) as store:
        (found,) = lost(data, lesson(data, store), [model], 0)
    spread = float(np.var(labels(data, (data.past, data.rows))))
    assert found.loss < 0.3 * spread


# --- exposure ------------------------------------------------------------------------


def test_an_intruder_sees_the_hot_window_however_much_was_collected() -> None:
    data = small(4_000)
    job = exposure._replayed(data, Setup(0.1, 1.0, windows=10, knobs=QUICK), 8)
    found = job.run()
    hot = [point.value for point in found if point.series == exposure.HOT]
    collected = [point.value for point in found if point.series == exposure.COLLECTED]
    assert len(hot) == 8
    assert collected[-1] == data.past / 1_000
    assert max(hot) <= (0.1 + 0.1 / exposure.STEPS) * collected[-1]


# --- evolution -----------------------------------------------------------------------


def test_losses_before_and_after_each_change() -> None:
    found = points("evolution", small(3_000))
    by = {(point.series, point.x): point.loss for point in found}
    gone = "without feature user"
    assert by[gone, evolution.AFTER] > 1.2 * by[gone, evolution.BEFORE]  # the user tells most
    assert by["raw, trained again without user", evolution.AFTER] > by[gone, evolution.BEFORE]
    assert by[evolution.KNOBS, evolution.AFTER] < by[evolution.KNOBS, evolution.BEFORE]


def test_coarser_labels_are_as_good_as_those_summed() -> None:
    found = {point.x: point.loss for point in points("evolution", stars())}
    assert found[evolution.AFTER] < 1.1 * found[evolution.BEFORE] < 0.6


# --- many features -------------------------------------------------------------------


def test_a_wide_row_has_507_features_and_a_known_chance() -> None:
    data = wide.generate(20_000)
    assert data.truth is not None
    assert len(data.schema.features) == 507
    part = data.table(8_000, 9_000)
    assert part.equals(data.table(0, 20_000).slice(8_000, 1_000))
    chance, click = data.truth(0, 20_000), data.table(0, 20_000)["click"].to_numpy()
    assert abs(chance.mean() - click.mean()) < 4 * np.sqrt(0.25 / 20_000)
    best = loss(data.schema.labels[0], click, chance)
    rate = loss(data.schema.labels[0], click, np.full(20_000, click.mean()))
    assert best < 0.8 * rate


def test_wide_streams_are_for_their_figures_alone() -> None:
    data = wide.generate(1_000)
    found = [name for name in EXPERIMENTS if concerns(name, data, among=[data])]
    assert found == ["wide", "width"]
    assert not concerns("wide", small())


def test_how_parameters_were_chosen_is_measured_where_it_is_asked_for() -> None:
    assert concerns("tuning", small())
    assert not concerns("tuning", small(), among=[small()])


def test_generated_clicks_are_for_everything_where_no_real_rows_are_there() -> None:
    made = [replace(small(), name=name) for name in ("clicks", "clicks-rare", "clicks-pairs")]
    clicks, rare, pairs = made
    few = ["q1", "q2", "values"]
    for real in ([], [replace(small(), name="criteo")]):
        found = [name for name in EXPERIMENTS if concerns(name, clicks, among=[*real, *made])]
        assert found == few if real else {"q1", "shares", "windows", "evolution"} < set(found)
        for data, given in ((rare, few), (pairs, ["recall"])):
            told = [name for name in EXPERIMENTS if concerns(name, data, among=[*real, *made])]
            assert told == given
