"""The living demo, as a process: what it prints, what it serves, and that nothing is left of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from pyramidion.cli import temporary as scratching
from pyramidion.cli.temporary import PREFIX, scratch
from pyramidion.demo.flow import BY_HAND, MODELS, STREAM
from tests.cli.shell import Shell
from tests.waiting import PATIENCE, wait_for

FEW = ["--begin", "2013-02-09", "--one-in", "30", "--pace", "20", "--port", "0"]
PROGRAM = ("-m", "pyramidion")
SHORT = (
    "-c",
    "from pyramidion import cli; from pyramidion.demo import flow; flow.LAST = 41; cli.run()",
)
"""The same, of a year that ends after the tenth of February."""
HELD = (
    "-c",
    "import time; from pyramidion import cli; from pyramidion.cli import live; "
    "live._flowing = lambda *given: time.sleep(600); cli.run()",
)
"""The same, which does not come to serve."""
FLIGHT: dict[str, Any] = {
    "carrier": "UA",
    "origin": "EWR",
    "dest": "IAH",
    "tailnum": "N1",
    "flight": "UA 7",
}
FLIGHT |= dict.fromkeys(("hour", "weekday", "precip", "visib", "wind_speed", "humid"))


def _hearing() -> None:
    """In the child: SIGINT is ignored behind `&`, SIGHUP behind nohup."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Living:
    """A `pyramidion live` of its own, whose temporary directories lie where we look."""

    def __init__(self, folder: Path, *options: str, program: Sequence[str] = PROGRAM) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *program, "live", *FEW, *options],
            env=os.environ | {"TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_hearing,
        )

    def address(self) -> tuple[str, str]:
        """Where it is, and a token, as it printed them for people."""
        told = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told += line
            found = re.search(r"look here +(\S+)/\n +log in with +(\S+)\n", told)
            if found:
                return found[1], found[2]
        raise AssertionError(self.process.stderr and self.process.stderr.read())

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """How it ended after a signal, and what it had said on stderr."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        _, told = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, told


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Living]]:
    made: list[Living] = []

    def started(*options: str, program: Sequence[str] = PROGRAM) -> Living:
        made.append(Living(tmp_path, *options, program=program))
        return made[-1]

    yield started
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


def _below(pid: int) -> list[int]:
    """The processes that a process started, and those that these did."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *_below(child)]
    return found


