"""The experiments by name, and the data sets they are made on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lab import bandits, clicks, criteo, movielens, open_bandit_log, wide
from lab.datasets import DataSet
from lab.experiments.bandit import BANDIT
from lab.experiments.evolution import EVOLUTION
from lab.experiments.experiment import Experiment
from lab.experiments.exposure import EXPOSURE
from lab.experiments.latency import LATENCY, SERVICE, rows_to_serve
from lab.experiments.q1 import Q1
from lab.experiments.q2 import NOISE, Q2
from lab.experiments.q3 import PAIRS, Q3, RECALL, with_planted
from lab.experiments.regression import REGRESSION
from lab.experiments.retraining import RETRAINING
from lab.experiments.shares import SHARING
from lab.experiments.sketches import BIAS, SKETCHING
from lab.experiments.tuning import TUNING
from lab.experiments.values import VALUES
from lab.experiments.width import WIDE, WIDTH
from lab.experiments.windows import SUMMING, TABLES, WINDOWING, no_rows
from pyramidion.errors import SchemaError

EXPERIMENTS: dict[str, Experiment] = {
    found.name: found
    for found in (
        *(Q1, Q2, NOISE, SHARING, VALUES, Q3, RECALL),
        *(SKETCHING, BIAS, WINDOWING, SUMMING, LATENCY, RETRAINING),
        *(REGRESSION, BANDIT, EXPOSURE, EVOLUTION, WIDE, WIDTH, TUNING),
    )
}
"""In the order of the report."""

CLICKS, FEWER_CLICKS, QUICK_CLICKS = 45_000_000, 1_000_000, 60_000
AT_SCALE = ("q1", "q2", "values")
"""Experiments on as many clicks as the paper had rows; others, which fill stores again and again,
take fewer."""
SHOWN, QUICK_SHOWN = 200_000, 4_000
"""Rows of a day of the generated bandit."""
ROWS, QUICK_ROWS = 80_000, 4_000
"""Rows of the wide stream."""
RATES = {"clicks": 0.257, "clicks-rare": 0.0334}
"""Click rates of Criteo-Kaggle and Criteo-Full."""

AMONG_ALL = {**dict.fromkeys(RATES, AT_SCALE), PAIRS: ("recall",)}
"""What generated clicks are for where all is asked for beside real rows, which tell the rest."""
MAIN = "clicks"
"""The generated clicks that are for everything where all is asked for without real rows."""
ALONE = ("tuning",)
"""Experiments that are made only where they are asked for: how parameters were chosen."""


REAL: dict[str, Callable[[Path], DataSet]] = {
    "movielens": movielens.load,
    "criteo": criteo.load,
    "open-bandit": open_bandit_log.load,
    "movielens-ratings": movielens.ratings,
    "movielens-people": movielens.load_people,
}
ASKED = ("movielens-people",)
"""Those that are for groups, and made only where they are asked for."""
FOUND = {
    "movielens-people": ("users.dat",),
    "movielens": ("ratings.dat", "ratings.csv"),
    "criteo": ("train.txt", "train.txt.gz", "train.parquet", "day_0", "day_0.gz"),
    "open-bandit": ("random/all/all.csv",),
    "movielens-ratings": ("ratings.dat", "ratings.csv"),
}
"""Files that tell a data set's folder."""

MADE: dict[str, Callable[[bool], DataSet]] = {
    "bandit": lambda quick: bandits.generate(QUICK_SHOWN if quick else SHOWN),
    "wide": lambda quick: wide.generate(QUICK_ROWS if quick else ROWS),
    SERVICE: lambda _: rows_to_serve(),
    TABLES: lambda _: no_rows(),
}
"""Generated ones, from whether a run is quick."""

MADE_FOR = {
    "open-bandit": ("bandit",),
    "bandit": ("bandit",),
    "movielens-ratings": ("regression", "evolution"),
    "wide": ("wide", "width"),
    SERVICE: ("latency",),
    TABLES: ("window-noise",),
}
"""The experiments that a data set is for, where it is not for all."""

NEED_THEIRS = ("bandit", "regression", "latency", "wide", "width", "window-noise")
"""Experiments that take no other rows than those made for them."""


def concerns(experiment: str, data: DataSet, *, among: Sequence[DataSet] | None = None) -> bool:
    """Whether an experiment is made on a data set: alone, or among all figures on all data sets."""
    if data.made_for:
        return experiment in data.made_for
    if experiment in NEED_THEIRS or (among is not None and experiment in ALONE):
        return False
    real = any(other.name in REAL and not other.made_for for other in among or ())
    if among is None or data.name not in AMONG_ALL or (data.name == MAIN and not real):
        return True
    return experiment in AMONG_ALL[data.name]


def data_sets(
    folder: Path | None,
    *,
    quick: bool,
    on: Sequence[str] | None,
    names: Sequence[str] = ("q1",),
    rows: int | None = None,
) -> list[DataSet]:
    """The data sets in a folder, or in the folders of it, and generated ones.

    What is made for one experiment only where that is among the names, as clicks with planted pairs
    for ``recall``; ratings by people, which are for groups, only where they are asked for. ``rows``
    is how many clicks there are: by default as many as the experiments of these names take.
    """

    def wanted(name: str) -> bool:
        if on is not None:
            return name in on
        made = () if name in ASKED else MADE_FOR.get(name, names)
        return any(experiment in names for experiment in made)

    found = [] if folder is None else _real(folder, wanted)
    if folder is not None and not found and on is None:
        raise SchemaError(
            f"{folder} holds no data set; give a folder with ratings.dat or ratings.csv "
            f"(MovieLens), train.txt or train.parquet (Criteo), random/all/all.csv (Open Bandit, "
            f"for experiment bandit), or one of such folders"
        )
    if PAIRS in on if on is not None else "recall" in names:
        found.append(with_planted(quick))
    found += [make(quick) for name, make in MADE.items() if wanted(name)]
    many = CLICKS if set(names) & set(AT_SCALE) else FEWER_CLICKS
    usual = QUICK_CLICKS if quick else many
    return found + [
        replace(clicks.generate(rows or usual, rate=rate), name=name)
        for name, rate in RATES.items()
        if (name in on if on is not None else name == "clicks" or not quick)
    ]


def _real(folder: Path, wanted: Callable[[str], bool]) -> list[DataSet]:
    places = [folder, *sorted(below for below in folder.iterdir() if below.is_dir())]
    return [
        load(place)
        for name, load in REAL.items()
        for place in places
        if wanted(name) and any((place / file).exists() for file in FOUND[name])
    ]
