"""Stores of the past: every row once, the newest ones hot, and what models lose by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import log_loss

from lab import holdout, stores
from lab.count_models import CountModel, logistic, network
from lab.datasets import DataSet
from lab.holdout import private_shares
from lab.stores import Lesson, Setup, counted, lesson, lost, opened, pieces
from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.errors import PrivacyError
from pyramidion.privacy import weights
from pyramidion.privacy.table_noise import sizes_of
from pyramidion.rows.observations import Door
from pyramidion.store.status import Status
from tests.lab.small import SCHEMA, clicked, small, without_future

FEW_BUCKETS = {"buckets": 1_024}
SETUPS = (
    Setup(0.1, knobs=FEW_BUCKETS),
    Setup(0.1, epsilon=1.0, windows=7, knobs=FEW_BUCKETS),
    Setup(0.033, windows=3, knobs=FEW_BUCKETS),
    Setup(1.0, knobs=FEW_BUCKETS),
)


@pytest.fixture(scope="module")
def data() -> DataSet:
    # 888 of the past: windows have a remainder, steps too, and a batch is more than a window
    return small(1_111, batch=2_000)


@pytest.fixture(scope="module")
def learnt(data: DataSet) -> Lesson:
    """Without noise, 40 % hot."""
    with counted(data, Setup(0.4)) as store:
        return lesson(data, store)


# --- counting ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What was seen in a store that may not read the future."""

    setup: Setup
    rows: int
    status: Status
    y: NDArray[Any]
    step: int


@pytest.fixture(scope="module", params=SETUPS, ids=lambda setup: f"{setup.hot}, {setup.windows}")
def seen(request: pytest.FixtureRequest, data: DataSet) -> Seen:
    setup: Setup = request.param
    with counted(without_future(data), setup) as store:
        y, step = store.training_set().y, store.settings.step_rows
        return Seen(setup, data.past - data.past % setup.windows, store.status(), y, step or 0)


