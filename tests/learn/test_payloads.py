"""Bytes that say they are a model: whatever they say, no code comes with them."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from pyramidion.errors import FormatError, SchemaError
from pyramidion.learn import payloads_lightgbm, payloads_skops, payloads_vowpal
from pyramidion.learn.vowpal import VowpalClassifier

random = np.random.default_rng(0)
X = random.normal(size=(200, 3)).astype(np.float32)
Y = (X[:, 0] + random.normal(size=200) > 0).astype(int)


def fitted(estimator: Any) -> Any:
    return estimator.fit(X, Y)


# --- skops ------------------------------------------------


def changed(data: bytes, change: Callable[[dict[str, Any]], object], **files: bytes) -> bytes:
    """The same archive with another schema."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            body = old.read(name)
            if name == "schema.json":
                schema = json.loads(body)
                change(schema)
                body = json.dumps(schema).encode()
            new.writestr(name, files.pop(name, body))
    return out.getvalue()


def at(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """An attribute of the outermost estimator."""
    node: dict[str, Any] = schema["content"]["content"][name]
    return node


def node(module: str, name: str, loader: str, **more: Any) -> dict[str, Any]:
    return {"__class__": name, "__module__": module, "__loader__": loader, **more}


EMPTY = node("builtins", "tuple", "TupleNode", content=[])
JSON = node("builtins", "str", "JsonNode", content='"touch"', is_json=True)
ARGUMENTS = node("builtins", "tuple", "TupleNode", content=[JSON])
EVIL = {
    "an object": node("evil.module", "Thing", "ObjectNode"),
    "an object of a standard module": node("subprocess", "Popen", "ObjectNode"),
    "a call": node("os", "system", "ConstructorFromReduceNode", content=ARGUMENTS),
    "a function": node("evil.module", "function", "FunctionNode", content="evil.module.function"),
    "a function of NumPy": node("numpy", "save", "FunctionNode", content="numpy.save"),
    "a type": node("evil.module", "Thing", "TypeNode"),
    "a loss": node("evil.module", "Thing", "LossNode", __reduce__={"args": EMPTY}, content=EMPTY),
    "a tree": node("evil.module", "Thing", "TreeNode", __reduce__={"args": EMPTY}, content=EMPTY),
    "a dict": node("evil.module", "Thing", "DictNode", content={}, key_types=EMPTY),
    "a list": node("evil.module", "Thing", "ListNode", content=[]),
    "an array": node("evil.module", "Thing", "NdArrayNode", type="json", content=[], shape=EMPTY),
    "a method": node("os", "Thing", "MethodNode", content={"func": "system", "obj": EMPTY}),
    "a partial": node("functools", "partial", "PartialNode", content={}),
    "an operator": node("operator", "attrgetter", "OperatorFuncNode", attrs=ARGUMENTS),
    "a generator": node("evil.module", "Thing", "RandomGeneratorNode", content={}),
    "a generator's bits": node(
        "numpy.random._generator",
        "Generator",
        "RandomGeneratorNode",
        content={
            "bit_generator": {"content": {"bit_generator": {"content": '"seed"'}}},
            "seed_seq": EMPTY,
        },
    ),
    "a sparse matrix": node("scipy.sparse", "csr_matrix", "SparseMatrixNode", type="scipy"),
    "no loader": {"__class__": "system", "__module__": "os"},
    "an unknown loader": node("os", "system", "NewNode"),
    "a test of scikit-learn": node("sklearn.conftest", "Thing", "ObjectNode"),
    "a name behind an estimator": node("sklearn.calibration", "partial", "ObjectNode"),
    "a class inside another": node("sklearn.pipeline", "Pipeline.__init__", "ObjectNode"),
    "a program": node("pyramidion.__main__", "run", "ObjectNode"),
}


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that leaves a trace when it is imported."""
    trace = tmp_path / "trace"
    (tmp_path / "evil").mkdir()
    for name in ("__init__", "module"):
        (tmp_path / "evil" / f"{name}.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield trace
    assert not [name for name in sys.modules if name.partition(".")[0] == "evil"]


@pytest.mark.parametrize("what", EVIL)
def test_nothing_is_imported_or_called_that_is_not_listed(what: str, trap: Path) -> None:
    def change(schema: dict[str, Any]) -> None:
        schema["content"]["content"]["coef_"] = EVIL[what]

    data = changed(payloads_skops.written(fitted(LogisticRegression())), change)
    before = set(sys.modules)
    with pytest.raises(FormatError, match="an exported model may not hold"):
        payloads_skops.read(data)
    assert set(sys.modules) - before <= {name for name in sys.modules if "sklearn" in name}
    assert not trap.exists()


@pytest.mark.parametrize("what", ["an object", "a call", "a type", "a function"])
def test_the_outermost_thing_is_no_exception(what: str, trap: Path) -> None:
    def change(schema: dict[str, Any]) -> None:
        schema |= EVIL[what]

    data = changed(payloads_skops.written(fitted(LogisticRegression())), change)
    with pytest.raises(FormatError, match="an exported model may not hold"):
        payloads_skops.read(data)
    assert not trap.exists()


class Evil:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def test_an_array_that_is_a_pickle_is_not_opened(trap: Path) -> None:
    good = payloads_skops.written(fitted(LogisticRegression()))
    body = io.BytesIO()
    np.save(body, np.array([Evil(trap)], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        arrays = [name for name in archive.namelist() if name.endswith(".npy")]
    data = changed(good, lambda _: None, **dict.fromkeys(arrays, body.getvalue()))
    with pytest.raises(FormatError, match="cannot be put together again"):
        payloads_skops.read(data)
    assert not trap.exists()


READERS = [payloads_skops.read, payloads_lightgbm.read, payloads_vowpal.read]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", ["nothing", "pickle", "noise", "half"])
def test_bytes_that_are_no_model_are_refused(read: Any, name: str, trap: Path) -> None:
    half = payloads_skops.written(fitted(LogisticRegression()))[:900]
    data = {
        "nothing": b"",
        "pickle": pickle.dumps(Evil(trap)),
        "noise": bytes(range(256)),
        "half": half,
    }[name]
    with pytest.raises(FormatError):
        read(data)
    assert not trap.exists()


def test_an_archive_that_is_compressed_is_refused() -> None:
    data = skops.io.dumps(fitted(LogisticRegression()), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(FormatError, match="compressed within"):
        payloads_skops.read(data)


def test_a_thing_that_is_no_estimator_is_refused() -> None:
    with pytest.raises(FormatError, match="is not an estimator"):
        payloads_skops.read(skops.io.dumps([1, 2]))


def test_an_estimator_with_a_function_in_it_is_not_written() -> None:
    made = fitted(make_pipeline(FunctionTransformer(np.abs), LogisticRegression()))
    with pytest.raises(SchemaError, match="Pipeline cannot be exported: it holds"):
        payloads_skops.written(made)


def test_an_estimator_that_skops_cannot_write_is_one_sentence() -> None:
    made = fitted(LogisticRegression())
    made.held_ = (each for each in ())
    with pytest.raises(SchemaError, match="cannot be exported: skops cannot write it"):
        payloads_skops.written(made)


# --- trees ------------------------------------------------


def tree_of(made: Any) -> Any:
    return made.tree_ if hasattr(made, "tree_") else made.estimators_.ravel()[0].tree_


def leading(where: str, to: int, made: Any) -> bytes:
    """The bytes of an estimator, a tree of which leads elsewhere at its root."""
    if isinstance(made, HistGradientBoostingClassifier):
        nodes = made._predictors[0][0].nodes
        nodes[{"left": "left", "right": "right", "feature": "feature_idx"}[where]][0] = to
    else:
        tree = made.estimators_[0].tree_ if isinstance(made.estimators_, list) else None
        tree = tree or made.estimators_[0, 0].tree_
        state = tree.__getstate__()
        field = {"left": "left_child", "right": "right_child", "feature": "feature"}[where]
        state["nodes"][field][0] = to
        tree.__setstate__(state)
    return skops.io.dumps(made)


TREES = [
    RandomForestClassifier(n_estimators=2, random_state=0),
    GradientBoostingClassifier(n_estimators=2, random_state=0),
    HistGradientBoostingClassifier(max_iter=2),
]


@pytest.mark.parametrize("estimator", TREES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(("where", "to"), [("left", 0), ("right", 10**6), ("feature", 77)])
def test_a_tree_that_leads_out_or_back_is_refused(estimator: Any, where: str, to: int) -> None:
    with pytest.raises(FormatError, match="a tree of an exported model is damaged"):
        payloads_skops.read(leading(where, to, fitted(estimator)))


@pytest.mark.parametrize("columns", ['"3"', "3.5", "null", "[3]"])
def test_tree_without_a_number_of_columns_is_refused(columns: str) -> None:
    def change(schema: dict[str, Any]) -> None:
        at(schema, "n_features_in_")["content"] = columns

    data = payloads_skops.written(fitted(DecisionTreeClassifier(max_depth=2)))
    with pytest.raises(FormatError):
        payloads_skops.read(changed(data, change))


def test_a_sound_tree_is_read() -> None:
    made = fitted(DecisionTreeClassifier(max_leaf_nodes=9, random_state=0))  # best first
    read = payloads_skops.read(payloads_skops.written(made))
    assert np.array_equal(read.predict_proba(X), made.predict_proba(X))


# --- LightGBM ------------------------------------------------


def text(change: tuple[str, str] = ("", "")) -> bytes:
    made = fitted(LGBMClassifier(n_estimators=2, num_leaves=4, verbose=-1))
    return payloads_lightgbm.written(made).replace(change[0].encode(), change[1].encode(), 1)


@pytest.mark.parametrize(
    "change",
    [
        ("left_child=", "left_child=0 "),
        ("right_child=", "right_child=99 "),
        ("split_feature=", "split_feature=9 "),
        ("num_cat=0", "num_cat=3"),
        ("is_linear=0", "is_linear=1"),
        ("num_leaves=4", "num_leaves=4000"),
        ("num_leaves=4", "num_leaves=0"),
        ("threshold=", "threshold=1 "),
        ("max_feature_idx=2", "max_feature_idx=-1"),
        ("max_feature_idx=2", "nothing=2"),
        ("num_class=1", "num_class=0"),
        ("num_tree_per_iteration=1", "num_tree_per_iteration=0"),
        ("objective=binary sigmoid:1", "objective=multiclass num_class:1000000"),
        ("objective=binary sigmoid:1", "objective=binary sigmoid:-1"),
        ("objective=binary sigmoid:1", "objective=os"),
        ("leaf_value=", "leaf_value=nan "),
        ("decision_type=", "decision_type=1 "),
        ('"classes": [0, 1]', '"classes": [0, 1, 2]'),
    ],
    ids=str,
)
def test_a_text_that_leads_out_of_its_trees_is_refused(change: tuple[str, str]) -> None:
    assert payloads_lightgbm.read(text()).n_features_in_ == 3
    with pytest.raises(FormatError, match="LightGBM is damaged"):
        payloads_lightgbm.read(text(change))


def test_mutated_models_do_not_end_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.learn.mutated", "0", "600"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    refused, read = map(int, done.stdout.split())
    assert refused + read == 600
    assert refused > 300
    assert read > 50


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"objective": "cross_entropy"},
        {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
        {"boosting_type": "dart"},
        {"zero_as_missing": True},
    ],
    ids=str,
)
def test_lightgbm_predicts_the_same_from_its_numbers(params: dict[str, Any]) -> None:
    given = np.where(X < -1.5, np.nan, X)
    for labels in (Y, np.digitize(X[:, 1], [-0.5, 0.5])):
        if params.get("objective") and len(set(labels)) > 2:
            continue
        made = LGBMClassifier(n_estimators=7, num_leaves=5, verbose=-1, **params).fit(given, labels)
        read = payloads_lightgbm.read(payloads_lightgbm.written(made))
        chances = made.predict_proba(given)
        if chances.ndim == 2:
            assert np.array_equal(read.predict_proba(given), chances)
        assert np.array_equal(read.predict(given), made.predict(given))


@pytest.mark.parametrize("objective", ["regression", "poisson", "gamma", "quantile", "huber"])
def test_lightgbm_numbers_are_the_same_from_its_numbers(objective: str) -> None:
    made = LGBMRegressor(n_estimators=7, num_leaves=5, verbose=-1, objective=objective)
    made.fit(X, np.exp(X[:, 0]), sample_weight=1 + Y)
    read = payloads_lightgbm.read(payloads_lightgbm.written(made))
    assert np.array_equal(read.predict(X), made.predict(X))


def test_linear_trees_cannot_be_exported() -> None:
    made = LGBMRegressor(n_estimators=2, num_leaves=4, verbose=-1, linear_tree=True).fit(X, Y)
    with pytest.raises(SchemaError, match="LGBMRegressor cannot be exported"):
        payloads_lightgbm.written(made)


def test_exported_lightgbm_has_no_counts_of_rows() -> None:
    assert not any(name in text() for name in (b"_count", b"_weight", b"gain", b"bagging"))


# --- Vowpal Wabbit ------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "os.system"},
        {"columns": 10**9},
        {"columns": -1},
        {"outputs": 0},
        {"hidden": 5},
        {"centre": [1.0]},
        {"classes": None},
        {"scale": "os"},
    ],
    ids=str,
)
def test_weights_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    data = payloads_vowpal.written(fitted(VowpalClassifier(random_state=0, passes=1)))
    head, _, body = data.partition(b"\n")
    wrong = json.dumps(json.loads(head) | change).encode() + b"\n" + body
    with pytest.raises(FormatError, match="Vowpal Wabbit is damaged"):
        payloads_vowpal.read(wrong)


def test_predicting_what_was_exported_needs_no_vowpal_wabbit(tmp_path: Path) -> None:
    made = fitted(VowpalClassifier(random_state=0, passes=1))
    file = tmp_path / "payload"
    file.write_bytes(payloads_vowpal.written(made))
    program = (
        "import sys; sys.modules['pylibvw'] = sys.modules['vowpalwabbit'] = None\n"
        "from pyramidion.learn.payloads_vowpal import read\n"
        f"print(read(open({str(file)!r}, 'rb').read()).predict_proba([[1.0, 0.0, 0.0]])[0, 1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == made.predict_proba([[1.0, 0.0, 0.0]])[0, 1]


def test_the_library_of_a_format_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = partial(_gone, names={"skops", "lightgbm"})
    monkeypatch.setattr("pyramidion.errors.find_spec", gone)
    for call in (
        lambda: payloads_skops.written(fitted(LogisticRegression())),
        lambda: payloads_skops.read(b""),
        lambda: payloads_lightgbm.read(b""),
    ):
        with pytest.raises(SchemaError, match=r"pip install 'pyramidion\[models\]'"):
            call()


def _gone(name: str, names: set[str]) -> object:
    return None if name in names else object()


def test_a_scaled_pipeline_comes_back_whole() -> None:
    made = fitted(make_pipeline(StandardScaler(), LogisticRegression()))
    read = payloads_skops.read(payloads_skops.written(made))
    assert np.array_equal(read.predict_proba(X), made.predict_proba(X))
