"""What the process that serves does to Python around it."""

from __future__ import annotations

import gc

from pyramidion.web.service.server import YOUNG, collecting


def test_cycles_of_what_came_before_are_not_looked_for_while_it_serves() -> None:
    former = gc.get_threshold()
    with collecting():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (YOUNG, *former[1:])
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == former


def test_cycles_of_what_came_later_still_go() -> None:
    class Part:
        gone = False

        def __del__(self) -> None:
            Part.gone = True

    with collecting():
        part = Part()
        vars(part)["self"] = part
        del part
        gc.collect()
        assert Part.gone
