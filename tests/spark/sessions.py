"""Real Spark in tests: one local session for all of them, small and encrypted."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

NO_JAVA = "Spark needs Java 17, which is not installed here (make system)"

CONF = {
    "spark.ui.enabled": "false",
    "spark.io.encryption.enabled": "true",
    "spark.sql.shuffle.partitions": "3",
    "spark.default.parallelism": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


def need_java() -> None:
    if shutil.which("java") is None:
        pytest.skip(NO_JAVA)


def session(local: Path, master: str = "local[2,2]", **more: str) -> Any:
    """A session whose blocks and shuffle files lie in a folder of its own; a task may fail once."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    made = SparkSession.builder.master(master).appName("pyramidion")
    own = {"spark.local.dir": str(local), "spark.sql.warehouse.dir": str(local / "warehouse")}
    for name, value in {**CONF, **own, **more}.items():
        made = made.config(name, value)
    return made.getOrCreate()
