"""Recipes: what an estimator is made of, all of it, and nothing that could run."""

from __future__ import annotations

import json
import math
import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joblib import Memory
from lightgbm import LGBMClassifier, LGBMRanker, LGBMRegressor
from lightgbm.basic import _ConfigAliases
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.utils import all_estimators

from pyramidion.errors import SchemaError
from pyramidion.learn.recipes import PACKAGES, estimator_of, packages_of, recipe_of


def again(estimator: Any) -> Any:
    """The estimator after its recipe was stored."""
    return estimator_of(json.loads(json.dumps(recipe_of(estimator))))


def same(one: Any, other: Any) -> bool:
    """Whether two estimators, or parameters, are made alike."""
    if isinstance(one, BaseEstimator):
        return type(one) is type(other) and same(
            one.get_params(deep=False), other.get_params(deep=False)
        )
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return type(other) is dict and all(same(a, b) for p, q in pairs for a, b in zip(p, q))  # noqa: B905
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(map(same, one, other)) and len(one) == len(other)
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and one == other


def made() -> list[Any]:
    """Every estimator of scikit-learn that can be made without arguments."""
    found = []
    for _, kind in all_estimators():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found.append(kind())
            except TypeError:  # it wants another estimator
                continue
    return found


# --- there and back ------------------------------------------------


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_every_estimator_of_scikit_learn_comes_back_as_it_was() -> None:
    found = made()
    assert len(found) > 150
    assert [each for each in found if not same(again(each), each)] == []


def test_what_is_default_is_left_out_so_that_it_follows_the_version() -> None:
    assert [each for each in made() if recipe_of(each)["params"]] == []
    same_again = SimpleImputer(missing_values=float("nan"), strategy="".join("mean"))
    assert recipe_of(same_again)["params"] == {}
    assert recipe_of(Ridge(copy_X=1))["params"] == {"copy_X": 1}  # which is not True


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(with_mean=False), LogisticRegression(C=0.25, max_iter=7)),
        Pipeline([("scale", "passthrough"), ("tree", RandomForestClassifier(3, max_features=0.5))]),
        make_union(StandardScaler(), make_pipeline(SimpleImputer(missing_values=-1.0))),
        ColumnTransformer([("some", StandardScaler(), [0, 2]), ("rest", "drop", [1])]),
        VotingClassifier([("a", Ridge()), ("b", SVC(kernel="poly"))], weights=[1, 2]),
        StackingClassifier([("a", SGDClassifier())], final_estimator=LogisticRegression(C=3.0)),
        GridSearchCV(Ridge(), {"alpha": [0.1, 1.0], "fit_intercept": [True, False]}, cv=3),
        LogisticRegression(class_weight={0: 1.0, 1: 2.5}),
        LogisticRegression(class_weight={"no": 1, "yes": np.float64(2.5)}),
        SimpleImputer(missing_values=math.nan, fill_value=math.inf),
        OneHotEncoder(categories=[["a", "b"], [1, 2]], min_frequency=np.int64(3)),
        LGBMClassifier(n_estimators=7, boosting_type="dart", feature_fraction_seed=3),
        LGBMRegressor(learning_rate=0.5, monotone_constraints=[1, 0]),
        CountVectorizer(ngram_range=(1, 2), lowercase=False),
        Ridge(alpha=np.float32(0.5), positive=np.True_),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_nested_ones_and_odd_parameters_come_back_as_they_were(estimator: Any) -> None:
    plain = again(estimator)
    assert same(again(plain), plain)
    assert repr(plain.get_params()) == repr(again(plain).get_params())
    assert type(plain) is type(estimator)
    for name, value in estimator.get_params(deep=False).items():
        if not isinstance(value, np.generic):
            assert same(plain.get_params(deep=False)[name], value) or "weight" in name
    assert plain is not estimator


def test_numbers_of_numpy_come_back_as_plain_ones() -> None:
    found = again(LogisticRegression(class_weight={np.int64(1): np.float64(2.5)}, C=np.float32(2)))
    assert same(found.class_weight, {1: 2.5})
    assert same(found.C, 2.0)


SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text()
NESTED = st.recursive(
    SIMPLE,
    lambda each: (
        st.lists(each, max_size=3)
        | st.lists(each, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text() | st.booleans(), each, max_size=3)
    ),
    max_leaves=8,
)


@given(NESTED)
def test_any_parameter_of_plain_values_comes_back_as_it_was(value: Any) -> None:
    assert same(again(Ridge(alpha=value)).alpha, value)


@given(NESTED)
def test_a_parameter_names_no_module(value: Any) -> None:
    """Whatever is in it, also what looks like a recipe."""
    recipe = recipe_of(Ridge(alpha=[{"estimator": {"class": "os.system", "params": {}}}, value]))
    assert packages_of(recipe) == {"sklearn.linear_model"}


