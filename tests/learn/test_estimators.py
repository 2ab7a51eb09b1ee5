"""Estimators as people write them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pyramidion import SchemaError
from pyramidion.learn import estimators
from pyramidion.learn.estimators import estimator_named


@pytest.mark.parametrize("name", ["Ridge", "sklearn.linear_model.Ridge"])
def test_the_module_of_a_usual_class_may_be_left_out(name: str) -> None:
    assert repr(estimator_named(name, {"alpha": 2.0})) == "Ridge(alpha=2.0)"


@pytest.mark.parametrize(
    ("name", "package"), [("LGBMClassifier", "lightgbm"), ("VowpalRegressor", "pyramidion")]
)
def test_estimators_of_other_packages_are_usual_too(name: str, package: str) -> None:
    assert type(estimator_named(name, {})).__module__.startswith(f"{package}.")


def test_an_estimator_may_be_made_of_others() -> None:
    steps = [
        ["scale", {"class": "StandardScaler"}],
        ["model", {"class": "LogisticRegression", "params": {"C": 0.5}}],
    ]
    made = estimator_named("Pipeline", {"steps": steps})
    told = [repr(step) for _, step in made.steps]
    assert told == ["StandardScaler()", "LogisticRegression(C=0.5)"]


def test_a_parameter_may_be_an_object() -> None:
    made = estimator_named("LogisticRegression", {"class_weight": {"late": 2.0}})
    assert made.class_weight == {"late": 2.0}


def test_two_classes_of_one_name_must_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "_classes_in", lambda module: {"Ridge": type(module, (), {})})
    monkeypatch.setattr(estimators, "USUAL", ("here", "there"))
    with pytest.raises(SchemaError, match=r"Ridge may be here.Ridge or there.Ridge; write which"):
        estimator_named("Ridge", {})


WRONG = {
    "a slip": (("LogisticRegresion", {}), "did you mean 'LogisticRegression'?"),
    "no class": (("Nothing", {}), "no usual estimator is called 'Nothing'; write its module too"),
    "other code": (("os.path.join", {}), "none of the packages that estimators may come from"),
    "a program": (("pyramidion.__main__.Ridge", {}), "none of the packages that estimators may"),
    "a test": (("sklearn.conftest.Ridge", {}), "none of the packages that estimators may come"),
    "no such class": (("sklearn.linear_model.Nothing", {}), "sklearn.linear_model has no Nothing"),
    "a function": (("sklearn.base.clone", {}), "sklearn.base.clone is not an estimator"),
    "parameter": (("Ridge", {"alfa": 1}), "Ridge has no parameter 'alfa'; did you mean 'alpha'?"),
    "missing": (("Pipeline", {}), "sklearn.pipeline.Pipeline needs steps; give it"),
    "inside": (
        ("BaggingClassifier", {"estimator": {"class": "Ridge", "params": {"alfa": 1}}}),
        "Ridge has no parameter 'alfa'",
    ),
    "code inside": (
        ("BaggingClassifier", {"estimator": {"class": "os.path.join"}}),
        "none of the packages",
    ),
    "not an object": (
        ("BaggingClassifier", {"estimator": {"class": "Ridge", "params": [1]}}),
        "the parameters of Ridge are not a JSON object; write",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_is_one_sentence(what: str) -> None:
    (name, parameters), sentence = WRONG[what]
    with pytest.raises(SchemaError) as refusal:
        estimator_named(name, parameters)
    assert sentence in str(refusal.value)


def test_a_package_that_is_missing_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(SchemaError, match=r"pip install 'pyramidion\[models\]'"):
        estimator_named("LGBMClassifier", {})


def test_no_code_runs_before_its_package_is_known_to_be_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(estimators, "import_module", asked.append)
    with pytest.raises(SchemaError):
        estimator_named("somewhere.else.Thing", {})
    assert asked == []
    assert "somewhere" not in sys.modules
