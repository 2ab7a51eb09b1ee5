from __future__ import annotations

import copy
import inspect
import math
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from pyramidion import (
    Categorical,
    Continuous,
    CountFeaturizer,
    Label,
    ObservationError,
    PrivacyError,
    Schema,
    SchemaError,
    Settings,
    StateError,
)
from pyramidion.counts.arena import Arena

INF = math.inf
NEAR = 0.02  # two fits have two hash keys: a collision or two stirs the strength of shrinkage


def flights(rows: int = 4_000, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Carriers and planes with a lateness of their own."""
    random = np.random.default_rng(seed)
    carrier, plane = random.integers(0, 8, rows), random.integers(0, 300, rows)
    chance = 0.15 + 0.07 * carrier + 0.2 * (plane % 2)
    late = (random.random(rows) < chance).astype(int)
    X = pd.DataFrame({"carrier": [f"C{c}" for c in carrier], "plane": plane})
    return X, pd.Series(late, name="late")


def fitted(**settings: Any) -> CountFeaturizer:
    X, y = flights()
    return CountFeaturizer(classes=[0, 1], **{"epsilon": 1.0, **settings}).fit(X, y)


def complete(featurizer: CountFeaturizer) -> NDArray[np.int64]:
    """All sealed cells of the plane's table."""
    return featurizer.snapshot_._arena.cells(2).astype(np.int64)


# --- scikit-learn ------------------------------------------------------------------

CROSS_FITTED = (
    "fit_transform leaves a row's own fold out of its counts, transform does not; scikit-learn's "
    "own TargetEncoder is exempt for the same reason"
)


def _exempt(_: CountFeaturizer) -> dict[str, str]:
    return dict.fromkeys(
        ("check_transformer_general", "check_transformer_data_not_an_array"), CROSS_FITTED
    )


@pytest.fixture
def one_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same hash key for every fit: otherwise keys collide differently each time."""
    monkeypatch.setattr("pyramidion.learn.counting.secrets.token_bytes", bytes)


@pytest.mark.filterwarnings("ignore:column '.*' holds floats")
@pytest.mark.usefixtures("one_secret")
@parametrize_with_checks(
    [CountFeaturizer(epsilon=INF, buckets=4096)], expected_failed_checks=_exempt
)
def test_scikit_learns_checks_pass(estimator: CountFeaturizer, check: Any) -> None:
    check(estimator)


def test_five_lines_give_private_features() -> None:
    X, y = flights()
    featurizer = CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(X, y)
    features = featurizer.transform(X)
    assert features.shape == (len(X), 2)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    assert list(featurizer.get_feature_names_out()) == ["P(late=1|carrier)", "P(late=1|plane)"]


def test_clone_copies_parameters_and_nothing_that_was_counted() -> None:
    twin = clone(fitted(groups=[("carrier", "plane")]))
    assert twin.groups == [("carrier", "plane")]
    assert not [name for name in vars(twin) if name.endswith("_")]


def test_it_works_in_a_pipeline_under_cross_validation() -> None:
    X, y = flights(8_000)
    model = make_pipeline(
        CountFeaturizer(epsilon=2.0, classes=[0, 1], columns=("log-odds",)), LogisticRegression()
    )
    losses = -cross_val_score(model, X, y, cv=3, scoring="neg_log_loss")
    assert losses.mean() < log_loss(y, np.full(len(y), y.mean()))


def test_its_parameters_can_be_searched() -> None:
    X, y = flights(2_000)
    model = make_pipeline(CountFeaturizer(epsilon=INF, classes=[0, 1]), LogisticRegression())
    search = GridSearchCV(model, {"countfeaturizer__estimate": ["ratio", "shrinkage"]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.5


def test_it_works_in_a_column_transformer() -> None:
    X, y = flights()
    counts = CountFeaturizer(epsilon=1.0, classes=[0, 1])
    both = ColumnTransformer([("counts", counts, ["carrier"]), ("raw", "passthrough", ["plane"])])
    assert both.fit_transform(X, y).shape == (len(X), 2)


@pytest.mark.parametrize(("kind", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_set_output_gives_named_frames(kind: str, frame: type) -> None:
    X, y = flights()
    featurizer = CountFeaturizer(epsilon=1.0, classes=[0, 1]).set_output(transform=kind)
    for out in (featurizer.fit_transform(X, y), featurizer.transform(X)):
        assert isinstance(out, frame)
        assert list(out.columns) == ["P(late=1|carrier)", "P(late=1|plane)"]


def test_every_setting_is_a_parameter_with_the_same_default_but_the_store_s_are_not() -> None:
    parameters = inspect.signature(CountFeaturizer).parameters
    for knob in Settings.knobs():
        assert (knob.name in parameters) is not knob.store, knob.name
        if not knob.store:
            assert parameters[knob.name].default == knob.default


def test_the_knobs_of_a_store_are_those_of_windows_by_time_and_of_reserves() -> None:
    assert [knob.name for knob in Settings.knobs() if knob.store] == [
        "count_window", "windows", "tree_radix", "tree_depth", "tree_shares", "retention",
        "hot_window", "hot_rows", "hot_step", "hot_step_rows",
        "max_skew", "origin", "checkpoint_rows", "train_within", "weights_every", "bins_share",
        "bins_every", "selection_share", "selection", "selection_groups", "selection_parts",
        "selection_every", "selection_tables", "trial_windows", "shards", "shard_wait",
        "rebuild_share", "unit_block",
        "vault_every", "vault_rows", "vault_retention",
    ]  # fmt: skip


def test_counting_in_memory_reserves_nothing_but_for_weights() -> None:
    X, y = flights()
    fitted = CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(X, y)
    assert fitted._counting_.birth.reserves.keys() <= {"weights"}


# --- containers ----------------------------------------------------------------------


def test_all_containers_give_the_same_features(one_secret: None) -> None:
    X, y = flights()
    frames = {
        "pandas": X,
        "polars": pl.from_pandas(X),
        "arrow": pa.Table.from_pandas(X, preserve_index=False),
        "dicts": X.to_dict("records"),
    }
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1]).fit(X, y)
    expected = featurizer.transform(X)
    for frame in frames.values():
        np.testing.assert_array_equal(featurizer.transform(frame), expected)
        again = CountFeaturizer(epsilon=INF, classes=[0, 1]).fit(frame, y)
        np.testing.assert_allclose(again.transform(frame), expected, atol=NEAR)


def test_a_dict_of_columns_is_a_table_and_not_a_row() -> None:
    X, y = flights()
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1]).fit(X, y)
    expected = featurizer.transform(X)
    lists = {"carrier": X["carrier"].tolist(), "plane": X["plane"].tolist()}
    arrays = {"carrier": X["carrier"].to_numpy(), "plane": pa.array(X["plane"])}
    for columns in (lists, arrays):
        np.testing.assert_array_equal(featurizer.transform(columns), expected)
        again = CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(columns, y)
        assert again.schema_.feature_names == ("carrier", "plane")
    with pytest.raises(ObservationError, match="different lengths"):
        featurizer.transform({"carrier": ["C0"], "plane": [1, 2]})


def test_arrays_have_columns_by_position(one_secret: None) -> None:
    X, y = flights()
    array = X.to_numpy()
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1]).fit(array, y)
    assert list(featurizer.get_feature_names_out()) == ["P(late=1|x0)", "P(late=1|x1)"]
    named = CountFeaturizer(epsilon=INF, classes=[0, 1]).fit(X, y).transform(X)
    np.testing.assert_allclose(featurizer.transform(array), named, atol=NEAR)


def test_columns_of_a_named_frame_may_come_in_any_order() -> None:
    X, y = flights(500)
    table = pa.Table.from_pandas(X, preserve_index=False)
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1]).fit(table, y)
    swapped = table.select(["plane", "carrier"])
    np.testing.assert_array_equal(featurizer.transform(swapped), featurizer.transform(table))


def test_a_missing_column_is_named() -> None:
    X, _ = flights(10)
    with pytest.raises((ObservationError, ValueError), match="plane"):
        fitted().transform(pa.Table.from_pandas(X[["carrier"]], preserve_index=False))


def test_missing_values_are_a_value_of_their_own() -> None:
    random = np.random.default_rng(0)
    known = random.random(2_000) < 0.5
    X = pd.DataFrame({"x": np.where(known, random.integers(0, 5, 2_000), np.nan)})
    y = (~known).astype(int)
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1], features=[Categorical("x")]).fit(X, y)
    features = featurizer.transform(X)
    assert features[~known].min() > 0.9
    assert features[known].max() < 0.1


def test_floats_without_bins_are_counted_by_value_and_the_user_is_told() -> None:
    X, y = flights(100)
    with pytest.warns(UserWarning, match=r"Continuous\('plane'"):
        CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(X.astype({"plane": float}), y)


def test_no_row_of_an_untyped_list_changes_how_another_is_read() -> None:
    plain = [[1]] * 1_000 + [[2]]
    mixed = [[1]] * 1_000 + [["a"]]
    y = [0, 1] * 500 + [1]
    for X in (plain, mixed):
        featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1], columns=("count",)).fit(X, y)
        assert featurizer.transform([[1]]).sum() == 1_000
    large = [[2**53 + 1]] * 10 + [[0.5]]
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1], columns=("count",))
    assert featurizer.fit(large, [0, 1] * 5 + [1]).transform([[2**53 + 1]]).sum() == 10


def test_labels_in_a_list_are_judged_one_by_one() -> None:
    with pytest.raises(ObservationError, match="1 of 3 rows"):
        CountFeaturizer(epsilon=1.0, classes=["0", "1"]).fit([["a"]] * 3, [1, 2, "1"])


@pytest.mark.parametrize("X", [["Alice", "Bob"], "Alice", [["Alice"], ["Bob", "Eve"]]])
def test_what_is_no_table_is_refused_without_quoting_it(X: Any) -> None:
    with pytest.raises(ValueError, match=r"X|array") as caught:
        CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(X, [0, 1])
    assert "Alice" not in str(caught.value)


# --- schema ----------------------------------------------------------------------------


def test_epsilon_has_no_default() -> None:
    X, y = flights(10)
    with pytest.raises(PrivacyError, match="epsilon"):
        CountFeaturizer(classes=[0, 1]).fit(X, y)


def test_classes_are_never_read_off_private_data() -> None:
    X, y = flights(10)
    with pytest.raises(PrivacyError, match="classes"):
        CountFeaturizer(epsilon=1.0).fit(X, y)
    CountFeaturizer(epsilon=1.0).fit(X, y.astype(bool))
    CountFeaturizer(epsilon=INF).fit(X, y)


@pytest.mark.filterwarnings("ignore:column 'flag' holds")
def test_the_shape_of_a_table_does_not_follow_from_inferred_types() -> None:
    y = np.array([0, 1] * 50)
    flags = [True, False] * 50
    sizes = set()
    for column in (flags, [*flags[:-1], None], [*flags[:-1], "x"], [*flags[:-1], 0.5]):
        frames = [pd.DataFrame({"flag": column}), pl.DataFrame({"flag": column}, strict=False)]
        for X in (*frames, np.array([column], dtype=object).T):
            featurizer = CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(X, y)
            (feature,) = featurizer.schema_.features
            assert (feature.dense, feature.domain) == (False, None)
            sizes.add(featurizer.snapshot_._arena.layout.nbytes)
    assert len(sizes) == 1


def test_a_boolean_column_has_a_small_table_where_it_is_declared() -> None:
    X, y = pd.DataFrame({"flag": [True, None] * 50}), np.array([0, 1] * 50)
    given = {"classes": [0, 1], "features": [Categorical("flag", domain=[False, True])]}
    for epsilon in (1.0, INF):
        featurizer = CountFeaturizer(epsilon=epsilon, **given).fit(X, y)
        assert featurizer.schema_.features[0].dense
    with pytest.warns(UserWarning, match="holds booleans and is counted in a sketch"):
        CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(X.astype("boolean"), y)


def test_without_privacy_a_schema_is_guessed_from_types() -> None:
    flags, y = [True, False] * 50, np.array([0, 1] * 50)
    for typed in (pd.DataFrame({"flag": flags}), pa.table({"flag": flags}), np.array([flags]).T):
        schema = CountFeaturizer(epsilon=INF, classes=[0, 1]).fit(typed, y).schema_
        assert schema.features[0].dense


def test_columns_of_dicts_are_declared_where_there_is_privacy() -> None:
    rows, y = [{"a": 1}, {"a": 2, "diagnosis": 3}], [0, 1]
    with pytest.raises(PrivacyError, match="features"):
        CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(rows, y)
    featurizer = CountFeaturizer(epsilon=1.0, classes=[0, 1], features=[Categorical("a")])
    assert featurizer.fit(rows, y).schema_.feature_names == ("a",)


def test_a_unit_is_refused_since_nothing_here_would_enforce_it() -> None:
    X, y = flights(10)
    features, label = [Categorical("carrier")], Label("late", classes=[0, 1])
    schema = Schema(features=features, label=label, unit="plane")
    with pytest.raises(SchemaError, match="unit"):
        CountFeaturizer(epsilon=1.0, schema=schema).fit(X, y)


def test_weight_and_time_are_needed_to_count_and_not_to_featurize() -> None:
    X, y = flights()
    schema = Schema(
        features=[Categorical("carrier")],
        label=Label("late", classes=[0, 1]),
        weight="p",
        time="when",
    )
    counted = X.assign(p=0.5, when=1.6e9)
    featurizer = CountFeaturizer(epsilon=1.0, schema=schema, p_min=0.1).fit(counted, y)
    assert featurizer.transform(X).shape == (len(X), 1)


def test_several_labels_are_counted_jointly(one_secret: None) -> None:
    X, y = flights()
    both = pd.DataFrame({"late": y, "far": (X["plane"] % 3).to_numpy()})
    labels = [Label("late", classes=[0, 1]), Label("far", classes=[0, 1, 2])]
    featurizer = CountFeaturizer(epsilon=INF, label=labels).fit(X, both)
    names = list(featurizer.get_feature_names_out())
    assert names[:4] == [
        "P(late=1|carrier)",
        "P(far=0|carrier)",
        "P(far=1|carrier)",
        "P(far=2|carrier)",
    ]
    alone = CountFeaturizer(epsilon=INF, classes=[0, 1]).fit(X, y).transform(X)
    together = featurizer.transform(X)[:, names.index("P(late=1|plane)")]
    np.testing.assert_allclose(together, alone[:, 1], atol=0.02)


def test_a_continuous_label_gives_its_expected_value() -> None:
    random = np.random.default_rng(0)
    X = pd.DataFrame({"movie": random.integers(0, 20, 20_000)})
    rating = 1 + X["movie"] / 5 + random.random(len(X))
    label = Label("rating", edges=[2, 3, 4])
    featurizer = CountFeaturizer(epsilon=INF, label=label).fit(X, rating)
    names = list(featurizer.get_feature_names_out())
    expected = featurizer.transform(X)[:, names.index("E(rating|movie)")]
    assert np.corrcoef(expected, rating)[0, 1] > 0.9


def test_groups_declared_features_and_passthrough() -> None:
    X, y = flights()
    featurizer = CountFeaturizer(
        epsilon=1.0,
        classes=[0, 1],
        features=[Categorical("carrier", domain=["C0", "C1"]), Continuous("plane", edges=[150])],
        groups=[("carrier", "plane")],
        passthrough=4,
        columns=("probability", "count", "back-off"),
    ).fit(X, y)
    names = list(featurizer.get_feature_names_out())
    assert "P(late=1|carrier*plane)" in names
    assert names[-7:] == [
        "carrier=C0",
        "carrier=C1",
        "carrier=other",
        "carrier=missing",
        "plane <150",
        "plane >=150",
        "plane missing",
    ]
    assert featurizer.transform(X).shape == (len(X), len(names))


def test_a_whole_schema_can_be_given_instead() -> None:
    X, y = flights()
    schema = Schema(features=[Categorical("plane")], label=Label("late", classes=[0, 1]))
    featurizer = CountFeaturizer(epsilon=1.0, schema=schema).fit(X, y)
    assert featurizer.transform(X).shape == (len(X), 1)
    with pytest.raises(SchemaError, match="schema"):
        CountFeaturizer(epsilon=1.0, schema=schema, classes=[0, 1]).fit(X, y)


def test_propensities_weigh_observations() -> None:
    random = np.random.default_rng(0)
    shown = random.random(40_000) < 0.5
    X = pd.DataFrame({"ad": shown.astype(int), "p": np.where(shown, 0.5, 0.25)})
    y = random.random(len(X)) < 0.3
    featurizer = CountFeaturizer(
        epsilon=INF, weight="p", p_min=0.1, columns=("count",), classes=[False, True]
    ).fit(X, y)
    counts = featurizer.transform(X).sum(axis=1)
    assert counts[shown].mean() == pytest.approx(2 * shown.sum(), rel=1e-6)
    assert counts[~shown].mean() == pytest.approx(4 * (~shown).sum(), rel=1e-6)


def test_weights_without_a_bound_are_refused() -> None:
    X, y = flights(10)
    with pytest.raises(SchemaError, match="p_min"):
        CountFeaturizer(epsilon=1.0, classes=[0, 1], weight="plane").fit(X, y)


# --- windows: the first read or copy seals ------------------------------------------------


def test_counts_before_a_read_share_a_window_and_counts_after_it_do_not() -> None:
    X, y = flights()
    featurizer = CountFeaturizer(epsilon=1.0, classes=[0, 1])
    featurizer.partial_fit(X, y)
    featurizer.partial_fit(X, y)
    assert featurizer.privacy_.windows == 1
    featurizer.transform(X)
    assert featurizer.privacy_.windows == 1
    featurizer.partial_fit(X, y)
    assert featurizer.privacy_.windows == 2
    assert featurizer.privacy_.epsilon == 1.0


def test_what_two_reads_differ_by_carries_the_noise_of_a_whole_window() -> None:
    """Were the second count added to the read table, the difference would be exact."""
    X, y = flights()
    featurizer = fitted()
    before = complete(featurizer)
    featurizer.partial_fit(X, y)
    difference = complete(featurizer) - before
    noise = featurizer._counting_.birth.noises[2]
    assert noise is not None
    empty = difference[np.abs(difference) < 6 * noise.scale]
    assert np.std(empty) == pytest.approx(noise.scale, rel=0.05)
    assert (difference != 0).mean() > 0.9


READS = {
    "transform": lambda f: f.transform(flights(5)[0]),
    "snapshot_": lambda f: f.snapshot_,
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "__getstate__": lambda f: f.__getstate__(),
}


@pytest.mark.parametrize("read", READS)
def test_every_read_or_copy_seals(read: str) -> None:
    featurizer = fitted()
    assert featurizer._counting_._populating is not None
    READS[read](featurizer)
    assert featurizer._counting_._populating is None


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda f: pickle.loads(pickle.dumps(f)),  # noqa: S301
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_is_the_same_featurizer_and_counts_on_by_itself(how: str) -> None:
    X, y = flights()
    featurizer = fitted()
    twin = COPIES[how](featurizer)
    np.testing.assert_array_equal(twin.transform(X), featurizer.transform(X))
    twin.partial_fit(X, y)
    assert (twin.privacy_.windows, featurizer.privacy_.windows) == (2, 1)


def test_names_and_the_guarantee_can_be_asked_for_without_sealing() -> None:
    featurizer = fitted()
    featurizer.get_feature_names_out()
    assert str(featurizer.privacy_)
    assert repr(featurizer)
    assert featurizer._counting_._populating is not None


def test_a_forked_child_cannot_read_what_its_parent_still_counts_into() -> None:
    featurizer = fitted()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            featurizer.transform(flights(5)[0])
            told = b"read"
        except StateError:
            told = b"refused"
        except BaseException as problem:
            told = type(problem).__name__.encode()
        os.write(writing, told)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"refused"
    os.close(reading)
    os.close(writing)


def test_fitting_again_draws_fresh_noise_and_forgets_the_old_window() -> None:
    X, y = flights()
    featurizer = fitted()
    first = complete(featurizer)
    featurizer.fit(X, y)
    assert featurizer.privacy_.windows == 1
    assert (complete(featurizer) != first).any()


def test_a_fit_that_fails_changes_nothing() -> None:
    X, y = flights()
    featurizer = fitted()
    before = featurizer.transform(X)
    with pytest.raises(ObservationError):
        featurizer.fit(X, y.replace(1, 7))
    np.testing.assert_array_equal(featurizer.transform(X), before)
    with pytest.raises(ObservationError):
        featurizer.partial_fit(X, y.replace(1, 7))
    assert featurizer.privacy_.windows == 1


def counts(featurizer: CountFeaturizer, X: pd.DataFrame) -> NDArray[np.float32]:
    """Rows counted for each row's carrier and plane."""
    found = featurizer.transform(X)
    return np.stack([found[:, :2].sum(axis=1), found[:, 2:].sum(axis=1)])


def test_a_batch_that_fails_in_one_table_is_counted_in_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = flights()
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1], columns=("count",)).fit(X, y)
    count = Arena._count

    def failing(arena: Arena, table: int, *rest: Any) -> None:
        if table == 2 and rest[1][0] > 0:
            raise MemoryError
        count(arena, table, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Arena, "_count", failing)
        with pytest.raises(MemoryError):
            featurizer.partial_fit(X, y)
    featurizer.partial_fit(X, y)
    np.testing.assert_array_equal(counts(featurizer, X), 2 * counts(clone(featurizer).fit(X, y), X))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a finalizer
