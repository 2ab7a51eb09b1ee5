"""Observations of many senders, who share commits: a bounded queue and one thread of a stream.

    senders ── submit ──► waiting ──► one group ── observe_all ──► each has its answer
                             ▲                          │
                             └── more come meanwhile ◄──┘

A commit costs about the same for one row as for hundreds, so while one is under way the next
group gathers: nobody waits for a timer when nobody else is there. Senders who wait for their
answers send again all at once; so after a group of several the thread lingers until as many are
there again, or none has come for a fraction of a commit.

The queue is bounded by requests, rows and bytes. Who finds it full is told when to come back.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy
from typing import NamedTuple

from pyramidion.errors import BusyError, PyramidionError
from pyramidion.storage.hot import Receipt
from pyramidion.store.batching import Arrival

ObserveAll = Callable[[Sequence[Arrival]], Sequence[Receipt | PyramidionError]]

GROUP_ROWS = 20_000  # of one group, unless a single request has more: others wait for it
GROUP_REQUESTS = 1_000
LINGER = 0.5  # of a commit's time since the last one came
MOST_LINGER = 0.03  # seconds in all
NEWEST = 0.2  # weight of the newest commit in the pace that is told
MOST_RETRY = 60  # seconds


class Request(NamedTuple):
    """One sender's arrival, and where the answer goes."""

    arrival: Arrival
    rows: int
    size: int
    answer: Future[Receipt]


class Load(NamedTuple):
    """What waits or is being committed."""

    requests: int = 0
    rows: int = 0
    size: int = 0

    def plus(self, rows: int, size: int, requests: int = 1) -> Load:
        """With more."""
        return Load(self.requests + requests, self.rows + rows, self.size + size)

    def exceeds(self, most: Load) -> bool:
        """Whether there is more of anything."""
        return self.requests > most.requests or self.rows > most.rows or self.size > most.size


class Commits:
    """Gathers what is submitted into groups; ``observe_all`` is that of the stream's store."""

    def __init__(
        self, observe_all: ObserveAll, *, most_requests: int, most_rows: int, most_bytes: int
    ) -> None:
        self._observe_all = observe_all
        self._most = Load(most_requests, most_rows, most_bytes)
        self._waiting: deque[Request] = deque()
        self.load = Load()
        """What waits or is being committed."""
        self._changed = threading.Condition()
        self._closed = False
        self._former = 1
        """Requests of the last group and those that came meanwhile, or half of what it was before.

        That is how many send by turns; two groups of them by turns become one again."""
        self.committed: Callable[[int], None] = lambda _: None
        """Told how many requests shared each commit, for the metrics."""
        self._pace, self._took = 0.0, 0.0
        """Seconds for a request, and for a group, of late."""
        self._thread = threading.Thread(target=self._run, name="pyramidion commits", daemon=True)
        self._thread.start()

    # --- by senders ---------------------------------------------------------------------

    def submit(self, arrival: Arrival, rows: int, size: int) -> Future[Receipt]:
        """Have an arrival observed with the next group; the promise is kept when it is durable.

        Raises `BusyError` when there is no room; one that comes alone has room, however large.
        """
        promise: Future[Receipt] = Future()
        request = Request(arrival, rows, size, promise)
        with self._changed:
            if self._closed:
                raise BusyError("this stream is being closed; send the observations again later")
            load = self.load.plus(rows, size)
            if self.load.requests and load.exceeds(self._most):
                raise self._busy()
            self.load = load
            self._waiting.append(request)
            if len(self._waiting) == 1 or self._as_many_again():  # who lingers is not woken by each
                self._changed.notify_all()
        return promise

    def _busy(self) -> BusyError:
        seconds = min(max(1, math.ceil(self.load.requests * self._pace)), MOST_RETRY)
        return BusyError(
            f"as many observations wait for this stream as it takes; send them again in "
            f"{seconds} seconds",
            retry_after=seconds,
        )

    def close(self) -> None:
        """Take no more; return when all that was submitted is answered."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    # --- by the thread ------------------------------------------------------------------

    def _run(self) -> None:
        while self._turn():
            pass

    def _turn(self) -> bool:
        """One group; False when there will be no more. Keeps no row once it is over."""
        group = self._gathered()
        if not group:
            return False
        began = time.monotonic()
        # Who has given up waiting is not observed.
        running = [each for each in group if each.answer.set_running_or_notify_cancel()]
        answers = self._answers([each.arrival for each in running]) if running else []
        self._settle(group, time.monotonic() - began)
        self.committed(len(group))
        for each, answer in zip(running, answers, strict=True):
            if isinstance(answer, BaseException):
                each.answer.set_exception(answer)
            else:
                each.answer.set_result(answer)
        return True

    def _gathered(self) -> list[Request]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._former > 1:
                self._linger()
            group: list[Request] = []
            rows = 0
            while self._waiting and len(group) < GROUP_REQUESTS:
                rows += self._waiting[0].rows
                if group and rows > GROUP_ROWS:
                    break
                group.append(self._waiting.popleft())
            return group

    def _linger(self) -> None:
        """Wait for more, as long as more come."""
        until, there = time.monotonic() + MOST_LINGER, 0
        while there < len(self._waiting) and time.monotonic() < until:
            there = len(self._waiting)
            if self._changed.wait_for(self._as_many_again, min(LINGER * self._took, MOST_LINGER)):
                return

    def _as_many_again(self) -> bool:
        return self._closed or len(self._waiting) >= self._former

    def _answers(self, arrivals: list[Arrival]) -> Sequence[Receipt | BaseException]:
        """One for each, whatever happens."""
        try:
            answers = self._observe_all(arrivals)
            if len(answers) == len(arrivals):
                return answers
            raise RuntimeError(f"{len(arrivals)} arrivals have {len(answers)} answers")
        except PyramidionError as problem:
            return [copy(problem) for _ in arrivals]
        except BaseException as problem:
            return [problem for _ in arrivals]

    def _settle(self, group: list[Request], took: float) -> None:
        rows, size = sum(each.rows for each in group), sum(each.size for each in group)
        with self._changed:
            self.load = self.load.plus(-rows, -size, -len(group))
            self._former = max(len(group) + len(self._waiting), self._former // 2)
            pace = took / len(group)
            self._pace += (pace - self._pace) * (NEWEST if self._pace else 1.0)
            self._took += (took - self._took) * (NEWEST if self._took else 1.0)
