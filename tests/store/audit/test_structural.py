"""Facts that hold on every run of a store, each looked at in states as they lay on the disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pyramidion import Pyramid, Settings
from pyramidion.privacy.ledger import Ledger
from pyramidion.rows import text_files as files_text
from pyramidion.store.audit import structural
from pyramidion.store.audit.canaries import Canaries, plain_schema, schema_like
from pyramidion.store.audit.life import Life, lived
from pyramidion.store.audit.sizes import shares_of_the_ledger
from pyramidion.store.audit.structural import Check
from pyramidion.store.audit.trial import Trial, for_trial, trial
from pyramidion.store.audit.ways import ways
from pyramidion.store.audit.witness import Witness

SMALL = {"rows": 10, "buckets": 64}
MECHANISMS = {"gaussian": Settings(epsilon=1.0), "laplace": Settings(epsilon=1.0, delta=0)}


@pytest.fixture(scope="module", params=MECHANISMS)
def seen(request: pytest.FixtureRequest) -> tuple[Witness, list[Life]]:
    """A store with either noise, through three windows."""
    like = plain_schema(structural.TABLES)
    return structural._lives(MECHANISMS[request.param], like, lambda _: None)


@pytest.fixture
def lives(seen: tuple[Witness, list[Life]]) -> list[Life]:
    return seen[1]


def must_hold(check: Check) -> None:
    assert check.holds, str(check)


# --- order ----------------------------------------------------------------------------------------


def test_every_draw_is_charged_before_it_is_made(seen: tuple[Witness, list[Life]]) -> None:
    must_hold(structural.charged_first(seen[0]))
    assert len(seen[0].draws) == structural.WINDOWS + 1


def test_noise_is_on_disk_before_a_row_on_it_is_acknowledged(
    seen: tuple[Witness, list[Life]],
) -> None:
    must_hold(structural.durable_first(seen[0]))
    assert len(seen[0].acknowledgements) == 2 * structural.WINDOWS + 1


def test_no_row_changes_how_another_one_is_read() -> None:
    must_hold(structural.read_alone())


def test_a_column_of_one_type_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NDJSON was read once: one 0.5 makes doubles of all ids."""

    def of_one_type(values: list[object]) -> Any:
        numbers = [v for v in values if isinstance(v, int | float)]
        whole = all(isinstance(v, int) for v in numbers)
        return pa.array(values) if whole else pa.array(np.array(values, float).astype(np.int64))

    monkeypatch.setattr(files_text, "arrow_of", of_one_type)
    assert not structural.read_alone().holds


def test_stores_take_batches_by_every_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[type] = []
    monkeypatch.setattr(Pyramid, "observe", lambda _, rows: taken.append(type(rows)))
    with trial(plain_schema(1), for_trial(Settings(epsilon=1.0), plain_schema(1), **SMALL)) as made:
        for _ in ways():
            made.observe(pa.table({"a": [1]}))
    assert {list, pa.Table, pd.DataFrame, pl.DataFrame} == set(taken)


def test_a_state_less_its_exact_counts_is_the_noise_of_its_birth(lives: list[Life]) -> None:
    must_hold(structural.one_draw(lives))
    assert all(len(life.states) == 4 for life in lives)


def test_no_key_opens_a_superseded_state_once_rows_have_left(lives: list[Life]) -> None:
    must_hold(structural.forgotten(lives))
    assert [life.superseded for life in lives] == [2] * len(lives)


# --- noise ----------------------------------------------------------------------------------------


def test_the_prior_carries_noise(lives: list[Life]) -> None:
    must_hold(structural.prior_noise(lives))


def test_all_tables_let_through_what_the_ledger_says_and_not_much_less(lives: list[Life]) -> None:
    must_hold(structural.paid_for(lives))
    assert min(shares_of_the_ledger(lives)[1:]) > 0.9


@pytest.mark.parametrize("what", ["windows", "tables", "hash rows"])
def test_noise_is_independent_between(lives: list[Life], what: str) -> None:
    (check,) = (each for each in structural.independent(lives) if each.fact.endswith(what))
    must_hold(check)


# --- counts ---------------------------------------------------------------------------------------


