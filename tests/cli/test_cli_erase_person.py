"""Erasing a person from a shell: what it does, says and refuses."""

from __future__ import annotations

import sys

import pytest

from tests.cli.shell import Shell, Stdin
from tests.store import inspect
from tests.store.peopling import EXACT, PEOPLE, of
from tests.store.stores import DAY, START

NOW = START + DAY
WHY = ("--why", "request 17")
TOLD = (
    "no hot row of this person is left; 1 hot step and the tables of 1 populating window were "
    "written anew\nthe store key is new: make a backup, older ones do not open\n"
)


@pytest.fixture
def peopled(shell: Shell) -> Shell:
    shell.create(PEOPLE, **EXACT | {"epsilon": 1.0})
    shell("observe", shell.saved(of(["anna", "ben", "anna"]), "a.parquet"), now=NOW)
    return shell


def left(shell: Shell) -> list[str]:
    with shell.open(NOW) as store:
        return [w for _, t, _ in inspect.hot(store).batches() for w in t["who"].to_pylist()]


def test_a_person_is_erased_and_it_is_said_in_the_same_words_whoever_it_was(peopled: Shell) -> None:
    for person in ("nobody", "anna", "anna"):
        done = peopled("erase-person", "--person", person, *WHY, now=NOW)
        assert (done.code, done.out, done.err) == (0, TOLD, "")
    assert left(peopled) == ["ben"]
    assert "request 17" in peopled("status", now=NOW).out


def test_the_name_is_read_from_a_file_or_standard_input(
    peopled: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = peopled.folder / "request.txt"
    file.write_bytes(b"anna\r\n")
    done = peopled("erase-person", "--person-from", file, *WHY, "--json", now=NOW)
    assert done.told == {"steps": 1, "windows": [1]}
    assert left(peopled) == ["ben"]
    monkeypatch.setattr(sys, "stdin", Stdin(b"ben"))
    assert peopled("erase-person", "--person-from", "-", *WHY, now=NOW).code == 0
    assert left(peopled) == []


@pytest.mark.parametrize("data", [b"", b"\n", b"anna\nben\n", b"anna\xff"])
def test_what_is_not_one_name_is_refused_without_quoting_it(peopled: Shell, data: bytes) -> None:
    file = peopled.folder / "request.txt"
    file.write_bytes(data)
    done = peopled("erase-person", "--person-from", file, *WHY, now=NOW)
    assert (done.code, done.out) == (2, "")
    assert "one line of UTF-8 text" in done.err
    assert "anna" not in done.err
    assert left(peopled) == ["anna", "ben", "anna"]


def test_a_reason_that_names_the_person_is_refused(peopled: Shell) -> None:
    done = peopled("erase-person", "--person", "anna", "--why", "Anna asked", now=NOW)
    assert done.code == 4
    assert "anna" not in done.err.lower()


def test_one_name_and_a_reason_must_be_given(peopled: Shell) -> None:
    for words in (("--person", "a"), WHY, ("--person", "a", "--person-from", "-", *WHY)):
        done = peopled("erase-person", *words, now=NOW)
        assert (done.code, done.out) == (2, "")


def test_a_store_that_does_not_know_people_says_so(filled: Shell) -> None:
    done = filled("erase-person", "--person", "a", *WHY)
    assert done.code == 2
    assert "names no unit" in done.err
