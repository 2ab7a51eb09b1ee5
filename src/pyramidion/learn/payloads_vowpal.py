"""Fitted `VowpalClassifier` and `VowpalRegressor` as bytes: a line of JSON, then the weights.

The weights are Vowpal Wabbit's own, slot by slot (see `pyramidion.learn.vowpal_network`), in 32-bit
floats, little end first. Predicting from them needs no Vowpal Wabbit.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from pyramidion.errors import FormatError
from pyramidion.learn.vowpal import VowpalClassifier, VowpalRegressor
from pyramidion.learn.vowpal_network import Network, size
from pyramidion.learn.vowpal_rows import Units

KINDS = {"VowpalClassifier": VowpalClassifier, "VowpalRegressor": VowpalRegressor}
FLOATS = "<f4"


def written(estimator: Any) -> bytes:
    """The bytes of a model that has learned; not of how it learned."""
    network, units = estimator.network_, estimator.units_
    told = {
        "kind": type(estimator).__name__,
        "columns": network.columns,
        "outputs": network.outputs,
        "hidden": network.hidden,
        "centre": units.centre.tolist(),
        "scale": units.scale.tolist(),
    }
    if isinstance(estimator, VowpalClassifier):
        told["classes"] = estimator.classes_.tolist()
    else:
        told |= {"mean": estimator.centre_, "deviation": estimator.scale_}
        told["range"] = list(estimator.range_)
    head = json.dumps(told)  # Python's floats come back as they were
    weights: bytes = network.weights.astype(FLOATS).tobytes()
    return head.encode() + b"\n" + weights


def read(data: bytes) -> Any:
    """The model."""
    try:
        head, _, body = data.partition(b"\n")
        return _made(json.loads(head), np.frombuffer(body, dtype=FLOATS).reshape(-1, 2))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise FormatError("an exported model of Vowpal Wabbit is damaged; export it") from None


def _made(told: dict[str, Any], weights: Any) -> Any:
    inner, outputs, hidden = (int(told[name]) for name in ("columns", "outputs", "hidden"))
    estimator = KINDS[told["kind"]](hidden=hidden)
    centre, scale = (np.array(told[name], dtype=np.float64) for name in ("centre", "scale"))
    if min(inner, outputs) < 1 or hidden < 0 or len(weights) != size(inner, outputs, hidden):
        raise ValueError
    if not len(centre) == len(scale) == inner - 1:
        raise ValueError
    estimator.network_ = Network(inner, outputs, hidden, weights.astype(np.float32))
    estimator.units_ = Units(centre, scale)
    estimator.n_features_in_ = len(centre)
    if told["kind"] == "VowpalClassifier":
        estimator.classes_ = np.array(told["classes"])
        if estimator.classes_.shape != (max(2, outputs),):
            raise ValueError
    else:
        low, high = map(float, told["range"])
        estimator.range_ = (low, high)
        estimator.centre_, estimator.scale_ = float(told["mean"]), float(told["deviation"])
    return estimator
