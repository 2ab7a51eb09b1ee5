"""The experiment of values beside counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab import clicks, stores
from lab.experiments import values
from lab.stores import Setup, counted


@pytest.fixture(scope="module")
def given() -> values.Lesson:
    data = clicks.generate(40_000, correlation=1.0)
    with counted(data, Setup(0.2, knobs={"buckets": 16_384})) as store:
        return values.lesson(data, store)


def test_a_lesson_has_values_that_enough_hot_rows_have(given: values.Lesson) -> None:
    data = clicks.generate(40_000, correlation=1.0)
    start, stop = stores.tested(data)
    assert given.counts.shape == (len(given.y), 39)
    assert len(given.future) == given.future_values.shape[0] == len(given.truth) == stop - start
    assert given.values.shape[1] == given.future_values.shape[1] > 39
    assert np.asarray(given.values.sum(axis=0)).min() >= values.SEEN


def test_where_columns_go_along_values_help(given: values.Lesson) -> None:
    counts, both = values.losses(clicks.generate(40_000, correlation=1.0), given)
    assert both < counts


def test_both_lines_are_measured_at_each_epsilon() -> None:
    data = clicks.generate(6_000)
    found = values.plan(data, quick=True, seeds=1)
    assert found is not None
    figure, (_, *jobs) = found
    assert figure.shows == "ratio"
    points = [point for job in jobs for point in job.run()]
    assert {point.series.partition(":")[0] for point in points} == {values.COUNTS, values.BOTH}
    assert all(math.isfinite(point.loss) and point.x == 1.0 for point in points)
