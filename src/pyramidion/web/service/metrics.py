"""Numbers for Prometheus: how the service does, and what its streams hold now.

Nothing here counts observed rows for ever: hot rows are told as they are now, and go down as
they leave. Requests that bring rows, often one, are counted from zero again with every hot step and
every hour: to Prometheus that is a counter which was reset. Whether a model could be trained tells
of the rows it failed on, so that is told while it is so and not counted. No path, token, model or
value is a label.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pyramidion.errors import PyramidionError
from pyramidion.store.status import Status
from pyramidion.web.metrics import Requests
from pyramidion.web.service.streams import Stream

if TYPE_CHECKING:
    from pyramidion.web.service.service import Service

SECOND = 1_000_000
GROUPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
HOUR = 3_600 * SECOND
BRINGING = ("/observations", "/rows")
"""How the routes end, of the service and its dashboard, by which rows come."""
KEPT = ("populating", "sealed")
"""States of windows that are told."""

OF_STREAMS = {
    "hot_rows": ("rows that are hot now", ()),
    "hot_age_seconds": ("since the oldest hot step began", ()),
    "window_age_seconds": ("since a count window began", ("window", "state")),
    "budget_left": ("what a window can still spend, in its unit", ("window", "unit")),
    "snapshot_expires_seconds": ("until the snapshot that is served expires", ()),
    "snapshot_windows": ("sealed windows in the snapshot that is served", ()),
    "models": ("registered models", ("state",)),
    "retrain_failures": ("models that could not be trained the last time, now", ()),
    "shard_missing_windows": ("windows of other shards that the sum lacks, unreadable", ()),
    "vault_backlog_files": ("sealed files that the vault has not taken yet", ()),
    "vault_backlog_seconds": ("since the newest rows of the oldest of them came", ()),
    "vault_waiting_rows": ("hot rows that are in no sealed file yet", ()),
    "clock_alarm": ("1 when clocks disagree, so that nothing is erased or sealed", ()),
    "trouble": ("1 when what is due could not be done, or the stream not looked at", ()),
}
"""What is told of each stream: what it means, and its labels besides ``stream``."""


class Metrics(Requests):
    """The numbers of one service."""

    def __init__(self, service: Service) -> None:
        super().__init__(service.admission)
        self._service = service
        self._period: dict[str, int] = {}
        """The hour, and the hot step of each stream, in which counting what brings rows began."""
        self._forgetting = threading.Lock()
        self._groups = self._no_groups()
        self.registry.register(_OfStreams(service))

    def committed(self, requests: int) -> None:
        """So many observe requests shared one durable commit."""
        self._groups.observe(requests)

    def exposition(self) -> bytes:
        """All of it, as Prometheus reads it."""
        self._forget()
        return super().exposition()

    def _no_groups(self) -> Histogram:
        return Histogram(
            "pyramidion_commit_requests",
            "observe requests that shared one durable commit",
            buckets=GROUPS,
            registry=self.registry,
        )

    def opened(self, stream: Stream) -> None:
        """Requests of a stream are counted from now on."""
        self._period.setdefault("", self._service.now // HOUR)
        self._period[stream.name] = _step(stream)

    def _forget(self) -> None:
        """Begin again to count what brings rows, where what was counted began in another period.

        Nothing is told of requests whose rows may have left, whenever somebody asks.
        """
        now = {stream.name: _step(stream) for stream in self._service.every}
        now[""] = self._service.now // HOUR
        with self._forgetting:
            former, self._period = self._period, now
            if all(former.get(name, step) == step for name, step in now.items()):
                return
            for about in [each for each in list(self._children) if each[0].endswith(BRINGING)]:
                del self._children[about]
                self._seconds.remove(about[0], about[1], f"{about[2]}xx")
            self.registry.unregister(self._groups)
            self._groups = self._no_groups()


def _step(stream: Stream) -> int:
    """Which of its hot steps a stream is in."""
    return stream.now // stream.pyramid.settings.hot_step_us


class _OfStreams(Collector):
    """Looks the streams over when asked."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        """The names, without looking."""
        return _families().values()

    def collect(self) -> Iterable[Metric]:
        """What the streams hold now."""
        families = _families()
        for stream in self._service.every:
            for name, labels, value in _told(stream, stream.now):
                families[name].add_metric([stream.name, *labels], value)
        return families.values()


def _families() -> dict[str, GaugeMetricFamily]:
    return {
        name: GaugeMetricFamily(f"pyramidion_{name}", about, labels=("stream", *labels))
        for name, (about, labels) in OF_STREAMS.items()
    }


Told = tuple[str, tuple[str, ...], float]


def _told(stream: Stream, now: int) -> list[Told]:
    """The numbers of one stream; those that cannot be had are left out, and said to be."""
    found: list[Told] = []
    trouble = bool(stream.trouble)
    try:
        found += _of_status(stream.pyramid.status())
        found += _of_models(stream)
        found += _of_snapshot(stream, now)
        found += _of_ledger(stream)
    except PyramidionError:
        trouble = True
    return [*found, ("trouble", (), float(trouble))]


def _of_status(status: Status) -> Iterator[Told]:
    yield "hot_rows", (), status.hot_rows
    yield "clock_alarm", (), float(status.clock.alarm is not None)
    if status.oldest_hot is not None:
        yield "hot_age_seconds", (), (status.at - status.oldest_hot) / SECOND
    for window in status.windows:
        if window.state in KEPT and window.start is not None:
            labels = str(window.number), window.state
            yield "window_age_seconds", labels, (status.at - window.start) / SECOND
    if status.shard is not None:
        yield "shard_missing_windows", (), sum(status.shard.missing.values())
    vault = status.vault
    if vault is not None:
        yield "vault_backlog_files", (), vault.backlog_files
        yield "vault_waiting_rows", (), vault.waiting_rows
        since = status.at if vault.backlog_since is None else vault.backlog_since
        yield "vault_backlog_seconds", (), (status.at - since) / SECOND


def _of_models(stream: Stream) -> Iterator[Told]:
    models = list(stream.pyramid.models.values())
    available = sum(model.available for model in models)
    yield "models", ("available",), available
    yield "models", ("unavailable",), len(models) - available
    yield "retrain_failures", (), sum(bool(model.why) and not model.stale for model in models)


def _of_snapshot(stream: Stream, now: int) -> Iterator[Told]:
    """Nothing while no window is sealed."""
    try:
        snapshot = stream.pyramid.snapshot()
    except PyramidionError:
        yield "snapshot_windows", (), 0
        return
    yield "snapshot_windows", (), snapshot.guarantee.windows
    expires: int | None = getattr(snapshot, "expires", None)
    if expires is not None:
        yield "snapshot_expires_seconds", (), (expires - now) / SECOND


def _of_ledger(stream: Stream) -> Iterator[Told]:
    kept = {w.number for w in stream.pyramid.status().windows if w.state in KEPT}
    for window in stream.pyramid.ledger.report().windows:
        if window.number in kept:
            yield "budget_left", (str(window.number), window.unit), float(window.left)
