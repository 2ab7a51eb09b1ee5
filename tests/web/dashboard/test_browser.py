"""A real browser walks every page: numbers, updates, keyboard, screen reader, screens.

Screenshots go to build/screenshots; with PYRAMIDION_SCREENSHOTS set to a folder, those that the
documents show go there (`make screenshots`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.waiting import PATIENCE, wait_for
from tests.web.dashboard.filled import MODEL, PAGES, STREAM, Filled, flights
from tests.web.dashboard.numbers import Answers, compare

CHROMIUM = shutil.which("chromium")
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)
SHOTS = ROOT / "build" / "screenshots"
SHOWN = os.environ.get("PYRAMIDION_SCREENSHOTS")
IN_DOCS = {
    *(f"{screen}-overview" for screen in ("light", "dark", "phone")),
    *("light-tables", "light-ledger", "light-exposure", "light-audit-log"),
}
SCREENS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
NUMBERS = """() => [...document.querySelectorAll("main [data-number]")].map(each => ({
    address: each.dataset.number, value: each.getAttribute("value"), text: each.textContent}))"""
LOOSE = """() => {
    const found = [], walk = document.createTreeWalker(document.querySelector("main"), 4);
    while (walk.nextNode()) {
        const text = walk.currentNode.data, near = walk.currentNode.parentElement;
        const known = near.closest("data, time, svg, code, script, .drawing");
        if (/[0-9]/.test(text) && near.checkVisibility() && !known) found.push(text.trim());
    }
    return found;
}"""
"""Texts with digits that are neither numbers nor times."""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium here; `make system` installs it as root"
)
each_screen = pytest.mark.parametrize(
    "screen", ["light", pytest.param("dark", marks=pytest.mark.campaign), "phone"]
)
"""Dark differs from light by colours alone, which axe looks at; its walk takes the pictures."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


class Window:
    """A browser's window that somebody is logged in with; what went wrong in it is noted."""

    def __init__(self, chromium: Any, filled: Filled, screen: str, *roles: str) -> None:
        self.filled, self.screen = filled, screen
        self.context = chromium.new_context(**SCREENS[screen])
        self.page = self.context.new_page()
        self.page.set_default_timeout(1_000 * PATIENCE)
        self.wrong: list[str] = []
        self.page.on("console", lambda told: self._told(told.type, told.text))
        self.page.on("pageerror", lambda problem: self.wrong.append(str(problem)))
        self.page.on("request", lambda asked: self._asked(asked.url))
        self.page.goto(filled.url)
        self.page.fill("#token", filled.token(*roles))
        self.page.click("button.main")
        self.page.wait_for_selector("nav.side")

    def _told(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.wrong.append(text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.filled.url, "data:")):
            self.wrong.append(f"asked for {url}")

    def open(self, page: str) -> Any:
        self.page.goto(f"{self.filled.url}/streams/{STREAM}{page}")
        if self.page.locator("figure[data-plot]").count():
            self.page.wait_for_selector(".drawing svg.main-svg")
        return self.page

    def shoot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        picture = f"{self.screen}-{name}"
        self.page.evaluate("document.getElementById('asof').textContent = 'live, 09:41:00'")
        self.page.screenshot(path=SHOTS / f"{picture}.png", full_page=True)
        if SHOWN and picture in IN_DOCS:
            self.page.screenshot(path=Path(SHOWN) / f"{picture}.png")

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def window(chromium: Any, filled: Filled) -> Iterator[Any]:
    made: list[Window] = []

    def opened(screen: str = "light", *roles: str) -> Window:
        made.append(Window(chromium, filled, screen, *roles))
        return made[-1]

    yield opened
    for each in made:
        each.close()


def name_of(page: str) -> str:
    return page.strip("/").replace("/", "-") or "overview"


@each_screen
def test_every_page_is_walked_and_every_number_is_the_apis(
    window: Any, filled: Filled, screen: str
) -> None:
    walker, answers, found = window(screen), Answers(filled.caller(), STREAM), 0
    walker.page.goto(f"{filled.url}/streams?all=1")
    found += compare(walker.page.evaluate(NUMBERS), answers)
    walker.shoot("streams")
    for link in walker.open("").locator("nav.side a").all():
        address = link.get_attribute("href") or ""
        known = (*PAGES, "/first-steps", "/streams?all=1")  # the first steps are walked apart
        assert address.removeprefix(f"/streams/{STREAM}") in known
    for page in PAGES:
        shown = walker.open(page)
        found += compare(shown.evaluate(NUMBERS), answers)
        too_wide = shown.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not too_wide, (screen, page)
        walker.shoot(name_of(page))
    assert found > 150
    assert walker.wrong == []


