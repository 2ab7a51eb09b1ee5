"""What a store holds: numbers that are public, no values."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.counts.guarantee import Guarantee
from pyramidion.storage.deletions import Kind
from pyramidion.storage.table_sets import SetId
from pyramidion.store.clocks import ClockStatus
from pyramidion.store.snapshots import guarantee
from pyramidion.store.state import StoreState

if TYPE_CHECKING:
    from pyramidion.store.publish import SharedStatus
    from pyramidion.store.shards import ShardStatus
    from pyramidion.vault.files import VaultStatus


@dataclass(frozen=True)
class WindowStatus:
    """A count window. Times are microseconds since the epoch."""

    number: int
    state: str
    start: int | None
    stop: int | None
    rows: int


@dataclass(frozen=True)
class NodeStatus:
    """A node of a tree of windows: its level, and the windows whose rows it takes."""

    number: int
    level: int
    state: str
    windows: tuple[int, ...]


@dataclass(frozen=True)
class TableStatus:
    """A complete count table: how many windows are in it, and the noise in one of its cells."""

    name: str
    kind: str
    rows: int
    width: int
    windows: int
    deviation: float


@dataclass(frozen=True)
class Deletion:
    """That something was erased: never what was in it. ``done`` is None until it is complete."""

    what: str
    why: str
    holder: str
    at: int
    done: int | None
    kind: Kind

    @property
    def of_person(self) -> bool:
        """Whether a person was erased: from the hot rows, or from a file of the vault."""
        return self.kind == "person"


COUNTED = ("populating", "sealed", "retired")
"""States of windows whose tables are there."""


@dataclass(frozen=True, kw_only=True)
class Layers:
    """The data pyramid at one moment: how many rows could be read how.

    Every row that was collected is exposed, summarised, retained or gone. The vault has rows of
    the first three.
    """

    at: int
    collected: int
    """Rows that ever came in."""
    exposed: int
    """Raw, in the hot window: who breaks in reads them."""
    summarised: int
    """Not raw any more: in noisy counts alone."""
    retained: int
    """Neither raw nor counted any more on this machine; the vault has them, sealed. At most."""
    gone: int
    """In nothing: their windows are erased, and the vault does not have them."""
    locked_away: int | None
    """Sealed in the vault, which this machine cannot read; None: there is no vault."""
    waiting: int | None
    """Hot rows that the vault has not sealed yet."""


@dataclass(frozen=True)
class Status:
    """What the store holds at one moment."""

    path: str
    at: int
    hot_rows: int
    hot_steps: int
    oldest_hot: int | None
    summarised_rows: int
    windows: tuple[WindowStatus, ...]
    tables: tuple[TableStatus, ...]
    deletions: tuple[Deletion, ...]
    guarantee: Guarantee | None
    bytes: int
    due: bool
    state: str
    """``open``, or ``failed: reopen`` where the disk failed and nothing is taken any more."""
    clock: ClockStatus
    """What moves the store's time."""
    composed_epsilon: float | None = None
    """Where people are protected, what the tables of all retained windows tell about one."""
    composed_delta: float | None = None
    vault: VaultStatus | None = None
    """Where the raw history is sealed, if it is."""
    nodes: tuple[NodeStatus, ...] = ()
    """Of a tree of windows, those that are populating or sealed."""
    shard: ShardStatus | None = None
    """Of which stream it is a shard, and what the others have, if it is one."""
    shared: SharedStatus | None = None
    """Where the complete tables are shared, if they are."""

    @property
    def layers(self) -> Layers:
        """How many rows could be read how."""
        there = sum(window.rows for window in self.windows if window.state in COUNTED)
        erased = sum(window.rows for window in self.windows if window.state not in COUNTED)
        past = erased - max(self.hot_rows - there, 0)
        retained = 0 if self.vault is None else min(past, self.vault.alone)
        return Layers(
            at=self.at,
            collected=there + erased,
            exposed=self.hot_rows,
            summarised=max(there - self.hot_rows, 0),
            retained=retained,
            gone=past - retained,
            locked_away=None if self.vault is None else self.vault.rows,
            waiting=None if self.vault is None else self.vault.waiting_rows,
        )

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        told = asdict(self) | {"clock": self.clock.to_dict()}
        if self.guarantee is not None:
            told["guarantee"] = self.guarantee.to_dict()
        if self.composed_epsilon is None:
            del told["composed_epsilon"], told["composed_delta"]
        elif self.composed_epsilon == math.inf:
            told["composed_epsilon"] = None
        if self.vault is None:
            del told["vault"]
        if not self.nodes:
            del told["nodes"]
        if self.shard is None:
            del told["shard"]
        if self.shared is None:
            del told["shared"]
        return told


def _bytes(path: Path) -> int:
    """Bytes of all files; some may go while one looks."""
    total = 0
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def _nodes(lifecycle: StoreState) -> tuple[NodeStatus, ...]:
    """The nodes that are populating or sealed, in order."""
    members = lifecycle.sets.members()
    return tuple(
        NodeStatus(
            row["number"],
            row["level"],
            row["state"],
            tuple(sorted(members[SetId(row["level"], row["number"])])),
        )
        for row in lifecycle.sets.nodes("populating", "sealed")
    )


def status_of(
    path: Path,
    lifecycle: StoreState,
    now: int,
    due: bool,
    clock: ClockStatus,
    vault: VaultStatus | None = None,
    shard: ShardStatus | None = None,
    shared: SharedStatus | None = None,
) -> Status:
    """Look a store over."""
    catalogue, complete = lifecycle.catalogue, lifecycle.complete
    windows = [
        WindowStatus(row["number"], row["state"], row["start"], row["stop"], row["rows"])
        for row in lifecycle.sets.windows()
        if row["rows"] or row["state"] != "erased"
    ]
    spent = None if lifecycle.people.unit is None else lifecycle.ledger.report()
    behind = lifecycle.tables.behind(lifecycle.lacking)
    deletions = catalogue.deletions()
    return Status(
        path=str(path),
        at=now,
        hot_rows=lifecycle.hot.rows,
        hot_steps=len(lifecycle.hot.steps),
        oldest_hot=min((step.start for step in lifecycle.hot.steps), default=None),
        summarised_rows=0 if complete is None else complete.rows,
        windows=tuple(windows),
        tables=tuple(
            TableStatus(t.name, t.kind, t.rows, t.width, behind.get(t.name, 0), t.variance**0.5)
            for t in (() if complete is None else complete.layout.tables)
        ),
        deletions=tuple(
            Deletion(row["what"], row["why"], row["holder"], row["at"], row["done"], row["kind"])
            for row in deletions
        ),
        guarantee=guarantee(lifecycle),
        bytes=_bytes(path),
        due=due,
        state="failed: reopen" if catalogue.health.failed else "open",
        clock=clock,
        composed_epsilon=None if spent is None else spent.composed_epsilon,
        composed_delta=None if spent is None else spent.composed_delta,
        vault=vault,
        nodes=_nodes(lifecycle),
        shard=shard,
        shared=shared,
    )