@pytest.mark.parametrize("delay", [0.005, 0.02, 0.05, 0.1])
def test_a_batch_broken_off_by_ctrl_c_is_counted_whole_or_not_at_all(delay: float) -> None:
    X, y = flights(200_000)
    finite = [Categorical("carrier", domain=["C0"]), Continuous("plane", edges=[150])]
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1], features=finite)
    featurizer.partial_fit(X[:10], y[:10])
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        for _ in range(100):
            featurizer.partial_fit(X, y)
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    arena = featurizer.snapshot_._arena
    assert arena.rows % 200_000 == 10
    assert [arena.cells(table).sum() for table in range(3)] == [arena.rows] * 3


def test_ctrl_c_while_a_worker_starts_leaves_none_that_counts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = flights(200_000)
    finite = [Categorical("carrier", domain=["C0"]), Continuous("plane", edges=[150])]
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1], features=finite)
    featurizer.partial_fit(X[:10], y[:10])
    start = ThreadPoolExecutor._adjust_thread_count
    strays: list[threading.Thread] = []

    def interrupted(pool: ThreadPoolExecutor) -> None:
        start(pool)
        strays.extend(pool._threads)
        pool._threads.clear()  # as `Thread.start` does where Ctrl-C meets it
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", interrupted)
    with pytest.raises(KeyboardInterrupt):
        featurizer.partial_fit(X, y)
    monkeypatch.undo()
    for stray in strays:
        stray.join()
    arena = featurizer.snapshot_._arena
    assert strays
    assert [arena.cells(table).sum() for table in range(3)] == [10] * 3


