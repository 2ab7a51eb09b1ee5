"""The training process: alone with the rows, silent, and gone when it must be."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from pyramidion.learn import fitting
from pyramidion.learn.fitting import DIED, LATE, Failed, Trainer
from pyramidion.learn.jobs import fit
from pyramidion.learn.recipes import packages_of, recipe_of
from tests.learn.parrots import Parrot, Timer, parrots, ranks

X = np.random.default_rng(0).random((400, 3)).astype(np.float32)
Y = (X[:, 0] > 0.5).astype(np.int64)
LONG = 240.0  # seconds; a busy machine may need many of them to fork
AHEAD = {"sklearn.linear_model", "tests.learn.parrots"}

WATCH = """
import os, sys
def told(event, given, file=os.open({file!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)):
    if event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR):
        os.write(file, f"{{given[0]}}\\n".encode())
    if event in ("os.mkdir", "os.rename", "subprocess.Popen", "os.posix_spawn"):
        os.write(file, f"{{event}} {{given}}\\n".encode())
sys.addaudithook(told)
"""


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    with parrots():
        made = Trainer()
        made._modules |= AHEAD
        yield made
        made.close()


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "note"


def job(estimator: Any) -> Any:
    return partial(fit, recipe_of(estimator), X, [0, 2], Y)


def told(note: Path, what: str) -> Any:
    """A parrot that does something before it learns."""
    file = note.with_name(what)
    file.write_text(what)
    return job(Parrot(str(file)))


def until(happens: Any) -> None:
    """Wait for something that takes a moment."""
    for _ in range(int(LONG * 20)):
        if happens():
            return
        time.sleep(0.05)
    pytest.fail("it never happened")


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet asked after does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# --- answers ------------------------------------------------


def test_what_is_learned_there_is_what_is_learned_here(trainer: Trainer) -> None:
    estimator = LogisticRegression(C=0.5)
    (found,) = trainer.run([job(estimator)], packages_of(recipe_of(estimator)), LONG)
    assert np.array_equal(found.coef_, estimator.fit(X[:, [0, 2]], Y).coef_)


def test_each_piece_fails_alone(trainer: Trainer, note: Path) -> None:
    what = ["raise", "unpicklable", "nothing", "die", "print", "exit", "huge"]
    found = trainer.run([told(note, each) for each in what], AHEAD, LONG)
    failed = {each: one.why for each, one in zip(what, found, strict=True) if type(one) is Failed}
    assert failed.pop("unpicklable").startswith("it failed with")
    assert failed == {"raise": "it failed with ValueError", "die": DIED, "exit": DIED}
    learned = [one.y_ for one in found if isinstance(one, Parrot)]
    assert all(np.array_equal(y, Y) for y in learned)
    assert len(found[-1].held_) == 4_000_000


def test_one_that_takes_too_long_is_given_up_and_the_next_is_not(
    trainer: Trainer, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer.run([job(Parrot())], AHEAD, LONG)
    before = trainer._process
    Timer.asleep = note.with_name("sleep.asleep")
    monkeypatch.setattr(fitting.threading, "Timer", Timer)
    found = trainer.run([told(note, "sleep"), job(Parrot())], AHEAD, LONG)
    assert found[0] == Failed(LATE)
    assert isinstance(found[1], Parrot)
    assert before is not None
    assert not alive(before.pid)


def test_an_answer_that_comes_as_its_time_is_over_is_late_and_the_next_is_not(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst moment: it is here, and before anybody has said so the process is killed."""
    made: list[threading.Timer] = []

    class Watched(threading.Timer):
        def start(self) -> None:
            made.append(self)

    def ends(*given: Any) -> Any:
        answer = real(*given)
        if isinstance(answer, Parrot) and not late:
            late.append(answer)
            made[-1].function()
        return answer

    real, late = fitting._receive, list[Parrot]()
    trainer.run([job(Parrot())], AHEAD, LONG)
    monkeypatch.setattr(fitting.threading, "Timer", Watched)
    monkeypatch.setattr(fitting, "_receive", ends)
    first, second = trainer.run([job(Parrot()), job(Parrot())], AHEAD, LONG)
    assert first == Failed(LATE)
    assert isinstance(second, Parrot)
    made[-1].function()  # all is over, so this one says nothing
    (after,) = trainer.run([job(Parrot())], AHEAD, LONG)
    assert isinstance(after, Parrot)


def test_what_is_given_to_all_is_shared_by_all(trainer: Trainer, note: Path) -> None:
    trainer.run([job(Parrot())], AHEAD, LONG)  # it is there, so that nothing else takes time
    began = time.monotonic()
    found = trainer.run([told(note, "sleep")] * 4, AHEAD, 2.0)
    assert [each.why for each in found] == [LATE] * 4
    assert trainer._left < 0.1
    assert time.monotonic() - began >= 2.0


