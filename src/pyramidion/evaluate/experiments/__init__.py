"""The experiments by name, and the data sets they are made on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pyramidion.errors import SchemaError
from pyramidion.evaluate import clicks, criteo, movielens
from pyramidion.evaluate.datasets import DataSet
from pyramidion.evaluate.experiments.experiment import Experiment
from pyramidion.evaluate.experiments.q1 import Q1
from pyramidion.evaluate.experiments.q2 import NOISE, Q2
from pyramidion.evaluate.experiments.q3 import PAIRS, Q3, RECALL, with_planted
from pyramidion.evaluate.experiments.retraining import RETRAINING
from pyramidion.evaluate.experiments.shares import SHARING
from pyramidion.evaluate.experiments.sketches import BIAS, SKETCHING
from pyramidion.evaluate.experiments.tuning import TUNING
from pyramidion.evaluate.experiments.windows import SUMMING, WINDOWING

EXPERIMENTS: dict[str, Experiment] = {
    found.name: found
    for found in (
        *(Q1, Q2, NOISE, SHARING, Q3, RECALL),
        *(SKETCHING, BIAS, WINDOWING, SUMMING, RETRAINING, TUNING),
    )
}
"""In the order of the report."""

CLICKS = 45_000_000
QUICK_CLICKS = 100_000
RATES = {"clicks": 0.257, "clicks-rare": 0.0334}
"""Click rates of Criteo-Kaggle and Criteo-Full."""

REAL: dict[str, Callable[[Path], DataSet]] = {
    "movielens": movielens.load,
    "movielens-people": movielens.load_people,
    "criteo": criteo.load,
}
ASKED = ("movielens-people",)
"""Those that are for groups, and made only where they are asked for."""
FOUND = {
    "movielens-people": ("users.dat",),
    "movielens": ("ratings.dat", "ratings.csv"),
    "criteo": ("train.txt", "train.txt.gz", "train.parquet", "day_0", "day_0.gz"),
}
"""Files that tell a data set's folder."""


def data_sets(folder: Path | None, *, quick: bool, on: Sequence[str] | None) -> list[DataSet]:
    """The data sets in a folder, or in the folders of it, and generated clicks.

    Clicks with planted pairs and ratings by people, which are for groups, only where they are
    asked for.
    """
    found = [] if folder is None else _real(folder, on)
    if folder is not None and not found and on is None:
        raise SchemaError(
            f"{folder} holds no data set; give a folder with ratings.dat or ratings.csv "
            f"(MovieLens), train.txt or train.parquet (Criteo), or one of such folders"
        )
    if on is not None and PAIRS in on:
        found.append(with_planted(quick))
    rows = QUICK_CLICKS if quick else CLICKS
    return found + [
        replace(clicks.generate(rows, rate=rate), name=name)
        for name, rate in RATES.items()
        if (name in on if on is not None else name == "clicks" or not quick)
    ]


def _real(folder: Path, on: Sequence[str] | None) -> list[DataSet]:
    places = [folder, *sorted(below for below in folder.iterdir() if below.is_dir())]
    return [
        load(place)
        for name, load in REAL.items()
        for place in places
        if (name not in ASKED if on is None else name in on)
        and any((place / file).exists() for file in FOUND[name])
    ]
