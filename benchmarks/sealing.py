"""Observing with a vault beside observing without one, and what a grant of an hour reads."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import rows
from benchmarks.report import Report
from benchmarks.storing import BATCH, Store
from pyramidion.vault.key_pairs import PrivateKey

BLOCK = 30  # batches that are timed together, up to the seal of the last one
BLOCKS = 9
HOUR = 3_600
MOST = 1.25
"""What observing with a vault may take, by observing without."""


def main(report: Report) -> None:
    table = rows.table(*rows.matrix(BATCH * BLOCK))
    batches = [table.slice(start, BATCH) for start in range(0, table.num_rows, BATCH)]
    observing(report, batches)
    reading(report, batches)


def observing(report: Report, batches: list[pa.Table]) -> None:
    report.title(f"observing {BLOCK} batches of {BATCH:,} Criteo-shaped rows, and sealing them")
    plain, sealing = Store(), Store()
    vault = _attached(sealing)
    sealed: list[float] = []
    carried: list[float] = []

    def without() -> float:
        return _timed(lambda: _observe(plain, batches))

    def beside() -> float:
        start = time.perf_counter()
        _observe(sealing, batches)
        vault.seal()
        sealed.append(time.perf_counter() - start)
        vault.carry()  # a copy to the same disk, in nobody's way: not in the figure of the peer
        carried.append(time.perf_counter() - start)
        return sealed[-1]

    without(), beside()
    peers = []
    before, sealed, carried = _spent(vault), [], []
    for block in range(BLOCKS):  # one after the other, so that both meet the same neighbours
        if block % 2:
            beside()
        peers.append(without())
        if not block % 2:
            beside()
    spent = (_spent(vault) - before) / (BLOCKS * BLOCK)
    plain.close()
    sealing.close()
    for what, seconds, most in (("to the seal", sealed, MOST), ("to the place", carried, None)):
        _tell(report, what, np.array(seconds), np.array(peers), most)
    print(f"       the sealing thread, {BATCH:,} rows             {spent * 1e3:8.1f} ms of a core")


def _tell(report: Report, what: str, ours: Any, peers: Any, most: float | None) -> None:
    """The median ratio of neighbours: a machine that is slower for a while is so for both."""
    ratios = np.sort(ours / peers)
    ratio, times = float(np.median(ratios)), (np.median(ours) * 1e3, np.median(peers) * 1e3)
    told = f"{times[0]:8.0f} ms   without a vault {times[1]:8.0f} ms   {ratio:.2f} x"
    if most is None:
        print(f"       {what:<46}{told}")
        return
    report.line(what, told, target=f"<= {most:g} x", met=ratio <= most)
    print(f"       {'from block to block':<46}{ratios[0]:8.2f} to {ratios[-1]:.2f} x")


def _spent(vault: Any) -> float:
    """Seconds that the sealing thread was on a core so far."""
    return float(vault._sealer._thread.submit(time.thread_time).result())


def reading(report: Report, batches: list[pa.Table]) -> None:
    report.title("files that a grant of one hour opens, of a day")
    store = Store()
    vault = _attached(store)
    start = store.now
    for hour in range(24):
        store.now = start + hour * HOUR
        store.pyramid.observe(batches[hour % BLOCK].slice(0, 100))
    vault.seal()
    first = int(start + 7 * HOUR) * 1_000_000
    found, every = vault.envelopes(first, first + HOUR * 1_000_000), vault.files()
    store.close()
    told = f"{len(found)} of {len(every)} files"
    report.line("one hour", told, target="1", met=len(found) == 1 and len(every) == 24)


def _attached(store: Store) -> Any:
    place = store.folder / "vault"
    return store.pyramid.admin.attach_vault(str(place), PrivateKey.new().public)


def _observe(store: Store, batches: list[pa.Table]) -> None:
    for batch in batches:
        store.pyramid.observe(batch)


def _timed(run: object) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
