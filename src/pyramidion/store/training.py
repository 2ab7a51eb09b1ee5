"""The models of a store: when they are trained, and when they must go.

    registered, opened     trained from the hot rows and the complete tables
    a window is sealed     trained again; the old one serves until then
    hot rows leave         trained on the rows that stay, *before* the others are erased;
                           whatever comes of it, the old one goes first
    a window retires       the same: features of the old one came from its tables too
    a feature is withdrawn models that used it go at once
    rows arrive            a model that can learn online takes them in

So no model outlives the oldest row it saw. All of this but the last happens in the thread that
moves windows, so that no row can leave while a model is trained on it.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.checks import checked_name, nearest
from pyramidion.config.schema import bare
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import PyramidionError, SchemaError, StateError
from pyramidion.learn.fitting import Failed, Trainer, Work
from pyramidion.learn.jobs import timed
from pyramidion.learn.linear import Linear
from pyramidion.learn.models import UNTRAINED, Fitted, Model, checked
from pyramidion.learn.recipes import Recipe, estimator_of, packages_of, recipe_of
from pyramidion.learn.workload import Workload
from pyramidion.rows.containers import Batch
from pyramidion.rows.observations import Observations
from pyramidion.storage.hot import Step
from pyramidion.storage.spells import registered, unregistered
from pyramidion.storage.versions import STRETCH, drawn, dropped
from pyramidion.store.snapshots import Serving
from pyramidion.store.state import Leaving, Observer, StoreState

T = TypeVar("T")

ASLEEP = "a history is being replayed; it is trained when that is through"
NO_TABLE = "no sealed window has a table that it uses; wait for one, or register it with others"


BRIEF = 300_000_000
"""Microseconds that an export lives where rows may leave at any time: as long as a store restarts.

