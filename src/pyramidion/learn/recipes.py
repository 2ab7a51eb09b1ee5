"""What an estimator is made of, as JSON: a class by its name, and the parameters it was given.

A recipe is all that is stored of a model, never what it learned. Reading one imports
classes, so only those of a few packages are: a file cannot name code to run.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from pyramidion.config.checks import plain
from pyramidion.errors import SchemaError
from pyramidion.learn.lightgbm_parameters import (
    refuse_class,
    refuse_parameter,
    refuse_searched,
)

PACKAGES = ("lightgbm", "pyramidion", "sklearn")
"""Where estimators may come from."""
LIGHTGBM = "lightgbm."

LOUD = ("verbose", "verbosity")
"""Left out of every recipe: nobody hears a training, and what learns online would be heard."""

OUTLETS = {
    *LOUD,
    "memory",  # scikit-learn's cache of fitted steps
}
"""Parameters by which rows, or what was learned of them, would leave memory."""

FILES = {"input": ("file", "filename")}
"""Values by which scikit-learn opens files that rows name."""

GRIDS = ("param_grid", "param_distributions")
"""Where a search has the parameters that it sets later."""

Recipe = dict[str, Any]


def recipe_of(estimator: object) -> Recipe:
    """An estimator as JSON, without what it may have learned.

    >>> from sklearn.linear_model import Ridge
    >>> recipe_of(Ridge(alpha=2.0))
    {'class': 'sklearn.linear_model.Ridge', 'params': {'alpha': 2.0}}
    >>> estimator_of(recipe_of(Ridge(alpha=2.0)))
    Ridge(alpha=2.0)
    """
    if isinstance(estimator, type) or not isinstance(estimator, BaseEstimator):
        raise SchemaError(
            f"{_told_kind(estimator)} is not an estimator; give one of scikit-learn, LightGBM or "
            f"pyramidion, such as LogisticRegression()"
        )
    name = _public_name(type(estimator))
    _class(name)
    given: dict[str, object] = estimator.get_params(deep=False)  # type: ignore[attr-defined]
    default = _defaults(type(estimator))
    changed = {
        key: value
        for key, value in given.items()
        if key not in LOUD and (key not in default or not _same(value, default[key]))
    }
    params = {key: _told(name, key, value) for key, value in changed.items()}
    recipe = {"class": name, "params": params}
    _refuse_unsafe(recipe)
    return recipe


def estimator_of(recipe: Recipe) -> Any:
    """A new estimator that has learned nothing."""
    kind = _class(recipe["class"])
    _refuse_unsafe(recipe)
    return kind(**{name: _made(value) for name, value in recipe["params"].items()})


def packages_of(recipe: Recipe) -> set[str]:
    """The modules that a recipe's classes live in, those alone that may be imported."""
    modules = {each["class"].rpartition(".")[0] for each in _recipes(recipe)}
    return {module for module in modules if _may_be(module)}


def _recipes(recipe: Recipe) -> Iterator[Recipe]:
    """A recipe and all those in it."""
    yield recipe
    waiting = list(recipe["params"].values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict) and "estimator" in value:
            yield from _recipes(value["estimator"])
        elif isinstance(value, dict):
            waiting += value.values()


def _may_be(module: str) -> bool:
    """Whether a module may be imported: one of these packages, and no program or test in it."""
    package, *parts = module.split(".")
    return package in PACKAGES and not any(
        part.startswith("__") or part in ("conftest", "tests") for part in parts
    )


