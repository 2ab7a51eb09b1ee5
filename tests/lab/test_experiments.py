"""Experiments: what is planned for which data set, and that each really runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab import experiments, holdout, stores
from lab.comparison import compared
from lab.count_models import CountModel, logistic, models
from lab.datasets import DataSet, kind
from lab.experiments import (
    CLICKS,
    EXPERIMENTS,
    QUICK_CLICKS,
    concerns,
    data_sets,
    experiment,
    q1,
    q2,
    q3,
    retraining,
    shares,
    sketches,
    tuning,
    windows,
)
from lab.experiments.experiment import LARGE, Experiment, store
from lab.paper import REFERENCES
from lab.points import Figure, Job, Point
from lab.raw_models import BASELINE, PAPER
from lab.raw_results import RawModel, RawResult
from lab.result_files import Plan, ResultFile
from lab.runner import run
from lab.stores import Lesson, Lost, Setup
from pyramidion.config.settings import Settings
from pyramidion.errors import SchemaError
from pyramidion.learn.recipes import recipe_of
from pyramidion.privacy.selection import LEAKY
from pyramidion.store.pyramid import Pyramid
from tests.lab.made import RUN, Told
from tests.lab.small import open_values, small, unread, without_future

SIZES = {
    "movielens": 1_000_209,
    "criteo": 137_000,
    "clicks": CLICKS,
    "clicks-rare": CLICKS,
    "flights": 300_000,
}
ALL = [unread(name, rows) for name, rows in SIZES.items()]
SMALL = [*ALL[:2], unread("clicks", QUICK_CLICKS), ALL[-1]]

each_experiment = pytest.mark.parametrize("asked", EXPERIMENTS.values(), ids=EXPERIMENTS.keys())
each_data_set = pytest.mark.parametrize(
    "data", [*ALL, SMALL[2]], ids=lambda data: f"{data.name} {data.rows}"
)
quick_or_not = pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])


THEIRS = {
    "regression": "movielens-ratings",
    "bandit": "bandit",
    "latency": "service",
    "wide": "wide",
    "width": "wide",
    "window-noise": "tables",
}
"""Experiments that take no other rows than those made for them."""
AS_LONG = ("recall", "exposure", "evolution")
"""Experiments whose quick runs have as many jobs, on fewer rows or smaller tables."""


def planned(
    asked: Experiment, data: DataSet, quick: bool = False, seeds: int = 2
) -> tuple[Figure, list[Job]]:
    """A plan, or a figure without jobs where there is none."""
    empty = Figure(asked.name, data.name, "", "")
    return asked.plan(data, quick=quick, seeds=seeds) or (empty, [])


def keys(jobs: Sequence[Job]) -> list[str]:
    return [job.key for job in jobs]


# --- plans ---------------------------------------------------------------------------------------


def test_experiments_are_known_by_their_names() -> None:
    names = "q1 q2 noise shares values q3 recall sketches bias windows window-noise latency "
    names += "retraining "
    names += "regression bandit exposure evolution wide width tuning"
    assert list(EXPERIMENTS) == names.split()
    assert all(found.name == name and found.help for name, found in EXPERIMENTS.items())


@quick_or_not
@each_data_set
@each_experiment
def test_planning_reads_no_row_and_names_figure_and_data(
    asked: Experiment, data: DataSet, quick: bool
) -> None:
    figure, jobs = planned(asked, data, quick)
    assert (figure.name, figure.data) == (asked.name, data.name)
    assert {job.data for job in jobs} <= {data.fingerprint}
    assert {job.figure for job in jobs} <= {asked.name, "baseline"}
    assert all(job.cost > 0 for job in jobs)


@quick_or_not
@each_data_set
@each_experiment
def test_jobs_have_keys_of_their_own_that_stay(
    asked: Experiment, data: DataSet, quick: bool
) -> None:
    found = keys(planned(asked, data, quick)[1])
    assert len(set(found)) == len(found)
    assert found == keys(planned(asked, replace(data), quick)[1])


@each_experiment
def test_other_rows_have_other_keys(asked: Experiment) -> None:
    data = SMALL[2]
    ours = keys(planned(asked, data)[1])
    theirs = keys(planned(asked, replace(data, fingerprint="other"))[1])
    assert not set(ours) & set(theirs)


@pytest.mark.parametrize("data", SMALL, ids=lambda data: data.name)
@each_experiment
def test_a_quick_run_has_fewer_jobs(asked: Experiment, data: DataSet) -> None:
    quick, full = planned(asked, data, quick=True)[1], planned(asked, data)[1]
    assert len(quick) < len(full) or asked.name in (*AS_LONG, *THEIRS)


@each_experiment
def test_every_small_data_set_is_concerned_but_for_some_quick_runs(asked: Experiment) -> None:
    slow = {"tuning": {data.name for data in SMALL}, "shares": {"criteo", "clicks"}}
    slow["q3"] = slow["shares"]
    concerned = [unread(q3.PAIRS, QUICK_CLICKS)] if asked.name == "recall" else SMALL
    if asked.name in THEIRS:
        assert not any(planned(asked, data)[1] for data in SMALL)
        return
    for data in concerned:
        assert planned(asked, data)[1]
        left_out = data.name in slow.get(asked.name, ())
        assert bool(planned(asked, data, quick=True)[1]) != left_out


def test_large_data_sets_are_asked_three_questions_alone() -> None:
    data = unread("clicks", LARGE)
    asked = [name for name, asked in EXPERIMENTS.items() if planned(asked, data)[1]]
    assert asked == ["q1", "q2", "values"]


def test_seeds_repeat_stores_and_not_baselines() -> None:
    one, three = (planned(EXPERIMENTS["q2"], SMALL[0], seeds=seeds)[1] for seeds in (1, 3))
    assert len(three) - 1 == 3 * (len(one) - 1)
    assert keys(one)[0] == keys(three)[0]


def test_large_stores_are_filled_once() -> None:
    data = unread("clicks", CLICKS)
    filled = [job for job in planned(EXPERIMENTS["q1"], data, seeds=5)[1] if "store" in job.about]
    assert len(filled) == 1
    assert len(planned(EXPERIMENTS["q2"], data, seeds=5)[1]) == 1 + len(q2.LARGE_EPSILONS)


def test_all_figures_of_a_data_set_share_its_baseline() -> None:
    for data in SMALL:
        shown = [planned(asked, data) for asked in EXPERIMENTS.values()]
        leads = {
            job.key
            for figure, jobs in shown
            if figure.shows == "ratio"
            for job in jobs
            if job.figure == "baseline"
        }
        assert len(leads) == 1


# --- points, with nothing trained ----------------------------------------------------------------


@dataclass
class Asked:
    """What was asked of stores and raw models that do nothing."""

    setups: list[Setup] = field(default_factory=list)
    raw: list[tuple[int, int, tuple[int, int]]] = field(default_factory=list)
    lessons: list[int] = field(default_factory=list)


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Stores are not filled, and models lose 0.5 without training."""
    asked = Asked()

    @contextmanager
    def counted(data: DataSet, setup: Setup) -> Iterator[DataSet]:
        asked.setups.append(setup)
        yield data

    def lesson(data: DataSet, store: DataSet) -> Lesson:
        rows, none = round(asked.setups[-1].hot * data.past), np.zeros(0)
        X = np.zeros((rows, 0), np.float32)
        return Lesson(X, np.zeros(rows), X[:0], none, 1.0)

    def lost(data: DataSet, given: Lesson, models: Sequence[CountModel], seed: int) -> list[Lost]:
        asked.lessons.append(len(given.X))
        return [Lost(model.name, 0.5, 1.0, len(given.X)) for model in models]

    def losses(self: RawModel, data: DataSet, start: int, stop: int, test: Any) -> RawResult:
        asked.raw.append((start, stop, test))
        return RawResult(0.5, 1.0, stop - start, {})

    for module in (experiment, q1):
        monkeypatch.setattr(module, "counted", counted)
        monkeypatch.setattr(module, "lesson", lesson)
    monkeypatch.setattr(experiment, "kept_columns", lambda store: [])
    monkeypatch.setattr(experiment, "feature_columns", lambda store: [])
    monkeypatch.setattr(experiment, "lost", lost)
    monkeypatch.setattr(RawModel, "losses", losses)
    return asked


