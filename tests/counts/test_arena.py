"""One block per window: whatever way observations reach it, the cells are the same exact sums."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramidion import Categorical, Continuous, Label, Schema, Settings
from pyramidion.counts import arena as module
from pyramidion.counts.arena import MAGIC, VERSION, Arena
from pyramidion.counts.layout import ALIGN, PRIOR, Layout, Table
from pyramidion.errors import FormatError, PrivacyError, SchemaError, StateError
from pyramidion.privacy.randomness import Randomness
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.rows.observations import Door, Observations
from tests import reference_counts as naive

INF = float("inf")
SECRET = b"a secret of the stream"
SCHEMA = Schema(
    features=[
        Categorical("open"),
        Categorical("known", domain=["a", "b"]),
        Continuous("size", edges=[0.0, 1.0]),
    ],
    label=[Label("late", classes=[0, 1]), Label("kind", classes=["x", "y", "z"])],
    groups=[("open", "known"), ("known", "size")],
    weight="p",
)


@cache
def stream(**given: Any) -> tuple[Door, TableDesign]:
    chosen = Settings(
        **{"epsilon": 1.0, "buckets": 8, "p_min": 0.1, "max_rows_per_window": 10_000} | given
    )
    door = Door(SCHEMA, chosen, SECRET)
    return door, TableDesign(chosen, door.encoder.shapes, SCHEMA.cardinality, SECRET)


def rows_of(size: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "open": random.zipf(1.3, size) % 50,
            "known": np.array(["a", "b", "c", None], dtype=object)[random.integers(0, 4, size)],
            "size": random.normal(size=size),
            "late": random.integers(0, 2, size),
            "kind": np.array(["x", "y", "z"])[random.integers(0, 3, size)],
            "p": random.uniform(0.05, 1.0, size),
        }
    )


def observed(size: int, seed: int = 0, **given: Any) -> Observations:
    return stream(**given)[0].observations(rows_of(size, seed))


def some(observations: Observations, rows: Any) -> Observations:
    return observations.take(np.array(rows, dtype=np.int64))


def counted(*batches: Observations, noise: bytes = b"noise", threads: int = 1) -> Arena:
    """A sealed window with noise of its own (the same for the same seed)."""
    arena = stream()[1].arena(Randomness.insecure_from_seed(noise))
    for batch in batches:
        arena.add(batch, threads)
    arena.seal()
    return arena


def same(one: Arena, other: Arena) -> bool:
    tables = range(len(one.layout.tables))
    return one.rows == other.rows and all(
        np.array_equal(one.cells(table), other.cells(table)) for table in tables
    )


splits = st.lists(st.integers(0, 200), max_size=5).map(lambda cuts: [0, *sorted(cuts), 200])


# --- counting ------------------------------------------------------------------------------


def test_every_table_of_an_exact_arena_is_its_twin() -> None:
    batch, birth = observed(300), stream(epsilon=INF)[1]
    arena = birth.arena()
    arena.add(batch)
    arena.seal()
    for table in range(len(birth.layout.tables)):
        twin = naive.NaiveTable.of(birth.layout, table)
        keys = batch.keys(table - 1, 0, 300) if table else np.zeros(300, dtype=np.uint64)
        twin.add_all(keys.tolist(), batch.labels.tolist(), batch.weights.tolist())
        assert arena.cells(table).tolist() == twin.listed()


@given(splits, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_counting_a_batch_is_counting_its_parts_in_any_split_and_order(
    cuts: list[int], random: Any
) -> None:
    whole = observed(200)
    order = list(range(200))
    random.shuffle(order)
    parts = [some(whole, order[a:b]) for a, b in pairwise(cuts)]
    assert same(counted(whole), counted(*parts))


def test_an_empty_batch_changes_nothing() -> None:
    assert same(counted(some(observed(5), [])), counted())


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_the_chunk_of_rows_held_at_once_changes_nothing(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = counted(observed(100))
    monkeypatch.setattr(module, "CHUNK", chunk)
    assert same(counted(observed(100)), expected)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_give_the_same_cells(threads: int) -> None:
    batch = observed(9_000)
    assert same(counted(batch), counted(batch, threads=threads))


def test_more_rows_than_the_window_may_take_are_refused_before_any_is_counted() -> None:
    door, birth = stream(max_rows_per_window=10)
    arena = birth.arena(Randomness.insecure_from_seed(b"noise"))
    arena.add(door.observations(rows_of(6)))
    with pytest.raises(StateError, match="room for 4 of 5 rows"):
        arena.add(door.observations(rows_of(5)))
    assert arena.rows == 6
    arena.seal()
    twin = birth.arena(Randomness.insecure_from_seed(b"noise"))
    twin.add(door.observations(rows_of(6)))
    twin.seal()
    assert same(arena, twin)


def test_noise_is_in_every_table_before_the_first_row() -> None:
    arena = counted()
    assert all(arena.cells(table).any() for table in range(len(arena.layout.tables)))
    assert not same(arena, counted(noise=b"other"))


@pytest.mark.parametrize("verb", ["add", "minus"])
def test_observations_of_another_schema_are_refused(verb: str) -> None:
    wider = Categorical("known", domain=["a", "b", "c", "d", "e"])
    features = [wider if f.name == "known" else f for f in SCHEMA.features]
    others = [
        Schema(features=features, label=SCHEMA.label, groups=SCHEMA.groups),
        Schema(features=SCHEMA.features, label=SCHEMA.labels[0], groups=SCHEMA.groups),
        Schema(features=SCHEMA.features, label=SCHEMA.label),
    ]
    for schema in others:
        foreign = Door(schema, Settings(epsilon=1.0), SECRET).observations(rows_of(3))
        arena = counted(observed(9)) if verb == "minus" else stream()[1].arena()
        with pytest.raises(StateError, match="another schema"):
            getattr(arena, verb)(foreign)


def test_a_weight_beyond_what_the_noise_hides_is_refused() -> None:
    for weights in ([11] * 3, [1, 1, -1], [1, -1, 1]):
        heavy = replace(observed(3), weights=np.array(weights))
        with pytest.raises(PrivacyError, match="weigh more"):
            stream()[1].arena().add(heavy)


def broken_off(monkeypatch: pytest.MonkeyPatch, undone: bool) -> Arena:
    """A populating arena in which counting a second batch failed at the third table."""
    arena = stream()[1].arena(Randomness.insecure_from_seed(b"noise"))
    arena.add(observed(50))
    count, calls = Arena._count, list[int]()

    def failing(self: Arena, table: int, *rest: Any) -> None:
        calls.append(table)
        if len(calls) == 3 or (len(calls) > 3 and not undone):
            raise MemoryError
        count(self, table, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Arena, "_count", failing)
        with pytest.raises(MemoryError):
            arena.add(observed(60, seed=1))
    assert len(set(calls)) >= 3
    return arena


def test_a_batch_that_fails_half_way_is_taken_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = broken_off(monkeypatch, undone=True)
    assert arena.rows == 50
    arena.add(observed(20, seed=2))
    arena.seal()
    assert same(arena, counted(observed(50), observed(20, seed=2)))


def test_a_batch_that_cannot_be_taken_out_spoils_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arena = broken_off(monkeypatch, undone=False)
    for verb in (arena.seal, lambda: arena.add(observed(1))):
        with pytest.raises(StateError, match="broken off"):
            verb()


# --- windows -------------------------------------------------------------------------------


def exact(*batches: Observations, **given: Any) -> Arena:
    arena = stream(epsilon=INF, **given)[1].arena()
    for batch in batches:
        arena.add(batch)
    arena.seal()
    return arena


@given(splits)
@settings(max_examples=25, deadline=None)
def test_the_total_of_windows_is_all_counted_into_one(cuts: list[int]) -> None:
    whole = observed(200)
    parts = [some(whole, range(a, b)) for a, b in pairwise(cuts)]
    assert same(Arena.total([exact(part) for part in parts]), exact(whole))


def test_a_total_less_a_window_gives_back_the_rest_bounds_and_all() -> None:
    first, second = counted(observed(50)), counted(observed(70, 1), noise=b"second")
    back = Arena.total([first, second]).less(second)
    assert same(back, first)
    assert back.layout == first.layout
    assert back.max_rows == first.max_rows
    with pytest.raises(StateError, match="no window would be left"):
        back.less(first)


def test_a_table_that_began_late_is_summed_over_its_own_windows() -> None:
    first, second = counted(observed(50)), counted(observed(70, 1), noise=b"second")
    names = [table.name for table in first.layout.tables]
    early = first.only(names[:-1])
    total = Arena.total([early, second])
    assert [t.name for t in total.layout.tables] == names
    assert [t.windows for t in total.layout.tables] == [2] * (len(names) - 1) + [1]
    ours, own = total.layout.tables, second.layout.tables
    assert ours[-1] == own[-1]
    assert ours[0].variance == 2 * own[0].variance
    last = len(names) - 1
    assert np.array_equal(total.cells(last), second.cells(last))
    assert np.array_equal(total.cells(0), first.cells(0) + second.cells(0))
    assert same(total.less(second), early)
    with pytest.raises(StateError, match="not in these tables"):
        early.less(second)


def test_some_tables_alone_keep_their_cells_and_their_state() -> None:
    whole = counted(observed(50))
    some_tables = whole.only({whole.layout.tables[0].name, whole.layout.tables[2].name})
    assert some_tables.sealed
    assert np.array_equal(some_tables.cells(1), whole.cells(2))


def test_a_checkpoint_comes_back_populating_and_counts_on() -> None:
    arena = stream()[1].arena(Randomness.insecure_from_seed(b"noise"))
    arena.add(observed(50))
    back = Arena.from_bytes(b"".join(arena.checkpoint()), SECRET)
    assert not back.sealed
    assert back.rows == 50
    for each in (arena, back):
        each.add(observed(30, 1))
        each.seal()
    assert same(arena, back)
    with pytest.raises(StateError, match="sealed"):
        back.checkpoint()


def test_what_is_taken_back_was_never_counted() -> None:
    arena = stream()[1].arena(Randomness.insecure_from_seed(b"noise"))
    arena.add(observed(50))
    arena.add(observed(30, 1))
    arena.take_back(observed(30, 1))
    arena.seal()
    assert same(arena, counted(observed(50)))
    assert arena.rows == 50
    with pytest.raises(StateError, match="sealed"):
        arena.take_back(observed(30, 1))


@pytest.mark.parametrize("others", [1, 2])
def test_a_window_that_is_not_in_the_tables_cannot_be_taken_off(others: int) -> None:
    small, large = counted(observed(5)), counted(observed(70, 1), noise=b"large")
    both = Arena.total([large] * others)
    with pytest.raises(StateError, match="not in these tables"):
        small.less(both)


def test_taking_off_a_stranger_of_the_same_bounds_is_refused_rather_than_wrapped() -> None:
    tables = (Table(PRIOR, "dense", 1, 1, 2**31 - 1),)
    mine, strange = (Arena.exact(Layout(tables, 1, b"s"), 10) for _ in range(2))
    mine._flat(0)[:], strange._flat(0)[:] = 2**31 - 1, -(2**31 - 1)
    mine.seal()
    strange.seal()
    twice = Arena.total([mine, mine])
    with pytest.raises(StateError, match="not in these tables"):
        twice.less(strange)


def test_a_total_of_nothing_and_of_different_layouts_is_refused() -> None:
    with pytest.raises(StateError, match="seal one first"):
        Arena.total([])
    other = Arena.exact(stream(buckets=16)[1].layout)
    other.seal()
    with pytest.raises(StateError, match="different layouts"):
        Arena.total([counted(), other])


@given(st.sets(st.integers(0, 199)))
@settings(max_examples=25, deadline=None)
def test_tables_minus_observations_are_tables_that_never_met_them(gone: set[int]) -> None:
    whole = observed(200)
    stay = some(whole, sorted(set(range(200)) - gone))
    assert same(counted(whole).minus(some(whole, sorted(gone))), counted(stay))


def test_minus_leaves_the_tables_themselves_alone() -> None:
    arena = counted(observed(100))
    before = arena.to_bytes()
    rest = arena.minus(observed(100), threads=2)
    assert same(rest, counted())
    assert arena.to_bytes() == before
    with pytest.raises(StateError, match="more rows than"):
        rest.minus(observed(1))


@pytest.mark.parametrize("way", ["itself", "copy", "total", "less"])
def test_tables_with_exact_counts_taken_off_are_raw_and_never_stored(way: str) -> None:
    whole = counted(observed(100))
    raw = whole.minus(observed(100))
    if way != "itself":
        made = {
            "copy": raw.copy,
            "total": lambda: Arena.total([whole, raw]),
            "less": lambda: Arena.total([whole, whole]).less(raw),
        }
        raw = made[way]()
    assert raw.raw
    assert not whole.raw
    for store in (raw.to_bytes, lambda: pickle.dumps(raw), lambda: copy.deepcopy(raw)):
        with pytest.raises(PrivacyError, match="never stored"):
            store()


# --- widths --------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "wide"), [(2**31 - 1, False), (2**31, True)])
def test_cells_are_wide_from_a_public_bound_of_two_to_the_31(most: int, wide: bool) -> None:
    given = {"epsilon": INF, "p_min": 1.0, "max_rows_per_window": most}
    layout = stream(**given)[1].layout
    assert {table.bound for table in layout.tables} == {most}
    assert {table.wide for table in layout.tables} == {wide}
    noisy = stream(**given | {"epsilon": 1.0})[1]
    for table, noise in zip(noisy.layout.tables, noisy.noises, strict=True):
        assert noise is not None
        assert table.bound == most + noise.bound


def one_cell(bound: int, value: int) -> Arena:
    arena = Arena.exact(Layout((Table(PRIOR, "dense", 1, 1, bound),), 1, b"s"), bound)
    arena._flat(0)[:] = value
    arena.seal()
    return arena


@given(st.lists(st.tuples(st.booleans(), st.floats(-1, 1)), min_size=1, max_size=6))
@settings(deadline=None)
def test_sums_of_narrow_and_wide_cells_are_exact_up_to_their_bounds(
    given_cells: list[tuple[bool, float]],
) -> None:
    bounds = [2**40 if wide else 2**31 - 1 for wide, _ in given_cells]
    values = [int(f * bound) for bound, (_, f) in zip(bounds, given_cells, strict=True)]
    total = Arena.total([one_cell(b, v) for b, v in zip(bounds, values, strict=True)])
    assert total.cells(0).item() == sum(values)
    assert total.layout.tables[0].bound == sum(bounds)
    assert total.layout.tables[0].wide == (sum(bounds) >= 2**31)


def test_narrow_cells_hold_their_bound_of_either_sign() -> None:
    """One observation of the largest weight fills its cells to the last bit."""
    most = 2**31 - 1
    door, birth = stream(epsilon=INF, max_rows_per_window=1, p_min=1 / most, weight_unit=1)
    assert birth.layout.weight == most
    assert not birth.layout.tables[0].wide
    arena = birth.arena()
    one = door.observations(rows_of(1).set_column(5, "p", pa.array([1e-12])))
    arena.add(one)
    arena.seal()
    for table in range(len(birth.layout.tables)):
        assert set(np.unique(np.abs(arena.cells(table).astype(np.int64)))) == {0, most}
        assert not arena.minus(one).cells(table).any()


def test_bounds_beyond_64_bits_are_refused() -> None:
    with pytest.raises(PrivacyError, match="64-bit cells"):
        Layout((Table(PRIOR, "dense", 1, 1, 2**62),), 2, b"s")
    almost = one_cell(2**61 + 1, 0)
    with pytest.raises(PrivacyError, match="64-bit cells"):
        Arena.total([almost, almost])


@pytest.mark.parametrize(
    ("kind", "rows", "width"),
    [
        ("dense", 2, 4),
        ("dense", 1, 0),
        ("count-min", 0, 4),
        ("count-min", 17, 4),
        ("count-median", 5, 1),
        ("count-median", 5, 12),
    ],
)
def test_tables_that_kernels_would_leave_the_block_with_are_refused(
    kind: Any, rows: int, width: int
) -> None:
    with pytest.raises(SchemaError, match="cannot be laid out"):
        Layout((Table("x", kind, rows, width, 9),), 2, b"s")


def test_tables_lie_one_after_the_other_on_cache_lines_of_their_own() -> None:
    specs = [("dense", 1, 3, 9), ("count-min", 3, 2, 2**40), ("count-median", 5, 8, 2**31 - 1)]
    tables = tuple(Table(str(i), *spec) for i, spec in enumerate(specs))  # type: ignore[arg-type]
    arena = Arena.exact(Layout(tables, 3, b"s"))
    start = arena._block.ctypes.data
    assert start % ALIGN == 0
    ends = 0
    for table in range(3):
        flat = arena._flat(table)
        at = flat.ctypes.data - start
        assert at % ALIGN == 0
        assert at >= ends
        ends = at + flat.nbytes
    assert ends <= arena._block.nbytes


def test_a_fingerprint_tells_layouts_apart_and_not_the_secret() -> None:
    def fingerprint(name: str = "x", kind: Any = "count-min", labels: int = 2, **given: Any) -> str:
        spec = {"rows": 2, "width": 4, "bound": 9} | given
        return Layout((Table(name, kind, **spec),), labels, secret).fingerprint

    secret = b"one"
    found = [
        fingerprint(),
        fingerprint(name="y"),
        fingerprint(kind="count-median"),
        fingerprint(labels=3),
        fingerprint(rows=3),
        fingerprint(width=8),
        fingerprint(bound=2**40),
    ]
    secret = b"two"
    found.append(fingerprint())
    assert len(set(found)) == len(found)
    assert not any(b"one".hex() in text for text in found)


# --- states --------------------------------------------------------------------------------

QUESTIONS: dict[str, Callable[[Arena], object]] = {
    "cells": lambda arena: arena.cells(0),
    "views": lambda arena: arena.views(),
    "bytes": lambda arena: arena.to_bytes(),
    "copy": lambda arena: arena.copy(),
    "shallow copy": copy.copy,
    "deep copy": copy.deepcopy,
    "pickle": pickle.dumps,
    "minus": lambda arena: arena.minus(observed(1)),
    "total": lambda arena: Arena.total([arena]),
    "later in a total": lambda arena: Arena.total([counted(), arena]),
    "less": lambda arena: arena.less(counted()),
    "what is taken off": lambda arena: counted().less(arena),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_populating_arena_answers_nothing_and_has_no_copy(question: str) -> None:
    arena = stream()[1].arena()
    arena.add(observed(3))
    with pytest.raises(StateError, match="seal"):
        QUESTIONS[question](arena)
    arena.add(observed(3))
    assert arena.rows == 6


def test_a_sealed_arena_takes_no_counts_and_cannot_be_written_to() -> None:
    for arena in (counted(), counted().copy(), Arena.total([counted()]), counted(observed(1))):
        with pytest.raises(StateError, match="no more counts"):
            arena.add(observed(1))
        for view in (arena.cells(0), *arena.views()):
            assert not view.flags.writeable
            with pytest.raises(ValueError, match="WRITEABLE"):
                view.flags.writeable = True


@pytest.mark.parametrize("way", [Arena.copy, copy.copy, copy.deepcopy, "pickle"])
def test_copies_of_a_sealed_arena_are_equal_and_apart(way: Any) -> None:
    arena = counted(observed(20))
    twin = pickle.loads(pickle.dumps(arena)) if way == "pickle" else way(arena)  # noqa: S301
    assert same(arena, twin)
    assert twin.sealed
    assert twin.layout == arena.layout
    assert not np.shares_memory(twin.views()[0], arena.views()[0])


# --- bytes ---------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(0, 3), st.sampled_from([2**31 - 1, 2**31]))
@settings(max_examples=20, deadline=None)
def test_bytes_come_back_as_the_same_arena(size: int, seed: int, most: int) -> None:
    arena = exact(observed(size, seed), max_rows_per_window=most)
    data = arena.to_bytes()
    back = Arena.from_bytes(data, SECRET)
    assert same(arena, back)
    assert (back.layout, back.max_rows, back.sealed) == (arena.layout, arena.max_rows, True)
    assert back.to_bytes() == data


def test_the_size_of_the_bytes_is_public() -> None:
    digits = {len(counted(observed(n)).to_bytes()) for n in (10, 50, 99)}
    assert len(digits) == 1


@cache
def written() -> bytes:
    return counted(observed(20)).to_bytes()


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_flipped_bit_is_refused(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(written()) - 1) | st.integers(0, 60))
    damaged = bytearray(written())
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(FormatError):
        Arena.from_bytes(bytes(damaged), SECRET)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_bytes_cut_off_or_added_are_refused(data: st.DataObject) -> None:
    end = data.draw(st.integers(0, 60) | st.integers(0, len(written()) - 1))
    more = data.draw(st.binary(min_size=1, max_size=40))
    for other in (written()[:end], written()[end + 1 :], written() + more, more + written()):
        with pytest.raises(FormatError):
            Arena.from_bytes(other, SECRET)


@given(st.binary(max_size=200), st.booleans())
@settings(deadline=None)
def test_foreign_bytes_are_refused(data: bytes, marked: bool) -> None:
    with pytest.raises(FormatError):
        Arena.from_bytes(MAGIC + data if marked else data, SECRET)


def test_a_newer_version_says_so() -> None:
    newer = MAGIC + (VERSION + 1).to_bytes(4, "little") + written()[len(MAGIC) + 4 :]
    with pytest.raises(FormatError, match="format 2, this version reads up to 1"):
        Arena.from_bytes(newer, SECRET)


def test_another_secret_is_refused() -> None:
    with pytest.raises(FormatError, match="another secret"):
        Arena.from_bytes(written(), b"another")


def forged(head: bytes, block: bytes = b"", length: int | None = None) -> bytes:
    """Bytes whose checksum is right and whose head nobody wrote."""
    size = (len(head) if length is None else length).to_bytes(4, "little")
    body = MAGIC + VERSION.to_bytes(4, "little") + size + head + block
    return body + blake2b(body, digest_size=32).digest()


def headed(**changed: Any) -> bytes:
    start = len(MAGIC) + 8
    length = int.from_bytes(written()[start - 4 : start], "little")
    head = json.loads(written()[start : start + length])
    first = head["tables"][1]
    head["tables"][1] = first | {k: v for k, v in changed.items() if k in first}
    head |= {k: v for k, v in changed.items() if k not in first}
    return forged(json.dumps(head).encode(), written()[start + length : -32])


@pytest.mark.parametrize(
    "data",
    [
        forged(b""),
        forged(b"{}"),
        forged(b"[]"),
        forged(b"\xff\xfe"),
        forged(b"[" * 100_000),
        forged(b"{}", length=2**32 - 1),
        headed(tables=[]),
        headed(tables=None),
        headed(labels="many"),
        headed(labels=-3),
        headed(rows=None),
        headed(max_rows=INF),
        headed(fingerprint=None),
        headed(kind="other"),
        headed(kind=[]),
        headed(rows=17),
        headed(width=2**60),
        headed(width=2**300),
        headed(width="8"),
        headed(width=0.5),
        headed(bound=2**80),
        headed(bound=2**40),
    ],
    ids=range(22),
)
def test_heads_that_nobody_wrote_are_refused_without_a_trace_of_their_wishes(data: bytes) -> None:
    with pytest.raises(FormatError):
        Arena.from_bytes(data, SECRET)


def test_a_block_of_another_size_is_refused() -> None:
    with pytest.raises(FormatError, match="size"):
        Arena.from_bytes(headed_without_a_byte(), SECRET)


def headed_without_a_byte() -> bytes:
    body = written()[:-33]
    return body + blake2b(body, digest_size=32).digest()


@pytest.mark.parametrize("holder", [bytearray, memoryview, pa.py_buffer])
def test_any_holder_of_bytes_is_read(holder: Callable[[bytes], Any]) -> None:
    assert same(Arena.from_bytes(holder(written()), SECRET), counted(observed(20)))
