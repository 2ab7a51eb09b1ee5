"""``join`` and ``shards``: stores that take rows of one stream together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyramidion import AuditLog, Pyramid
from pyramidion.cli import main
from tests.cli.shell import Done
from tests.store.stores import DAY, SCHEMA, START, TINY, rows


@pytest.fixture
def files(tmp_path: Path) -> Path:
    knobs = TINY | {"shards": 2, "weights": "equal"}
    told = [f"{knob} = {json.dumps(value)}" for knob, value in knobs.items()]
    settings = "\n".join(["[settings]", *told])
    (tmp_path / "clicks.toml").write_text(f"{SCHEMA.to_toml()}\n{settings}\n")
    return tmp_path


def shared(files: Path, name: str) -> list[object]:
    keys, tables = f"file:{files}/keys/clicks", f"file:{files}/shared"
    return ["--stream", "clicks", "--shard", name, "--stream-keys", keys, "--stream-tables", tables]


def ran(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    node: str,
    *words: object,
    now: float = START,
) -> Done:
    given = ["--data", files / node, "--keys", f"file:{files}/keys/{node}", "--now", now]
    capsys.readouterr()
    code = main([str(word) for word in [*words, *given]])
    return Done(code, *capsys.readouterr())


def test_shards_are_made_shown_and_removed(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = ran(files, capsys, "one", "create", files / "clicks.toml", *shared(files, "one"))
    assert "it is shard one of stream clicks, which has room for 2 shards\n" in made.out
    joined = ran(files, capsys, "two", "join", *shared(files, "two"), "--json").told
    assert joined["shard"]["shards"] == {"one": 0, "two": 0}
    for name in ("one", "two"):
        given = {"keys": f"file:{files}/keys/{name}", "clock": lambda: START}
        with Pyramid.open(files / name, **given) as store:
            store.observe(rows(20))
    later = START + 10 * DAY
    assert ran(files, capsys, "one", "advance", now=later).code == 0
    assert ran(files, capsys, "two", "advance", now=later).code == 0
    assert ran(files, capsys, "two", "shards", "--json", now=later).told["rows"] == 40
    shown = ran(files, capsys, "one", "shards", now=later).out
    assert "stream clicks: 2 of 2 shards; this is one\n" in shown
    assert "the sum has 40 rows in 2 windows, 0 more wait\n" in shown
    assert "one of stream clicks, 2 shards: 40 rows in all" in (
        ran(files, capsys, "one", "status", now=later).out
    )
    assert "one of at most 2 shards" in ran(files, capsys, "one", "ledger", now=later).out
    left = ran(files, capsys, "one", "shards", "--remove", "two", "--why", "lost", now=later)
    assert left.out.splitlines()[-1].split() == ["two", "removed", "1"]
    log = [entry.kind for entry in AuditLog(files / "one" / "audit.db").entries()]
    assert log[-1] == "shard.removed"


def test_half_of_what_a_shard_needs_is_refused(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = ran(files, capsys, "one", "create", files / "clicks.toml", "--stream", "clicks")
    assert (done.code, done.out) == (2, "")
    assert "a shard needs --stream, --shard, --stream-keys and --stream-tables" in done.err


def test_a_store_that_is_no_shard_says_so(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (files / "clicks.toml").read_text().replace("shards = 2\n", "")
    (files / "clicks.toml").write_text(text)
    assert ran(files, capsys, "one", "create", files / "clicks.toml").code == 0
    done = ran(files, capsys, "one", "shards")
    assert "is no shard of a stream; join one, or create one" in done.err
    refused = ran(files, capsys, "one", "shards", "--remove", "two", "--why", "lost")
    assert "is no shard of a stream" in refused.err


def test_a_removal_needs_a_reason_and_a_shard_that_is_there(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(files, capsys, "one", "create", files / "clicks.toml", *shared(files, "one"))
    assert "give --why" in ran(files, capsys, "one", "shards", "--remove", "two").err
    done = ran(files, capsys, "one", "shards", "--remove", "tow", "--why", "lost")
    assert "has no shard 'tow' on its roster" in done.err
