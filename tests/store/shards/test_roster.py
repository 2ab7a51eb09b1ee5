"""The roster: who takes part in a stream, and the keys that shards have in common."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pyramidion import FormatError, KeyHolderError, StateError
from pyramidion.storage import manifests
from pyramidion.storage.blocks import Generation
from pyramidion.storage.key_holders import FileHolder
from pyramidion.storage.manifests import Manifest
from pyramidion.storage.roster import Held, Roster, SharedWindow
from pyramidion.storage.tables import MemoryTables

MANIFEST = Manifest("one", "schema", "{}", 7, (), (), "text")


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    return Roster(FileHolder(tmp_path / "keys"), "clicks")


def window(shard: str = "one", file: str = "ab.tables", until: int = 9) -> SharedWindow:
    made = Generation.new("clicks.one")
    return SharedWindow(shard, file, until, Held(made.name, made.key, 3))


def test_all_shards_have_one_secret_and_streams_have_others(roster: Roster, tmp_path: Path) -> None:
    secret = roster.found("one")
    assert roster.join("two", most=2) == secret == roster.secret()
    other = Roster(FileHolder(tmp_path / "keys"), "sales")
    assert other.found("one") != secret
    assert set(roster.entries().members) == {"one", "two"}


def test_a_holder_without_the_stream_says_so(roster: Roster) -> None:
    for asked in (roster.secret, roster.entries, lambda: roster.join("one", most=2)):
        with pytest.raises(KeyHolderError, match="has no stream 'clicks'; mount it"):
            asked()


def test_the_newest_manifest_counts_and_the_one_before_opens_no_more(
    roster: Roster, tmp_path: Path
) -> None:
    roster.found("one")
    tables, former = MemoryTables(), None
    for passed in range(3):
        held = manifests.put(tables, replace(MANIFEST, passed=passed), "clicks.one")
        roster.tell("one", held)
        found = roster.member("one").manifest
        assert found == held
        assert manifests.get(tables, found).passed == passed
        assert former is None or former.key.hex() not in (tmp_path / "keys").read_text()
        former = held


def test_of_two_entries_that_a_crash_left_the_later_counts(roster: Roster) -> None:
    roster.found("one")
    tables = MemoryTables()
    held = manifests.put(tables, MANIFEST, "clicks.one")
    roster._add("shard.one.1", held.to_bytes())  # and killed before the former was dropped
    assert roster.member("one").manifest == held
    roster._add("left.one.1", held.to_bytes())  # and killed while it was removed
    assert not roster.member("one").active


def test_a_manifest_of_many_windows_is_read_as_it_was_written() -> None:
    layout = (2, 1, [{"name": "a" * 1000, "kind": "dense", "rows": 1, "width": 4, "bound": 9}])
    told = [
        (manifests.Told(f"{n}.tables", n, n, n, n + 1, n, 100, 0), layout) for n in range(20_000)
    ]
    whole = manifests.with_windows(MANIFEST, told)
    assert len(whole.layouts) == 1
    tables = MemoryTables()
    held = manifests.put(tables, whole, "clicks.one")
    assert manifests.chunks_of(held) == len(tables.chunks[held.name]) > 1
    assert manifests.get(tables, held) == whole


def test_a_manifest_that_was_changed_or_swapped_is_refused() -> None:
    tables = MemoryTables()
    held = manifests.put(tables, MANIFEST, "clicks.one")
    other = manifests.put(tables, MANIFEST, "clicks.two")
    tables.chunks[held.name], kept = tables.chunks[other.name], tables.chunks[held.name]
    with pytest.raises(FormatError):
        manifests.get(tables, held)
    tables.chunks[held.name] = [kept[0][:-1] + bytes([kept[0][-1] ^ 1])]
    with pytest.raises(FormatError):
        manifests.get(tables, held)


def test_a_dropped_key_is_in_no_byte_of_the_holder(roster: Roster, tmp_path: Path) -> None:
    roster.found("one")
    kept, gone = window(file="kept.tables"), window(file="gone.tables")
    roster.keep(kept)
    roster.keep(gone)
    roster.drop([gone])
    assert roster.entries().windows == (kept,)
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert gone.held.key.hex().encode() not in everything
    assert kept.held.key.hex().encode() in everything


def test_nothing_on_a_roster_or_in_its_errors_tells_a_key(roster: Roster) -> None:
    secret = roster.found("one")
    entry = window()
    roster.keep(entry)
    told = repr(roster.entries()) + repr(entry)
    assert entry.held.key.hex() not in told
    assert repr(entry.held.key) not in told
    with pytest.raises(StateError, match="has no shard 'tow'") as refused:
        roster.leave("tow")
    assert secret.hex() not in str(refused.value)


def test_the_last_shard_takes_the_stream_with_it(roster: Roster, tmp_path: Path) -> None:
    roster.found("one")
    roster.join("two", most=2)
    roster.forget("one")
    roster.secret()
    roster.forget("two")
    assert json.loads((tmp_path / "keys").read_text()) == {}
