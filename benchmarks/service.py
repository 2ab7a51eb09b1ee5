"""The service beside itself without protection: predictions, rows in, the client's features.

Predictions are asked in pairs on one kept connection, a row and a ready-made feature vector of
the same width by turns, so that both meet the same neighbours; the figure is the median of the
paired differences over the median of the vectors', with an interval from a bootstrap.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import rows
from benchmarks.inside import TIMES
from benchmarks.report import Report
from pyramidion import Pyramid, Settings
from pyramidion.web.service.tokens import Tokens

DAY = 86_400
BATCH = 10_000
PAIRS = 4_000
ARROW = "application/vnd.apache.arrow.stream"
MOST, MOST_TAIL = 1.04, 1.10
"""What a prediction from a row may take, by one from a vector: the median, and the 99th."""
MOST_BUSY = 2.0
LEAST_ARROW, LEAST_GROUPED = 0.5, 20.0
DISTURBING: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("a window seals and the next is born", "/reseed", {"why": "benchmark"}),
    ("a model is trained", "/models/click/retrain", {}),
)
CONNECTIONS = 32
ROUNDS = 3
ALL_ROLES = ("observe", "train", "predict", "admin")


class Served:
    """A service in a process of its own, over one stream with a sealed window and a model."""

    def __init__(self, command: str = "from pyramidion.cli import run; run()") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pyramidion-bench-"))
        data, keys = self.folder / "data", f"file:{self.folder}/{{stream}}.key"
        settings = Settings(epsilon=1.0, delta=1e-9, count_window="1d", hot_window="2d")
        now = [time.time() - DAY - 60]
        holder = keys.replace("{stream}", "clicks")
        data.mkdir()
        self.table = as_text(rows.table(*rows.matrix(3 * BATCH)))
        with Pyramid.create(
            data / "clicks", rows.schema(), settings, keys=holder, clock=lambda: now[0]
        ) as store:
            store.observe(self.table.slice(0, BATCH))
            now[0] = time.time()
            store.advance()
            store.observe(self.table.slice(BATCH, BATCH))
            self.width = len(store.snapshot().names)
        self.token = Tokens.of(data).add("bench", ALL_ROLES, [], 0)
        serve = ["serve", "--data", str(data), "--keys", keys, "--port", "0", "--json"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, *serve],
            env=os.environ | {TIMES: str(self.folder / "times")},
            stdout=subprocess.PIPE,
            stderr=(self.folder / "log").open("w"),
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(json.loads(self.process.stdout.readline())["url"].rpartition(":")[2])
        line = Line(self)
        line.ask("PUT", "/models/click", {"estimator": "LogisticRegression"})
        line.close()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)


class Line:
    """A kept connection, with as little of its own as there can be."""

    def __init__(self, served: Served) -> None:
        self._token = served.token
        self._socket = socket.create_connection(("127.0.0.1", served.port))
        self._held = b""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, method: str, path: str, body: bytes, kind: str = "application/json") -> bytes:
        head = (
            f"{method} /v1/streams/clicks{path} HTTP/1.1\r\nHost: bench\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def send(self, request: bytes) -> bytes:
        """The body of the answer."""
        self._socket.sendall(request)
        held = b""
        while b"\r\n\r\n" not in held:
            held += self._more()
        head, _, body = held.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        while len(body) < length:
            body += self._more()
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"{head[:40]!r}: {body[:300]!r}")
        return body

    def _more(self) -> bytes:
        found = self._socket.recv(1 << 16)
        if not found:
            raise ConnectionError("the service left")
        return found

    def fileno(self) -> int:
        return self._socket.fileno()

    def begin(self, request: bytes) -> None:
        """Ask for a receipt, and do not wait for it."""
        self._held = b""
        self._socket.sendall(request)

    def ended(self) -> bool:
        """Read on; whether the receipt is whole."""
        self._held += self._more()
        if not self._held.startswith(b"HTTP/1.1 2"[: len(self._held)]):
            raise RuntimeError(repr(self._held[:300]))
        return self._held.endswith(b"}")

    def ask(self, method: str, path: str, told: Any) -> Any:
        return json.loads(self.send(self.request(method, path, json.dumps(told).encode())))

    def close(self) -> None:
        self._socket.close()


def as_text(table: pa.Table) -> pa.Table:
    """Open categories as they come in the data set: short hexadecimal texts."""
    for name in rows.NAMES[rows.NUMERIC :]:
        texts = [f"{value:08x}" for value in table[name].to_pylist()]
        table = table.set_column(table.column_names.index(name), name, pa.array(texts))
    return table


def main(report: Report) -> None:
    served = Served()
    try:
        predicting(report, served)
        busy(report, served)
        arrow_in(report, served)
        small_in(report, served)
    finally:
        served.close()
    breakdown()


# --- predictions ----------------------------------------------------------------------------


def _asked(line: Line, served: Served) -> tuple[list[bytes], list[bytes]]:
    """Requests with rows, and the same predictions asked with ready-made vectors."""
    some = served.table.slice(2 * BATCH, 200).drop_columns(["click"]).to_pylist()
    made = line.ask("POST", "/features", some)["rows"]
    path = "/models/click/predictions"
    by_row = [line.request("POST", path, json.dumps(row).encode()) for row in some]
    by_vector = [line.request("POST", path, json.dumps({"features": v}).encode()) for v in made]
    return by_row, by_vector


def predicting(report: Report, served: Served) -> None:
    report.title(f"one prediction over HTTP, {len(rows.NAMES)} features, logistic regression")
    line = Line(served)
    by_row, by_vector = _asked(line, served)
    assert _same(line.send(by_row[0]), line.send(by_vector[0]))
    for place in range(300):
        line.send(by_row[place % 200]), line.send(by_vector[place % 200])
    ours, peers = np.empty(PAIRS), np.empty(PAIRS)
    for place in range(PAIRS):
        first, second = by_row[place % 200], by_vector[place % 200]
        if place % 2:  # who comes first must not matter
            peers[place], ours[place] = _timed(line, second), _timed(line, first)
        else:
            ours[place], peers[place] = _timed(line, first), _timed(line, second)
    line.close()
    ratio, low, high = paired(ours, peers)
    told = f"{np.median(ours) * 1e6:5.0f} µs   a vector {np.median(peers) * 1e6:5.0f} µs   "
    told += f"{ratio:.3f} x [{low:.3f}, {high:.3f}]"
    report.line("median", told, target=f"<= {MOST:g} x", met=ratio <= MOST)
    tails = np.percentile(ours, 99), np.percentile(peers, 99)
    told = f"{tails[0] * 1e6:5.0f} µs   a vector {tails[1] * 1e6:5.0f} µs   "
    told += f"{tails[0] / tails[1]:.3f} x"
    met = tails[0] <= MOST_TAIL * tails[1]
    report.line("99th percentile", told, target=f"<= {MOST_TAIL:g} x", met=met)


def breakdown() -> None:
    """Where the time of a prediction goes, told by a service that looks at its own clock."""
    print("\nwhere that goes: medians in the service, and what is left outside of them")
    served = Served("from benchmarks.inside import run; run()")
    try:
        line = Line(served)
        asked = _asked(line, served)
        took: list[list[float]] = [[], []]
        for place in range(2_000):
            for kind in (0, 1):
                took[kind].append(_timed(line, asked[kind][place % 200]))
        line.close()
        time.sleep(3)  # the service tells once a second, and by now of when nobody asked
        inside = json.loads((served.folder / "times").read_text())
    finally:
        served.close()
    for kind, name in enumerate(("a row", "a vector")):
        total = float(np.median(took[kind])) * 1e6
        parts = dict(zip(("unmarshal", "featurize", "predict"), inside[str(kind)], strict=True))
        parts["network and framework"] = total - sum(parts.values())
        told = ", ".join(f"{part} {us:.1f} µs ({us / total:.1%})" for part, us in parts.items())
        print(f"       {name:<9}{told}, in all {total:.0f} µs")


def _same(ours: bytes, peers: bytes) -> bool:
    return json.loads(ours)["probabilities"] == json.loads(peers)["probabilities"]


def _timed(line: Line, request: bytes) -> float:
    start = time.perf_counter()
    line.send(request)
    return time.perf_counter() - start


def paired(ours: NDArray[Any], peers: NDArray[Any]) -> tuple[float, float, float]:
    """One and the median paired difference over the peers' median; an interval of 95 %."""
    random = np.random.default_rng(0)
    difference = ours - peers
    found = []
    for _ in range(500):
        chosen = random.integers(len(ours), size=len(ours))
        found.append(1 + np.median(difference[chosen]) / np.median(peers[chosen]))
    low, high = np.percentile(found, [2.5, 97.5])
    return float(1 + np.median(difference) / np.median(peers)), float(low), float(high)