def all_points(name: str, data: DataSet, quick: bool = False) -> list[Point]:
    return [point for job in planned(EXPERIMENTS[name], data, quick)[1] for point in job.run()]


RATIOS = ("q1", "q2", "noise", "shares", "q3", "sketches", "windows")


@quick_or_not
@each_data_set
@pytest.mark.parametrize("name", RATIOS)
def test_a_figure_of_ratios_has_one_baseline(
    name: str, data: DataSet, quick: bool, nothing: Asked
) -> None:
    figure, jobs = planned(EXPERIMENTS[name], data, quick)
    leads = [point for job in jobs for point in job.run() if point.detail.get("baseline")]
    assert figure.shows == "ratio"
    assert len(leads) == bool(jobs)
    told = BASELINE.get(data.name, "logistic regression")
    assert {point.series for point in leads} <= {f"raw: {told}"}


def test_figures_of_other_things_need_no_baseline() -> None:
    shown = {name: planned(asked, SMALL[0])[0].shows for name, asked in EXPERIMENTS.items()}
    others = {name: shows for name, shows in shown.items() if name not in RATIOS}
    assert others.pop("values") == "ratio"
    for name in ("recall", *THEIRS):  # of their own rows alone
        others.pop(name)
    of_values = dict.fromkeys(("bias", "retraining", "exposure"), "value")
    assert others == of_values | {"tuning": "loss", "evolution": "loss"}


