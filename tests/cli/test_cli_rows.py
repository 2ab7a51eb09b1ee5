"""Rows in on the command line: `import` and `observe`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion import Pyramid
from tests.cli.shell import NOW, Shell, Stdin, as_bytes
from tests.store import inspect
from tests.store.stores import DAY, SCHEMA, START, TIMELESS, rows
from tests.waiting import PATIENCE

FORMATS = ("csv", "tsv", "parquet", "ndjson", "arrow")
HISTORY = rows(500, START + np.arange(500) * DAY / 20)  # 25 days
NEW = rows(50, NOW - 100)


def bad(table: pa.Table, *numbers: int) -> pa.Table:
    """The table with a label that is no class in some rows."""
    labels = table["y"].to_numpy().copy()
    labels[list(numbers)] = 7_654
    return table.set_column(table.schema.get_field_index("y"), "y", pa.array(labels))


@pytest.fixture
def made(shell: Shell) -> Shell:
    shell.create()
    return shell


# --- import --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*FORMATS, "feather", "jsonl"])
def test_a_history_of_any_format_rolls_the_windows(made: Shell, kind: str) -> None:
    done = made("import", made.saved(HISTORY, f"history.{kind}"))
    assert done.out == (
        "500 rows: 500 accepted, 0 refused, 0 late\n2 windows sealed, 60 hot rows kept\n"
    )
    told = made("status", "--json").told
    assert [window["rows"] for window in told["windows"]] == [200, 200, 100]


def test_a_history_may_come_by_standard_input(made: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(as_bytes(HISTORY, "csv")))
    assert made("import", "-", "--format", "csv", "--json").told["accepted"] == 500


def test_import_tells_programs(made: Shell) -> None:
    assert made("import", made.saved(HISTORY, "history.csv"), "--json").told == {
        "rows": 500,
        "before": 0,
        "accepted": 500,
        "refused": 0,
        "late": 0,
        "blanked": 0,
        "windows_sealed": 2,
        "hot_rows": 60,
        "first": int(START * 1e6),
        "last": int((START + 499 * DAY / 20) * 1e6),
    }


def test_several_files_in_any_order_are_replayed_by_event_time(made: Shell) -> None:
    files = [
        made.saved(HISTORY.slice(300), "late.csv"),
        made.saved(HISTORY.slice(0, 300).take(list(range(299, -1, -1))), "early.parquet"),
    ]
    told = made("import", *files, "--json").told
    assert (told["accepted"], told["late"], told["windows_sealed"]) == (500, 0, 2)


def test_an_import_that_is_run_again_brings_nothing_new(made: Shell) -> None:
    file = made.saved(HISTORY, "history.csv")
    made("import", file)
    done = made("import", file)
    assert done.out == "nothing new: all 500 rows were imported before\n"
    assert "500 rows of these were imported before" in done.err
    told = made("import", file, "--json").told
    assert (told["before"], told["accepted"], told["windows_sealed"]) == (500, 0, 0)


def test_older_rows_than_the_store_has_are_late(made: Shell) -> None:
    made("import", made.saved(HISTORY.slice(250), "new.csv"))
    told = made("import", made.saved(HISTORY.slice(0, 200), "old.csv"), "--json").told
    assert (told["accepted"], told["late"]) == (200, 200)


def test_bad_rows_end_an_import_and_are_not_quoted(made: Shell) -> None:
    done = made("import", made.saved(bad(HISTORY, 210), "history.csv"))
    assert (done.code, done.out) == (2, "")
    assert "of the rows after the first 200 in the order of event time, which are in" in done.err
    assert "(row 10: column 'y' is not one of the label's declared classes)" in done.err
    assert "leave them out, as --skip-bad does" in done.err
    assert "7654" not in done.err


def test_an_import_goes_on_without_the_bad_rows(made: Shell) -> None:
    file = made.saved(bad(HISTORY, 210, 211), "history.csv")
    made("import", file)
    told = made("import", file, "--skip-bad", "--json").told
    assert (told["before"], told["accepted"], told["refused"]) == (200, 298, 2)


def test_a_time_in_the_future_does_not_take_the_store_along(made: Shell) -> None:
    file = made.saved(pa.concat_tables([HISTORY, rows(1, NOW + 2 * DAY)]), "history.csv")
    done = made("import", file)
    assert done.code == 2
    assert "event times beyond `max_skew` after now, 1972-11-01 23:59 UTC" in done.err
    assert made("status", "--json", now=START).told["at"] == START * 1e6
    told = made("import", file, "--skip-bad", "--json").told
    assert (told["accepted"], told["refused"]) == (500, 1)
    assert made("status", "--json", now=START).told["at"] <= NOW * 1e6


def test_a_time_is_in_the_future_by_the_time_that_is_pretended(made: Shell) -> None:
    file = made.saved(rows(5, NOW + 2 * DAY), "history.csv")
    assert made("import", file, "--json", now=NOW + 2 * DAY).told["accepted"] == 5


def test_an_import_warns_where_the_clock_is_past_the_retention(made: Shell) -> None:
    file = made.saved(HISTORY, "history.csv")
    assert "window" not in made("import", file).err
    done = made("import", file, "--json", now=START + 65 * DAY)
    assert "by 1972-12-01 UTC all that is in 2 windows and 3 hot steps (60 rows)" in done.err
    assert made("status", "--json").told["summarised_rows"] == 400


def test_rows_without_a_time_come_now(shell: Shell) -> None:
    shell.create(TIMELESS)
    shell("import", shell.saved(HISTORY.drop_columns(["t"]), "history.csv"))
    (window,) = shell("status", "--json").told["windows"]
    assert window["rows"] == 500
    assert window["start"] <= NOW * 1e6 < window["stop"]


def test_a_wrong_path_is_named_before_the_store_is_touched(shell: Shell) -> None:
    for command in ("import", "observe", "featurize"):
        done = shell(command, "nowhere.csv")
        assert (done.code, done.out) == (2, "")
        assert "there is no file nowhere.csv" in done.err


# --- what long work shows --------------------------------------------------------------


class Terminal:
    """A stderr that people look at."""

    def __init__(self) -> None:
        self.told = ""

    def write(self, text: str) -> int:
        self.told += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def seen(monkeypatch: pytest.MonkeyPatch, shell: Shell, *words: Any) -> str:
    terminal = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        assert shell(*words).code == 0
    return terminal.told


def test_people_see_a_bar_and_the_pace(made: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    told = seen(monkeypatch, made, "import", made.saved(HISTORY, "history.csv"))
    assert "import: 100%" in told
    assert "500/500" in told
    assert "500 rows in " in told
    assert "rows/s" in told
    assert "observe: 100%" in seen(monkeypatch, made, "observe", made.saved(NEW, "new.parquet"))


def test_the_bar_of_an_import_begins_where_the_last_one_ended(
    made: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = made.saved(HISTORY, "history.csv")
    made("import", file)
    told = seen(monkeypatch, made, "import", file)
    assert "500/500" in told
    assert "0/500" not in told.replace("500/500", "")


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_programs_see_nothing_on_stderr(
    made: Shell, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    assert seen(monkeypatch, made, "import", made.saved(HISTORY, "h.csv"), option) == ""
    made("advance")
    assert seen(monkeypatch, made, "observe", made.saved(NEW, "new.csv"), option) == ""


def test_no_bar_goes_into_a_file(made: Shell) -> None:
    assert "%" not in made("import", made.saved(HISTORY, "history.csv")).err


# --- stopping --------------------------------------------------------------------------


@pytest.fixture
def hears() -> Iterator[None]:
    """Have Ctrl-C heard; a test run in the background of a shell is deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupting(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Ctrl-C comes while the first piece is taken."""
    replay = Pyramid.replay

    def interrupted(self: Pyramid, *given: Any, **named: Any) -> Iterator[Any]:
        for number, receipt in enumerate(replay(self, *given, **named)):
            for _ in range(times if number == 0 else 0):
                signal.raise_signal(signal.SIGINT)
            yield receipt

    monkeypatch.setattr(Pyramid, "replay", interrupted)


@pytest.mark.usefixtures("hears")
def test_a_stopped_import_says_how_far_it_came(
    made: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, before = made.saved(HISTORY, "history.csv"), signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patched:
        interrupting(patched, 1)
        done = made("import", file)
    assert (done.code, done.out) == (130, "")
    assert "stopped after 200 of 500 rows; the import goes on from there" in done.err
    assert signal.getsignal(signal.SIGINT) is before
    told = made("import", file, "--json").told
    assert (told["before"], told["accepted"], told["hot_rows"]) == (200, 300, 60)


@pytest.mark.usefixtures("hears")
def test_a_second_interrupt_does_not_wait_and_loses_nothing(
    made: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = made.saved(HISTORY, "history.csv")
    with monkeypatch.context() as patched:
        interrupting(patched, 2)
        done = made("import", file)
    assert (done.code, done.out) == (130, "")
    assert "stopped after" not in done.err
    assert made("import", file, "--json").told["before"] == 200


def test_ctrl_c_stays_unheard_where_it_was(made: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupting(monkeypatch, 2)
        assert made("import", made.saved(HISTORY, "history.csv")).code == 0
    finally:
        signal.signal(signal.SIGINT, before)


WAITING = """
import sys, time
from pathlib import Path
from pyramidion import Pyramid
from pyramidion.cli import run

def waiting(self, *given, **named):
    for number, receipt in enumerate(replay(self, *given, **named)):
        if number == 5:
            Path("there").touch()
            while not Path("go").exists():
                time.sleep(0.01)
        yield receipt

replay, Pyramid.replay = Pyramid.replay, waiting
run()
"""
"""An import that waits in its middle, so that Ctrl-C does not come when it is over."""


@pytest.mark.usefixtures("hears")
def test_an_import_that_was_killed_by_ctrl_c_ends_with_the_same_totals(shell: Shell) -> None:
    shell.create(count_window="12h")
    table = rows(4_000, START + np.arange(4_000) * 36 * DAY / 4_000)  # 72 windows
    file = shell.saved(table, "history.parquet")
    words = [sys.executable, "-c", WAITING, *shell.words("import", file)]
    out_err = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = subprocess.Popen(words, cwd=shell.folder, **out_err)
    while not (shell.folder / "there").exists():
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    (shell.folder / "go").touch()
    out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, out) == (130, "")
    assert "the import goes on from there when it is run again" in err
    assert "Traceback" not in err
    told = shell("import", file, "--json").told
    assert 0 < told["before"] < 4_000
    assert told["before"] + told["accepted"] == 4_000
    windows = shell("status", "--json").told["windows"]
    whole = np.bincount((np.arange(4_000) * 72) // 4_000)
    assert [window["rows"] for window in windows if window["rows"]] == whole.tolist()


# --- observe ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_new_rows_of_any_format_are_taken(made: Shell, kind: str) -> None:
    done = made("observe", made.saved(NEW, f"new.{kind}"))
    assert done.out == "50 rows: 50 accepted, 0 refused, 0 late\n"
    assert made("status", "--json").told["hot_rows"] == 50


@pytest.mark.parametrize("kind", FORMATS)
def test_new_rows_may_come_by_standard_input(
    made: Shell, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(as_bytes(NEW, kind)))
    told = made("observe", "-", "--format", kind, "--json").told
    assert told == {"accepted": 50, "refused": 0, "late": 0, "blanked": 0}


def test_standard_input_must_say_its_format(made: Shell) -> None:
    assert "standard input does not tell its format" in made("observe", "-").err


def test_rows_under_a_key_are_taken_once(made: Shell) -> None:
    file = made.saved(NEW, "new.csv")
    for _ in range(2):
        assert made("observe", file, "--key", "monday", "--json").told["accepted"] == 50
    assert made("status", "--json").told["hot_rows"] == 50
    made("observe", file, "--key", "tuesday")
    made("observe", file)
    assert made("status", "--json").told["hot_rows"] == 150


def test_every_batch_has_a_key_of_its_own(shell: Shell) -> None:
    shell.create(count_window="20 rows")
    file = shell.saved(NEW, "new.csv")
    for _ in range(2):
        assert shell("observe", file, "--key", "monday", "--json").told["accepted"] == 50
    windows = shell("status", "--json").told["windows"]
    assert [window["rows"] for window in windows][:3] == [20, 20, 10]
    assert sum(window["rows"] for window in windows) == 50


def test_a_batch_with_a_bad_row_is_refused(made: Shell) -> None:
    done = made("observe", made.saved(bad(NEW, 3, 4), "new.csv"))
    assert (done.code, done.out) == (2, "")
    assert "2 of 50 rows cannot be counted (row 3: column 'y'" in done.err
    assert "7654" not in done.err
    assert made("status", "--json").told["hot_rows"] == 0


def test_bad_rows_may_be_left_out(made: Shell) -> None:
    done = made("observe", made.saved(bad(NEW, 3, 4), "new.csv"), "--skip-bad")
    assert done.out == "50 rows: 48 accepted, 2 refused, 0 late\n"


def test_rows_from_the_future_are_refused_by_the_time_that_is_pretended(made: Shell) -> None:
    file = made.saved(rows(5, NOW + DAY), "new.csv")
    assert "beyond `max_skew` in the future" in made("observe", file).err
    assert made("observe", file, now=NOW + DAY).code == 0


def test_a_file_without_a_column_is_refused(made: Shell) -> None:
    done = made("observe", made.saved(NEW.drop_columns(["a"]), "new.parquet"))
    assert done.code == 2
    assert "has no column 'a'" in done.err


@pytest.mark.parametrize(
    ("key", "sentence"),
    [((), "would send these twice"), (("--key", "k"), "with the same --key sends none twice")],
)
@pytest.mark.usefixtures("hears")
def test_a_stopped_observe_says_what_is_in(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...], sentence: str
) -> None:
    shell.create(count_window="20 rows")
    observe = Pyramid.observe

    def interrupted(self: Pyramid, *given: Any, **named: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return observe(self, *given, **named)

    monkeypatch.setattr(Pyramid, "observe", interrupted)
    done = shell("observe", shell.saved(NEW, "new.csv"), *key)
    assert (done.code, done.out) == (130, "")
    assert f"stopped after 20 rows, which are in; running it again {sentence}" in done.err


def test_the_schema_decides_which_columns_are_kept(made: Shell) -> None:
    extra = NEW.append_column("name", pa.array(["nobody's business"] * 50))
    made("observe", made.saved(extra, "new.csv"))
    with made.open() as store:
        (_, table, _) = next(inspect.hot(store).batches())
    assert sorted(table.column_names) == sorted(SCHEMA.columns)


def test_the_schema_decides_what_a_column_of_text_is_read_as(made: Shell) -> None:
    made("observe", made.saved(NEW, "new.csv"))  # the open feature a looks like numbers
    with made.open() as store:
        (_, table, _) = next(inspect.hot(store).batches())
    assert table.schema.field("a").type == pa.string()