def test_what_was_learned_is_not_in_it() -> None:
    learned = make_pipeline(StandardScaler(), LogisticRegression(warm_start=True))
    learned.fit([[0.0], [1.0]], [0, 1])
    assert recipe_of(learned) == recipe_of(
        make_pipeline(StandardScaler(), LogisticRegression(warm_start=True))
    )
    assert not hasattr(again(learned), "classes_")


def test_the_public_name_of_a_class_is_told_because_private_modules_move() -> None:
    told = [recipe_of(each)["class"] for each in made()]
    assert [name for name in told if "._" in name] == []


def test_the_modules_of_all_nested_ones_are_known_ahead() -> None:
    estimator = VotingClassifier([("a", make_pipeline(StandardScaler(), LGBMClassifier()))])
    assert packages_of(recipe_of(estimator)) == {
        "lightgbm",
        "sklearn.ensemble",
        "sklearn.pipeline",
        "sklearn.preprocessing",
    }


# --- what is refused ------------------------------------------------


class Foreign(BaseEstimator):
    pass


class Subclass(LogisticRegression):
    pass


@pytest.mark.parametrize(
    ("estimator", "why"),
    [
        (Foreign(), r"Foreign comes from none of the packages .*lightgbm, pyramidion, sklearn"),
        (Subclass(), "Subclass comes from none of the packages"),
        (make_pipeline(Foreign(), Ridge()), "Foreign comes from none of the packages"),
        (Ridge, "the class Ridge is not an estimator; give one of scikit-learn"),
        (object(), "a object is not an estimator"),
        (None, "a NoneType is not an estimator"),
        (FunctionTransformer(np.log), "'func' of .*FunctionTransformer is a ufunc"),
        (SVC(kernel=lambda a, b: 0), "'kernel' of sklearn.svm.SVC is a function"),
        (Ridge(random_state=np.random.RandomState(1)), "'random_state' of .* is a RandomState"),
        (Ridge(alpha=b"x"), "'alpha' of .* is a bytes"),
        (Ridge(alpha={1, 2}), "'alpha' of .* is a set"),
        (GridSearchCV(Ridge(), {}, scoring=max), "'scoring' of .* is a builtin_function"),
        (Pipeline([("a", Ridge())], memory="here"), "'memory' of sklearn.pipeline.Pipeline would"),
        (
            Pipeline([("a", Ridge())], memory=Memory("here", verbose=0)),
            "'memory' of .* is a Memory",
        ),
        (GridSearchCV(make_pipeline(Ridge()), {"memory": ["here"]}), "'memory' of .* let hot rows"),
        (GridSearchCV(make_pipeline(Ridge()), [{"a__memory": ["x"]}]), "'a__memory' of .* let hot"),
        (LGBMClassifier(machines="127.0.0.1:1"), "'machines' of .* other machines"),
        (LGBMClassifier(snapshot_freq=1), "'snapshot_freq' of .* none that a model may set"),
        (LGBMRanker(), "lightgbm.LGBMRanker cannot be trained here"),
        (CountVectorizer(input="filename"), "'input' of .* would open files"),
        (GridSearchCV(CountVectorizer(), {"input": ["file"]}), "'input' of .* would open files"),
    ],
    ids=lambda each: re.sub("0x[0-9a-fA-F]+", "somewhere", str(each)),
)
def test_what_a_recipe_cannot_hold_is_refused(estimator: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        recipe_of(estimator)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("os.system", "comes from none of the packages"),
        ("subprocess.Popen", "comes from none of the packages"),
        ("builtins.eval", "comes from none of the packages"),
        ("sklearnish.Ridge", "comes from none of the packages"),
        ("Ridge", "comes from none of the packages"),
        ("", "comes from none of the packages"),
        ("sklearn.os.system", "there is no module"),
        ("sklearn.base.os", "has no os|is not an estimator"),
        ("sklearn.base.clone", "is not an estimator"),
        ("sklearn.datasets.fetch_openml", "is not an estimator"),
        ("sklearn.linear_model.Ridge.fit", "there is no module"),
        ("sklearn.linear_model.Rigde", "has no Rigde"),
        ("pyramidion.store.pyramid.Pyramid", "is not an estimator"),
        ("pyramidion.no_such_thing.Ridge", "there is no module"),
    ],
)
def test_a_recipe_that_was_tampered_with_makes_nothing(name: str, why: str) -> None:
    for recipe in (
        {"class": name, "params": {}},
        {
            "class": "sklearn.pipeline.Pipeline",
            "params": {"steps": [["a", {"estimator": {"class": name, "params": {}}}]]},
        },
    ):
        with pytest.raises(SchemaError, match=why):
            estimator_of(recipe)
        assert all(module.partition(".")[0] in PACKAGES for module in packages_of(recipe))


