"""A snapshot featurizes the same through every door, and says what it promises."""

from __future__ import annotations

import json
import pickle
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from pyramidion import Categorical, Continuous, Label, Schema, Settings
from pyramidion.counts import snapshot as module
from pyramidion.counts.arena import Arena
from pyramidion.counts.snapshot import Features, Snapshot
from pyramidion.errors import ObservationError, StateError
from pyramidion.privacy.randomness import Randomness
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.rows.observations import Door

SECRET = b"a secret of the stream"
SCHEMA = Schema(
    features=[
        Categorical("shop"),
        Categorical("color", domain=["red", "blue"]),
        Continuous("size", edges=[0.0, 1.0]),
    ],
    label=[Label("late", classes=[0, 1]), Label("rating", edges=[2.0, 3.0])],
    groups=[("shop", "color"), ("color", "size"), ("shop", "color", "size")],
)
EVERY = ("probability", "log-odds", "count", "back-off")


def rows_of(size: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "shop": pa.array([f"shop {i}" for i in random.zipf(1.4, size) % 40]),
            "color": np.array(["red", "blue", "green", None], dtype=object)[
                random.integers(0, 4, size)
            ],
            "size": pa.array(random.normal(size=size), mask=random.random(size) < 0.1),
            "late": random.integers(0, 2, size),
            "rating": random.uniform(1.0, 4.0, size),
        }
    )


@cache
def stream(**given: Any) -> tuple[Door, TableDesign]:
    chosen = Settings(
        **{"epsilon": 3.0, "buckets": 256, "columns": EVERY, "passthrough": 4} | given
    )
    door = Door(SCHEMA, chosen, SECRET)
    return door, TableDesign(chosen, door.encoder.shapes, SCHEMA.cardinality, SECRET)


def arena_of(size: int, **given: Any) -> Arena:
    door, birth = stream(**given)
    arena = birth.arena(Randomness.insecure_from_seed(b"noise"))
    arena.add(door.observations(rows_of(size)))
    arena.seal()
    return arena


@cache
def snapshot_of(size: int = 2_000, windows: int = 1, **given: Any) -> Snapshot:
    door, birth = stream(**given)
    arena = Arena.total([arena_of(size, **given)] * windows)
    return Snapshot(door, arena, birth.guarantee(windows))


ways = pytest.mark.parametrize(
    "given",
    [
        {},
        {"delta": 0.0},
        {"epsilon": float("inf")},
        {"estimate": "ratio"},
        {"sketch": "count-min", "rows": 3},
        {"columns": ("probability",), "passthrough": 0},
        {"max_rows_per_window": 2**35},
    ],
    ids=lambda given: "-".join(map(str, given.values())) or "default",
)


# --- doors ---------------------------------------------------------------------------------


@pytest.mark.slow
@ways
def test_all_doors_give_the_same_features(given: dict[str, Any]) -> None:
    snapshot, rows = snapshot_of(**given), rows_of(60, seed=7)
    array = np.asarray(snapshot.array(rows))
    table = snapshot.featurize(rows)
    assert table.column_names == snapshot.names
    assert {field.type for field in table.schema} == {pa.float32()}
    np.testing.assert_array_equal(np.stack([np.asarray(c) for c in table.columns], 1), array)
    for i, row in enumerate(rows.to_pylist()):
        np.testing.assert_array_equal(snapshot.featurize_one(row), array[i])
        batch = rows.slice(i, 1).to_batches()[0]
        np.testing.assert_array_equal(snapshot.featurize_one(batch), array[i])
        more = json.loads(json.dumps(row | {"more": []}))
        np.testing.assert_array_equal(snapshot.featurize_one(more), array[i])
    checked = snapshot._door.rows(rows)
    np.testing.assert_array_equal(snapshot.array(checked), array)
    keys = checked.matrix(0, 60)
    for same in (keys, np.asfortranarray(keys)):
        np.testing.assert_array_equal(snapshot.featurize_keys(same), array)
    assert array.dtype == np.float32
    assert np.isfinite(array).all()


def test_one_row_of_types_that_only_the_wide_door_knows_is_featurized_too() -> None:
    snapshot, row = snapshot_of(), rows_of(1)
    wide = row.set_column(0, "shop", row["shop"].cast(pa.string_view()))
    expected = snapshot.featurize_one(row.to_pylist()[0])
    np.testing.assert_array_equal(snapshot.featurize_one(wide.to_batches()[0]), expected)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_feature(threads: int) -> None:
    snapshot, rows = snapshot_of(), rows_of(6_000, seed=1)
    np.testing.assert_array_equal(snapshot.array(rows), snapshot.array(rows, threads=threads))
    one, other = snapshot.featurize(rows), snapshot.featurize(rows, threads=threads)
    assert one.equals(other)


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_the_chunk_of_rows_featurized_at_once_changes_nothing(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, rows = snapshot_of(), rows_of(100, seed=1)
    expected = np.asarray(snapshot.array(rows))
    monkeypatch.setattr(module, "CHUNK", chunk)
    np.testing.assert_array_equal(snapshot.array(rows), expected)


def test_no_rows_give_no_features() -> None:
    snapshot, none = snapshot_of(), rows_of(0)
    width = len(snapshot.names)
    assert snapshot.array(none).shape == (0, width)
    assert snapshot.featurize(none).shape == (0, width)
    keys = np.empty((len(SCHEMA.tables), 0), dtype=np.uint64)
    assert snapshot.featurize_keys(keys).shape == (0, width)


def test_several_rows_are_too_many_for_one() -> None:
    with pytest.raises(ObservationError, match="one row"):
        snapshot_of().featurize_one(rows_of(2).to_batches()[0])


def test_keys_and_rows_of_another_schema_are_refused() -> None:
    snapshot = snapshot_of()
    keys = snapshot._door.rows(rows_of(3)).matrix(0, 3)
    keys[1, 2] = 4  # red, blue, other, missing
    with pytest.raises(StateError, match="'color' has 4 codes"):
        snapshot.featurize_keys(keys)
    for wrong in (keys[1:], keys[0]):
        with pytest.raises(StateError, match="one for each table"):
            snapshot.featurize_keys(wrong)
    with pytest.raises(StateError, match="unsigned"):
        snapshot.featurize_keys(keys.view(np.int64))  # type: ignore[arg-type]
    smaller = Schema(features=SCHEMA.features, label=SCHEMA.label)
    foreign = Door(smaller, Settings(epsilon=1.0), SECRET).rows(rows_of(3))
    with pytest.raises(StateError, match="another schema"):
        snapshot.array(foreign)


def test_a_populating_arena_makes_no_snapshot() -> None:
    door, birth = stream()
    with pytest.raises(StateError, match="seal"):
        Snapshot(door, birth.arena(), birth.guarantee(1))


def test_an_expired_snapshot_holds_nothing_and_answers_nothing() -> None:
    door, birth = stream()
    snapshot = Snapshot(door, arena_of(100), birth.guarantee(1))
    row = rows_of(1).to_pylist()[0]
    keys = door.rows(rows_of(1)).matrix(0, 1)
    snapshot.expire("window 3 is past its retention")
    for ask in (
        lambda: snapshot.featurize(rows_of(3)),
        lambda: snapshot.featurize_one(row),
        lambda: snapshot.featurize_keys(keys),
        lambda: snapshot.without(door.observations(rows_of(3))),
    ):
        with pytest.raises(StateError, match="expired: window 3 is past its retention; take a new"):
            ask()
    assert not any(isinstance(held, Arena) for held in vars(snapshot).values())
    assert not hasattr(snapshot, "estimates")


def test_names_cannot_be_changed_from_outside() -> None:
    snapshot = snapshot_of()
    snapshot.names.clear()
    assert len(snapshot.names) == snapshot.array(rows_of(1)).shape[1]


# --- promises ------------------------------------------------------------------------------


def outputs(snapshot: Snapshot) -> list[NDArray[np.float32]]:
    rows = rows_of(5)
    return [
        snapshot.array(rows),
        snapshot.featurize_keys(snapshot._door.rows(rows).matrix(0, 5)),
        snapshot.featurize_one(rows.to_pylist()[0]),
        snapshot.featurize_one(rows.slice(0, 1).to_batches()[0]),
    ]


def test_the_guarantee_rides_on_every_output() -> None:
    snapshot = snapshot_of()
    assert snapshot.guarantee.level == "P2"
    for features in outputs(snapshot):
        assert isinstance(features, Features)
        assert features.guarantee == snapshot.guarantee
    metadata = snapshot.featurize(rows_of(5)).schema.metadata
    assert metadata == {b"pyramidion.guarantee": str(snapshot.guarantee).encode()}


def test_the_guarantee_stays_on_views_and_pickles_of_features() -> None:
    snapshot = snapshot_of()
    features = snapshot.array(rows_of(5))
    pickled = pickle.loads(pickle.dumps(features))  # noqa: S301
    for other in (features[1:3], features.T, features.T.reshape(-1), pickled):
        assert isinstance(other, Features)
        assert other.guarantee == snapshot.guarantee
    np.testing.assert_array_equal(pickled, features)


def test_what_is_computed_from_features_promises_nothing_by_itself() -> None:
    """Raw data may have come in; who adds it knows."""
    features = snapshot_of().array(rows_of(5))
    for other in (features * 2, features[features > 0.5], features.mean(axis=0)):
        assert getattr(other, "guarantee", None) is None


def test_a_snapshot_without_some_rows_is_raw() -> None:
    snapshot = snapshot_of()
    own = snapshot._door.observations(rows_of(2_000)).take(np.arange(100))
    raw = snapshot.without(own)
    assert raw.guarantee.level == "P1"
    assert all(features.guarantee == raw.guarantee for features in outputs(raw))  # type: ignore[attr-defined]
    assert b"P1" in raw.featurize(rows_of(5)).schema.metadata[b"pyramidion.guarantee"]
    assert snapshot.guarantee.level == "P2"


def test_a_snapshot_without_some_rows_has_the_counts_of_the_others() -> None:
    snapshot, rows = snapshot_of(), rows_of(2_000)
    before = np.asarray(snapshot.array(rows)).copy()
    own = snapshot._door.observations(rows).take(np.arange(500))
    raw = snapshot.without(own, threads=2)
    for table in range(1, len(SCHEMA.tables) + 1):
        keys = own.keys(table - 1, 0, 500)
        difference = snapshot._arena.cells(table).sum() - raw._arena.cells(table).sum()
        if snapshot._arena.layout.tables[table].kind == "dense":
            assert difference == 500
            gone = snapshot.estimates.counts(table, keys) - raw.estimates.counts(table, keys)
            assert (gone[:, :2].sum(axis=1) >= 1).all()
    np.testing.assert_array_equal(raw.estimates.prior, snapshot.estimates.prior)
    np.testing.assert_array_equal(snapshot.array(rows), before)
    assert not np.array_equal(raw.array(rows), before)


def test_without_all_rows_only_noise_is_left() -> None:
    snapshot = snapshot_of(epsilon=float("inf"))
    raw = snapshot.without(snapshot._door.observations(rows_of(2_000)))
    assert not any(raw._arena.cells(t).any() for t in range(len(SCHEMA.tables) + 1))
    chances = np.asarray(raw.array(rows_of(5)))[:, raw.names.index("P(late=1|shop)")]
    np.testing.assert_allclose(chances, snapshot.estimates.prior[1], rtol=1e-6)


def test_the_noise_of_all_windows_is_known_to_the_estimates() -> None:
    one, four = (snapshot_of(windows=windows, delta=0.0) for windows in (1, 4))
    assert four.guarantee.windows == 4
    table = list(SCHEMA.table_names).index("color") + 1  # dense: noise alone
    ratio = snapshot_of(windows=4, estimate="ratio").estimates.spread[table]
    single = snapshot_of(estimate="ratio").estimates.spread[table]
    np.testing.assert_allclose(ratio, 4 * single, rtol=1e-3)
    late, shop = slice(0, 2), 1
    assert (one.estimates.deviations[shop, late] > 0).all()  # three Laplace draws in a class
    assert (four.estimates.deviations[shop] > one.estimates.deviations[shop]).all()
