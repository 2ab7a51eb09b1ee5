"""The knobs: defaults, rules, and what follows from them."""

from __future__ import annotations

import dataclasses
import math
import pickle
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.config import toml
from pyramidion.config.settings import Settings
from pyramidion.errors import SchemaError


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
    "count_window": ["30", "30 days", "0 rows", "1__0 rows", 0, 2**41, 1.5, True, None],
    "windows": ["forest", None],
    "tree_radix": [1, 1025, 2.5],
    "tree_depth": [1, 21, "3"],
    "tree_shares": [3, [], [1, 0], ["1"]],
    "retention": ["0d", 365, None],
    "hot_window": ["week", 7, 0, timedelta(0)],
    "hot_rows": [0, "1000", 1e6],
    "hot_step": ["", 1, None],
    "hot_step_rows": [0, "100"],
    "max_skew": ["0s", "-1h", 3600, None],
    "origin": [math.nan, math.inf, "yesterday", 1e12, None, True],
    "checkpoint_rows": [0, 1e6, None],
    "train_within": ["0s", "soon", 60, None],
    "weights_share": [-0.1, 1, "0.1", math.nan],
    "bins_share": [-0.1, 1, None],
    "selection_share": [-0.1, 1, None],
    "selection": ["best", None],
    "selection_groups": [0, 1.5, None],
    "selection_parts": [1, 9, None],
    "selection_every": [0, "often"],
    "selection_tables": [0, 1, None],
    "trial_windows": [0, None],
    "shards": [0, 1_001, 1.5, None],
    "shard_wait": ["0s", "soon", 60, None],
    "rebuild_share": [-0.1, 1, None],
    "weights": ["fair", None],
    "quantiles": ["exact", None],
    "weights_quantile": [0, 1, None],
    "weights_every": [0, None],
    "bins_every": [0, None],
    "unit_block": ["0d", 7],
    "vault_every": ["0s", "hourly", 3600, None],
    "vault_rows": [0, 1e6, None],
    "vault_retention": ["0d", 30],
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


# --- the store's knobs ------------------------------------------------------------

DAY = 86_400_000_000


def test_the_store_s_defaults_in_microseconds():
    settings = Settings(epsilon=1)
    assert (settings.window_us, settings.window_rows) == (30 * DAY, None)
    assert settings.retention_us == 365 * DAY
    assert (settings.hot_window_us, settings.hot_step_us) == (7 * DAY, DAY)
    assert settings.step_rows is None
    assert settings.max_skew_us == 3_600_000_000
    assert settings.origin_us == 0
    kept = {"weights": Fraction(1, 20), "bins": Fraction(1, 50), "selection": 0, "rebuild": 0}
    assert settings.reserves == kept


def test_equal_durations_make_equal_settings():
    a = Settings(epsilon=1, count_window="4w", retention="8760h", hot_step=timedelta(days=1))
    b = Settings(epsilon=1, count_window=timedelta(days=28), retention="365d", hot_step="24h")
    assert a == b
    assert hash(a) == hash(b)
    assert (a.count_window, a.retention, a.hot_step) == ("28d", "365d", "1d")


@pytest.mark.parametrize("rows", [1_000_000, "1000000 rows", "1_000_000 rows", np.int64(10**6)])
def test_a_window_may_be_counted_in_rows(rows):
    settings = Settings(epsilon=1, count_window=rows)
    assert type(settings.count_window) is int
    assert (settings.window_us, settings.window_rows) == (None, 1_000_000)


def test_numpy_s_lengths_of_time_are_never_taken_for_rows():
    assert Settings(epsilon=1, count_window=np.timedelta64(30, "D")).window_us == 30 * DAY
    with pytest.raises(SchemaError, match="'count_window' must be a duration"):
        Settings(epsilon=1, count_window=np.timedelta64(30 * DAY * 1000, "ns"))


@pytest.mark.parametrize(
    "origin",
    ["2020-01-01", date(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC), 1577836800,
     np.datetime64("2020-01-01")],
)  # fmt: skip
def test_an_origin_is_stored_as_seconds(origin):
    settings = Settings(epsilon=1, origin=origin)
    assert type(settings.origin) is float
    assert (settings.origin, settings.origin_us) == (1577836800.0, 1577836800 * 10**6)


@pytest.mark.parametrize(
    ("rows", "step", "most"),
    [(None, None, None), (1000, None, 100), (5, None, 1), (1000, 7, 7), (None, 7, 7)],
)
def test_a_step_holds_a_tenth_of_the_hot_rows_unless_set(rows, step, most):
    assert Settings(epsilon=1, hot_rows=rows, hot_step_rows=step).step_rows == most


