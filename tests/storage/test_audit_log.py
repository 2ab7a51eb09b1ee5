"""The audit log: nothing in it can be changed, removed or moved without being found."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
import stat
import string
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pyramidion import AuditLog, Entry, Pyramid, Verification, verify_lines
from pyramidion.errors import FormatError, SchemaError, StateError, StorageError
from pyramidion.storage import audit_log
from pyramidion.storage.audit_chain import GENESIS, canonical, public, signed
from tests.dying import ended, started
from tests.store import inspect
from tests.store.stores import DAY, Stand, observed, rows

SIZE = 6
FIELDS = ("number", "at", "kind", "facts", "previous", "next", "signature", "hash")
LINES: list[str] = []
"""An export of `SIZE` entries, made once."""


def filled(path: Path, size: int = SIZE) -> AuditLog:
    """A log with some entries, the one of the genesis among them."""
    log = AuditLog(path)
    for number in range(1, size):
        log.append("vault.opened", number * 100, files=["a", "b"], rows=number, grant=None)
    return log


@pytest.fixture
def path(stand: Stand) -> Path:
    return stand.folder / "audit.db"


@pytest.fixture
def log(path: Path) -> Iterator[AuditLog]:
    with closing(filled(path)) as made:
        yield made


@pytest.fixture
def lines(log: AuditLog) -> list[str]:
    return list(log.export())


def sql(path: Path, *statements: tuple[Any, ...]) -> None:
    """Change the file behind the log's back."""
    with closing(sqlite3.connect(path)) as db, db:
        for statement, *values in statements:
            db.execute(statement, values)


def private(path: Path) -> bytes:
    """The key that signs the next entry."""
    with closing(sqlite3.connect(path)) as db:
        return bytes(db.execute("SELECT private FROM signer").fetchone()[0])


def edited(line: str, **fields: Any) -> str:
    return canonical(json.loads(line) | fields) + "\n"


def rehashed(line: str, **fields: Any) -> str:
    """An edited entry whose hash fits again: anybody can compute that."""
    entry = Entry.of(edited(line, **fields))
    return edited(entry.line, hash=entry.contents)


def linked(lines: list[str], start: int) -> list[str]:
    """Entries from one on, bound anew to those before: all but the signatures fits."""
    made = lines[:start]
    for line in lines[start:]:
        before = json.loads(made[-1])["hash"] if made else "0" * 64
        made.append(rehashed(line, previous=before))
    return made


def others(entry: dict[str, Any]) -> dict[str, list[Any]]:
    """Other values for each field of an entry, all of the right type."""
    digit = {"0": "1"}
    return {
        "number": [entry["number"] + 1, 1_000],
        "at": [entry["at"] + 1, max(entry["at"] - 1, 0) if entry["at"] else 7],
        "kind": ["vault.refused"],
        "facts": [entry["facts"] | {"rows": 99}, entry["facts"] | {"more": None}, {}],
        **{
            name: [digit.get(entry[name][0], "0") + entry[name][1:]]
            for name in ("previous", "next", "signature", "hash")
        },
    }


# --- entries --------------------------------------------------------------------------------


def test_a_new_log_has_entry_0_and_is_sound(path: Path) -> None:
    with closing(AuditLog(path)) as log:
        (entry,) = log.entries()
        assert (entry.number, entry.at, entry.kind) == (0, 0, GENESIS)
        assert log.verify() == Verification(1, entry.hash, entry.hash, [])
        assert (log.head, log.first, log.latest()) == (entry.hash, entry.hash, 0)


def test_entries_are_given_back_as_they_were_appended(log: AuditLog) -> None:
    entry = log.append("vault.refused", 900, why="é\n\x1b[2J", numbers=[1, 2], none=None, empty=[])
    assert list(log.entries(SIZE)) == [entry]
    assert entry.facts == {"why": "é\n\x1b[2J", "numbers": [1, 2], "none": None, "empty": []}
    assert [each.number for each in log.entries()] == list(range(SIZE + 1))
    assert (log.head, log.latest()) == (entry.hash, 900)


def test_a_log_that_is_opened_again_goes_on(path: Path) -> None:
    filled(path).close()
    with closing(AuditLog(path)) as log:
        log.append("vault.expired", 1_000)
        assert log.verify().sound
        assert log.verify().entries == SIZE + 1


