"""Manifests: what a shard tells the others of its sealed windows.

Times, slots, numbers of rows, sizes and noise of tables, all of it public; a table store gets it
encrypted like everything else. Written once under a name of its own, as tables are; the roster
says which is a shard's newest, so nobody can put an old one in its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyramidion.config.spelling import BY_TEXT, BY_TYPE
from pyramidion.counts.layout import Layout, Table
from pyramidion.errors import FormatError
from pyramidion.storage.blocks import Generation, Span
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.storage.roster import Held
from pyramidion.storage.tables import TableStore

PIECE = 1 << 20  # bytes of a chunk
VERSIONS = {1: BY_TYPE, 2: BY_TEXT}
"""The version says by what the stream knows values, so that no older one joins it."""

Laid = tuple[int, int, list[dict[str, Any]]]
"""Labels, weight and tables of a layout."""


@dataclass(frozen=True)
class Told:
    """A sealed window of a shard."""

    file: str
    """What its owner calls its tables."""
    number: int
    slot: int
    start: int
    stop: int
    rows: int
    max_rows: int
    layout: int
    """Which of the manifest's layouts its tables have."""


@dataclass(frozen=True)
class Manifest:
    """What a shard has told last."""

    shard: str
    schema: str
    settings: str
    passed: int
    """Every window of an earlier slot is sealed, or nothing came to it."""
    windows: tuple[Told, ...]
    layouts: tuple[Laid, ...]
    """How tables are laid out; most windows share one."""
    keyed_by: str
    """By what the stream knows the values of open categories."""

    def layout(self, window: Told, secret: bytes) -> Layout:
        """How the tables of a window are laid out."""
        return layout_of(self.layouts[window.layout], secret)

    def to_bytes(self) -> bytes:
        """JSON."""
        told = asdict(self)
        keyed_by = told.pop("keyed_by")
        version = next(number for number, rule in VERSIONS.items() if rule == keyed_by)
        return json.dumps({"version": version} | told).encode()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray, where: str) -> Manifest:
        """What `to_bytes` made."""
        told = json.loads(data)
        version = told.pop("version", None)
        if version not in VERSIONS:
            raise FormatError(f"a manifest at {where} is of a newer version; upgrade pyramidion")
        windows = tuple(Told(**window) for window in told.pop("windows"))
        layouts = tuple((int(a), int(b), list(c)) for a, b, c in told.pop("layouts"))
        return cls(windows=windows, layouts=layouts, keyed_by=VERSIONS[version], **told)


def laid(layout: Layout) -> Laid:
    """A layout as a manifest tells it; the secret is not in it."""
    return layout.labels, layout.weight, layout.told


def layout_of(told: Laid, secret: bytes) -> Layout:
    """The layout that a manifest tells."""
    labels, weight, tables = told
    return Layout(tuple(Table(**table) for table in tables), labels, secret, weight)


def with_windows(manifest: Manifest, windows: Iterable[tuple[Told, Laid]]) -> Manifest:
    """A manifest of these windows; each layout is in it once."""
    layouts: list[Laid] = []
    told = []
    for window, layout in windows:
        if layout not in layouts:
            layouts.append(layout)
        told.append(replace(window, layout=layouts.index(layout)))
    return replace(manifest, windows=tuple(told), layouts=tuple(layouts))


def put(tables: TableStore, manifest: Manifest, owner: str) -> Held:
    """Write a manifest under a new name and key."""
    made = Generation.new(owner)
    data = b"".join(sealed(made.key, [manifest.to_bytes()], made.name.encode()))
    pieces = [data[start : start + PIECE] for start in range(0, len(data), PIECE)]
    tables.put_whole(made.name, pieces, list(map(len, pieces)), None)
    return Held(made.name, made.key, len(data))


def get(tables: TableStore, held: Held) -> Manifest:
    """Read a manifest."""
    spans = [Span(number, 0, length) for number, length in enumerate(lengths_of(held))]
    data = b"".join(tables.read(held.name, spans))
    where = tables.address
    plain = opened(held.key, data, held.name.encode(), what=f"a manifest at {where}")
    return Manifest.from_bytes(plain, where)


def lengths_of(held: Held) -> list[int]:
    """Bytes of every chunk of a manifest."""
    return [min(PIECE, held.length - start) for start in range(0, held.length, PIECE)]


def chunks_of(held: Held) -> int:
    """How many chunks a manifest has."""
    return len(lengths_of(held))
