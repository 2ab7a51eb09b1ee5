from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.doctest import DoctestModule
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, is_hypothesis_test, settings
from xdist.scheduler import LoadScopeScheduling

from pyramidion import workers as threads
from pyramidion.storage import cassandra, redis
from tests.campaign import SEED
from tests.redis_servers import RedisCluster, RedisServer, needed
from tests.seeding import Chance

if TYPE_CHECKING:
    from tests.cassandra_nodes.ring import Node

# Cores are shared: a thread that waits must not spin. OpenBLAS cannot be told so, and for our small
# matrices its second thread makes a fit of a logistic regression eleven times as expensive.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No times are asserted: this machine may be busy. `make test` tries the same examples in every
# run, so that a change is what turns it red; `make campaign` looks for others.
EXPLORING = SEED in os.environ
BUSY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, database=None, **BUSY)
settings.register_profile("exploring", **BUSY)
settings.load_profile("exploring" if EXPLORING else "same")

# What stores do behind the scenes has the rank of all else here: on a busy machine it would starve,
# and with it the tests that wait for it.
RANKS = {name: getattr(threads, name) for name in ("step_back", "_give_way")}
for name in RANKS:
    setattr(threads, name, lambda: None)

# A server of tests that is slow is not away.
redis.WITHIN = cassandra.WITHIN = 60.0

CHANCE = Chance(os.environ.get(SEED, ""))
CHANCE.install()

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


@pytest.fixture(scope="session")
def cassandra_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node of Cassandra that asks for a password, for all tests of this process."""
    with cassandra_nodes(tmp_path_factory.mktemp("cassandra"), guarded=True) as (node,):
        yield node


@contextmanager
def cassandra_nodes(
    folder: Path, size: int = 1, *, guarded: bool = False
) -> Iterator[Sequence[Node]]:
    """A Cassandra of some nodes, or a skip."""
    pytest.importorskip("cassandra", reason="cassandra-driver is not installed here")
    from tests.cassandra_nodes.ring import AbsentError, ring  # it loads the driver

    with ExitStack() as ends:
        try:
            nodes = ends.enter_context(ring(folder, size, guarded=guarded))
        except AbsentError as reason:
            pytest.skip(str(reason))
        yield nodes


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    day, now = datetime.timedelta(days=1), datetime.datetime.now(datetime.UTC)
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain, secret = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    secret.touch(0o600)
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain, secret


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads have the ranks that they have elsewhere."""
    for name, real in RANKS.items():
        monkeypatch.setattr(threads, name, real)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws is decided by its name."""
    CHANCE.begin(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """What a fixture of several tests draws is decided by its own name, whoever asks first."""
    if fixturedef.scope == "function":
        return (yield)
    place = getattr(request, "param_index", 0)
    with CHANCE.named(f"{fixturedef.baseid} {fixturedef.argname} {place}"):
        return (yield)


@pytest.fixture(scope="session")
def campaign_seed() -> int:
    """The seed of this round of a campaign; without one, 0."""
    return int(os.environ.get(SEED, "0"))


# --- kinds of tests ---------------------------------------------------------------------------

MARKED_BY_FIXTURE = {
    "servers": {"redis_server", "redis_cluster", "cassandra_node", "process"},
    "java": {"cassandra_node", "spark"},
    "browser": {"chromium"},
}
MARKED_BY_PATH = {
    "servers": re.compile(r"tests/web/edge/test_edge_process|tests/store/shards/"),
    "java": re.compile("tests/spark/"),
    "slow": re.compile(r"tests/.*kill"),
}

TOGETHER = {
    "cassandra": ("tests/storage/contracts/", "tests/storage/test_cassandra_tables"),
    "spark": ("tests/spark/",),
}
"""Files that share one server run in one worker, so that it is started once."""

LONG = (
    "tests/spark/",
    "tests/web/dashboard/",
    "tests/storage/test_cassandra",
    "tests/storage/contracts/",
    "tests/store/test_kill",
    "tests/test_docs.py",
    "tests/web/edge/",
    "tests/cli/",
)
"""Files to begin with, so that no worker is left alone with a long one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need, and begin with the long ones."""
    for item in items:
        path = item.nodeid.partition("::")[0]
        asked = set(getattr(item, "fixturenames", ()))
        by_fixture = {name for name, fixtures in MARKED_BY_FIXTURE.items() if asked & fixtures}
        by_path = {name for name, pattern in MARKED_BY_PATH.items() if pattern.match(path)}
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("property")
        for name in by_fixture | by_path:
            item.add_marker(name)
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Look for doctests in the helpers only: modules of tests have none, and are many."""
    collectors = yield
    if file_path.name.startswith("test_"):
        return [found for found in collectors if not isinstance(found, DoctestModule)]
    return collectors


class ByFile(LoadScopeScheduling):
    """Gives each worker whole files, and files that share a server to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return next((name for name, files in TOGETHER.items() if path.startswith(files)), path)


@pytest.hookimpl(optionalhook=True)  # also without pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


# --- tests that must not be skipped -----------------------------------------------------------

refused: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not hasattr(report, "wasxfail"):
        note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A module that skips while it is collected, as by `importorskip`, has no test to report."""
    note(report)


def note(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Refuse a skip that is for none of the reasons above."""
    if REQUIRED and report.skipped:
        reason = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not any(allowed in reason for allowed in MAY_SKIP):
            refused.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if refused and session.exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for skipped in refused:
        terminalreporter.write_line(f"must not be skipped here: {skipped}", red=True)