def test_nothing_that_is_printed_there_is_seen_here(
    trainer: Trainer, note: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (found,) = trainer.run([told(note, "print")], AHEAD, LONG)
    assert isinstance(found, Parrot)
    assert capfd.readouterr() == ("", "")


def test_a_process_that_was_killed_meanwhile_is_started_again(trainer: Trainer) -> None:
    trainer.run([job(Parrot())], AHEAD, LONG)
    assert trainer._process is not None
    os.kill(trainer._process.pid, signal.SIGKILL)
    until(lambda: trainer._process is None or trainer._process.poll() is not None)
    (found,) = trainer.run([job(Parrot())], AHEAD, LONG)
    assert isinstance(found, Parrot)


def test_without_work_no_process_is_started() -> None:
    trainer = Trainer()
    assert trainer.run([], set(), LONG) == []
    assert trainer._process is None


# --- the rows end with the child ------------------------------------------------


def test_training_process_keeps_others_out_of_its_memory(trainer: Trainer) -> None:
    (found,) = trainer.run([guarded_here], AHEAD, LONG)
    assert found == (0, (0, 0))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads the memory of a training process")
def test_the_waiting_process_holds_no_row_and_its_child_is_gone(trainer: Trainer) -> None:
    (found,) = trainer.run([job(Parrot())], AHEAD, LONG)
    assert isinstance(found, Parrot)
    assert trainer._process is not None
    pid = trainer._process.pid
    until(lambda: not children(pid))
    row = X[17].tobytes()
    assert row in X.tobytes()
    assert not any(row in part for part in memory(pid))


def guarded_here() -> tuple[int, tuple[int, int]]:
    """Whether this process may be dumped, and how large a core file of it may be."""
    dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)  # PR_GET_DUMPABLE
    return dumpable, resource.getrlimit(resource.RLIMIT_CORE)


def memory(pid: int) -> Iterator[bytes]:
    """What a process has in writable memory."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            start, stop = (int(each, 16) for each in place.split("-"))
            if rights.startswith("rw") and "[v" not in line:
                file.seek(start)
                yield file.read(stop - start)


def test_no_file_is_written_and_no_other_process_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, watch = tmp_path / "seen", WATCH.format(file=str(tmp_path / "seen"))
    monkeypatch.setattr(fitting, "BEGIN", f"{watch}\n{fitting.BEGIN}")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    many = [
        BaggingClassifier(LogisticRegression(), n_estimators=2, n_jobs=2),
        GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, n_jobs=2, cv=2),
    ]
    big = np.tile(X, (500, 1))  # what joblib would hand to other processes in files
    work = [partial(fit, recipe_of(each), big, [0, 1, 2], np.tile(Y, 500)) for each in many]
    trainer = Trainer()
    monkeypatch.chdir(tmp_path)
    found = trainer.run(work, {"sklearn.ensemble", "sklearn.model_selection"}, LONG)
    trainer.close()
    assert [type(each) for each in found] == [BaggingClassifier, GridSearchCV]
    lines = [line for line in seen.read_text().splitlines() if line != os.devnull]
    assert [line for line in lines if not line.isdigit()] == []  # numbers are pipes
    assert os.listdir(tmp_path) == ["seen"]


# --- the ends ------------------------------------------------


def test_closing_ends_what_is_under_way_and_nothing_is_begun_any_more(note: Path) -> None:
    with parrots(), ThreadPoolExecutor(1) as beside:
        trainer = Trainer()
        trainer._modules |= AHEAD
        work = beside.submit(trainer.run, [told(note, "sleep"), job(Parrot())], AHEAD, LONG)
        until(note.with_name("sleep.asleep").exists)
        assert trainer._ready is not None
        pids = [trainer._ready.pid, *children(trainer._ready.pid)]
        trainer.close()
        assert work.result(LONG) == [Failed(DIED), Failed(DIED)]
        until(lambda: not any(map(alive, pids)))
        assert trainer.run([job(Parrot())], AHEAD, LONG) == [Failed(DIED)]
        assert trainer._process is None


def test_closing_while_the_process_is_being_started_leaves_none(monkeypatch: Any) -> None:
    trainer, real, timed = Trainer(), subprocess.Popen, Trainer._timed
    closing = threading.Thread(target=trainer.close)
    started: list[Any] = []

    def slow(*given: Any, **named: Any) -> Any:
        closing.start()
        closing.join(0.2)  # it has to wait for this one
        started.append(real(*given, **named))
        return started[0]

    def once_closed(*given: Any) -> Any:
        closing.join(LONG)
        return timed(*given)

    monkeypatch.setattr(fitting.subprocess, "Popen", slow)
    monkeypatch.setattr(Trainer, "_timed", once_closed)
    assert trainer.run([job(LogisticRegression())], set(), LONG) == [Failed(DIED)]
    until(lambda: not alive(started[0].pid))


KILLED = """
import os, sys, threading, time
from functools import partial
import numpy as np
from pyramidion.learn import fitting
from pyramidion.learn.jobs import fit
from pyramidion.learn.recipes import recipe_of
from tests.learn.parrots import Parrot, Timer, parrots, ranks
with parrots():
    trainer = fitting.Trainer()
    X, y = np.ones((9, 2), np.float32), np.ones(9)
    trainer.run([partial(fit, recipe_of(Parrot()), X, [0], y)], {"tests.learn.parrots"}, 300)
    if "forked" in sys.argv[2] and os.fork() == 0:
        time.sleep(600)  # with the store's end of the pipe
        os._exit(0)
    print(trainer._process.pid, flush=True)
    if "busy" in sys.argv[2]:
        trainer.run([partial(fit, recipe_of(Parrot(sys.argv[1])), X, [0], y)], set(), 300)
    sys.stdin.read()
