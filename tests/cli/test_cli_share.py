"""``share``: the complete tables for readers elsewhere, by command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyramidion.storage.tables import FileTables
from tests.cli.shell import Shell
from tests.store.stores import DAY, START, rows


@pytest.fixture
def filled(shell: Shell) -> Shell:
    shell.create()
    shell("import", shell.saved(rows(100, START + np.arange(100) * DAY / 5), "history.parquet"))
    return shell


def test_tables_are_shared_until_told_to_stop(filled: Shell, tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'shared'}"
    assert filled("share", url).out == f"complete tables are shared at {url}\n"
    assert len(FileTables(tmp_path / "shared").names()) == 1
    assert f"shared   complete tables at {url}" in filled("status").out
    assert filled("status", "--json").told["shared"]["at"] == url
    assert filled("share", "--stop").out.startswith("tables are shared no more")
    assert FileTables(tmp_path / "shared").names() == {}
    assert "shared" not in filled("status", "--json").told


def test_a_store_may_be_made_to_share(shell: Shell, tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'shared'}"
    made = shell("create", shell.schema(), "--tables", url)
    assert f"complete tables are shared at {url}" in made.out


def test_the_url_may_stand_in_the_environment(
    filled: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_TABLES", f"file:{tmp_path / 'shared'}")
    assert filled("share", "env:OUR_TABLES", "--json").told == {
        "shared": f"file:{tmp_path / 'shared'}"
    }
    assert "the environment has no NO_TABLES" in filled("share", "env:NO_TABLES").err


def test_mistakes_are_one_sentence(filled: Shell) -> None:
    filled("advance")
    for words, said in (
        ((), "or --stop"),
        (("file:/x", "--stop"), "or --stop"),
        (("ftp://somebody:secret@host",), "no URL of a table store"),
        (("--stop",), "shares no tables"),
    ):
        done = filled("share", *words)
        assert done.code == 2
        assert said in done.err
        assert "secret" not in done.err
        assert done.err.count("\n") == 1
