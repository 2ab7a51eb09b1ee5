"""The knobs: defaults, rules, and what follows from them."""

from __future__ import annotations

import dataclasses
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.errors import SchemaError
from pyramidion.settings import Settings


def test_epsilon_has_no_default():
    with pytest.raises(TypeError, match="epsilon"):
        Settings()


def test_settings_are_keyword_only():
    with pytest.raises(TypeError):
        Settings(1.0)


def test_infinite_epsilon_means_no_privacy_and_no_noise():
    settings = Settings(epsilon=math.inf)
    assert not settings.private
    assert settings.mechanism == "none"


def test_delta_chooses_between_laplace_and_gaussian():
    assert Settings(epsilon=1, delta=0).mechanism == "laplace"
    assert Settings(epsilon=1, delta=1e-6).mechanism == "gaussian"
    assert Settings(epsilon=1).private


def test_settings_hash_compare_and_pickle():
    settings = Settings(epsilon=1, shares={"b": 1, "a": 2}, columns=["count", "log-odds"])
    assert settings == Settings(epsilon=1.0, shares={"a": 2, "b": 1}, columns=("count", "log-odds"))
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301
    assert hash(settings) == hash(dataclasses.replace(settings))


def test_shares_are_stored_sorted_by_table_name():
    assert Settings(epsilon=1, shares={"b": 1, "a": 2}).shares == (("a", 2.0), ("b", 1.0))


def test_a_table_without_a_share_has_one():
    settings = Settings(epsilon=1, shares={"origin,dest": 3})
    assert settings.share("origin,dest") == 3.0
    assert settings.share("carrier") == 1.0
    assert Settings(epsilon=1).share("carrier") == 1.0


def test_no_shares_and_empty_shares_are_the_same():
    assert Settings(epsilon=1, shares={}) == Settings(epsilon=1)


def test_numpy_numbers_are_stored_plain():
    settings = Settings(epsilon=np.float32(0.5), k=np.int64(3))
    assert type(settings.epsilon) is float
    assert type(settings.k) is int


@pytest.mark.parametrize(
    ("unit", "p_min", "omega"),
    [(1, None, 1), (1, 1, 1), (1, 0.1, 10), (1, 0.3, 4), (7, 0.7, 10), (100, 0.01, 10_000)],
)
def test_omega_is_exact_on_the_decimal_that_was_written(unit, p_min, omega):
    assert Settings(epsilon=1, weight_unit=unit, p_min=p_min).omega == omega


@given(st.integers(1, 1000), st.floats(1e-4, 1))
def test_omega_is_never_too_small_for_the_weight_of_a_row(unit, p_min):
    omega = Settings(epsilon=1, weight_unit=unit, p_min=p_min).omega
    assert omega >= math.floor(unit / Fraction(p_min))


REFUSALS = {
    "epsilon": [0, -1, math.nan, "1", None, True],
    "delta": [-1e-9, 1, math.inf, math.nan],
    "k": [0, 1.0, True, 10**400],
    "rows": [0, 17, "5"],
    "buckets": [0, 1, 1000, 2**29, 1024.0],
    "sketch": ["count-medium", 3, None],
    "max_rows_per_window": [0, 2**41],
    "prior_share": [0, 1],
    "shares": ["carrier", 3, ["carrier"]],
    "p_min": [0, 1.5, math.inf],
    "weight_unit": [0, 2**20 + 1],
    "dense_limit": [-1, 2**29],
    "estimate": ["shrink"],
    "backoff_deviation": [0, math.nan],
    "columns": ["probability", [], ["odds"], ["count", "count"]],
    "passthrough": [-1],
}


@pytest.mark.parametrize(("knob", "value"), [(k, v) for k, bad in REFUSALS.items() for v in bad])
def test_a_bad_value_is_refused_by_the_knob_s_name(knob, value):
    with pytest.raises(SchemaError, match=f"setting '{knob}'"):
        Settings(**({"epsilon": 1.0} | {knob: value}))


def test_every_knob_has_refusals_here():
    assert set(REFUSALS) == {knob.name for knob in Settings.knobs()}


@pytest.mark.parametrize("share", [0, -1, math.inf, "2"])
def test_a_bad_share_is_refused_by_the_table_s_name(share):
    with pytest.raises(SchemaError, match="share of table 'carrier'"):
        Settings(epsilon=1, shares={"carrier": share})


def test_a_wrong_word_is_answered_with_the_nearest():
    with pytest.raises(SchemaError, match="did you mean 'count-median'"):
        Settings(epsilon=1, sketch="count-medium")


def test_buckets_that_are_no_power_of_two_are_answered_with_the_two_nearest():
    with pytest.raises(SchemaError, match="write 512 or 1024"):
        Settings(epsilon=1, buckets=1000)


def test_more_hidden_observations_than_a_window_holds_are_refused():
    with pytest.raises(SchemaError, match=r"'k' exceeds 'max_rows_per_window'.*lower k"):
        Settings(epsilon=1, k=11, max_rows_per_window=10)


def test_counts_beyond_64_bits_are_refused():
    with pytest.raises(SchemaError, match="beyond 64 bits; lower max_rows_per_window"):
        Settings(epsilon=1, p_min=1e-300)


def test_knobs_tell_symbol_unit_default_and_meaning():
    knobs = {knob.name: knob for knob in Settings.knobs()}
    assert list(knobs) == [field.name for field in dataclasses.fields(Settings)]
    assert all(knob.unit and knob.help for knob in knobs.values())
    assert (knobs["rows"].symbol, knobs["rows"].default) == ("h", 5)
    assert [name for name, knob in knobs.items() if knob.required] == ["epsilon"]


@given(
    st.builds(
        Settings,
        epsilon=st.floats(0, exclude_min=True, allow_nan=False),
        delta=st.floats(0, 1, exclude_max=True),
        rows=st.integers(1, 16),
        shares=st.none() | st.dictionaries(st.sampled_from("abc"), st.floats(0.1, 9)),
        p_min=st.none() | st.floats(0.01, 1),
    )
)
def test_a_dict_keeps_every_setting(settings):
    assert Settings.from_dict(settings.to_dict()) == settings


def test_an_unknown_setting_is_answered_with_the_nearest():
    with pytest.raises(SchemaError, match="no key 'epsilom'; did you mean 'epsilon'"):
        Settings.from_dict({"epsilom": 1})


def test_a_missing_epsilon_is_asked_for():
    with pytest.raises(SchemaError, match=r"'epsilon' has no default.*choose one"):
        Settings.from_dict({"delta": 0})


def test_toml_settings_may_be_infinite_and_share_a_file_with_a_schema():
    text = 'time = "t"\n[settings]\nepsilon = inf\nshares = { "a,b" = 2 }\n'
    assert Settings.from_toml(text) == Settings(epsilon=math.inf, shares={"a,b": 2})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('time = "t"\n', r"knobs.toml has no \[settings\] table; add one"),
        ("settings = 3\n", "knobs.toml: the settings table must be a table"),
        ("[settings]\nepsilon = 0\n", "knobs.toml: setting 'epsilon' must be above 0"),
        ("[settings\n", "knobs.toml is not valid TOML"),
    ],
)
def test_a_bad_settings_file_is_named_with_what_to_change(tmp_path, text, sentence):
    file = tmp_path / "knobs.toml"
    file.write_text(text)
    with pytest.raises(SchemaError, match=sentence):
        Settings.from_toml(file)
