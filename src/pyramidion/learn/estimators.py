"""Estimators as people write them: a class by its name, parameters as JSON.

They are made through recipes, so what may not be stored may not be named here either,
neither on the command line nor over a network.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from sklearn.base import BaseEstimator

from pyramidion.config.checks import nearest
from pyramidion.errors import SchemaError
from pyramidion.learn.recipes import estimator_of

USUAL = (
    "lightgbm",
    "pyramidion",
    "pyramidion.learn.vowpal",
    "sklearn.calibration",
    "sklearn.discriminant_analysis",
    "sklearn.dummy",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.naive_bayes",
    "sklearn.neighbors",
    "sklearn.neural_network",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "sklearn.svm",
    "sklearn.tree",
)
"""Modules whose classes need no module in front of them."""

Parameters = dict[str, Any]


def estimator_named(name: str, parameters: Parameters) -> Any:
    """An estimator that has learned nothing.

    >>> estimator_named("Ridge", {"alpha": 2.0})
    Ridge(alpha=2.0)
    >>> estimator_named("BaggingClassifier", {"estimator": {"class": "GaussianNB"}})
    BaggingClassifier(estimator=GaussianNB())
    """
    return estimator_of(_recipe(name, parameters))


def _recipe(name: str, parameters: Parameters) -> dict[str, Any]:
    """What a person wrote, as a recipe that has been tried."""
    full = name if "." in name else _full_name(name)
    recipe = {"class": full, "params": {key: _told(held) for key, held in parameters.items()}}
    try:
        estimator_of(recipe)
    except TypeError:
        raise _misfit(full, parameters) from None
    return recipe


def _told(value: Any) -> Any:
    """A value as recipes hold it; ``{"class": ..., "params": ...}`` is another estimator."""
    if isinstance(value, list):
        return [_told(item) for item in value]
    if not isinstance(value, dict):
        return value
    parameters = value.get("params", {})
    if value.keys() <= {"class", "params"} and isinstance(value.get("class"), str):
        if not isinstance(parameters, dict):
            raise SchemaError(
                f"the parameters of {value['class']} are not a JSON object; write them as "
                f'{{"name": 1}}'
            )
        return {"estimator": _recipe(value["class"], parameters)}
    return {"dict": [[key, _told(held)] for key, held in value.items()]}


def _misfit(full: str, parameters: Parameters) -> SchemaError:
    """That a class does not take what it was given."""
    module, _, attribute = full.rpartition(".")
    signature = inspect.signature(getattr(import_module(module), attribute)).parameters
    known = [name for name in signature if name != "kwargs"]
    for name in parameters:
        if name not in known:
            return SchemaError(f"{full} has no parameter {name!r}; {nearest(name, known)}")
    needed = [
        name
        for name, parameter in signature.items()
        if parameter.default is parameter.empty and name not in parameters
    ]
    if needed:
        return SchemaError(f"{full} needs {', '.join(needed)}; give it as a parameter")
    return SchemaError(f"{full} does not take these parameters; see what kind each is of")


def _full_name(name: str) -> str:
    """The one class of this name among the usual modules."""
    found: dict[object, str] = {}
    known = set[str]()
    for module in USUAL:
        classes = _classes_in(module)
        known |= classes.keys()
        if name in classes:
            found.setdefault(classes[name], f"{module}.{name}")
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise SchemaError(f"{name} may be {' or '.join(found.values())}; write which")
    if name.startswith("LGBM"):
        return f"lightgbm.{name}"  # not there: recipes say how it is installed
    close = nearest(name, known)
    remedy = "write its module too, as in sklearn.linear_model.LogisticRegression"
    raise SchemaError(
        f"no usual estimator is called {name!r}; {close if close.startswith('did') else remedy}"
    )


def _classes_in(module: str) -> dict[str, type]:
    """The estimators that a module has; none where it is not installed."""
    try:
        home = import_module(module)
    except ImportError:
        return {}
    names = getattr(home, "__all__", dir(home))
    things = {name: getattr(home, name, None) for name in names}
    return {
        name: thing
        for name, thing in things.items()
        if isinstance(thing, type) and issubclass(thing, BaseEstimator)
    }