def test_the_baseline_has_a_place_on_the_axis_of_hot_rows_alone() -> None:
    places = {name: planned(EXPERIMENTS[name], SMALL[0])[0].baseline_at for name in RATIOS}
    assert places == dict.fromkeys(RATIOS) | {"q1": 100}


@pytest.mark.parametrize("data", ALL, ids=lambda data: data.name)
@pytest.mark.parametrize("name", ["q1", "q2", "noise", "shares"])
def test_what_the_paper_measured_is_measured(name: str, data: DataSet, nothing: Asked) -> None:
    lines = {point.series for point in all_points(name, data)}
    assert {known.series for known in REFERENCES.get((name, data.name), ())} <= lines


@pytest.mark.parametrize("data", ALL, ids=lambda data: data.name)
@pytest.mark.parametrize("name", ["q1", "q2", "noise"])
def test_targets_stand_where_something_is_measured(
    name: str, data: DataSet, nothing: Asked
) -> None:
    there = {(point.series, round(point.x, 9)) for point in all_points(name, data)}
    aims = [r for r in REFERENCES.get((name, data.name), ()) if r.source == "target"]
    assert {(aim.series, aim.x) for aim in aims} <= there


def test_raw_models_learn_the_newest_rows_of_the_past(nothing: Asked) -> None:
    data = SMALL[0]
    found = all_points("q1", data)
    assert {stop for _, stop, _ in nothing.raw} == {data.past}
    assert {test for _, _, test in nothing.raw} == {(data.past, data.rows)}
    learnt = {point.x: point.detail["rows"] for point in found if point.series.startswith("raw")}
    assert learnt == {x: round(x / 100 * data.past) for x in (0.1, 1.0, 10.0, 30.0, 100)}
    assert {stop - start for start, stop, _ in nothing.raw} == set(learnt.values())


def test_several_hot_windows_of_a_large_store_are_its_newest_rows(nothing: Asked) -> None:
    data = unread("clicks", LARGE)
    found = [point for point in all_points("q1", data) if point.series.startswith("counts")]
    assert [setup.hot for setup in nothing.setups] == [max(q1.LARGE_SHARES)]
    assert nothing.lessons == [round(share * data.past) for share in q1.LARGE_SHARES]
    assert {point.x for point in found} == {100 * share for share in q1.LARGE_SHARES}


def test_less_data_is_shown_against_the_share_that_is_hot(nothing: Asked) -> None:
    found = [point for point in all_points("q1", SMALL[0]) if point.series.startswith("counts")]
    assert {point.x for point in found} == {100 * setup.hot for setup in nothing.setups}
    assert {setup.epsilon for setup in nothing.setups} == {math.inf}


def test_protection_is_shown_against_epsilon(nothing: Asked) -> None:
    found = [point for point in all_points("q2", SMALL[0]) if point.series.startswith("counts")]
    assert {point.x for point in found} == {setup.epsilon for setup in nothing.setups}
    assert {point.x for point in found} == set(q2.EPSILONS)
    assert {setup.hot for setup in nothing.setups} == {0.01}