def test_signs_are_even_and_independent_between_hash_rows(lives: list[Life]) -> None:
    must_hold(structural.even_signs(lives[0]))


@pytest.mark.parametrize("given", [{}, {"k": 2}, {"p_min": 0.3, "weight_unit": 7}], ids=str)
def test_no_observation_adds_more_than_omega_to_a_cell(given: dict[str, Any]) -> None:
    check = structural.clipped(Settings(epsilon=1.0, **given))
    must_hold(check)
    largest, omega = (int(part.split()[-1]) for part in check.found.split(", Ω = "))
    assert largest == omega  # not less either, or nothing would have been clipped


# --- the checks see what is wrong -----------------------------------------------------------------


def with_noise(life: Life, change: Any) -> Life:
    """The same life with other noise in every state."""
    more = [change(number, noise) for number, noise in enumerate(life.noise)]
    states = [
        ([own + extra for own, extra in zip(cells, more, strict=True)], inside)
        for cells, inside in life.states
    ]
    return replace(life, states=states)


def test_half_the_noise_in_one_table_is_seen(lives: list[Life]) -> None:
    few = [with_noise(life, lambda n, noise: -(noise // 2) * (n == 2)) for life in lives]
    assert structural.one_draw(few).holds
    assert not structural.paid_for(few).holds
    assert shares_of_the_ledger(few)[2] > 1.5


def test_a_prior_without_noise_is_seen(lives: list[Life]) -> None:
    exact = [with_noise(life, lambda n, noise: -noise * (n == 0)) for life in lives]
    assert not structural.prior_noise(exact).holds


def test_noise_that_comes_later_is_seen(lives: list[Life]) -> None:
    (first, inside), *rest = lives[0].states
    late = replace(lives[0], states=[([cells * 0 for cells in first], inside), *rest])
    assert not structural.one_draw([late]).holds


def test_one_cell_that_differs_is_seen(lives: list[Life]) -> None:
    *first, (last, inside) = lives[0].states
    other = [cells.copy() for cells in last]
    other[1][0, 7, 1] += 1
    changed = replace(lives[0], states=[*first, (other, inside)])
    assert not structural.one_draw([changed]).holds


def test_noise_used_twice_is_seen(lives: list[Life]) -> None:
    between = structural.independent([lives[0], lives[1], lives[0]])
    assert [check.holds for check in between] == [False, True, True]


def test_a_window_that_nobody_charged_is_seen(lives: list[Life]) -> None:
    free = [replace(lives[0], charged=None), *lives[1:]]
    assert not structural.paid_for(free).holds


def test_a_state_that_still_opens_is_seen(lives: list[Life]) -> None:
    assert not structural.forgotten([replace(lives[0], readable=1)]).holds


@pytest.fixture
def made() -> Any:
    settings = Settings(epsilon=1.0)
    schema = schema_like(plain_schema(2), 100)
    with trial(schema, for_trial(settings, schema, rows=100, buckets=64)) as found:
        yield found


def rows(made: Trial) -> Any:
    store = made.store
    return Canaries.drawn(store.schema, store.settings, 100, np.random.default_rng(0)).rows()


def test_a_charge_that_comes_after_the_noise_is_seen(
    made: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    owed: list[Any] = []
    monkeypatch.setattr(Ledger, "open", lambda *given: owed.append(given))
    witness = Witness(made.store)
    made.observe(rows(made))
    assert witness.draws == [False]


def test_noise_that_is_in_memory_alone_is_seen(
    made: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = Witness(made.store)
    window = made.open()
    for file in made.lifecycle.tables.folder.iterdir():
        file.unlink()
    made.observe(rows(made))
    assert (window.arena.rows > 0, witness.acknowledgements) == (True, [False])


def test_the_states_of_a_window_are_of_the_disk(made: Trial) -> None:
    store = made.store
    canaries = Canaries.drawn(store.schema, store.settings, 100, np.random.default_rng(0))
    life = lived(made, canaries)
    counted = [int(inside.sum()) for _, inside in life.states]
    assert counted == sorted(counted)
    assert counted[0] == 0
    assert counted[-1] == canaries.included.sum()
