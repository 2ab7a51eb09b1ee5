"""The guide in docs/vault-access.md, command by command: what it says is what happens.

Each prompt is a machine of its own, here a directory; ``store$`` has the files that the page
shows. Every command is a process of its own, and prints what the page says. Nobody sleeps: the
clock that all of them go by is moved.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyramidion.storage.audit_log import AuditLog
from tests.clocked import Moved
from tests.forking import output_of
from tests.waiting import PATIENCE

PAGE = Path(__file__).parents[2] / "docs" / "vault-access.md"
FENCE = re.compile(r"^```(\w+) ?(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
COMMAND = re.compile(r"^(\w+)\$ (.*)\n((?:(?!\w+\$ ).*\n)*)", re.MULTILINE)
MACHINES = ("custodian", "store", "ada")


@dataclass
class World:
    """The machines, and what runs in the background."""

    folder: Path
    clock: Moved
    behind: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def environment(self, machine: str) -> dict[str, str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        given = {"PATH": path, "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}
        given["PYTHONPATH"] = os.pathsep.join(
            (str(PAGE.parents[1]), os.environ.get("PYTHONPATH", ""))
        )
        passphrase = {} if machine == "store" else {"PYRAMIDION_PASSPHRASE": f"{machine}'s secret"}
        return {**os.environ, **given, **passphrase}

    def run(self, machine: str, command: str, printed: str) -> None:
        if command.endswith(" &"):
            self.start(machine, command.removesuffix(" &"), printed)
            return
        if command == "kill %1":
            self.stop(printed)
            return
        if command.startswith("sleep "):
            self.clock.pass_(float(command.removeprefix("sleep ")))
            return
        ours = command.startswith("pyramidion ")
        found = self.shell(machine, f"printf '%s\\0' {command}" if ours else command)
        if ours:  # the shell has only split it into words
            _, *words, _ = found.split("\0")
            where = self.folder / machine, self.environment(machine)
            found = output_of(words, *where, self.clock.file)
        assert alike(printed, found), f"{machine}$ {command}\n{found}"

    def shell(self, machine: str, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],  # noqa: S607
            cwd=self.folder / machine,
            env=self.environment(machine),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout

    def start(self, machine: str, command: str, printed: str) -> None:
        told = self.folder / "told"
        with told.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],  # noqa: S607
                cwd=self.folder / machine,
                env=self.environment(machine),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self.behind.append((process, told))
        end = time.monotonic() + PATIENCE
        while not alike(printed, told.read_text()):
            assert process.poll() is None, told.read_text()
            assert time.monotonic() < end, told.read_text()
            time.sleep(0.1)

    def stop(self, printed: str) -> None:
        process, told = self.behind.pop()
        before = len(told.read_text())
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert alike(printed, told.read_text()[before:])


def alike(wanted: str, got: str) -> bool:
    return doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS)


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    for name in (*MACHINES, "bin"):
        (folder / name).mkdir()
    clock = Moved(folder / "clock", time.time())
    script = folder / "bin" / "pyramidion"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(clock.words("pyramidion"))} "$@"\n')
    script.chmod(0o755)
    made = World(folder, clock)
    yield made
    for process, _ in made.behind:
        process.kill()
        process.wait()


def test_a_person_with_the_page_alone_gets_through(world: World) -> None:
    text = PAGE.read_text("utf-8")
    for language, name, block in FENCE.findall(text):
        if name:
            (world.folder / "store" / name).write_text(block, "utf-8")
        elif language == "shell":
            for machine, command, printed in COMMAND.findall(block):
                world.run(machine, command, printed)
    log = AuditLog.read(world.folder / "store" / "shop" / "audit.db")
    try:
        assert log.verify().sound
        kinds = [entry.kind for entry in log.entries()]
    finally:
        log.close()
    assert {kind for kind in kinds if kind.startswith("vault.")} == {
        *("vault.sealed", "vault.stored", "vault.broker", "vault.requested", "vault.granted"),
        *("vault.opened", "vault.refused", "vault.expired", "vault.revoked"),
    }
    assert kinds.count("vault.opened") == 1
    assert not (world.folder / "store" / "shop" / "broker.json").exists()
    private = (world.folder / "custodian" / "custodian.key").read_text()
    assert not any(
        private in path.read_text("utf-8", "replace")
        for path in (world.folder / "store").rglob("*")
        if path.is_file()
    )