def test_each_line_of_noise_changes_one_thing(nothing: Asked) -> None:
    all_points("noise", SMALL[1])
    assert {setup.epsilon for setup in nothing.setups} == set(q2.FEWER_EPSILONS)
    for setup in nothing.setups:
        usual = Setup(0.1, epsilon=setup.epsilon).told()
        assert sum(value != usual[name] for name, value in setup.told().items()) == 1


def test_all_ways_to_put_the_noise_are_measured_on_the_same_rows(nothing: Asked) -> None:
    found = [p for p in all_points("shares", SMALL[1]) if p.series.startswith("counts")]
    ways = {(s.epsilon, s.shares, s.mechanism, s.knobs["estimate"]): s for s in nothing.setups}
    assert len(ways) == 3 * 4 * 2 * 2
    leaky = {(s.shares, s.mechanism) for s in nothing.setups if s.leaky}
    assert leaky == {("proportional", "laplace"), ("half", "gaussian")}
    assert {setup.aside for setup in nothing.setups} == {0.1}
    assert {setup.hot for setup in nothing.setups} == {0.1}
    assert {point.x for point in found} == {0.1, 0.33, 1.0}
    two = [point for point in found if not point.series.startswith("counts: neural network")]
    assert len({point.series for point in two}) == 2 * (4 * 2 * 2 + 2)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("noise", {"Gaussian", "equal shares"}),
        (
            "shares",
            {
                "Laplace, equal, ratio",
                "Laplace, proportional, ratio",
                f"Laplace, proportional, ratio, {shares.LEAKS}",
                "Gaussian, equal, noise-aware",
                "Gaussian, half, noise-aware",
                f"Gaussian, half, noise-aware, {shares.LEAKS}",
            },
        ),
    ],
)
def test_criteos_neural_network_is_measured_with_and_without_weights(
    name: str, lines: set[str], nothing: Asked
) -> None:
    for data, expected in ((SMALL[0], set()), (SMALL[1], lines)):
        points = [p for p in all_points(name, data) if "neural network, " in p.series]
        assert {p.series.removeprefix("counts: neural network, ") for p in points} == expected
        assert {p.x for p in points} == ({0.1, 1.0} if expected else set())


def test_what_the_paper_and_targets_speak_of_is_measured_among_all_figures(nothing: Asked) -> None:
    for (name, data), references in REFERENCES.items():
        if name not in ("q1", "q2", "noise", "shares", "sketches") or data not in MEASURED:
            continue
        jobs = planned(EXPERIMENTS[name], MEASURED[data], seeds=1)[1]
        points = [replace(p, ratio=1.0) for job in jobs if not job.more for p in job.run()]
        told = Figure(name, data, "", "", references=references)
        assert [beside for beside in compared(told, points) if beside.ours is None] == []


MEASURED = {data.name: data for data in ALL[:2]}
"""Real data sets; of generated clicks all is judged on 45 million rows."""


def test_lines_of_shares_that_are_drawn_are_few() -> None:
    figure, _ = planned(EXPERIMENTS["shares"], SMALL[0])
    ways = {
        f"counts: {m.name}, {shares.told(c)}"
        for m in models(SMALL[0])
        for c in shares.choices(quick=False)
    }
    drawn = [series for series in ways if all(word in series for word in figure.drawn)]
    assert len(drawn) == 8


def test_quick_shares_are_two_of_all_ways() -> None:
    quick = list(shares.choices(quick=True))
    assert len(quick) == 2
    assert set(quick) < set(shares.choices(quick=False))


def test_sketches_count_every_feature_by_equal_shares(nothing: Asked) -> None:
    found = all_points("sketches", SMALL[0])
    assert all(setup.open and setup.shares == "equal" for setup in nothing.setups)
    assert {setup.knobs["rows"] for setup in nothing.setups} == {sketches.ROWS}
    assert len({point.series for point in found}) == 1 + 4


