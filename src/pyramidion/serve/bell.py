"""Answers from a thread to an event loop, which is woken once for many of them.

asyncio wakes its loop for each by a system call. That lets go of Python's lock, which the loop
takes and gives back when its turn is over: with a group of commits, 32 times half a millisecond.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pyramidion.serve.refusals import surprise

T = TypeVar("T")
Told = Callable[[Future[T]], None]


class Bell:
    """Wakes one loop: the one that runs where it is made."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._kept: deque[tuple[Future[Any], Told[Any]]] = deque()
        self._rung = False

    def answer(self, promise: Future[T]) -> asyncio.Future[T]:
        """What a promise of another thread gives, to be awaited; who gives up cancels it."""
        waiting: asyncio.Future[T] = self.loop.create_future()
        waiting.add_done_callback(lambda it: promise.cancel() if it.cancelled() else None)
        self.tell(promise, lambda it: _settle(it, waiting))
        return waiting

    def tell(self, promise: Future[T], told: Told[T]) -> None:
        """Call ``told`` with a promise of another thread in the loop, once it is kept."""
        promise.add_done_callback(lambda it: self._ring(it, told))

    def _ring(self, promise: Future[Any], told: Told[Any]) -> None:
        """In whatever thread keeps the promise."""
        self._kept.append((promise, told))
        if not self._rung and not self.loop.is_closed():
            self._rung = True
            self.loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        """In the loop. What is kept from here on rings again; one that fails keeps no other."""
        self._rung = False
        while self._kept:
            promise, told = self._kept.popleft()
            try:
                told(promise)
            except Exception as problem:
                surprise(problem)


def _settle(promise: Future[T], waiting: asyncio.Future[T]) -> None:
    if waiting.done():  # who asked has left
        return
    if promise.cancelled():
        waiting.cancel()
        return
    problem = promise.exception()
    if problem is None:
        waiting.set_result(promise.result())
    else:
        waiting.set_exception(problem)
