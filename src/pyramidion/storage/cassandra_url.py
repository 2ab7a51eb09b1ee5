"""The address of shared tables in Cassandra.

cassandra://user:password@host:9042,host,host/keyspace?consistency=QUORUM&replication=3

consistency     of reads and writes: how many copies must answer
reads, writes   of one of them, where they differ
replication     copies of a keyspace that is made where it is not there: a number for every
                data centre, or dc1:3,dc2:2; without it the keyspace must be there
tls             a file with the certificates of who signed the nodes' ones, or yes: the system's
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pyramidion.errors import SchemaError

PORT = 9042
CONSISTENCIES = (
    "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM",
)  # fmt: skip
OPTIONS = ("consistency", "reads", "replication", "tls", "writes")

_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_CENTRE = re.compile(r"[\w-]+:\d+")


@dataclass(frozen=True)
class CassandraUrl:
    """Where a Cassandra is, who asks, and how many of its copies must answer."""

    hosts: list[tuple[str, int]]
    keyspace: str
    user: str
    password: str = field(repr=False)
    options: dict[str, str]

    @classmethod
    def read(cls, url: str) -> CassandraUrl:
        """Take a URL apart; what is not understood is refused.

        >>> CassandraUrl.read("cassandra://me:secret@one,two:9043/tables?reads=ONE").address
        'cassandra://one:9042,two:9043/tables'
        """
        parts = urlsplit(url)
        login, _, places = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        try:
            hosts = [_host(place) for place in places.split(",")]
        except ValueError:
            raise SchemaError(
                "a URL of Cassandra has hosts: cassandra://host:9042,host/keyspace"
            ) from None
        made = cls(hosts, parts.path.strip("/"), unquote(user), unquote(password), options)
        made._refuse_unknown()
        return made

    def _refuse_unknown(self) -> None:
        if not _KEYSPACE.fullmatch(self.keyspace):
            raise SchemaError(
                f"the URL of {self.address} names no keyspace; put one behind the hosts, of "
                f"lowercase letters, digits and _"
            )
        for option in self.options:
            if option not in OPTIONS:
                raise SchemaError(
                    f"the URL of {self.address} has an option that is not known; there are "
                    f"{', '.join(OPTIONS)}"
                )
        for option in ("consistency", "reads", "writes"):
            if self.options.get(option, CONSISTENCIES[0]).upper() not in CONSISTENCIES:
                raise SchemaError(
                    f"{option} of {self.address} is no consistency of Cassandra; give "
                    f"{', '.join(CONSISTENCIES)}"
                )
        self._copies()

    @property
    def address(self) -> str:
        """What errors call it, without who asks."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"cassandra://{hosts}/{self.keyspace}"

    @property
    def port(self) -> int:
        """Where nodes listen that do not say so."""
        return self.hosts[0][1]

    # --- how many copies ------------------------------------------------------------

    @property
    def asks(self) -> str:
        """How many copies must answer, in words."""
        reads, writes = self._consistency("reads"), self._consistency("writes")
        return reads if reads == writes else f"{reads} of reads and {writes} of writes"

    @property
    def reads(self) -> int:
        """The driver's number for the consistency of reads."""
        return _number(self._consistency("reads"))

    @property
    def writes(self) -> int:
        """The driver's number for the consistency of writes."""
        return _number(self._consistency("writes"))

    def _consistency(self, which: str) -> str:
        both = self.options.get("consistency", "QUORUM")
        return self.options.get(which, both).upper()

    def new_keyspace(self) -> str:
        """The statement that makes the keyspace; refused where its replication is not given."""
        copies = ", ".join(f"'{centre}': {number}" for centre, number in self._copies().items())
        if not copies:
            raise SchemaError(
                f"there is no keyspace {self.keyspace} at {self.address}; create it, or say how "
                f"many copies it shall have: ?replication=3"
            )
        return (
            f'CREATE KEYSPACE IF NOT EXISTS "{self.keyspace}" WITH replication = '
            f"{{'class': 'NetworkTopologyStrategy', {copies}}}"
        )

    def _copies(self) -> dict[str, int]:
        asked = self.options.get("replication", "")
        if not asked:
            return {}
        if asked.isdecimal():
            return {"replication_factor": int(asked)}
        if all(_CENTRE.fullmatch(part) for part in asked.split(",")):
            pairs = (part.rpartition(":") for part in asked.split(","))
            return {centre: int(number) for centre, _, number in pairs}
        raise SchemaError(
            f"replication of {self.address} is a number of copies, as 3, or one for each data "
            f"centre, as dc1:3,dc2:2"
        )

    # --- who asks ---------------------------------------------------------------------

    def login(self) -> Any:
        """The driver's name and password, or None."""
        from cassandra.auth import PlainTextAuthProvider

        return PlainTextAuthProvider(self.user, self.password) if self.user else None

    def tls_context(self) -> ssl.SSLContext | None:
        """How nodes prove who they are; None: they need not, and everybody can listen."""
        asked = self.options.get("tls", "")
        if not asked:
            return None
        try:
            return ssl.create_default_context(cafile=None if asked == "yes" else asked)
        except OSError as problem:
            raise SchemaError(
                f"tls of {self.address} is a file of certificates that can be read, or yes"
            ) from problem


def _host(place: str) -> tuple[str, int]:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise ValueError
    return parts.hostname, parts.port or PORT


def _number(consistency: str) -> int:
    from cassandra import ConsistencyLevel

    found: int = ConsistencyLevel.name_to_value[consistency]
    return found
