from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pyramidion import Pyramid
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import in_order
from tests.cli.shell import NOW, Shell, as_bytes
from tests.memory import in_memory
from tests.store.stores import DAY, SCHEMA, START, rows, tiny


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    with in_memory() as folder:
        yield Shell(folder, capsys)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with 36 days of rows: three sealed windows, three hot days."""
    folder = tmp_path_factory.mktemp("template")
    file = folder / "history.parquet"
    file.write_bytes(as_bytes(rows(3_600, START + np.arange(3_600) * DAY / 100), "parquet"))
    keys = f"file:{folder}/keys/store.key"
    with Pyramid.create(folder / "store", SCHEMA, tiny(), keys=keys, clock=lambda: NOW) as store:
        assert sum(r.accepted for r in store.replay(in_order([DataFile(file)], SCHEMA))) == 3_600
    return folder


@pytest.fixture
def filled(shell: Shell, template: Path) -> Shell:
    """A copy of that store."""
    shutil.copytree(template, shell.folder, dirs_exist_ok=True)
    return shell