def test_copies_made_while_counting_never_share_a_populating_window() -> None:
    X, y = flights(50)
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1], buckets=256).fit(X, y)
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            featurizer.partial_fit(X, y)

    counter = threading.Thread(target=count)
    counter.start()
    try:
        copies = [copy.copy(featurizer)._counting_ for _ in range(500)]
    finally:
        stop.set()
        counter.join()
    assert all(made._populating is None for made in copies)


def test_no_label_or_value_appears_in_an_error() -> None:
    X, y = flights(50)
    X.loc[3, "carrier"] = "SECRET123"
    with pytest.raises(ObservationError) as caught:
        CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(X, y.replace(1, 987654321))
    assert "987654321" not in str(caught.value)
    assert "SECRET123" not in str(caught.value)


# --- fit_transform: one noisy table, own fold taken off ------------------------------------


def test_fit_transform_spends_epsilon_once_and_says_that_its_output_is_raw() -> None:
    X, y = flights()
    featurizer = CountFeaturizer(epsilon=1.0, classes=[0, 1])
    features = featurizer.fit_transform(X, y)
    assert featurizer.privacy_.windows == 1
    assert featurizer.privacy_.level == "P2"
    assert featurizer.fit_transform_privacy_.level == "P1"
    assert features.guarantee.level == "P1"  # type: ignore[attr-defined]
    assert featurizer.transform(X).guarantee.level == "P2"  # type: ignore[attr-defined]


