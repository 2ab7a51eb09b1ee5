"""Weights as Vowpal Wabbit itself has them, units, and where rows go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pyramidion import SchemaError, StateError
from pyramidion.learn import vowpal_network
from pyramidion.learn.vowpal import VowpalClassifier, VowpalRegressor
from pyramidion.learn.vowpal_network import Network, _slots
from pyramidion.learn.vowpal_rows import Units
from tests.learn.lessons import far, linear, shifted, three

pytest.importorskip("pylibvw")


def own(model: Any, rows: NDArray[np.float32], *arguments: str) -> list[Any]:
    """What Vowpal Wabbit predicts with the model's weights, row by row."""
    from vowpalwabbit import Workspace

    net = model.network_
    slots, bits = _slots(net.columns, net.outputs, net.hidden)
    layer = ["--nn", str(net.hidden)] if net.hidden else []
    fixed = ["--quiet", "--noconstant", "--adaptive", "--invariant", "-b", str(bits)]
    wabbit = Workspace(arg_list=[*fixed, *layer, *arguments])
    for slot, (weight, squares) in zip(slots.tolist(), net.weights.tolist(), strict=True):
        wabbit.set_weight(slot, 0, weight)
        wabbit.set_weight(slot, 1, squares)
    lines = ("| " + " ".join(f"{i}:{v}" for i, v in enumerate(row)) for row in rows.tolist())
    return [wabbit.predict(line) for line in lines]


# --- what Vowpal Wabbit itself says --------------------------------------------------------


def test_linear_probabilities_are_those_of_a_naive_sum() -> None:
    X, y = linear()
    model = VowpalClassifier(random_state=0).fit(X, y)
    for row, (no, yes) in zip(X[:20].tolist(), model.predict_proba(X[:20]), strict=True):
        score = float(model.network_.weights[-1, 0])
        for column, value in enumerate(row):
            unit = (value - model.units_.centre[column]) / model.units_.scale[column]
            score += unit * float(model.network_.weights[column, 0])
        assert yes == pytest.approx(1 / (1 + np.exp(-score)), abs=1e-5)
        assert no + yes == pytest.approx(1)


@pytest.mark.parametrize(("hidden", "near"), [(0, 1e-6), (6, 1e-4)])
def test_two_classes_have_the_probabilities_vowpal_wabbit_gives(hidden: int, near: float) -> None:
    X, y = linear()
    model = VowpalClassifier(hidden=hidden, random_state=0).fit(X, y)
    some = np.vstack([X[:50], far(X)])
    link = ("--loss_function=logistic", "--link=logistic")
    expected = own(model, model.units_.rows(some), *link)
    np.testing.assert_allclose(model.predict_proba(some)[:, 1], expected, atol=near)


@pytest.mark.parametrize(("hidden", "near"), [(0, 1e-6), (6, 1e-4)])
def test_several_classes_have_the_probabilities_vowpal_wabbit_gives(
    hidden: int, near: float
) -> None:
    X, y = three()
    model = VowpalClassifier(hidden=hidden, random_state=0).fit(X, y)
    some = np.vstack([X[:50], far(X)])
    several = ("--loss_function=logistic", "--oaa=3", "--probabilities")
    expected = own(model, model.units_.rows(some), *several)
    np.testing.assert_allclose(model.predict_proba(some), expected, atol=near)


def test_training_is_that_of_vowpal_wabbit_row_by_row() -> None:
    from vowpalwabbit import Workspace

    X, y = linear(300)
    weights = np.linspace(0.5, 2, 300)
    model = VowpalClassifier().partial_fit(X[:100], y[:100])
    rows = model.units_.rows(X[100:])
    fixed = "--quiet --noconstant --adaptive --invariant --loss_function=logistic -b 3 -l 0.05"
    wabbit = Workspace(fixed)
    for slot, (weight, squares) in enumerate(model.network_.weights.tolist()):
        wabbit.set_weight(slot, 0, weight)
        wabbit.set_weight(slot, 1, squares)
    for row, label, weight in zip(rows.tolist(), y[100:], weights[100:], strict=True):
        features = " ".join(f"{i}:{v}" for i, v in enumerate(row))
        wabbit.learn(f"{1 if label else -1} {weight} | {features}")
    model.partial_fit(X[100:], y[100:], sample_weight=weights[100:])
    expected = [wabbit.get_weight(slot) for slot in range(5)]
    np.testing.assert_allclose(model.network_.weights[:, 0], expected, rtol=1e-4)


