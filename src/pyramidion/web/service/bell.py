"""Answers from a thread to an event loop, which is woken once for many of them.

asyncio wakes its loop for each by a system call. That lets go of Python's lock, which the loop
takes and gives back when its turn is over: with a group of commits, 32 times half a millisecond.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar, cast

from pyramidion.web.refusals import surprise

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Kept(Protocol[T_co]):
    """A promise that was kept."""

    def result(self) -> T_co:
        """What it gave, or what it raises."""


Told = Callable[[Kept[T]], None]


class Bell:
    """Wakes one loop: the one that runs where it is made."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._kept: deque[tuple[Any, Told[Any]]] = deque()
        self._rung = False

    def answer(self, promise: Future[T]) -> asyncio.Future[T]:
        """What a promise of another thread gives, to be awaited; who gives up cancels it."""
        waiting: asyncio.Future[T] = self.loop.create_future()
        waiting.add_done_callback(lambda it: promise.cancel() if it.cancelled() else None)
        promise.add_done_callback(lambda it: self.ring(it, lambda _: _settle(it, waiting)))
        return waiting

    def promise(self, told: Told[T]) -> Word[T]:
        """What another thread is to keep; ``told`` is called with it in the loop."""
        return Word(self, told)

    def ring(self, promise: Kept[T], told: Told[T]) -> None:
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


class Word(Generic[T]):
    """A promise that nobody waits for in a thread and nobody takes back: no lock, no condition.

    A `Future` has both, and they are a third of what it takes to hand a small row on.
    """

    __slots__ = ("_bell", "_problem", "_result", "_told")

    def __init__(self, bell: Bell, told: Told[T]) -> None:
        self._bell = bell
        self._told = told
        self._result: T | None = None
        self._problem: BaseException | None = None

    def set_running_or_notify_cancel(self) -> bool:
        """It is always waited for."""
        return True

    def set_result(self, result: T, /) -> None:
        """Keep it."""
        self._result = result
        self._bell.ring(self, self._told)

    def set_exception(self, exception: BaseException | None, /) -> None:
        """Break it."""
        self._problem = exception
        self._bell.ring(self, self._told)

    def result(self) -> T:
        """What it gave, or what it raises."""
        if self._problem is not None:
            raise self._problem
        return cast("T", self._result)


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
