"""``python -m lab``: what it measures, prints and keeps, with experiments that take no time."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import lab
from lab import __main__ as evaluate
from lab.points import Figure, Job, Point, Reference
from pyramidion.cli import main
from tests.cli.shell import Done, Shell
from tests.memory import in_memory
from tests.waiting import PATIENCE

TREES, RAW = "counts: trees", "raw: trees"
NOT_AMONG_ALL = set[tuple[str, str]]()
FILES = ["q1-clicks.png", "report.html", "report.md", "results"]


@dataclass(frozen=True)
class Data:
    """As much of a data set as the command looks at."""

    name: str
    fingerprint: str = "rows=1"
    rows: int = 1_000


class Experiment:
    """A figure of one line, of which each place is a job that is written into a log."""

    def __init__(self, name: str, log: Path, only: str | None = None) -> None:
        self.name = name
        self.help = name
        self.log = log
        self.only = only
        self.shared: Job | None = None

    def plan(self, data: Data, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
        if self.only not in (None, data.name):
            return None
        references = Reference(TREES, 1.04, 1.0), Reference(TREES, 1.02, 1.0, "target")
        title = f"{self.name} on {data.name}"
        figure = Figure(self.name, data.name, title, "ε", references=references)
        places = (1.0,) if quick else (0.1, 1.0, math.inf)
        jobs = [self._job(data, x, seed) for x in places for seed in range(seeds)]
        return figure, ([] if self.shared is None else [self.shared]) + jobs

    def _job(self, data: Data, x: float, seed: int) -> Job:
        about = {"x": x, "seed": seed}
        return Job(self.name, data.fingerprint, about, lambda: self._work(data, x, seed))

    def _work(self, data: Data, x: float, seed: int) -> list[Point]:
        with self.log.open("a") as log:
            log.write(f"{self.name} {data.name} {x} {seed}\n")
        if os.environ.get("BLOCKS") == str(x):
            time.sleep(PATIENCE)
        if os.environ.get("STOPS") == str(x):
            raise KeyboardInterrupt
        return [Point(TREES, x, 0.5, 1.01 + seed / 100, seed=seed), Point(RAW, x, 0.4, 0.9)]


def stub(log: Path) -> types.ModuleType:
    """The experiments' module, made of such figures."""
    module = types.ModuleType("lab.experiments")
    names = {"q2": "movielens", "q1": None}
    told = {name: Experiment(name, log, only) for name, only in names.items()}

    def data_sets(
        folder: Path | None,
        *,
        quick: bool,
        on: Sequence[str] | None,
        names: Sequence[str],
        rows: int | None,
    ) -> list[Data]:  # as the real one has it
        real = ["movielens"] if folder is not None and (folder / "movielens").exists() else []
        return [Data(name, f"{name}:1") for name in (*real, "clicks") if not on or name in on]

    def concerns(experiment: str, data: Data, *, among: Sequence[Data] | None) -> bool:
        return among is None or (experiment, data.name) not in NOT_AMONG_ALL

    module.__dict__.update(EXPERIMENTS=told, data_sets=data_sets, concerns=concerns)
    return module


def installed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put it in the place of the real ones."""
    module = stub(log)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(lab, "experiments", module, raising=False)


class Evaluating:
    """The command, its output and its log."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.output = shell.folder / "report"
        self.log = shell.folder / "log"
        self.log.touch()

    def __call__(self, *words: str) -> Done:
        return self.shell.main(*words, "--output", str(self.output), parser=evaluate.parser())

    def ran(self) -> list[str]:
        """What was run since this was last asked."""
        lines = self.log.read_text().splitlines()
        self.log.write_text("")
        return lines


@pytest.fixture
def evaluating(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Evaluating]:
    from pyramidion.demo.plots import STYLE

    monkeypatch.setitem(STYLE, "savefig.dpi", 20)
    with in_memory() as folder:
        found = Evaluating(Shell(folder, capsys))
        installed(found.log, monkeypatch)
        yield found


