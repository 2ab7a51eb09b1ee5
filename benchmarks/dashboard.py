"""The dashboard over a store of 365 windows and 100 tables: each page by the server, and on screen.

The browser's figure is from the address to the load event; plots are drawn right after it, when
the tables that say the same can be read already. Without Chromium it is left out, and said to be.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import uvicorn

from benchmarks.report import Report, best
from pyramidion import Categorical, Label, Schema, Settings
from pyramidion.web.listen import bound
from pyramidion.web.service.app import create_app
from pyramidion.web.service.service import Service
from pyramidion.web.tokens import ROLES

DAY = 86_400.0
WINDOWS, TABLES = 365, 100
MOST = 1.0  # seconds
PAGES = (
    *("", "/windows", "/ledger", "/ledger/300", "/tables", "/groups", "/models", "/exposure"),
    *("/vault", "/audit-log", "/deletions"),
)
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)


class Large:
    """A service in a thread, over one stream with many windows and tables."""

    def __init__(self, windows: int = WINDOWS, tables: int = TABLES) -> None:
        self.folder, self._now = Path(tempfile.mkdtemp(prefix="pyramidion-bench-")), 1_000 * DAY
        keys = f"file:{self.folder}/{{stream}}.key"
        self.service = Service(self.folder / "data", keys=keys, clock=lambda: self._now)
        names = [f"feature_{number:03d}" for number in range(tables - 1)]
        schema = Schema(
            time="t",
            label=Label("y", classes=[0, 1]),
            features=[Categorical(name, domain=["a", "b", "c"]) for name in names],
        )
        settings = Settings(
            epsilon=1.0,
            count_window="1d",
            retention="400d",
            hot_window="1d",
            hot_step="1d",
            max_skew="1h",
        )
        store = self.service.create("s", schema, settings).pyramid
        columns = {name: np.array(["a", "b", "c", "a"]) for name in names}
        for _ in range(windows):
            store.observe(pa.table({"t": np.full(4, self._now), "y": [0, 1, 0, 1], **columns}))
            self._now += DAY
            store.advance()
        self.token = self.service.tokens.add("bench", ROLES, ["*"], 0)
        self._socket = bound("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(create_app(self.service), log_config=None, access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self.service.close()
        shutil.rmtree(self.folder)


def main(report: Report) -> None:
    report.title(f"dashboard: {WINDOWS} windows, {TABLES} tables")
    large = Large()
    try:
        served(report, large)
        shown(report, large)
    finally:
        large.close()


def served(report: Report, large: Large) -> None:
    with httpx.Client(base_url=large.url, headers={"Origin": large.url}, timeout=120) as client:
        client.post("/login", data={"token": large.token})
        for page in PAGES:
            answer = client.get(f"/streams/s{page}")
            assert answer.status_code == 200, (page, answer.text)
            seconds = best(lambda page=page: client.get(f"/streams/s{page}"))  # type: ignore[misc]
            told = f"{seconds * 1e3:8.1f} ms   {len(answer.content) / 1e3:8.1f} kB"
            report.line(f"server {page or '/'}", told, target="< 1 s", met=seconds < MOST)


def shown(report: Report, large: Large) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("       no chromium here, so nothing is said about a browser")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        page = browser.new_page()
        page.goto(large.url)
        page.fill("#token", large.token)
        page.click("button.main")
        page.wait_for_selector("nav.side")
        for path in PAGES:

            def loaded(path: str = path) -> None:
                page.goto(f"{large.url}/streams/s{path}", wait_until="load")

            seconds = best(loaded)
            report.line(
                f"browser {path or '/'}",
                f"{seconds * 1e3:8.1f} ms",
                target="< 1 s",
                met=seconds < MOST,
            )
        browser.close()
