"""The registered models of a store: `store.models`.

`Pyramid.register` adds a model, `Pyramid.predict` and `Pyramid.predict_proba` ask one. Everything
else that can be done with a model is here. How models are trained is in `training`, how they are
scored in `model_scores`.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from importlib import import_module
from typing import TYPE_CHECKING

from pyramidion.learn.curves import LearningCurve
from pyramidion.learn.losses import Loss
from pyramidion.learn.models import Model
from pyramidion.store.access import Access
from pyramidion.store.model_scores import Measures
from pyramidion.store.snapshots import Serving
from pyramidion.store.training import Training

if TYPE_CHECKING:
    from pyramidion.learn.exports import Export


class Models(Mapping[str, Model]):
    """The registered models by name, and what can be done with them.

    A mapping that is always up to date: ``store.models["late"]`` is the model as it is now.
    Iteration, `keys`, `values` and `items` go by name and see one moment.

    Parameters
    ----------
    access : Access
        The open store.
    training : Training
        Trains the models and holds them.
    measures : Measures
        Measures losses and learning curves.
    serving : Serving
        Gives the tables that an exported model belongs to.
    refuse_expired_rows : callable
        Raises if hot rows are past their time and not erased yet.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.linear_model import LogisticRegression
    >>> from pyramidion import Categorical, Label, Pyramid, Schema, Settings
    >>> carrier = Categorical("carrier", domain=["AA", "UA"])
    >>> schema = Schema(features=[carrier], label=Label("late", classes=[0, 1]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     given = {"keys": f"file:{folder}/key"}
    ...     with Pyramid.create(f"{folder}/store", schema, Settings(epsilon=1.0), **given) as store:
    ...         _ = store.observe({"carrier": ["AA", "UA"] * 50, "late": [0, 1] * 50})
    ...         _ = store.admin.reseed(why="seal the window: models need a sealed table")
    ...         first = store.register("late", LogisticRegression())
    ...         print(list(store.models), store.models["late"].rows)
    ...         print(store.models.retrain("late").version > first.version)
    ...         store.models.unregister("late")
    ...         print(len(store.models))
    ['late'] 100
    True
    0
    """

    def __init__(
        self,
        access: Access,
        training: Training,
        measures: Measures,
        serving: Serving,
        refuse_expired_rows: Callable[[], None],
    ) -> None:
        self._access = access
        self._training = training
        self._measures = measures
        self._serving = serving
        self._refuse_expired_rows = refuse_expired_rows

    def __getitem__(self, name: str) -> Model:
        return self._training.models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._training.models)

    def __len__(self) -> int:
        return len(self._training.models)

    def __repr__(self) -> str:
        return f"Models({self._training.models!r})"

    def values(self) -> ValuesView[Model]:
        """The models, sorted by name, of one moment."""
        return self._training.models.values()

    def items(self) -> ItemsView[str, Model]:
        """Names and models, sorted by name, of one moment."""
        return self._training.models.items()

    def unregister(self, name: str) -> None:
        """Forget a model and its recipe."""
        self._access.check_open()
        self._access.run(lambda: self._training.unregister(name))

    def retrain(self, name: str) -> Model:
        """Train a model now, for example after a failure, and return it.

        The former version serves until the new one is ready.
        """
        self._access.check_open()
        self._refuse_expired_rows()
        now = self._access.now()
        self._access.run(lambda: self._training.retrain(name, now))
        return self._training.model(name)

    def learning_curve(
        self, name: str, *, within: float = 0.05, sizes: Sequence[int] | None = None
    ) -> LearningCurve:
        """Measure a model's loss against the number of hot rows that it learns from.

        The result is P1: it expires when the rows leave the hot window.

        Parameters
        ----------
        name : str
            The model.
        within : float, default=0.05
            How close to the best loss is good enough, as a fraction of it.
        sizes : sequence of int, optional
            Numbers of rows to learn from; if not given, doubled from a few to all.
        """
        self._access.check_open()
        self._refuse_expired_rows()
        return self._access.run(lambda: self._measures.learning_curve(name, within, sizes))

    def loss(self, name: str) -> Loss:
        """Measure a model's loss on the newest hot rows, beside that of the label's rates alone.

        A copy of the model learns from the older hot rows for this. The result is P1.
        """
        self._access.check_open()
        self._refuse_expired_rows()
        now = self._access.now()
        return self._access.run(lambda: self._measures.loss(name, now))

    def export(self, name: str) -> Export:
        """Export a model for an edge: a header and a payload without code. P1, for memory alone.

        It expires with the model, and after one `hot_step` at the latest; after five minutes if
        `hot_rows` bounds the hot window or the schema has a unit, because then nobody knows in
        advance when rows leave. The audit log records each export.
        """
        now = self._access.begin()

        def export() -> Export:
            self._training.asked(name, now)
            model, life = self._training.model(name).begun(), self._training.away
            try:
                guarantee = self._serving.snapshot().guarantee
                exports = import_module("pyramidion.learn.exports")
                parts: Export = exports.exported(model, guarantee=guarantee, now=now, life=life)
            finally:
                model.ended()
            self._access.outbox.append(
                "model.exported", self._access.present(), name=name, version=parts[0]["version"]
            )
            return parts  # only once the audit log has the entry

        return self._access.run(export)
