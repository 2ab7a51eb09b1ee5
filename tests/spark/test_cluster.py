"""A cluster of two workers: the guide runs on it; tasks that run twice or die change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.cluster import SECRET, cluster, driver
from tests.spark.sessions import need_java


@pytest.mark.campaign
def test_the_guide_runs_on_a_cluster_and_second_attempts_change_nothing(tmp_path: Path) -> None:
    need_java()
    work = tmp_path / "work"
    work.mkdir()
    (work / "secret").write_text(SECRET + "\n")
    with cluster(tmp_path) as url:
        done = driver("tests.spark.cluster_driver", work, url)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    told = done.stdout.splitlines()
    assert told[0].startswith("20000 rows in ")
    assert "300 hot rows" in told
    assert told[-1] == "all done"
    assert not [file for file in tmp_path.rglob("shuffle_*") if file.is_file()]
