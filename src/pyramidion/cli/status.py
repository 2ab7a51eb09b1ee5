"""``status``: the pyramid at one moment, from the hot rows at its top to what is gone."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyramidion.cli.options import Commands, Parser, add_store, opened
from pyramidion.cli.output import date, several, size, table

if TYPE_CHECKING:
    from pyramidion.config.settings import Settings
    from pyramidion.store.publish import SharedStatus
    from pyramidion.store.shards import ShardStatus
    from pyramidion.store.status import Status
    from pyramidion.vault.files import VaultStatus

SHOWN = 5  # deletions, the newest
GONE = "erased"


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    looking = commands.add_parser(
        "status",
        help="show what the store holds, and what is due",
        description="Show what the store holds: hot rows, windows, the noise in the tables, what "
        "was erased, what is due. Looking makes nothing due. Times are UTC.",
    )
    add_store(looking)
    looking.set_defaults(run=status)


def status(arguments: argparse.Namespace) -> None:
    """Show what the store holds; looking makes nothing due."""
    with opened(arguments, reading=True) as pyramid:
        found, settings = pyramid.status(), pyramid.settings
    if arguments.json:
        print(json.dumps(found.to_dict()))
    else:
        print("\n\n".join(_parts(found, settings)))


def _parts(found: Status, settings: Settings) -> Iterator[str]:
    yield "\n".join(f"{name:8} {text}" for name, text in _summary(found, settings))
    kept = [window for window in found.windows if window.state != GONE]
    if kept:
        yield table(
            ["window", "state", "from", "to", "rows"],
            [[w.number, w.state, date(w.start), date(w.stop), w.rows] for w in kept],
        )
    if found.tables:
        yield table(
            ["table", "kind", "rows", "width", "windows", "noise in a cell"],
            [
                [t.name or "(prior)", t.kind, t.rows, t.width, t.windows, round(t.deviation, 1)]
                for t in found.tables
            ],
        )
    if found.deletions:
        yield _deletions(found)


def _summary(found: Status, settings: Settings) -> Iterator[tuple[str, str]]:
    yield "store", f"{found.path}, {size(found.bytes)}, at {date(found.at)}"
    if found.clock.follows == "rows":
        yield "time", f"follows the imported rows, to {date(found.at)}, until rows are observed"
    if found.clock.problem:
        yield "clock", f"{found.clock.problem} with `pyramidion clock`"
    hot, steps = several(found.hot_rows, "row"), several(found.hot_steps, "step")
    since = f", from {date(found.oldest_hot)}" if found.oldest_hot is not None else ""
    yield "hot", f"{hot} in {steps}{since}"
    sealed = sum(window.state == "sealed" for window in found.windows)
    windows = several(sealed, "sealed window")
    yield "history", f"{several(found.summarised_rows, 'row')} as noisy counts in {windows}"
    if found.nodes:
        whole = sum(node.state == "sealed" for node in found.nodes)
        open_ = len(found.nodes) - whole
        yield "tree", f"{several(whole, 'sealed node')}, {open_} populating"
    gone = sum(window.state == GONE for window in found.windows)
    if gone:
        rows = several(found.layers.gone, "row")
        yield "gone", f"{several(gone, 'window')}; {rows} neither counted nor in a vault"
    promise = "nothing to read yet: no window is sealed"
    yield "promise", promise if found.guarantee is None else str(found.guarantee)
    if found.composed_epsilon is not None:
        spent = f"({found.composed_epsilon:.6g}, {found.composed_delta:g})"
        yield "people", f"{spent} spent on any person in all windows together"
    if found.shard is not None:
        yield "shard", _in_stream(found.shard)
    if found.vault is not None:
        yield "vault", _sealed(found.vault)
        yield from _on_their_way(found.vault)
    if found.shared is not None:
        yield "shared", _shared(found.shared)
    coming = sorted(_coming(found, settings))
    due = [f"{what} (since {date(when)})" for when, what in coming if when <= found.at]
    if found.due:
        told = "; ".join(due) or "a checkpoint, or a window to prepare"
        yield "due", f"{told}; run `pyramidion advance`"
    else:
        yield "due", "nothing"
    for when, what in coming:
        if when > found.at:
            yield "then", f"{date(when)}  {what}"


def _in_stream(shard: ShardStatus) -> str:
    others = several(len(shard.shards), "shard")
    told = f"{shard.name} of stream {shard.stream}, {others}: {several(shard.rows, 'row')} in all"
    waiting = f"; {several(shard.waiting, 'window')} waiting for others" if shard.waiting else ""
    lost = sum(shard.missing.values())
    missing = f"; {several(lost, 'window')} missing in the sum" if lost else ""
    return told + waiting + missing + (f"; {shard.problem}" if shard.problem else "")


def _sealed(vault: VaultStatus) -> str:
    rows, files = several(vault.rows, "row"), several(vault.files, "file")
    held = f"{rows} in {files}, at {vault.url}"
    return f"{held}; custodian {vault.custodian}"


def _shared(shared: SharedStatus) -> str:
    told = [f"complete tables at {shared.at}" + ("" if shared.current else ", not those of now")]
    if shared.to_delete:
        told.append(f"{several(shared.to_delete, 'former set')} that nothing opens, to be deleted")
    return "; ".join([*told, *([shared.problem] if shared.problem else [])])


def _on_their_way(vault: VaultStatus) -> Iterator[tuple[str, str]]:
    if vault.waiting_rows:
        yield "waiting", f"{several(vault.waiting_rows, 'hot row')} in no sealed file yet"
    if vault.backlog_files:
        files = f"{several(vault.backlog_files, 'sealed file')}, {size(vault.backlog_bytes)}"
        why = f" ({vault.problem})" if vault.problem else ""
        yield "backlog", f"{files}, not in the vault since {date(vault.backlog_since)}{why}"
    if vault.to_delete:
        files = several(vault.to_delete, "file")
        yield "backlog", f"{files} that nothing opens any more, to be deleted in the vault"


def _coming(found: Status, settings: Settings) -> Iterator[tuple[int, str]]:
    """What time alone will make due next, of each kind."""
    ends = [w for w in found.windows if w.state == "populating" and w.stop is not None]
    if ends:
        first = min(ends, key=lambda w: w.stop or 0)
        yield first.stop or 0, f"window {first.number} is sealed"
    if found.oldest_hot is not None and settings.hot_window_us is not None:
        yield found.oldest_hot + settings.hot_window_us, "the oldest hot rows are erased"
    kept = [w for w in found.windows if w.state == "sealed" and w.start is not None]
    if kept:
        oldest = min(kept, key=lambda w: w.start or 0)
        when = (oldest.start or 0) + settings.retention_us
        yield when, f"window {oldest.number} is forgotten"


def _deletions(found: Status) -> str:
    rows = [
        [date(d.at), d.what, d.why, d.holder if d.done is not None else "not complete yet"]
        for d in found.deletions[-SHOWN:]
    ]
    told = table(["erased", "what", "why", "key destroyed in"], rows)
    older = len(found.deletions) - len(rows)
    return told + (f"\nand {several(older, 'older deletion')}" if older else "")
