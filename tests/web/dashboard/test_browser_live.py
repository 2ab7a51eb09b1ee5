"""The living demo in a real browser: every page is walked, every number is the API's."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.test_cli_live import SHORT, Living
from tests.waiting import PATIENCE
from tests.web.dashboard.filled import PAGES, STREAM
from tests.web.dashboard.numbers import Answers, compare
from tests.web.dashboard.test_browser import NUMBERS, Window, chromium, name_of, pytestmark

__all__ = ["chromium", "pytestmark"]


class Demo:
    """A `pyramidion live` whose year is over, so that its numbers stand still."""

    def __init__(self, folder: Path) -> None:
        self.living = Living(folder, "--json", "--for", "3000", program=SHORT)
        assert self.living.process.stdout is not None
        told = json.loads(self.living.process.stdout.readline())
        self.url, self._token = told["url"], told["token"]
        while json.loads(self.living.process.stdout.readline()) != {"over": True}:
            pass

    def token(self, *_: str) -> str:
        """The login that it printed; it has all roles."""
        return self._token

    def api(self) -> Answers:
        headers = {"Authorization": f"Bearer {self._token}"}
        return Answers(httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE), STREAM)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    made = Demo(tmp_path)
    yield made
    assert made.living.end(signal.SIGINT) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_every_page_of_the_demo_is_walked_and_every_number_is_the_apis(
    chromium: Any, demo: Demo
) -> None:
    walker, found = Window(chromium, demo, "light"), 0  # type: ignore[arg-type]
    walker.screen = "demo"
    for page in PAGES:
        found += _compared(walker, page, demo)
        walker.shoot(name_of(page))
    assert found > 150
    assert walker.wrong == []
    walker.close()


def _compared(walker: Window, page: str, demo: Demo) -> int:
    """How many numbers are the same; what is due at the year's end may still be under way."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return compare(walker.open(page).evaluate(NUMBERS), demo.api())
        except AssertionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
