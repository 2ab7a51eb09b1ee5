"""Workloads: a label, perhaps coarser, and some tables; checked by messages that help."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.errors import SchemaError
from pyramidion.learn.workload import Workload
from pyramidion.rows.containers import Batch, columns_of
from pyramidion.rows.observations import Door

MOODS = ["sad", "flat", "glad", "wild"]
SCHEMA = Schema(
    features=[Categorical("a"), Categorical("b"), Continuous("c", edges=[1.0])],
    groups=[("a", "b"), ("b", "c")],
    label=[Label("mood", classes=MOODS), Label("score", edges=[1.0, 2.0])],
)
TABLES = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c")]
BINS = SCHEMA.labels[1].class_names


def of(**given: Any) -> Workload:
    return Workload.of(SCHEMA, **{"label": "mood"} | given)


def used(workload: Workload) -> list[str]:
    return [",".join(table) for table in TABLES if workload.uses(table)]


def labels(workload: Workload, **columns: list[Any]) -> list[Any]:
    """The labels of some rows, as they are learned."""
    size = len(next(iter(columns.values())))
    given = {"a": ["x"] * size, "b": ["x"] * size, "c": [1.0] * size}
    given |= {"mood": ["sad"] * size, "score": [0.0] * size} | columns
    batch = Batch(*columns_of(given, SCHEMA.columns))
    observations = Door(SCHEMA, Settings(epsilon=1.0), b"secret").observations(batch)
    found: list[Any] = workload.y(SCHEMA, observations, batch).tolist()
    return found


# --- tables ------------------------------------------------


@pytest.mark.parametrize(
    ("given", "tables"),
    [
        ({}, ["a", "b", "c", "a,b", "b,c"]),
        ({"only": ["a", ("b", "c")]}, ["a", "b,c"]),
        ({"only": ["a", "b,c", "a"]}, ["a", "b,c"]),
        ({"without": ["a"]}, ["b", "c", "b,c"]),
        ({"without": [["a", "b"]]}, ["a", "b", "c", "b,c"]),
        ({"only": ["a", "a,b", "b"], "without": ["b"]}, ["a"]),
        ({"without": np.array(["a", "c"])}, ["b"]),
    ],
)
def test_tables_are_chosen_and_left_out(given: dict[str, Any], tables: list[str]) -> None:
    assert used(of(**given)) == tables


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"only": ["aa"]}, "only names 'aa', which is no table; did you mean 'a'"),
        ({"only": [("b", "a")]}, "only names 'b,a', which is no table"),
        ({"without": ["mood"]}, "without names 'mood', which is no table"),
        ({"only": "a"}, "only must be a list, not text|only"),
        ({"without": [1]}, "a group in without"),
        ({"only": []}, "no table is left to learn from; leave fewer out"),
        ({"without": ["a", "b", "c"]}, "no table is left to learn from"),
        ({"only": ["a"], "without": ["a"]}, "no table is left to learn from"),
        ({"label": None}, "the schema has several labels; name one of mood, score"),
        ({"label": "moon"}, "there is no label 'moon'; did you mean 'mood'"),
        ({"label": "a"}, "there is no label 'a'"),
        ({"merge": {"up": ["glad", "mad"]}}, "label 'mood' has no class 'mad'; merge some of sad"),
        ({"merge": {"up": ["glad"], "on": ["glad"]}}, "class 'glad' is merged into two"),
        ({"merge": {"up": ["glad", "glad"]}}, "class 'glad' is merged into two"),
        ({"merge": {"sad": ["glad", "wild"]}}, "class 'sad' is there already and not among those"),
        ({"merge": {"all": MOODS}}, "fewer than two classes that can be told apart"),
        ({"merge": {"up": "glad"}}, "class 'up'"),
        ({"label": "score", "merge": {"low": [1.5]}}, "label 'score' has no class 1.5"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        of(**given)


# --- labels ------------------------------------------------


def test_classes_are_learned_as_declared_and_numbers_as_they_came() -> None:
    assert labels(of(), mood=["wild", "sad", "flat"]) == ["wild", "sad", "flat"]
    assert of().classes == tuple(MOODS)
    score = of(label="score")
    assert labels(score, score=[1.25, -3.0]) == [1.25, -3.0]
    assert (score.classifies, score.classes) == (False, ())


def test_merged_classes_stand_where_the_first_of_them_stood() -> None:
    workload = of(merge={"up": ["wild", "glad"], "down": ["sad"]})
    assert workload.classes == ("down", "flat", "up")
    assert labels(workload, mood=MOODS) == ["down", "flat", "up", "up"]


def test_a_new_class_may_have_the_name_of_one_that_goes_into_it() -> None:
    workload = of(merge={"sad": ["sad", "flat"]})
    assert workload.classes == ("sad", "glad", "wild")
    assert labels(workload, mood=MOODS) == ["sad", "sad", "glad", "wild"]


def test_the_bins_of_a_number_may_be_merged_into_classes() -> None:
    workload = of(label="score", merge={"low": BINS[:2], "high": BINS[2:]})
    assert workload.classifies
    assert workload.classes == ("low", "high")
    assert labels(workload, score=[0.5, 1.5, 2.5]) == ["low", "low", "high"]


@given(st.lists(st.sampled_from(["x", "y", "z"]), min_size=4, max_size=4))
def test_any_merging_maps_each_class_to_the_one_it_is_in(into: list[str]) -> None:
    merge: dict[str, list[str]] = {}
    for name, mood in zip(into, MOODS, strict=True):
        merge.setdefault(name, []).append(mood)
    if len(merge) < 2:
        with pytest.raises(SchemaError, match="fewer than two classes"):
            of(merge=merge)
        return
    assert labels(of(merge=merge), mood=MOODS) == into
    assert of(merge=merge).classes == tuple(dict.fromkeys(into))


# --- kept ------------------------------------------------


@pytest.mark.parametrize(
    "workload",
    [
        of(),
        of(only=["a", ("a", "b")], without=["b"], merge={"up": ["wild", "glad"]}),
        of(label="score", merge={1: BINS[:2], False: BINS[2:]}),
        of(label="score", merge={0.5: BINS[:1], b"\xff": BINS[1:]}),
    ],
    ids=repr,
)
def test_it_comes_back_from_where_it_was_kept(workload: Workload) -> None:
    found = Workload.from_dict(SCHEMA, json.loads(json.dumps(workload.to_dict())))
    assert found == workload
    assert repr(found) == repr(workload)  # where 1 is not True


def test_a_table_that_was_withdrawn_meanwhile_is_let_go_of() -> None:
    workload = of(only=["a", "b,c"], without=["b"])
    fewer = SCHEMA.less("a")
    found = Workload.from_dict(fewer, workload.to_dict())
    assert (found.only, found.without) == (("b,c",), ("b",))
    assert found == workload.on(fewer)
    assert found.on(SCHEMA).only == ("b,c",)
