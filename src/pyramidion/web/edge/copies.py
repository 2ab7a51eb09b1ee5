"""What an edge holds: snapshots and models, in memory alone, each until it expires.

A thread looks after them. While the service does not answer, those at hand serve until they
expire; a model that the service has no more, or that it trains again without rows that were
erased, is dropped at once. The thread also has each model predict made-up rows, so that no kernel
is compiled while a request waits in the event loop.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.checks import nearest
from pyramidion.config.schema import Continuous
from pyramidion.counts.deadline import HighWater
from pyramidion.counts.signing import refuse_older, unsign
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import ExpiredError, FormatError, MissingError, PyramidionError
from pyramidion.web.client import Client, FreshSnapshot

SECOND = 1_000_000
KIND = "model"
"""What an exported model is signed as."""

LOG = logging.getLogger("pyramidion.edge")
HASTE = 0.5  # seconds between looks where something is missing
NOTHING = "it has not come from the service yet"
LOADING = "its kernels are being loaded"
VALUES: tuple[Any, ...] = ("a", 7, 1 << 63, 7.5, True, None)
"""One of each type that a value in JSON can have, and that has kernels of its own."""


class Revived(Protocol):
    """A model away from its store; see `pyramidion.learn.exports`."""

    classes: tuple[Any, ...]
    version: int
    expires: int

    @property
    def expired(self) -> bool:
        """Whether it predicts no more."""

    def predict(self, snapshot: Snapshot, rows: Any) -> NDArray[Any]:
        """The likeliest class, or the expected number."""

    def predict_proba(self, snapshot: Snapshot, rows: Any) -> NDArray[Any]:
        """A probability for each class."""

    def proba_one(self, features: NDArray[Any], snapshot: Snapshot) -> NDArray[np.float64]:
        """A probability for each class, for one row of all features that a snapshot gives."""


Revive = Callable[[Mapping[str, Any], bytes, Callable[[], float]], Revived]


def revived(header: Mapping[str, Any], payload: bytes, clock: Callable[[], float]) -> Revived:
    """A model from its export."""
    found: Revived = import_module("pyramidion.learn.exports").Revived.from_parts(
        header, payload, clock
    )
    return found


class Told(NamedTuple):
    """How the copies of a stream stand."""

    stream: str
    tables_seconds: float | None
    """Until the tables at hand expire; None where there are none."""
    models_seconds: float | None
    """Until the first of its models at hand does."""
    available: int
    unavailable: int
    trouble: bool


class HeldModel:
    """One model of a stream, as new as the service's."""

    def __init__(self, client: Client, stream: str, name: str, revive: Revive) -> None:
        self._client, self._revive = client, revive
        self.stream, self.name = stream, name
        self.trouble = NOTHING
        self._held: Revived | None = None
        self._loaded: tuple[weakref.ref[Snapshot], weakref.ref[Revived]] | None = None
        self._newest = 0  # when the newest one that was taken was signed
        self._whole = 0

    def current(self) -> Revived:
        """The model at hand; refuses where its time is over."""
        held = self._held
        if held is None or held.expired:
            self._held = None
            raise ExpiredError(
                f"model {self.name!r} is not at hand: {self.trouble or 'its time is over'}; "
                f"ask again when the service has answered"
            )
        return held

    @property
    def lacking(self) -> bool:
        """Whether there is none that answers."""
        held = self._held
        return held is None or held.expired

    @property
    def expires(self) -> int | None:
        """When the one at hand ends; None where there is none that answers."""
        held = self._held
        return None if held is None or held.expired else held.expires

    @property
    def loading(self) -> bool:
        """Whether it has predicted nothing yet, so that its kernels may not be there."""
        return self._loaded is None

    def is_loaded(self, snapshot: Snapshot) -> bool:
        """Whether the one at hand has predicted from these tables, so that no kernel is missing."""
        loaded = self._loaded
        return loaded is not None and loaded[0]() is snapshot and loaded[1]() is self._held

    def load(self, snapshot: Snapshot) -> Iterator[None]:
        """Predict made-up rows, which compiles every kernel that a row needs."""
        model = self.current()
        for predict in _predictions(model, snapshot):
            with suppress(PyramidionError):  # such as of a text where numbers are
                predict()
            yield
        self._loaded = weakref.ref(snapshot), weakref.ref(model)

    def renew(self, time: HighWater) -> None:
        """Take what the service has now, if that is another; drop what it has no more."""
        try:
            told = self._client.model(self.stream, self.name)
            if not told.get("available", True):  # rows that it learned from may be erased
                self._held = None
            if self._as_good(told, time()):
                self.trouble = ""
                return
            data = self._client.export(self.stream, self.name)
            header, payload = unsign(data, KIND, self.stream, self._client.key())
            if header.get("name") != self.name:
                raise FormatError(
                    f"this model is not {self.name!r}: the service signed it as another; fetch it "
                    f"again"
                )
            made = int(header.get("made", 0))
            refuse_older(KIND, made, self._newest)
            now = time.seen(made)
            found = self._revive(header, bytes(payload), lambda: time() / 1_000_000)
        except MissingError as problem:
            self._held, self.trouble = None, str(problem)
        except PyramidionError as problem:
            self.trouble = str(problem)
        except Exception as problem:  # one that nobody foresaw may hold values
            self.trouble = f"it cannot be revived here ({type(problem).__name__})"
        else:
            self._held, self.trouble = found, ""
            self._newest = made
            self._whole = now + (found.expires - now) // 2

    def _as_good(self, told: Mapping[str, Any], now: int) -> bool:
        """Whether the model at hand is the service's, and lives for a while."""
        held = None if self.lacking else self._held
        return held is not None and told.get("version") == held.version and now < self._whole


