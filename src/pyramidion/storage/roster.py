"""The roster of a stream: its shards, and the keys that they have in common.

Several stores take rows of one stream. What they share is key material, so it lies in a key
holder that all of them reach, never beside the data, and nowhere else in the clear:

    stream.<s>.secret                         what keys of values are made with: equal in all shards
    stream.<s>.shard.<name>.<serial>          a shard; opens its newest manifest
    stream.<s>.left.<name>.<serial>           the same of one that nobody waits for any more
    stream.<s>.joining.<name>.<store>         the store that a shard is to be, until it tells
    stream.<s>.window.<name>.<file>.<until>   opens one published window, until that is forgotten

Names are only ever added and dropped, never given another value, and a name tells nothing that
is not public. Dropping the key of a window is its erasure, wherever copies of it are: each shard
drops its own when it forgets a window, and any shard drops those whose time is over, so that a
shard that is lost for good keeps nobody's rows beyond the retention.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from pyramidion.config.checks import nearest
from pyramidion.errors import FormatError, KeyHolderError, SchemaError, StateError
from pyramidion.storage.blocks import Generation
from pyramidion.storage.ciphers import KEY_BYTES, new_key
from pyramidion.storage.key_holders import KeyHolder

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def checked_word(what: str, name: str) -> str:
    """The name of a stream or shard: it becomes part of the names of keys and tables."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SchemaError(
            f"the name of {what} must be of small letters, digits and hyphens, at most 40; "
            f"write it like 'node-1'"
        )
    return name


@dataclass(frozen=True)
class Held:
    """Where something in a table store is, and the key that opens it."""

    name: str
    key: bytes = field(repr=False)
    length: int
    """Chunks of tables, or bytes of a manifest."""

    @property
    def generation(self) -> Generation:
        """As a table store wants it."""
        return Generation(self.name, self.key)

    def to_bytes(self) -> bytes:
        """As the holder has it."""
        return self.key + self.length.to_bytes(8, "little") + self.name.encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Held:
        """What `to_bytes` made."""
        start = KEY_BYTES + 8
        try:
            name = data[start:].decode("ascii")
        except UnicodeDecodeError:
            name = ""
        if not name:
            raise FormatError("a roster's entry is damaged; restore the stream's key holder")
        return cls(name, data[:KEY_BYTES], int.from_bytes(data[KEY_BYTES:start], "little"))


@dataclass(frozen=True)
class Member:
    """A shard on the roster."""

    name: str
    serial: int
    active: bool
    """Whether windows wait for it."""
    manifest: Held | None
    """None: it was never told."""


@dataclass(frozen=True)
class SharedWindow:
    """The key of a published window, on the roster."""

    shard: str
    file: str
    """What its owner calls its tables; never used twice."""
    until: int
    """When it is past its retention, in microseconds since 1970."""
    held: Held


@dataclass(frozen=True)
class Entries:
    """The roster at one moment."""

    members: dict[str, Member]
    windows: tuple[SharedWindow, ...]

    def of(self, shard: str) -> dict[str, SharedWindow]:
        """The published windows of a shard, by what it calls them."""
        return {window.file: window for window in self.windows if window.shard == shard}