def test_a_row_never_meets_its_own_label_in_fit_transform(one_secret: None) -> None:
    X, y = flights(1_000)
    first = CountFeaturizer(epsilon=INF, classes=[0, 1], random_state=3).fit_transform(X, y)
    flipped = y.copy()
    flipped[17] = 1 - flipped[17]
    again = CountFeaturizer(epsilon=INF, classes=[0, 1], random_state=3).fit_transform(X, flipped)
    unseen = CountFeaturizer(epsilon=INF, classes=[0, 1]).fit(X, y).snapshot_.estimates
    moved = np.abs(first[17] - again[17]).max()
    # Only the prior and the strength of shrinkage, sums over all rows, may stir a little.
    assert moved < 0.005
    assert unseen.prior[1] == pytest.approx(y.mean(), abs=0.01)


def test_fit_transform_is_the_sealed_table_less_the_own_fold() -> None:
    X, y = flights(2_000)
    featurizer = CountFeaturizer(epsilon=1.0, classes=[0, 1], random_state=0)
    features = featurizer.fit_transform(X, y)
    for fold in featurizer._folds(len(X)):
        own = featurizer._observations(X, y).take(fold)
        rest = featurizer.snapshot_.without(own)
        np.testing.assert_array_equal(features[fold], rest.array(own))


