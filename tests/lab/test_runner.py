from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.points import Point
from lab.runner import means, run, waiting
from tests.lab.made import Told, job, kept, points_of


def counted(numbers: Sequence[int], done: list[int]) -> list:  # type: ignore[type-arg]
    """Jobs that say when they are run."""

    def work(number: int) -> list[Point]:
        done.append(number)
        return points_of(number)

    return [job(number, lambda number=number: work(number)) for number in numbers]


def test_jobs_are_run_in_order_and_their_points_gathered(tmp_path: Path) -> None:
    done: list[int] = []
    jobs = counted([3, 1, 2], done)
    found = run(jobs, kept(tmp_path, jobs), Told())
    assert done == [3, 1, 2]
    assert found == points_of(3) + points_of(1) + points_of(2)


def test_a_second_run_runs_nothing_and_finds_the_same(tmp_path: Path) -> None:
    done: list[int] = []
    jobs = counted([1, 2], done)
    first = run(jobs, kept(tmp_path, jobs), Told())
    told = Told()
    assert run(jobs, kept(tmp_path, jobs), told) == first
    assert done == [1, 2]
    assert told.done == []


def test_only_new_jobs_are_run(tmp_path: Path) -> None:
    done: list[int] = []
    jobs = counted([1, 2, 3], done)
    run(jobs[:1], kept(tmp_path, jobs), Told())
    run(jobs, kept(tmp_path, jobs), Told())
    assert done == [1, 2, 3]


def test_the_same_job_twice_is_run_once(tmp_path: Path) -> None:
    done: list[int] = []
    jobs = counted([1, 1], done)
    results = kept(tmp_path, jobs)
    assert len(waiting(jobs, results)) == 1
    assert run(jobs, results, Told()) == points_of(1)
    assert done == [1]


def test_progress_is_by_cost_and_names_the_job(tmp_path: Path) -> None:
    from dataclasses import replace

    told = Told()
    jobs = [replace(job(number), cost=10.0 * number) for number in (1, 2)]
    run(jobs, kept(tmp_path, jobs), told)
    assert told.done == [10.0, 20.0]
    assert told.names == ["number 1", "number 2"]


def test_a_stopped_run_keeps_what_is_done(tmp_path: Path) -> None:
    def stopped() -> list[Point]:
        raise KeyboardInterrupt

    jobs = [job(1), job(2, stopped), job(3)]
    results = kept(tmp_path, jobs)
    with pytest.raises(KeyboardInterrupt):
        run(jobs, results, Told())
    assert [found.about["number"] for found in waiting(jobs, kept(tmp_path, jobs))] == [2, 3]


KILLED = """
import sys, time
from pathlib import Path
from lab.runner import run
from tests.lab.made import Told, job, kept, points_of

folder, blocks = Path(sys.argv[1]), sys.argv[2:] == ["blocks"]

def work(number):
    with (folder / "log").open("a") as log:
        log.write(f"{number}\\n")
    if number == 3 and blocks:
        time.sleep(300)
    return points_of(number)

jobs = [job(number, lambda number=number: work(number)) for number in range(1, 5)]
print(len(run(jobs, kept(folder, jobs), Told())))
"""


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, root: Path) -> None:
    words = [sys.executable, "-c", KILLED, str(tmp_path)]
    log = tmp_path / "log"
    process = subprocess.Popen([*words, "blocks"], cwd=root)
    while not log.exists() or log.read_text() != "1\n2\n3\n":
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    assert log.read_text() == "1\n2\n3\n3\n4\n"
    assert done.stdout == "8\n"


# --- means -----------------------------------------------------------------------------------

places = st.tuples(st.sampled_from("ab"), st.sampled_from([0.1, 1.0, math.inf]), st.floats(0.5, 2))


@given(st.lists(places))
def test_means_lie_within_their_seeds_and_lose_none(given: list[tuple[str, float, float]]) -> None:
    lines = means([Point(series, x, ratio=ratio) for series, x, ratio in given], "ratio")
    assert sum(mean.seeds for line in lines.values() for mean in line) == len(given)
    for series, line in lines.items():
        assert [mean.x for mean in line] == sorted({x for name, x, _ in given if name == series})
        for mean in line:
            here = [ratio for name, x, ratio in given if (name, x) == (series, mean.x)]
            assert (mean.low, mean.high) == (min(here), max(here))
            assert mean.mean == pytest.approx(sum(here) / len(here))


def test_a_seed_without_a_number_does_not_spoil_the_others() -> None:
    points = [Point("a", 1.0, ratio=1.5), Point("a", 1.0, seed=1), Point("a", 2.0)]
    one, none = means(points, "ratio")["a"]
    assert (one.mean, one.seeds) == (1.5, 1)
    assert math.isnan(none.mean)
    assert none.seeds == 0


def test_a_figure_may_show_something_else() -> None:
    [mean] = means([Point("a", 1.0, ratio=1.5, value=7.0)], "value")["a"]
    assert mean.mean == 7.0