def test_l1_drops_the_column_that_says_nothing() -> None:
    X, y = linear()
    weights = VowpalClassifier(l1=1e-3, random_state=0).fit(X, y).network_.weights[:, 0]
    assert weights[3] == 0
    assert (weights[:2] != 0).all()


def test_l2_pulls_weights_together() -> None:
    X, y = linear()
    free = VowpalClassifier(random_state=0).fit(X, y).network_.weights[:, 0]
    held = VowpalClassifier(l2=1e-3, random_state=0).fit(X, y).network_.weights[:, 0]
    assert np.abs(held[:3]).sum() < 0.8 * np.abs(free[:3]).sum()


@pytest.mark.parametrize("hidden", [0, 1, 10, 64])
@pytest.mark.parametrize("outputs", [1, 3, 10])
@pytest.mark.parametrize("columns", [2, 6, 101])
def test_no_two_weights_share_a_slot(columns: int, outputs: int, hidden: int) -> None:
    slots, bits = _slots(columns, outputs, hidden)
    fresh = Network.fresh(columns, np.zeros(outputs), hidden, np.random.RandomState(0))
    assert len(np.unique(slots)) == len(slots) == len(fresh.weights)
    assert slots.max() < 2**bits
    assert 2**bits < 70 * len(slots) + 2


def test_weights_in_an_unknown_order_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vowpal_network, "NETWORK_START", vowpal_network.NETWORK_START + 5)
    X, y = linear(300)
    with pytest.raises(StateError, match="unknown order"):
        VowpalClassifier(hidden=4, random_state=0).fit(X, y)


# --- units ----------------------------------------------------------------------------------


def test_a_column_that_moves_little_stays_small() -> None:
    X = np.random.default_rng(0).normal(size=(2_000, 3)) * [1.0, 1.0, 0.001]
    rows = Units.of(X, None).rows(X)
    np.testing.assert_allclose(rows.std(axis=0), [1.0, 1.0, 0.1, 0.0], atol=0.05)


def test_a_column_in_a_larger_unit_keeps_to_itself() -> None:
    X = np.random.default_rng(0).normal(size=(2_000, 3)) * [0.1, 0.1, 1e6] + 7
    rows = Units.of(X, None).rows(X)
    np.testing.assert_allclose(rows.std(axis=0), [1.0, 1.0, 1.0, 0.0], atol=0.05)
    np.testing.assert_allclose(rows.mean(axis=0), [0.0, 0.0, 0.0, 1.0], atol=1e-3)


def test_the_unit_of_a_constant_column_is_1_whatever_rounding_says() -> None:
    X = np.random.default_rng(0).normal(size=(1_500, 2))
    X[:, 1] = 0.1
    assert X.mean(axis=0)[1] != 0.1
    assert Units.of(X, None).scale[1] == 1


def test_a_constant_column_changes_nothing() -> None:
    X, y = linear()
    wide = np.hstack([X, np.full((len(X), 1), 0.3, dtype=np.float32)])
    model = VowpalClassifier(random_state=0).fit(X, y)
    twin = VowpalClassifier(random_state=0).fit(wide, y)
    np.testing.assert_allclose(twin.predict_proba(wide), model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("hidden", [0, 3])
def test_values_far_out_give_finite_probabilities(hidden: int) -> None:
    X, y = linear()
    model = VowpalClassifier(hidden=hidden, random_state=0).fit(X, y)
    beyond = np.array([[3e38, 3e38, -3e38, 1e-40]], dtype=np.float32)
    model.partial_fit(beyond, [True])
    assert np.isfinite(model.predict_proba(beyond)).all()
    assert np.isfinite(model.predict_proba(X)).all()


# --- where it runs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("hidden", -1), ("passes", 0), ("learning_rate", 0), ("power_t", -1), ("l1", -1.0),
     ("l2", float("nan")), ("hidden", 1.5)],
)  # fmt: skip
def test_a_parameter_that_makes_no_sense_is_named(name: str, value: Any) -> None:
    X, y = linear(50)
    with pytest.raises(SchemaError, match=name):
        VowpalClassifier(**{name: value}).fit(X, y)