Where rows bound the hot window, a row leaves when others come; where the schema names a unit, a
person's rows leave when they ask for it. Nobody knows that when a model is exported. So an edge
asks again and again, and without a network it forgets the model this soon."""


class Lesson(NamedTuple):
    """Features of hot rows, and a label for each workload."""

    X: NDArray[np.float32]
    y: dict[str, NDArray[Any]]
    snapshot: Snapshot
    last: int
    expires: int
    """When the first of the rows or tables behind them leaves at the latest."""
    weights: NDArray[np.float64] | None
    """1/p of each row where the schema names a propensity, else None."""


class Training(Observer):
    """All models of one store."""

    def __init__(self, store: StoreState, serving: Serving) -> None:
        self._store = store
        self._serving = serving
        self._trainer = Trainer()
        self._learning = threading.RLock()
        """Held by whoever changes a model, briefly."""
        self._teaching = threading.RLock()
        """Held while a model learns a batch."""
        self.asleep = 0
        """How many want that models which go are not trained again yet."""
        self.when_asked = False
        """Whether a model is trained only when somebody asks it."""
        self.trained: list[str] = []
        """Which models were trained, in order; for who tells."""
        self._learned: weakref.WeakSet[Fitted] = weakref.WeakSet()
        """All that was learned and that somebody still holds."""
        self._damaged: set[str] = set()
        """Models whose recipe cannot be read."""
        self._models = {
            model.name: model
            for name, recipe in store.catalogue.recipes().items()
            if (model := self._recalled(name, recipe)) is not None
        }

    def _recalled(self, name: str, recipe: str) -> Model | None:
        try:
            told = json.loads(recipe)
            workload = Workload.from_dict(self._store.schema, told["workload"])
            packages_of(told["estimator"])  # whole; whether its class is there shows when it trains
            return Model(name, told["estimator"], workload)
        except (PyramidionError, ValueError, KeyError, TypeError, AttributeError):
            self._damaged.add(name)  # the store opens, and erases, all the same
            return None

    def stop(self) -> None:
        """End the training process, and what it has going."""
        self._trainer.close()

    def close(self) -> None:
        """Let go of all that was learned."""
        with self._learning:
            for name, model in self._models.items():
                self._models[name] = model.gone("the store is closed")
            self._forget()

    @contextmanager
    def sleeping(self) -> Iterator[None]:
        """Models go when they must, and are not trained, until this is over."""
        self.asleep += 1
        try:
            yield
        finally:
            self.asleep -= 1

    # --- which there are -----------------------------------------------------------------

    @property
    def models(self) -> dict[str, Model]:
        """Every model by its name, as it is now."""
        with self._learning:
            return dict(sorted(self._models.items()))

    def model(self, name: str) -> Model:
        """One model."""
        found = self._models.get(name)
        if found is None and name in self._damaged:
            raise StateError(
                f"the recipe of model {name!r} is damaged; register it again, or unregister it"
            )
        if found is None:
            remedy = nearest(name, self._models) if self._models else "register it first"
            raise SchemaError(f"there is no model {name!r}; {remedy}")
        return found

    def register(self, name: str, estimator: object, workload: Workload, now: int) -> None:
        """Train a model and keep its recipe; one of this name serves until then.

        Where it cannot be trained for its own sake nothing is changed; where there is nothing
        to train on yet, it is trained as soon as there is.
        """
        name, recipe = checked_name("a model", name), recipe_of(estimator)
        checked(name, estimator, workload)
        model = Model(name, recipe, workload)
        since = self._store.present()
        made = self._taught([model], now)[name]
        if not made.available and not made.stale:
            if name not in self._models:
                dropped(self._store.catalogue, name)
            raise StateError(f"model {name!r} was not registered: {made.why}")
        told = json.dumps({"estimator": recipe, "workload": workload.to_dict()})
        with self._store.catalogue.transaction():
            self._store.catalogue.set_recipe(name, told)
            registered(self._store.catalogue, name, since)
        self._damaged.discard(name)
        self._install([made])

    def unregister(self, name: str) -> None:
        """Forget a model and its recipe."""
        if name not in self._damaged:
            self.model(name)
        with self._store.catalogue.transaction():
            self._store.catalogue.forget_recipe(name)
            unregistered(self._store.catalogue, name, self._store.present())
            dropped(self._store.catalogue, name)
        self._damaged.discard(name)
        with self._learning:
            gone = self._models.pop(name, None)
            if gone is not None and gone.fitted is not None:
                gone.fitted.expire()

    # --- when they are trained -------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether some model is to be trained."""
        return not self._resting and any(model.stale for model in list(self._models.values()))

    def catch_up(self, now: int) -> None:
        """Train what is to be trained; what serves goes on until its successor is there."""
        if self._resting:
            return
        stale = [model for model in self._models.values() if model.stale]
        self._install(self._taught(stale, now).values() if stale else ())

    @property
    def _resting(self) -> bool:
        return bool(self.asleep) or self.when_asked

    def wants(self, name: str) -> bool:
        """Whether a model is to be trained before it answers."""
        model = self.model(name)
        return not self.asleep and model.stale and (self.when_asked or not model.available)

    def asked(self, name: str, now: int) -> None:
        """Train one model, unless that was done meanwhile."""
        if self.wants(name):
            self.retrain(name, now)

    def retrain(self, name: str, now: int) -> None:
        """Train one model again, now."""
        self._install(self._taught([self.model(name)], now).values())

    def tables_published(self) -> None:
        """The complete tables are others: models are stale, and those of a lost table go."""
        self._tables_changed()

    def tables_withdrawn(self, why: str) -> None:  # noqa: ARG002
        """The same."""
        self._tables_changed()

    def _tables_changed(self) -> None:
        complete = self._store.served
        tables = set() if complete is None else set(map(bare, complete.layout.index))
        with self._learning:
            for name, model in self._models.items():
                workload = model.workload.on(self._store.schema)
                if model.fitted is not None and not model.fitted.tables <= tables:
                    model = model.gone("a feature or group that it used was withdrawn")
                self._models[name] = replace(model, workload=workload, stale=True)
            self._forget(lambda fitted: not fitted.tables <= tables)

    def rows_leaving(self, leaving: Leaving) -> None:
        """Rows leave or windows retire: train on what stays, and let go of the old models."""
        old, why = dict(self._models), ASLEEP if self.asleep else UNTRAINED
        new = {  # that it failed tells of the rows that it failed on, and goes with them
            name: model.gone(why if model.available or not model.stale else model.why)
            for name, model in old.items()
        }
        try:
            if old and not self._resting:
                taught = self._taught(old.values(), leaving.now, leaving.steps)
                for name, model in taught.items():
                    again = model.fitted is not old[name].fitted
                    new[name] = model if again else replace(model, fitted=None)
        finally:  # whatever failed: nothing that saw a leaving row stays
            self._replace_all(new.values())

    def person_leaving(self) -> None:
        """Rows of a person go: what learned from them goes first, and is trained again later."""
        self._replace_all([model.gone(UNTRAINED) for model in self._models.values()])

    def _replace_all(self, new: Iterable[Model]) -> None:
        """Let go of the old models; one that is learning a batch is waited for, not for ever."""
        held = self._teaching.acquire(timeout=self._store.settings.train_within_us / 1e6)
        try:
            self._install(new, leaving=True)
        finally:
            if held:
                self._teaching.release()

    # --- training ----------------------------------------------------------------------------

    def _taught(
        self, models: Collection[Model], now: int, leaving: Collection[Step] = ()
    ) -> dict[str, Model]:
        """The models, trained from scratch on the hot rows that stay; or why they are not."""
        able = [model for model in models if self.has_columns(model)]
        made = {model.name: replace(model, why=NO_TABLE, stale=True) for model in models}
        try:
            lesson = self.lesson(able, leaving) if able else None
        except PyramidionError as problem:
            why, yet = str(problem), isinstance(problem, StateError)  # or a file is damaged
            return made | {model.name: replace(model, why=why, stale=yet) for model in able}
        if lesson is None:
            return made
        work = [
            partial(timed, model.recipe, lesson.X, columns, y, lesson.weights)
            for model in able
            for columns in [model.columns(lesson.snapshot)]
            for y in [lesson.y[key_of(model.workload)]]
        ]
        room = {model.name: _room(model.recipe) for model in able}
        versions = drawn(self._store.catalogue, {name: 1 + more for name, more in room.items()})
        found = self.run(work, able)
        return made | {
            model.name: self._outcome(
                model, lesson, each, now, (versions[model.name], room[model.name])
            )
            for model, each in zip(able, found, strict=True)
        }

    def run(self, work: Sequence[Work[T]], models: Iterable[Model]) -> list[T | Failed]:
        """Have something done in the training process, with what some models need."""
        modules = set().union(*(packages_of(model.recipe) for model in models))
        return self._trainer.run(work, modules, self._store.settings.train_within_us / 1e6)

    def has_columns(self, model: Model) -> bool:
        """Whether the complete tables have something for it, once there are some."""
        current = self._serving.current
        return current is None or bool(model.columns(current))

    def _outcome(
        self, model: Model, lesson: Lesson, found: Any, now: int, version: tuple[int, int]
    ) -> Model:
        if isinstance(found, Failed):  # tried again with the next step, seal or retirement
            kind = model.recipe["class"].rpartition(".")[2]
            why = f"{kind} could not be trained: {found.why}"
            return replace(model, why=why, stale=False)
        snapshot, columns = lesson.snapshot, model.columns(lesson.snapshot)
        names = tuple(snapshot.names[column] for column in columns)
        tables = frozenset(",".join(snapshot.parts[column]) for column in columns)
        estimator, took = found
        seen = len(lesson.X), lesson.last, now
        fitted = Fitted(estimator, names, tables, *seen, *version, took, lesson.expires)
        fitted.quick = Linear.of(estimator, model.classes)
        self.trained.append(model.name)
        return replace(model, fitted=fitted, why="", stale=False)

    def lesson(self, models: Iterable[Model], leaving: Collection[Step] = ()) -> Lesson:
        """The hot rows that stay, by the complete tables less these."""
        with self._store.arrivals:  # or one that is acknowledged may not be among the rows yet
            last = self._store.last_batch()
        workloads = {key_of(model.workload): model.workload for model in models}
        staying = self._serving.staying(leaving, last)
        if not self._store.hot.stored(staying):
            raise StateError("the hot window is empty, so there is nothing to train on; observe")
        raw, schema = self._serving.reduced(staying), self._store.schema
        X, y, weights = [], dict[str, list[NDArray[Any]]](), []
        for hot, features in raw.features():
            X.append(features)
            weights.append(self._weights(hot.observations))
            for key, workload in workloads.items():
                y.setdefault(key, []).append(workload.y(schema, hot.observations, hot.batch))
        if not X:
            raise StateError("the hot window is empty, so there is nothing to train on; observe")
        labels = {key: np.concatenate(parts) for key, parts in y.items()}
        weighed = None if schema.weight is None else np.concatenate(weights)
        return Lesson(np.concatenate(X), labels, raw.base, last, self._until(leaving), weighed)

    def _weights(self, rows: Observations) -> NDArray[np.float64]:
        """How many times each row is counted."""
        unit = self._store.settings.weight_unit
        found: NDArray[np.float64] = np.broadcast_to(rows.weights / unit, len(rows))
        return found

    def _until(self, leaving: Collection[Step]) -> int:
        """When the first hot step that stays, or the first sealed window, is over at the latest."""
        settings, store = self._store.settings, self._store
        longest = settings.hot_window_us or settings.retention_us
        gone = {step.number for step in leaving}
        steps = [step.start for step in list(store.hot.steps) if step.number not in gone]
        retires = store.retires()
        ends = [start + longest for start in steps]
        return min(ends if retires is None else [*ends, retires])

    @property
    def away(self) -> int:
        """How long an exported model lives at most, in microseconds.

        After that an edge has to ask again, and learns so of what was withdrawn or erased. It is
        brief where nobody knows beforehand when rows go: they go by their number, or a person of
        the schema's unit may ask to be erased.
        """
        settings, unit = self._store.settings, self._store.schema.unit
        sudden = settings.hot_rows is not None or unit is not None
        return min(settings.hot_step_us, BRIEF) if sudden else settings.hot_step_us

    def _install(self, models: Iterable[Model], *, leaving: bool = False) -> None:
        """Let models serve; where rows leave, nothing else that was learned is left.

        What came in while they were trained is then taught to those who can.
        """
        with self._learning:
            self._models |= {model.name: model for model in models}
            serving = [model.fitted for model in self._models.values()]
            if leaving:
                self._forget(lambda fitted: fitted not in serving)
            self._learned.update(fitted for fitted in serving if fitted is not None)
            online = [model for model in self._models.values() if model.online]
        for model in () if leaving else online:  # nobody who erases waits for that
            self._catch_up_online(model)

    def _forget(self, which: Callable[[Fitted], bool] = lambda _: True) -> None:
        """Empty what was learned, also where somebody still holds it."""
        for fitted in list(self._learned):
            if which(fitted):
                fitted.expire()

    # --- between trainings -------------------------------------------------------------------

    def _catch_up_online(self, model: Model) -> None:
        last = self._last(model)
        with suppress(PyramidionError):  # what cannot be read now is for the next training
            for hot in self._serving.hot_rows(lambda number: number > last):
                self.learn(hot.number, hot.observations, hot.batch, [model.name])

    def learn(
        self,
        number: int,
        observations: Observations,
        batch: Batch,
        names: Iterable[str] | None = None,
    ) -> None:
        """Take a batch that was acknowledged into the models that learn online.

        One that cannot is as it was, and learns the rows with the next training.
        """
        for name in list(self._models if names is None else names):
            with self._teaching:
                model = self._learner(name, number)
                if names is None and model is not None and self._last(model) < number - 1:
                    self._catch_up_online(model)  # what came while it was trained
                while (model := self._learner(name, number)) is not None:
                    if self._swapped(model, self._more(model, number, observations, batch)):
                        break

    @staticmethod
    def _last(model: Model) -> int:
        """The last batch it has seen."""
        return 0 if model.fitted is None else model.fitted.last

    def _learner(self, name: str, number: int) -> Model | None:
        """A model that is to learn a batch online; None where it has, or cannot."""
        model = self._models.get(name)
        if model is None or self.asleep or not model.online or model.fitted is None:
            return None
        return model if model.fitted.last < number and self._serving.current is not None else None

    def _swapped(self, old: Model, new: Model) -> bool:
        """Let a model serve in place of another one, unless that went meanwhile."""
        with self._learning:  # briefly: who erases wants it too
            if self._models.get(old.name) is not old:
                return False
            self._models[old.name] = new
            if new.fitted is not None:
                self._learned.add(new.fitted)
            return True

    def _more(self, model: Model, number: int, observations: Observations, batch: Batch) -> Model:
        try:
            snapshot = self._serving.snapshot()
            y = model.workload.y(self._store.schema, observations, batch)
            weights = self._weights(observations) if self._store.schema.weight else None
            rows = observations.under(snapshot.encoder)
            return model.taught(snapshot, rows, y, number, weights)
        except Exception:  # an estimator's own: the batch is acknowledged all the same
            same = None if model.fitted is None else replace(model.fitted, last=number)
            return replace(model, fitted=same)


def _room(recipe: Recipe) -> int:
    """How many versions it may need after its own, until it is trained again."""
    try:
        online = hasattr(estimator_of(recipe), "partial_fit")
    except PyramidionError:  # not installed; it cannot be trained
        online = False
    return STRETCH if online else 0


def key_of(workload: Workload) -> str:
    """Tells labels apart that are learned differently."""
    return json.dumps([workload.label.name, workload.to_dict()["merge"]])
