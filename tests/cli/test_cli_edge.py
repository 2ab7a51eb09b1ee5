"""``edge``: mistakes are told in one sentence before anything is begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyramidion import cli
from tests.secrets_on_disk import secret
from tests.web.edge.conftest import ASKER, line


def run(folder: Path, *more: str, stream: str = "flights") -> int:
    token, hashes = folder / "token", folder / "hashes"
    given = ["edge", "--from", "http://127.0.0.1:1", "--token-file", str(token)]
    given += ["--token-hash-file", str(hashes), "--stream", stream, "--port", "0", *more]
    return cli.main(given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    secret(tmp_path / "token", ASKER)
    (tmp_path / "hashes").write_text(line(ASKER))
    return tmp_path


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--model", "clicks/late"), "names no stream of this edge"),
        (("--stream", "clicks", "--model", "late"), "write STREAM/MODEL"),
        (("--certificate", "x.pem"), "give both"),
        (("--every", "0"), "--every must be above 0"),
        (("--key", "00"), "no public key of a service"),
        (("--trust", "nowhere.pem"), "holds no certificates"),
    ],
)
def test_mistakes_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], told: str
) -> None:
    assert run(folder, *more) in (2, 3)
    assert told in capsys.readouterr().err


def test_a_token_file_holds_one_token(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("", f"{ASKER} {ASKER}"):
        secret(folder / "token", text)
        assert run(folder) == 2
        told = capsys.readouterr().err
        assert "must hold one token" in told
        assert ASKER not in told


def test_secrets_that_others_may_read_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], certificate: tuple[Path, Path]
) -> None:
    chain, key = map(str, certificate)
    pair = ("--certificate", chain, "--certificate-key", key)
    for secret_file in (folder / "token", Path(key)):
        secret_file.chmod(0o644)
        assert run(folder, *pair) == 3
        assert f"chmod 600 {secret_file}" in capsys.readouterr().err
        secret_file.chmod(0o600)


def test_hashes_that_others_may_change_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "hashes").chmod(0o664)
    assert run(folder) == 3
    assert "chmod go-w" in capsys.readouterr().err


def test_files_that_are_not_there_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "token").unlink()
    assert run(folder) == 3
    assert "token cannot be read (No such file" in capsys.readouterr().err
    (folder / "hashes").unlink()
    assert run(folder) == 3
    assert "file of token hashes, cannot be read" in capsys.readouterr().err
