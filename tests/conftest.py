from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.redis_servers import RedisCluster, RedisServer, needed

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # cores are shared: who waits must not spin

# No times are asserted: this machine may be busy.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Under this switch a skipped test fails the run, unless it skips for one of these reasons:
# the evaluation data may be absent, and scikit-learn has a check for array APIs we do not claim.
REQUIRED = bool(os.environ.get("PYRAMIDION_REQUIRE_ALL"))
MAY_SKIP = (
    "MovieLens 1M is not at",
    "Criteo 137k is not at",
    "Open Bandit is not at",
    "SCIPY_ARRAY_API is not set",
)

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("PYRAMIDION_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


def real(title: str, name: str) -> Path:
    """The folder of a real data set, or a skip."""
    folder = DATA / name
    if not folder.exists():
        pytest.skip(f"{title} is not at {folder}; set PYRAMIDION_DATA to the folder above it")
    return folder


@pytest.fixture(scope="session")
def movielens() -> Path:
    return real("MovieLens 1M", "movielens-1m")


@pytest.fixture(scope="session")
def criteo() -> Path:
    return real("Criteo 137k", "criteo-kaggle-137k")


@pytest.fixture(scope="session")
def open_bandit() -> Path:
    return real("Open Bandit", "open-bandit-small")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    needed()
    server = RedisServer(tmp_path_factory.mktemp("redis") / "one")
    yield server
    server.kill()


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    needed()
    cluster = RedisCluster(tmp_path_factory.mktemp("redis") / "three")
    yield cluster
    cluster.kill()


refused: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if REQUIRED and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not any(allowed in reason for allowed in MAY_SKIP):
            refused.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if refused and session.exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for skipped in refused:
        terminalreporter.write_line(f"must not be skipped here: {skipped}", red=True)