@given(times=st.lists(st.integers(0, 2**63 - 1), max_size=8))
def test_time_never_goes_back(tmp_path_factory: pytest.TempPathFactory, times: list[int]) -> None:
    with closing(AuditLog(tmp_path_factory.mktemp("log") / "audit.db")) as log:
        for place, at in enumerate(times, 1):
            assert log.append("a", at).at == log.latest() == max(times[:place])
        assert log.verify().sound


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
whole = st.integers(-(2**63) + 1, 2**63 - 1)
facts = st.dictionaries(
    texts.filter(lambda name: name not in ("self", "kind", "at")),
    st.none() | texts | whole | st.lists(texts | whole, max_size=4),
    max_size=4,
)


@given(facts=facts)
def test_any_facts_are_kept_signed_and_exported(facts: dict[str, Any]) -> None:
    key = Ed25519PrivateKey.generate().private_bytes_raw()
    entry, following = signed(None, key, "a.b", 5, facts)
    assert Entry.of(entry.line) == entry
    assert entry.line.isascii()
    assert "\n" not in entry.line
    assert entry.signed_by(public(key))
    assert not entry.signed_by(public(following))
    assert entry.next == public(following)


@pytest.mark.parametrize(
    "fact",
    [1.5, float("nan"), True, b"x", {"a": 1}, [[1]], [None], [1.5], [True], ("a",), 2**63, "\ud800",
     "x" * 65_536, {1}],
    ids=str,
)  # fmt: skip
def test_other_facts_are_refused_and_leave_nothing(log: AuditLog, fact: Any) -> None:
    with pytest.raises(SchemaError, match=r"'vault\.opened' entry"):
        log.append("vault.opened", 1, fact=fact)
    assert log.verify().entries == SIZE
    assert log.verify().sound


@pytest.mark.parametrize("kind", ["", "A", "a b", "a.", ".a", "a\n", "x" * 101, 7, None])
def test_a_kind_that_is_no_words_with_dots_is_refused(log: AuditLog, kind: Any) -> None:
    with pytest.raises(SchemaError, match="kind of an audit entry"):
        log.append(kind, 1)


@pytest.mark.parametrize("at", [-1, 1.0, True, 2**63, None, "1"])
def test_a_time_that_is_no_microseconds_is_refused(log: AuditLog, at: Any) -> None:
    with pytest.raises(SchemaError, match="whole microseconds"):
        log.append("a", at)


# --- what is found --------------------------------------------------------------------------


def test_an_export_is_sound(log: AuditLog, lines: list[str]) -> None:
    assert verify_lines(lines) == log.verify()
    assert verify_lines(lines, head=log.head, first=log.first).sound
    assert verify_lines(line.strip() for line in lines).sound


@pytest.mark.parametrize("name", FIELDS)
def test_every_edit_of_any_field_of_any_entry_is_found(lines: list[str], name: str) -> None:
    for number, line in enumerate(lines):
        for value in others(json.loads(line))[name]:
            found = verify_lines(
                [*lines[:number], edited(line, **{name: value}), *lines[number + 1 :]]
            )
            assert any(f"entry {number} " in each for each in found.problems)
            assert not found.sound


@pytest.mark.parametrize("name", FIELDS[:-1])
def test_it_is_found_also_where_the_hashes_were_made_to_fit(lines: list[str], name: str) -> None:
    for number, line in enumerate(lines):
        for value in others(json.loads(line))[name]:
            changed = [*lines[:number], rehashed(line, **{name: value}), *lines[number + 1 :]]
            assert not verify_lines(changed).sound
            assert not verify_lines(linked(changed, number + 1)).sound


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_another_type_or_none_is_found(lines: list[str], name: str) -> None:
    for number, line in enumerate(lines):
        for value in (None, 1.5, True, [], {}, "", "x", -1, {"a": {"b": 1}}):
            found = verify_lines(
                [*lines[:number], edited(line, **{name: value}), *lines[number + 1 :]]
            )
            assert not found.sound
        less = {key: value for key, value in json.loads(line).items() if key != name}
        without = [*lines[:number], canonical(less), *lines[number + 1 :]]
        assert verify_lines(without).problems == [
            f"entry {number} was edited: it is not written as an entry is"
        ]