def test_training_that_diverges_is_refused() -> None:
    X, y = linear(200)
    with pytest.raises(SchemaError, match="diverged"):
        VowpalClassifier(l2=1e6).fit(X, y)


def test_without_vowpal_wabbit_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pylibvw", None)
    X, y = linear(50)
    with pytest.raises(StateError, match=r"pip install 'pyramidion\[models\]'"):
        VowpalClassifier().fit(X, y)


def test_where_no_file_is_memory_it_does_not_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    X, y = linear(50)
    with pytest.raises(StateError, match="memfd"):
        VowpalClassifier().fit(X, y)


def test_an_error_of_vowpal_wabbit_shows_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(SimpleNamespace):
        def run_parser(self) -> None:
            raise RuntimeError("malformed example '1 | :31415'")

    def broken(_: list[str]) -> Broken:
        return Broken(set_weight=lambda *_: None)

    monkeypatch.setitem(sys.modules, "pylibvw", SimpleNamespace(vw=broken))
    X, y = linear(50)
    with pytest.raises(StateError) as caught:
        VowpalClassifier().fit(X, y)
    assert "31415" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("hidden", [0, 3])
def test_nothing_is_printed(hidden: int, capfd: pytest.CaptureFixture[str]) -> None:
    X, y = three()
    VowpalClassifier(hidden=hidden).fit(X, y).partial_fit(X, y).predict(X)
    VowpalRegressor(hidden=hidden, l1=1e-6).fit(X, shifted(X)).predict(X)
    assert capfd.readouterr() == ("", "")


def test_no_descriptor_is_left_open() -> None:
    X, y = linear(100)
    VowpalClassifier().fit(X, y)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        VowpalClassifier().fit(X, y)
    assert len(os.listdir("/proc/self/fd")) == before


WATCHED = """
import copy, ctypes, os, pickle, struct, sys
import numpy as np
from pyramidion.learn.vowpal import VowpalClassifier

def train():
    X = np.random.default_rng(0).normal(size=(2_000, 5)).astype("float32")
    for hidden in (0, 3):
        model = VowpalClassifier(hidden=hidden, passes=3).fit(X, X[:, 0] > 0)
        copy.deepcopy(pickle.loads(pickle.dumps(model))).partial_fit(X, X[:, 0] > 0).predict(X)

def to_disk():  # bytes that this process, C++ included, has handed to a disk
    with open("/proc/self/io") as counters:
        return int(next(line for line in counters if line.startswith("write_bytes")).split()[1])

def created():  # names that came to be here, where TMPDIR is too
    names, at = [], 0
    try:
        found = os.read(watch, 65536)
    except BlockingIOError:
        return names
    while at < len(found):
        size = struct.unpack_from("iIII", found, at)[3]
        names.append(found[at + 16 : at + 16 + size].rstrip(b"\\0").decode())
        at += 16 + size
    return names

def hook(event, arguments):  # what Python opens for writing
    if event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
        opened.append(arguments[0])

train()  # so that all imports are over
libc, opened = ctypes.CDLL(None), []
watch = libc.inotify_init1(os.O_NONBLOCK)
libc.inotify_add_watch(watch, os.getcwd().encode(), 0x180)  # IN_CREATE | IN_MOVED_TO
sys.addaudithook(hook)
before = to_disk()
train()
print(opened, to_disk() - before, created())
with open("control", "wb") as control:
    control.write(b"x" * 9_999)
print(opened, to_disk() > before, created())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="needs Linux's counters")
def test_training_writes_no_file(tmp_path: Path) -> None:
    place = {**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", WATCHED]
    done = subprocess.run(command, cwd=tmp_path, env=place, capture_output=True, check=True)
    trained, control = done.stdout.decode().splitlines()
    assert trained == "[] 0 []"
    assert control == "['control'] True ['control']"
