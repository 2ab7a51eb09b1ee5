"""A standalone cluster on this machine: a master, two workers, each of one core, all encrypted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import PATIENCE

SECRET = "a secret of the cluster"  # noqa: S105


class Cluster:
    """Processes by id, and the address of the master."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        (folder / "conf").write_text(
            f"spark.authenticate true\nspark.authenticate.secret {SECRET}\n"
            "spark.network.crypto.enabled true\n"
        )
        self.url = ""

    def start(self) -> None:
        self._run("master", "org.apache.spark.deploy.master.Master", 1, "--port", "0")
        self.url = self._told("master", r"Starting Spark master at (spark://\S+)")
        for n in (1, 2):
            given = ["--cores", "1", "--memory", "512m", "--work-dir", str(self._folder / f"w{n}")]
            self._run(f"worker{n}", "org.apache.spark.deploy.worker.Worker", n, *given, self.url)
        for n in (1, 2):
            self._told(f"worker{n}", r"(Successfully registered with master)")

    def _run(self, name: str, kind: str, host: int, *words: str) -> None:
        """On a host of its own: Spark runs no task a second time where it runs already."""
        known = os.environ | {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": f"127.0.0.{host}",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
            "-Dspark.ui.enabled=false -Dspark.master.rest.enabled=false",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
        }
        given = ["--host", f"127.0.0.{host}", "--webui-port", "0"]
        conf = ["--properties-file", str(self._folder / "conf")]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [self._home / "bin" / "spark-class", kind, *given, *conf, *words],
                    env=known, stdout=log, stderr=log,
                )
            )  # fmt: skip

    def _told(self, name: str, pattern: str) -> str:
        stop = time.monotonic() + PATIENCE
        while time.monotonic() < stop:
            found = re.search(pattern, (self._folder / f"{name}.log").read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.2)
        raise AssertionError((self._folder / f"{name}.log").read_text(errors="replace")[-3000:])

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait()


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of a master that has two workers."""
    made = Cluster(folder)
    try:
        made.start()
        yield made.url
    finally:
        made.stop()


def driver(module: str, folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Run a module as the driver of an application, in a folder."""
    known = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    words = [sys.executable, "-m", module, url]
    return subprocess.run(words, cwd=folder, env=known, check=False, capture_output=True, text=True)
