"""Models are trained in a process of their own.

    store ──jobs──► waiting process ──fork──► child: reads the jobs, fits, answers, is gone
      ▲                                                          │
      └──────────────────────── answers ─────────────────────────┘

The waiting process has everything imported and never reads a row: the child it forks reads
the jobs from standard input itself, and all it knew of the rows ends with it. It watches both
sides, so that no child goes on when the store is gone. A store that waits too long kills both;
what was answered by then counts, and the rest goes to a new process.

Jobs and answers are pickles between two processes of one program, and are written nowhere.
What estimators print is thrown away, and of their errors only the kind is told: both may
quote rows. Those that work in parallel do so in threads: joblib's processes would be handed
rows in temporary files, and outlive the child.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from joblib import parallel_config  # type: ignore[import-untyped]

from pyramidion.config.process_memory import protect
from pyramidion.workers import BEHIND

HEAD = 8  # bytes of a length
POLL, IDLE = 20, 1_000  # milliseconds between two looks at the child, and at the store
BEGINS = 60.0  # seconds that a process may take to begin
SOON = 5.0  # seconds that a child has to be gone after its last answer
SPELL = 0.2  # seconds between two looks whether a child that gives way gets on
LATE = "it took longer than `train_within` allows"
JOBS = "pyramidion.learn.jobs"
DIED = "the training process died"

BEGIN = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); import {__name__} as f; f.main()"
"""Modules are found where this process finds them."""

T = TypeVar("T")
Work = Callable[[], T]


@dataclass(frozen=True)
class Failed:
    """That a piece of work came to nothing."""

    why: str


class Trainer:
    """The waiting process, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: subprocess.Popen[bytes] | None = None
        self._modules = {JOBS}
        self._starting = threading.RLock()
        self._closed = False
        self._late = False
        self._left = self._begins = 0.0
        """Seconds that the work under way may take yet."""

    def run(self, work: Sequence[Work[T]], modules: set[str], within: float) -> list[T | Failed]:
        """Do pieces of work in a child process; each gives its result or why it has none.

        A piece is a picklable callable. ``modules`` are imported ahead, ``within`` is in seconds
        and for all: each piece may take an equal part of what is left. One that ends the process,
        or takes too long, fails alone.
        """
        found: list[T | Failed] = []
        self._left, self._begins = within, max(within, BEGINS)
        while len(found) < len(work):
            found += self._some(work[len(found) :], modules)
        return found

    def _some(self, work: Sequence[Work[T]], modules: set[str]) -> list[T | Failed]:
        """The results up to the first piece that ended the process."""
        found: list[T | Failed] = []
        self._late = False
        try:
            process = self._started(modules)
            if process is not self._ready:
                began = time.monotonic()
                with self._timed(process, max(0.0, self._begins)):
                    _receive(process.stdout)  # it has imported all it needs
                self._begins -= time.monotonic() - began
                self._ready = process
            answers = self._answers(process, work)
            for waiting in range(len(work), 0, -1):
                found.append(self._next(process, answers, waiting))
            self._see_off(process)
        except Exception:  # it was killed meanwhile, or could not be started
            self.stop()
            found.append(Failed(LATE if self._late else DIED))
        return found

    def _next(self, process: subprocess.Popen[bytes], answers: Iterator[T], waiting: int) -> T:
        began = time.monotonic()
        try:
            with self._timed(process, self._left / waiting):
                return next(answers)
        finally:
            self._left = max(0.0, self._left - (time.monotonic() - began))

    def _see_off(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the child is gone with all that it knew; or end it."""
        try:
            with self._timed(process, SOON):
                _receive(process.stdout)
        except Exception:  # it was stopped, or killed
            self.stop()

    def _answers(self, process: subprocess.Popen[bytes], work: Sequence[Work[T]]) -> Iterator[Any]:
        _send(process.stdin, _packed(list(work)))
        for _ in work:
            yield _receive(process.stdout)

    @contextmanager
    def _timed(self, process: subprocess.Popen[bytes], within: float) -> Iterator[None]:
        """Kill the process after a time; an answer that came as it was killed came too late.

        Else the next piece would be told that it took too long, which has not begun.
        """
        deciding, over = threading.Lock(), False

        def out_of_time() -> None:
            with deciding:
                if not over:
                    self._late = True
                    _kill(process)

        timer = threading.Timer(within, out_of_time)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with deciding:
                over = True
        if self._late:
            raise TimeoutError

    def _started(self, modules: set[str]) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._closed:
                raise EOFError
            if not modules <= self._modules:
                self.stop()
            if self._process is None or self._process.poll() is not None:
                self._modules |= modules
                path = json.dumps([place for place in sys.path if isinstance(place, str)])
                self._process = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-P", "-c", BEGIN, path, *sorted(self._modules)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={"OMP_WAIT_POLICY": "PASSIVE"} | os.environ,  # spinning made 2 s 20 s
                    start_new_session=True,  # Ctrl-C is for who waits
                )
            return self._process

    def close(self) -> None:
        """End for good; work that is under way comes to nothing."""
        with self._starting:
            self._closed = True
            self.stop()

    def stop(self) -> None:
        """End the waiting process and whatever it has going."""
        with self._starting:
            process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):  # what could not be sent any more
                    stream.close()
        process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _packed(thing: object) -> list[memoryview]:
    """Pickled, large arrays beside it, so that they are not copied."""
    beside: list[pickle.PickleBuffer] = []
    data = pickle.dumps(thing, protocol=5, buffer_callback=beside.append)
    return [memoryview(data), *(buffer.raw() for buffer in beside)]


def _send(stream: IO[bytes] | None, parts: list[memoryview]) -> None:
    if stream is None:
        raise EOFError
    stream.write(len(parts).to_bytes(HEAD, "little"))
    for part in parts:
        stream.write(part.nbytes.to_bytes(HEAD, "little"))
        stream.write(part)
    stream.flush()


def _receive(stream: IO[bytes] | None) -> Any:
    if stream is None:
        raise EOFError
    parts = [_whole(stream, _number(stream)) for _ in range(_number(stream))]
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 another process of this program


def _number(stream: IO[bytes]) -> int:
    return int.from_bytes(_whole(stream, HEAD), "little")


def _whole(stream: IO[bytes], length: int) -> bytearray:
    """So many bytes and not one more: what follows is for somebody else."""
    data = bytearray(length)
    view, filled = memoryview(data), 0
    while filled < length:
        read = stream.readinto(view[filled:])  # type: ignore[attr-defined]
        if not read:
            raise EOFError
        filled += read
    return data


# --- the waiting process ----------------------------------------------------------------------


def main() -> None:
    """Wait for jobs until standard input is closed."""
    protect()  # from here on it has rows
    answers = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what estimators print must not get into the answer
    for module in sys.argv[2:]:
        with suppress(Exception):  # it fails alone, when it is needed
            importlib.import_module(module)
    with open(answers, "wb", closefd=False) as stream:
        _send(stream, _packed(None))
    jobs, store = select.poll(), os.getppid()
    jobs.register(0, select.POLLIN)
    aside = _may_come_back()
    while os.getppid() == store:  # a process that the store's forked may keep the pipe open
        for _, seen in jobs.poll(IDLE):
            if not seen & select.POLLIN:
                return
            child = os.fork()
            if child == 0:
                code = _answer(answers, aside)
                os._exit(code)
            if _outlived(child, store) != 0:
                return
            with open(answers, "wb", closefd=False) as stream:
                _send(stream, _packed(None))  # it is gone


def _outlived(child: int, store: int) -> int:
    """Wait for the child; end it where the store is gone."""
    gone, pace = select.poll(), Pace(child)
    gone.register(0, 0)  # a hang-up is always told
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        pace.look()
        if gone.poll(POLL) or os.getppid() != store:
            os.kill(child, signal.SIGKILL)


def _may_come_back() -> bool:
    """Whether a process that went to the idle class may leave it again; one is sent to see."""
    child = os.fork()
    if child == 0:
        try:
            _rank(0, os.SCHED_IDLE)
            _rank(0, os.SCHED_BATCH)
        except (OSError, AttributeError):
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _rank(task: int, rank: int) -> None:
    os.sched_setscheduler(task, rank, os.sched_param(0))


class Pace:
    """How a child that gives way gets on; one that waits more than it runs takes turns.

    A machine whose processors are all wanted would starve it, and hot rows wait to be erased.
    """

    def __init__(self, child: int) -> None:
        self._child = child
        self._next = time.monotonic() + SPELL
        self._before = (0, 0)

    def look(self) -> None:
        """See to it, now and then."""
        if time.monotonic() < self._next:
            return
        self._next += SPELL
        ran, waited = _spent(self._child)
        if waited - self._before[1] >= ran - self._before[0]:
            self._next = math.inf
            self._take_turns()
        self._before = ran, waited

    def _take_turns(self) -> None:
        """Let all its threads run by turns, behind who serves."""
        with suppress(OSError):
            for task in os.listdir(f"/proc/{self._child}/task"):
                with suppress(OSError):  # gone meanwhile
                    _rank(int(task), os.SCHED_BATCH)


def _spent(child: int) -> tuple[int, int]:
    """For how long a process ran and waited to be let run; where nobody tells, it waited."""
    try:
        with open(f"/proc/{child}/schedstat") as told:
            ran, waited, _ = map(int, told.read().split())
    except (OSError, ValueError):
        return 0, 1
    return ran, waited


def _answer(answers: int, aside: bool) -> int:
    """In the child: read the jobs, do them, answer one after the other."""
    try:
        os.nice(BEHIND)  # who serves comes first, and need not wait for its turn
        # The idle class makes room whenever another wakes, the others after milliseconds. Who is in
        # it may starve, so it is left then, and not entered where that is not allowed.
        _rank(0, os.SCHED_IDLE if aside else os.SCHED_BATCH)
        with open(0, "rb", buffering=0, closefd=False) as raw:
            work = _receive(raw)
        with os.fdopen(answers, "wb") as stream, parallel_config(backend="threading"):
            for piece in work:
                _send(stream, _tried(piece))
    except BaseException:  # whatever it is, it must not be told
        return 1
    return 0


def _tried(work: Work[Any]) -> list[memoryview]:
    try:
        return _packed(work())
    except Exception as problem:
        return _packed(Failed(f"it failed with {type(problem).__name__}"))
