"""A real Cassandra for the tests: one node, or a ring of three, on 127.0.0.1 and its neighbours.

The jars come from Maven Central by ``make cassandra``, once, into ``build/cassandra``. A node
is a Java process with a folder of its own; it ends, with all it holds, when the test says so.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from string import Template

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.ports import free_port
from tests.waiting import PATIENCE

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
JARS = ROOT / "build" / "cassandra"
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
SUPERUSER = ("cassandra", "cassandra")  # as Cassandra comes
RUNS_ON = ("11", "17")  # what Cassandra 5.0 accepts


class AbsentError(Exception):
    """Why there can be no Cassandra here; a reason to skip."""


def fetched() -> Path:
    """The folder of the jars, fetched if they are not there yet."""
    if not (JARS / "fetched").exists() and shutil.which("mvn") is None:
        raise AbsentError(
            "Cassandra is fetched by Maven, not found here; `make system` installs it"
        )
    JARS.parent.mkdir(exist_ok=True)
    with open(JARS.with_suffix(".lock"), "w") as lock:  # test workers ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = ["make", "--silent", "cassandra"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise AbsentError(f"Cassandra could not be fetched: {(done.stdout + done.stderr)[-300:]}")
    return JARS


def java() -> str:
    """A Java that Cassandra runs on."""
    usual = sorted(map(str, Path("/usr/lib/jvm").glob("java-17-*/bin/java")))
    for command in [*usual, shutil.which("java")]:
        if command and _version(command) in RUNS_ON:
            return command
    raise AbsentError("Cassandra needs Java 17, not found here; `make system` installs it")


def _version(command: str) -> str:
    told = subprocess.run([command, "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', told)
    return found[1] if found else ""


@dataclass
class Node:
    """One node: where it listens, and the process, which may be killed."""

    host: str
    port: int
    folder: Path
    process: subprocess.Popen[bytes]
    guarded: bool

    def url(self, keyspace: str, login: str = ":".join(SUPERUSER), **options: object) -> str:
        """Where tables in a keyspace of it are; a guarded one is asked to prove who it is."""
        if self.guarded:
            options = {"tls": self.folder / "node.pem"} | options
        asks = f"{login}@" if self.guarded else ""
        told = "&".join(f"{name}={value}" for name, value in options.items())
        return f"cassandra://{asks}{self.host}:{self.port}/{keyspace}?{told}"

    def kill(self) -> None:
        """End it as a power cut does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def listens(self) -> bool:
        """Whether it takes connections of clients; raises if it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"Cassandra ended: {(self.folder / 'log').read_text()[-2000:]}")
        try:
            socket.create_connection((self.host, self.port), 1).close()
        except OSError:
            return False
        return True


@contextmanager
def ring(
    folder: Path, size: int = 1, *, guarded: bool = False, options: Sequence[str] = ()
) -> Iterator[list[Node]]:
    """Nodes that know each other, begun together; they end with the block.

    Guarded ones ask for a password, and who they are; else everybody may do everything.
    ``options`` are for Java, beside those of all.
    """
    command, jars, hosts = java(), fetched(), HOSTS[:size]
    port, storage = free_port(*hosts), free_port(*hosts)
    with ExitStack() as ends:
        nodes = []
        for number, host in enumerate(hosts):
            own = folder / host
            own.mkdir(parents=True)
            (own / "node.pem").write_bytes(certified(host))
            names = {
                "authenticator": f"{'Password' if guarded else 'AllowAll'}Authenticator",
                "authorizer": f"{'Cassandra' if guarded else 'AllowAll'}Authorizer",
                "host": host,
                "port": port,
                "storage": storage,
                "folder": own,
                "token": number * (2**64 // size) - 2**63,
                "seeds": ",".join(f"{seed}:{storage}" for seed in hosts),
            }
            text = Template((HERE / "cassandra.yaml").read_text()).substitute(names)
            (own / "cassandra.yaml").write_text(text)
            process = _begun([command, *_OPTIONS, *options], jars, own)
            nodes.append(Node(host, port, own, process, guarded))
            ends.callback(nodes[-1].kill)
        _wait(lambda: all(node.listens() for node in nodes), "listens")
        login = PlainTextAuthProvider(*SUPERUSER) if guarded else None
        _wait(lambda: _met(nodes, login), "has met the others")
        yield nodes


def certified(host: str) -> bytes:
    """A key and a certificate for an address, signed by itself: PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    today = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


_OPTIONS = (f"@{HERE / 'java.options'}",)


def _begun(java: Sequence[str], jars: Path, folder: Path) -> subprocess.Popen[bytes]:
    (agent,) = jars.glob("jamm-*.jar")
    words = [
        *java,
        f"-javaagent:{agent}",
        f"-Dcassandra.config=file://{folder}/cassandra.yaml",
        f"-Dcassandra.storagedir={folder}",
        f"-Djava.io.tmpdir={folder}",
        f"-Dlogback.configurationFile={HERE / 'logback.xml'}",
        "-classpath",
        f"{jars}/*",
        "org.apache.cassandra.service.CassandraDaemon",
    ]
    with open(folder / "log", "wb") as log:
        return subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_surroundings()
        )


def _surroundings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("CASSANDRA")}


def _met(nodes: Sequence[Node], login: PlainTextAuthProvider | None) -> bool:
    """Whether every node knows every other one, and lets us in."""
    hosts = [node.host for node in nodes]
    with Cluster(hosts, port=nodes[0].port, auth_provider=login, protocol_version=4) as cluster:
        try:
            session = cluster.connect()
            hosts = list(cluster.metadata.all_hosts())
            peers = [
                len(session.execute("SELECT peer FROM system.peers", host=host).all())
                for host in hosts
            ]
        except NoHostAvailable:
            return False
    return peers == [len(nodes) - 1] * len(nodes)


def _wait(done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"no Cassandra that {what} within {PATIENCE:.0f} seconds")
        time.sleep(0.1)