def test_no_number_stands_on_a_page_without_its_address(window: Any) -> None:
    walker = window()
    for page in PAGES:
        if page in ("/exposure", "/deletions", "/audit-log"):  # sentences, records and facts
            continue
        loose = walker.open(page).evaluate(LOOSE)
        names = re.compile(r"^late: 0, 1$|^lines of \d+$|\bP[123]\b")
        assert [text for text in loose if re.search(r"\d", names.sub("", text))] == [], page


@pytest.mark.parametrize("screen", ["dark", "phone"])
def test_axe_finds_nothing_wrong_with_any_page(window: Any, filled: Filled, screen: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    walker, axe = window(screen), Axe()
    for page in PAGES:
        found = axe.run(walker.open(page))
        assert found.violations_count == 0, (page, found.generate_report())
    walker.context.clear_cookies()
    walker.page.goto(filled.url)
    found = axe.run(walker.page)
    assert found.violations_count == 0, found.generate_report()


def test_a_page_goes_on_by_itself_and_leaves_focus_and_scroll_alone(
    window: Any, filled: Filled
) -> None:
    walker = window()
    page = walker.open("")
    page.focus("text=each of them")
    page.evaluate("window.mark = true; scrollTo(0, 60)")
    exposed = page.locator('#lead [data-number="pyramid#exposed"]')
    before = int(exposed.get_attribute("value"))
    filled.pyramid.observe(flights(17, filled.clock.now, 99))
    wait_for(lambda: int(exposed.get_attribute("value")) == before + 17)
    assert page.evaluate("window.mark") is True
    assert page.evaluate("document.activeElement.textContent") == "each of them"
    assert page.evaluate("scrollY") == 60
    compare(page.evaluate(NUMBERS), Answers(filled.caller(), STREAM))
    assert walker.wrong == []


def test_what_is_paused_stays_and_goes_on(window: Any, filled: Filled) -> None:
    page = window().open("")
    page.click("#pause")
    assert page.get_attribute("#pause", "aria-pressed") == "true"
    assert "paused at" in page.inner_text("#asof")
    before = page.inner_text("#lead")
    filled.pyramid.observe(flights(5, filled.clock.now, 98))
    page.wait_for_timeout(2_500)
    assert page.inner_text("#lead") == before
    page.click("#pause")
    wait_for(lambda: page.inner_text("#lead") != before)


def test_a_page_says_when_the_service_does_not_answer(window: Any) -> None:
    walker = window()
    page = walker.open("")
    page.route("**/streams/**", lambda route: route.abort())
    wait_for(lambda: "the service does not answer" in page.inner_text("#asof"))
    assert page.inner_text("#asof").startswith("as of ")
    page.unroute("**/streams/**")
    wait_for(lambda: page.inner_text("#asof").startswith("live"))


def test_nothing_stays_on_the_screen_once_the_login_is_over(window: Any, filled: Filled) -> None:
    walker = window()
    page = walker.open("")
    walker.context.clear_cookies()
    page.wait_for_selector("text=The login is over")
    assert page.locator("[data-number]").count() == 0


def test_the_keyboard_reaches_everything(window: Any) -> None:
    page = window().open("/exposure")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    seen = set()
    for _ in range(20):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id"))
    assert {"from", "to", "component"} <= seen


def test_the_loss_and_the_verification_are_shown_when_asked_for(
    window: Any, filled: Filled
) -> None:
    walker = window()
    walker.open("/models").click("text=Measure its loss")
    walker.page.wait_for_selector(".drawing svg.main-svg")
    assert f"Loss of {MODEL}" in walker.page.inner_text("h1")
    walker.shoot("loss")
    walker.open("/audit-log").click("text=Verify every entry")
    walker.page.wait_for_selector("[role=status]")
    assert "Sound." in walker.page.inner_text("#lead")
    compare(walker.page.evaluate(NUMBERS), Answers(filled.caller(), STREAM))
    walker.shoot("verified")
    assert walker.wrong == []


def test_a_login_without_rights_sees_nothing(window: Any, filled: Filled) -> None:
    walker = window("light", "observe")
    for page in ("/models", "/exposure", "/vault", "/audit-log"):
        shown = walker.open(page)
        assert "needs a token with the role" in shown.inner_text("main")
        assert shown.locator("main [data-number]").count() == 0
