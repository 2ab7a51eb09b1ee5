"""One shuffle of partial counts: made once, read window by window, and then removed.

Spark keeps the files of a shuffle as long as somebody may ask for them. What is in these is raw
(P1), if encrypted, so nobody waits for a garbage collector: they are removed on every executor
before the counting returns, also where a task failed: the shuffle is planned before it runs, so
its number is known whatever becomes of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyramidion.errors import StateError
from pyramidion.spark.parquet import ParquetFiles
from pyramidion.spark.partials import (
    FACTS,
    FORM,
    Counts,
    Facts,
    Recipe,
    counting,
    facts_of,
    summing,
)
from pyramidion.spark.session import Source

ADAPTIVE = "spark.sql.adaptive.enabled"
PATIENCE = 10.0  # seconds; Spark kills what does not end by itself after two


class Shuffle:
    """The partial counts of a DataFrame, by table and window; a context that removes them."""

    def __init__(self, df: Source, recipe: Recipe) -> None:
        self._context: Any = df.sparkSession.sparkContext
        self._recipe = recipe
        self._df = df
        self._broadcast: Any = None
        self._rdd: Any = None

    def __enter__(self) -> Shuffle:
        self._broadcast = self._context.broadcast(self._recipe)
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def _make(self) -> None:
        """Plan the shuffle; the first who asks for some of it has it run."""
        parts = self._recipe.parts
        counts = self._df.mapInArrow(counting(self._broadcast), FORM)
        with _planned_at_once(self._df.sparkSession.conf):
            self._rdd = counts.repartitionById(parts, "part").rdd
        if self._rdd.getNumPartitions() != parts:
            raise StateError("Spark changed the parts of a shuffle; this is a bug")

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is not None:
            self._wait()
        self._remove()

    def _wait(self) -> None:
        """Let tasks end that a failed job left behind: what they yet write would stay."""
        executors = self._context._jsc.sc().statusTracker().getExecutorInfos
        stop = time.monotonic() + PATIENCE
        while sum(each.numRunningTasks() for each in executors()) and time.monotonic() < stop:
            time.sleep(0.1)

    def _remove(self) -> None:
        if self._rdd is not None:
            cleaner = self._context._jsc.sc().cleaner()
            for shuffle in _shuffles(self._rdd._jrdd.rdd(), set()):
                if cleaner.isDefined():  # else the files go with the application
                    cleaner.get().doCleanupShuffle(shuffle, True)
            self._rdd = None
        if self._broadcast is not None:
            self._broadcast.destroy(blocking=True)  # the stream's secret is in it
            self._broadcast = None
        if isinstance(self._df, ParquetFiles):
            self._df.forget()

    def facts(self) -> Facts:
        """How many rows there are; all are judged and counted for this."""

        def task(rows: Iterable[Any]) -> Iterator[bytes]:
            return (bytes(row.cells) for row in rows if row.table == FACTS)

        return facts_of(self._run(task, [0]))

    def of(self, slot: int) -> Counts:
        """The counts of one window, added up."""
        return dict(self._run(summing(slot), self._recipe.parts_of(slot)))

    def _run(self, task: Callable[[Iterable[Any]], Iterator[Any]], parts: list[int]) -> list[Any]:
        found: list[Any] = self._context.runJob(self._rdd, task, parts)
        return found


@contextmanager
def _planned_at_once(conf: Any) -> Iterator[None]:
    """Have Spark plan all of a DataFrame before any of it runs.

    An adaptive plan writes its shuffles while it is made, under numbers that nobody knows where
    that fails.
    """
    before = conf.get(ADAPTIVE)
    conf.set(ADAPTIVE, "false")
    try:
        yield
    finally:
        conf.set(ADAPTIVE, before)


def _shuffles(rdd: Any, seen: set[int]) -> Iterator[int]:
    """The numbers of the shuffles that lie directly before an RDD, not those of its source."""
    if rdd.id() in seen:
        return
    seen.add(rdd.id())
    dependencies = rdd.dependencies()
    for place in range(dependencies.size()):
        each = dependencies.apply(place)
        if "ShuffleDependency" in each.getClass().getName():
            yield each.shuffleId()
        else:
            yield from _shuffles(each.rdd(), seen)
