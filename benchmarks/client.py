"""A snapshot on its way to a client, and features of one row there, beside the store's own."""

from __future__ import annotations

import time

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks import rows
from benchmarks.featurizing import microseconds
from benchmarks.report import Report, best
from pyramidion import Settings
from pyramidion.counts.snapshot_file import snapshot_bytes, snapshot_from
from pyramidion.learn.counting import Counting
from pyramidion.web.client import FreshSnapshot

ROWS = 100_000


def main(report: Report) -> None:
    X, y = rows.matrix(ROWS)
    table = rows.table(X, y)
    counting = Counting(rows.schema(), Settings(epsilon=1.0))
    counting.add(counting.door.observations(table), threads=2)
    snapshot, signer = counting.snapshot(), Ed25519PrivateKey.generate()
    key = signer.public_key()

    def sent() -> bytes:
        now = int(time.time() * 1_000_000)
        return snapshot_bytes(snapshot, stream="clicks", now=now, signer=signer)

    data, cells = sent(), snapshot._arena.layout.nbytes
    report.title("a snapshot of 39 tables on its way to a client")
    told = f"{len(data) / 1e6:8.1f} MB of {cells / 1e6:.1f} MB"
    report.line("compressed and signed", told, target="<= 0.6 x", met=len(data) <= 0.6 * cells)
    made = best(sent)
    taken = best(lambda: snapshot_from(data, stream="clicks", verifier=key, clock=time.time))
    for what, seconds in (("made by the service", made), ("taken by the client", taken)):
        report.line(what, f"{seconds * 1e3:8.0f} ms", target="<= 5 s", met=seconds <= 5)

    row = table.slice(5, 1).drop_columns(["click"]).to_pylist()[0]
    for name in rows.NAMES[rows.NUMERIC :]:
        row[name] = str(row[name])
    report.title("featurizing one dict of 39 values")
    with FreshSnapshot(lambda *_: (data, "tag"), lambda: key, time.time) as fresh:
        ours, peer = [], []
        for _ in range(5):  # turn by turn: the machine is shared
            peer.append(microseconds(lambda: snapshot.featurize_one(row), times=100))
            ours.append(microseconds(lambda: fresh.featurize_one(row), times=100))
    told = f"{min(ours):8.1f} µs   the store's own {min(peer):8.1f} µs"
    report.line("in a client", told, target="<= 30 µs", met=min(ours) <= 30)