def test_the_past_is_counted_in_as_many_windows_as_asked(seen: Seen) -> None:
    sealed = [window.rows for window in seen.status.windows if window.state == "sealed"]
    assert sealed == [seen.rows // seen.setup.windows] * seen.setup.windows


def test_all_of_the_past_is_counted_once(seen: Seen) -> None:
    assert seen.status.summarised_rows == seen.rows
    assert sum(window.rows for window in seen.status.windows) == seen.rows


def test_as_many_rows_are_hot_as_asked_up_to_a_step(seen: Seen) -> None:
    hot = round(seen.setup.hot * seen.rows)
    assert seen.step == max(1, hot // stores.STEPS)
    assert hot - seen.step < len(seen.y) <= hot


def test_the_newest_rows_are_hot(seen: Seen, data: DataSet) -> None:
    assert np.array_equal(seen.y, clicked(data, data.past - len(seen.y), data.past))


def test_a_hot_window_of_whole_steps_is_full_to_the_row(data: DataSet) -> None:
    cut = data.cut(1_000)
    with counted(cut, Setup(0.1, knobs=FEW_BUCKETS)) as store:
        assert store.status().hot_rows == 80


def test_rows_that_fill_no_window_are_the_oldest() -> None:
    data = small(1_255)  # 1,004 of the past: four too many for ten windows
    asked = list[int]()

    def read(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        asked.append(start)
        yield from data.read(start, stop)

    with counted(replace(data, read=read), Setup(0.1, windows=10, knobs=FEW_BUCKETS)) as store:
        counted_rows = store.status().summarised_rows
    assert (min(asked), counted_rows) == (4, 1_000)


def test_a_store_has_the_settings_of_its_setup(data: DataSet) -> None:
    setup = Setup(0.2, epsilon=0.5, k=3, windows=2, knobs={"estimate": "ratio", **FEW_BUCKETS})
    with counted(data, setup) as store:
        assert store.settings == setup.settings(data, data.past)
        assert store.schema == data.schema


def test_an_open_store_counts_all_categories_in_sketches(data: DataSet) -> None:
    with counted(data, Setup(0.2, open=True, knobs=FEW_BUCKETS)) as store:
        kinds = {table.name: table.kind for table in store.status().tables}
    assert kinds.pop("size") == kinds.pop("") == "dense"
    assert set(kinds.values()) == {"count-median"}


def test_the_directory_is_gone_afterwards(data: DataSet) -> None:
    with counted(data, SETUPS[0]) as store:
        place = Path(store.path).parent
        assert place.exists()
    assert not place.exists()


def test_the_directory_is_gone_after_an_error(data: DataSet) -> None:
    place = Path()

    def fails() -> None:
        nonlocal place
        with counted(data, SETUPS[0]) as store:
            place = Path(store.path).parent
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert place != Path()
    assert not place.exists()


# --- settings ------------------------------------------------------------------------------------


def told(data: DataSet, setup: Setup, rows: int = 1_000) -> dict[str, Any]:
    return setup.settings(data, rows).to_dict()


@pytest.mark.parametrize(
    ("name", "asked", "noise"),
    [
        ("movielens", None, "laplace"),
        ("criteo", None, "gaussian"),
        ("clicks-rare", None, "gaussian"),
        ("movielens", "gaussian", "gaussian"),
        ("criteo", "laplace", "laplace"),
    ],
)
def test_the_noise_is_the_one_asked_for_or_the_data_sets(name: str, asked: Any, noise: str) -> None:
    found = Setup(0.1, epsilon=1.0, mechanism=asked).settings(small(10, name=name), 1_000)
    assert found.mechanism == noise
    assert found.delta == (1e-9 if noise == "gaussian" else 0.0)
    assert found.rows == (5 if noise == "gaussian" else 1)


def test_without_noise_sketches_have_all_their_rows(data: DataSet) -> None:
    assert told(data, Setup(0.1, mechanism="laplace"))["rows"] == 5


def test_windows_and_hot_rows_are_counted_in_rows(data: DataSet) -> None:
    found = told(data, Setup(0.1, windows=4))
    assert (found["count_window"], found["max_rows_per_window"]) == (250, 250)
    assert (found["hot_rows"], found["hot_step_rows"], found["hot_window"]) == (100, 5, None)


def test_the_hot_window_has_a_row_at_least(data: DataSet) -> None:
    found = told(data, Setup(0.0001))
    assert (found["hot_rows"], found["hot_step_rows"]) == (1, 1)


def test_epsilon_and_k_are_those_of_the_setup(data: DataSet) -> None:
    found = told(data, Setup(0.1, epsilon=0.3, k=2_000))
    assert (found["epsilon"], found["k"], found["max_rows_per_window"]) == (0.3, 2_000, 2_000)


def test_shares_are_by_hand_unless_equal_or_open(data: DataSet) -> None:
    assert told(data, Setup(0.1))["shares"] == {"colour": 0.1, "size": 0.1}
    assert told(data, Setup(0.1, shares="equal"))["shares"] is None
    assert told(data, Setup(0.1, open=True))["shares"] is None


def test_many_rows_have_wider_sketches(data: DataSet) -> None:
    assert told(data, Setup(0.1))["buckets"] < told(data, Setup(0.1), stores.MANY)["buckets"]


def test_further_settings_come_last(data: DataSet) -> None:
    found = told(data, Setup(0.1, knobs={"rows": 3, "columns": ("count",), "sketch": "count-min"}))
    assert (found["rows"], found["columns"], found["sketch"]) == (3, ["count"], "count-min")


def test_models_see_log_odds_alone(data: DataSet) -> None:
    assert told(data, Setup(0.1))["columns"] == ["log-odds"]


def test_a_setup_is_told_in_full() -> None:
    setup = Setup(0.1, windows=3, knobs={"rows": 2})
    assert setup.told()["epsilon"] == "inf"
    others = {name: value for name, value in setup.told().items() if name != "epsilon"}
    assert Setup(**others) == setup
    assert setup.but(windows=4).told() == setup.told() | {"windows": 4}


# --- weights from rows aside ---------------------------------------------------------------------


WEIGHED = Setup(0.1, epsilon=1.0, shares="half", aside=0.25, knobs=FEW_BUCKETS)


@pytest.mark.parametrize("shares", ["equal", "half", "by hand"])
def test_rows_aside_are_not_counted(data: DataSet, shares: Any) -> None:
    with counted(data, WEIGHED.but(shares=shares)) as store:
        assert store.status().summarised_rows == data.past - round(0.25 * data.past)


def test_weights_are_read_from_the_rows_aside_alone(
    data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = list[float]()

    def watched(batches: Iterator[pa.RecordBatch], *_: Any, **__: Any) -> dict[str, float]:
        times.extend(t for batch in batches for t in batch.column("time").to_pylist())
        return {"user": 3.0}

    monkeypatch.setattr(stores, "private_shares", watched)
    with counted(data, WEIGHED) as store:
        assert store.settings.share("user") == 3.0
    assert times == list(range(round(0.25 * data.past)))


def test_shares_by_weights_are_those_of_the_rule(data: DataSet) -> None:
    settings = WEIGHED.settings(data, 600)
    door = Door(data.schema, settings, b"any")
    rows = list(data.read(0, 220))
    budget = {"budget": Fraction(1_000_000), "unit": "rho", "k": 1}  # so much that nothing is noisy
    read = weights.read(
        map(door.observations, rows), settings, shapes=door.encoder.shapes, **budget
    )
    exact = weights.weights_of(settings, sizes_of(settings, door.encoder.shapes), read)
    found = private_shares(rows, data.schema, replace(settings, epsilon=1e6))
    assert found == pytest.approx({name: float(share) for name, share in exact.items()})
    assert sum(found.values()) == pytest.approx(1)


def test_all_of_the_budget_of_the_rows_aside_is_asked_for(
    data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[Any, ...]]()

    def watched(*_: Any, budget: Fraction, unit: str, k: int, **__: Any) -> dict[str, float]:
        asked.append((budget, unit, k))
        return {}

    monkeypatch.setattr(holdout, "read", watched)
    settings = WEIGHED.but(mechanism="laplace", epsilon=0.25, k=3).settings(data, 600)
    private_shares(data.read(0, 220), data.schema, settings)
    assert asked == [(Fraction(1, 4), "epsilon", 3)]


def test_without_a_budget_nothing_is_shared(data: DataSet) -> None:
    with pytest.raises(PrivacyError, match="there is none; set epsilon"):
        private_shares([], data.schema, WEIGHED.but(epsilon=math.inf).settings(data, 600))


def test_a_rule_is_told_to_the_store_only_where_weights_are_read(data: DataSet) -> None:
    assert told(data, WEIGHED)["weights"] == "half"
    assert told(data, WEIGHED.but(shares="equal"))["weights"] == "equal"
    assert told(data, Setup(0.1))["weights"] == "equal"


def test_rows_aside_are_told_where_there_are_some() -> None:
    assert WEIGHED.told()["aside"] == 0.25
    assert "aside" not in Setup(0.1).told()


# --- pieces --------------------------------------------------------------------------------------


def numbers(batches: Iterator[pa.RecordBatch]) -> list[list[int]]:
    return [batch.column("time").to_pylist() for batch in batches]


def stepping(hot: int, step: int, window: int = 1_000) -> Settings:
    step = min(step, hot)
    return Settings(
        epsilon=1, hot_window=None, hot_rows=hot, hot_step_rows=step, count_window=window
    )


@settings(max_examples=80)
@given(
    rows=st.integers(2, 200),
    first=st.integers(0, 9),
    hot=st.integers(1, 250),
    step=st.integers(1, 40),
    batch=st.integers(1, 70),
    window=st.integers(1, 100),
)
def test_pieces_are_all_rows_once_in_order_and_fit_into_windows(
    rows: int, first: int, hot: int, step: int, batch: int, window: int
) -> None:
    data = without_future(small(rows, batch=batch))
    first = min(first, data.past - 1)
    found = numbers(pieces(data, first, stepping(hot, step, window), hot))
    assert [row for piece in found for row in piece] == list(range(first, data.past))
    assert all(0 < len(piece) <= window for piece in found)


@settings(max_examples=50)
@given(st.integers(20, 200), st.integers(1, 60), st.integers(1, 20), st.integers(1, 70))
def test_the_last_pieces_are_steps(rows: int, hot: int, step: int, batch: int) -> None:
    data, step = small(rows, batch=batch), min(step, hot)
    newest = [len(piece) for piece in numbers(pieces(data, 0, stepping(hot, step), hot)) if piece]
    whole = min(2 * hot, data.past) // step
    assert newest[len(newest) - whole :] == [step] * whole


def test_pieces_do_not_depend_on_large_batches() -> None:
    data = small(500, batch=400)
    found, others = (numbers(pieces(d, 0, stepping(40, 8), 40)) for d in (data, small(500)))
    assert found[-10:] == others[-10:]


# --- schemas -------------------------------------------------------------------------------------


def test_opened_schemas_have_sketches_for_categories_and_keep_the_rest() -> None:
    schema = Schema(
        time="time",
        features=[
            Categorical("a", domain=[1, 2]),
            Categorical("b"),
            Continuous("c", edges=[0, 1]),
        ],
        groups=[("a", "b")],
        label=Label("y", classes=["no", "yes"]),
    )
    found = opened(schema)
    assert [found.feature(name).dense for name in "abc"] == [False, False, True]
    assert found.feature("c") == schema.feature("c")
    assert (found.label, found.time, found.groups) == (schema.label, "time", (("a", "b"),))
    assert opened(found) == found


# --- what is lost --------------------------------------------------------------------------------


def test_the_future_is_what_is_tested(monkeypatch: pytest.MonkeyPatch, data: DataSet) -> None:
    assert stores.tested(data) == (888, 1_111)
    monkeypatch.setattr(stores, "MOST_TESTED", 10)
    assert stores.tested(data) == (888, 898)


def test_losses_are_those_by_hand(data: DataSet) -> None:
    model = logistic(0.5)
    future = data.table(data.past, data.rows)
    with counted(data, Setup(0.4, epsilon=1.0)) as store:
        [found] = lost(data, lesson(data, store), [model], 0)
        training = store.training_set()
        X, y = np.asarray(training.X), training.y
        asked = store.snapshot().featurize(future)
    estimator = model.make(len(asked.column_names), 0)
    estimator.fit(X, y)
    by_hand = estimator.predict_proba(np.column_stack([column.to_numpy() for column in asked]))
    assert found.loss == pytest.approx(log_loss(future["click"].to_numpy(), by_hand), rel=1e-6)
    assert (found.model, found.rows) == (model.name, len(y))
    assert found.seconds > 0


def test_lessons_hold_hot_and_future_rows(data: DataSet, learnt: Lesson) -> None:
    assert learnt.X.shape == (len(learnt.y), len(SCHEMA.features))
    assert np.array_equal(learnt.truth, clicked(data, data.past, data.rows))
    assert learnt.future.shape == (len(learnt.truth), len(SCHEMA.features))
    assert learnt.seconds > 0


def test_runs_without_noise_agree_to_the_bit(data: DataSet, learnt: Lesson) -> None:
    with counted(data, Setup(0.4)) as store:
        again = lesson(data, store)
    assert np.array_equal(learnt.X, again.X)
    assert np.array_equal(learnt.future, again.future)
    losses = [
        lost(data, one, [logistic()], seed)[0].loss for seed, one in enumerate([learnt, again])
    ]
    assert losses[0] == losses[1]


def test_noise_is_drawn_anew_by_every_store(data: DataSet) -> None:
    drawn = []
    for _ in range(2):
        with counted(data, Setup(0.4, epsilon=1.0, knobs=FEW_BUCKETS)) as store:
            drawn.append(lesson(data, store).future)
    assert not np.array_equal(drawn[0], drawn[1])


def test_seeds_are_those_of_estimators(data: DataSet, learnt: Lesson) -> None:
    def at(seed: int) -> float:
        return lost(data, learnt, [network()], seed)[0].loss

    assert at(1) == at(1) != at(2)


def test_every_model_is_told_in_order(data: DataSet, learnt: Lesson) -> None:
    chosen = [replace(logistic(C), name=f"{C}") for C in (1e-9, 1.0)]
    found = lost(data, learnt, chosen, 0)
    assert [each.model for each in found] == ["1e-09", "1.0"]
    assert found[1].loss < 0.8 * found[0].loss


def test_the_newest_rows_of_a_lesson_are_its_last(learnt: Lesson) -> None:
    part = learnt.newest(7)
    assert np.array_equal(part.X, learnt.X[len(learnt.X) - 7 :])
    assert np.array_equal(part.y, learnt.y[len(learnt.y) - 7 :])
    assert part.future is learnt.future
    assert part.truth is learnt.truth


def test_what_is_measured_is_what_a_store_serves(data: DataSet) -> None:
    made = list[Any]()
    plain = logistic()

    def make(columns: int, seed: int) -> Any:
        made.append(plain.make(columns, seed))
        return made[-1]

    with counted(data, Setup(0.4)) as store:
        given = lesson(data, store)
        [found] = lost(data, given, [CountModel("watched", make, {})], 0)
        store.register("served", clone(made[0]))
        served = store.predict_proba("served", data.table(data.past, data.rows))[:, 1]
    assert np.allclose(served, made[0].predict_proba(given.future)[:, 1], rtol=1e-6, atol=0)
    truth = clicked(data, data.past, data.rows)
    assert found.loss == pytest.approx(log_loss(truth, served), rel=1e-6)
    assert (
        found.loss < 0.6 < log_loss(truth, np.full(len(truth), truth.mean())) < math.log(2) + 0.01
    )
