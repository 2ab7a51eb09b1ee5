"""Timing and one line per figure: ours, the peer's, the ratio, the target, met or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


def best(run: Callable[[], object], *, times: int = 3) -> float:
    """Seconds of the fastest of a few runs: the machine is shared, slow rounds are not ours."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@dataclass
class Report:
    """Prints figures as they come and remembers the targets that were missed."""

    missed: list[str] = field(default_factory=list)

    def title(self, text: str) -> None:
        print(f"\n{text}")

    def line(self, what: str, told: str, *, target: str, met: bool) -> None:
        print(f"  {'ok  ' if met else 'MISS'} {what:<46}{told:<58} target {target}", flush=True)
        if not met:
            self.missed.append(what)

    def ratio(self, what: str, ours: float, peer: float, *, of: str, least: float) -> None:
        ratio = peer / ours
        told = f"{ours * 1e3:10.3f} ms   {of} {peer * 1e3:10.1f} ms   {ratio:8.1f} x"
        self.line(what, told, target=f">= {least:g} x", met=ratio >= least)
