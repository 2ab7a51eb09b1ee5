"""What a plan predicts is what the real tables then do, within a quarter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from pyramidion import Categorical, Label, Plan, Schema, Settings, plan
from pyramidion.counts import estimate_kernels
from pyramidion.counts.layout import Table
from pyramidion.counts.snapshot import Snapshot
from pyramidion.learn.counting import Counting
from pyramidion.privacy.error_model import CUT, STRENGTH, Classes, SketchErrors
from pyramidion.privacy.population import Expected, Population
from pyramidion.privacy.prediction import Predictor, TablePlan
from tests.seeding import seeded

Floats = NDArray[np.float64]


@pytest.fixture(autouse=True)
def from_seeds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Errors are the same in every run: of fresh ones some lie 2.5 deviations from their bounds."""
    with seeded(request.node.name):
        yield


@dataclass
class Stream:
    """Rows as the planner assumes them: Zipf keys whose rates scatter around even classes."""

    distinct: dict[str, int]
    rows: int
    windows: int = 1
    skew: float = 1.0
    classes: int = 2
    dense: bool = False
    seed: int = 1

    @cached_property
    def schema(self) -> Schema:
        features = [
            Categorical(name, domain=range(number) if self.dense else None)
            for name, number in self.distinct.items()
        ]
        return Schema(features=features, label=Label("y", classes=range(self.classes)))

    @property
    def expected(self) -> Expected:
        return Expected(self.rows, self.windows, self.distinct, self.skew)

    @cached_property
    def rates(self) -> Floats:
        """Of the first feature, by its values: the label follows it alone."""
        random = np.random.default_rng(self.seed)
        even = np.full(self.classes, STRENGTH / self.classes)
        return random.dirichlet(even, next(iter(self.distinct.values())))

    @cached_property
    def columns(self) -> dict[str, NDArray[np.int64]]:
        random, total = np.random.default_rng(self.seed + 1), self.rows * self.windows
        columns = {}
        for name, number in self.distinct.items():
            share = np.arange(1, number + 1) ** -self.skew
            columns[name] = random.choice(number, total, p=share / share.sum())
        first = next(iter(columns.values()))
        below = np.cumsum(self.rates, axis=1)[first, :-1]
        label = (random.random(total)[:, None] > below).sum(axis=1)
        return columns | {"y": label}

    def counted(self, settings: Settings) -> Counting:
        counting = Counting(self.schema, settings)
        for window in range(self.windows):
            rows = slice(window * self.rows, (window + 1) * self.rows)
            table = pa.table({name: column[rows] for name, column in self.columns.items()})
            counting.add(counting.door.observations(table), threads=1)
            counting.seal()
        return counting


@dataclass
class Measured:
    """Errors of one table of a stream that was really counted."""

    stream: Stream
    snapshot: Snapshot
    name: str

    @property
    def _number(self) -> int:
        return list(self.stream.distinct).index(self.name)

    @cached_property
    def _probes(self) -> pa.Table:
        most = self.stream.distinct[self.name]
        return pa.table({name: np.arange(most) % n for name, n in self.stream.distinct.items()})

    @cached_property
    def exact(self) -> Floats:
        counts = np.zeros((self.stream.distinct[self.name], self.stream.classes))
        np.add.at(counts, (self.stream.columns[self.name], self.stream.columns["y"]), 1)
        return counts

    @cached_property
    def errors(self) -> Floats:
        rows = self.snapshot._door.rows(self._probes)
        keys = rows.matrix(0, len(self.exact))[self._number]
        found: Floats = self.snapshot.estimates.counts(self._number + 1, keys) - self.exact
        return found[:, -1]

    @property
    def deviation(self) -> float:
        return float(self.errors.std())

    @property
    def cut(self) -> float:
        """The deviation where the hardest hit twentieth counts no more than where it begins."""
        size = np.abs(self.errors - np.median(self.errors))
        return float((np.minimum(size, np.quantile(size, CUT)) ** 2).mean() ** 0.5)

    def _served(self) -> Floats:
        per_table = 1 if self.stream.classes == 2 else self.stream.classes
        served = np.asarray(self.snapshot.array(self._probes), dtype=np.float64)
        return served[:, per_table * (self._number + 1) - 1]

    def probability_errors(self) -> tuple[float, float]:
        """Served against exact counts, and against the rates: of keys near the average size."""
        n = self.exact.sum(axis=1)
        typical = self.stream.rows * self.stream.windows / len(n)
        near = (n > 0.7 * typical) & (n < 1.4 * typical)
        assert near.sum() > 100
        smoothed = (self.exact[:, -1] + STRENGTH / self.stream.classes) / (n + STRENGTH)
        served, rates = self._served(), self.stream.rates[:, -1]
        return _rms((served - smoothed)[near]), _rms((served - rates)[near])