def test_any_entry_that_is_removed_is_found(lines: list[str]) -> None:
    for number in range(SIZE - 1):
        found = verify_lines(lines[:number] + lines[number + 1 :])
        assert any(f"entry {number + 1} stands where entry {number}" in p for p in found.problems)
        relinked = linked(lines[:number] + lines[number + 1 :], number)
        assert not verify_lines(relinked).sound


def test_any_two_entries_that_are_swapped_are_found(lines: list[str]) -> None:
    for one in range(SIZE):
        for other in range(one):
            moved = list(lines)
            moved[one], moved[other] = moved[other], moved[one]
            assert not verify_lines(moved).sound
            renumbered = [edited(line, number=place) for place, line in enumerate(moved)]
            assert not verify_lines(linked(renumbered, other)).sound


def test_any_entry_that_is_repeated_anywhere_is_found(lines: list[str]) -> None:
    for number in range(SIZE):
        for place in range(SIZE + 1):
            assert not verify_lines([*lines[:place], lines[number], *lines[place:]]).sound


def test_all_that_is_wrong_is_told_at_once(lines: list[str]) -> None:
    for number in (1, 3, 5):
        lines[number] = edited(lines[number], kind="vault.refused")
    told = " ".join(verify_lines(lines).problems)
    assert all(f"entry {number} was edited" in told for number in (1, 3, 5))
    assert all(f"entry {number} was edited" not in told for number in (0, 2, 4))


@given(data=st.data())
def test_no_letter_of_an_export_can_be_changed(data: st.DataObject) -> None:
    if not LINES:
        LINES.extend(_lines_in_memory())
    text = "".join(LINES)
    place = data.draw(st.integers(0, len(text) - 2))  # its last line needs no end
    letter = data.draw(st.sampled_from(string.printable).filter(lambda c: c != text[place]))
    changed = text[:place] + letter + text[place + 1 :]
    assert not verify_lines(changed.splitlines(keepends=True)).sound


def _lines_in_memory() -> Iterator[str]:
    key = Ed25519PrivateKey.generate().private_bytes_raw()
    entry, key = signed(None, key, GENESIS, 0, {"key": public(key)})
    for number in range(1, SIZE):
        yield f"{entry.line}\n"
        entry, key = signed(entry, key, "vault.opened", number, {"files": ["a"], "rows": number})
    yield f"{entry.line}\n"


@pytest.mark.parametrize(
    ("changed", "kind", "problem"),
    [
        ({"hash": "ab" * 32}, "a", "entry 2 does not follow the entry before it"),
        ({"at": 0}, "a", "entry 2 is earlier than the entry before it"),
        ({"number": 7}, "a", "entry 8 stands where entry 2 should"),
        ({}, GENESIS, "entry 2 is of kind 'log.genesis'"),
    ],
)
def test_also_the_right_key_cannot_sign_what_does_not_follow(
    changed: dict[str, Any], kind: str, problem: str
) -> None:
    key = Ed25519PrivateKey.generate().private_bytes_raw()
    zero, key = signed(None, key, GENESIS, 0, {"key": public(key)})
    one, key = signed(zero, key, "a", 100, {})
    two, _ = signed(replace(one, **changed), key, kind, 1, {})
    (found,) = verify_lines([zero.line, one.line, two.line]).problems
    assert found.startswith(problem)


def test_entry_0_follows_nothing() -> None:
    key = Ed25519PrivateKey.generate().private_bytes_raw()
    before, _ = signed(None, key, "a", 0, {})
    zero, _ = signed(replace(before, number=-1), key, GENESIS, 0, {"key": public(key)})
    assert verify_lines([zero.line]).problems == ["entry 0 is not the beginning of a log"]


@pytest.mark.parametrize("junk", ["", "[]", "null", "{}", "x", "[" * 100_000, "1" * 5_000, "\x00"])
def test_a_line_that_is_no_entry_is_found(lines: list[str], junk: str) -> None:
    for place in range(SIZE):
        lines_and_junk = [*lines[:place], f"{junk}\n", *lines[place:]]
        assert f"entry {place} was edited: it is not written as an entry is" in (
            verify_lines(lines_and_junk).problems
        )


def test_an_entry_written_another_way_is_found(lines: list[str]) -> None:
    told = json.loads(lines[2])
    spaced = json.dumps(told, sort_keys=True) + "\n"
    twice = '{"at":7,' + lines[2][1:]
    for other in (spaced, twice, " " + lines[2], lines[2] + "\n"):
        assert not verify_lines([*lines[:2], other, *lines[3:]]).sound


