"""Waiting no longer than allowed, and without a timer where there is nothing to wait for."""

from __future__ import annotations

import asyncio

import pytest

from pyramidion.web.patience import within


async def after(turns: int, seconds: float = 0.0) -> int:
    for _ in range(turns):
        await asyncio.sleep(seconds)
    return turns


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_what_it_gives_comes_however_often_it_waits(turns: int) -> None:
    assert asyncio.run(ask(turns, 60.0)) == turns


async def ask(turns: int, within_seconds: float, seconds: float = 0.0) -> int:
    return await within(within_seconds, after(turns, seconds))


def test_what_takes_longer_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(ask(1, 0.01, 600.0))


def test_an_error_comes_through_at_once_or_later() -> None:
    async def fails(turns: int) -> None:
        await after(turns)
        raise LookupError(turns)

    for turns in (0, 2):
        with pytest.raises(LookupError):
            asyncio.run(within_a_minute(fails(turns)))


async def within_a_minute(doing: object) -> object:
    return await within(60.0, doing)  # type: ignore[arg-type]


def test_who_is_cancelled_is_cancelled_where_it_waits() -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(True)

    async def cancel() -> None:
        task = asyncio.create_task(within_a_minute(waits()))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert ended == [True]


def test_no_timer_is_set_for_what_is_there() -> None:
    async def timers(turns: int) -> int:
        loop, found = asyncio.get_running_loop(), []
        set_at = loop.call_at
        loop.call_at = lambda *given, **more: (found.append(1), set_at(*given, **more))[1]  # type: ignore[method-assign,assignment]
        await within(60.0, after(turns))
        return len(found)

    assert asyncio.run(timers(0)) == 0
    assert asyncio.run(timers(1)) == 1