AT_ODDS = [
    ({"retention": "30d"}, r"'retention' \(30d\) must be longer than 'count_window' \(30d\)"),
    ({"max_skew": "30d1us"}, r"'max_skew' \(30d1us\) must be at most 'count_window' \(30d\)"),
    ({"hot_window": "366d"}, r"'hot_window' \(366d\) must be at most 'retention' \(365d\)"),
    ({"hot_step": "8d"}, r"'hot_step' \(8d\) must be at most 'hot_window' \(7d\)"),
    (
        {"hot_window": None, "hot_rows": 9, "hot_step": "366d"},
        r"'hot_step' \(366d\) must be at most 'retention' \(365d\)",
    ),
    ({"hot_rows": 9, "hot_step_rows": 10}, r"'hot_step_rows' \(10\) must be at most 'hot_rows'"),
    ({"hot_window": None}, "'hot_window' and 'hot_rows' are both None.*set one"),
    ({"count_window": 10**8 + 1}, "'count_window' .* at most 'max_rows_per_window'"),
    ({"shards": 2}, "'weights' is 'half', .* one shard .* set it to 'equal', or give shares"),
    ({"shards": 2, "weights": "equal", "count_window": 9}, "'count_window' .* line up by time"),
    (
        {"shards": 2, "weights": "equal", "windows": "tree", "count_window": "1d"},
        "'windows' is 'tree', and shards .* leave it 'flat'",
    ),
    (
        {"shards": 2, "weights": "equal", "selection_share": 0.1},
        "'selection_share' is above 0, .* give groups by hand",
    ),
]


@pytest.mark.parametrize(("knobs", "sentence"), AT_ODDS)
def test_knobs_at_odds_are_refused(knobs, sentence):
    with pytest.raises(SchemaError, match=sentence):
        Settings(epsilon=1, **knobs)


IN_ORDER = [
    {"retention": "30d1us"},
    {"max_skew": "30d"},
    {"hot_window": "365d"},
    {"hot_step": "7d"},
    {"hot_rows": 9, "hot_step_rows": 9},
    {"hot_window": None, "hot_rows": 1, "hot_step": "9d"},
    {"count_window": 10**8, "retention": "7d", "max_skew": "99d"},
    {"shards": 2, "weights": "equal"},
    {"shards": 2, "shares": {"carrier": 2}},
]


@pytest.mark.parametrize("knobs", IN_ORDER)
def test_knobs_at_their_limits_are_taken(knobs):
    Settings(epsilon=1, **knobs)


@pytest.mark.parametrize("last", ["prior_share", "weights_share", "bins_share", "selection_share"])
def test_shares_that_leave_the_tables_nothing_are_refused_exactly(last):
    # 0.7 + 0.1 + 0.1 + 0.1 is 0.9999999999999999 in floats, and 1 in the decimals written
    shares = dict.fromkeys(
        ("prior_share", "weights_share", "bins_share", "selection_share"), 0.1
    ) | {last: 0.7}
    with pytest.raises(SchemaError, match="leave the tables nothing; lower one"):
        Settings(epsilon=1, **shares)
    Settings(epsilon=1, **shares | {last: math.nextafter(0.7, 0)})


def test_reserves_are_exact_on_the_decimals_that_were_written():
    settings = Settings(
        epsilon=1, weights_share=0.1, bins_share=0.05, selection_share=1e-3, rebuild_share=0.002
    )
    tenth = Fraction(1, 10)
    assert settings.reserves == {
        "weights": tenth,
        "bins": tenth / 2,
        "selection": Fraction(1, 1000),
        "rebuild": Fraction(1, 500),
    }


@st.composite
def stores(draw):
    """Settings whose store knobs agree."""
    minutes = sorted(draw(st.tuples(*[st.integers(1, 10**6)] * 4)))
    shortest, short, long, longest = (f"{number}m" for number in minutes)
    rows = draw(st.none() | st.integers(1, 10**6))
    return Settings(
        epsilon=1,
        count_window=draw(st.integers(1, 10**8) | st.just(long)),
        retention=f"{longest} 1us",
        hot_window=draw(st.just(short) | (st.none() if rows else st.nothing())),
        hot_rows=rows,
        hot_step=shortest,
        hot_step_rows=rows and draw(st.none() | st.integers(1, rows)),
        max_skew=shortest,
        origin=draw(st.floats(-8e9, 7e9)),
        checkpoint_rows=draw(st.integers(1, 10**9)),
        weights_share=draw(st.floats(0, 0.3)),
        bins_share=draw(st.floats(0, 0.3)),
        selection_share=draw(st.floats(0, 0.3)),
    )


@given(stores())
def test_a_dict_and_toml_keep_every_knob_of_a_store(settings):
    told = settings.to_dict()
    assert Settings.from_dict(told) == settings
    said = {knob: "none" if value is None else value for knob, value in told.items()}
    assert Settings.from_toml(toml.written({"settings": said})) == settings


@given(stores())
def test_settings_made_again_from_themselves_are_the_same(settings):
    again = dataclasses.replace(settings)
    assert again == settings
    assert again.origin_us == settings.origin_us


def test_toml_may_say_none_and_write_dates():
    text = '[settings]\nepsilon = 1\nhot_window = "none"\nhot_rows = 9\norigin = 2020-01-01\n'
    settings = Settings.from_toml(text)
    assert settings.hot_window is None
    assert settings.origin == 1577836800.0


# --- in and out ---------------------------------------------------------------------


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
