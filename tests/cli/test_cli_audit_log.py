"""``audit-log``: shown, verified and exported without the store's lock or keys."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pyramidion import AuditLog, verify_lines
from tests.cli.shell import NOW, Done, Shell


@pytest.fixture
def kept(filled: Shell) -> Shell:
    """A store whose log tells more than that it was made."""
    assert filled("reseed", "--why", "a laptop\x1b[2J was stolen").code == 0
    return filled


def run(shell: Shell, verb: str, *words: object) -> Done:
    return shell.main("audit-log", verb, *map(str, words), "--data", str(shell.path))


def log(shell: Shell) -> AuditLog:
    return AuditLog.read(shell.path / "audit.db")


def tamper(shell: Shell, statement: str) -> None:
    with closing(sqlite3.connect(shell.path / "audit.db")) as db, db:
        db.execute(statement)


# --- show ---------------------------------------------------------------------------------


def test_show_lists_the_entries_for_people(kept: Shell) -> None:
    done = run(kept, "show")
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines] == ["entry", "0", "1", "2"]
    assert lines[0].split() == ["entry", "when", "what", "facts"]
    assert "log.genesis" in lines[1]
    assert "store.created" in lines[2]
    assert "1972-11-01 23:59  store.reseeded" in lines[3]
    assert '"a laptop\\u001b[2J was stolen"' in lines[3]
    assert "\x1b" not in done.out


def test_show_begins_where_it_is_asked_to(kept: Shell) -> None:
    lines = run(kept, "show", "--since", 2).out.splitlines()
    assert [line.split()[0] for line in lines] == ["entry", "2"]


def test_show_tells_programs_what_export_does(kept: Shell) -> None:
    told = run(kept, "show", "--json").out
    assert told == run(kept, "export").out
    assert [json.loads(line)["number"] for line in told.splitlines()] == [0, 1, 2]


def test_show_cuts_long_facts(filled: Shell) -> None:
    filled("reseed", "--why", "x" * 900)
    assert max(map(len, run(filled, "show").out.splitlines())) < 160
    assert run(filled, "show").out.rstrip().endswith("...")


def test_show_sends_who_meets_an_edited_entry_to_verify(kept: Shell) -> None:
    tamper(kept, "UPDATE entries SET line = '{}' WHERE number = 1")
    done = run(kept, "show")
    assert done.code == 3
    assert "entry 1 of" in done.err
    assert "verify the log" in done.err


# --- verify ---------------------------------------------------------------------------------


def test_a_sound_log_ends_with_0_and_tells_what_to_note(kept: Shell) -> None:
    done = run(kept, "verify")
    with closing(log(kept)) as found:
        assert done.out.splitlines() == [
            "sound: 3 entries",
            f"first  {found.first}",
            f"head   {found.head}",
        ]
        assert run(kept, "verify", "--head", found.head, "--first", found.first).code == 0
    assert done.code == 0


def test_verify_tells_programs(kept: Shell) -> None:
    with closing(log(kept)) as found:
        assert run(kept, "verify", "--json").told == {
            "sound": True,
            "entries": 3,
            "first": found.first,
            "head": found.head,
            "problems": [],
        }


def test_all_problems_are_listed_and_the_code_is_1(kept: Shell) -> None:
    tamper(kept, "UPDATE entries SET line = replace(line, 'store.', 'shop.')")
    done = run(kept, "verify")
    assert done.code == 1
    assert "entry 1 was edited: its hash is not that of its contents" in done.out
    assert "entry 2 was edited: its hash is not that of its contents" in done.out
    assert done.out.splitlines()[-1] == "not sound: 4 problems in 3 entries"
    told = json.loads(run(kept, "verify", "--json").out)
    assert (told["sound"], len(told["problems"])) == (False, 4)


def test_a_tail_that_was_cut_off_is_found(kept: Shell) -> None:
    tamper(kept, "DELETE FROM entries WHERE number = 2")
    assert "entries after it were cut off" in run(kept, "verify").out


def test_a_noted_head_is_asked_for(kept: Shell) -> None:
    done = run(kept, "verify", "--head", "ab" * 32)
    assert done.code == 1
    assert "the noted head is not in the log" in done.out
    assert "this is another log" in run(kept, "verify", "--first", "ab" * 32).out


def test_a_mistyped_hash_is_a_mistake(kept: Shell) -> None:
    done = run(kept, "verify", "--head", "abc")
    assert done.code == 2
    assert "64 hexadecimal digits" in done.err


def test_a_file_that_is_no_log_is_not_sound(kept: Shell) -> None:
    (kept.path / "audit.db").write_bytes(b"something else " * 400)
    done = run(kept, "verify")
    assert done.code == 1
    assert "is damaged or not an audit log" in done.out
    assert json.loads(run(kept, "verify", "--json").out)["sound"] is False


def test_an_export_is_verified_without_the_store(kept: Shell) -> None:
    file = kept.folder / "log.jsonl"
    run(kept, "export", "--output", file)
    with closing(log(kept)) as found:
        head = found.head
    shutil.rmtree(kept.path)
    assert kept.main("audit-log", "verify", str(file), "--head", head).code == 0
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    assert kept.main("audit-log", "verify", str(file)).code == 0
    assert kept.main("audit-log", "verify", str(file), "--head", head).code == 1
    file.write_bytes(b"\xff\xfe\n")
    assert "entry 0 was edited" in kept.main("audit-log", "verify", str(file)).out


def test_verify_takes_a_store_or_an_export(kept: Shell) -> None:
    for words in ((), ("log.jsonl", "--data", str(kept.path))):
        done = kept.main("audit-log", "verify", *words)
        assert done.code == 2
        assert "give --data or a file" in done.err


def test_a_backup_is_sound_and_in_the_store_s_place_it_is_not(kept: Shell) -> None:
    backup = kept.folder / "backup"
    assert kept("backup", backup).code == 0
    assert kept.main("audit-log", "verify", "--data", str(backup)).code == 0
    shutil.copy(backup / "audit.db", kept.path / "audit.db")
    assert run(kept, "verify").code == 1


# --- export ---------------------------------------------------------------------------------


def test_export_writes_json_lines(kept: Shell) -> None:
    file = kept.folder / "log.jsonl"
    assert run(kept, "export", "--output", file).out == f"wrote {file}: 3 entries\n"
    assert verify_lines(file.read_text().splitlines()).sound
    assert run(kept, "export").out == file.read_text()
    other = kept.folder / "tail.jsonl"
    told = run(kept, "export", "--since", 2, "--output", other, "--json").told
    assert told == {"output": str(other), "entries": 1}


def test_export_overwrites_nothing(kept: Shell) -> None:
    file = kept.folder / "log.jsonl"
    file.write_text("mine")
    done = run(kept, "export", "--output", file)
    assert done.code == 2
    assert "exists already" in done.err
    assert file.read_text() == "mine"


# --- a store that is in use -------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["show", "verify", "export"])
def test_a_store_that_is_open_is_not_disturbed(kept: Shell, verb: str) -> None:
    with kept.open(NOW) as store:
        assert run(kept, verb).code == 0
        store.admin.reseed(why="meanwhile")
        assert store.audit_log.verify().sound
        assert run(kept, verb).code == 0


@pytest.mark.parametrize("verb", ["show", "verify", "export"])
def test_looking_needs_no_key_and_leaves_the_log_as_it_was(kept: Shell, verb: str) -> None:
    os.unlink(kept.keys.removeprefix("file:"))
    before = (kept.path / "audit.db").read_bytes()
    assert run(kept, verb).code == 0
    assert (kept.path / "audit.db").read_bytes() == before


@pytest.mark.parametrize("verb", ["show", "verify", "export"])
def test_a_place_without_a_log_is_named(shell: Shell, verb: str) -> None:
    done = run(shell, verb)
    assert done.code == 3
    assert "there is no audit log at" in done.err
    assert not Path(shell.path).exists()
