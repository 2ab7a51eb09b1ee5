"""Secrets on disk: read from files that their owner alone may read, refused from others."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pyramidion.config.secret_files import read_secret, refuse_exposed
from pyramidion.errors import KeyHolderError, StorageError
from tests.secrets_on_disk import secret


def found(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))


@pytest.fixture
def someone(monkeypatch: pytest.MonkeyPatch) -> int:
    """Who runs this: not root."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return 1000


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_file_of_its_owner_alone_is_read(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path / "key", "text")
    path.chmod(mode)
    assert read_secret(path) == b"text"


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o644, 0o777])
def test_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path / "key", "text")
    path.chmod(mode)
    with pytest.raises(StorageError, match=f"chmod 600 {path}") as caught:
        read_secret(path)
    assert "text" not in str(caught.value)


def test_foreign_owner_is_named(someone: int) -> None:
    path = Path("/x/key")
    with pytest.raises(KeyHolderError, match=f"another user .number 7.*chown {someone} /x/key"):
        refuse_exposed(path, found(0o644, 7), KeyHolderError)


def test_root_may_give_a_secret_to_a_group(someone: int) -> None:
    path = Path("/x/key")
    for mode in (0o640, 0o440, 0o600):
        refuse_exposed(path, found(mode, 0))
    for mode in (0o660, 0o644, 0o604):
        with pytest.raises(StorageError, match="chmod 600"):
            refuse_exposed(path, found(mode, 0))
    with pytest.raises(StorageError, match="chmod 600"):
        refuse_exposed(path, found(0o640, someone))


def test_pipe_is_read_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    writer = os.open(pipe, os.O_RDWR)
    try:
        refuse_exposed(pipe, os.fstat(writer))
    finally:
        os.close(writer)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"nowhere cannot be read .No such file"):
        read_secret(tmp_path / "nowhere")
