"""How well the models of a store do, measured on its hot rows: P1, gone when these rows go.

Whatever is measured is measured in the training process, on a model of its own: the newest hot
rows are kept for testing, and it learns from those before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pyramidion.errors import StateError
from pyramidion.learn.curves import LearningCurve, checked_sizes, checked_within
from pyramidion.learn.fitting import Failed
from pyramidion.learn.jobs import beside_prior, losses, tested
from pyramidion.learn.losses import Loss, refuse_few
from pyramidion.learn.models import Model
from pyramidion.store.snapshots import Serving
from pyramidion.store.training import NO_TABLE, Lesson, Training, key_of


class Measures:
    """Losses and learning curves of the models of one store."""

    def __init__(self, training: Training, serving: Serving) -> None:
        self._training = training
        self._serving = serving
        self._losses: dict[tuple[str, int], Loss] = {}
        """By name and version, until hot rows leave."""

    def expire(self, why: str) -> None:  # noqa: ARG002
        """Forget all losses: rows that they were measured on leave."""
        self._losses.clear()

    def learning_curve(
        self, name: str, within: float, sizes: Sequence[int] | None
    ) -> LearningCurve:
        """The loss of a model against the hot rows it learns from."""
        model, within = self._training.model(name), checked_within(within)
        lesson = self._lesson(model, "learning curve")
        chosen = checked_sizes(sizes, len(lesson.X))
        kind, measured = self._measured(losses, model, lesson, "learning curve", chosen)
        curve = LearningCurve(
            chosen,
            measured,
            loss=kind,
            tested=tested(len(lesson.X)),
            within=within,
            guarantee=lesson.snapshot.guarantee.raw(),
        )
        self._serving.perishes(curve)
        return curve

    def loss(self, name: str, now: int) -> Loss:
        """The loss of a model on the newest hot rows; measured once for each version."""
        model = self._training.model(name)
        known = self._losses.get((name, model.version))
        if known is not None:
            return known
        lesson = self._lesson(model, "loss")
        refuse_few(len(lesson.X))
        kind, own, prior = self._measured(beside_prior, model, lesson, "loss")
        promise = lesson.snapshot.guarantee.raw()
        found = Loss(own, prior, kind, tested(len(lesson.X)), now, promise)
        self._keep(model, found)
        return found

    def _keep(self, model: Model, found: Loss) -> None:
        """Remember the loss of what a model has learned now, until a row of it leaves."""
        others = [key for key in self._losses if key[0] == model.name]
        for key in others:
            del self._losses[key]
        if model.available:
            self._serving.perishes(self)
            self._losses[model.name, model.version] = found

    def _lesson(self, model: Model, what: str) -> Lesson:
        if not self._training.has_columns(model):
            raise StateError(f"no {what} of model {model.name!r}: {NO_TABLE}")
        return self._training.lesson([model])

    def _measured(
        self, job: Callable[..., Any], model: Model, lesson: Lesson, what: str, *more: Any
    ) -> Any:
        """What a job of the training process finds."""
        columns, y = model.columns(lesson.snapshot), lesson.y[key_of(model.workload)]
        work = partial(
            job, model.recipe, lesson.X, columns, y, model.classes, *more, weights=lesson.weights
        )
        (found,) = self._training.run([work], [model])
        if isinstance(found, Failed):
            raise StateError(f"no {what} of model {model.name!r}: {found.why}")
        return found
