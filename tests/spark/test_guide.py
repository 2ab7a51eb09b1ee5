"""The guide in docs/spark.md, as written, in the session of the tests; a campaign has a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.cluster import SECRET
from tests.spark.cluster_driver import FENCE, PAGE


@pytest.fixture
def here(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Names of files are looked up in a folder of the test, by Python and by Java."""
    monkeypatch.chdir(tmp_path)
    hadoop = spark._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(hadoop.Path(str(tmp_path)))
    yield
    files.setWorkingDirectory(before)


def test_guide_runs(here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("secret").write_text(SECRET)
    program = "\n".join(FENCE.findall(PAGE.read_text("utf-8")))
    assert program.endswith("spark.stop()\n")
    program = program.removesuffix("spark.stop()\n")  # others need it
    for name in ("arriving", "checkpoint"):  # Java looks for those of a stream where it was started
        assert f'"{name}"' in program
        program = program.replace(f'"{name}"', repr(str(tmp_path / name)))
    exec(compile(program, str(PAGE), "exec"), {"__name__": "guide"})  # noqa: S102
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("20000 rows in ")
    assert printed[-1] == "300 hot rows"
