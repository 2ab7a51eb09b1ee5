"""The traps that a training set avoids: each is set in a real store, and caught by its loss.

The program in ``examples/training_traps.py`` makes the features in four ways; here its
stores get noise from seeds, so that what is found today is found tomorrow. MovieLens, where
it is at hand, says the same of ratings that people gave.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from pyramidion import Categorical, Label, Pyramid, Schema, Settings, Snapshot
from tests.seeding import seeded
from tests.store.stores import START, Clock, Stand, observed
from tests.test_docs import ROOT, loaded

traps = loaded(ROOT / "examples" / "training_traps.py")
RIGHT, ALONE, EARLIER, AS_IS = traps.WAYS
TREES, LINEAR = traps.MODELS
traps.LATER = 10_000


def lived(seed: int, epsilon: float, *moments: int) -> dict[int, Any]:
    """Losses of a store of visits, on some days after a window was sealed."""
    with seeded(f"visits {seed}"):
        found: dict[int, Any] = traps.lived(seed, epsilon, moments)
        return found


@pytest.fixture(scope="module")
def noisy() -> list[dict[int, Any]]:
    """Stores at ε = 1: losses right after a window was sealed, and two days later."""
    return [lived(seed, 1.0, 0, 2) for seed in range(3)]


@pytest.fixture(scope="module")
def exact() -> list[dict[int, Any]]:
    """Stores without noise, right after a window was sealed."""
    return [lived(seed, math.inf, 0) for seed in range(2)]


def ratio(found: list[dict[int, Any]], way: str, model: str, day: int = 0) -> float:
    """The mean loss of a way in that of the training set."""
    return float(np.mean([f[day][way, model] / f[day][RIGHT, model] for f in found]))


@pytest.mark.slow
def test_leaving_out_each_row_alone_ruins_boosted_trees(
    noisy: list[dict[int, Any]], exact: list[dict[int, Any]]
) -> None:
    assert ratio(noisy, ALONE, TREES) > 2.0
    assert ratio(exact, ALONE, TREES) > 2.0


def test_a_linear_model_cannot_use_the_one_count_that_is_missing(
    noisy: list[dict[int, Any]], exact: list[dict[int, Any]]
) -> None:
    assert ratio(noisy, ALONE, LINEAR) == pytest.approx(1.0, abs=0.02)
    assert ratio(exact, ALONE, LINEAR) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("model", traps.MODELS)
def test_counts_of_an_earlier_window_are_worse(noisy: list[dict[int, Any]], model: str) -> None:
    assert ratio(noisy, EARLIER, model) > 1.01


@pytest.mark.parametrize("model", traps.MODELS)
def test_without_noise_rows_that_meet_their_own_labels_are_worse(
    exact: list[dict[int, Any]], model: str
) -> None:
    assert ratio(exact, AS_IS, model) > 1.01


def test_no_way_is_much_better_than_the_training_set_with_noise_or_without(
    noisy: list[dict[int, Any]], exact: list[dict[int, Any]]
) -> None:
    for found, day in ((noisy, 0), (noisy, 2), (exact, 0)):
        for way in (ALONE, EARLIER, AS_IS):
            for model in traps.MODELS:
                assert ratio(found, way, model, day) > 0.975


def test_the_traps_are_shallow_once_half_of_the_hot_rows_are_in_no_sealed_window(
    noisy: list[dict[int, Any]],
) -> None:
    for way in (ALONE, EARLIER, AS_IS):
        for model in traps.MODELS:
            assert ratio(noisy, way, model, 2) < 1.05


def test_rows_left_out_together_by_label_are_each_left_out_alone(
    stand: Stand,
) -> None:
    visits = traps.Visits(7)
    store = stand.create(traps.SCHEMA, count_window=2_000, hot_window="6d")
    observed(store, visits.at(START, 2_000))
    store.advance()
    complete, ((hot, _),) = store.snapshot(), store.training_set().reduced.features()
    some = hot.observations.under(complete.encoder).take(np.arange(100))
    together = traps.each_alone(complete, some)
    for row in range(100):
        one = some.take(np.array([row]))
        assert np.array_equal(complete.without(one).array(one)[0], together[row])
    assert not np.array_equal(complete.array(some), together)


def test_the_example_shows_means_and_how_many_times_the_right_ways_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lived(seed: int, epsilon: float, moments: list[int]) -> dict[int, Any]:
        losses = {(way, model): 0.5 for way in traps.WAYS for model in traps.MODELS}
        return {day: losses | {(ALONE, TREES): seed + epsilon} for day in moments}

    monkeypatch.setattr(traps, "lived", lived)
    traps.main()
    told = capsys.readouterr().out
    for fact in ("ε = 1, just sealed", "ε = 1, 2 days after that", "ε = inf, just sealed"):
        assert told.count(f"{fact:<36}         boosted trees   logistic regression") == 1
    assert told.count(f"{ALONE:<34}          3.000   6.00          0.500   1.00") == 2
    assert told.count(f"{EARLIER:<34}          0.500   1.00          0.500   1.00") == 3


# --- MovieLens ------------------------------------------------------------------------------

WINDOW, HOT, BATCH = 20_000, 5_000, 2_500
GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama",
    "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller",
    "War", "Western",
)  # fmt: skip
RATINGS = Schema(
    time="time",
    label=Label("liked", classes=[0, 1]),
    features=[
        Categorical("user", domain=range(1, 6_041)),
        Categorical("movie", domain=range(1, 3_953)),
        *(Categorical(genre, domain=[False, True]) for genre in GENRES),
    ],
)


KEPT = Settings(
    epsilon=1.0, count_window=WINDOW, hot_window=None, hot_rows=HOT, hot_step_rows=BATCH
)


@pytest.fixture(scope="module")
def ratings(movielens: Path) -> pa.Table:
    """Ratings in the order they were given, as many as two windows and the test need."""
    lines = (movielens / "ratings.dat").read_bytes().replace(b"::", b",")
    names = csv.ReadOptions(column_names=["user", "movie", "stars", "when"])
    given = csv.read_csv(pa.BufferReader(lines), names)
    order = [(name, "ascending") for name in ("when", "user", "movie")]
    given = given.sort_by(order).slice(0, 2 * WINDOW + traps.LATER)
    films = (movielens / "movies.dat").read_text("latin-1").splitlines()
    genres = {int(film.split("::")[0]): film.split("::")[2].split("|") for film in films}
    movies = given["movie"].to_pylist()
    return pa.table(
        {
            "user": given["user"],
            "movie": given["movie"],
            "liked": (given["stars"].to_numpy() >= 4).astype(int),
            **{genre: [genre in genres[movie] for movie in movies] for genre in GENRES},
        }
    )


def rated(store: Pyramid, table: pa.Table, clock: Clock) -> Snapshot:
    """Observe two windows of ratings; the tables before the second."""
    for start in range(0, 2 * WINDOW, BATCH):
        if start == WINDOW:
            store.advance()
            earlier = store.snapshot()
        times = pa.array(np.full(BATCH, clock.pass_(1.0)))
        store.observe(table.slice(start, BATCH).append_column("time", times))
    store.advance()
    return earlier


def lost(folder: Path, ratings: pa.Table) -> Any:
    """Losses on the ratings that came next, right after a window was sealed."""
    stand, later = Stand(folder), ratings.slice(2 * WINDOW)
    with seeded(folder.name), Pyramid.create(stand.path, RATINGS, KEPT, **stand.given) as store:
        earlier = rated(store, ratings, stand.clock)
        made, y = traps.ways(store, earlier, math.inf), store.training_set().y
        new = np.asarray(store.snapshot().array(later))
        return traps.losses(made, y, new, later["liked"].to_numpy())


@pytest.fixture(scope="module")
def liked(ratings: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> list[dict[int, Any]]:
    """Stores of the same ratings with other noise."""
    names = [f"ratings-{number}" for number in range(3)]
    return [{0: lost(tmp_path_factory.mktemp(n, numbered=False), ratings)} for n in names]


@pytest.mark.slow
def test_of_ratings_too_leaving_out_each_alone_ruins_boosted_trees(
    liked: list[dict[int, Any]],
) -> None:
    assert ratio(liked, ALONE, TREES) > 3.0


@pytest.mark.parametrize("model", traps.MODELS)
def test_of_ratings_too_counts_of_an_earlier_window_are_worse(
    liked: list[dict[int, Any]], model: str
) -> None:
    assert ratio(liked, EARLIER, model) > 1.01
