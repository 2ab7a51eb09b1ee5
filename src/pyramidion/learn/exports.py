"""Models that leave the store for an edge: a header in JSON and bytes that hold no code.

    skops      scikit-learn, pipelines included; `FlooredScaler` too
    lightgbm   LightGBM's own text
    vowpal     the weights of `VowpalClassifier` and `VowpalRegressor`

What a model learned is as raw as the rows it learned from (P1), on an edge as in the store. So
an export is for memory and never for a disk, and what is revived from it predicts until ``expires``
and not a moment longer, with or without a network, whatever is done to the clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.metadata import version as installed
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.checks import Value
from pyramidion.counts.deadline import Deadline
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import FormatError, PrivacyError, SchemaError, StateError
from pyramidion.learn import payloads_lightgbm, payloads_skops, payloads_vowpal
from pyramidion.learn.answers import Answers
from pyramidion.learn.keepers import keeper_in
from pyramidion.learn.linear import Linear
from pyramidion.learn.models import Model
from pyramidion.learn.vowpal import VowpalClassifier, VowpalRegressor

EDITION = 1
WRITERS = {
    "lightgbm": payloads_lightgbm.written,
    "skops": payloads_skops.written,
    "vowpal": payloads_vowpal.written,
}
READERS: dict[str, Callable[[bytes], Any]] = {
    "lightgbm": payloads_lightgbm.read,
    "skops": payloads_skops.read,
    "vowpal": payloads_vowpal.read,
}
KINDS: dict[str, type | tuple[type, ...]] = {
    "edition": int,
    "name": str,
    "version": int,
    "format": str,
    "label": str,
    "classes": list,
    "features": list,
    "tables": list,
    "made": int,
    "expires": int,
    "guarantee": dict,
    "packages": dict,
}
"""What a header has, and of which kind each is."""

Header = dict[str, Any]
Export = tuple[Header, bytes]


def exported(model: Model, *, guarantee: Guarantee, now: int, life: int) -> Export:
    """Header and payload of what a model has learned.

    It expires with the model, and ``life`` microseconds from now at the latest: an edge asks for
    it again by then, and learns so of what was withdrawn or erased meanwhile.
    """
    fitted = model.learned()
    if any(isinstance(each, bytes) for each in model.classes):
        raise SchemaError(
            f"model {model.name!r} cannot be exported: its classes are bytes; use text"
        )
    expires = min(fitted.expires, now + life)
    if expires <= now:
        raise StateError(f"model {model.name!r} is about to be trained again; export it then")
    _refuse_keepers(model.name, fitted.estimator)
    form = _format(fitted.estimator)
    header = {
        "edition": EDITION,
        "name": model.name,
        "version": fitted.version,
        "format": form,
        "label": model.label,
        "classes": list(model.classes),
        "features": list(fitted.names),
        "tables": sorted(fitted.tables),
        "made": now,
        "expires": expires,
        "guarantee": guarantee.raw().to_dict(),
        "packages": {"scikit-learn": installed("scikit-learn")},
    }
    return header, WRITERS[form](fitted.estimator)


def _refuse_keepers(name: str, estimator: Any) -> None:
    """Raise for an estimator whose bytes would hold rows: those are for who may train."""
    keeper = keeper_in(estimator)
    if keeper is not None:
        raise PrivacyError(
            f"model {name!r} cannot be exported: {keeper} keeps the rows that it learned from, and "
            f"raw rows do not leave with a model; ask the service for its predictions, or register "
            f"an estimator that keeps none, such as LogisticRegression"
        )


def _format(estimator: Any) -> str:
    if type(estimator) in (VowpalClassifier, VowpalRegressor):
        return "vowpal"
    return "lightgbm" if type(estimator).__module__.startswith("lightgbm.") else "skops"


class Revived:
    """A model away from its store: predicts as the store's does, until it expires.

    Made by `from_parts`; who uses it knows that header and payload are the store's.
    """

    def __init__(self, header: Mapping[str, Any], answers: Answers, deadline: Deadline) -> None:
        self.name: str = header["name"]
        self.version: int = header["version"]
        self.label: str = header["label"]
        self.tables: frozenset[str] = frozenset(header["tables"])
        self.made: int = header["made"]
        self.expires: int = header["expires"]
        self.guarantee = _promise(header["guarantee"])
        self.classes: tuple[Value, ...] = answers.classes
        self.names: tuple[str, ...] = answers.names
        self._answers: Answers | None = answers
        self._deadline = deadline

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], payload: bytes, clock: Callable[[], float]
    ) -> Revived:
        """The model; no code comes with it, whatever the payload says.

        ``clock`` is in seconds since 1970. One that is behind the store's makes it live no longer
        than the store meant it to.
        """
        told = _checked(header)
        deadline = Deadline(told["expires"], clock, latest=told["made"])
        if deadline.passed():
            raise StateError(_gone(told["name"], told["version"]))
        if told["format"] == "skops":
            _refuse_other_version(told["packages"].get("scikit-learn"))
        estimator = READERS[told["format"]](bytes(payload))
        names, classes = tuple(told["features"]), tuple(told["classes"])
        if getattr(estimator, "n_features_in_", len(names)) != len(names):
            raise FormatError(
                "an exported model takes other features than it says; export it again"
            )
        quick = Linear.of(estimator, classes)
        return cls(told, Answers(told["name"], estimator, names, classes, quick), deadline)

    @property
    def expired(self) -> bool:
        """Whether it predicts no more; what it learned is dropped then."""
        if self._deadline.passed():
            self._answers = None
        return self._answers is None

    def _ready(self) -> Answers:
        answers = None if self.expired else self._answers
        if answers is None:
            raise StateError(_gone(self.name, self.version))
        return answers

    def predict(self, snapshot: Snapshot, rows: Any) -> NDArray[Any]:
        """The likeliest class, or the expected number."""
        return self._ready().predict(snapshot, rows)

    def predict_proba(self, snapshot: Snapshot, rows: Any) -> NDArray[Any]:
        """A probability for each of `classes`."""
        return self._ready().predict_proba(snapshot, rows)

    def proba_one(
        self, features: NDArray[Any], snapshot: Snapshot | None = None
    ) -> NDArray[np.float64]:
        """A probability for each of `classes`, for one row of features; see `Model.proba_one`."""
        return self._ready().proba_one(features, snapshot)

    def __reduce__(self) -> Any:
        raise PrivacyError(
            "what a model learned is as raw as its rows and is not copied or pickled; export it "
            "again where it is needed"
        )


def _gone(name: str, version: int) -> str:
    return f"model {name!r}, version {version}, has expired: what it learned from left; export it"


def _checked(header: Mapping[str, Any]) -> Header:
    """The header, where it has all that it must and nothing is of another kind."""
    wrong = [
        name
        for name, kind in KINDS.items()
        if not isinstance(header.get(name), kind) or isinstance(header.get(name), bool)
    ]
    if wrong:
        raise FormatError(f"the header of an exported model lacks {wrong[0]!r}; export it again")
    if header["edition"] != EDITION or header["format"] not in READERS:
        raise FormatError("an exported model is of a newer version; upgrade pyramidion here")
    texts = [*header["features"], *header["tables"]]
    values = all(isinstance(each, str | int | float) for each in header["classes"])
    if not values or not all(isinstance(each, str) for each in texts):
        raise FormatError("the header of an exported model is damaged; export it again")
    return dict(header)


def _promise(told: Mapping[str, Any]) -> Guarantee:
    given = dict(told)
    if given.get("epsilon") is None:
        given["epsilon"] = math.inf
    try:
        return Guarantee(**given)
    except TypeError:
        raise FormatError("the header of an exported model is damaged; export it again") from None


def _refuse_other_version(made_with: object) -> None:
    """Raise where another scikit-learn would read the numbers otherwise."""
    here = installed("scikit-learn")
    if not isinstance(made_with, str) or made_with.split(".")[:2] != here.split(".")[:2]:
        raise FormatError(
            f"an exported model was made by another scikit-learn than {here}; install the same one "
            f"here as at the store"
        )
