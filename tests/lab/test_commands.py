"""The commands that documents print: each is planned, none is run."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path

import pytest

from lab import __main__ as evaluate
from lab import experiments, open_bandit
from lab.points import Figure
from tests.conftest import ROOT
from tests.lab import test_criteo, test_movielens, test_open_bandit

DOCUMENTS = ("evaluation.md", "learning.md")
Planned = Callable[[str], dict[str, set[str]]]


def printed(name: str) -> list[str]:
    """The commands of a document, whole, as a person copies them."""
    text = (ROOT / "docs" / name).read_text()
    inline = re.findall(r"`(python -m lab [^`]+)`", text)
    lines = re.findall(r"^(?:\$ )?(python -m lab .*)$", text, re.MULTILINE)
    return [" ".join(command.partition("#")[0].split()) for command in (*inline, *lines)]


COMMANDS = sorted({command for name in DOCUMENTS for command in printed(name)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A little of every real data set."""
    found = tmp_path_factory.mktemp("data")
    for name in ("movielens", "criteo"):
        (found / name).mkdir()
    test_movielens.dat(found / "movielens")
    people = [(1, "F", 25, 3, "x"), (2, "M", 35, 4, "y")]
    test_movielens.write(found / "movielens" / "users.dat", "::", people)
    test_criteo.written(found / "criteo" / "train.txt", [test_criteo.row()] * 10)
    lines = test_open_bandit.LATE, test_open_bandit.EARLY
    made = test_open_bandit.made(found / "made", *lines) / "random" / "all"
    for campaign, policy in product(open_bandit.CAMPAIGNS, open_bandit.POLICIES):
        place = shutil.copytree(made, found / "open-bandit" / policy / campaign)
        (place / "all.csv").rename(place / f"{campaign}.csv")
    shutil.rmtree(found / "made")
    return found


@pytest.fixture(scope="module")
def planned(folder: Path) -> Planned:
    """The keys of all jobs that a command asks for, by figure."""

    def found(command: str) -> dict[str, set[str]]:
        words = shlex.split(command)[3:]
        places = {"DIR": str(folder), "../shared/data": str(folder)}
        arguments = evaluate.parser().parse_args([places.get(word, word) for word in words])
        jobs: dict[str, set[str]] = {}
        for figure, asked in evaluate.planned(arguments):
            assert isinstance(figure, Figure)
            jobs[figure.slug] = {job.key for job in asked}
        return jobs

    return found


def test_there_are_commands_of_every_experiment_in_the_documents() -> None:
    named = {command.split()[3] for command in printed("evaluation.md")}
    assert named == {*experiments.EXPERIMENTS, "all"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_printed_command_plans_something_on_all_data_that_it_names(
    command: str, planned: Planned
) -> None:
    found = planned(command)
    assert all(found.values())
    words = shlex.split(command)
    asked = [word for before, word in pairwise(words) if before == "--on"]
    assert {slug.removeprefix(f"{words[3]}-") for slug in found} >= set(asked)
    assert found


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_the_bare_name_of_an_experiment_plans_something(name: str, planned: Planned) -> None:
    data = " --data DIR" if name == "regression" else ""  # of ratings, which are real
    assert any(planned(f"python -m lab {name}{data}").values())


@pytest.mark.parametrize("data", ["", " --data DIR"])
def test_all_plans_every_experiment_that_its_rows_allow(data: str, planned: Planned) -> None:
    found = {slug for slug, jobs in planned(f"python -m lab all{data}").items() if jobs}
    alone = {"tuning"} if data else {"tuning", "regression"}  # where asked for; of real ratings
    for name in experiments.EXPERIMENTS:
        assert any(slug.startswith(f"{name}-") for slug in found) == (name not in alone)


@pytest.mark.parametrize("words", ["", " --quick"])
def test_the_command_that_a_report_prints_asks_for_the_same_jobs(
    words: str, planned: Planned
) -> None:
    arguments = evaluate.parser().parse_args(f"all{words}".split())
    for figure, jobs in evaluate.planned(arguments):
        again = planned(evaluate._command(arguments, figure))
        assert again == {figure.slug: {job.key for job in jobs}}
