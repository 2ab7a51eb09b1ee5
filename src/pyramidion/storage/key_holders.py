"""Data keys under a store key that is held elsewhere; dropping one is erasure.

Every hot step, window and checkpoint has its own data key. The catalogue keeps
it only wrapped by the *store key*, which lives outside the store's directory in a
`KeyHolder`. To erase, a new store key is made, the surviving data keys are wrapped
anew, and the old store key is destroyed in its holder: old pages, log frames and
backups then hold keys that nothing opens.

    file:/path        a file of its own, readable by its owner alone
    env:NAME          what the environment variable says: one of the others
    scheme:...        a plug-in: entry point group ``pyramidion.keys``

Overwriting does not surely erase on flash and copy-on-write disks. A ``file:``
holder overwrites before it unlinks, as best effort; deletion records name the
holder, so that one can tell.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pyramidion.config.secret_files import refuse_exposed
from pyramidion.errors import FormatError, KeyHolderError, SchemaError
from pyramidion.storage.ciphers import NONCE, new_key
from pyramidion.storage.disk import sync, write_all

_LOCKED = os.O_RDWR | os.O_CREAT

PINNED, AUTHENTICATED = "pinned", "authenticated"
"""In the name of a store key: what of its catalogue is authenticated under it, see `pins`."""

SCHEMES = "pyramidion.keys"
"""Entry point group: a callable that takes what stands after the colon and gives a `KeyHolder`."""


class KeyHolder(Protocol):
    """Where store keys live: a few small secrets by name, made and destroyed durably.

    A holder that several processes use may have a method ``alone()``, a context in which
    no other changes keys: two erasures of copies of one store would destroy each other's.
    """

    name: str

    def keys(self) -> dict[str, bytes]:
        """The store keys that exist now."""

    def add(self, name: str, key: bytes) -> None:
        """Keep one more; durable on return."""

    def drop(self, names: Collection[str]) -> None:
        """Destroy some; durable on return."""


class FileHolder:
    """Store keys in a file outside the store."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()
        self.name = f"file:{self.path}"
        self._lock = threading.RLock()
        self._depth = 0

    def keys(self) -> dict[str, bytes]:
        """The store keys in the file; none where there is no file."""
        try:
            held = json.loads(self._read())
            return {name: bytes.fromhex(key) for name, key in held.items()}
        except FileNotFoundError:
            return {}
        except KeyHolderError:
            raise
        except OSError as problem:
            raise self._refused(problem) from None
        except (ValueError, AttributeError, TypeError):
            pass  # what could not be read may be half a key
        raise KeyHolderError(f"{self.name} holds no store keys; restore the file it was")

    def _read(self) -> bytes:
        """The file; once more if it was replaced meanwhile, for then the old one is zeroed."""
        while True:
            with self.path.open("rb") as file:
                data, found = file.read(), os.fstat(file.fileno())
                if found.st_nlink:
                    refuse_exposed(self.path, found, KeyHolderError)
                    return data

    def add(self, name: str, key: bytes) -> None:
        """Write the file anew with one more key."""
        with self.alone():
            self._replace({**self.keys(), name: key})

    def drop(self, names: Collection[str]) -> None:
        """Write the file anew without some keys, and overwrite the old one."""
        with self.alone():
            held = self.keys()
            if any(name in held for name in names):
                self._replace({name: key for name, key in held.items() if name not in names})

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Stores of several processes may share a file; one erases at a time."""
        with self._lock:
            if self._depth:
                yield
                return
            with self._locked():
                self._depth = 1
                try:
                    yield
                finally:
                    self._depth = 0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.path.with_name(f".{self.path.name}.lock"), _LOCKED, 0o600)
        except OSError as problem:
            raise self._refused(problem) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _replace(self, keys: dict[str, bytes]) -> None:
        data = json.dumps({name: key.hex() for name, key in keys.items()}).encode()
        fresh = self.path.with_name(f".{self.path.name}.new")
        try:
            # A leftover of a crash may hold a key that is to be destroyed: never truncate it.
            if fresh.exists():
                _overwrite(os.open(fresh, os.O_WRONLY))
                fresh.unlink()
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            old = os.open(self.path, os.O_WRONLY) if self.path.exists() else None
            os.replace(fresh, self.path)
            sync(self.path.parent)
            if old is not None:
                _overwrite(old)
        except OSError as problem:
            raise self._refused(problem) from None

    def _refused(self, problem: OSError) -> KeyHolderError:
        reason = os.strerror(problem.errno) if problem.errno else "it is not known why"
        return KeyHolderError(
            f"the key holder {self.name} cannot be used ({reason}); see to its folder and rights"
        )


def _overwrite(descriptor: int) -> None:
    """Zero what a descriptor still reaches, after its name was given to another file."""
    try:
        write_all(descriptor, bytes(os.fstat(descriptor).st_size))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def holder_at(url: str) -> KeyHolder:
    """The key holder that a URL such as ``file:~/store.key`` names."""
    scheme, _, rest = url.partition(":")
    if not rest:
        raise SchemaError(f"keys={url!r} names no key holder; write file:/path or env:NAME")
    if scheme == "file":
        return FileHolder(rest)
    if scheme == "env":
        inner = os.environ.get(rest, "")
        if not inner or inner.startswith("env:"):
            raise KeyHolderError(
                f"the environment variable {rest} names no key holder; set it to file:/path"
            )
        return holder_at(inner)
    for plugin in entry_points(group=SCHEMES, name=scheme):
        made: KeyHolder = plugin.load()(rest)
        return made
    raise SchemaError(f"keys={url!r} has an unknown scheme; write file: or env:, or add a plug-in")


class StoreKey:
    """The store key by its name: wraps and unwraps data keys. The key itself is never kept.

    It is asked for anew each time, so a store whose key was taken over (by a
    restored backup) or destroyed can do nothing more.
    """

    def __init__(self, holder: KeyHolder, name: str) -> None:
        self._holder = holder
        self.name = name

    @classmethod
    def new(cls, holder: KeyHolder, store: str) -> StoreKey:
        """Make a store key and have it held."""
        name = f"{store}.{AUTHENTICATED}.{os.urandom(8).hex()}"
        holder.add(name, new_key())
        return cls(holder, name)

    @property
    def pinned(self) -> bool:
        """Whether facts of the catalogue are pinned under it; see `pyramidion.storage.pins`.

        Its name says so, and only the holder has a key of a name.
        """
        return self._kind in (PINNED, AUTHENTICATED)

    @property
    def authenticated(self) -> bool:
        """Whether windows, table files and the ledger are authenticated under it, too."""
        return self._kind == AUTHENTICATED

    @property
    def _kind(self) -> str:
        """Between the name of the store and a number; only the holder has a key of a name."""
        return "".join(self.name.split(".")[1:-1])

    def _key(self) -> AESGCM:
        held = self._holder.keys()
        key = held.get(self.name)
        if not held:
            raise KeyHolderError(
                f"{self._holder.name} holds no key at all; mount it, or name the right one"
            )
        if key is None:
            raise KeyHolderError(
                f"{self._holder.name} does not have the key of this store: it was destroyed by an "
                f"erasure or a release, or taken over by a restored backup; use the newer store or "
                f"backup"
            )
        return AESGCM(key)

    def wrap(self, key: bytes, context: str) -> bytes:
        """A data key under the store key, for this context alone."""
        return _wrapped(self._key(), key, context)

    def unwrap(self, wrapped: bytes, context: str) -> bytes:
        """What `wrap` was given."""
        return _unwrapped(self._key(), wrapped, context)

    def rewrap(self, old: StoreKey, wrapped: dict[str, bytes]) -> dict[str, bytes]:
        """Data keys by context, from under an old store key to under this one."""
        theirs, ours = old._key(), self._key()
        keys = {context: _unwrapped(theirs, each, context) for context, each in wrapped.items()}
        return {context: _wrapped(ours, key, context) for context, key in keys.items()}


def _wrapped(cipher: AESGCM, key: bytes, context: str) -> bytes:
    nonce = os.urandom(NONCE)
    return nonce + cipher.encrypt(nonce, key, context.encode())


def _unwrapped(cipher: AESGCM, wrapped: bytes, context: str) -> bytes:
    try:
        return cipher.decrypt(wrapped[:NONCE], wrapped[NONCE:], context.encode())
    except InvalidTag:
        pass
    raise FormatError(
        f"the key of {context} does not open with the store key; restore the store's catalogue"
    )
