"""A structured stream into a store, each of its batches once.

Spark runs a batch again that it does not know to be done, with the same rows and the same
number, also after a crash. It does so with the last one alone, and at any time: a query may stand
still for a year. So the store notes, in the commit of each batch and for good, how far the query
has come, by a keyed hash of its id (which lies in the checkpoint): the last batch again is passed
over, and an earlier one refused, for then the checkpoint was put back and may be cut otherwise.

A service knows a batch again by its idempotency key, which leaves with its hot rows. There is no
mark that the driver could keep in its stead: none is in one commit with the service's. Under a key
it takes the same body alone, and Spark may give rows in another order when it runs a batch again:
so they are sorted before they are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame

from pyramidion.errors import StateError
from pyramidion.rows.observations import Errors, checked_errors
from pyramidion.spark.session import ROWS, context_of, refuse_unsafe
from pyramidion.store.pyramid import Pyramid

if TYPE_CHECKING:
    from pyramidion.web.client import Client

PATIENCE = 600.0  # seconds that the first batch waits for the query to be known by its id


def stream(
    df: DataFrame,
    into: Pyramid | Client,
    name: str | None = None,
    *,
    checkpoint: str | Path,
    errors: Errors = "refuse",
    trigger: Mapping[str, Any] | None = None,
) -> Any:
    """Observe a streaming DataFrame, batch by batch; the query that does it, running.

    ``into`` is a store, or a client of the service that has a stream of this ``name``. Each
    batch passes through the driver's memory whole, so have the source limit them.
    ``trigger`` is what Spark's own takes, such as ``{"availableNow": True}``.
    """
    checked_errors(errors)
    refuse_unsafe(context_of(df), ROWS)
    if not df.isStreaming:
        raise StateError("this DataFrame is not a stream; use count_into() for a history")
    query: list[Any] = []
    known = Event()
    observe = _observe(into, name)

    def take(batch: DataFrame, number: int) -> None:
        if not known.wait(PATIENCE):
            raise StateError("the query never said its id; start it again")
        rows = batch.toArrow()
        if rows.num_rows:
            observe(rows, f"spark {query[0].id}", number, errors=errors)

    writer = df.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    if trigger is not None:
        writer = writer.trigger(**trigger)
    query.append(writer.start())
    known.set()
    return query[0]


def _observe(into: Pyramid | Client, name: str | None) -> Callable[..., object]:
    if isinstance(into, Pyramid):
        if name is not None:
            raise StateError("a store has one stream, which needs no name; give the store alone")
        return into.observe_turn
    if name is None:
        raise StateError("a service has many streams; say by name which one takes the rows")
    return partial(_keyed, into, name)


def _keyed(
    client: Client, name: str, rows: Any, sequence: str, turn: int, *, errors: Errors
) -> object:
    return client.observe(name, _sorted(rows), key=f"{sequence} {turn}", errors=errors)


def _sorted(rows: pa.Table) -> pa.Table:
    with suppress(pa.ArrowNotImplementedError):  # of a type that the service refuses
        rows = rows.sort_by([(name, "ascending") for name in rows.column_names])
    return rows.combine_chunks()