def test_a_figure_is_measured_drawn_and_reported(evaluating: Evaluating) -> None:
    done = evaluating("q1", "--seeds", "2")
    assert done.code == 0, done.err
    assert len(evaluating.ran()) == 6
    assert sorted(path.name for path in evaluating.output.iterdir()) == FILES
    assert [path.name for path in (evaluating.output / "results").iterdir()] == [
        "q1-clicks.parquet"
    ]
    lines = [line.split() for line in done.out.splitlines()]
    assert ["counts:", "trees", "1", "1.0150", "1.04", "1.02", "met"] in lines
    assert ["counts:", "trees", "∞", "1.0150"] in lines
    assert str(evaluating.output / "report.html") in done.out


def test_a_second_run_measures_nothing_and_tells_the_same(evaluating: Evaluating) -> None:
    first = evaluating("q1", "--seeds", "2")
    evaluating.ran()
    second = evaluating("q1", "--seeds", "2")
    assert evaluating.ran() == []
    assert second.out == first.out
    assert "q1-clicks: 6 of 6 jobs were done before" in second.err


def test_again_measures_again(evaluating: Evaluating) -> None:
    for _ in range(2):
        evaluating("q1", "--again", "--seeds", "1")
        assert len(evaluating.ran()) == 3


def test_more_seeds_measure_only_these(evaluating: Evaluating) -> None:
    evaluating("q1", "--seeds", "1")
    evaluating.ran()
    evaluating("q1", "--seeds", "2")
    assert {line.split()[-1] for line in evaluating.ran()} == {"1"}


def test_what_is_no_longer_asked_for_is_dropped_from_the_numbers(evaluating: Evaluating) -> None:
    from pyarrow import parquet

    for seeds in ("2", "1"):
        evaluating("q1", "--seeds", seeds)
    rows = parquet.read_table(evaluating.output / "results" / "q1-clicks.parquet").to_pylist()
    assert {row["seed"] for row in rows} == {0}


def test_a_quick_run_leaves_the_results_of_a_long_one_alone(evaluating: Evaluating) -> None:
    evaluating("q1", "--seeds", "1")
    before = (evaluating.output / "report.html").read_bytes()
    evaluating.ran()
    assert evaluating("q1", "--quick").code == 0
    assert len(evaluating.ran()) == evaluate.QUICK_SEEDS
    assert (evaluating.output / "quick" / "report.html").exists()
    assert (evaluating.output / "report.html").read_bytes() == before
    evaluating("q1", "--seeds", "1")
    assert evaluating.ran() == []


def test_all_goes_through_every_experiment_and_the_report_has_earlier_ones_too(
    evaluating: Evaluating,
) -> None:
    real = evaluating.shell.folder / "data"
    (real / "movielens").mkdir(parents=True)
    evaluating("all", "--data", str(real), "--seeds", "1")
    told = [line.split()[:2] for line in evaluating.ran()]
    assert told == 3 * [["q2", "movielens"]] + 3 * [["q1", "movielens"]] + 3 * [["q1", "clicks"]]
    evaluating("q1", "--seeds", "1")  # without the real data
    text = (evaluating.output / "report.md").read_text()
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles[:-1] == ["## q2 on movielens", "## q1 on clicks", "## q1 on movielens"]


def test_figures_share_a_job_also_when_all_is_measured_again(evaluating: Evaluating) -> None:
    ran: list[int] = []
    point = Point("raw: all", 1.0, 0.4, detail={"baseline": True})
    shared = Job("baseline", "rows=1", {}, lambda: [ran.append(1) or point])  # type: ignore[func-returns-value]
    for experiment in sys.modules["lab.experiments"].EXPERIMENTS.values():
        experiment.shared = shared
    (evaluating.shell.folder / "movielens").mkdir()
    words = ("--data", str(evaluating.shell.folder), "--seeds", "1", "--json")
    assert evaluating("q1", *words).code == 0
    assert evaluating("q2", *words).told["figures"][0]["series"][TREES][0]["mean"] == 0.5 / 0.4
    assert len(ran) == 1
    assert evaluating("all", *words, "--again").code == 0
    assert len(ran) == 2