def test_windows_are_shown_against_their_number(nothing: Asked) -> None:
    found = [p for p in all_points("windows", SMALL[0]) if p.series.startswith("counts")]
    assert {point.x for point in found} == {setup.windows for setup in nothing.setups}
    assert {setup.windows for setup in nothing.setups} == set(windows.WINDOWS["movielens"])
    assert {setup.epsilon for setup in nothing.setups} == {1.0}
    trees = {setup.windows for setup in nothing.setups if setup.knobs.get("windows") == "tree"}
    assert {1_000} <= trees < set(windows.WINDOWS["movielens"])  # of few, no tree has less noise
    assert {point.x for point in found if point.series.endswith("tree")} == trees


@pytest.mark.parametrize("kind", ["flat", "binary tree, equal shares", "best tree"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_noise_of_windows_summed_is_the_predicted_one(kind: str, noise: Any) -> None:
    found = [
        point
        for seed in range(2)
        for point in windows._noise(windows.no_rows(), 100, noise, kind, seed).run()
    ]
    measured_ = np.mean([point.value**2 for point in found])
    predicted = np.mean([point.detail["predicted"] ** 2 for point in found])
    assert measured_ == pytest.approx(predicted, rel=0.3)
    assert (kind == "flat") == (predicted == 100)


# --- real runs -----------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """Few rows, narrow sketches, few choices, one model; the baseline is the class rate."""

    def narrow(**told: Any) -> Settings:
        return Settings(**told | {"buckets": told["buckets"] // 16})

    monkeypatch.setattr(stores, "Settings", narrow)
    monkeypatch.setattr(experiment, "lead", lambda data: "class rate")
    monkeypatch.setattr(q1, "lead", lambda data: "class rate")
    monkeypatch.setattr(q1, "QUICK_SHARES", (0.2,))
    monkeypatch.setattr(q2, "QUICK_EPSILONS", (1.0,))
    few = {name: q2.VARIANTS[name] for name in ("Laplace", "k = 10")}
    monkeypatch.setattr(q2, "VARIANTS", few)
    monkeypatch.setattr(sketches, "ESTIMATES", {"ratio": "the paper's ratio"})
    monkeypatch.setattr(windows, "QUICK_OTHERS", (3,))
    monkeypatch.setattr(retraining, "models", lambda data: (logistic(),))
    return small(1_000)


def measured(asked: Experiment, data: DataSet, folder: Path) -> tuple[Figure, list[Point]]:
    figure, jobs = planned(asked, data, quick=True, seeds=1)
    return figure, run(jobs, ResultFile(folder, Plan(figure, keys(jobs)), RUN), Told())


@pytest.mark.parametrize("name", [*RATIOS, "retraining"])
def test_an_experiment_runs_from_end_to_end(name: str, tiny: DataSet, tmp_path: Path) -> None:
    figure, found = measured(EXPERIMENTS[name], tiny, tmp_path)
    counts = [point for point in found if point.series.startswith("counts")]
    assert all(math.isfinite(getattr(point, figure.shows)) for point in found)
    assert counts
    assert {point.series.split(",")[0] for point in counts} <= {
        f"counts: {model.name}" for model in models(tiny)
    }
    if figure.shows == "ratio":  # the class rate is beaten without noise
        assert min(point.ratio for point in counts) < 1 or name != "q1"
    else:
        assert all(point.value > 0 for point in found)


def bias(data: DataSet, sketch: str, epsilon: float) -> float:
    """By how much counts are too large."""
    setup = sketches._setup(data, sketch, "ratio", epsilon, columns=("count",))
    [point] = sketches._bias(data, setup, 0).run()
    assert (point.series, point.x) == (sketch, epsilon)
    return point.value


def test_the_minimum_is_biased_by_noise_and_the_median_is_not(tiny: DataSet) -> None:
    data = open_values()
    assert bias(data, "count-min", 1.0) < -5
    assert abs(bias(data, "count-median", 1.0)) < 2
    assert abs(bias(data, "count-median", math.inf)) < 0.1


def test_without_noise_the_minimum_is_too_large_where_values_meet(tiny: DataSet) -> None:
    data = open_values()
    narrow = {"columns": ("count",), "buckets": 8_192}  # 512, for 400 values
    setup = sketches._setup(data, "count-min", "ratio", math.inf, **narrow)
    off = sketches._counts(data, setup) - sketches._exact(data)
    assert off.min() == 0
    assert off.mean() > 0


def test_exact_counts_are_exact(tiny: DataSet) -> None:
    data = open_values(1_000, 50)
    past, future = (data.table(*rows).to_pandas() for rows in ((0, 800), (800, 1_000)))
    by_hand = [
        future[name].map(past[name][past["click"] == label].value_counts()).fillna(0)
        for name in ("one", "two")
        for label in (0, 1)
    ]
    assert np.array_equal(sketches._exact(data), np.column_stack(by_hand))


# --- tuning --------------------------------------------------------------------------------------


def test_tuning_knows_nothing_of_the_future(tiny: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "GRIDS", {"logistic": {"C": [0.01, 1.0], "scaled": [True]}})
    monkeypatch.setattr(tuning, "RAW_GRIDS", {("made", "class rate"): {}})
    figure, jobs = planned(EXPERIMENTS["tuning"], without_future(tiny), seeds=1)
    found = [point for job in jobs for point in job.run()]
    assert figure.shows == "loss"
    assert [(p.series, p.x) for p in found] == [
        ("raw: class rate", 1),
        ("counts: logistic regression", 1),
        ("counts: logistic regression", 2),
    ]
    assert all(math.isfinite(point.loss) for point in found)
    assert [point.detail["parameters"].get("C") for point in found] == [None, 0.01, 1.0]


def test_all_candidates_are_models_that_a_store_takes() -> None:
    found = list(tuning.candidates())
    sizes = [math.prod(map(len, grid.values())) for grid in tuning.GRIDS.values()]
    assert len(found) == sum(sizes)
    told = {(model.name, str(sorted(model.parameters.items()))) for model in found}
    assert len(told) == len(found)
    assert all(recipe_of(model.make(3, 0)) for model in found)


def test_raw_models_of_clicks_are_tuned_for_rare_clicks_too() -> None:
    one, other = (
        planned(EXPERIMENTS["tuning"], unread(n, 1_000))[1] for n in ("clicks", "clicks-rare")
    )
    assert [job.about for job in one] == [job.about for job in other]
    assert {job.about["raw"] for job in one[:-1]} <= set(PAPER)


# --- data sets -----------------------------------------------------------------------------------


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Real data sets are not read, but where they are is told."""
    places = list[Path]()

    def load(name: str, folder: Path) -> DataSet:
        places.append(folder)
        return unread(name, 1_000)

    known = {name: lambda folder, name=name: load(name, folder) for name in experiments.REAL}
    monkeypatch.setattr(experiments, "REAL", known)
    return places


def names(folder: Path | None, *, quick: bool = True, on: Sequence[str] | None = None) -> list[str]:
    return [data.name for data in data_sets(folder, quick=quick, on=on)]


def touched(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file.parent


@pytest.mark.parametrize("file", ["ratings.dat", "ratings.csv"])
def test_ratings_are_movielens(file: str, tmp_path: Path, loaded: list[Path]) -> None:
    place = touched(tmp_path / "any" / file)
    assert names(tmp_path) == names(place) == ["movielens", "clicks"]
    assert loaded == [place, place]


def test_ratings_by_people_are_there_only_where_asked_for(
    tmp_path: Path, loaded: list[Path]
) -> None:
    touched(tmp_path / "any" / "users.dat")
    touched(tmp_path / "any" / "ratings.dat")
    assert names(tmp_path) == ["movielens", "clicks"]
    assert names(tmp_path, on=["movielens-people"]) == ["movielens-people"]
    assert loaded == [tmp_path / "any"] * 2


@pytest.mark.parametrize(
    "file", ["train.txt", "train.txt.gz", "train.parquet", "day_0", "day_0.gz"]
)
def test_training_rows_are_criteo(file: str, tmp_path: Path, loaded: list[Path]) -> None:
    place = touched(tmp_path / "any" / file)
    assert names(tmp_path) == names(place) == ["criteo", "clicks"]
    assert loaded == [place, place]


def test_a_folder_without_data_is_refused(tmp_path: Path, loaded: list[Path]) -> None:
    touched(tmp_path / "one" / "two" / "ratings.dat")  # too deep
    with pytest.raises(SchemaError, match="holds no data set; give a folder with"):
        names(tmp_path)


def test_only_what_is_asked_for_is_loaded(tmp_path: Path, loaded: list[Path]) -> None:
    ratings, rows = touched(tmp_path / "b" / "ratings.dat"), touched(tmp_path / "a" / "train.txt")
    assert names(tmp_path) == ["movielens", "criteo", "clicks"]
    assert loaded == [ratings, rows]
    assert names(tmp_path, on=["criteo"]) == ["criteo"]
    assert loaded == [ratings, rows, rows]
    assert names(tmp_path, on=["clicks"]) == ["clicks"]
    assert loaded == [ratings, rows, rows]


def test_clicks_are_generated_without_a_folder() -> None:
    assert names(None) == ["clicks"]
    assert names(None, quick=False) == ["clicks", "clicks-rare"]
    assert names(None, on=["clicks-rare"]) == ["clicks-rare"]
    assert names(None, on=[q3.PAIRS]) == [q3.PAIRS]
    assert names(None, on=["movielens"]) == names(None, on=[]) == []


def test_noise_alone_needs_no_rows_and_is_measured_once(tmp_path: Path, loaded: list[Path]) -> None:
    touched(tmp_path / "ratings.dat")
    for folder in (None, tmp_path):
        found = data_sets(folder, quick=False, on=None, names=["window-noise"])
        (data,) = (each for each in found if concerns("window-noise", each, among=found))
        assert (data.name, data.rows) == ("tables", 0)
        assert planned(EXPERIMENTS["window-noise"], data)[1]


def test_clicks_are_fewer_where_stores_are_filled_again_and_again() -> None:
    for name, asked in EXPERIMENTS.items():
        found = data_sets(None, quick=False, on=None, names=[name])
        rows = {data.rows for data in found if data.name in experiments.RATES}
        assert rows == {CLICKS if name in experiments.AT_SCALE else experiments.FEWER_CLICKS}
        there = [data for data in found if concerns(name, data) and asked.plan(data, **ONCE)]
        assert there or name == "regression"  # takes real ratings


ONCE: dict[str, Any] = {"quick": False, "seeds": 1}


def test_clicks_are_fewer_in_a_quick_run() -> None:
    for quick, rows in ((True, QUICK_CLICKS), (False, CLICKS)):
        found = data_sets(None, quick=quick, on=["clicks", "clicks-rare"])
        assert [data.rows for data in found] == [rows, rows]
        assert len({data.fingerprint for data in found}) == 2


def test_clicks_have_the_rates_of_criteo() -> None:
    often, rare = data_sets(None, quick=True, on=["clicks", "clicks-rare"])
    assert often.table(0, 20_000)["click"].to_numpy().mean() == pytest.approx(0.257, abs=0.01)
    assert rare.table(0, 20_000)["click"].to_numpy().mean() == pytest.approx(0.0334, abs=0.005)


def test_groups_from_rows_aside_share_a_tenth(nothing: Asked) -> None:
    all_points("q3", SMALL[0])
    grouped = [setup for setup in nothing.setups if setup.groups and setup.aside]
    assert {setup.groups for setup in grouped} == {3, 8, 35}
    assert {setup.aside for setup in grouped} == {0.1}
    assert {setup.group_share for setup in grouped} == {0.1}


def test_the_line_that_groups_have_to_beat_counts_all_rows_with_all_of_their_budget(
    nothing: Asked,
) -> None:
    all_points("q3", SMALL[0])
    plain = [setup for setup in nothing.setups if not setup.groups and not setup.aside]
    assert {setup.epsilon for setup in plain} == {0.33, 1.0, 3.0, math.inf}
    assert {(setup.paying, setup.choosing) for setup in plain} == {(0.0, 0.0)}
    assert {setup.windows for setup in plain} == {1, q3.WINDOWS}


def test_a_store_that_chooses_has_as_many_windows_as_the_one_it_is_compared_with(
    nothing: Asked,
) -> None:
    all_points("q3", SMALL[0])
    assert {setup.windows for setup in nothing.setups if setup.choosing} == {q3.WINDOWS}


def test_lines_with_and_without_groups_learn_from_as_many_hot_rows(nothing: Asked) -> None:
    all_points("q3", SMALL[0])
    assert len({round(setup.hot * (1 - setup.aside), 9) for setup in nothing.setups}) == 1


def paid_of(store: Pyramid, window: int = 0) -> dict[str, float]:
    """What the tables of a window cost."""
    lines = store.ledger.report().windows[window].lines
    return {line.purpose: float(line.amount) for line in lines if line.kind == "table"}


def test_rows_that_pay_for_the_choice_have_the_rest_for_their_counts() -> None:
    data = small(4_000)
    pure = {"mechanism": "laplace", "knobs": {"buckets": 64}}
    setup = Setup(0.1, epsilon=1.0, groups=1, paying=0.25, **pure)  # type: ignore[arg-type]
    with stores.counted(data, setup) as store:
        assert len(store.schema.groups) == 1
        assert store.status().hot_rows == 320
        assert sum(paid_of(store).values()) == pytest.approx(0.75)


def test_a_choice_for_a_share_of_the_budget_is_asked_of_all_rows_for_that_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def select(coded: Any, *_: Any, budget: Fraction, **__: Any) -> list[Any]:
        asked.append((coded.came, budget))
        return [(0, 1)]

    monkeypatch.setattr(holdout, "select", select)
    setup = Setup(0.1, epsilon=1.0, mechanism="laplace", groups=1, knobs={"buckets": 64})
    for changed in ({"paying": 0.25}, {"aside": 0.5}):
        with stores.counted(small(4_000), setup.but(**changed)):
            pass
    assert asked == [(3_200, Fraction(1, 4)), (1_600, Fraction(1))]


def test_a_store_that_chooses_itself_counts_groups_from_its_second_window_on() -> None:
    data = small(6_000)
    pure = {"mechanism": "laplace", "knobs": {"buckets": 64}}
    setup = Setup(0.1, epsilon=1.0, groups=1, choosing=0.2, windows=3, **pure)  # type: ignore[arg-type]
    with stores.counted(data, setup) as store:
        [group] = store.groups.status()
        assert group.windows == 2
        assert store.status().hot_rows == 480
        first, *others = (paid_of(store, window) for window in range(3))
        assert group.name not in first
        assert [paid[group.name] for paid in others] == pytest.approx([0.2 * stores.TABLES] * 2)
        assert store.ledger.report().windows[0].used("selection") > 0


@pytest.mark.parametrize("method", ["top-k", LEAKY])
def test_chosen_groups_are_counted_and_their_tables_have_their_share(method: str) -> None:
    data = small(4_000)
    setup = Setup(0.1, epsilon=1.0, aside=0.5, groups=2, selection=method, knobs={"buckets": 64})  # type: ignore[arg-type]
    with stores.counted(data, setup) as store:
        assert len(store.schema.groups) == 2
        lines = store.ledger.report().windows[0].lines
        paid = {line.purpose: float(line.amount) for line in lines if line.kind == "table"}
        names = [",".join(group) for group in store.schema.groups]
        tables = sum(paid.values()) - paid[""]
        assert sum(paid[name] for name in names) == pytest.approx(0.1 * tables)
        columns = stores.kept_columns(store)
        alone = stores.feature_columns(store)
        assert alone == list(range(len(data.schema.features)))
        assert set(alone) <= set(columns)


def test_points_with_groups_tell_what_the_same_tables_lose_without_their_columns() -> None:
    data, model = small(4_000), logistic()
    asked = Setup(0.1, epsilon=1.0, aside=0.5, groups=1, knobs={"buckets": 64})
    told = "loss without columns of groups"
    (point,) = store("q3", data, asked, [model], 1.0).run()
    assert point.detail[told] != point.loss
    for other in (asked.but(groups=0, aside=0.0), asked.but(judged=True)):
        assert told not in store("q3", data, other, [model], 1.0).run()[0].detail


def test_planted_pairs_are_recalled_where_the_choice_is_exact() -> None:
    data = q3.with_planted(quick=True)
    assert (data.name, kind(data.name)) == ("clicks-pairs", "clicks")
    job = q3._recall(data, "top-k", 40_000, [math.inf], 1)
    (point,) = job.run()
    assert point.value >= 3 / 8


def test_movielens_is_found_where_it_is(movielens: Path) -> None:
    [data] = data_sets(movielens.parent, quick=True, on=["movielens"])
    assert (data.name, data.rows) == ("movielens", 1_000_209)
