"""The commands that docs/backends.md starts table stores with, run as they stand there.

Only folders, ports and programs are others: those of a test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from pyramidion.storage.tables import tables_at
from tests.conftest import ROOT
from tests.ports import free_port
from tests.redis_servers import needed
from tests.store.stores import DAY, Stand, observed, rows
from tests.test_docs import blocks
from tests.waiting import PATIENCE

SHARE = "pyramidion share "


@pytest.fixture
def rolled(stand: Stand) -> Stand:
    """A store with a sealed window."""
    store = stand.create()
    observed(store, rows(50, stand.clock.now))
    stand.clock.pass_(10 * DAY)
    store.advance()
    return stand


def command(stand: Stand, ports: dict[str, int], has: str) -> str:
    """The block that has a word, for here."""
    page = ROOT / "docs" / "backends.md"
    (text,) = [b.text for b in blocks(page) if b.language == "shell" and has in b.text]
    stand.close()
    now = datetime.fromtimestamp(stand.clock.now, UTC).isoformat()
    text = text.replace("--data flights", f"--data {stand.path} --now {now}")
    text = text.replace("/srv/", f"{stand.folder}/")
    text = text.replace("--keys file:flights.key", f"--keys {stand.given['keys']}")
    text = text.replace(SHARE, f"{sys.executable} -m pyramidion share ")
    for port, here in ports.items():
        text = text.replace(port, str(here))
    return f"set -e\n{text}"


def run(text: str, **more: str) -> None:
    words = ["bash", "-c", text]
    subprocess.run(words, cwd=ROOT, env=os.environ | more, check=True, timeout=PATIENCE)


@contextmanager
def ended(*ports: int, password: str = "") -> Iterator[None]:
    """Redis servers that are ended in the end."""
    try:
        yield
    finally:
        for port in ports:
            asked = ["redis-cli", "-p", str(port), *(["-a", password] if password else [])]
            subprocess.run([*asked, "shutdown", "nosave"], check=False, capture_output=True)


def shares(stand: Stand) -> bool:
    """Whether the store has tables there, by its own word."""
    told = stand.open().status().shared
    return told is not None and told.current and not told.problem


@pytest.mark.slow
def test_redis_is_started_as_the_documents_say(rolled: Stand) -> None:
    needed()
    port, word = free_port(), "open-sesame"
    with ended(port, password=word):
        run(command(rolled, {"6379": port}, "--requirepass"), REDIS_PASSWORD=word)
        assert shares(rolled)
        assert len(tables_at(f"redis://:{word}@127.0.0.1:{port}/0").names()) == 1


@pytest.mark.slow
def test_a_redis_cluster_is_started_as_the_documents_say(rolled: Stand) -> None:
    needed()
    ports = {str(7001 + number): free_port() for number in range(3)}
    with ended(*ports.values()):
        run(command(rolled, ports, "--cluster create"))
        assert shares(rolled)
        assert len(tables_at(f"redis+cluster://127.0.0.1:{ports['7002']}").names()) == 1


@pytest.mark.slow
def test_cassandra_is_started_as_the_documents_say(rolled: Stand) -> None:
    pytest.importorskip("cassandra", reason="cassandra-driver is not installed here")
    from tests.cassandra_nodes.ring import AbsentError, fetched, java

    try:
        fetched()
        program = java()
    except AbsentError as reason:
        pytest.skip(str(reason))
    ports = {port: free_port() for port in ("9042", "7000")}
    text = command(rolled, ports, "CassandraDaemon").replace("\njava ", f"\n{program} ")
    text = text.replace("2>&1 &", f"2>&1 & echo $! > {rolled.folder}/pid")
    try:
        run(text)
        assert shares(rolled)
        store = tables_at(f"cassandra://127.0.0.1:{ports['9042']}/shared")
        assert len(store.names()) == 1
        store.close()
    finally:
        rolled.close()
        os.kill(int((rolled.folder / "pid").read_text()), signal.SIGKILL)
