"""Answers from threads to an event loop: each its own, many for one wake-up."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from pyramidion.web.service.loop_wakeup import LoopWakeup
from tests.waiting import PATIENCE


def test_answers_given_at_once_wake_the_loop_once() -> None:
    async def ask() -> tuple[list[int], int]:
        wakeup, promises = LoopWakeup(), [Future[int]() for _ in range(20)]
        waiting = [wakeup.wrap(promise) for promise in promises]
        woken, wake = [], wakeup.loop.call_soon_threadsafe
        wakeup.loop.call_soon_threadsafe = lambda *told: (woken.append(1), wake(*told))[1]  # type: ignore[method-assign,assignment]
        giving = threading.Thread(
            target=lambda: [each.set_result(n) for n, each in enumerate(promises)]
        )
        giving.start()
        giving.join()  # the loop is not let run meanwhile
        return list(await asyncio.gather(*waiting)), len(woken)

    assert asyncio.run(ask()) == (list(range(20)), 1)


def test_every_answer_comes_however_threads_and_loop_meet() -> None:
    async def ask() -> int:
        wakeup, promises = LoopWakeup(), [Future[int]() for _ in range(2_000)]
        waiting = [wakeup.wrap(promise) for promise in promises]
        halves = [
            threading.Thread(target=lambda some=some: [each.set_result(1) for each in some])
            for some in (promises[::2], promises[1::2])
        ]
        for half in halves:
            half.start()
        found = sum(await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE))
        for half in halves:
            half.join()
        return found

    assert asyncio.run(ask()) == 2_000


def test_an_error_is_told_to_who_asked() -> None:
    async def ask() -> None:
        wakeup, promise, other = LoopWakeup(), Future[int](), Future[int]()
        first, second = wakeup.wrap(promise), wakeup.wrap(other)
        promise.set_exception(ValueError("no"))
        other.set_result(3)
        assert await second == 3
        with pytest.raises(ValueError, match="no"):
            await first

    asyncio.run(ask())


def test_who_gives_up_cancels_what_has_not_begun() -> None:
    async def ask() -> bool:
        wakeup, promise = LoopWakeup(), Future[int]()
        waiting = wakeup.wrap(promise)
        waiting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return promise.cancelled()

    assert asyncio.run(ask())


def test_a_promise_that_is_cancelled_is_not_waited_for() -> None:
    async def ask() -> None:
        promise = Future[int]()
        waiting = LoopWakeup().wrap(promise)
        promise.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(ask())


def test_a_loop_that_is_gone_is_not_woken() -> None:
    promise = Future[int]()

    async def ask() -> None:
        LoopWakeup().wrap(promise)

    asyncio.run(ask())
    promise.set_result(1)
