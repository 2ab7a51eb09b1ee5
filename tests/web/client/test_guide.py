"""The program in docs/client.md does what the page says, against a service."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.store.stores import TIMELESS, Stand, observed, rows
from tests.web.client.service import TOKEN, serving

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
FENCE = re.compile(r"^```python guide.py\n((?:.*\n)*?)^```$", re.MULTILINE)


def test_the_guide_runs_from_top_to_bottom(
    stand: Stand,
    trainer: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("token").write_text(TOKEN + "\n")
    store = stand.create(TIMELESS, count_window=50)
    observed(store, rows(50).drop_columns(["t"]))
    store.advance()
    observed(store, rows(30, seed=1).drop_columns(["t"]))
    parts = FENCE.findall(PAGE.read_text("utf-8"))
    assert len(parts) == 3
    program = "\n".join(parts)
    assert "http://127.0.0.1:8780" in program
    with serving(store, stand.clock) as service:
        program = program.replace("http://127.0.0.1:8780", service.url)
        program = program.replace("strip())", "strip(), clock=clock)")
        exec(compile(program, str(PAGE), "exec"), {"clock": stand.clock})  # noqa: S102
        assert service.counted("POST", "/observations") == 1
    assert capsys.readouterr().out == "['flights']\n"