def _lives(pid: int) -> bool:
    """Whether there is such a process; a zombie that nobody waits for is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _listens(url: str) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) == 0


def test_flights_flow_until_ctrl_c_and_nothing_is_left(
    start: Callable[..., Living], tmp_path: Path
) -> None:
    living = start()
    url, token = living.address()
    with httpx.Client(
        base_url=f"{url}/v1/streams",
        headers={"Authorization": f"Bearer {token}"},
        timeout=PATIENCE,
    ) as caller:

        def told(path: str = "") -> Any:
            answer = caller.get(f"/{STREAM}{path}")
            assert answer.status_code == 200, answer.text
            return answer.json()

        def sealed() -> int:
            return sum(window["state"] == "sealed" for window in told()["windows"])

        first = told()
        assert first["at"] < 1_400_000_000_000_000  # by the clock of 2013
        assert first["vault"]["rows"] > 1_000
        wait_for(lambda: {m["name"] for m in told("/models")["models"]} == set(MODELS))
        wait_for(lambda: all(model["available"] for model in told("/models")["models"]))
        for model in MODELS:
            answer = caller.post(f"/{STREAM}/models/{model}/predictions", json=FLIGHT)
            assert answer.status_code == 200, answer.text
        wait_for(lambda: sealed() > sum(w["state"] == "sealed" for w in first["windows"]))
        wait_for(lambda: list(BY_HAND) in told("/groups")["groups"])
        later = told()
        assert later["at"] > first["at"]
        assert later["vault"]["rows"] > first["vault"]["rows"]
        children = _below(living.process.pid)
        assert children  # who trains
    code, said = living.end(signal.SIGINT)
    assert (code, "Traceback" in said) == (0, False), said
    assert said.endswith("stopped; all of it is removed\n")
    assert "error" not in said
    assert not list(tmp_path.iterdir())
    assert not _listens(url)
    wait_for(lambda: not any(map(_lives, children)))


def test_what_a_killed_run_left_is_removed_by_the_next_one(
    start: Callable[..., Living], tmp_path: Path
) -> None:
    killed = start()
    url, _ = killed.address()
    children = _below(killed.process.pid)
    assert killed.end(signal.SIGKILL)[0] == -signal.SIGKILL
    left = set(tmp_path.iterdir())
    assert len(left) == 2  # the data, and the keys elsewhere
    wait_for(lambda: not any(map(_lives, children)))
    assert not _listens(url)

    again = start("--for", "0.5")
    again.address()
    assert not left & set(tmp_path.iterdir())
    code, said = again.ended()
    assert code == 0, said
    assert said.startswith("removed 2 directories that an earlier run left when it was killed\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_it_is_stopped_before_it_serves(
    start: Callable[..., Living], tmp_path: Path, number: signal.Signals
) -> None:
    living = start(program=HELD)
    wait_for(
        lambda: list(tmp_path.glob("*/data/*/catalogue.db")) or living.process.poll() is not None
    )
    assert living.process.poll() is None
    code, said = living.end(number)
    assert (code, "Traceback" in said) == (130, False), said
    assert not list(tmp_path.iterdir())


def test_programs_read_a_line_for_each_day_and_a_year_ends(start: Callable[..., Living]) -> None:
    living = start("--json", "--for", "3000", program=SHORT)
    assert living.process.stdout is not None
    lines = [json.loads(living.process.stdout.readline()) for _ in range(4)]
    assert set(lines[0]) == {"url", "token"}
    assert [line["at"][:10] for line in lines[1:3]] == ["2013-02-09", "2013-02-10"]
    assert set(lines[1]) == {"at", "hot", "summarised", "sealed", "gone", "epsilon"}
    assert lines[3] == {"over": True}
    bearer = {"Authorization": f"Bearer {lines[0]['token']}"}
    with httpx.Client(headers=bearer, timeout=PATIENCE) as caller:
        answer = caller.get(f"{lines[0]['url']}/v1/streams/{STREAM}")  # it is served yet
    assert answer.json()["hot_rows"] > 0
    assert living.end(signal.SIGTERM) == (0, "")


# --- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        (["--pace", "0"], "must be a number of days above 0"),
        (["--pace", "nan"], "must be a number of days above 0"),
        (["--begin", "2014-01-01"], "must be a date from 2013-02-01 to 2013-12-31"),
        (["--one-in", "0"], "must be a whole number from 1"),
        (["--for", "soon"], "must be a number of seconds above 0"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    shell: Shell, option: list[str], rule: str
) -> None:
    done = shell.main("live", *option)
    assert done.code == 2
    assert rule in done.err


def test_a_port_that_was_asked_for_is_not_replaced_by_another(start: Callable[..., Living]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = start("--port", str(taken.getsockname()[1])).ended()
    assert code == 3
    assert said.endswith("is taken or not ours; choose another\n")


# --- temporary directories -----------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_directories_of_runs_that_live_are_left_alone(place: Path) -> None:
    said: list[str] = []
    with scratch(1, said.append) as (mine,):
        (mine / "rows").touch()
        with scratch(1, said.append) as (other,):
            assert (mine / "rows").exists()
            assert other != mine
    assert not said
    assert not list(place.iterdir())


def test_an_empty_directory_is_left_to_who_is_about_to_lock_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / f"{PREFIX}young").mkdir()
    said: list[str] = []
    with scratch(1, said.append):
        assert (place / f"{PREFIX}young").exists()
    monkeypatch.setattr(scratching, "YOUNG", -1.0)
    with scratch(1, said.append):
        assert not (place / f"{PREFIX}young").exists()
    assert said == ["removed a directory that an earlier run left when it was killed"]


def test_a_link_to_elsewhere_is_not_followed(place: Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").touch()
    (place / f"{PREFIX}link").symlink_to(elsewhere)
    with scratch(1, print):
        pass
    assert (elsewhere / "mine").exists()


def test_who_asks_while_directories_are_made_is_heard_once_they_can_be_removed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, before = scratching._locked, signal.getsignal(signal.SIGTERM)

    def interrupted(made: Path) -> int:
        signal.raise_signal(signal.SIGTERM)
        return real(made)

    monkeypatch.setattr(scratching, "_locked", interrupted)
    with pytest.raises(KeyboardInterrupt), scratch(2, print):
        raise AssertionError("it was not heard")
    assert not list(place.iterdir())
    assert signal.getsignal(signal.SIGTERM) is before
