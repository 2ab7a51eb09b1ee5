"""``pyramidion audit``: runs on stores of its own, and ends with 1 where more leaks."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyramidion import Settings, cli
from pyramidion.store.audit import report, structural

SCHEMA = """
weight = "p"

[label]
name = "late"
classes = [0, 1]

[[features]]
name = "tail"
type = "categorical"

[[features]]
name = "carrier"
type = "categorical"
domain = ["AA", "UA"]

[settings]
epsilon = 2.0
weights_share = 0.0
p_min = 0.5
count_window = 1000
"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structural, "CANARIES", 1_000)
    monkeypatch.setattr(structural, "BUCKETS", 1_024)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


def test_an_audit_prints_each_check_with_a_tick_then_the_bound_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], temporary: Path
) -> None:
    assert cli.main(["audit", "--epsilon", "3", "--canaries", "500", "--rounds", "2"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("✓ ") for line in told) == 12
    assert told[-1] == "verdict         within the ledger"
    assert "1,000 canaries in 2 stores, Gaussian noise, 8 tables" in told[13]
    assert list(temporary.iterdir()) == []


def test_a_schema_says_which_tables_and_settings_are_audited(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(SCHEMA)
    assert cli.main(["audit", str(file), "--canaries", "500", "--rounds", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["measured"]["tables"] == 2
    assert told["measured"]["ledger_epsilon"] == pytest.approx(2.0)
    assert [check["fact"] for check in told["checks"] if not check["holds"]] == []
    found = {check["fact"]: check["found"] for check in told["checks"]}
    assert found["no observation adds more than Ω to a cell"] == "largest 2, Ω = 2"


def test_options_go_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Settings] = []
    monkeypatch.setattr(report, "audit", lambda settings, **_: given.append(settings) or honest())
    file = tmp_path / "settings.toml"
    file.write_text("[settings]\nepsilon = 2.0\nrows = 3\n")
    options = ["--epsilon", "0.5", "--delta", "0", "--k", "4"]
    assert cli.main(["audit", "--settings", str(file), *options]) == 0
    assert cli.main(["audit"]) == 0
    assert given == [Settings(epsilon=0.5, delta=0, k=4, rows=3), Settings(epsilon=1)]


def honest() -> report.Audit:
    measured = report.measure(Settings(epsilon=1, delta=0), canaries=100)
    return report.Audit(measured, (structural.Check("a fact", True, "found"),))


LEAKS: list[Any] = [
    lambda audit: replace(audit, measured=replace(audit.measured, bound=1.01)),
    lambda audit: replace(audit, checks=(structural.Check("a fact", False, "not so"),)),
]


@pytest.mark.parametrize("leak", LEAKS, ids=["statistical", "structural"])
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_an_alarm_is_exit_code_1(
    leak: Any, form: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = leak(honest())
    monkeypatch.setattr(report, "audit", lambda *_, **__: found)
    assert cli.main(["audit", *form]) == 1
    told = capsys.readouterr().out
    if form:
        assert json.loads(told)["alarm"] is True
    else:
        assert "MORE LEAKS THAN THE LEDGER SAYS" in told or "✗ a fact: not so" in told


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--epsilon", "inf"], "nothing to audit"),
        (["--canaries", "5"], "at least 100 canaries"),
        (["nobody.toml"], "nobody.toml"),
    ],
)
def test_what_cannot_be_audited_is_one_sentence_and_exit_code_2(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", *options]) == 2
    assert sentence in capsys.readouterr().err
