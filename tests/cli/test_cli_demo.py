from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyramidion.demo import flights
from pyramidion.demo.models import NAMES
from tests.cli.shell import Shell
from tests.waiting import PATIENCE

FILES = ["exposure.png", "loss.png", "pyramid.png"]
MONTHS = ["January", "February", "March"]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of one flight in thirty."""
    whole = flights.load()
    some = replace(whole, rows=whole.rows.take(np.arange(0, whole.rows.num_rows, 30)))
    monkeypatch.setattr(flights, "load", lambda: some)


def test_the_demo_prints_a_line_for_each_month_and_leaves_plots_alone(
    shell: Shell, scratch: Path, few: None
) -> None:
    told = shell.main("demo", "--quick", "--output", str(shell.folder / "plots"))
    assert told.code == 0, told.err
    lines = [told.out[told.out.index(f"\n{name}") :].split() for name in MONTHS]
    assert lines[0][2:9] == ["-"] * 7
    for line in lines[1:]:
        assert all(0.1 < float(word) < 2 for word in line[2:9])
        assert line[13] == "1"  # ε
    assert "An attacker at the end sees" in told.out
    assert all(f"\n{name}: " in told.out for name in NAMES)
    assert not list(scratch.iterdir())
    assert sorted(path.name for path in (shell.folder / "plots").iterdir()) == FILES


# --- all flights of three months -----------------------------------------------------------


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("demo")
    scratch = folder / "scratch"
    scratch.mkdir()
    words = [sys.executable, "-m", "pyramidion", "demo", "--quick", "--json"]
    done = subprocess.run(
        [*words, "--output", str(folder / "plots")],
        env=os.environ | {"TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert not list(scratch.iterdir())
    return json.loads(done.stdout)


def test_private_models_stay_within_five_per_cent_of_raw_ones(quick: Any) -> None:
    for name in NAMES:
        assert quick["models"][name]["within"]
        assert 0.9 < quick["models"][name]["ratio"] <= 1.05


def test_private_models_know_more_than_the_class_rate(quick: Any) -> None:
    for month in quick["months"][1:]:
        assert all(month["losses"][name]["private"] < month["prior"] for name in NAMES)


def test_the_machine_readable_table_has_what_the_printed_one_has(quick: Any) -> None:
    assert [month["name"] for month in quick["months"]] == MONTHS
    assert quick["flights"] == quick["months"][-1]["exposure"]["collected"] == 77_911
    last = quick["months"][-1]
    assert last["exposure"]["hot"] < 0.2 * last["exposure"]["collected"]
    assert last["exposure"]["gone"] > 0
    assert [month["epsilon"] for month in quick["months"]] == [1.0] * 3
    assert {window["epsilon"] for window in quick["windows"]} == {1.0}
    assert sorted(Path(path).name for path in quick["plots"]) == FILES


# --- mistakes, and leaving early -------------------------------------------------------------


def test_a_missing_extra_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyramidion.errors.find_spec", lambda name: None)
    done = shell.main("demo", "--output", str(shell.folder / "plots"))
    assert done.code == 2
    assert "pip install 'pyramidion[demo]'" in done.err
    assert not (shell.folder / "plots").exists()


def test_an_impossible_epsilon_is_refused_before_anything_is_made(shell: Shell) -> None:
    done = shell.main("demo", "--epsilon", "0", "--output", str(shell.folder / "plots"))
    assert done.code == 2
    assert "'epsilon'" in done.err
    assert not (shell.folder / "plots").exists()


def test_plots_do_not_replace_a_file(shell: Shell) -> None:
    file = shell.folder / "plots"
    file.write_text("mine")
    assert shell.main("demo", "--quick", "--output", str(file)).code == 2
    assert file.read_text() == "mine"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [sys.executable, "-m", "pyramidion", "demo", "--output", str(tmp_path / "plots")]
    process = subprocess.Popen(
        words,
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # behind `&` it is ignored
    )
    while not list(scratch.glob("*/store/hot/*.rows")):  # rows are there
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in told
    assert not list(scratch.iterdir())