def busy(report: Report, served: Served) -> None:
    report.title("predictions while a window seals and models are trained again")
    line, other = Line(served), Line(served)
    by_row, _ = _asked(line, served)
    quiet = [_timed(line, by_row[place % 200]) for place in range(2_000)]
    done, doing, problems = threading.Event(), [""], list[Exception]()

    def disturb() -> None:
        try:
            for _ in range(2):
                for doing[0], path, told in DISTURBING:
                    other.ask("POST", path, told)
        except Exception as problem:
            problems.append(problem)
        finally:
            done.set()

    thread = threading.Thread(target=disturb)
    thread.start()
    loud: list[float] = []
    during: dict[str, list[float]] = {what: [] for what, *_ in DISTURBING}
    while not done.is_set():
        what, took = doing[0], _timed(line, by_row[len(loud) % 200])
        loud.append(took)
        during.get(what, []).append(took)
    thread.join()
    if problems:
        raise problems[0]
    beside = _beside_a_stranger(line, by_row)
    line.close()
    other.close()
    tails = np.percentile(loud, 99), np.percentile(quiet, 99)
    told = (
        f"{tails[0] * 1e6:5.0f} µs   quiet {tails[1] * 1e6:5.0f} µs   {tails[0] / tails[1]:.2f} x"
    )
    told += f" ({len(loud)} asked)"
    met = tails[0] <= MOST_BUSY * tails[1]
    report.line("99th percentile", told, target=f"<= {MOST_BUSY:g} x", met=met)
    for what, some in during.items():
        tail = float(np.percentile(some, 99))
        told = f"{tail * 1e6:5.0f} µs   {tail / tails[1]:.2f} x ({sum(some):.0f} s)"
        met = tail <= MOST_BUSY * tails[1]
        report.line(f"while {what}", told, target=f"<= {MOST_BUSY:g} x", met=met)
    tail = float(np.percentile(beside, 99))
    print(
        f"       beside a stranger that only computes: {tail * 1e6:.0f} µs, {tail / tails[1]:.2f} x"
    )


