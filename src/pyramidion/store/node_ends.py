"""How nodes of a tree end: sealed once no row can come to them, or dropped where none came.

Sealing one is an erasure, as sealing a window is: every state before dies with its key.
"""

from __future__ import annotations

from pyramidion.storage.deletions import sealed_node
from pyramidion.storage.fault_points import reach
from pyramidion.store.lifecycle import Lifecycle
from pyramidion.store.nodes import Node


def over(store: Lifecycle, now: int) -> list[Node]:
    """Nodes that no more rows can come to."""
    if not store.nodes.nodes:
        return []
    last = -1
    if store.windows.slots is None:
        query = "SELECT max(slot) FROM windows WHERE state <> 'opening'"
        last = int(store.catalogue.one(query) or 0)
    return store.nodes.over(now, list(store.populating), last)


def close_nodes(store: Lifecycle, now: int, *, every: bool = False) -> list[int]:
    """Seal the nodes that are over, or all; one that nobody came to is dropped."""
    with store.moves:
        ended = store.nodes.all() if every else over(store, now)
        for node in ended:
            if node.arena.rows:
                _seal(store, node, now)
            else:
                _abandon(store, node)
        return [node.number for node in ended]


def _seal(store: Lifecycle, node: Node, now: int) -> None:
    reach("node.before")
    with store.arrivals:
        node.closed = True
        node.arena.seal()
    number = node.number
    complete, lacking = store.summed(nodes={number: node.arena})
    with (
        store.tables.write(node.arena, "sealed", node=number) as add_sealed,
        store.written(complete) as add_complete,
    ):
        reach("node.written")

        def before() -> None:
            store.tables.supersede("checkpoint", node=number)
            store.tables.supersede("complete")
            add_sealed()
            add_complete()
            store.catalogue.run("UPDATE nodes SET state = 'sealed' WHERE number = ?", number)

        def after() -> None:
            with store.arrivals:
                store.nodes.nodes.pop(number)
            store.complete, store.lacking, store.published = complete, lacking, False

        store.erase(sealed_node(number), "sealed", now, before=before, after=after)
    reach("node.after")
    store.publish()


def _abandon(store: Lifecycle, node: Node) -> None:
    """A node that nobody came to: its noise is dropped, its charge stays."""
    with store.arrivals:
        store.nodes.nodes.pop(node.number)
    with store.catalogue.transaction():
        store.forget_nodes([node.number])