def test_nothing_at_all_is_not_sound() -> None:
    assert verify_lines([]).problems == ["there is no entry 0: the log is empty"]


# --- what was noted elsewhere ---------------------------------------------------------------


def test_a_missing_tail_of_an_export_is_found_by_a_noted_head(
    log: AuditLog, lines: list[str]
) -> None:
    for size in range(1, SIZE):
        assert verify_lines(lines[:size]).sound
        (problem,) = verify_lines(lines[:size], head=log.head).problems
        assert problem.startswith("the noted head is not in the log")


def test_a_head_that_was_noted_earlier_is_in_a_log_that_went_on(lines: list[str]) -> None:
    for line in lines:
        assert verify_lines(lines, head=f" {json.loads(line)['hash'].upper()}\n").sound


def test_a_head_of_an_edited_entry_does_not_count(log: AuditLog, lines: list[str]) -> None:
    lines[-1] = edited(lines[-1], kind="vault.refused")
    assert any("noted head" in each for each in verify_lines(lines, head=log.head).problems)


def test_another_log_is_found_by_the_noted_first(log: AuditLog, lines: list[str]) -> None:
    other = list(_lines_in_memory())
    assert verify_lines(other).sound
    assert verify_lines(other, first=log.first).problems == [
        "entry 0 is not the noted first one: this is another log"
    ]
    assert not verify_lines(lines[1:], first=log.first).sound


@pytest.mark.parametrize("noted", ["", "abc", "g" * 64, "0" * 63])
def test_a_mistyped_hash_is_a_mistake_and_no_alarm(log: AuditLog, noted: str) -> None:
    for name in ("head", "first"):
        with pytest.raises(SchemaError, match="64 hexadecimal digits"):
            log.verify(**{name: noted})


# --- an intruder at the file ----------------------------------------------------------------


def test_a_tail_that_was_cut_off_is_found_without_a_noted_head(log: AuditLog) -> None:
    for size in range(SIZE - 1, 0, -1):
        sql(log.path, ("DELETE FROM entries WHERE number >= ?", size))
        (problem,) = log.verify().problems
        assert problem.startswith(f"entry {size - 1} is the last one")


def test_it_stays_found_when_the_log_goes_on(log: AuditLog) -> None:
    sql(log.path, ("DELETE FROM entries WHERE number >= 4",))
    log.append("a", 1)
    assert "entry 4 is not signed by the key that the entry before it names" in (
        log.verify().problems
    )


