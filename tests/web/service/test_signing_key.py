"""The key that a service signs with: whole, its own, and never a traceback."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pyramidion.counts.signing import key_text
from pyramidion.errors import FormatError, StorageError
from pyramidion.web.service.service import Service


def started(folder: Path) -> str:
    """The public key of a service."""
    with Service(folder, keys=f"file:{folder}-keys/{{stream}}") as service:
        return key_text(service.signer.public_key())


@pytest.fixture
def key(tmp_path: Path) -> Path:
    started(tmp_path / "data")
    return tmp_path / "data" / ".service" / "signing.key"


def test_key_is_kept_and_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        first = started(tmp_path / "data")
    finally:
        os.umask(before)
    path = tmp_path / "data" / ".service" / "signing.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert started(tmp_path / "data") == first


@pytest.mark.parametrize("length", [0, 1, 31, 33])
def test_torn_key_is_named_with_its_remedy(key: Path, length: int) -> None:
    key.write_bytes(bytes(length))
    with pytest.raises(FormatError, match=r"signing.key, .* is damaged; restore it, or remove it"):
        started(key.parent.parent)


def test_torn_key_ends_the_command_in_one_sentence(key: Path) -> None:
    key.write_bytes(b"torn")
    words = ["serve", "--data", str(key.parent.parent), "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "pyramidion", *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 3
    assert "is damaged; restore it" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_key_that_others_may_read_is_refused(key: Path, mode: int) -> None:
    key.chmod(mode)
    with pytest.raises(StorageError, match=f"chmod 600 {key}"):
        started(key.parent.parent)


def test_kill_while_the_key_is_written_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pyramidion.web.service.service import Service\n"
        "folder = Path(sys.argv[1]); Service(folder, keys=f'file:{folder}-keys/{{stream}}')\n"
    )
    (tmp_path / "data" / ".service").mkdir(parents=True)
    (tmp_path / "data" / ".service" / ".tokens.json.new").touch(0o600)
    known = os.environ | {"PYRAMIDION_KILL_AT": "draft.written"}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "data")], env=known)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "data" / ".service" / "signing.key").exists()
    first = started(tmp_path / "data")
    assert started(tmp_path / "data") == first
    left = {path.name for path in (tmp_path / "data" / ".service").iterdir()}
    assert left == {"signing.key", "tokens.lock"}
