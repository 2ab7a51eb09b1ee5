"""VowpalClassifier and VowpalRegressor: Vowpal Wabbit with scikit-learn's verbs.

Linear models, and networks of one hidden layer, that learn row by row: `partial_fit` takes
in new observations as they come. They are made for count features, columns that say much
the same in much the same unit. Nothing is ever written to a disk, and predicting needs no
lock; `pyramidion.learn.vowpal_network` says how.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from pyramidion.config.checks import checked_number, checked_whole
from pyramidion.errors import SchemaError
from pyramidion.learn.vowpal_network import SURE, Network
from pyramidion.learn.vowpal_rows import Rows, Units


class _Vowpal(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: parameters, units, passes over rows."""

    def __init__(
        self,
        *,
        hidden: int = 0,
        passes: int = 10,
        learning_rate: float = 0.05,
        power_t: float = 0.5,
        l1: float = 0.0,
        l2: float = 0.0,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.passes = passes
        self.learning_rate = learning_rate
        self.power_t = power_t
        self.l1 = l1
        self.l2 = l2
        self.random_state = random_state

    @abstractmethod
    def _begin(self, y: NDArray[Any], weights: Any, classes: Any) -> NDArray[Any]:
        """Learn what the labels are; the scores that fit best where nothing is known."""

    @abstractmethod
    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels as Vowpal Wabbit reads them."""

    @abstractmethod
    def _loss(self) -> list[str]:
        """The loss, as arguments of Vowpal Wabbit."""

    def _fit(self, X: Any, y: Any, weights: Any) -> Self:
        """From scratch. Orders are drawn anew, as rows sorted by label would teach badly."""
        number = checked_whole("passes", self.passes, 1, 100_000)
        self.__dict__.pop("network_", None)
        random = check_random_state(self.random_state)
        rows, network = self._first(X, y, weights, None, random)
        self._learn(network, rows.passes(self.units_, number, random))
        return self

    def _partial_fit(self, X: Any, y: Any, weights: Any, classes: Any = None) -> Self:
        """One pass in the order given: rows come in time's order, and the newest count most."""
        if hasattr(self, "network_"):
            rows, network = self._rows(X, y, weights, reset=False), self.network_
            rows = Rows(rows.X, self._targets(rows.y), rows.weights)
        else:
            random = check_random_state(self.random_state)
            rows, network = self._first(X, y, weights, classes, random)
        self._learn(network, rows.blocks(self.units_))
        return self

    def _first(
        self, X: Any, y: Any, weights: Any, classes: Any, random: Any
    ) -> tuple[Rows, Network]:
        """The first rows: labels, units and a fresh network are made from them."""
        hidden = checked_whole("hidden", self.hidden, 0, 4096)
        rows = self._rows(X, y, weights, reset=True)
        start = self._begin(rows.y, rows.weights, classes)
        self.units_ = Units.of(rows.X, rows.weights)
        rows = Rows(rows.X, self._targets(rows.y), rows.weights)
        return rows, Network.fresh(rows.X.shape[1] + 1, start, hidden, random)

    def _rows(self, X: Any, y: Any, weights: Any, *, reset: bool) -> Rows:
        """Rows as scikit-learn checks them, without those of weight 0."""
        numeric = isinstance(self, RegressorMixin)
        dtypes = (np.float32, np.float64)
        X, y = validate_data(self, X, y, dtype=dtypes, y_numeric=numeric, reset=reset)
        if weights is None:
            return Rows(X, y, None)
        weights = _check_sample_weight(weights, X, ensure_non_negative=True)
        there = weights > 0
        if not there.any():
            raise SchemaError("sample_weight is 0 for every row; give some row a weight")
        return Rows(X[there], y[there], weights[there].astype(np.float32))

    def _learn(self, network: Network, blocks: Iterable[pa.Array]) -> None:
        steps = []
        for name in ("learning_rate", "power_t", "l1", "l2"):
            value = checked_number(name, getattr(self, name))
            if value < 0 or (name == "learning_rate" and value == 0):
                raise SchemaError(f"{name} must not be so low; leave it out for the default")
            steps.append(f"--{name}={value!r}")
        self.network_ = network.learn(blocks, [*steps, *self._loss()])

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "network_")
        X = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
        return self.network_.scores(self.units_.rows(X))


