"""Features of a DataFrame in bulk: from one snapshot, or for each row from the tables of its past.

A snapshot goes to executors as it goes to clients: signed, with its end in it. Nothing is
shuffled. Whoever runs the job after the snapshot has expired gets an error, no features.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pyspark.sql import DataFrame
from pyspark.sql.types import FloatType, StructField, StructType

from pyramidion.config.durations import moment
from pyramidion.counts.signing import key_from, key_text
from pyramidion.counts.snapshot import Snapshot
from pyramidion.counts.snapshot_file import snapshot_bytes, snapshot_from
from pyramidion.counts.windows import Slots
from pyramidion.errors import SchemaError, StateError
from pyramidion.rows.validation import Judge, times_of
from pyramidion.spark.session import TABLES, chosen, context_of, empty, refuse_unsafe

if TYPE_CHECKING:
    from pyramidion.store.pyramid import Pyramid

Clock = Callable[[], float]
Batches = Iterator[pa.RecordBatch]

SENT = "spark"
"""The stream that broadcast snapshots are signed for; each has a signing key of its own."""


def featurize(
    df: DataFrame, snapshot: Snapshot, *, keep: Sequence[str] = (), clock: Clock = time.time
) -> DataFrame:
    """The features of every row, as `Snapshot.featurize` makes them, beside columns to ``keep``.

    It is computed when Spark is asked for it; the snapshot must not have expired by then, and
    ends after a day at the latest.
    """
    snapshot.rows  # noqa: B018  # raises where it has expired
    names, needed = snapshot.names, snapshot._door.schema.feature_names
    df = chosen(df, [*keep, *needed])
    refuse_unsafe(context_of(df), TABLES)
    snapshot._door.refuse_types(empty(df), labelled=False)
    form = _form(df, keep, names)
    sent = _Sent.of(df, snapshot, clock)

    def task(batches: Batches) -> Batches:
        found = sent.snapshot()
        for batch in batches:
            features = found.featurize(batch)
            yield pa.record_batch(
                [*(batch[n] for n in keep), *_plain(features)], _names(keep, names)
            )

    return df.mapInArrow(task, form)


def training_set(
    df: DataFrame, store: Pyramid, *, keep: Sequence[str] = (), clock: Clock = time.time
) -> DataFrame:
    """Rows of the past as time, labels and features, each from what was counted before it.

    A row's features come from the sealed windows that had ended when its own window began: no
    row meets its own label through the counts, nor that of a later one. A row before all of
    them has nulls. The tables are P2, the rows and labels as raw as they came (P1).
    """
    slots, schema = Slots.of_windows(store.settings), store.schema
    if schema.time is None or slots is None:
        raise StateError(
            "a row's past is known where the schema names a time and windows are cut by it; for "
            "other rows use featurize()"
        )
    beside = [*dict.fromkeys([schema.time, *(label.name for label in schema.labels), *keep])]
    df = chosen(df, [*beside, *schema.feature_names])
    refuse_unsafe(context_of(df), TABLES)
    store.snapshot()._door.refuse_types(empty(df), labelled=False)
    there, name = _slots_of(df, slots, schema.time), schema.time
    pasts, which = _pasts(df, store, slots, there, clock)
    names = list(dict.fromkeys(n for past in pasts for n in past.names))

    def task(batches: Batches) -> Batches:
        held: tuple[int, Snapshot | None] = -1, None
        for batch in batches:
            at = _at(batch, name, slots)
            columns = _Columns(names, batch.num_rows)
            for slot in np.unique(at).tolist():
                past = which.get(slot, -1)
                if past >= 0:
                    if held[0] != past:
                        held = past, pasts[past].snapshot()
                    rows = np.flatnonzero(at == slot)
                    columns.put(rows, held[1], batch.take(pa.array(rows)))
            yield pa.record_batch(
                [*(batch[n] for n in beside), *columns.arrays()], _names(beside, names)
            )

    try:
        form = _form(df, beside, names)
    except SchemaError:
        _forget(pasts)
        raise
    return df.mapInArrow(task, form)


class _Sent:
    """A snapshot on executors: its bytes, broadcast, and the key that signed them.

    It lives as long as the application: a DataFrame is computed whenever somebody asks for it or
    for what was made of it, and Spark does not tell when nobody can any more. Its bytes lie
    encrypted on the disks of driver and executors, end with the key that Spark holds in memory, and
    are refused by whoever opens them once the snapshot has expired.
    """

    def __init__(self, broadcast: Any, key: str, names: list[str], clock: Clock) -> None:
        self._broadcast = broadcast
        self._key = key
        self.names = names
        self._clock = clock

    @classmethod
    def of(cls, df: DataFrame, snapshot: Snapshot, clock: Clock) -> _Sent:
        signer, now = Ed25519PrivateKey.generate(), int(clock() * 1_000_000)
        data = snapshot_bytes(snapshot, stream=SENT, now=now, signer=signer)
        broadcast = context_of(df).broadcast(data)
        return cls(broadcast, key_text(signer.public_key()), snapshot.names, clock)

    def destroy(self) -> None:
        """Where no DataFrame came of it."""
        self._broadcast.destroy()

    def snapshot(self) -> Snapshot:
        """The tables, for one task; raises where their time is over."""
        verifier = key_from(self._key)
        return snapshot_from(
            self._broadcast.value, stream=SENT, verifier=verifier, clock=self._clock
        )


class _Columns:
    """Feature columns that are filled slot by slot; what is not stays null."""

    def __init__(self, names: Sequence[str], rows: int) -> None:
        self._values = {name: np.zeros(rows, dtype=np.float32) for name in names}
        self._nulls = {name: np.ones(rows, dtype=np.bool_) for name in names}

    def put(self, rows: Any, snapshot: Snapshot | None, batch: pa.RecordBatch) -> None:
        if snapshot is not None:
            for name, column in zip(snapshot.names, snapshot.array(batch).T, strict=True):
                self._values[name][rows], self._nulls[name][rows] = column, False

    def arrays(self) -> list[pa.Array]:
        return [pa.array(v, mask=self._nulls[name]) for name, v in self._values.items()]


def _slots_of(df: DataFrame, slots: Slots, name: str) -> list[int]:
    """The windows that rows are of, by their times alone."""

    def task(batches: Batches) -> Batches:
        for batch in batches:
            yield pa.record_batch([np.unique(_at(batch, name, slots))], ["slot"])

    found = chosen(df, [name]).mapInArrow(task, "slot long").distinct().collect()
    return sorted(row.slot for row in found)


def _pasts(
    df: DataFrame, store: Pyramid, slots: Slots, there: Sequence[int], clock: Clock
) -> tuple[list[_Sent], Mapping[int, int]]:
    """The tables of each past that some row has, sent once; and which is whose, by slot."""
    ended = sorted(int(w.stop or 0) for w in store.status().windows if w.state == "sealed")
    many = {slot: bisect_right(ended, slots.start(slot)) for slot in there}
    first = {count: slot for slot, count in reversed(many.items()) if count}
    pasts: dict[int, _Sent] = {}
    try:
        for count, slot in sorted(first.items()):
            pasts[count] = _Sent.of(df, store.as_of(moment(slots.start(slot))), clock)
    except BaseException:
        _forget(pasts.values())
        raise
    if not pasts:
        raise StateError(
            "no row has a sealed window before its own, so none has features; count windows of an "
            "earlier time first"
        )
    order = list(pasts)
    return list(pasts.values()), {s: order.index(n) for s, n in many.items() if n}


def _forget(sent: Iterable[_Sent]) -> None:
    for each in sent:
        each.destroy()


def _at(batch: pa.RecordBatch, name: str, slots: Slots) -> Any:
    """The window of each row; refuses rows without a good time."""
    judge = Judge(batch.num_rows)
    times = times_of(name, batch[name], judge)
    judge.refuse()
    return slots.all_at(times)


def _plain(features: pa.Table) -> list[pa.Array]:
    return [column.combine_chunks() for column in features.columns]


def _names(beside: Sequence[str], names: Sequence[str]) -> list[str]:
    return [*beside, *names]


def _form(df: DataFrame, beside: Sequence[str], names: Sequence[str]) -> StructType:
    twice = sorted(set(beside) & set(names))
    if twice:
        raise SchemaError(
            f"column {twice[0]!r} is kept, and a feature column has the same name; rename it first"
        )
    kept = [df.schema[name] for name in beside]
    return StructType([*kept, *(StructField(name, FloatType()) for name in names)])