def _rms(errors: Floats) -> float:
    return float((errors**2).mean() ** 0.5)


def near(number: float) -> Any:
    return pytest.approx(number, rel=0.25)


def both(stream: Stream, settings: Settings, name: str = "x") -> tuple[TablePlan, Measured]:
    prediction = Predictor(stream.schema, stream.expected).predict(settings)
    (told,) = [table for table in prediction.tables if table.name == name]
    return told, Measured(stream, stream.counted(settings).snapshot(), name)


ROOMY = 2**17  # buckets that hardly any two of 4,000 keys share


@pytest.mark.slow
@pytest.mark.parametrize("windows", [1, 4])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("delta", [0.0, 1e-9], ids=["laplace", "gaussian"])
def test_noise_in_a_sketch_is_as_predicted(delta: float, rows: int, windows: int) -> None:
    stream = Stream({"x": 4_000}, rows=200_000, windows=windows)
    settings = Settings(epsilon=0.2, delta=delta, rows=rows, buckets=ROOMY)
    told, measured = both(stream, settings)
    assert told.collisions < told.noise / 2
    assert measured.cut == near(told.deviation)
    cost, error = measured.probability_errors()
    assert cost == near(told.cost)
    assert error == near(told.error)


@pytest.mark.parametrize("windows", [1, 3])
@pytest.mark.parametrize("delta", [0.0, 1e-9], ids=["laplace", "gaussian"])
def test_noise_in_a_dense_table_is_as_predicted(delta: float, windows: int) -> None:
    stream = Stream({"x": 4_000}, rows=200_000, windows=windows, dense=True)
    told, measured = both(stream, Settings(epsilon=0.2, delta=delta))
    assert (told.kind, told.collisions, told.deviation) == ("dense", 0.0, told.noise)
    assert measured.deviation == near(told.deviation)
    cost, error = measured.probability_errors()
    assert cost == near(told.cost)
    assert error == near(told.error)


@pytest.mark.parametrize("skew", [0.0, 1.0])
@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("delta", [0.0, 1e-9], ids=["laplace", "gaussian"])
def test_collisions_are_as_predicted(delta: float, rows: int, skew: float) -> None:
    stream = Stream({"x": 4_000}, rows=200_000, skew=skew)
    settings = Settings(epsilon=1.0, delta=delta, rows=rows, buckets=1_024)
    told, measured = both(stream, settings)
    assert told.collisions > told.noise
    assert measured.cut == near(told.deviation)
    if skew:  # where all keys have one size, too few stand out to learn their scatter from
        cost, error = measured.probability_errors()
        assert cost == near(told.cost)
        assert error == near(told.error)


@pytest.mark.parametrize("buckets", [512, 4_096])
def test_the_bias_of_a_minimum_is_as_predicted(buckets: int) -> None:
    stream = Stream({"x": 4_000}, rows=200_000)
    settings = Settings(epsilon=math.inf, rows=3, buckets=buckets, sketch="count-min")
    told, measured = both(stream, settings)
    assert told.noise == 0
    assert measured.errors.mean() == pytest.approx(told.bias, rel=0.25, abs=0.2)


def test_noise_makes_a_minimum_too_small_as_predicted() -> None:
    stream = Stream({"x": 4_000}, rows=200_000)
    settings = Settings(epsilon=0.2, rows=5, buckets=ROOMY, sketch="count-min")
    told, measured = both(stream, settings)
    assert measured.errors.mean() == near(told.bias)
    assert measured.deviation == near(told.deviation)
    assert told.bias < -told.deviation


def test_errors_with_several_classes_are_as_predicted() -> None:
    stream = Stream({"x": 4_000}, rows=400_000, classes=5)
    told, measured = both(stream, Settings(epsilon=0.5, rows=5, buckets=8_192))
    assert measured.cut == near(told.deviation)
    cost, error = measured.probability_errors()
    assert cost == near(told.cost)
    assert error == near(told.error)


def test_the_ratio_s_errors_are_predicted_too() -> None:
    stream = Stream({"x": 1_000}, rows=400_000, skew=0.5)
    settings = Settings(epsilon=0.5, buckets=ROOMY, estimate="ratio", backoff_deviation=0.2)
    told, measured = both(stream, settings)
    _, error = measured.probability_errors()
    assert error == near(told.error)


WORLD = Stream({"x": 4_000, "z": 300}, rows=200_000, windows=2)


def planned(**asked: Any) -> Plan:
    expected = WORLD.expected
    told = {"rows": expected.rows, "windows": expected.windows, "distinct": expected.distinct}
    return plan(WORLD.schema, **(told | asked))


