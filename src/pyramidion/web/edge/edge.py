"""What one edge answers from, and how much it takes: copies, callers, limits, numbers."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pyramidion.web.edge.bodies import LIMITS
from pyramidion.web.edge.copies import Copies
from pyramidion.web.limits import Admission, Limits
from pyramidion.web.metrics import Requests
from pyramidion.web.tokens import TokenFile


class Edge:
    """One edge; who made its copies closes them."""

    def __init__(
        self,
        copies: Copies,
        tokens: TokenFile,
        limits: Limits = LIMITS,
        *,
        open_metrics: bool = False,
        version: str = "unknown",
    ) -> None:
        self.copies, self.tokens, self.limits = copies, tokens, limits
        self.open_metrics, self.version = open_metrics, version
        self.admission = Admission(limits)
        self.metrics = Requests(self.admission)
        self.admission.refused = self.metrics.turned_away
        self.metrics.registry.register(_OfCopies(copies))


class _OfCopies(Collector):
    """What is at hand, and for how long; no model's name is a label."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def describe(self) -> Iterable[Metric]:
        """The names, without looking."""
        return _families().values()

    def collect(self) -> Iterable[Metric]:
        """What is at hand now."""
        families = _families()
        for told in self._copies.told():
            if told.tables_seconds is not None:
                families["snapshot_expires_seconds"].add_metric([told.stream], told.tables_seconds)
            if told.models_seconds is not None:
                families["model_expires_seconds"].add_metric([told.stream], told.models_seconds)
            families["models"].add_metric([told.stream, "available"], told.available)
            families["models"].add_metric([told.stream, "unavailable"], told.unavailable)
            families["trouble"].add_metric([told.stream], float(told.trouble))
        return families.values()


def _families() -> dict[str, GaugeMetricFamily]:
    about = {
        "snapshot_expires_seconds": ("until the tables at hand expire", ("stream",)),
        "model_expires_seconds": ("until the first of the models at hand expires", ("stream",)),
        "models": ("models that were asked for", ("stream", "state")),
        "trouble": ("1 when the last look at the service failed", ("stream",)),
    }
    return {
        name: GaugeMetricFamily(f"pyramidion_{name}", told, labels=labels)
        for name, (told, labels) in about.items()
    }
