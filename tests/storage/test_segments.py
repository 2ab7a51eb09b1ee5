"""Segments: records appended to encrypted files, and nothing beyond what was acknowledged."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyramidion.errors import FormatError, StorageError
from pyramidion.storage import disk
from pyramidion.storage.ciphers import sealed_size
from pyramidion.storage.disk import explained, remove, told, write_durably
from pyramidion.storage.segments import Segments

KEY = bytes(range(32))


@pytest.fixture
def segments(tmp_path: Path) -> Iterator[Segments]:
    made = Segments(tmp_path)
    yield made
    made.close()


def append(segments: Segments, file: str, start: int, data: bytes, context: str) -> int:
    return segments.append(file, start, lambda: data, KEY, context).result()


def test_records_lie_one_behind_the_other(segments: Segments) -> None:
    start, places = 0, []
    for number, data in enumerate((b"one", b"", b"three" * 1_000)):
        length = append(segments, "x.rows", start, data, f"batch {number}")
        assert length == sealed_size(len(data))
        places.append((start, length, data))
        start += length
    assert (segments.folder / "x.rows").stat().st_size == start
    for number, (at, length, data) in enumerate(places):
        assert segments.read("x.rows", at, length, KEY, f"batch {number}") == data


def test_a_record_that_was_never_acknowledged_is_written_over(segments: Segments) -> None:
    first = append(segments, "x.rows", 0, b"one", "batch 1")
    append(segments, "x.rows", first, b"never acknowledged, and longer", "batch 2")
    second = append(segments, "x.rows", first, b"two", "batch 2")
    assert (segments.folder / "x.rows").stat().st_size == first + second
    assert segments.read("x.rows", first, second, KEY, "batch 2") == b"two"


def test_a_record_opens_as_the_batch_it_is_alone(segments: Segments) -> None:
    length = append(segments, "x.rows", 0, b"one", "batch 1")
    with pytest.raises(FormatError, match=r"x\.rows is damaged"):
        segments.read("x.rows", 0, length, KEY, "batch 2")


def test_several_files_take_turns(segments: Segments) -> None:
    one = append(segments, "x.rows", 0, b"one", "batch 1")
    append(segments, "y.rows", 0, b"other", "batch 2")
    two = append(segments, "x.rows", one, b"two", "batch 3")
    assert segments.read("x.rows", one, two, KEY, "batch 3") == b"two"


def test_only_the_owner_can_read_them(segments: Segments) -> None:
    append(segments, "x.rows", 0, b"one", "batch 1")
    assert stat.S_IMODE((segments.folder / "x.rows").stat().st_mode) == 0o600


def test_what_is_beyond_the_acknowledged_length_is_cut_off(segments: Segments) -> None:
    path = segments.folder / "x.rows"
    path.write_bytes(b"acknowledged, and half a record")
    segments.cut("x.rows", 12)
    assert path.read_bytes() == b"acknowledged"
    segments.cut("x.rows", 12)
    assert path.read_bytes() == b"acknowledged"


def test_a_file_that_lacks_what_was_acknowledged_is_refused(segments: Segments) -> None:
    (segments.folder / "x.rows").write_bytes(b"short")
    with pytest.raises(FormatError, match=r"x\.rows is cut off; restore"):
        segments.cut("x.rows", 6)


def test_a_file_that_is_gone_says_so(segments: Segments) -> None:
    with pytest.raises(StorageError, match=r"x\.rows is not there"):
        segments.cut("x.rows", 6)


@pytest.mark.parametrize("call", ["ftruncate", "write", "fdatasync"])
def test_whatever_call_fails_the_promise_breaks_and_the_next_append_works(
    segments: Segments, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    append(segments, "x.rows", 0, b"one", "batch 1")
    with monkeypatch.context() as patch:

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "full")

        patch.setattr(os, call, full)
        with pytest.raises(StorageError, match=r"x\.rows is on a full disk"):
            append(segments, "x.rows", 47, b"two", "batch 2")
    length = append(segments, "x.rows", 47, b"two", "batch 2")
    assert segments.read("x.rows", 47, length, KEY, "batch 2") == b"two"


# --- the disk -------------------------------------------------------------------------------


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(disk.os, "write", lambda fd, data: real(fd, data[:3]))
    write_durably(tmp_path / "x", [b"some", b"thing"])
    assert (tmp_path / "x").read_bytes() == b"something"


def test_a_file_that_could_not_be_written_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(StorageError, match="full disk"):
        write_durably(tmp_path / "x", broken())
    assert not (tmp_path / "x").exists()


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"here already")
    with pytest.raises(StorageError):
        write_durably(tmp_path / "x", [b"new"])
    assert (tmp_path / "x").read_bytes() == b"here already"


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    remove(tmp_path, ["x", "y"])
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT, errno.EIO, errno.EDQUOT, 0]
)
def test_errors_of_the_disk_name_the_path_and_a_remedy(code: int) -> None:
    found = str(told(OSError(code, "x"), "/stores/x"))
    assert found.startswith("/stores/x ")
    assert "; " in found


def test_an_error_that_is_explained_already_stays_as_it_is() -> None:
    with pytest.raises(StorageError, match=r"^in our own words$"), explained("/stores/x"):
        raise StorageError("in our own words")