def test_one_data_set_may_be_chosen_by_name(evaluating: Evaluating) -> None:
    (evaluating.shell.folder / "movielens").mkdir()
    evaluating("q1", "--data", str(evaluating.shell.folder), "--on", "movielens", "--seeds", "1")
    assert {line.split()[1] for line in evaluating.ran()} == {"movielens"}


def test_the_reported_command_makes_that_figure_again(evaluating: Evaluating) -> None:
    import shlex

    (evaluating.shell.folder / "movielens").mkdir()
    evaluating("all", "--data", str(evaluating.shell.folder), "--seeds", "1", "--quiet")
    evaluating.ran()
    text = (evaluating.output / "report.md").read_text()
    commands = [line for line in text.splitlines() if line.endswith(" --again")]
    assert len(commands) == 3
    for command, made in zip(commands, ("q2 movielens", "q1 clicks", "q1 movielens"), strict=True):
        words = shlex.split(command)
        assert words[:3] == ["python", "-m", "lab"]
        assert evaluating.shell.main(*words[3:], parser=evaluate.parser()).code == 0
        assert {" ".join(line.split()[:2]) for line in evaluating.ran()} == {made}


def test_the_machine_readable_output_is_one_object_with_all_numbers(evaluating: Evaluating) -> None:
    done = evaluating("q1", "--seeds", "2", "--json")
    assert done.err == ""
    told = json.loads(done.out, parse_constant=lambda word: pytest.fail(word))
    [figure] = told["figures"]
    means = figure["series"][TREES]
    assert [mean["x"] for mean in means] == [0.1, 1.0, None]
    assert [mean["mean"] for mean in means] == pytest.approx([1.015] * 3)
    [beside] = figure["beside"]
    assert (beside["paper"], beside["target"], beside["verdict"]) == (1.04, 1.02, "met")
    assert figure["missing"] == 0
    for path in (told["report"], told["markdown"], figure["plot"], figure["results"]):
        assert Path(path).is_file()


# --- mistakes, and leaving early -------------------------------------------------------------


def test_an_unknown_name_is_told_the_known_ones(evaluating: Evaluating) -> None:
    done = evaluating("q9")
    assert done.code == 2
    assert "no experiment 'q9'; choose one of q2, q1, or all" in done.err
    assert not evaluating.output.exists()


def test_a_folder_that_is_not_there_is_refused(evaluating: Evaluating) -> None:
    done = evaluating("q1", "--data", str(evaluating.shell.folder / "nowhere"))
    assert done.code == 2
    assert "nowhere is no directory" in done.err
    assert not evaluating.output.exists()


def test_an_unknown_data_set_is_told_those_there_are(evaluating: Evaluating) -> None:
    done = evaluating("q1", "--on", "netflix")
    assert done.code == 2
    assert "no data set 'netflix' here; choose one of clicks" in done.err


