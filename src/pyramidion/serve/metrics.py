"""Numbers for Prometheus: how the service does, and what its streams hold now.

Nothing here counts observed rows for ever: hot rows are told as they are now, and go down as
they leave. Whether a model could be trained tells of the rows it failed on, so that is told
while it is so and not counted. No path, token, model or value is a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pyramidion.errors import PyramidionError
from pyramidion.serve.streams import Stream
from pyramidion.status import Status

if TYPE_CHECKING:
    from pyramidion.serve.service import Service

TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECOND = 1_000_000
FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
GROUPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
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
    "vault_backlog_files": ("sealed files that the vault has not taken yet", ()),
    "vault_backlog_bytes": ("their bytes", ()),
    "vault_backlog_seconds": ("since the newest rows of the oldest of them came", ()),
    "vault_waiting_rows": ("hot rows that are in no sealed file yet", ()),
    "trouble": ("1 when what is due could not be done, or the stream not looked at", ()),
}
"""What is told of each stream: what it means, and its labels besides ``stream``."""


class Metrics:
    """The numbers of one service, in a registry of their own."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "pyramidion_request_seconds",
            "from a request's header to the end of its answer",
            ("route", "method", "status"),
            buckets=FAST,
            registry=self.registry,
        )
        self._children: dict[tuple[str, str, int], Histogram] = {}
        """What `_seconds` has for routes, methods and statuses, past its locks."""
        self.in_flight = 0
        in_flight = Gauge(
            "pyramidion_requests_in_flight",
            "requests that are being answered",
            registry=self.registry,
        )
        in_flight.set_function(lambda: self.in_flight)
        self._turned_away = Counter(
            "pyramidion_turned_away",
            "requests refused with 429",
            ("reason",),
            registry=self.registry,
        )
        self._groups = Histogram(
            "pyramidion_commit_requests",
            "observe requests that shared one durable commit",
            buckets=GROUPS,
            registry=self.registry,
        )
        held = Gauge(
            "pyramidion_held_bytes",
            "bytes of bodies that are held, in whole MB",
            registry=self.registry,
        )
        # In whole MB: how long one body is tells of its rows, and numbers are kept beyond them.
        held.set_function(lambda: service.admission.held >> 20 << 20)
        self.registry.register(_OfStreams(service))

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered, or its caller left."""
        about = route, method, status // 100
        found = self._children.get(about)
        if found is None:
            found = self._children[about] = self._seconds.labels(route, method, f"{about[2]}xx")
        found.observe(seconds)

    def turned_away(self, reason: str) -> None:
        """A request was refused because there were too many."""
        self._turned_away.labels(reason).inc()

    def committed(self, requests: int) -> None:
        """So many observe requests shared one durable commit."""
        self._groups.observe(requests)

    def exposition(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)


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
    if status.oldest_hot is not None:
        yield "hot_age_seconds", (), (status.at - status.oldest_hot) / SECOND
    for window in status.windows:
        if window.state in KEPT and window.start is not None:
            labels = str(window.number), window.state
            yield "window_age_seconds", labels, (status.at - window.start) / SECOND
    vault = status.vault
    if vault is not None:
        yield "vault_backlog_files", (), vault.backlog_files
        yield "vault_backlog_bytes", (), vault.backlog_bytes
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
