"""Answers from threads to an event loop: each its own, many for one wake-up."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from pyramidion.web.service.bell import Bell, Kept
from tests.waiting import PATIENCE


def test_answers_given_at_once_wake_the_loop_once() -> None:
    async def ask() -> tuple[list[int], int]:
        bell, promises = Bell(), [Future[int]() for _ in range(20)]
        waiting = [bell.answer(promise) for promise in promises]
        woken, wake = [], bell.loop.call_soon_threadsafe
        bell.loop.call_soon_threadsafe = lambda *told: (woken.append(1), wake(*told))[1]  # type: ignore[method-assign,assignment]
        giving = threading.Thread(
            target=lambda: [each.set_result(n) for n, each in enumerate(promises)]
        )
        giving.start()
        giving.join()  # the loop is not let run meanwhile
        return list(await asyncio.gather(*waiting)), len(woken)

    assert asyncio.run(ask()) == (list(range(20)), 1)


def test_every_answer_comes_however_threads_and_loop_meet() -> None:
    async def ask() -> int:
        bell, promises = Bell(), [Future[int]() for _ in range(2_000)]
        waiting = [bell.answer(promise) for promise in promises]
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
        bell, promise, other = Bell(), Future[int](), Future[int]()
        first, second = bell.answer(promise), bell.answer(other)
        promise.set_exception(ValueError("no"))
        other.set_result(3)
        assert await second == 3
        with pytest.raises(ValueError, match="no"):
            await first

    asyncio.run(ask())


def test_who_gives_up_cancels_what_has_not_begun() -> None:
    async def ask() -> bool:
        bell, promise = Bell(), Future[int]()
        waiting = bell.answer(promise)
        waiting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return promise.cancelled()

    assert asyncio.run(ask())


def test_a_promise_that_is_cancelled_is_not_waited_for() -> None:
    async def ask() -> None:
        promise = Future[int]()
        waiting = Bell().answer(promise)
        promise.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(ask())


def test_a_loop_that_is_gone_is_not_woken() -> None:
    promise = Future[int]()

    async def ask() -> None:
        Bell().answer(promise)

    asyncio.run(ask())
    promise.set_result(1)


def test_words_are_kept_in_the_loop_and_wake_it_once() -> None:
    async def ask() -> tuple[list[object], int]:
        bell, told = Bell(), list[object]()
        done = asyncio.Event()

        def hear(word: Kept[int]) -> None:
            try:
                told.append((word.result(), threading.current_thread() is here))
            except ValueError as problem:
                told.append(str(problem))
            if len(told) == 3:
                done.set()

        here, words = threading.current_thread(), [bell.promise(hear) for _ in range(3)]
        woken, wake = list[int](), bell.loop.call_soon_threadsafe
        bell.loop.call_soon_threadsafe = lambda *args: (woken.append(1), wake(*args))[1]  # type: ignore[method-assign,assignment]

        def keep() -> None:
            assert all(word.set_running_or_notify_cancel() for word in words)
            words[0].set_result(1)
            words[1].set_exception(ValueError("no"))
            words[2].set_result(3)

        giving = threading.Thread(target=keep)
        giving.start()
        giving.join()
        await asyncio.wait_for(done.wait(), PATIENCE)
        return told, len(woken)

    assert asyncio.run(ask()) == ([(1, True), "no", (3, True)], 1)