def _predictions(model: Revived, snapshot: Snapshot) -> Iterator[Callable[[], object]]:
    """Predictions of one row, with values of each type."""
    features = snapshot.encoder.schema.features
    rows: list[dict[str, Any]] = [{}]
    for value in VALUES:
        rows.append({each.name: value for each in features})
        mixed = {each.name: 7.5 if isinstance(each, Continuous) else value for each in features}
        rows.append(mixed)
    for row in rows:
        yield partial(model.predict, snapshot, [row])
        if model.classes:
            yield partial(model.predict_proba, snapshot, [row])
    if model.classes:
        yield partial(model.proba_one, np.zeros(len(snapshot.names), dtype=np.float32), snapshot)


class Copies:
    """All that an edge holds, by stream and by model."""

    def __init__(
        self,
        client: Client,
        wanted: Mapping[str, Sequence[str]],
        *,
        clock: Callable[[], float],
        every: float,
        revive: Revive = revived,
    ) -> None:
        self._client, self._every = client, every
        self._time = HighWater(wall=lambda: int(clock() * SECOND))
        self._snapshots: dict[str, FreshSnapshot | None] = dict.fromkeys(wanted)
        self._troubles = dict.fromkeys(wanted, NOTHING)
        self._models = {
            (stream, name): HeldModel(client, stream, name, revive)
            for stream, names in wanted.items()
            for name in names
        }
        self._logged: dict[tuple[str, str], str] = {}
        """What was told last of each, so that it is told once."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="pyramidion edge", daemon=True)

    def begin(self) -> Self:
        """Look once, then begin to look after them."""
        self.look()
        self._thread.start()
        return self

    def close(self) -> None:
        """Let go of everything."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for fresh in self._snapshots.values():
            if fresh is not None:
                fresh.close()
        self._models.clear()
        self._client.close()

    # --- what is at hand ----------------------------------------------------------------------

    def snapshot(self, stream: str) -> Snapshot:
        """The tables of a stream; refuses where their time is over."""
        if stream not in self._snapshots:
            told = nearest(stream, list(self._snapshots))
            raise MissingError(f"this edge has no stream of this name; {told}")
        fresh = self._snapshots[stream]
        if fresh is None or fresh.current.expired:
            why = self._troubles[stream] if fresh is None else fresh.trouble
            raise ExpiredError(
                f"the tables of stream {stream!r} are not at hand: {why or 'their time is over'}; "
                f"ask again when the service has answered"
            )
        return fresh.current

    def model(self, stream: str, name: str) -> Revived:
        """A model of a stream; refuses where its time is over."""
        self.snapshot(stream)
        found = self._models.get((stream, name))
        if found is None:
            known = [model for of, model in self._models if of == stream]
            remedy = nearest(name, known) if known else "it holds none of this stream"
            raise MissingError(f"this edge has no model of this name; {remedy}")
        return found.current()

    def is_loaded(self, stream: str, name: str) -> bool:
        """Whether a model predicts without compiling a kernel, which takes seconds."""
        return self._models[stream, name].is_loaded(self.snapshot(stream))

    def lacking(self) -> dict[str, str]:
        """What does not answer now, and why."""
        found = {}
        for stream in self._snapshots:
            try:
                self.snapshot(stream)
            except ExpiredError as problem:
                found[stream] = str(problem)
        for (stream, name), model in list(self._models.items()):
            if model.lacking:
                found[f"{stream}/{name}"] = model.trouble or "its time is over"
            elif model.loading:
                found[f"{stream}/{name}"] = LOADING
        return found

    def told(self) -> list[Told]:
        """How the copies of each stream stand."""
        now, found = self._time(), []
        for stream, fresh in list(self._snapshots.items()):
            models = [model for (of, _), model in list(self._models.items()) if of == stream]
            ends = [each for model in models if (each := model.expires) is not None]
            tables = None if fresh is None or fresh.current.expired else fresh.expires
            troubled = fresh is None or bool(fresh.trouble)
            found.append(
                Told(
                    stream,
                    None if tables is None else (tables - now) / SECOND,
                    (min(ends) - now) / SECOND if ends else None,
                    len(ends),
                    len(models) - len(ends),
                    troubled or any(model.trouble for model in models),
                )
            )
        return found

    # --- looked after ---------------------------------------------------------------------------

    def look(self) -> None:
        """Take what is new; what fails is told, and tried again."""
        for stream, fresh in self._snapshots.items():
            try:
                if fresh is None:
                    self._snapshots[stream] = self._client.snapshot(stream, every=self._every)
            except PyramidionError as problem:
                self._troubles[stream] = str(problem)
        for model in self._models.values():
            model.renew(self._time)
        self._log()

    def _log(self) -> None:
        """Tell what came and what went wrong since the last look; an error holds no values."""
        for stream, fresh in self._snapshots.items():
            trouble = self._troubles[stream] if fresh is None else fresh.trouble
            self._tell(stream, "tables", trouble)
        for (stream, name), model in list(self._models.items()):
            self._tell(stream, f"model {name}", model.trouble)

    def _tell(self, stream: str, what: str, trouble: str) -> None:
        if trouble == self._logged.get((stream, what), NOTHING):
            return
        self._logged[stream, what] = trouble
        if trouble:
            LOG.warning("%s cannot be renewed", what, extra={"stream": stream, "trouble": trouble})
        else:
            LOG.info("%s at hand", what, extra={"stream": stream})

    def _keep(self) -> None:
        self._load()
        while not self._stop.wait(self._pause()):
            with suppress(Exception):  # whatever it was, the next look may fare better
                self.look()
            self._load()

    def _load(self) -> None:
        """Load the kernels of models or tables that are new, in this thread and in no other."""
        for (stream, name), model in list(self._models.items()):
            try:
                snapshot = self.snapshot(stream)
                for _ in () if model.is_loaded(snapshot) else model.load(snapshot):
                    if self._stop.is_set():
                        return
            except ExpiredError:
                continue  # it is loaded when it has come
            except Exception as problem:  # a full disk, or no memory; the next look tries again
                about = {"stream": stream, "trouble": type(problem).__name__}
                LOG.error("kernels of model %s failed to load", name, extra=about)

    def _pause(self) -> float:
        """Seconds until the next look: soon where something is missing, or about to expire."""
        models = list(self._models.values())
        if None in self._snapshots.values() or any(model.lacking for model in models):
            return HASTE
        ends = [each for model in models if (each := model.expires) is not None]
        left = (min(ends) - self._time()) / SECOND if ends else self._every
        return max(HASTE / 10, min(self._every, left / 4))
