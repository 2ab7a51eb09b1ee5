"""What every table store must do. Each test runs on each of them; none is a mock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import PRIOR, Layout, Table
from pyramidion.errors import ExpiredError, FormatError, PrivacyError, StateError, StorageError
from pyramidion.storage.blocks import CHUNK, TAG, Encrypted, Generation, Span
from pyramidion.storage.tables import TableStore

BIG, SMALL = 1 << 15, 64
LAYOUT = Layout(
    (
        Table(PRIOR, "dense", 1, 1, 1000),
        Table("b", "dense", 1, 7, 1000),
        Table("a", "count-median", 5, BIG, 1000),  # 2 MB: more than a chunk
        Table("c", "count-min", 3, SMALL, 1 << 40),  # of 64 bits
    ),
    labels=3,  # 12 bytes a bucket: blocks are padded
    secret=b"s",
)


def filled(layout: Layout = LAYOUT, seed: int = 0) -> Arena:
    """Sealed tables of cells that cannot be guessed."""
    random = np.random.default_rng(seed)

    def fill(_: int, cells: np.ndarray) -> None:
        cells[:] = random.integers(-1000, 1000, cells.size)

    return Arena.of_cells(layout, fill, rows=12, max_rows=34)


@pytest.fixture(scope="module")
def arena() -> Arena:
    return filled()


def loaded(store: TableStore, generation: Generation) -> Arena:
    return store.opened(generation, LAYOUT).load(rows=12, max_rows=34)


def count(store: TableStore, generation: Generation) -> int:
    return store.opened(generation, LAYOUT).blocks.count


def lengths(store: TableStore, generation: Generation) -> list[int]:
    return store.opened(generation, LAYOUT).blocks.lengths


def deleted(store: TableStore, generation: Generation) -> None:
    store.delete(generation.name, count(store, generation))


def chunks(store: TableStore, generation: Generation) -> list[bytes]:
    """The chunks as they are stored."""
    blocks = store.opened(generation, LAYOUT).blocks
    spans = [blocks.whole(t, c) for t in range(4) for c in blocks.chunks_of(t)]
    return store.read(generation.name, spans)


def changed(store: TableStore, generation: Generation, found: list[bytes]) -> None:
    """Put other chunks in the place of those of a generation, as who owns the machine can."""
    deleted(store, generation)
    store.put(generation.name, found, len(found), None)


def same(one: Arena, other: Arena) -> bool:
    tables = range(len(one.layout.tables))
    return one.rows == other.rows and all((one.cells(t) == other.cells(t)).all() for t in tables)


def places(size: int = 200) -> Iterator[tuple[int, int]]:
    """Buckets of all tables, the first and the last of each among them."""
    random = np.random.default_rng(1)
    buckets = [table.rows * table.width for table in LAYOUT.tables]
    for table, total in enumerate(buckets):
        yield from ((table, bucket) for bucket in (0, total - 1))
    for table in random.integers(0, len(buckets), size):
        yield int(table), int(random.integers(0, buckets[table]))


def bucket(arena: Arena, table: int, number: int) -> np.ndarray:
    return arena.cells(table).reshape(-1, arena.layout.labels)[number]


# --- there and back ---------------------------------------------------------------------------


@pytest.mark.slow
def test_tables_come_back_as_they_were_published(store: TableStore, arena: Arena) -> None:
    found = loaded(store, store.publish(arena, owner="o"))
    assert same(found, arena)
    assert found.sealed


@pytest.mark.slow
def test_cells_are_read_alone_in_one_call(
    store: TableStore, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = store.publish(arena, owner="o")
    tables, numbers = np.array(list(places()), dtype=np.int64).T
    read, calls = store.read, []

    def counted(name: str, spans: list[Span]) -> list[bytes]:
        calls.append(sum(span.length for span in spans))
        return read(name, spans)

    monkeypatch.setattr(store, "read", counted)
    found = store.opened(generation, LAYOUT).buckets(tables, numbers)
    for data, table, number in zip(found, tables, numbers, strict=True):
        expected = bucket(arena, table, number)
        np.testing.assert_array_equal(np.frombuffer(data, dtype=expected.dtype), expected)
    (size,) = calls
    assert size <= len(tables) * (128 + TAG)


def test_reading_nothing_gives_nothing(store: TableStore, arena: Arena) -> None:
    generation = store.publish(arena, owner="o")
    assert store.read(generation.name, []) == []


def test_spans_come_in_the_order_they_are_asked_for(store: TableStore) -> None:
    store.put("o.1", [b"abcdef", b"ghijkl"], 2, None)
    spans = [Span(1, 5, 1), Span(0, 0, 2), Span(1, 0, 6), Span(0, 0, 2)]
    assert store.read("o.1", spans) == [b"l", b"ab", b"ghijkl", b"ab"]


def test_bytes_of_every_value_come_back(store: TableStore) -> None:
    every = bytes(range(256)) * 3 + b"\r\n\0"
    store.put("o.1", [every], 1, None)
    assert store.read("o.1", [Span(0, 0, len(every))]) == [every]


def test_two_sets_of_tables_do_not_meet(store: TableStore, arena: Arena) -> None:
    other = filled(seed=1)
    first, second = store.publish(arena, owner="o"), store.publish(other, owner="o")
    assert same(loaded(store, first), arena)
    assert same(loaded(store, second), other)


# --- what is listed, and what goes --------------------------------------------------------------


def test_names_are_listed_with_their_chunks(store: TableStore, arena: Arena) -> None:
    assert store.names() == {}
    ours, theirs = store.publish(arena, owner="ours"), store.publish(arena, owner="theirs")
    chunks = count(store, ours)
    assert store.names() == {ours.name: chunks, theirs.name: chunks}
    assert ours.name.startswith("ours.")


def test_what_is_deleted_is_gone_and_said_to_be(store: TableStore, arena: Arena) -> None:
    generation, kept = store.publish(arena, owner="o"), store.publish(arena, owner="o")
    assert store.has(generation.name, lengths(store, generation))
    deleted(store, generation)
    assert not store.has(generation.name, lengths(store, generation))
    assert list(store.names()) == [kept.name]
    with pytest.raises(ExpiredError, match=r"are not at .* any more"):
        loaded(store, generation)
    with pytest.raises(ExpiredError, match="fetch a new card"):
        store.opened(generation, LAYOUT).buckets(np.array([2]), np.array([3]))
    deleted(store, generation)  # once more is quiet


def test_a_span_beyond_its_chunk_is_refused_not_cut(store: TableStore) -> None:
    store.put("o.1", [b"abcdef"], 1, None)
    for span in (Span(0, 4, 3), Span(0, 6, 1), Span(1, 0, 1)):
        with pytest.raises(ExpiredError):
            store.read("o.1", [Span(0, 0, 1), span])


def test_one_chunk_lost_is_noticed(store: TableStore) -> None:
    store.put("o.1", [b"abc", b"def"], 2, None)
    assert store.has("o.1", [3, 3])
    assert not store.has("o.1", [3, 3, 3])


def test_a_chunk_that_lost_its_end_is_noticed(store: TableStore, arena: Arena) -> None:
    generation = store.publish(arena, owner="o")
    expected, found = lengths(store, generation), chunks(store, generation)
    assert list(map(len, found)) == expected
    for broken in (0, len(found) - 1):
        cut = [chunk[: len(chunk) - (n == broken)] for n, chunk in enumerate(found)]
        changed(store, generation, cut)
        assert not store.has(generation.name, expected)


def test_a_write_that_breaks_off_leaves_nothing(store: TableStore, arena: Arena) -> None:
    class BrokenError(Exception):
        pass

    def breaking(chunks: Iterator[bytes]) -> Iterator[bytes]:
        yield next(chunks)
        raise BrokenError

    whole = Encrypted.__iter__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Encrypted, "__iter__", lambda self: breaking(whole(self)))
        with pytest.raises(BrokenError):
            store.publish(arena, owner="o")
    assert store.names() == {}


def test_what_a_killed_writer_left_is_listed_and_can_be_deleted(store: TableStore) -> None:
    def killed() -> Iterator[bytes]:
        yield b"abc"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put("o.1", killed(), 2, None)
    assert list(store.names()) == ["o.1"]
    store.delete("o.1", 2)
    assert store.names() == {}


def test_a_name_is_written_once(store: TableStore) -> None:
    store.put("o.1", [b"abc"], 1, None)
    for chunks in ([b"xyz"], [b"xyz", b"more"]):
        with pytest.raises(StateError, match="already"):
            store.put("o.1", chunks, len(chunks), None)
    assert store.read("o.1", [Span(0, 0, 3)]) == [b"abc"]
    assert store.names() == {"o.1": 1}
    store.delete("o.1", 1)
    store.put("o.1", [b"xyz"], 1, None)  # it is new again
    assert store.read("o.1", [Span(0, 0, 3)]) == [b"xyz"]


def test_a_name_whose_write_broke_off_is_not_written_over(store: TableStore) -> None:
    def killed() -> Iterator[bytes]:
        yield b"abc"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put("o.1", killed(), 2, None)
    with pytest.raises(StateError, match="already"):
        store.put("o.1", [b"xyz", b"xyz"], 2, None)


def test_what_is_lost_while_it_is_written_is_not_taken_for_published(
    store: TableStore, arena: Arena
) -> None:
    put = store.put

    def lossy(name: str, chunks: Iterable[bytes], count: int, life: float | None) -> None:
        put(name, chunks, count, life)
        store.delete(name, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "put", lossy)
        with pytest.raises(StorageError, match="lost tables while they were written"):
            store.publish(arena, owner="o")
    assert store.names() == {}


def test_a_write_that_was_sent_twice_is_one_to_try_again(store: TableStore, arena: Arena) -> None:
    put = store.put

    def twice(name: str, chunks: Iterable[bytes], count: int, life: float | None) -> None:
        for _ in range(2):  # as a driver does whose connection was cut off before the answer
            put(name, chunks, count, life)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "put", twice)
        with pytest.raises(StorageError, match="try again"):
            store.publish(arena, owner="o")
    assert store.names() == {}


# --- what never gets in --------------------------------------------------------------------------


def test_a_checkpoint_is_refused(store: TableStore) -> None:
    populating = Arena.exact(LAYOUT)
    with pytest.raises(PrivacyError, match="only sealed and complete tables are shared"):
        store.publish(populating, owner="o")
    assert store.names() == {}


def test_bytes_of_a_checkpoint_are_refused(store: TableStore) -> None:
    parts = b"".join(Arena.exact(LAYOUT).checkpoint())
    with pytest.raises(PrivacyError, match="seal the window first"):
        store.publish(parts, owner="o")  # type: ignore[arg-type]
    assert store.names() == {}


def test_tables_as_raw_as_their_rows_are_refused(store: TableStore, arena: Arena) -> None:
    raw = arena.without([])
    assert raw.raw
    with pytest.raises(PrivacyError):
        store.publish(raw, owner="o")
    assert store.names() == {}


# --- who owns the machine ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_tables_published_twice_share_no_bytes(store: TableStore, arena: Arena) -> None:
    one, other = store.publish(arena, owner="o"), store.publish(arena, owner="o")
    assert one.name != other.name
    assert one.key != other.key
    pieces = [{c[i : i + 16] for c in chunks(store, g) for i in range(0, len(c) - 15, 16)}
              for g in (one, other)]  # fmt: skip
    assert not pieces[0] & pieces[1]


def test_equal_blocks_do_not_look_equal(store: TableStore) -> None:
    zeros = Arena.exact(LAYOUT)
    zeros.seal()
    found = chunks(store, store.publish(zeros, owner="o"))
    pieces = [chunk[i : i + 16] for chunk in found for i in range(0, len(chunk) - 15, 16)]
    assert len(set(pieces)) == len(pieces)


def test_without_the_key_nothing_opens(store: TableStore, arena: Arena) -> None:
    generation = store.publish(arena, owner="o")
    wrong = Generation(generation.name, bytes(32))
    with pytest.raises(FormatError, match="not as their owner wrote them"):
        loaded(store, wrong)
    with pytest.raises(FormatError, match="under another key"):
        store.opened(wrong, LAYOUT).buckets(np.array([2]), np.array([3]))


def refused(store: TableStore, generation: Generation, table: int, number: int) -> None:
    """Neither the whole nor the part is answered."""
    with pytest.raises(FormatError):
        loaded(store, generation)
    with pytest.raises(FormatError):
        store.opened(generation, LAYOUT).buckets(np.array([table]), np.array([number]))


def test_one_flipped_bit_is_refused(store: TableStore, arena: Arena) -> None:
    generation = store.publish(arena, owner="o")
    found = [bytearray(chunk) for chunk in chunks(store, generation)]
    found[2][5] ^= 1
    changed(store, generation, [bytes(chunk) for chunk in found])
    refused(store, generation, 2, 0)


def test_swapped_blocks_are_refused(store: TableStore, arena: Arena) -> None:
    generation = store.publish(arena, owner="o")
    found, size = chunks(store, generation), 128 + TAG  # of 12-byte buckets: ten and 8 zeros
    chunk = found[2]
    found[2] = chunk[size : 2 * size] + chunk[:size] + chunk[2 * size :]
    changed(store, generation, found)
    refused(store, generation, 2, 0)
    refused(store, generation, 2, 10)


def test_swapped_chunks_of_a_table_are_refused(store: TableStore, arena: Arena) -> None:
    generation = store.publish(arena, owner="o")
    found = chunks(store, generation)
    assert len(found[2]) >= len(found[3])
    found[2], found[3] = found[3], found[2]
    changed(store, generation, found)
    refused(store, generation, 2, 0)


def test_a_chunk_of_another_table_is_refused(store: TableStore) -> None:
    twins = Layout(tuple(Table(n, "dense", 1, 8, 1000) for n in ("", "a", "b")), 2, b"s")
    generation = store.publish(filled(twins), owner="o")
    opened = store.opened(generation, twins)
    found = store.read(generation.name, [opened.blocks.whole(t, t) for t in range(3)])
    store.delete(generation.name, 3)
    store.put(generation.name, [found[0], found[2], found[1]], 3, None)
    with pytest.raises(FormatError):
        opened.load(rows=12, max_rows=34)
    with pytest.raises(FormatError):
        opened.buckets(np.array([1]), np.array([0]))


def test_an_older_chunk_replayed_under_the_new_name_is_refused(
    store: TableStore, arena: Arena
) -> None:
    older, newer = store.publish(arena, owner="o"), store.publish(filled(seed=1), owner="o")
    replayed = chunks(store, newer)
    replayed[2] = chunks(store, older)[2]
    changed(store, newer, replayed)
    refused(store, newer, 2, 0)


def test_all_of_an_older_set_under_the_new_name_is_refused(store: TableStore, arena: Arena) -> None:
    older, newer = store.publish(arena, owner="o"), store.publish(filled(seed=1), owner="o")
    changed(store, newer, chunks(store, older))
    refused(store, newer, 2, 0)


def test_a_chunk_cut_short_is_refused(store: TableStore, arena: Arena) -> None:
    generation = store.publish(arena, owner="o")
    found = chunks(store, generation)
    found[2] = found[2][:-1]
    changed(store, generation, found)
    with pytest.raises((FormatError, ExpiredError)):
        loaded(store, generation)


# --- sizes ---------------------------------------------------------------------------------------


def test_no_chunk_is_much_larger_than_a_megabyte(store: TableStore, arena: Arena) -> None:
    found = chunks(store, store.publish(arena, owner="o"))
    assert max(map(len, found)) <= CHUNK * 9 // 8 + TAG
    assert len(found) > len(LAYOUT.tables)


def test_sizes_follow_from_the_layout_alone(store: TableStore) -> None:
    sizes = [
        [len(chunk) for chunk in chunks(store, store.publish(filled(seed=seed), owner="o"))]
        for seed in (1, 2)
    ]
    assert all(one == other for one, other in pairwise(sizes))