def test_labels_that_mean_nothing_stay_that_way_through_fit_transform() -> None:
    """Fitted on noise labels, features of singletons must not tell the label."""
    random = np.random.default_rng(0)
    X = pd.DataFrame({"id": np.arange(3_000) // 2})
    y = random.integers(0, 2, len(X))
    featurizer = CountFeaturizer(epsilon=INF, classes=[0, 1])
    crossed = featurizer.fit_transform(X, y)[:, 0]
    assert abs(np.corrcoef(crossed, y)[0, 1]) < 0.1
    assert np.corrcoef(featurizer.transform(X)[:, 0], y)[0, 1] > 0.3  # the trap


def test_threads_change_nothing() -> None:
    X, y = flights(20_000)
    featurizer = CountFeaturizer(epsilon=1.0, classes=[0, 1], n_jobs=2).fit(X, y)
    features = [featurizer.set_params(n_jobs=jobs).transform(X) for jobs in (None, 1, 2, -1)]
    for other in features[1:]:
        np.testing.assert_array_equal(features[0], other)


def test_the_features_of_a_private_table_are_close_to_the_exact_ones_and_not_equal() -> None:
    X, y = flights(20_000)
    exact = CountFeaturizer(epsilon=INF, classes=[0, 1]).fit(X, y).transform(X)
    private = CountFeaturizer(epsilon=1.0, classes=[0, 1]).fit(X, y).transform(X)
    assert (exact != private).any()
    assert np.abs(exact[:, 0] - private[:, 0]).max() < 0.05