class Roster:
    """The entries of one stream in its key holder."""

    def __init__(self, holder: KeyHolder, stream: str) -> None:
        self._holder = holder
        self.stream = checked_word("a stream", stream)
        self._prefix = f"stream.{stream}."

    def _alone(self) -> AbstractContextManager[object]:
        """Nobody else changes the roster meanwhile, where the holder can see to that."""
        alone: AbstractContextManager[object] = getattr(self._holder, "alone", nullcontext)()
        return alone

    def _keys(self) -> dict[str, bytes]:
        found = self._holder.keys()
        own = [name for name in found if name.startswith(self._prefix)]
        return {name.removeprefix(self._prefix): found[name] for name in own}

    def secret(self) -> bytes:
        """The hashing secret of the stream."""
        found = self._keys().get("secret")
        if found is None:
            raise self._unknown()
        return found

    def _unknown(self) -> KeyHolderError:
        return KeyHolderError(
            f"{self._holder.name} has no stream {self.stream!r}; mount it or name the right one, "
            f"or make the stream's first shard with create"
        )

    # --- who takes part ----------------------------------------------------------------------

    def found(self, shard: str) -> bytes:
        """Begin a stream with its first shard; its new secret."""
        with self._alone():
            if "secret" in self._keys():
                self._refuse_begun()
            secret = new_key()
            self._add("secret", secret)
            self._register(shard)
            return secret

    def _refuse_begun(self) -> None:
        """Raise where a shard has told anything; what a crash left at the very start is dropped."""
        entries = self.entries()
        if entries.windows or any(member.manifest for member in entries.members.values()):
            raise StateError(
                f"stream {self.stream!r} has shards already; join it, so that all count alike"
            )
        self._drop(list(self._keys()))

    def join(self, shard: str, most: int, store: str = "") -> bytes:
        """Register one more shard, of so many at most; the secret of the stream.

        With the id of its ``store``, `leave_unmade` undoes it should that never be.
        """
        with self._alone():
            secret, members = self.secret(), self.entries().members
            if shard in members:
                told = members[shard].manifest is not None
                remedy = (
                    "choose another name"
                    if told
                    else (
                        "wait until it advances; or, if making it was broken off, make it again at "
                        "the same path, or remove it"
                    )
                )
                raise StateError(f"stream {self.stream!r} has a shard {shard!r} already; {remedy}")
            active = sum(member.active for member in members.values())
            if active >= most:
                raise StateError(
                    f"stream {self.stream!r} has {active} shards and setting 'shards' is {most}; "
                    f"remove one that is gone first"
                )
            if store:
                self._add(f"joining.{shard}.{store}", b"\0")
            self._register(shard)
            return secret

    def leave_unmade(self, shard: str, store: str) -> None:
        """Strike out a shard whose store was registered and never came to be; no other."""
        with self._alone():
            found = self._keys()
            if f"joining.{shard}.{store}" not in found:
                return
            told = [name for name in found if name.startswith(f"shard.{shard}.")]
            if told == [f"shard.{shard}.0"]:
                self._drop(told)
            self._drop([f"joining.{shard}.{store}"])

    def _register(self, shard: str) -> None:
        self._add(f"shard.{checked_word('a shard', shard)}.0", b"\0")

    def tell(self, shard: str, manifest: Held) -> None:
        """Note where a shard's newest manifest is; the one before is not opened any more."""
        with self._alone():
            member = self.member(shard)
            kind = "shard" if member.active else "left"
            self._add(f"{kind}.{shard}.{member.serial + 1}", manifest.to_bytes())
            begun = [name for name in self._keys() if name.startswith(f"joining.{shard}.")]
            self._drop([f"{kind}.{shard}.{member.serial}", *begun])

    def leave(self, shard: str) -> None:
        """Have nobody wait for a shard any more; its published windows stay until their time."""
        with self._alone():
            member = self.member(shard)
            if member.active:
                told = b"\0" if member.manifest is None else member.manifest.to_bytes()
                self._add(f"left.{shard}.{member.serial}", told)
                self._drop([f"shard.{shard}.{member.serial}"])

    def forget(self, shard: str) -> None:
        """Strike a shard out; of the stream's last one, the stream."""
        with self._alone():
            entries = self.entries()
            member = entries.members.get(shard)
            if member is not None:
                kind = "shard" if member.active else "left"
                self._drop([f"{kind}.{shard}.{member.serial}"])
            if not set(entries.members) - {shard}:
                self._drop(["secret"])

    def member(self, shard: str) -> Member:
        """One shard."""
        found = self.entries().members.get(shard)
        if found is None:
            raise StateError(
                f"stream {self.stream!r} has no shard {shard!r} on its roster; "
                f"{nearest(shard, self.entries().members)}"
            )
        return found

    # --- what is published ---------------------------------------------------------------------

    def keep(self, window: SharedWindow, instead: SharedWindow | None = None) -> None:
        """Keep the key of a published window, instead of one whose chunks were lost.

        Who looks between the two does without the window until the next look.
        """
        with self._alone():
            if instead is not None:
                self.drop([instead])
            self._add(_window(window), window.held.to_bytes())

    def drop(self, windows: Collection[SharedWindow]) -> None:
        """Destroy the keys of published windows: nothing opens them any more."""
        self._drop([_window(window) for window in windows])

    def entries(self) -> Entries:
        """All shards and published windows, in one look."""
        members: dict[str, Member] = {}
        windows, found_keys = [], self._keys()
        if "secret" not in found_keys:
            raise self._unknown()
        for name, value in found_keys.items():
            kind, *rest = name.split(".")
            if kind in ("shard", "left"):
                found = _member(kind, rest, value)
                if found.name not in members or _newer(found, members[found.name]):
                    members[found.name] = found
            elif kind == "window":
                shard, *file, until = rest
                held = Held.from_bytes(value)
                windows.append(SharedWindow(shard, ".".join(file), int(until), held))
        return Entries(dict(sorted(members.items())), tuple(windows))

    def _add(self, name: str, value: bytes) -> None:
        self._holder.add(self._prefix + name, value)

    def _drop(self, names: Collection[str]) -> None:
        self._holder.drop([self._prefix + name for name in names])


def _window(window: SharedWindow) -> str:
    return f"window.{window.shard}.{window.file}.{window.until}"


def _member(kind: str, rest: list[str], value: bytes) -> Member:
    name, serial = rest
    told = None if value == b"\0" else Held.from_bytes(value)
    return Member(name, int(serial), kind == "shard", told)


def _newer(one: Member, other: Member) -> bool:
    """Of two entries of a shard, left by a crash: the later; of one serial, that it left."""
    return (one.serial, not one.active) > (other.serial, not other.active)