def _refuse_unsafe(recipe: Recipe) -> None:
    """Raise for a parameter that lets rows out or opens a file, also where a search sets it."""
    recipes = list(_recipes(recipe))
    boosted = any(each["class"].startswith(LIGHTGBM) for each in recipes)
    others = frozenset[str]()
    if boosted:
        kinds = [_class(e["class"]) for e in recipes if not e["class"].startswith(LIGHTGBM)]
        others = frozenset(name for kind in kinds for name in _defaults(kind))
    for each in recipes:
        owner, params = each["class"], each["params"]
        if owner.startswith(LIGHTGBM):
            refuse_class(owner)
            for name, value in params.items():
                refuse_parameter(owner, name, value)
            continue
        for name, value in params.items():
            _refuse_outlet(owner, name, value)
            if name in GRIDS:
                for key, values in _searched(value):
                    _refuse_outlet(owner, key, values)
                    if boosted:
                        refuse_searched(owner, key, values, others)


def _searched(grid: Any) -> Iterator[tuple[str, list[Any]]]:
    """The names that a search sets, and the values it tries for each."""
    for each in grid if isinstance(grid, list) else [grid]:
        for key, values in each["dict"] if isinstance(each, dict) and "dict" in each else []:
            if isinstance(values, dict) and "tuple" in values:
                values = values["tuple"]
            yield str(key), values if isinstance(values, list) else [values]


def _refuse_outlet(owner: str, name: str, value: Any) -> None:
    last = name.rpartition("__")[2]
    if last in OUTLETS and value is not None:
        raise SchemaError(
            f"parameter {name!r} of {owner} would let hot rows out to files, other machines or "
            f"a terminal, where nothing erases them; leave it out"
        )
    if any(each in FILES.get(last, ()) for each in (value if isinstance(value, list) else [value])):
        raise SchemaError(
            f"parameter {name!r} of {owner} would open files that rows name; leave it out"
        )


def _told_kind(thing: object) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"


def _public_name(kind: type) -> str:
    """The shortest path of modules that has the class: private ones move."""
    modules = kind.__module__.split(".")
    if modules[0] in PACKAGES:
        for end in range(1, len(modules) + 1):
            path = ".".join(modules[:end])
            if getattr(importlib.import_module(path), kind.__qualname__, None) is kind:
                return f"{path}.{kind.__qualname__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def _defaults(kind: type) -> dict[str, object]:
    """What parameters are when none are given; recipes leave these out, so that they follow."""
    parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    return {each.name: each.default for each in parameters}


def _same(value: object, default: object) -> bool:
    if value is default:
        return True
    if isinstance(value, float) and isinstance(default, float) and math.isnan(value):
        return math.isnan(default)
    simple = (bool, int, float, str, tuple)
    return type(value) is type(default) and isinstance(value, simple) and value == default


def _told(owner: str, name: str, value: object) -> object:
    value = plain(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, BaseEstimator):
        return {"estimator": recipe_of(value)}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_told(owner, name, item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_told(owner, name, item) for item in value]}
    if isinstance(value, Mapping):
        pairs = [[_told(owner, name, each) for each in pair] for pair in value.items()]
        return {"dict": pairs}
    raise SchemaError(
        f"parameter {name!r} of {owner} is a {type(value).__name__}, which a recipe cannot hold; "
        f"use numbers, text, lists or other estimators"
    )


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return [_made(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "estimator":
        return estimator_of(held)
    if kind == "tuple":
        return tuple(_made(item) for item in held)
    return {_made(key): _made(item) for key, item in held}


def _class(name: str) -> type[BaseEstimator]:
    module, _, attribute = name.rpartition(".")
    if not _may_be(module):
        raise SchemaError(
            f"{name} comes from none of the packages that estimators may come from "
            f"({', '.join(PACKAGES)}); use one of theirs"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError:
        if importlib.util.find_spec(module.partition(".")[0]) is not None:
            raise SchemaError(f"there is no module {module}; register another estimator") from None
        raise SchemaError(
            f"{name} cannot be imported; pip install 'pyramidion[models]', or register another "
            f"estimator"
        ) from None
    except AttributeError:
        raise SchemaError(f"{module} has no {attribute}; register another estimator") from None
    if not (isinstance(found, type) and issubclass(found, BaseEstimator)):
        raise SchemaError(f"{name} is not an estimator; register one that is")
    return found
