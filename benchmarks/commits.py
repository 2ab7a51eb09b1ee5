"""Observations of one row each: together in one commit, beside one commit for each."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks import rows
from benchmarks.report import Report
from benchmarks.storing import Store
from pyramidion import Arrival, Pyramid
from pyramidion.web.service.commits import Commits

SENDERS = 32
MOST = {1: 1.5, 32: 2.0, 200: 4.0}
"""How many times as long as one observe a group of so many arrivals may take."""
ROUNDS = 30
ROOM = {"most_requests": 10_000, "most_rows": 100_000, "most_bytes": 100_000_000}


def main(report: Report) -> None:
    made = rows.table(*rows.matrix(max(MOST))).to_pylist()
    store = Store()
    try:
        alone = grouped(report, store.pyramid, made)
        sending(report, store.pyramid, made, alone)
    finally:
        store.close()


def grouped(report: Report, pyramid: Pyramid, made: list[dict[str, object]]) -> float:
    """Groups of arrivals under keys; seconds of one observe."""
    report.title("arrivals of one Criteo-shaped row as a dict, each under a key, in one commit")
    numbers = itertools.count()

    def one() -> None:
        pyramid.observe([made[0]], key=f"{next(numbers)}")

    def group(size: int) -> None:
        pyramid.observe_all([Arrival([row], f"{next(numbers)}") for row in made[:size]])

    median(one)  # the first ones draw the window's noise
    times = {size: [0.0] for size in MOST}
    single = []
    for _ in range(ROUNDS):  # in turns, because the machine is shared
        single.append(seconds(one))
        for size in MOST:
            times[size].append(seconds(lambda size=size: group(size)))
    alone = statistics.median(single)
    for size, most in MOST.items():
        took = statistics.median(times[size][1:])
        told = f"{took * 1e3:10.3f} ms   one observe {alone * 1e3:8.3f} ms   {took / alone:6.2f} x"
        report.line(f"{size} arrivals", told, target=f"<= {most:g} x", met=took <= most * alone)
    return alone


def sending(report: Report, pyramid: Pyramid, made: list[dict[str, object]], alone: float) -> None:
    """Senders who wait for each answer before they send again."""
    report.title(f"{SENDERS} senders of one row at a time, who share commits")
    commits = Commits(pyramid.observe_all, **ROOM)
    each = 20

    def send(sender: int) -> None:
        for number in range(each):
            key = f"{sender} sends {number}"
            commits.submit(Arrival([made[sender]], key), 1, 1_000).result()

    with ThreadPoolExecutor(SENDERS) as senders:
        took = seconds(lambda: list(senders.map(send, range(SENDERS))))
    commits.close()
    rate, single = SENDERS * each / took, 1 / alone
    told = f"{rate:10.0f} a second   one by one {single:8.0f}   {rate / single:8.1f} x"
    report.line("observations", told, target=">= 20 x", met=rate >= 20 * single)


def median(run: Callable[[], object]) -> float:
    return statistics.median(seconds(run) for _ in range(ROUNDS))


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