STATEMENTS = [
    "UPDATE entries SET line = replace(line, 'opened', 'closed') WHERE number = 3",
    "UPDATE entries SET line = (SELECT line FROM entries WHERE number = 2) WHERE number = 3",
    "UPDATE entries SET number = 100 WHERE number = 5",
    "UPDATE entries SET number = -1 WHERE number = 3",
    "UPDATE entries SET number = number - 10",
    "UPDATE entries SET line = ''",
    "DELETE FROM entries WHERE number = 0",
    "DELETE FROM entries WHERE number = 3",
    "DELETE FROM entries",
    "INSERT INTO entries SELECT 6, line FROM entries WHERE number = 5",
    "UPDATE signer SET private = randomblob(32)",
    "UPDATE signer SET private = x'00'",
    "DELETE FROM signer",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_sql_does_to_the_file_is_found(log: AuditLog, statement: str) -> None:
    sql(log.path, (statement,))
    assert not log.verify().sound


def test_tables_of_another_make_are_found(log: AuditLog) -> None:
    for value in (7, b"x", None):
        sql(
            log.path,
            ("DROP TABLE entries",),
            ("CREATE TABLE entries (number, line)",),
            ("INSERT INTO entries VALUES (0, ?)", value),
        )
        assert not log.verify().sound


def test_who_has_the_current_key_can_change_no_entry_that_is_there(log: AuditLog) -> None:
    entries, key = list(log.entries()), private(log.path)
    for number in range(1, SIZE):
        lie, _ = signed(entries[number - 1], key, "vault.refused", 1, {"why": "a lie"})
        tail = [f"{entry.line}\n" for entry in entries]
        tail[number] = f"{lie.line}\n"
        for forged in (tail[: number + 1], tail, linked(tail, number + 1)):
            assert f"entry {number} is not signed by the key that the entry before it names" in (
                verify_lines(forged).problems
            )


def test_nor_can_he_sign_a_whole_new_tail(log: AuditLog) -> None:
    entries, key = list(log.entries()), private(log.path)
    for number in range(1, SIZE):
        forged = entries[:number]
        for entry in entries[number:]:
            lie, key = signed(forged[-1], key, entry.kind, entry.at, entry.facts)
            forged.append(lie)
        assert not verify_lines(f"{entry.line}\n" for entry in forged).sound
        key = private(log.path)


def test_what_he_appends_from_then_on_is_believed(log: AuditLog) -> None:
    """A limit that docs/audit-log.md tells."""
    lie, _ = signed(list(log.entries())[-1], private(log.path), "vault.refused", 1, {})
    assert verify_lines([*log.export(), lie.line]).sound


def test_a_genesis_of_his_own_is_another_log(log: AuditLog, lines: list[str]) -> None:
    key = Ed25519PrivateKey.generate().private_bytes_raw()
    entry, _ = signed(None, key, GENESIS, 0, {"key": public(key)})
    assert not verify_lines([entry.line, *lines[1:]]).sound
    assert not verify_lines(linked([entry.line, *lines[1:]], 1)).sound
    assert not verify_lines([entry.line], first=log.first).sound


def test_no_key_that_has_signed_is_left_in_any_file(log: AuditLog) -> None:
    used = []
    for number in range(40):
        used.append(private(log.path))
        log.append("a", number, text="x" * (number * 37))
        there = b"".join(file.read_bytes() for file in log.path.parent.glob("*audit.db*"))
        assert not [key for key in used if key in there]
        assert private(log.path) in there


def test_a_reader_puts_that_off_and_the_next_entry_makes_up_for_it(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log._db.execute("PRAGMA busy_timeout=10")
    used = private(log.path)
    with closing(sqlite3.connect(log.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        log.append("a", 1)
        reader.execute("COMMIT")
    log.append("a", 2)
    assert log.verify().sound
    there = b"".join(file.read_bytes() for file in log.path.parent.glob("audit.db*"))
    assert used not in there


def test_a_reader_does_not_hold_up_those_who_append(log: AuditLog) -> None:
    with closing(sqlite3.connect(log.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        asked = list[str]()
        log._db.set_trace_callback(asked.append)
        log.append("a", 1)
    waits = [asked[place - 1] for place, each in enumerate(asked) if "wal_checkpoint" in each]
    assert waits == [f"PRAGMA busy_timeout={audit_log.SHORTLY}"]  # not as long as for who appends
    assert log._db.execute("PRAGMA busy_timeout").fetchone()[0] == audit_log.BUSY * 1_000


def test_only_the_owner_may_read_the_files(log: AuditLog) -> None:
    files = list(log.path.parent.glob("*audit.db*"))
    assert {file.name for file in files} == {"audit.db", "audit.db-wal", "audit.db-shm"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


# --- several processes ----------------------------------------------------------------------

APPENDER = """
import sys
from pathlib import Path
from pyramidion.storage.audit_log import AuditLog
name, count = sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
log = AuditLog(Path(sys.argv[1]))
for number in range(count):
    entry = log.append("a.b", number, who=name, number=number)
    print(entry.hash, flush=True)
log.close()
"""


def appending(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", APPENDER, str(path), name, str(count)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def begun(path: Path, names: str, count: int) -> list[subprocess.Popen[str]]:
    """Processes that all begin at once, once each is ready."""
    made = [appending(path, name, count) for name in names]
    for each in made:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in made:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    return made


def test_processes_that_append_at_once_make_one_chain(path: Path) -> None:
    made = begun(path, "abc", 40)
    told = {name: each.communicate()[0].split() for name, each in zip("abc", made, strict=True)}
    assert [each.returncode for each in made] == [0, 0, 0]
    with closing(AuditLog.read(path)) as log:
        found = log.verify()
        assert (found.sound, found.entries) == (True, 1 + 3 * 40), found.problems
        for name in "abc":
            own = [entry for entry in log.entries() if entry.facts.get("who") == name]
            assert [entry.facts["number"] for entry in own] == list(range(40))
            assert [entry.hash for entry in own] == told[name]


def test_processes_that_are_killed_leave_a_sound_log_with_all_they_were_told(path: Path) -> None:
    AuditLog(path).close()

    def append(told: int) -> None:
        with closing(AuditLog(path)) as log:
            for number in itertools.count():
                os.write(told, f"{log.append('a', number).hash}\n".encode())

    hashes = list[str]()
    for calls in ((9, 40), (23, 24), (57, 31), (80, 100)):  # before which each of the two dies
        reader, writer = os.pipe()
        made = [started(lambda: append(writer), call=call) for call in calls]  # noqa: B023
        os.close(writer)
        with os.fdopen(reader) as told:
            hashes += told.read().split()
        assert [ended(each) for each in made] == [True, True]
        with closing(AuditLog(path)) as log:
            found = log.verify()
            assert found.sound, found.problems
            assert set(hashes) <= {entry.hash for entry in log.entries()}
            log.append("a", 1)
    assert len(hashes) > 4


def test_threads_that_append_at_once_make_one_chain(log: AuditLog) -> None:
    def append() -> None:
        for number in range(25):
            log.append("a", number)

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = log.verify()
    assert (found.sound, found.entries) == (True, SIZE + 100)


def test_a_forked_child_is_refused(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log.os, "getpid", lambda: -1)
    with pytest.raises(StateError, match="forked from"):
        log.append("a", 1)


# --- reading --------------------------------------------------------------------------------


def test_a_reader_sees_what_is_appended_and_changes_nothing(log: AuditLog) -> None:
    with closing(AuditLog.read(log.path)) as reader:
        log.append("a", 1_000)
        assert reader.verify() == log.verify()
        assert list(reader.export()) == list(log.export())
        with pytest.raises(StateError, match="opened to be read"):
            reader.append("a", 1)
    assert log.verify().entries == SIZE + 1


def test_a_reader_in_the_middle_keeps_nobody_from_appending(
    log: AuditLog, monkeypatch: Any
) -> None:
    monkeypatch.setattr(audit_log, "PAGE", 2)
    with closing(AuditLog.read(log.path)) as reader:
        entries = reader.entries()
        assert next(entries).number == 0
        log.append("a", 1_000)
        assert log.path.with_name("audit.db-wal").stat().st_size == 0
        assert [entry.number for entry in entries] == list(range(1, SIZE + 1))
        assert reader.verify().sound


@pytest.mark.parametrize("page", [1, 2, SIZE, SIZE + 1])
def test_a_log_is_read_by_pages(log: AuditLog, monkeypatch: Any, page: int) -> None:
    lines = list(log.export())
    monkeypatch.setattr(audit_log, "PAGE", page)
    assert list(log.export()) == lines
    assert log.verify(head=log.head, first=log.first).sound
    assert [entry.number for entry in log.entries(3)] == [3, 4, 5]


def test_a_closed_log_on_a_disk_that_takes_no_writes_is_read(log: AuditLog) -> None:
    log.close()
    with closing(sqlite3.connect(f"{log.path.as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        assert db.execute("SELECT count(*) FROM entries").fetchone() == (SIZE,)
    os.chmod(log.path, 0o400)
    with closing(AuditLog.read(log.path)) as reader:
        assert reader.verify().sound


# --- errors ---------------------------------------------------------------------------------


def test_a_log_that_is_closed_says_so(log: AuditLog) -> None:
    log.close()
    for call in (lambda: log.append("a", 1), lambda: log.head, log.verify):
        with pytest.raises(StateError, match="is closed"):
            call()


def test_a_new_log_takes_no_place_of_another(log: AuditLog) -> None:
    with pytest.raises(StateError, match="exists already"):
        AuditLog(log.path, new=True)
    log.close()
    with closing(AuditLog(log.path.with_name("new.db"), new=True)) as new:
        assert new.verify().sound
    assert not list(log.path.parent.glob(".*"))


def test_there_must_be_a_log_to_read(path: Path) -> None:
    with pytest.raises(StorageError, match="there is no audit log"):
        AuditLog.read(path)
    assert not path.exists()
    with pytest.raises(StorageError, match="is not there"):
        AuditLog(path / "nowhere" / "audit.db")


@pytest.mark.parametrize("opened", [AuditLog, AuditLog.read])
def test_a_file_that_is_no_log_is_named(path: Path, opened: Callable[[Path], AuditLog]) -> None:
    path.write_bytes(b"something else " * 400)
    with pytest.raises(FormatError, match=r"audit.db is damaged or not an audit log; keep it"):
        opened(path)
    path.unlink()
    sql(path, ("PRAGMA user_version=2",))
    with pytest.raises(FormatError, match="has format 2"):
        opened(path)


def test_a_log_that_another_program_holds_says_so(log: AuditLog) -> None:
    log._db.execute("PRAGMA busy_timeout=10")
    with closing(sqlite3.connect(log.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="held by another program"):
            log.append("a", 1)
        other.execute("ROLLBACK")
    log.append("a", 1)
    assert log.verify().sound


@pytest.mark.parametrize("statement", ["DELETE FROM entries", "UPDATE entries SET line = 'x'"])
def test_nothing_follows_a_last_entry_that_says_nothing(log: AuditLog, statement: str) -> None:
    sql(log.path, (statement,))
    with pytest.raises(FormatError, match="was edited or removed and none can follow"):
        log.append("a", 1)


def test_a_log_without_a_key_takes_nothing(log: AuditLog) -> None:
    sql(log.path, ("DELETE FROM signer",))
    with pytest.raises(FormatError, match="no key to sign with"):
        log.append("a", 1)


# --- copies ---------------------------------------------------------------------------------


def copied(log: AuditLog, name: str = "copy.db") -> Path:
    path = log.path.with_name(name)
    log.copy_to(path, 2_000, to="elsewhere")
    return path


def test_a_copy_is_told_before_it_is_made_and_ends_with_that(log: AuditLog) -> None:
    path = copied(log)
    log.append("a", 3_000)
    assert log.verify().sound
    assert [entry.kind for entry in log.entries(SIZE)] == ["store.copied", "a"]
    with closing(AuditLog.read(path)) as copy:
        assert list(copy.export()) == list(log.export())[:-1]
        assert copy.verify(copy=True).sound
        assert not copy.verify().sound  # in the place of the log it would hide what came after


def test_a_copy_goes_on_with_store_restored(log: AuditLog) -> None:
    with closing(AuditLog(copied(log))) as copy:
        copy.append("store.restored", 3_000)
        copy.append("a", 4_000)
        assert copy.verify(first=log.first).sound
        assert [entry.kind for entry in copy.entries(SIZE)][1:] == ["store.restored", "a"]


def test_who_has_a_copy_cannot_write_what_followed_it(log: AuditLog) -> None:
    path = copied(log)
    with closing(AuditLog(path)) as copy:
        copy.append("vault.refused", 3_000)
        assert copy.verify().problems == [
            f"entry {SIZE + 1} is not signed by the key that the entry before it names"
        ]


def test_a_copy_has_no_key_of_the_log(log: AuditLog) -> None:
    path = copied(log)
    assert private(log.path) not in path.read_bytes()
    assert private(path) not in log.path.read_bytes()
    assert private(path) != private(copied(log, "other.db"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# --- a store --------------------------------------------------------------------------------


def kinds(store: Pyramid) -> list[str]:
    assert store.audit_log.verify().sound
    return [entry.kind for entry in store.audit_log.entries()]


def facts_of(store: Pyramid, kind: str) -> dict[str, Any]:
    return dict([entry for entry in store.audit_log.entries() if entry.kind == kind][-1].facts)


def test_a_store_has_a_log_from_the_first(stand: Stand) -> None:
    store = stand.create()
    assert kinds(store) == [GENESIS, "store.created"]
    assert facts_of(store, "store.created") == {
        "store": inspect.catalogue(store).about("store"),
        "former": None,
    }
    assert store.audit_log.latest() == stand.clock.now * 1_000_000
    head = store.audit_log.head
    assert stand.reopen().audit_log.head == head


def test_what_a_store_does_as_a_whole_is_told(stand: Stand) -> None:
    store = stand.create(rebuild_share=0.2)
    observed(store, rows(20))
    (window,) = store.admin.reseed(why="a laptop was stolen").sealed
    store.admin.rebuild(window, why="changed")
    store.groups.withdraw("a", why="x" * 70_000)
    assert kinds(store)[2:] == ["store.reseeded", "tables.rebuilt", "tables.withdrawn"]
    assert facts_of(store, "store.reseeded") == {"why": "a laptop was stolen"}
    assert facts_of(store, "tables.rebuilt") == {"window": window, "why": "changed"}
    assert facts_of(store, "tables.withdrawn") == {"name": "a", "why": "x" * 1_000}


def test_what_a_store_refuses_is_not_told(stand: Stand) -> None:
    store = stand.create()
    with pytest.raises(StateError):
        store.admin.rebuild(7, why="no such window")
    with pytest.raises(SchemaError):
        store.groups.withdraw("nothing", why="no such feature")
    assert kinds(store) == [GENESIS, "store.created"]


def test_rows_and_time_add_no_entry(stand: Stand) -> None:
    store = stand.create()
    for _ in range(3):
        observed(store, rows(10, stand.clock.now))
        stand.clock.pass_(10 * DAY)
        store.advance()
    assert kinds(store) == [GENESIS, "store.created"]


def test_a_log_that_cannot_be_written_keeps_no_row_out(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()

    def full(*_: Any, **__: Any) -> None:
        raise StorageError("full")

    monkeypatch.setattr(AuditLog, "append", full)
    assert observed(store, rows(10)).accepted == 10
    stand.clock.pass_(10 * DAY)
    assert store.advance().sealed == [1]
    assert stand.reopen().status().summarised_rows == 10
    with pytest.raises(StorageError, match="full"):
        stand.reopen().admin.reseed(why="x")


def test_a_store_that_had_no_log_gets_one(stand: Stand) -> None:
    store = stand.create()
    inspect.catalogue(store).run("DELETE FROM about WHERE name = 'audit_log'")
    stand.close()
    (stand.path / "audit.db").unlink()
    store = stand.open()
    assert kinds(store) == [GENESIS, "log.began"]
    assert facts_of(store, "log.began")["former"] is None


def test_a_log_that_is_lost_is_named_by_the_next_one(stand: Stand) -> None:
    first = stand.create().audit_log.first
    stand.close()
    (stand.path / "audit.db").unlink()
    store = stand.open()
    assert facts_of(store, "log.began")["former"] == first
    assert kinds(stand.reopen()) == [GENESIS, "log.began"]


def test_a_log_that_was_swapped_for_another_says_so(stand: Stand) -> None:
    first = stand.create().audit_log.first
    stand.close()
    (stand.path / "audit.db").unlink()
    filled(stand.path / "audit.db").close()
    assert facts_of(stand.open(), "log.began")["former"] == first


def test_a_damaged_log_must_be_moved_away_and_is_not_forgotten(stand: Stand) -> None:
    first = stand.create().audit_log.first
    stand.close()
    (stand.path / "audit.db").write_bytes(b"x" * 4_096)
    with pytest.raises(FormatError, match="keep it as evidence, and move it away"):
        stand.open()
    (stand.path / "audit.db").rename(stand.folder / "evidence.db")
    assert facts_of(stand.open(), "log.began")["former"] == first


def test_a_restored_store_goes_on_with_the_log_of_its_backup(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(10))
    store.admin.backup(stand.folder / "backup")
    store.admin.backup(stand.folder / "backup")
    told = list(store.audit_log.export())
    assert facts_of(store, "store.copied")["to"] == str(stand.folder / "backup")
    stand.close()
    restored = stand.held(
        Pyramid.restore(stand.folder / "backup", stand.folder / "restored", **stand.given)
    )
    assert list(restored.audit_log.export())[: len(told)] == told
    assert kinds(restored)[2:] == ["store.copied", "store.copied", "store.restored"]


def test_a_store_from_a_backup_without_a_log_begins_one(stand: Stand) -> None:
    store = stand.create()
    store.admin.backup(stand.folder / "backup")
    stand.close()
    (stand.folder / "backup" / "audit.db").unlink()
    restored = stand.held(
        Pyramid.restore(stand.folder / "backup", stand.folder / "restored", **stand.given)
    )
    assert kinds(restored) == [GENESIS, "store.restored", "log.began"]


def test_the_log_of_a_backup_in_the_place_of_the_store_s_is_found(stand: Stand) -> None:
    store = stand.create()
    store.admin.backup(stand.folder / "backup")
    store.admin.reseed(why="to be hidden")
    stand.close()
    shutil.copy(stand.folder / "backup" / "audit.db", stand.path / "audit.db")
    store = stand.open()
    assert not store.audit_log.verify().sound
    store.admin.reseed(why="again")
    assert not store.audit_log.verify().sound


def test_a_closed_store_lets_go_of_its_log(stand: Stand) -> None:
    store = stand.create()
    stand.close()
    with pytest.raises(StateError):
        store.audit_log  # noqa: B018
    assert not list(stand.path.glob("audit.db-*"))