def _beside_a_stranger(line: Line, requests: list[bytes]) -> list[float]:
    """The control: as long as another process keeps one core busy, and has no lock of ours."""
    stranger = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        return [_timed(line, requests[place % 200]) for place in range(2_000)]
    finally:
        stranger.kill()
        stranger.wait()


# --- rows in --------------------------------------------------------------------------------


def arrow_in(report: Report, served: Served) -> None:
    report.title(f"observing Arrow batches of {BATCH:,} rows over HTTP")
    batch = served.table.slice(0, BATCH)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_table(batch)
    line = Line(served)
    request = line.request("POST", "/observations", sink.getvalue().to_pybytes(), ARROW)
    line.close()  # a service closes one that rests for long
    folder = Path(tempfile.mkdtemp(prefix="pyramidion-bench-"))
    settings = Settings(epsilon=1.0, delta=1e-9, count_window="1d", hot_window="2d")
    with Pyramid.create(
        folder / "store", rows.schema(), settings, keys=f"file:{folder}/key"
    ) as store:
        store.observe(batch)
        line = Line(served)
        line.send(request)
        ours, peers = [], []
        for _ in range(15):
            ours.append(_timed(line, request))
            peers.append(_clocked(lambda: store.observe(batch)))
    shutil.rmtree(folder)
    line.close()
    report.ratio(
        "one batch",
        float(np.median(ours)),
        float(np.median(peers)),
        of="in-process",
        least=LEAST_ARROW,
    )


def _clocked(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def small_in(report: Report, served: Served) -> None:
    report.title(f"observing single JSON rows from {CONNECTIONS} connections")
    row = served.table.slice(0, 1).to_pylist()[0]
    lines = [Line(served) for _ in range(CONNECTIONS)]
    request = lines[0].request("POST", "/observations", json.dumps(row).encode())
    singles, groups = [], []
    for _ in range(ROUNDS):  # by turns: the machine may be busy with something else
        singles.append(60 / _clocked(lambda: flood(lines[:1], request, 60)))
        groups.append(60 * CONNECTIONS / _clocked(lambda: flood(lines, request, 60)))
    for line in lines:
        line.close()
    single, grouped = float(np.median(singles)), float(np.median(groups))
    told = f"{grouped:8.0f} a second   one commit each {single:6.0f}   {grouped / single:.1f} x"
    met = grouped >= LEAST_GROUPED * single
    report.line("requests", told, target=f">= {LEAST_GROUPED:g} x", met=met)


def flood(lines: list[Line], request: bytes, each: int) -> None:
    """Ask so often on every connection, again as soon as one is answered.

    All in one thread, which looks no further into an answer than it must: the service has the
    same two cores.
    """
    left = dict.fromkeys(lines, each)
    with selectors.DefaultSelector() as selector:
        for line in lines:
            selector.register(line, selectors.EVENT_READ)
            line.begin(request)
        while left:
            for key, _ in selector.select():
                line = key.fileobj
                if not line.ended():
                    continue
                left[line] -= 1
                if left[line]:
                    line.begin(request)
                else:
                    del left[line]
