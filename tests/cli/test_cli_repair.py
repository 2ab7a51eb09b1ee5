"""Commands for after a break-in: what they do, say and refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.cli.shell import NOW, Shell
from tests.store import inspect
from tests.store.stores import DAY, START, cells, rows, same
from tests.store.test_repair import file_of, flip

WHY = ("--why", "somebody was in")


def reserving(shell: Shell, **settings: object) -> Shell:
    """A store with one sealed window of 20 rows, and 10 hot ones in the next."""
    shell.create(hot_window="40d", rebuild_share=0.5, delta=0.0, **settings)
    at = START + np.arange(30) * DAY / 2
    shell("observe", shell.saved(rows(20, at[:20]), "a.csv"), now=START + 9.9 * DAY)
    shell("observe", shell.saved(rows(10, at[20:], seed=1), "b.csv"), now=START + 15 * DAY)
    return shell


def damage(shell: Shell, kind: str, window: int | None = None) -> None:
    with shell.open(START + 15 * DAY) as store:
        path = file_of(store, kind, window)
    flip(path)


# --- reseed ----------------------------------------------------------------------------


def test_reseed_says_what_it_did(filled: Shell) -> None:
    told = filled("reseed", *WHY).out.splitlines()
    assert told == [
        "sealed 1 window (4)",
        "opened window 5 on fresh noise",
        "the store key is new: make a backup, older ones do not open",
    ]
    assert "somebody was in" in filled("status").out


def test_reseed_tells_programs(filled: Shell) -> None:
    assert filled("reseed", *WHY, "--json").told == {"sealed": [4], "dropped": [], "opened": 5}
    assert filled("reseed", *WHY, "--json").told == {"sealed": [], "dropped": [5], "opened": 6}
    assert "dropped unused 1 window (6)" in filled("reseed", *WHY).out


@pytest.mark.parametrize("command", [("reseed",), ("rebuild", "--window", "1")])
def test_a_reason_must_be_given(filled: Shell, command: tuple[str, ...]) -> None:
    done = filled(*command)
    assert done.code == 2
    assert "--why" in done.err


# --- verify ----------------------------------------------------------------------------


def test_verify_finds_nothing_in_a_sound_store_and_makes_nothing_due(filled: Shell) -> None:
    done = filled("verify", now=NOW + 1_000 * DAY)
    assert (done.code, done.out) == (0, "every file is as it should be\n")
    assert filled("verify", "--json").told == {"damaged": [], "mended": []}
    assert filled("status", "--json").told["hot_rows"] == 300


def test_verify_names_what_is_damaged_and_mends_it(shell: Shell) -> None:
    reserving(shell)
    damage(shell, "sealed", 1)
    done = shell("verify", now=START + 15 * DAY)
    assert done.code == 3
    assert done.out.splitlines()[1].split()[:3] == ["sealed", "1", "damaged"]
    assert "1 file cannot be trusted; verify --mend" in done.err
    done = shell("verify", "--mend", now=START + 15 * DAY)
    assert done.code == 0
    assert done.out.splitlines()[1].split()[:3] == ["sealed", "1", "mended"]
    assert shell("verify", now=START + 15 * DAY).code == 0


# --- rebuild ---------------------------------------------------------------------------


def test_rebuild_from_hot_rows_says_what_the_window_paid(shell: Shell) -> None:
    reserving(shell)
    told = shell("rebuild", "--window", 1, *WHY, now=START + 15 * DAY).out
    assert told == "rebuilt window 1 from 20 rows; it paid epsilon 0.5\n"
    spent = shell("ledger", "--json", now=START + 15 * DAY).told["windows"][0]
    assert spent["lines"][-1]["why"] == WHY[1]
    assert spent["left"] == 0


@pytest.mark.parametrize("suffix", ["csv", "parquet", "ndjson"])
def test_rebuild_from_a_file_gives_the_same_counts(shell: Shell, suffix: str) -> None:
    reserving(shell, epsilon=math.inf)
    with shell.open(START + 15 * DAY) as store:
        before = cells(inspect.sealed(store, 1))
    file = shell.saved(rows(20, START + np.arange(20) * DAY / 2), f"again.{suffix}")
    told = shell("rebuild", "--window", 1, "--rows", file, *WHY, now=START + 15 * DAY).out
    assert told == "rebuilt window 1 from 20 rows; it paid nothing, as there is no privacy\n"
    with shell.open(START + 15 * DAY) as store:
        assert same(cells(inspect.sealed(store, 1)), before)


def test_rebuild_tells_programs_and_takes_a_share(shell: Shell) -> None:
    reserving(shell)
    words = ("rebuild", "--window", 1, "--share", "1/5", *WHY, "--json")
    assert shell(*words, now=START + 15 * DAY).told == {
        "window": 1,
        "rows": 20,
        "unit": "epsilon",
        "charged": 0.1,
        "charged_exact": "1/10",
    }


def test_what_cannot_be_rebuilt_is_refused_with_one_sentence(shell: Shell) -> None:
    reserving(shell)
    now = START + 15 * DAY
    file = shell.saved(rows(3), "few.csv")
    (shell.folder / "none.csv").write_text("t,y,a,b\n")
    for words, code, said in (
        (("--rows", file), 2, "window 1 took 20 rows and 3 were given"),
        (("--rows", shell.folder / "none.csv"), 2, "window 1 took 20 rows and 0 were given"),
        (("--share", "2"), 4, "a rebuild takes a share above 0 and at most 1"),
        (("--share", "x"), 2, "'x' is no share; write 1/2 or 0.5"),
    ):
        done = shell("rebuild", "--window", 1, *words, *WHY, now=now)
        assert (done.code, done.out) == (code, "")
        assert said in done.err
    assert shell("rebuild", "--window", 1, *WHY, now=now).code == 0
    done = shell("rebuild", "--window", 1, *WHY, now=now)
    assert done.code == 4
    assert "window 1 has epsilon 0 left for rebuild and 0.5 was asked" in done.err
