"""Results from threads to an event loop, which is woken once for many of them.

`loop.call_soon_threadsafe` writes to a socket each time. That releases the GIL, and the loop takes
it and keeps it for a turn: for a group of 32 commits, 32 times half a millisecond. Here the first
result wakes the loop, and the others that are ready by then are delivered with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopWakeup:
    """Delivers results to one loop: the one that runs where it is made."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._ready: deque[tuple[Future[Any], asyncio.Future[Any]]] = deque()
        self._scheduled = False

    def wrap(self, future: Future[T]) -> asyncio.Future[T]:
        """A future of another thread, to be awaited; cancelling the result cancels it."""
        waiter: asyncio.Future[T] = self.loop.create_future()
        waiter.add_done_callback(lambda it: future.cancel() if it.cancelled() else None)
        future.add_done_callback(lambda it: self._deliver_soon(it, waiter))
        return waiter

    def _deliver_soon(self, future: Future[Any], waiter: asyncio.Future[Any]) -> None:
        """Called in the thread that completes the future."""
        self._ready.append((future, waiter))
        if not self._scheduled and not self.loop.is_closed():
            self._scheduled = True
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Called in the loop. A future that completes from here on schedules another call."""
        self._scheduled = False
        while self._ready:
            _copy_result(*self._ready.popleft())


def _copy_result(future: Future[Any], waiter: asyncio.Future[Any]) -> None:
    if waiter.done():  # the caller has left
        return
    if future.cancelled():
        waiter.cancel()
        return
    problem = future.exception()
    if problem is None:
        waiter.set_result(future.result())
    else:
        waiter.set_exception(problem)
