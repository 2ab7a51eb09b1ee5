"""What a schema accepts, what it refuses, and that TOML keeps all of it."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.errors import SchemaError

LATE = Label("late", classes=[0, 1])


def flights(**changes):
    parts = {
        "time": "time",
        "label": LATE,
        "features": [
            Categorical("carrier", domain=["AA", "UA"]),
            Categorical("origin"),
            Categorical("dest"),
            Continuous("distance", bins=4, bounds=(0, 5000)),
        ],
        "groups": [("origin", "dest")],
    }
    return Schema(**(parts | changes))


# Features


def test_a_declared_domain_gives_a_dense_table_with_rows_for_other_and_missing():
    carrier = Categorical("carrier", domain=["AA", "UA"])
    assert carrier.dense
    assert carrier.codes == 4


def test_an_open_categorical_has_no_codes():
    assert not Categorical("tailnum").dense
    assert Categorical("tailnum").codes is None


def test_a_domain_may_mix_text_numbers_flags_and_bytes():
    domain = ["a", 2, 2.5, True, b"a"]
    assert Categorical("x", domain).domain == tuple(domain)


def test_numpy_values_are_stored_as_plain_python():
    domain = Categorical("x", np.array([3, 4])).domain
    assert [type(value) for value in domain] == [int, int]
    assert [type(value) for value in Label("y", np.array([0.5, 1.5])).classes] == [float, float]


def test_even_bins_are_cut_exactly():
    assert Continuous("x", bins=10, bounds=(0, 1)).cuts == tuple(i / 10 for i in range(1, 10))


def test_even_bins_over_the_widest_bounds_do_not_overflow():
    assert Continuous("x", bins=2, bounds=(-1.7e308, 1.7e308)).cuts == (0.0,)


def test_a_continuous_feature_has_a_code_per_bin_and_one_for_missing():
    delay = Continuous("delay", edges=[0, 15])
    assert delay.codes == 4
    assert delay.bin_names == ("<0", "0..15", ">=15")
    assert delay.dense


# Labels


def test_edges_make_a_continuous_label_with_named_bins():
    rating = Label("rating", edges=[2, 3, 4])
    assert rating.continuous
    assert rating.cardinality == 4
    assert rating.class_names == ("<2", "2..3", "3..4", ">=4")


def test_centers_lie_between_edges_and_half_a_bin_beyond_the_ends():
    assert Label("rating", edges=[2, 3, 5]).centers == (1.5, 2.5, 4.0, 6.0)


def test_a_single_edge_has_centers_half_a_unit_away():
    assert Label("rating", edges=[2]).centers == (1.5, 2.5)


def test_values_replace_the_centers():
    assert Label("rating", edges=[2], values=[1, 4]).centers == (1.0, 4.0)


def test_numeric_classes_are_their_own_centers():
    assert Label("stars", classes=[1, 2.5, 5]).centers == (1.0, 2.5, 5.0)


def test_text_classes_have_no_centers():
    with pytest.raises(SchemaError, match=r"'mood'.*not numbers"):
        _ = Label("mood", classes=["good", "bad"]).centers


# Schemas


def test_lists_are_stored_as_tuples_so_that_a_schema_hashes():
    assert hash(flights()) == hash(flights())
    assert flights() == flights(groups=(["origin", "dest"],))


def test_a_schema_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        flights().time = "other"


def test_a_copy_with_changes_is_checked_again():
    assert dataclasses.replace(flights(), groups=()).groups == ()
    with pytest.raises(SchemaError):
        dataclasses.replace(flights(), time="late")


def test_a_schema_survives_pickling():
    assert pickle.loads(pickle.dumps(flights())) == flights()  # noqa: S301


def test_tables_are_the_features_in_order_and_then_the_groups():
    tables = flights().tables
    assert tables == (("carrier",), ("origin",), ("dest",), ("distance",), ("origin", "dest"))
    assert flights().table_names[-1] == "origin,dest"


def test_columns_name_everything_an_observation_must_have_once():
    schema = flights(weight="p", unit="origin")
    assert schema.columns == ("time", "carrier", "origin", "dest", "distance", "late", "p")


def test_several_labels_are_counted_jointly():
    schema = flights(label=[LATE, Label("rating", edges=[2, 3, 4])])
    assert schema.cardinality == 8
    assert [label.name for label in schema.labels] == ["late", "rating"]


def test_a_list_of_one_label_is_that_label():
    assert flights(label=[LATE]) == flights(label=LATE)


def test_codes_of_a_group_multiply_and_an_open_part_opens_it():
    assert flights().codes(("carrier", "distance")) == 4 * 5
    assert flights().codes(("carrier", "origin")) is None


def test_a_feature_is_found_by_name():
    assert flights().feature("origin") == Categorical("origin")


def test_an_unknown_feature_is_answered_with_the_nearest():
    with pytest.raises(SchemaError, match="'orign'; did you mean 'origin'"):
        flights().feature("orign")


def test_importing_the_schema_stays_light():
    heavy = {"numpy", "pyarrow", "numba"}
    code = f"import pyramidion.config.schema, sys; print({heavy} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


REFUSALS = {
    "empty domain": (lambda: Categorical("x", []), "domain of feature 'x'.*list them"),
    "repeat in domain": (lambda: Categorical("x", ["a", "a"]), "'a' and 'a'.*keep one"),
    "True is 1": (lambda: Categorical("x", [1, True]), "1 and True.*same value.*keep one"),
    "1.0 is 1": (lambda: Categorical("x", [1, 1.0]), "same value.*keep one"),
    "None in domain": (lambda: Categorical("x", ["a", None]), "'x' holds None; remove"),
    "NaN in domain": (lambda: Categorical("x", [float("nan")]), "'x' holds nan; remove"),
    "inf in domain": (lambda: Categorical("x", [float("inf")]), "'x' holds inf; remove"),
    "list in domain": (lambda: Categorical("x", [["a"]]), "'x' holds a list; use only"),
    "huge in domain": (lambda: Categorical("x", [2**64]), "64 bits; write it as text"),
    "surrogate": (lambda: Categorical("x", ["\ud800"]), "not valid Unicode; correct"),
    "surrogate name": (lambda: Categorical("\ud800"), "not valid Unicode; rename"),
    "text as domain": (lambda: Categorical("x", "AB"), "domain of feature 'x' must be a list"),
    "set as domain": (lambda: Categorical("x", {"a"}), "must be a list in a fixed order"),
    "no dimension": (lambda: Categorical("x", np.array(1)), "must be a list"),
    "empty name": (lambda: Categorical(" "), "name of a categorical feature is empty; write"),
    "number as name": (lambda: Continuous(3, [1]), "name of a continuous feature must be text"),
    "no bins": (lambda: Continuous("x"), "'x' needs either edges or both.*write"),
    "bins alone": (lambda: Continuous("x", bins=3), "'x' needs either edges"),
    "bounds alone": (lambda: Continuous("x", bounds=(0, 1)), "'x' needs either edges"),
    "edges and bins": (lambda: Continuous("x", [1], 3, (0, 1)), "'x' needs either edges"),
    "no edges": (lambda: Continuous("x", []), "edges of feature 'x' are empty; write"),
    "falling edges": (lambda: Continuous("x", [2, 1]), "'x' must strictly increase.*sort"),
    "equal edges": (lambda: Continuous("x", [1, 1]), "'x' must strictly increase.*sort"),
    "inf edge": (lambda: Continuous("x", [float("inf")]), "edges of feature 'x' must be finite"),
    "huge edge": (lambda: Continuous("x", [10**400]), "edges of feature 'x' must be finite"),
    "flag as edge": (lambda: Continuous("x", [True]), "must be a number, not bool; write"),
    "one bin": (lambda: Continuous("x", bins=1, bounds=(0, 1)), "bins of feature 'x'.*from 2"),
    "half a bin": (lambda: Continuous("x", bins=2.5, bounds=(0, 1)), "whole number, not float"),
    "bounds swapped": (lambda: Continuous("x", bins=2, bounds=(1, 0)), "the lower one first"),
    "three bounds": (lambda: Continuous("x", bins=2, bounds=(0, 1, 2)), "must be two numbers"),
    "bounds too near": (lambda: Continuous("x", bins=9, bounds=(1, 1 + 2e-16)), "'x' must strict"),
    "no classes": (lambda: Label("y"), "'y' needs either classes, edges, or bins"),
    "classes and edges": (lambda: Label("y", [0, 1], [2]), "'y' needs either classes"),
    "one class": (lambda: Label("y", [0]), "classes of label 'y' must hold at least 2"),
    "same classes": (lambda: Label("y", [0, False]), "0 and False.*keep one"),
    "look-alike classes": (lambda: Label("y", [1, "1"]), "'y' look the same.*all as text"),
    "values for classes": (lambda: Label("y", [0, 1], values=[0, 1]), "'y' belong.*remove values"),
    "too few values": (lambda: Label("y", edges=[1], values=[0]), "1 numbers for 2 bins; write"),
    "inf value": (lambda: Label("y", edges=[1], values=[0, float("inf")]), "must be finite"),
    "edges too far": (lambda: Label("y", edges=[-1.7e308, 1.7e308]), "'y' are too far.*values"),
    "no features": (lambda: flights(features=[], groups=[]), "no features; list at least one"),
    "text as features": (lambda: flights(features="carrier"), "features must be a list"),
    "features of text": (lambda: flights(features=["a"]), "not str; write Categorical"),
    "feature twice": (
        lambda: flights(features=[Categorical("a"), Continuous("a", [1])], groups=[]),
        "'a' is declared twice as a feature; remove",
    ),
    "no label": (lambda: flights(label=[]), "no label; give label=Label"),
    "text as label": (lambda: flights(label="late"), "label must be a Label or a list"),
    "label of text": (lambda: flights(label=["late"]), "must be a Label.*not str; write Label"),
    "label twice": (lambda: flights(label=[LATE, LATE]), "'late' is declared twice as a label"),
    "label is a feature": (
        lambda: flights(label=Label("dest", [0, 1])),
        "'dest' is both a feature and a label.*remove",
    ),
    "time is a feature": (lambda: flights(time="dest"), "'dest' is both a feature and the time"),
    "time is the label": (lambda: flights(time="late"), "'late' is both a label and the time"),
    "weight is a feature": (lambda: flights(weight="dest"), "both a feature and the weight"),
    "weight is the time": (lambda: flights(weight="time"), "both the time and the weight"),
    "unit is the label": (lambda: flights(unit="late"), "both a label and the unit"),
    "empty time": (lambda: flights(time=""), "name of the time column is empty"),
    "wide labels": (
        lambda: flights(label=[Label(n, range(17)) for n in "abc"]),
        "4913 joint classes and at most 4096.*use fewer",
    ),
    "unknown in group": (
        lambda: flights(groups=[("origin", "dst")]),
        "'dst', which is not a feature; did you mean 'dest'",
    ),
    "group of one": (lambda: flights(groups=[("dest",)]), r"\('dest',\) has fewer than two"),
    "text as group": (lambda: flights(groups=["origin,dest"]), "a group must be a list"),
    "twice in group": (lambda: flights(groups=[("dest", "dest")]), "twice; name each once"),
    "group twice": (
        lambda: flights(groups=[("dest", "origin"), ("origin", "dest")]),
        "is there twice, the order does not matter; drop one",
    ),
    "same table name": (
        lambda: flights(features=[Categorical(n) for n in ("a", "b", "a,b")], groups=[("a", "b")]),
        "two tables would be called 'a,b'; rename",
    ),
}


@pytest.mark.parametrize(("make", "sentence"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_mistake_is_refused_with_the_thing_and_the_remedy(make, sentence):
    with pytest.raises(SchemaError, match=sentence) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_a_unit_may_be_a_feature():
    assert flights(unit="origin").unit == "origin"


# TOML


def texts(**limits):
    letters = st.characters(exclude_categories=["Cs"])
    return st.text(letters, **limits)


names = texts(min_size=1, max_size=8).filter(lambda name: name.strip() and "," not in name)
numbers = st.floats(-1e6, 1e6).map(lambda number: number + 0.0)
values = st.one_of(
    texts(max_size=8),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=4),
)
edges = st.lists(numbers, min_size=1, max_size=5, unique=True).map(sorted)


def features_named(name):
    return st.one_of(
        st.just(Categorical(name)),
        st.lists(values, min_size=1, max_size=40, unique=True).map(lambda d: Categorical(name, d)),
        edges.map(lambda cuts: Continuous(name, edges=cuts)),
        st.builds(
            lambda bins, low, width: Continuous(name, bins=bins, bounds=(low, low + width)),
            st.integers(2, 9),
            numbers,
            st.floats(1, 100),
        ),
    )


def labels_named(name):
    classes = st.lists(values, min_size=2, max_size=4, unique_by=(str, lambda v: v))
    return st.one_of(
        classes.map(lambda found: Label(name, classes=found)),
        edges.map(lambda cuts: Label(name, edges=cuts)),
        edges.map(lambda cuts: Label(name, edges=cuts, values=range(len(cuts) + 1))),
    )


@st.composite
def schemas(draw):
    columns = draw(st.lists(names, min_size=7, max_size=9, unique=True))
    *helpers, first, second = columns[:5]
    features = [draw(features_named(name)) for name in columns[5:]]
    labels = [draw(labels_named(name)) for name in (first, second)][: draw(st.integers(1, 2))]
    time, weight, unit = (draw(st.sampled_from([None, name])) for name in helpers)
    groups = draw(st.sampled_from([(), [columns[5:]], [columns[5:7]]]))
    return Schema(
        features=features, label=labels, groups=groups, time=time, weight=weight, unit=unit
    )


@pytest.mark.slow
@given(schemas())
def test_toml_keeps_every_schema_to_the_letter(schema):
    again = Schema.from_toml(schema.to_toml())
    assert again == schema
    assert repr(again) == repr(schema)  # 1, True and 1.0 are equal and must not be confused


@pytest.mark.slow
@given(schemas())
def test_a_dict_keeps_every_schema(schema):
    assert repr(Schema.from_dict(schema.to_dict())) == repr(schema)


def test_a_schema_file_reads_like_prose():
    assert flights(features=flights().features[:3]).to_toml() == (
        'time = "time"\n'
        'groups = [["origin", "dest"]]\n\n'
        '[label]\nname = "late"\nclasses = [0, 1]\n\n'
        '[[features]]\nname = "carrier"\ntype = "categorical"\ndomain = ["AA", "UA"]\n\n'
        '[[features]]\nname = "origin"\ntype = "categorical"\n\n'
        '[[features]]\nname = "dest"\ntype = "categorical"\n'
    )


def test_a_schema_is_read_from_a_file_by_path_and_by_name(tmp_path):
    file = tmp_path / "a=b.toml"
    file.write_text(flights().to_toml(), encoding="utf-8")
    assert Schema.from_toml(file) == Schema.from_toml(str(file)) == flights()


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    file = tmp_path / "schema.toml"
    file.write_bytes(b"\xef\xbb\xbf" + flights().to_toml().replace("\n", "\r\n").encode())
    assert Schema.from_toml(file) == flights()


def test_settings_beside_a_schema_are_left_alone():
    assert Schema.from_toml(flights().to_toml() + "\n[settings]\nepsilon = 1.0\n") == flights()


GOOD = '[label]\nname = "y"\nclasses = [0, 1]\n[[features]]\nname = "x"\ntype = "categorical"\n'
BAD_FILES = {
    "unknown key": ('tme = "t"\n' + GOOD, "no key 'tme'; did you mean 'time'"),
    "far-off key": ("zzz = 1\n" + GOOD, "no key 'zzz'; use one of time, weight"),
    "unknown feature key": (GOOD + "domian = [1]\n", "no key 'domian'; did you mean 'domain'"),
    "edges of a categorical": (GOOD + "edges = [1]\n", "categorical feature 'x' has no key"),
    "unknown type": (GOOD.replace("categorical", "categoric"), "did you mean 'categorical'"),
    "no type": (GOOD.replace("type", "# type"), "feature 1 has no type; add type"),
    "no name": (GOOD.replace('name = "x"', ""), "feature 1 has no name; add name"),
    "label without a name": (GOOD.replace('name = "y"', ""), "the label has no name; add"),
    "no label": (GOOD.replace("label", "settings"), r"no label; add a \[label\] table"),
    "no features": (GOOD[:35], r"no features; add a \[\[features\]\] table"),
    "features a table": (GOOD.replace("[[features]]", "[features]"), "features must be a list"),
    "features of text": ('features = ["x"]\n' + GOOD[:35], "feature 1 must be a table"),
    "label of text": ('label = "y"\n' + GOOD[35:], "the label must be a table"),
    "groups of text": ('groups = "x"\n' + GOOD, "groups must be a list"),
    "bad bytes": (GOOD + 'domain = [{ hex = "zz" }]\n', "feature 'x'.*write bytes as"),
    "date in domain": (GOOD + "domain = [2020-01-01]\n", "'x' holds a date; use only"),
    "broken": (GOOD + "domain = [1\n", "not valid TOML.*correct"),
    "long number": (GOOD + f"domain = [{'1' * 5000}]\n", "not valid TOML.*correct"),
    "deep": (GOOD + "domain = " + "[" * 5000, "not valid TOML.*correct"),
}


@pytest.mark.parametrize(("text", "sentence"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_bad_schema_file_is_named_with_what_to_change(tmp_path, text, sentence):
    file = tmp_path / "schema.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError, match=f"schema.toml.*{sentence}"):
        Schema.from_toml(file)


def test_a_missing_file_is_named():
    with pytest.raises(SchemaError, match=r"no file nowhere.toml; give the path"):
        Schema.from_toml("nowhere.toml")


def test_a_directory_is_not_a_schema_file(tmp_path):
    with pytest.raises(SchemaError, match="is a directory; give"):
        Schema.from_toml(tmp_path)


def test_a_file_that_is_not_utf_8_is_named(tmp_path):
    file = tmp_path / "schema.toml"
    file.write_bytes(b'time = "\xff"\n')
    with pytest.raises(SchemaError, match=r"schema.toml is not UTF-8"):
        Schema.from_toml(file)


def test_a_path_no_system_can_hold_is_refused():
    with pytest.raises(SchemaError, match="cannot be read"):
        Schema.from_toml(Path("a\0b"))


def test_neither_path_nor_text_is_refused():
    with pytest.raises(SchemaError, match="as a path or as TOML text, not int"):
        Schema.from_toml(3)


def test_an_empty_text_lacks_everything():
    with pytest.raises(SchemaError, match="the schema text: the schema has no label"):
        Schema.from_toml("")