def counted_anew(proposed: Plan, times: int = 4) -> tuple[float, float, float]:
    """Deviation of counts, cost and error of probabilities, over several secrets and noises.

    With one hash row a few heavy keys decide which others they hit: one draw says little.
    """
    found = []
    for _ in range(times):
        measured = Measured(WORLD, WORLD.counted(proposed.settings).snapshot(), "x")
        found.append((measured.cut, *measured.probability_errors()))
    cut, cost, error = np.sqrt((np.array(found) ** 2).mean(axis=0))
    return cut, cost, error


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_a_proposed_plan_does_what_it_says(epsilon: float, delta: float) -> None:
    proposed = planned(epsilon=epsilon, delta=delta, memory=1_000_000)
    told = proposed.table("x")
    assert counted_anew(proposed) == (near(told.deviation), near(told.cost), near(told.error))


def test_a_plan_without_noise_does_what_it_says() -> None:
    proposed = planned(epsilon=math.inf, memory=1_000_000)
    _, cost, error = counted_anew(proposed)
    assert cost < 0.02  # how far rates scatter is learned too, and not exactly
    assert proposed.table("x").cost < 0.01
    assert error == near(proposed.table("x").error)


def test_the_epsilon_for_a_target_meets_it_on_real_rows() -> None:
    proposed = planned(target=0.05)
    assert proposed.worst.name == "x"
    assert counted_anew(proposed)[1] == near(0.05)


def test_a_plan_does_better_than_the_defaults_on_real_rows() -> None:
    proposed = planned(epsilon=1.0)
    usual = replace(proposed, settings=Settings(epsilon=1.0))
    assert counted_anew(proposed, times=2)[1] < 0.8 * counted_anew(usual, times=2)[1]


def test_bytes_are_those_of_the_real_tables() -> None:
    proposed = planned(epsilon=1.0)
    counting = WORLD.counted(proposed.settings)
    assert proposed.window_bytes == counting.birth.layout.nbytes
    assert counting._complete is not None
    assert proposed.complete_bytes == counting._complete.layout.nbytes


def test_bytes_are_right_where_the_sum_needs_wider_cells() -> None:
    stream = Stream({"x": 50}, rows=100, windows=2)
    settings = Settings(epsilon=1.0, buckets=64, max_rows_per_window=1_500_000_000)
    prediction = Predictor(stream.schema, stream.expected).predict(settings)
    counting = stream.counted(settings)
    assert counting._complete is not None
    assert prediction.window_bytes == counting.birth.layout.nbytes
    assert prediction.complete_bytes == counting._complete.layout.nbytes
    assert prediction.complete_bytes > 1.5 * prediction.window_bytes


MANY = Schema(
    features=[Categorical(f"x{number}") for number in range(39)],
    label=Label("y", classes=[0, 1]),
)


@pytest.mark.parametrize(
    ("delta", "rows", "figure"),
    [(0.0, 5, 116.0), (0.0, 1, 55.0), (1e-6, 5, 34.0), (1e-6, 1, 28.0)],
)
def test_the_known_figures_of_39_tables_come_out(delta: float, rows: int, figure: float) -> None:
    expected = Expected(rows=1_000_000, distinct=dict.fromkeys(MANY.table_names, 1))
    settings = Settings(epsilon=1.0, delta=delta, rows=rows)
    for table in Predictor(MANY, expected).predict(settings).tables:
        assert table.deviation == near(figure)


@pytest.mark.parametrize("rows", [2, 3, 5, 8])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_the_middle_of_simulated_rows_is_the_kernel_s(mechanism: Any, rows: int) -> None:
    table = Table("x", "count-median", rows, 1_024, 2**20, variance=100.0)
    keys = Population(distinct=2_000, rows=100_000.0, skew=1.0)
    simulated = SketchErrors(table, mechanism, Classes(2, 1), keys, samples=300)
    drawn = simulated._rows(np.random.default_rng(0), collide=True)
    size = np.median(np.abs(drawn), axis=(0, 1))
    deviation = np.maximum(10.0, 1.4826 * size) if mechanism == "gaussian" else np.zeros(2)
    for key in range(300):
        for column in range(2):
            values = drawn[key, :, column][None].copy()
            middle = estimate_kernels._middle(values, 0, rows, deviation[column])
            assert simulated.errors[key, column] == pytest.approx(middle)


def test_less_noise_than_planned_for_is_noticed() -> None:
    """The measurement can tell: halved noise is outside the quarter."""
    stream = Stream({"x": 4_000}, rows=200_000)
    settings = Settings(epsilon=0.2, rows=5, buckets=ROOMY)
    told, _ = both(stream, settings)
    _, measured = both(stream, replace(settings, epsilon=0.4))
    assert measured.cut != near(told.deviation)
