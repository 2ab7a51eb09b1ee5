"""CountFeaturizer: private count features with scikit-learn's verbs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from pyramidion.config.schema import Feature, Label, Schema
from pyramidion.config.settings import Column, Settings
from pyramidion.counts.columns import Columns
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.snapshot import Features, Snapshot
from pyramidion.errors import PrivacyError, SchemaError
from pyramidion.learn.counting import Counting
from pyramidion.learn.frames import Frame, frame_of, guess_label, guess_schema, labels_of
from pyramidion.rows.containers import Batch
from pyramidion.rows.observations import Observations


class CountFeaturizer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Replace categories by noisy label statistics: target encoding with a guarantee.

    Counts go into tables that carry noise from birth. The first read or copy
    (`transform`, pickling, ...) seals what was counted; a later `partial_fit`
    opens a new window with noise of its own. Otherwise two transforms could be
    subtracted, and the noise with them.

    `fit_transform` spends the same ε once: it builds one noisy table and
    featurizes each fold with that fold's own counts taken off again, in memory.
    Its output is as raw as the rows (P1); the fitted object is private (P2).

    Parameters
    ----------
    epsilon : float
        ε. No default: nobody can choose it for you. ``inf`` means no privacy.
    delta : float, default=1e-9
        δ. 0 is pure differential privacy, with Laplace instead of Gaussian noise.
    k : int, default=1
        How many observations are hidden together.
    classes : sequence, optional
        The label's classes. Needed unless y is boolean or a label is declared.
    label : Label or list of Label, optional
        For continuous labels (``edges=``) and several labels, counted jointly.
    features : sequence of Categorical or Continuous, optional
        Declared features. Columns not named here are open categories.
    groups : sequence of tuples of names, default=()
        Features counted together.
    weight : str, optional
        Column of propensities p; observations count 1/p. Needs ``p_min``.
    schema : Schema, optional
        All of the above at once, instead of them.
    cv : int, default=5
        Folds of `fit_transform`.
    n_jobs : int, optional
        Threads; -1 for all cores.
    random_state : int, optional
        Of the folds alone. Noise and hash keys come from the operating system.

    The other parameters are those of `pyramidion.Settings`, without those of a store.

    Attributes
    ----------
    privacy_ : Guarantee
        The exact guarantee of the fitted object and of what `transform` returns.
    fit_transform_privacy_ : Guarantee
        That of `fit_transform`'s output: P1.
    schema_, settings_ : what was fitted.
    snapshot_ : Snapshot
        The sealed tables, with the doors for Arrow and for single rows.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"carrier": ["AA", "UA", "AA", "UA"] * 250})
    >>> y = pd.Series([1, 0, 1, 1] * 250, name="late")
    >>> featurizer = CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(X, y)
    >>> featurizer.get_feature_names_out()
    array(['P(late=1|carrier)'], dtype=object)
    >>> print(featurizer.privacy_)
    P2: (1.0, 1e-09)-differentially private for any 1 counted observation, over 1 window
    >>> featurizer.transform(X).shape
    (1000, 1)
    """

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float = 1e-9,
        k: int = 1,
        classes: Sequence[Any] | None = None,
        label: Label | Sequence[Label] | None = None,
        features: Iterable[Feature] | None = None,
        groups: Iterable[Sequence[str]] = (),
        weight: str | None = None,
        schema: Schema | None = None,
        rows: int = 5,
        buckets: int = 65_536,
        sketch: Literal["count-median", "count-min"] = "count-median",
        max_rows_per_window: int = 100_000_000,
        prior_share: float = 0.02,
        shares: Mapping[str, float] | None = None,
        weights: Literal["equal", "proportional", "least-error", "half"] = "half",
        quantiles: Literal["exponential", "smooth"] = "exponential",
        weights_quantile: float = 0.5,
        weights_share: float = 0.05,
        p_min: float | None = None,
        weight_unit: int = 1,
        dense_limit: int = 65_536,
        estimate: Literal["shrinkage", "ratio"] = "shrinkage",
        backoff_deviation: float = 0.1,
        columns: Sequence[Column] = ("probability",),
        passthrough: int = 0,
        cv: int = 5,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.k = k
        self.classes = classes
        self.label = label
        self.features = features
        self.groups = groups
        self.weight = weight
        self.schema = schema
        self.rows = rows
        self.buckets = buckets
        self.sketch = sketch
        self.max_rows_per_window = max_rows_per_window
        self.prior_share = prior_share
        self.shares = shares
        self.weights = weights
        self.quantiles = quantiles
        self.weights_quantile = weights_quantile
        self.weights_share = weights_share
        self.p_min = p_min
        self.weight_unit = weight_unit
        self.dense_limit = dense_limit
        self.estimate = estimate
        self.backoff_deviation = backoff_deviation
        self.columns = columns
        self.passthrough = passthrough
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    # --- count ------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Forget what was counted and count these rows; on bad input nothing changes."""
        return self._start(X, y)

    def partial_fit(self, X: Any, y: Any = None, classes: Sequence[Any] | None = None) -> Self:
        """Count these rows too: into the populating window, or a new one after a read."""
        if hasattr(self, "schema_"):
            self._count(X, y)
            return self
        return self._start(X, y, classes)

    def _start(self, X: Any, y: Any, classes: Sequence[Any] | None = None) -> Self:
        before = dict(self.__dict__)
        try:
            self._begin(X, y, classes)
            self._count(X, y)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _begin(self, X: Any, y: Any, classes: Sequence[Any] | None) -> None:
        for learned in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, learned)
        settings = self._settings()
        frame = self._frame(X, reset=True)
        self.schema_ = self._schema(frame, y, settings, classes)
        if self.schema_.unit is not None:
            raise SchemaError(
                "the schema names a unit, and CountFeaturizer hides observations, not people; "
                "drop unit=, and choose k as the most rows a person has"
            )
        self.settings_ = settings
        self._names_ = frame.names
        self._beside_ = [n for n in (self.schema_.weight, self.schema_.time) if n is not None]
        self._counting_ = Counting(self.schema_, settings)

    def _settings(self) -> Settings:
        if self.epsilon is None:
            raise PrivacyError(
                "epsilon is not set and has no default; choose one, for example epsilon=1.0 "
                "(or epsilon=float('inf') for no privacy)"
            )
        counted = (knob.name for knob in Settings.knobs() if not knob.store)
        return Settings(**{name: getattr(self, name) for name in counted})

    def _schema(
        self, frame: Frame, y: Any, settings: Settings, classes: Sequence[Any] | None
    ) -> Schema:
        if self.schema is not None:
            others = (self.classes, self.label, self.features, self.groups or None, self.weight)
            if any(other is not None for other in (*others, classes)):
                raise SchemaError(
                    "schema is given beside other parameters that say the same; drop "
                    "classes, label, features, groups and weight"
                )
            return self.schema
        classes = self.classes if classes is None else classes
        if self.label is not None and classes is not None:
            raise SchemaError("both label and classes are given; put the classes into the label")
        private = settings.private
        return guess_schema(
            frame,
            declared=self.features or (),
            groups=self.groups,
            label=self.label or guess_label(y, frame.names, classes, private=private),
            weight=self.weight,
            private=private,
        )

    def _frame(self, X: Any, *, reset: bool) -> Frame:
        """X as columns, checked against those of the fit as scikit-learn does."""
        frame = frame_of(X)
        if frame.by_position and not hasattr(X, "iloc"):
            validate_data(self, frame.source, reset=reset, dtype=None, ensure_all_finite=False)
        elif reset:
            self.n_features_in_ = len(frame.names)
            if not frame.by_position:
                self.feature_names_in_ = np.array(frame.names, dtype=object)
        elif hasattr(X, "iloc") and not self._beside_:
            validate_data(self, X, reset=False, skip_check_array=True)
        return frame

    def _observations(self, X: Any, y: Any) -> Observations:
        features = [*self.schema_.feature_names, *self._beside_]
        batch = self._frame(X, reset=False).batch(features)
        labels = labels_of(y, self.schema_.labels)
        for name, column in labels.items():
            if len(column) != batch.length:
                raise ValueError(
                    f"Found input variables with inconsistent numbers of samples: "
                    f"{[batch.length, len(column)]} in X and label {name!r}"
                )
        return self._counting_.door.observations(Batch({**batch.columns, **labels}, batch.length))

    def __getstate__(self) -> dict[str, Any]:
        """A copy seals, and counts on by itself."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "_counting_" in state:
            state["_counting_"] = copy(self._counting_)
        return state

    def _count(self, X: Any, y: Any) -> None:
        self._counting_.add(self._observations(X, y), threads=self._threads())

    @property
    def snapshot_(self) -> Snapshot:
        """The sealed tables; asking for them seals what was counted."""
        check_is_fitted(self, "schema_")
        return self._counting_.snapshot()

    @property
    def privacy_(self) -> Guarantee:
        """The guarantee of the fitted object: P2."""
        check_is_fitted(self, "schema_")
        return self._counting_.guarantee

    # --- featurize ----------------------------------------------------------------

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Features of these rows from all that was counted; private, P2."""
        check_is_fitted(self, "schema_")
        batch = self._frame(X, reset=False).batch(self.schema_.feature_names)
        rows = self._counting_.door.rows(batch)
        return self.snapshot_.array(rows, threads=self._threads())

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> NDArray[np.float32]:
        """Count these rows and featurize them without their own labels; raw, P1."""
        if fit_params:
            raise TypeError(f"fit_transform takes no {', '.join(fit_params)}")
        self.fit(X, y)
        observations = self._observations(X, y)
        snapshot = self.snapshot_
        out = np.empty((len(snapshot.names), len(observations)), dtype=np.float32)
        for fold in self._folds(len(observations)):
            own = observations.take(fold)
            rest = snapshot.without(own, threads=self._threads())
            out[:, fold] = rest.array(own, threads=self._threads()).T
        self.fit_transform_privacy_ = self.privacy_.raw()
        return Features.of(out.T, self.fit_transform_privacy_)

    def _folds(self, length: int) -> list[NDArray[np.int64]]:
        if not isinstance(self.cv, int) or self.cv < 2:
            raise SchemaError("cv is not a whole number of at least 2; give the number of folds")
        order = check_random_state(self.random_state).permutation(length)
        return [np.sort(fold) for fold in np.array_split(order, min(self.cv, length))]

    def _threads(self) -> int:
        if self.n_jobs is None:
            return 1
        cores = os.cpu_count() or 1
        return max(1, cores + 1 + self.n_jobs if self.n_jobs < 0 else self.n_jobs)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the columns that `transform` gives."""
        check_is_fitted(self, "schema_")
        if input_features is not None and list(input_features) != list(self._names_):
            raise ValueError("input_features is not equal to feature_names_in_")
        names = Columns(self.schema_, self.settings_, self._counting_.door.encoder.shapes).names
        return np.array(names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags
