"""Weights that are read in memory: from the first rows at hand, paid by their window."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from pyramidion import Categorical, CountFeaturizer
from pyramidion.counts.arena import Arena
from pyramidion.learn.counting import Counting
from pyramidion.privacy import weights
from pyramidion.privacy.budget import budget_of
from pyramidion.privacy.quantiles import FEWEST_ROWS
from pyramidion.privacy.table_noise import TableDesign

MUCH: dict[str, Any] = {
    "epsilon": 40.0,
    "weights": "least-error",
    "weights_share": 0.25,
    "classes": [0, 1],
    "buckets": 256,
}


def rows(size: int = 4_000, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Rows of which a rare value has about two, and a common one 40."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"rare": random.integers(0, size // 2, size), "common": random.integers(0, 100, size)}
    )
    return X, pd.Series(random.integers(0, 2, size), name="y")


def fitted(size: int = 4_000, **settings: Any) -> CountFeaturizer:
    return CountFeaturizer(**MUCH | settings).fit(*rows(size))


def birth(featurizer: CountFeaturizer) -> TableDesign:
    return featurizer._counting_.birth


def scale(featurizer: CountFeaturizer, table: str) -> float:
    noise = birth(featurizer).noises[list(birth(featurizer).shares).index(table)]
    assert noise is not None
    return noise.scale


Read = list[dict[str, Any]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """What is read, and for how much."""
    calls: Read = []
    reading = weights.read

    def note(batches: Any, *given: Any, **told: Any) -> dict[str, float]:
        found = list(batches)
        calls.append(told | {"rows": sum(map(len, found))})
        return reading(found, *given, **told)

    monkeypatch.setattr(weights, "read", note)
    return calls


# --- the first window ----------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["proportional", "least-error"])  # of two tables, half is equal
@pytest.mark.parametrize("delta", [0, 1e-9])
def test_a_table_of_rare_values_has_less_noise(rule: str, delta: float) -> None:
    featurizer = fitted(weights=rule, delta=delta)
    assert scale(featurizer, "rare") < scale(featurizer, "common") / 1.2


@pytest.mark.parametrize("delta", [0, 1e-9])
def test_the_reading_and_the_tables_of_its_window_sum_to_one(read: Read, delta: float) -> None:
    featurizer = fitted(delta=delta)
    unit, whole = budget_of(featurizer.settings_)
    assert len(read) == 1
    assert (read[0]["unit"], read[0]["rows"]) == (unit, 4_000)
    assert read[0]["budget"] + sum(birth(featurizer).shares.values()) * whole == whole
    assert read[0]["budget"] == whole / 4


def test_the_noise_of_the_tables_is_that_of_their_shares() -> None:
    featurizer = fitted()
    shares, settings = birth(featurizer).shares, featurizer.settings_
    rho = budget_of(settings)[1]
    for name, hashes in (("", 1), ("rare", 5), ("common", 5)):
        assert scale(featurizer, name) ** 2 >= hashes / (2 * rho * shares[name]) * (1 - 1e-12)


def test_k_observations_are_hidden_in_the_reading_too(read: Read) -> None:
    fitted(k=7)
    assert read[0]["k"] == 7


def test_the_guarantee_is_what_it_was() -> None:
    assert fitted().privacy_ == fitted(weights="equal").privacy_


def test_the_noise_is_drawn_after_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    reading, noisy = weights.read, Arena.noisy

    def first(*given: Any, **named: Any) -> dict[str, float]:
        told.append("reading")
        return reading(*given, **named)

    def second(*given: Any, **named: Any) -> Arena:
        told.append("noise")
        return noisy(*given, **named)

    monkeypatch.setattr(weights, "read", first)
    monkeypatch.setattr(Arena, "noisy", second)
    fitted()
    assert told == ["reading", "noise"]


# --- where nothing is read -----------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"weights": "equal"},
        {"weights_share": 0.0},
        {"shares": {"rare": 1.0}},
        {"epsilon": float("inf")},
        {"features": [Categorical(name, domain=[0, 1, 2, 3]) for name in ("rare", "common")]},
    ],
)
def test_where_nothing_is_wanted_nothing_is_read_or_kept_back(
    read: Read, given: dict[str, Any]
) -> None:
    shares = birth(fitted(**given)).shares
    assert read == []
    assert sum(shares.values()) == 1
    assert shares["rare"] == shares["common"]


def test_few_rows_are_not_read_and_nothing_is_kept_back_for_them(read: Read) -> None:
    few = birth(fitted(FEWEST_ROWS - 1))
    assert read == []
    assert few.reserves == {}
    assert few.shares["rare"] == few.shares["common"] == Fraction(49, 100)
    assert birth(fitted(FEWEST_ROWS)).reserves == {"weights": Fraction(1, 4)}


# --- later windows -------------------------------------------------------------------------


def test_later_windows_have_the_same_weights_and_keep_nothing_back(read: Read) -> None:
    featurizer = fitted()
    first = birth(featurizer).shares
    featurizer.transform(rows()[0])
    featurizer.partial_fit(*rows(seed=1))
    second = birth(featurizer).shares
    assert len(read) == 1
    assert sum(second.values()) == 1
    assert second["rare"] / second["common"] == first["rare"] / first["common"] > 10
    assert featurizer.privacy_.windows == 2


def test_a_later_window_is_read_where_the_first_had_few_rows(read: Read) -> None:
    featurizer = fitted(10)
    featurizer.transform(rows()[0])
    featurizer.partial_fit(*rows())
    assert [told["rows"] for told in read] == [4_000]
    assert sum(birth(featurizer).shares.values()) == Fraction(3, 4)


def test_further_batches_of_a_window_are_not_read(read: Read) -> None:
    fitted(10).partial_fit(*rows())
    assert read == []


def test_complete_tables_know_the_noise_of_windows_that_differ() -> None:
    featurizer = fitted()
    first = birth(featurizer)
    featurizer.transform(rows()[0])
    featurizer.partial_fit(*rows(seed=1))
    known = [table.variance for table in featurizer.snapshot_._arena.layout.tables]
    both = zip(first.variances, birth(featurizer).variances, strict=True)
    assert known == pytest.approx([a + b for a, b in both])


def test_fitting_again_reads_again(read: Read) -> None:
    fitted().fit(*rows(seed=1))
    assert len(read) == 2


# --- what breaks off -----------------------------------------------------------------------


def test_a_window_that_could_not_be_opened_was_not_read(
    monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    featurizer = fitted(10)
    featurizer.transform(rows()[0])
    before = birth(featurizer)
    with monkeypatch.context() as patch:
        patch.setattr(Arena, "_count", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            featurizer.partial_fit(*rows())
    assert featurizer._counting_._quantiles is None
    assert birth(featurizer) is before
    assert featurizer.privacy_.windows == 1
    featurizer.partial_fit(*rows())
    assert len(read) == 2
    assert birth(featurizer).reserves == {"weights": Fraction(1, 4)}


# --- copies --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))],  # noqa: S301
)
def test_a_copy_has_the_weights_and_reads_no_more(copied: Any, read: Read) -> None:
    featurizer = fitted()
    twin = copied(featurizer)
    twin.partial_fit(*rows(seed=1))
    assert len(read) == 1
    ours, its = birth(featurizer).shares, birth(twin).shares
    assert its["rare"] / its["common"] == ours["rare"] / ours["common"]


def test_only_private_quantiles_are_kept() -> None:
    counting = fitted()._counting_
    plain = CountFeaturizer(**MUCH | {"weights": "equal"}).fit(*rows())._counting_
    assert vars(counting).keys() == vars(plain).keys()
    assert counting._quantiles is not None
    assert counting._quantiles.keys() == {"rare", "common"}
    assert all(isinstance(quantile, float) for quantile in counting._quantiles.values())


def test_a_clone_has_read_nothing() -> None:
    twin = clone(fitted())
    assert (twin.weights, twin.weights_share) == ("least-error", 0.25)
    assert not hasattr(twin, "_counting_")


def test_it_is_cross_validated_as_before() -> None:
    X, _ = rows(6_000)
    y = (X["common"] > 49).astype(int)
    model = make_pipeline(
        CountFeaturizer(**MUCH | {"columns": ("log-odds",)}), LogisticRegression()
    )
    assert cross_val_score(model, X, y, cv=3).mean() > 0.9


def test_counting_takes_settings_of_a_store_and_keeps_back_nothing_for_its_reserves() -> None:
    featurizer = fitted()
    settings = replace(featurizer.settings_, bins_share=0.1, selection_share=0.1)
    counting = Counting(featurizer.schema_, settings)
    counting.add(featurizer._observations(*rows()), threads=1)
    assert counting.birth.reserves == {"weights": Fraction(1, 4)}
