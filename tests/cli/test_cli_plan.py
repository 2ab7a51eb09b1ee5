"""``pyramidion plan``: settings to paste, told to people and to programs."""

from __future__ import annotations

import math

import pytest

from pyramidion import Categorical, Label, Schema, Settings, plan
from tests.cli.shell import Shell

MOVIES = Schema(
    features=[Categorical("user"), Categorical("genre", domain=["action", "drama"])],
    label=Label("liked", classes=[0, 1]),
    groups=[("user", "genre")],
)
TOLD = ("--rows", "100_000", "--distinct", "user=2000", "user,genre=3000")


def asked(shell: Shell, *words: str, settings: str = "") -> list[str]:
    file = shell.folder / "movies.toml"
    file.write_text(f"{MOVIES.to_toml()}\n{settings}")
    return ["plan", str(file), *words]


def test_the_printed_settings_are_those_of_the_plan(shell: Shell) -> None:
    done = shell.main(*asked(shell, *TOLD, "--epsilon", "1"))
    assert (done.code, done.err) == (0, "")
    distinct = {"user": 2_000, "user,genre": 3_000}
    proposed = plan(MOVIES, rows=100_000, epsilon=1.0, distinct=distinct)
    assert Settings.from_toml("[settings]" + done.out.partition("[settings]")[2]) == (
        proposed.settings
    )
    for sentence in proposed.why:
        assert f"- {sentence}\n" in done.out


def test_every_table_is_told(shell: Shell) -> None:
    out = shell.main(*asked(shell, *TOLD, "--epsilon", "1")).out
    tables = out.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in tables] == ["table", "user", "genre", "user,genre"]


def test_a_guess_is_marked(shell: Shell) -> None:
    out = shell.main(*asked(shell, "--rows", "1e5", "--epsilon", "1")).out
    assert "2,154?" in out


def test_a_target_is_answered_with_an_epsilon(shell: Shell) -> None:
    told = shell.main(*asked(shell, *TOLD, "--target", "0.05", "--json")).told
    assert max(t["cost"] for t in told["tables"]) <= 0.05
    assert told["settings"]["epsilon"] == max(told["epsilon_for_table"])
    out = shell.main(*asked(shell, *TOLD, "--target", "0.05")).out
    assert "epsilon for 0.05" in out
    assert f"takes epsilon {told['settings']['epsilon']:g}" in out


def test_programs_get_the_same_and_the_toml(shell: Shell) -> None:
    told = shell.main(*asked(shell, *TOLD, "--epsilon", "2", "--json")).told
    assert Settings.from_toml(told["toml"]) == Settings.from_dict(told["settings"])
    assert told["window_bytes"] > 0


def test_the_file_s_own_settings_stay_where_nothing_is_told(shell: Shell) -> None:
    own = '[settings]\nepsilon = 0.5\nk = 2\ncount_window = "7d"\nretention = "28d"\n'
    told = shell.main(*asked(shell, *TOLD, "--json", settings=own)).told
    assert told["windows"] == 3
    kept = {"epsilon": 0.5, "k": 2, "count_window": "7d", "retention": "28d"}
    assert {name: told["settings"][name] for name in kept} == kept


def test_an_epsilon_that_is_told_goes_before_the_file_s(shell: Shell) -> None:
    words = asked(shell, *TOLD, "--epsilon", "2", "--json", settings="[settings]\nk = 2\n")
    told = shell.main(*words).told
    assert (told["settings"]["epsilon"], told["settings"]["k"]) == (2.0, 2)


def test_no_privacy_is_said_aloud(shell: Shell) -> None:
    done = shell.main(*asked(shell, *TOLD, "--epsilon", "inf"))
    assert done.out.startswith("NO privacy, for 100,000 rows")
    assert Settings.from_toml("[settings]" + done.out.partition("[settings]")[2]).epsilon == (
        math.inf
    )
    told = shell.main(*asked(shell, *TOLD, "--epsilon", "inf", "--json")).told
    assert told["settings"]["epsilon"] is None


@pytest.mark.parametrize("memory", ["200kB", "0.2 MB", "200000"])
def test_memory_is_written_as_people_do(shell: Shell, memory: str) -> None:
    told = shell.main(*asked(shell, *TOLD, "--epsilon", "1", "--memory", memory, "--json")).told
    assert told["window_bytes"] + told["complete_bytes"] <= 200_000


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--epsilon", "1"), "required: --rows"),
        (("--rows", "0", "--epsilon", "1"), "'0' is no whole number of at least 1"),
        (("--rows", "many", "--epsilon", "1"), "'many' is no whole number"),
        (("--rows", "100"), "needs either epsilon or a target"),
        (("--rows", "100", "--epsilon", "1", "--target", "0.1"), "not allowed with argument"),
        (("--rows", "100", "--target", "7"), "target is the standard deviation"),
        (("--rows", "100", "--epsilon", "1", "--distinct", "user"), "'user' is not TABLE=N"),
        (("--rows", "100", "--epsilon", "1", "--distinct", "usr=5"), "did you mean 'user'"),
        (("--rows", "100", "--epsilon", "1", "--memory", "much"), "'much' is no size"),
        (("--rows", "100", "--epsilon", "1", "--memory", "1kB"), "raise memory"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    shell: Shell, words: tuple[str, ...], sentence: str
) -> None:
    done = shell.main(*asked(shell, *words))
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.startswith("pyramidion: ")
    assert done.err.count("\n") == 1


def test_bad_settings_are_told_with_their_file(shell: Shell) -> None:
    done = shell.main(*asked(shell, *TOLD, settings="[settings]\nepsilon = -1\n"))
    assert done.code == 2
    assert "movies.toml: setting 'epsilon' must be above 0" in done.err


def test_shards_are_told_with_what_they_cost(shell: Shell) -> None:
    done = shell.main(*asked(shell, *TOLD, "--epsilon", "1", "--shards", "3"))
    assert "1 window summed, in 3 shards\n" in done.out
    assert "3 times the noise variance of one store" in done.out
    assert "shards = 3\n" in done.out
