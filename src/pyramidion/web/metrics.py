"""Numbers of requests for Prometheus: how many, how long, how many were too many.

No path, token, model or value is a label: what is asked for is told by its route.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pyramidion.web.limits import Admission

TYPE = "text/plain; version=0.0.4; charset=utf-8"
FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Requests:
    """The numbers of all requests, in a registry of their own."""

    def __init__(self, admission: Admission) -> None:
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
        held = Gauge(
            "pyramidion_held_bytes",
            "memory of bodies that are held, in steps of 32 MB",
            registry=self.registry,
        )
        # In large steps: how long one body is tells of its rows, and numbers are kept beyond them.
        held.set_function(lambda: admission.held >> 25 << 25)

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

    def exposition(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)
