"""The time of a store on the command line: who reads erases nothing, and erasing is said first."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from pyramidion import Pyramid
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import in_order
from tests.cli.shell import Shell, as_bytes
from tests.store.stores import DAY, SCHEMA, START, rows, tiny

LATER = START + 4_000 * DAY
HISTORY = rows(500, START + np.arange(500) * DAY / 20)  # 25 days: 2 windows sealed, 60 rows hot


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with an imported history of 1972 and a model, made by the system's clock."""
    folder = tmp_path_factory.mktemp("old")
    (folder / "history.parquet").write_bytes(as_bytes(HISTORY, "parquet"))
    (folder / "rows.csv").write_bytes(as_bytes(rows(5).drop_columns(["t", "y"]), "csv"))
    keys = f"file:{folder}/keys/store.key"
    with Pyramid.create(folder / "store", SCHEMA, tiny(), keys=keys) as store:
        list(store.replay(in_order([DataFile(folder / "history.parquet")], SCHEMA)))
        store.register("late", GaussianNB())
    return folder


@pytest.fixture
def history(shell: Shell, old: Path) -> Shell:
    """A copy of that store."""
    shutil.copytree(old, shell.folder, dirs_exist_ok=True)
    return shell


def kept(shell: Shell) -> tuple[int, int]:
    """Hot rows, and rows in sealed windows."""
    with Pyramid.open(shell.path, keys=shell.keys, train=False, advance=False) as store:
        status = store.status()
    return status.hot_rows, status.summarised_rows


READERS = {
    "featurize": ("featurize", "rows.csv"),
    "training-set": ("training-set",),
    "predict": ("predict", "late", "rows.csv"),
    "models": ("models",),
    "models --train": ("models", "--train"),
    "models curve": ("models", "curve", "late"),
    "status": ("status",),
    "ledger": ("ledger",),
    "group": ("group",),
    "verify": ("verify",),
    "exposure": ("exposure", "--from", "1972-10-20", "--to", "1972-10-21"),
}


@pytest.mark.parametrize("words", READERS.values(), ids=READERS)
@pytest.mark.parametrize("now", [None, LATER], ids=["system", "pretended"])
def test_reading_erases_nothing(
    history: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], now: float | None
) -> None:
    monkeypatch.chdir(history.folder)
    history(*words, now=now)
    assert kept(history) == (60, 400)


def test_live_rows_say_what_they_erase(history: Shell) -> None:
    done = history("observe", history.saved(rows(2, time.time() - 60), "new.csv"), now=None)
    assert done.code == 0
    assert "all that is in 3 windows and 3 hot steps (60 rows) is past its time, and is" in done.err
    assert history("status", "--json", now=None).told["hot_rows"] == 2


def test_advance_says_what_it_erases(history: Shell) -> None:
    assert history("advance", now=None).out == "nothing was due\n"
    done = history("advance", now=LATER)
    assert "all that is in 3 windows and 3 hot steps (60 rows) is past its time, and is" in done.err
    assert "forgot 3 windows (1, 2, 3)" in done.out


def test_status_says_that_time_follows_an_import(history: Shell) -> None:
    told = history("status", now=None).out
    assert "time     follows the imported rows, to 1972-10-21 22:48, until rows" in told


def test_import_says_where_the_time_stays(shell: Shell) -> None:
    shell("create", shell.schema(), now=None)
    done = shell("import", shell.saved(HISTORY, "history.csv"), now=None)
    assert "the store's time follows these rows, to 1972-10-21 22:48 UTC" in done.err
    assert "the first rows that are observed move the store to that time" in done.err
    assert kept(shell) == (60, 400)


def test_serve_says_what_it_erases(history: Shell) -> None:
    from pyramidion.store.schedule import Due
    from pyramidion.web.service.service import Service

    said: list[tuple[str, Due]] = []
    with Service(
        history.folder,
        keys=history.keys.replace("store.key", "{stream}.key"),
        clock=lambda: LATER,
        announce=lambda stream, due: said.append((stream, due)),
    ):
        pass
    ((stream, due),) = said
    assert (stream, due.retired, due.steps, due.rows) == ("store", (1, 2, 3), 3, 60)


def test_serve_leaves_an_imported_history(history: Shell) -> None:
    from pyramidion.web.service.service import Service

    with Service(history.folder, keys=history.keys.replace("store.key", "{stream}.key")) as service:
        (stream,) = service.every
        stream.pyramid.advance()
    assert kept(history) == (60, 400)


# --- clocks that disagree -----------------------------------------------------------------------

AHEAD = 400 * DAY


@pytest.fixture
def ahead(shell: Shell) -> Shell:
    """A store that has seen a time 400 days from now."""
    shell("create", shell.schema(), now=None)
    at = time.time() + AHEAD
    assert shell("observe", shell.saved(rows(20, at), "future.csv"), now=at).code == 0
    return shell


def test_clock_shows_what_is_wrong(ahead: Shell) -> None:
    told = ahead("clock", now=None).out
    assert "follows  the system's clock" in told
    assert "seconds behind the store's own time, so nothing is erased or sealed" in told
    assert "clock    the system's clock is " in ahead("status", now=None).out
    told = ahead("clock", "--json", now=None).told
    assert told["now"] >= told["alarm"] > told["system"]


def test_commands_warn_of_the_clock(ahead: Shell) -> None:
    done = ahead("observe", ahead.saved(rows(3, time.time() - 60), "new.csv"), now=None)
    assert done.code == 0
    assert "3 accepted, 0 refused, 3 late" in done.out
    assert "seconds behind the store's own time" in done.err
    assert "then correct or confirm it with `pyramidion clock`" in done.err


def test_stored_clock_is_set_back_by_confirm(ahead: Shell) -> None:
    assert "give a reason" in ahead("clock", "confirm", now=None).err
    done = ahead("clock", "confirm", "--why", "it was ahead", now=None)
    assert done.code == 0, done.err
    assert "alarm" not in done.out
    told = ahead("clock", "--json", now=None).told
    assert abs(told["now"] / 1e6 - time.time()) < 3_600
    assert kept(ahead)[0] == 20


def test_correct_is_refused_while_the_clock_is_wrong(ahead: Shell) -> None:
    done = ahead("clock", "correct", "--why", "x", now=None)
    assert done.code == 2
    assert "seconds behind the store's own time; set it right, or confirm it" in done.err


def test_confirm_says_what_it_erases(history: Shell) -> None:
    done = history("clock", "confirm", "--why", "nothing comes any more", now=None)
    assert "all that is in 3 windows and 3 hot steps (60 rows) is past its time, and is" in done.err
    assert "forgot 3 windows (1, 2, 3)" in done.out
    assert kept(history) == (0, 0)
