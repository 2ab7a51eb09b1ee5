"""What one process serves: the streams of a data directory, its tokens, its signing key.

DATA/flights/            a store
DATA/clicks/             another one
DATA/.service/           tokens (as hashes) and the key that signs snapshots
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pyramidion.config.checks import nearest
from pyramidion.config.schema import Schema
from pyramidion.config.secret_files import read_secret
from pyramidion.config.settings import Settings
from pyramidion.errors import FormatError, MissingError, SchemaError, StateError
from pyramidion.storage.disk import remove, replace_durably
from pyramidion.storage.home import CATALOGUE, undone
from pyramidion.storage.key_holders import holder_at
from pyramidion.storage.making import drafts_in, sweep
from pyramidion.store.clocks import Clock
from pyramidion.store.pyramid import Pyramid
from pyramidion.store.schedule import Due
from pyramidion.web.descriptors import refuse_few, scarce
from pyramidion.web.limits import Admission, Limits
from pyramidion.web.service.metrics import Metrics
from pyramidion.web.service.streams import Stream
from pyramidion.web.service.tokens import OWN, Tokens
from pyramidion.web.service.warming import Warming
from pyramidion.web.tokens import Token

STREAM = "{stream}"
KEYS = f"file:~/.config/pyramidion/{STREAM}.key"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def refuse_name(name: str) -> None:
    """Raise unless a stream may be called so."""
    if not _NAME.fullmatch(name):
        raise SchemaError(
            "a stream's name is 1 to 64 letters, digits, - or _, and begins with a letter or "
            "digit; choose another"
        )


class Service:
    """All that is served from one data directory.

    ``clock`` is the service's own, and that of every stream which has none in ``clocks``: a stream
    may live by a simulated time, and who logs in meanwhile by the real one. ``announce`` is called
    with a stream's name and what opening it is about to erase.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keys: str = KEYS,
        limits: Limits | None = None,
        open_metrics: bool = False,
        clock: Clock = time.time,
        clocks: Mapping[str, Clock] | None = None,
        announce: Callable[[str, Due], None] = lambda *_: None,
    ) -> None:
        if STREAM not in keys:
            raise SchemaError(
                f"the key holders of several streams need the stream's name in them; write "
                f"{STREAM} where it goes, as in {KEYS}"
            )
        self.folder = folder.absolute()  # errors that name a file are recognised by it
        self.limits = limits or Limits()
        self.admission = Admission(self.limits)
        self.warming = Warming()
        self.metrics = Metrics(self)
        self.admission.refused = self.metrics.turned_away
        self.open_metrics = open_metrics
        self.clock = clock
        self._clocks = dict(clocks or {})
        self._announce = announce
        self._keys = keys
        self._changing = threading.Lock()
        (folder / OWN).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.tokens = Tokens.of(folder)
        with self.tokens.alone():  # so what is half written is of a process that was killed
            for draft in (".signing.key.*", ".tokens.json.*"):
                remove(folder / OWN, [path.name for path in (folder / OWN).glob(draft)])
            self.signer = _signer(folder / OWN / "signing.key")
        self._streams: dict[str, Stream] = {}
        self.closed = False
        try:
            for name in set(drafts_in(folder)):  # of streams whose creation was broken off
                sweep(folder / name, partial(undone, holder_at(self._holder(name)), None))
            for name in stream_names(folder):
                self._streams[name] = self._opened(name, self._open)
        except BaseException:
            self.close()
            raise

    def _open(self, name: str) -> Pyramid:
        return Pyramid.open(
            self.folder / name,
            keys=self._holder(name),
            clock=self._clock_of(name),
            announce=lambda due: self._announce(name, due),
        )

    def _opened(self, name: str, opener: Callable[[str], Pyramid]) -> Stream:
        stream = Stream(name, opener(name), self.limits)
        stream.commits.committed = self.metrics.committed
        self.metrics.opened(stream)
        return stream

    def _holder(self, name: str) -> str:
        return self._keys.replace(STREAM, name)

    def _clock_of(self, name: str) -> Clock:
        return self._clocks.get(name, self.clock)

    @property
    def now(self) -> int:
        """The service's own clock in microseconds; what concerns a stream goes by `Stream.now`."""
        return int(self.clock() * 1_000_000)

    # --- streams ----------------------------------------------------------------------------

    @property
    def every(self) -> list[Stream]:
        """All streams, for the metrics; none once the service is closed."""
        return [] if self.closed else [self._streams[name] for name in sorted(self._streams)]

    def streams(self, caller: Token) -> list[Stream]:
        """Those that a caller may know of."""
        return [stream for name, stream in sorted(self._streams.items()) if caller.may_see(name)]

    def stream(self, name: str, caller: Token) -> Stream:
        """One stream; to who may not see it, it is not there."""
        found = self._streams.get(name) if caller.may_see(name) else None
        if found is None:
            known = [stream.name for stream in self.streams(caller)]
            remedy = nearest(name, known) if known else "an admin makes one"
            raise MissingError(f"there is no stream of this name for this token; {remedy}")
        return found

    def create(self, name: str, schema: Schema, settings: Settings) -> Stream:
        """Make a new stream."""
        refuse_name(name)

        def made(name: str) -> Pyramid:
            path, keys = self.folder / name, self._holder(name)
            clock = self._clock_of(name)
            return Pyramid.create(path, schema, settings, keys=keys, clock=clock)

        with self._changing:
            if self.closed:
                raise StateError("the service is stopping; ask again when it is back")
            if name in self._streams:
                raise StateError("there is a stream of this name already; choose another")
            refuse_few(len(self._streams) + 1)
            self._streams[name] = stream = self._opened(name, made)
        return stream

    @property
    def troubles(self) -> dict[str, str]:
        """What is wrong with which stream."""
        return {s.name: s.trouble for s in list(self._streams.values()) if s.trouble}

    @property
    def reasons(self) -> list[str]:
        """Why the service is not ready, in words that may be told to everybody."""
        found = {stream.reason for stream in list(self._streams.values())}
        about = {"closed": self.closed, "descriptors": scarce(), "kernels": self.warming.busy}
        return sorted((found - {""}).union(reason for reason, so in about.items() if so))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish what was taken, and let go of every store."""
        self.warming.close()
        with self._changing:
            self.closed = True
            for stream in self._streams.values():
                stream.close()


def stream_names(folder: Path) -> list[str]:
    """The stores in a data directory."""
    if (folder / CATALOGUE).exists():
        raise SchemaError(
            f"{folder} is a store itself; give the directory that it lies in, whose stores are the "
            f"streams"
        )
    if not folder.is_dir():
        return []
    found = (path.name for path in folder.iterdir() if (path / CATALOGUE).is_file())
    return sorted(name for name in found if _NAME.fullmatch(name))


def _signer(path: Path) -> Ed25519PrivateKey:
    """The key that signs snapshots and exports; made with the service."""
    if not path.exists():
        replace_durably(path, Ed25519PrivateKey.generate().private_bytes_raw())
    try:
        return Ed25519PrivateKey.from_private_bytes(read_secret(path))
    except ValueError:
        pass
    raise FormatError(
        f"{path}, the key that signs snapshots and models, is damaged; restore it, or remove it: a "
        f"new one is made at the next start, and whoever pinned the old one must pin the new one"
    )
