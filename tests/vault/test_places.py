"""Places: the same contract for a local directory and for what fsspec reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pyramidion import SchemaError, StorageError
from pyramidion.vault.places import Folder, Place, Remote, place_at
from tests.store.stores import HOUR, Stand, observed, rows
from tests.vault.vaults import batches, vault_of


@pytest.fixture(params=["path", "file", "memory", "local", "dir"])
def url(request: Any, tmp_path: Path) -> str:
    return {
        "path": str(tmp_path / "vault"),
        "file": f"file://{tmp_path}/vault",
        "memory": f"memory://{uuid4().hex}/vault",
        "local": f"local://{tmp_path}/vault",
        "dir": f"simplecache::memory://{uuid4().hex}/vault",
    }[request.param]


@pytest.fixture
def place(url: str) -> Place:
    made = place_at(url)
    made.make()
    return made


def test_what_was_put_is_there(place: Place) -> None:
    place.put("b", b"two")
    place.put("a", memoryview(b"one"))
    assert place.names() == ["a", "b"]
    assert (place.get("a"), place.size("b")) == (b"one", 3)


def test_what_is_put_again_is_replaced(place: Place) -> None:
    place.put("a", b"one")
    place.put("a", b"other")
    assert (place.names(), place.get("a")) == (["a"], b"other")


def test_what_is_not_there_is_named(place: Place) -> None:
    assert place.size("nothing") is None
    with pytest.raises(StorageError, match="nothing"):
        place.get("nothing")


def test_deleting_twice_is_harmless(place: Place) -> None:
    place.put("a", b"one")
    place.delete("a")
    place.delete("a")
    assert place.names() == []


def test_a_store_seals_there(place: Place, url: str, stand: Stand) -> None:
    stand.vault = url
    store = stand.create()
    observed(store, rows(5))
    stand.clock.pass_(HOUR)
    store.advance()
    vault_of(store).carry()
    assert len(place.names()) == 2
    assert vault_of(store).verify() == []
    assert batches(stand.reopen())[1].num_rows == 5


def test_a_file_that_broke_off_has_no_name(tmp_path: Path, monkeypatch: Any) -> None:
    place = Folder(tmp_path)

    def broken(*_: Any) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(StorageError, match="full disk"):
        place.put("a", b"one")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_gone_is_down_and_not_made_again(tmp_path: Path) -> None:
    place = place_at(str(tmp_path / "unmounted"))
    with pytest.raises(StorageError):
        place.put("a", b"one")
    assert not (tmp_path / "unmounted").exists()


@pytest.mark.parametrize("url", ["s3://user:secret@host/x", "memory://x?key=secret", " "])
def test_a_url_with_a_password_or_nothing_in_it_is_refused(url: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        place_at(url)
    assert "secret" not in str(refusal.value)


def test_a_scheme_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SchemaError, match="does not reach"):
        Remote("nowhere://x").make()
