"""A deadline passes by the latest clock there is, and stays passed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyramidion.counts.deadline import Deadline, HighWater

SECOND = 1_000_000


class Times:
    """A clock that anybody sets, and one that nobody does."""

    def __init__(self, wall: float) -> None:
        self.wall, self.passed = wall, 0

    def deadline(self, expires: float) -> Deadline:
        return Deadline(
            int(expires * SECOND), lambda: self.wall, passing=lambda: self.passed * SECOND
        )


def test_a_deadline_passes_at_its_moment_and_not_before() -> None:
    times = Times(10.0)
    deadline = times.deadline(20.0)
    times.wall = 19.999
    assert not deadline.passed()
    times.wall = 20.0
    assert deadline.passed()


def test_a_deadline_passes_though_the_clock_stands_still() -> None:
    times = Times(10.0)
    deadline = times.deadline(20.0)
    times.passed = 10
    assert deadline.passed()


def test_a_deadline_passes_though_the_clock_was_set_back_before() -> None:
    times = Times(10.0)
    deadline = times.deadline(20.0)
    times.wall, times.passed = 15.0, 1
    assert not deadline.passed()
    times.wall, times.passed = 0.0, 6  # 15 was seen, and 5 seconds have gone by since
    assert deadline.passed()


def test_a_deadline_that_has_passed_stays_passed() -> None:
    times = Times(30.0)
    deadline = times.deadline(20.0)
    assert deadline.passed()
    times.wall = 0.0
    assert deadline.passed()


def test_a_clock_that_is_behind_the_store_gives_no_more_time_than_the_store_did() -> None:
    times = Times(10.0)
    deadline = Deadline(
        70 * SECOND, lambda: times.wall, latest=60 * SECOND, passing=lambda: times.passed * SECOND
    )
    assert not deadline.passed()
    times.wall, times.passed = 20.0, 10
    assert deadline.passed()


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), min_size=1))
def test_a_deadline_is_the_latest_of_all_clocks(moves: list[tuple[int, int]]) -> None:
    times = Times(0.0)
    deadline = times.deadline(30.0)
    shown = 0
    for wall, waits in moves:
        times.wall, times.passed = float(wall), times.passed + waits
        shown = max(shown + waits, wall)
        assert deadline.passed() == (shown >= 30)
        assert deadline.now() == shown * SECOND


def test_deadlines_that_share_a_clock_share_what_it_has_seen() -> None:
    shared = HighWater(wall=lambda: 0, passing=lambda: 0)
    early, late = Deadline(20, shared), Deadline(30, shared)
    Deadline(99, shared, latest=25)
    assert early.passed()
    assert not late.passed()


def test_a_clock_behind_the_time_a_copy_was_made_is_not_believed() -> None:
    assert Deadline(20, lambda: 0.0, latest=20).passed()
    assert Deadline(20, lambda: 0.0, latest=19, passing=lambda: 0).now() == 19
