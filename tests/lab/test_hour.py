"""What all figures take together, by what their jobs are guessed to take."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lab import __main__ as evaluate
from lab import clicks, experiments
from lab.datasets import DataSet
from tests.lab.small import unread

MINUTE = 60.0


def shaped(name: str, rows: int, like: DataSet) -> DataSet:
    """As many rows and columns as the real ones, of which nobody may read any."""
    return replace(unread(name, rows), schema=like.schema)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Data sets of the size of those that were measured."""
    for file in ("ratings.dat", "train.txt"):
        (tmp_path / file).touch()
    criteo = clicks.generate(1_000)
    movielens = replace(criteo, schema=replace(criteo.schema, features=criteo.schema.features[:15]))
    sizes = {"movielens": (1_000_209, movielens), "criteo": (137_139, criteo)}
    known = {name: lambda _, name=name: shaped(name, *sizes[name]) for name in sizes}
    monkeypatch.setattr(experiments, "REAL", known)
    return tmp_path


def seconds(words: str) -> Counter[str]:
    """Guessed seconds of all figures, each job once."""
    arguments = evaluate.parser().parse_args(words.split())
    found, seen = Counter[str](), set[str]()
    for figure, jobs in evaluate.planned(arguments):
        for job in evaluate.needed(arguments, jobs):
            if job.key not in seen:
                found[figure.slug] += job.cost
                seen.add(job.key)
    return found


def test_all_figures_are_guessed_to_take_well_under_an_hour(real: Path) -> None:
    found = seconds(f"all --data {real}")
    assert sum(found.values()) < 45 * MINUTE, found.most_common(9)


def test_all_figures_of_generated_rows_take_well_under_an_hour() -> None:
    found = seconds("all")
    assert sum(found.values()) < 45 * MINUTE, found.most_common(9)


def test_quick_runs_are_guessed_to_take_less_than_five_minutes(real: Path) -> None:
    for words in ("all --quick", f"all --quick --data {real}"):
        found = seconds(words)
        assert sum(found.values()) < 5 * MINUTE, found.most_common(9)


def test_no_figure_takes_a_quarter_of_the_hour(real: Path) -> None:
    (_, most), *_ = seconds(f"all --data {real}").most_common(1)
    assert most < 15 * MINUTE
