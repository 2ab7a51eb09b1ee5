"""The guide in docs/service.md, command by command: from nothing to predictions by it alone."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(
    shutil.which("curl") is None, reason="the guide calls curl, which is not installed here"
)

PAGE = Path(__file__).parents[3] / "docs" / "service.md"
FENCE = re.compile(r"^```(\w+) ?(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
COMMAND = re.compile(r"^(?:host|you)\$ (.*)\n((?:(?!(?:host|you)\$ ).*\n)*)", re.MULTILINE)
PORT = "8780"


def alike(wanted: str, got: str) -> bool:
    """Whether it was printed, but for ``...`` and ends of lines."""
    ellipsis = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(wanted.strip(), got.strip(), ellipsis)


class Shell:
    """One machine: a directory, a program in the path, and a port that is free."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        script = folder / "bin" / "pyramidion"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pyramidion "$@"\n')
        script.chmod(0o755)
        self._port = str(free_port())
        self.behind: subprocess.Popen[bytes] | None = None

    @property
    def _given(self) -> dict[str, object]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {"cwd": self.folder, "env": {**os.environ, "PATH": path}, "text": True}

    def run(self, command: str, printed: str) -> None:
        """Run a command of the page; it must print what the page says."""
        if command.endswith(" &"):
            self._start(command.removesuffix(" &"), printed)
        elif command == "kill %1":
            self.stop()
        else:
            words = ["bash", "-c", command.replace(PORT, self._port)]
            done = subprocess.run(  # type: ignore[call-overload]
                words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **self._given
            )
            assert alike(printed, done.stdout), f"$ {command}\n{done.stdout}"

    def _start(self, command: str, printed: str) -> None:
        words = ["bash", "-c", f"exec {command} --port {self._port}"]
        with (self.folder / "log").open("wb") as log:
            self.behind = subprocess.Popen(  # type: ignore[call-overload]
                words, stdout=subprocess.PIPE, stderr=log, **self._given
            )
        assert self.behind.stdout is not None
        assert alike(printed.replace(PORT, self._port), str(self.behind.stdout.readline()))

    def stop(self) -> None:
        """Stop what runs behind, in order."""
        assert self.behind is not None
        self.behind.terminate()
        assert self.behind.wait(PATIENCE) == 0

    def end(self) -> None:
        """Whatever became of it."""
        if self.behind is not None:
            if self.behind.poll() is None:
                self.behind.kill()
                self.behind.wait()
            assert self.behind.stdout is not None
            self.behind.stdout.close()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.end()


def test_a_stranger_with_the_page_alone_gets_to_predictions(shell: Shell) -> None:
    commands = 0
    for language, name, block in FENCE.findall(PAGE.read_text("utf-8")):
        if name:
            (shell.folder / name).write_text(block, "utf-8")
        elif language == "shell":
            for command, printed in COMMAND.findall(block):
                shell.run(command, printed)
                commands += 1
    assert commands > 15
    token = (shell.folder / "token").read_text().strip()
    secret = token.rpartition("_")[2]
    data = [path for path in (shell.folder / "data").rglob("*") if path.is_file()]
    assert data
    for path in [*data, shell.folder / "log"]:
        assert secret.encode() not in path.read_bytes()
