"""How long something is waited for, without a timer where it need not be waited for at all.

A body of a few hundred bytes has come with its header. To set a timer for it and to take it back
takes longer than to read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Waiting = Coroutine[Any, Any, T]


@coroutine
def within(seconds: float, doing: Waiting[T]) -> Generator[Any, Any, T]:
    """What something gives; `TimeoutError` where that takes longer.

    >>> async def seven() -> int:
    ...     return 7
    >>> async def ask() -> int:
    ...     return await within(1.0, seven())
    >>> asyncio.run(ask())
    7
    """
    try:
        first = doing.send(None)
    except StopIteration as done:
        given: T = done.value
        return given
    return (yield from _timed(seconds, _resumed(doing, first)).__await__())


async def _timed(seconds: float, doing: Awaitable[T]) -> T:
    async with asyncio.timeout(seconds):
        return await doing


@coroutine
def _resumed(doing: Waiting[T], waiting: Any) -> Generator[Any, Any, T]:
    """The rest of something that was begun, and waits for something."""
    while True:
        try:
            try:
                given = yield waiting
            except BaseException as problem:
                waiting = doing.throw(problem)
            else:
                waiting = doing.send(given)
        except StopIteration as done:
            result: T = done.value
            return result