class VowpalClassifier(ClassifierMixin, _Vowpal):  # type: ignore[misc]
    """Classes by Vowpal Wabbit: logistic regression, or a network of one hidden layer.

    Two classes have one score and the logistic link. Of several classes each is told from
    all others, and their probabilities are divided by the sum (``--oaa --probabilities``).

    Columns are centred and brought to one scale by the rows of `fit`, or by those of the
    first `partial_fit`: give it a hundred rows or more.

    Parameters
    ----------
    hidden : int, default=0
        Hidden units (``--nn``); 0 is a linear model. A network wants more rows, and often a
        higher learning rate (0.1 to 0.5) or more passes.
    passes : int, default=10
        How often `fit` goes through the rows. `partial_fit` goes through them once.
    learning_rate : float, default=0.05
        The size of the first steps; each weight's own steps shrink as it learns. Small is
        safe for hot windows of few rows.
    power_t : float, default=0.5
        How fast steps shrink; 0 never.
    l1, l2 : float, default=0.0
        Vowpal Wabbit's penalties, taken off at every row: 1e-5 is little, 1e-2 much, and
        1e-4 much with hidden units. The constant is penalised too.
    random_state : int, optional
        For the order of rows in `fit` and the first weights of hidden units.

    Attributes
    ----------
    classes_ : the classes, sorted. Columns of `predict_proba` are in this order.
    network_ : the weights.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 3)).astype("float32")
    >>> y = np.where(X[:, 0] > X[:, 1], "late", "on time")
    >>> model = VowpalClassifier(random_state=0).fit(X, y)
    >>> model.predict([[1, -1, 0], [-1, 1, 0]]).tolist()
    ['late', 'on time']
    >>> model.partial_fit(X[:50], y[:50]).predict_proba(X).shape
    (500, 2)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Forget everything and learn these rows, in several passes."""
        return self._fit(X, y, sample_weight)

    def partial_fit(
        self, X: Any, y: Any, classes: Sequence[Any] | None = None, sample_weight: Any = None
    ) -> Self:
        """Learn these rows too, in one pass and in their order.

        ``classes`` at the first call, if its rows may lack some.
        """
        return self._partial_fit(X, y, sample_weight, classes)

    def _begin(self, y: NDArray[Any], weights: Any, classes: Any) -> NDArray[Any]:
        check_classification_targets(y)
        self.classes_ = np.unique(y if classes is None else np.asarray(classes))
        if len(self.classes_) < 2:
            raise SchemaError(
                "there is only one class to learn; give rows of two classes or more, "
                "or name the classes in partial_fit"
            )
        counts = np.bincount(self._codes(y), weights, minlength=len(self.classes_))
        base = logit((counts + 1) / (counts.sum() + len(counts)))
        start: NDArray[np.float64] = base if len(counts) > 2 else base[1:]
        return start

    def _codes(self, y: NDArray[Any]) -> NDArray[np.int64]:
        last = len(self.classes_) - 1
        codes: NDArray[np.int64] = np.searchsorted(self.classes_, y).clip(max=last)
        if (self.classes_[codes] != y).any():
            raise SchemaError(
                "y holds a class that was not there at first; name all classes in the "
                "first partial_fit, or fit again"
            )
        return codes

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        codes = self._codes(y)
        targets: NDArray[np.int64] = codes + 1 if len(self.classes_) > 2 else 2 * codes - 1
        return targets

    def _loss(self) -> list[str]:
        return ["--loss_function=logistic"]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class for each row."""
        chances: NDArray[np.float64] = expit(np.clip(self._scores(X), -SURE, SURE))
        if len(self.classes_) == 2:
            return np.hstack([1 - chances, chances])
        chances /= chances.sum(axis=1, keepdims=True)
        return chances

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class for each row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[likeliest]
        return found


class VowpalRegressor(RegressorMixin, _Vowpal):  # type: ignore[misc]
    """Numbers by Vowpal Wabbit, with squared loss; parameters as in `VowpalClassifier`.

    Labels are centred and scaled as columns are. Predictions stay within the labels seen.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 3)).astype("float32")
    >>> model = VowpalRegressor(random_state=0).fit(X, 100 + 20 * X[:, 0])
    >>> model.predict([[1, 0, 0]]).round().tolist()
    [120.0]
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Forget everything and learn these rows, in several passes."""
        self.__dict__.pop("range_", None)
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn these rows too, in one pass and in their order."""
        return self._partial_fit(X, y, sample_weight)

    def _begin(self, y: NDArray[Any], weights: Any, classes: Any) -> NDArray[Any]:  # noqa: ARG002
        self.centre_ = float(np.average(y, weights=weights))
        spread = float(np.sqrt(np.average((y - self.centre_) ** 2, weights=weights)))
        self.scale_ = spread or 1.0
        return np.zeros(1)

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        targets = ((y - self.centre_) / self.scale_).astype(np.float32)
        low, high = getattr(self, "range_", (np.inf, -np.inf))
        self.range_ = (min(low, float(targets.min())), max(high, float(targets.max())))
        return targets

    def _loss(self) -> list[str]:
        low, high = self.range_
        return [
            "--loss_function=squared",
            f"--min_prediction={low!r}",
            f"--max_prediction={high!r}",
        ]

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The expected number for each row."""
        scores = np.clip(self._scores(X)[:, 0], *self.range_)
        predicted: NDArray[np.float64] = self.centre_ + self.scale_ * scores
        return predicted