"""


@pytest.mark.parametrize("when", ["busy", "busy and forked", "idle and forked"])
def test_when_the_store_is_killed_nothing_goes_on(when: str, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("sleep")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "note"), when]
    path = os.pathsep.join(each for each in sys.path if each)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as store:
        assert store.stdout is not None
        waiting = int(store.stdout.readline())
        if "busy" in when:
            until((tmp_path / "note.asleep").exists)
        pids = [waiting, *(children(waiting) if "busy" in when else ())]
        assert all(map(alive, pids))
        assert len(pids) > 1 or "idle" in when
        os.kill(store.pid, signal.SIGKILL)
        try:
            until(lambda: not any(map(alive, pids)))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(store.pid, signal.SIGKILL)


@pytest.mark.parametrize("aside", [True, False])
def test_a_child_gives_way_to_everybody_where_it_may_come_back(aside: bool) -> None:
    (jobs, given), (told, answers) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(jobs, 0)
        os._exit(fitting._answer(answers, aside))
    with open(given, "wb") as stream:
        fitting._send(stream, fitting._packed([partial(os.sched_getscheduler, 0)]))
    with open(told, "rb", buffering=0) as stream:
        assert fitting._receive(stream) == (os.SCHED_IDLE if aside else os.SCHED_BATCH)
    assert os.waitpid(child, 0)[1] == 0
    os.close(jobs)
    os.close(answers)


def test_a_child_that_starves_takes_turns(trainer: Trainer) -> None:
    if not fitting._may_come_back():
        pytest.skip("who is in the idle class may not leave it here: needs CAP_SYS_NICE")
    trainer.run([job(Parrot())], AHEAD, LONG)
    child = trainer._process
    assert child is not None
    core = {min(os.sched_getaffinity(0))}  # one core, on which others always run
    usual = os.sched_getaffinity(child.pid)
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(2)]
    try:
        for each in (*busy, child):
            os.sched_setaffinity(each.pid, core)
        (later,) = trainer.run([partial(ranks, LONG)], AHEAD, LONG)
        with suppress(ProcessLookupError):  # it may have been let go of since
            os.sched_setaffinity(child.pid, usual)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert later == {os.SCHED_BATCH}


def test_a_child_that_gets_on_is_left_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([(80, 20), (160, 40), (170, 80)])
    turns: list[int] = []
    monkeypatch.setattr(fitting, "_spent", lambda _: next(spent))
    monkeypatch.setattr(fitting, "SPELL", -1.0)
    monkeypatch.setattr(fitting.Pace, "_take_turns", lambda self: turns.append(self._child))
    pace = fitting.Pace(7)
    pace.look()
    pace.look()
    assert not turns
    pace.look()
    pace.look()
    assert turns == [7]


def test_who_is_not_told_how_a_child_gets_on_lets_it_take_turns() -> None:
    ran, waited = fitting._spent(2**30)
    assert waited > ran


def test_where_the_idle_class_could_not_be_left_it_is_not_entered() -> None:
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.setgid(65_534)
            os.setuid(65_534)
            os._exit(int(fitting._may_come_back()))
        os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 2 or resource.getrlimit(resource.RLIMIT_NICE)[0] > 0:
        pytest.skip("becoming nobody, without a right to rise in rank, needs root")
    assert code == 0