def test_a_recipe_that_was_tampered_with_keeps_no_rows_in_files() -> None:
    recipe = recipe_of(make_pipeline(Ridge()))
    recipe["params"]["memory"] = "/tmp/here"  # noqa: S108
    with pytest.raises(SchemaError, match=r"'memory' of .*Pipeline would let hot rows out"):
        estimator_of(recipe)


# --- parameters of LightGBM ---------------------------------------------------

FILES = (
    *("config", "data", "valid", "input_model", "output_model", "output_result", "convert_model"),
    *("machine_list_filename", "machines", "num_machines", "local_listen_port", "time_out"),
    *("forcedsplits_filename", "forcedbins_filename", "parser_config_file", "save_binary"),
    *("snapshot_freq", "task", "header", "two_round", "pre_partition", "precise_float_parser"),
    *("label_column", "weight_column", "group_column", "ignore_column", "categorical_feature"),
    *("device_type", "gpu_platform_id", "gpu_device_id", "gpu_device_id_list", "gpu_use_dp"),
    *("num_gpu", "tree_learner", "convert_model_language", "predict_disable_shape_check"),
)
"""What concerns files, other machines, devices, or rows that are not there."""


def aliases(name: str) -> set[str]:
    found: set[str] = _ConfigAliases.get(name)
    return found


@pytest.mark.parametrize("name", sorted(set().union(*map(aliases, FILES))))
def test_no_name_of_a_file_or_machine_is_taken(name: str) -> None:
    for value in ("x", "1", 1, True):
        with pytest.raises(SchemaError, match="none that a model may set"):
            recipe_of(LGBMClassifier(**{name: value}))


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\r", "\v", "\f", "\u00a0", "\u2028", "\0"])
def test_a_blank_brings_no_second_parameter(blank: str) -> None:
    file = "forcedsplits_filename=/etc/passwd"
    for given_ in (
        {"objective": f"binary{blank}{file}"},
        {"boosting_type": f"gbdt{blank}{file}"},
        {"learning_rate": f"0.1{blank}{file}"},
        {"metric": ["auc", f"l2{blank}{file}"]},
        {"monotone_constraints": f"1,0{blank}{file}"},
        {"interaction_constraints": [[0, f"1{blank}{file}"]]},
        {f"{blank}forcedsplits_filename": "/etc/passwd"},
        {f"x=1{blank}forcedsplits_filename": "/etc/passwd"},
    ):
        with pytest.raises(SchemaError, match=r"parameter .* of lightgbm.LGBMRegressor"):
            recipe_of(LGBMRegressor(**given_))
        told = {"class": "lightgbm.LGBMRegressor", "params": dict(given_)}
        with pytest.raises(SchemaError, match=r"parameter .* of lightgbm.LGBMRegressor"):
            estimator_of(told)


@pytest.mark.parametrize(
    "grid",
    [
        {"forcedsplits_filename": ["/etc/passwd"]},
        {"objective": ["binary forcedsplits_filename=/etc/passwd"]},
        [{"learning_rate": [0.1]}, {"fs": ["/etc/passwd"]}],
        {"snapshot_freq": (1, 2)},
    ],
    ids=str,
)
def test_a_search_gives_lightgbm_no_file(grid: Any) -> None:
    with pytest.raises(SchemaError, match="GridSearchCV"):
        recipe_of(GridSearchCV(LGBMClassifier(), grid))
    steps = [{f"model__{n}": v for n, v in each.items()} for each in np.atleast_1d(grid)]
    with pytest.raises(SchemaError, match="GridSearchCV"):
        recipe_of(GridSearchCV(Pipeline([("model", LGBMClassifier())]), steps))


@pytest.mark.parametrize(
    "estimator",
    [
        LGBMClassifier(metric=["auc", "binary_logloss"], class_weight={"so so": 2, "=": 1}),
        LGBMRegressor(monotone_constraints="1,-1,0", interaction_constraints=[[0, 1], [2]]),
        LGBMClassifier(eta=0.1, n_jobs=-1, extra_trees=True, max_bin=63, class_weight="balanced"),
        GridSearchCV(LGBMClassifier(), {"num_leaves": [3, 7], "boosting_type": ["dart", "gbdt"]}),
        GridSearchCV(
            Pipeline([("scale", StandardScaler()), ("model", LGBMClassifier())]),
            [
                {"scale__with_mean": [True, False], "model__learning_rate": [0.1, 0.2]},
                {"scale": ["passthrough", StandardScaler()], "model": [Ridge(), LGBMRegressor()]},
            ],
        ),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_usual_parameters_of_lightgbm_are_taken(estimator: Any) -> None:
    assert repr(again(estimator).get_params()) == repr(estimator.get_params())


@pytest.mark.parametrize("name", ["n_jobs", "num_threads", "nthread"])
def test_lightgbm_starts_no_flood_of_threads(name: str) -> None:
    with pytest.raises(SchemaError, match="a number from -256 to 256"):
        recipe_of(LGBMClassifier(**{name: 100_000}))
