"""Commands on a store as a whole: what they make, say and refuse."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyramidion import Categorical, PrivacyError, Schema
from pyramidion.cli import status as status_command
from tests.cli.shell import NOW, Shell
from tests.store.stores import CUSTODIAN, DAY, SCHEMA, START, rows

# --- create --------------------------------------------------------------------------


def test_create_says_what_was_made_and_what_it_promises(shell: Shell) -> None:
    told = shell.create().out
    assert f"made a store at {shell.path}" in told
    assert shell.keys in told
    assert "each window: P2: (1.0, 1e-09)-differentially private for any 1 counted" in told
    tables = [line.split()[0] for line in told.split("\n\n")[1].splitlines()]
    assert tables == ["table", "(prior)", "a", "b", "a,b"]


@pytest.mark.parametrize("unit", [None, "a"])
@pytest.mark.parametrize(
    "windows", [{}, {"windows": "tree", "tree_radix": 2, "tree_depth": 2, "retention": "90d"}]
)
def test_create_tells_programs_the_noise_that_a_sealed_window_then_has(
    shell: Shell, unit: str | None, windows: dict[str, Any]
) -> None:
    schema = Schema(
        time="t", label=SCHEMA.label, features=SCHEMA.features, groups=SCHEMA.groups, unit=unit
    )
    made = shell("create", shell.schema(schema, **windows), "--json").told
    table = rows(100, START + np.arange(100) * DAY / 5)
    shell("import", shell.saved(table, "history.parquet"))
    found = shell("status", "--json").told
    assert found["tables"][0]["windows"] == 1
    assert [(t["name"], t["deviation"]) for t in made["tables"]] == [
        (t["name"], t["deviation"]) for t in found["tables"]
    ]


def test_settings_may_stand_in_another_file(shell: Shell) -> None:
    (shell.folder / "schema.toml").write_text(SCHEMA.to_toml())
    (shell.folder / "settings.toml").write_text("[settings]\nepsilon = 2.0\nbuckets = 16\n")
    words = (shell.folder / "schema.toml", "--settings", shell.folder / "settings.toml")
    assert shell("create", *words, "--json").told["guarantee"]["epsilon"] == 2.0


def test_epsilon_on_the_command_line_replaces_the_file_s(shell: Shell) -> None:
    told = shell("create", shell.schema(), "--epsilon", "0.5", "--json").told
    assert told["guarantee"]["epsilon"] == 0.5
    with shell.open() as store:
        assert (store.settings.epsilon, store.settings.buckets) == (0.5, 16)


def test_create_with_a_vault_seals_to_the_custodian_and_status_shows_it(shell: Shell) -> None:
    public = shell.folder / "custodian.pub"
    public.write_text(CUSTODIAN.public.to_text())
    vault = ("--vault", shell.folder / "vault", "--custodian", public)
    told = shell("create", shell.schema(), *vault).out
    assert f"to the custodian {CUSTODIAN.public.fingerprint}" in told
    shell("observe", shell.saved(rows(9, NOW), "rows.parquet"))
    found = shell("status").out
    assert "vault    0 rows in 0 files" in found
    assert "waiting  9 hot rows in no sealed file yet" in found
    shell("advance", now=NOW + 3_600)
    found = shell("status", "--json", now=NOW + 3_600).told["vault"]
    assert (found["rows"], found["waiting_rows"], found["backlog_files"]) == (9, 0, 0)


def test_a_vault_whose_custodian_is_no_public_key_is_refused(shell: Shell) -> None:
    (shell.folder / "other").write_text("{}")
    words = ("--vault", shell.folder / "vault", "--custodian", shell.folder / "other")
    done = shell("create", shell.schema(), *words)
    assert done.code != 0
    assert "is not a public key" in done.err
    assert "give both" in shell("create", shell.schema(), *words[:2]).err


def test_no_privacy_is_said_aloud(shell: Shell) -> None:
    assert "NO privacy" in shell("create", shell.schema(), "--epsilon", "inf").out


def test_create_without_epsilon_says_where_to_put_it(shell: Shell) -> None:
    (shell.folder / "schema.toml").write_text(SCHEMA.to_toml())
    done = shell("create", shell.folder / "schema.toml")
    assert done.code == 2
    assert "has no [settings] table; add one with epsilon = 1.0, or give --epsilon" in done.err
    assert not shell.path.exists()


def test_a_bad_setting_is_told_with_its_file(shell: Shell) -> None:
    done = shell("create", shell.schema(buckets=17))
    assert done.code == 2
    assert "schema.toml: setting 'buckets'" in done.err


def test_a_schema_with_lines_to_change_is_used_with_a_note(shell: Shell) -> None:
    file = shell.schema()
    file.write_text("# CHANGE: the bounds\n" + file.read_text())
    done = shell("create", file, "--json")
    assert done.told["to_change"] == 1
    assert "1 line of" in done.err
    assert "marked CHANGE" in done.err


def test_a_directory_that_is_taken_is_refused(shell: Shell) -> None:
    shell.create()
    done = shell("create", shell.schema())
    assert (done.code, done.out) == (2, "")
    assert "exists already; open it, or choose another path" in done.err


def test_a_schema_that_nothing_can_enforce_is_refused(shell: Shell) -> None:
    schema = Schema(label=SCHEMA.label, features=SCHEMA.features, unit="a")
    assert shell("create", shell.schema(schema, count_window=100)).code == 2
    assert not shell.path.exists()


def test_where_people_are_protected_the_sum_over_windows_is_told(shell: Shell) -> None:
    schema = Schema(label=SCHEMA.label, features=SCHEMA.features, time="t", unit="a")
    shell.create(schema, delta=0.0)
    history = rows(500, START + np.arange(500) * DAY / 20)  # 25 days
    file = shell.saved(history, "history.csv")
    told = shell("import", file, "--json").told
    assert 0 < told["blanked"] < told["accepted"] == 500
    assert shell("ledger").out.splitlines()[-1] == (
        "spent on any person (column 'a'): (1, 0) in a window, (3, 0) in 3 retained windows "
        "together"
    )
    assert shell("ledger", "--json").told["composed_epsilon"] == 3.0
    assert "people   (3, 0) spent on any person in all windows together" in shell("status").out
    assert "any person (column 'a'), in each of 2 windows" in shell("status").out


# --- keys ----------------------------------------------------------------------------


def test_the_environment_says_who_holds_the_key(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYRAMIDION_KEYS", f"file:{shell.folder}/other.key")
    told = shell.main("create", str(shell.schema()), "--data", str(shell.path), "--json").told
    assert told["keys"] == f"file:{shell.folder}/other.key"
    assert (shell.folder / "other.key").exists()


def test_otherwise_the_key_lies_in_the_home_folder_under_the_store_s_name(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYRAMIDION_KEYS", raising=False)
    monkeypatch.setenv("HOME", str(shell.folder / "home"))
    monkeypatch.chdir(shell.folder)
    assert shell.main("create", str(shell.schema()), "--data", "flights").code == 0
    assert (shell.folder / "home/.config/pyramidion/flights.key").exists()
    monkeypatch.chdir("flights/hot")
    assert shell.main("status", "--data", "..").code == 0


def test_a_key_in_the_store_is_refused(shell: Shell) -> None:
    shell.keys = f"file:{shell.path}/store.key"
    done = shell("create", shell.schema())
    assert done.code == 2
    assert "may not lie in the store" in done.err


# --- advance, status, ledger -----------------------------------------------------------


def test_advance_says_what_it_did_and_then_nothing(filled: Shell) -> None:
    told = filled("advance", now=START + 41 * DAY).out
    assert told == "sealed 1 window (4)\nerased 300 hot rows in 3 steps\n"
    assert filled("advance", now=START + 41 * DAY).out == "nothing was due\n"


def test_advance_tells_programs(filled: Shell) -> None:
    told = filled("advance", "--json", now=START + 55 * DAY).told
    assert (told["sealed"], told["retired"], told["rows_erased"]) == ([4], [1], 300)


def test_status_shows_the_pyramid(filled: Shell) -> None:
    told = filled("status").out
    assert "hot      300 rows in 3 steps, from 1972-10-30\n" in told
    assert "history  3,000 rows as noisy counts in 3 sealed windows\n" in told
    assert "promise  P2: (1.0, 1e-09)-differentially private" in told
    assert "due      nothing\n" in told
    assert "then     1972-11-06  window 4 is sealed\n" in told
    assert "then     1972-11-16  window 1 is forgotten\n" in told
    assert "     1  sealed      1972-09-27  1972-10-07  1,000\n" in told
    assert "past its time" in told


def test_status_tells_programs_the_same_as_the_store_does(filled: Shell) -> None:
    told = filled("status", "--json").told
    with filled.open() as store:
        found = json.loads(json.dumps(store.status().to_dict()))
    assert {**told, "bytes": 0} == {**found, "bytes": 0}


def test_looking_makes_nothing_due(filled: Shell) -> None:
    later = START + 500 * DAY
    told = filled("status", now=later).out
    assert "window 4 is sealed (since 1972-11-06); window 1 is forgotten" in told
    assert "run `pyramidion advance`" in told
    assert "then  " not in told
    filled("ledger", now=later)
    assert filled("status", "--json").told["hot_rows"] == 300
    assert filled("advance", "--json", now=later).told["rows_erased"] == 300


def test_only_the_newest_deletions_are_shown(filled: Shell) -> None:
    for day in range(37, 37 + status_command.SHOWN):
        filled(
            "observe", filled.saved(rows(1, START + day * DAY), f"{day}.csv"), now=START + day * DAY
        )
    told = filled("status", now=START + 42 * DAY).out
    assert told.count(filled.keys) == status_command.SHOWN
    assert "older deletions" in told


def test_an_empty_store_says_that_there_is_nothing_to_read(shell: Shell) -> None:
    shell.create()
    told = shell("status").out
    assert "nothing to read yet: no window is sealed" in told
    assert "window  state" not in told
    assert shell("ledger").out == "nothing was spent: no window was opened yet\n"


def test_the_ledger_is_the_store_s(filled: Shell) -> None:
    with filled.open() as store:
        report = store.ledger.report()
    assert filled("ledger").out == f"{report}\n"
    assert filled("ledger", "--json").told == json.loads(json.dumps(report.to_dict()))
    assert len(report.windows) == 4


@pytest.mark.parametrize("now", ["1972-11-01T23:59:00Z", "1972-11-01 23:59", str(NOW)])
def test_the_time_may_be_written_in_several_ways(filled: Shell, now: str) -> None:
    words = filled.words("status", "--json", "--now", now, now=None)
    assert filled.main(*words).told["at"] == NOW * 1e6


@pytest.mark.parametrize("now", ["noon", "nan", "1e20"])
def test_a_time_that_is_none_is_a_mistake(filled: Shell, now: str) -> None:
    done = filled.main(*filled.words("status", "--now", now, now=None))
    assert done.code == 2
    assert "argument --now: the time must be" in done.err


def test_the_system_s_clock_is_the_default(shell: Shell) -> None:
    shell.create()
    assert shell("status", "--json", now=None).told["at"] > 1_700_000_000_000_000


# --- tables come and go ------------------------------------------------------------------


def test_a_group_is_counted_from_then_on(shell: Shell) -> None:
    schema = Schema(label=SCHEMA.label, features=[*SCHEMA.features, Categorical("c")], time="t")
    shell.create(schema)
    assert "a,c is counted from the next window" in shell("group", "a", "c").out
    assert shell("group", "b", "a", "--json").told["tables"][-1] == "b,a"
    with shell.open() as store:
        assert store.schema.groups == (("a", "c"), ("b", "a"))


def test_groups_are_chosen_and_shown(shell: Shell) -> None:
    schema = Schema(label=SCHEMA.label, features=SCHEMA.features, time="t")
    shell.create(schema, selection_share=0.2, selection_groups=1)
    assert shell("group").out == "no features are counted together\n"
    assert "no hot rows" in shell("select-groups").err
    with shell.open() as store:
        store.observe(rows(200, NOW))
    told = shell("select-groups", "--share", "1/2", "--json").told
    assert (told["groups"], told["rows"], told["unit"]) == (["a,b"], 200, "rho")
    done = shell("select-groups", "--share", "1/2")
    assert "read 200 hot rows of 1 window (1), each of which paid rho" in done.out
    assert "a,b is counted on trial from the next window" in done.out
    assert "left for selection" in shell("select-groups", "--share", "1/2").err
    assert "argument --share" in shell.main(*shell.words("select-groups", "--share", "x")).err
    (group,) = shell("group", "--json").told["groups"]
    assert (group["name"], group["state"]) == ("a,b", "trial")
    assert "no sealed window counts it yet" in shell("group").out


def test_a_group_of_unknown_features_is_a_mistake(filled: Shell) -> None:
    done = filled("group", "a", "nowhere")
    assert (done.code, done.out) == (2, "")
    assert "nowhere" in done.err


def test_a_withdrawn_feature_is_gone_and_on_record(filled: Shell) -> None:
    assert filled("withdraw", "b", "--why", "request 4711").out == "erased b; what is left: a\n"
    told = filled("status", "--json").told
    assert [t["name"] for t in told["tables"]] == ["", "a"]
    assert told["deletions"][-1]["why"] == "request 4711"


def test_withdrawing_needs_a_reason(filled: Shell) -> None:
    assert "required: --why" in filled("withdraw", "b").err


def test_withdrawing_tells_programs(filled: Shell) -> None:
    told = filled("withdraw", "a,b", "--why", "x", "--json").told
    assert told == {"withdrawn": "a,b", "tables": ["a", "b"]}


# --- copies --------------------------------------------------------------------------------


def test_a_restored_backup_goes_on_in_place_of_the_store(filled: Shell) -> None:
    copy, old = filled.folder / "copy", filled.path
    assert f"to {copy}; it ends with the next erasure or release" in filled("backup", copy).out
    assert filled("backup", copy, "--json").told["bytes"] > 0
    filled.path = filled.folder / "restored"
    assert "3,600 rows summarised, 300 hot rows" in filled("restore", copy).out
    assert filled("status", "--json").told["summarised_rows"] == 3_600
    filled.path = old
    done = filled("status")
    assert done.code == 3
    assert "does not have the key of this store" in done.err


def test_a_backup_is_made_after_what_is_due(filled: Shell) -> None:
    later = START + 41 * DAY
    filled("backup", filled.folder / "copy", now=later)
    filled("advance", now=later)  # which would have ended it
    filled.path = filled.folder / "restored"
    assert filled("restore", filled.folder / "copy", "--json", now=later).told["hot_rows"] == 0


def test_a_backup_cannot_be_opened_as_a_store(filled: Shell) -> None:
    filled("backup", filled.folder / "copy")
    filled.path = filled.folder / "copy"
    done = filled("status")
    assert done.code == 2
    assert "is a backup; restore it" in done.err


def test_a_backup_in_the_store_is_refused(filled: Shell) -> None:
    assert filled("backup", filled.path / "copy").code == 2


def test_restoring_from_nowhere_is_refused(shell: Shell) -> None:
    done = shell("restore", shell.folder / "nowhere")
    assert done.code == 3
    assert "there is no backup at" in done.err
    assert not shell.path.exists()


# --- what cannot be used -----------------------------------------------------------------------

ON_A_STORE = (
    ("status",),
    ("ledger",),
    ("advance",),
    ("backup", "copy"),
    ("group", "a", "b"),
    ("withdraw", "a", "--why", "x"),
)


@pytest.mark.parametrize("words", ON_A_STORE, ids=lambda words: words[0])
def test_where_there_is_no_store_every_command_says_so(
    shell: Shell, words: tuple[str, ...]
) -> None:
    done = shell(*words)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("pyramidion: there is no store at ")
    assert done.err.count("\n") == 1
    assert not shell.path.exists()


def test_a_store_that_is_open_elsewhere_is_left_alone(filled: Shell) -> None:
    with filled.open():
        done = filled("status")
    assert (done.code, done.out) == (2, "")
    assert "is open in another process" in done.err


def test_a_store_whose_key_is_gone_says_so(filled: Shell) -> None:
    Path(filled.keys.removeprefix("file:")).unlink()
    done = filled("status")
    assert done.code == 3
    assert "holds no key at all" in done.err


def test_a_store_of_a_newer_version_is_refused(filled: Shell) -> None:
    with sqlite3.connect(filled.path / "catalogue.db") as catalogue:
        catalogue.execute("PRAGMA user_version=99")
    catalogue.close()
    done = filled("status")
    assert done.code == 3
    assert "has format 99 and this version reads up to" in done.err


def test_what_would_break_the_promise_has_a_code_of_its_own(
    filled: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overspent(_: object) -> None:
        raise PrivacyError("window 1 has nothing left")

    monkeypatch.setattr(status_command, "status", overspent)
    assert filled("status").code == 4