def test_two_data_sets_of_one_name_are_refused(
    evaluating: Evaluating, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["lab.experiments"]
    monkeypatch.setattr(module, "data_sets", lambda *_, **__: [Data("a"), Data("a", "other")])
    done = evaluating("q1")
    assert done.code == 2
    assert "two data sets 'a'" in done.err


def test_an_experiment_that_concerns_no_data_set_says_so(evaluating: Evaluating) -> None:
    done = evaluating("q2")
    assert done.code == 2
    assert "q2 concerns none of the data sets clicks" in done.err


@pytest.mark.parametrize("seeds", ["0", "-1", "many", "1.5"])
def test_seeds_are_counted_from_one(evaluating: Evaluating, seeds: str) -> None:
    done = evaluating("q1", f"--seeds={seeds}")
    assert done.code == 2
    assert "whole number from 1 up" in done.err


def test_a_damaged_file_is_named_and_again_replaces_it(evaluating: Evaluating) -> None:
    evaluating("q1", "--seeds", "1")
    (evaluating.output / "results" / "q1-clicks.parquet").write_bytes(b"damaged")
    done = evaluating("q1", "--seeds", "1")
    assert done.code == 3
    assert "q1-clicks.parquet is damaged" in done.err
    assert evaluating("q1", "--seeds", "1", "--again").code == 0


def test_a_missing_extra_is_named(evaluating: Evaluating, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyramidion.errors.find_spec", lambda name: None)
    done = evaluating("q1")
    assert done.code == 2
    assert "pip install 'pyramidion[dev]'" in done.err


def test_a_report_does_not_replace_a_file(evaluating: Evaluating) -> None:
    evaluating.output.write_text("mine")
    assert evaluating("q1").code == 2
    assert evaluating.output.read_text() == "mine"


def test_a_stopped_run_says_what_is_kept_and_goes_on(
    evaluating: Evaluating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOPS", "1.0")
    done = evaluating("q1", "--seeds", "1")
    assert done.code == 130
    assert "stopped with 1 of 3 jobs of q1-clicks done" in done.err
    monkeypatch.delenv("STOPS")
    evaluating.ran()
    assert evaluating("q1", "--seeds", "1").code == 0
    assert [line.split()[2] for line in evaluating.ran()] == ["1.0", "inf"]


PROCESS = """
import sys
from pathlib import Path
import pytest
from lab.__main__ import parser
from pyramidion.cli import main
from tests.lab.test_lab import installed

with pytest.MonkeyPatch.context() as patch:
    installed(Path(sys.argv[1]), patch)
    sys.exit(main(sys.argv[2:], parser()))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 130)])
def test_a_run_that_was_ended_goes_on_where_it_was(
    evaluating: Evaluating, root: Path, number: signal.Signals, code: int
) -> None:
    words = ["q1", "--seeds", "1", "--output", str(evaluating.output)]
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(evaluating.log), *words],
        cwd=root,
        env=os.environ | {"BLOCKS": "1.0"},
        stderr=subprocess.PIPE,
        text=True,
    )
    while evaluating.log.read_text().count("\n") < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert "Traceback" not in told
    evaluating.ran()
    assert main(words, evaluate.parser()) == 0
    assert [line.split()[2] for line in evaluating.ran()] == ["1.0", "inf"]


# --- all figures, within a time ------------------------------------------------------------------


def test_nothing_new_begins_when_the_time_is_over_and_the_next_run_goes_on(
    evaluating: Evaluating, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = iter([0.0, *[10.0] * 3, *[4_000.0] * 99])  # seconds; two jobs begin
    monkeypatch.setattr(evaluate, "time", types.SimpleNamespace(**vars(time)))
    monkeypatch.setattr(evaluate.time, "perf_counter", lambda: next(passed))
    done = evaluating("all")
    assert evaluating.ran() == ["q1 clicks 0.1 0", "q1 clicks 1.0 0"]
    assert "1 job left: give the command again to go on" in done.err
    assert "Unfinished: 1 of its jobs" in (evaluating.output / "report.md").read_text()
    monkeypatch.setattr(evaluate.time, "perf_counter", time.perf_counter)
    evaluating("all")
    assert evaluating.ran() == ["q1 clicks inf 0"]


def test_no_figure_takes_the_time_of_those_after_it_and_what_is_left_of_it_is_shared(
    evaluating: Evaluating, monkeypatch: pytest.MonkeyPatch
) -> None:
    (evaluating.shell.folder / "movielens").mkdir()
    words = ["--seeds", "1", "--data", str(evaluating.shell.folder)]
    evaluating("q1", "--on", "clicks", *words)
    evaluating.ran()
    monkeypatch.setattr(evaluate, "time", types.SimpleNamespace(**vars(time)))
    a_job = 100.0  # seconds
    clock = lambda: a_job * evaluating.log.read_text().count("\n")  # noqa: E731
    monkeypatch.setattr(evaluate.time, "perf_counter", clock)
    done = evaluating("all", "--within", "400s", *words)
    assert [line.rpartition(" ")[0] for line in evaluating.ran()] == [
        *(
            "q2 movielens 0.1",
            "q2 movielens 1.0",
        ),  # a third of the time, and the job that it ends in
        "q1 movielens 0.1",  # half of what was left; clicks need nothing of it
        "q2 movielens inf",  # again
    ]
    assert "2 jobs left" in done.err
    monkeypatch.setattr(evaluate.time, "perf_counter", time.perf_counter)
    evaluating("all", *words)
    assert [line.split()[2] for line in evaluating.ran()] == ["1.0", "inf"]


A_JOB = 290.0  # seconds: of a quick run's five minutes, what is left are ten


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (["q1", "--seeds", "30"], 90),
        (["q1", "--seeds", "30", "--within", "5m"], 2),
        (["all", "--seeds", "30"], 13),
        (["q1", "--seeds", "30", "--quick"], 2),
        (["all", "--seeds", "30", "--quick"], 2),
        (["all", "--seeds", "30", "--quick", "--within", "1h"], 13),
    ],
)
def test_a_quick_run_has_five_minutes_all_figures_an_hour_and_one_figure_its_time(
    evaluating: Evaluating, monkeypatch: pytest.MonkeyPatch, words: list[str], jobs: int
) -> None:
    monkeypatch.setattr(evaluate, "time", types.SimpleNamespace(**vars(time)))
    clock = lambda: A_JOB * evaluating.log.read_text().count("\n")  # noqa: E731
    monkeypatch.setattr(evaluate.time, "perf_counter", clock)
    done = evaluating(*words)
    assert done.code == 0, done.err
    assert len(evaluating.ran()) == jobs
    assert ("left: give the command again" in done.err) == (jobs < 30)


@pytest.mark.parametrize("told", ["0s", "soon"])
def test_no_time_is_refused_and_nothing_is_measured(evaluating: Evaluating, told: str) -> None:
    done = evaluating("q1", "--within", told)
    assert done.code == 2
    assert "the time" in done.err
    assert evaluating.ran() == []


def test_the_help_says_how_long_it_takes(evaluating: Evaluating) -> None:
    told = " ".join(evaluating("--help").out.split())
    assert "5m with --quick, 1h for all" in told


def test_among_all_a_data_set_may_be_left_out_and_noise_is_drawn_once(
    evaluating: Evaluating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "NOT_AMONG_ALL", {("q1", "movielens")})
    (evaluating.shell.folder / "movielens").mkdir()
    evaluating("all", "--data", str(evaluating.shell.folder))
    ran = evaluating.ran()
    assert not any(line.startswith("q1 movielens") for line in ran)
    assert {line.split()[-1] for line in ran} == {"0"}
    text = (evaluating.output / "report.md").read_text()
    assert "--on clicks" in text
    assert "--seeds 1 --clicks 300000" in text  # what one figure alone would not take


def test_among_all_a_figure_has_what_it_needs_and_what_was_measured_alone(
    evaluating: Evaluating, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Experiment._job

    def thinned(self: Experiment, data: Data, x: float, seed: int) -> Job:
        return replace(real(self, data, x, seed), more=x == 0.1)

    monkeypatch.setattr(Experiment, "_job", thinned)
    words = ["--seeds", "1", "--json"]
    assert evaluating("all", *words).told["figures"][0]["missing"] == 0
    assert [line.split()[2] for line in evaluating.ran()] == ["1.0", "inf"]
    evaluating("q1", *words)
    assert [line.split()[2] for line in evaluating.ran()] == ["0.1"]
    again = evaluating("all", *words).told["figures"][0]
    assert evaluating.ran() == []
    monkeypatch.setattr(Experiment, "_job", lambda *a: replace(real(*a), more=True))
    evaluating("all", "--quick", *words)
    assert len(evaluating.ran()) == 1  # a quick run has few anyhow
    assert [mean["x"] for mean in again["series"][TREES]] == [0.1, 1.0, None]
