"""One shuffle of partial counts: made once, read window by window, and then removed.

Spark keeps the files of a shuffle as long as somebody may ask for them. What is in these is raw
(P1), if encrypted, so nobody waits for a garbage collector: they are removed on every executor
before the counting returns, also where it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyramidion.errors import StateError
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


class Shuffle:
    """The partial counts of a DataFrame, by table and window; a context that removes them."""

    def __init__(self, df: Source, recipe: Recipe) -> None:
        self._context: Any = df.sparkSession.sparkContext
        self._recipe = recipe
        self._df: Source | None = df
        self._broadcast: Any = None
        self._rdd: Any = None

    def __enter__(self) -> Shuffle:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            self._df = None
            self._context._jvm.System.gc()  # Spark removes what a job wrote that failed
            raise
        return self

    def _make(self) -> None:
        recipe = self._recipe
        self._broadcast = self._context.broadcast(recipe)
        if self._df is None:
            raise StateError("this shuffle failed before; make another one")
        partials = self._df.mapInArrow(counting(self._broadcast), FORM)
        self._rdd = partials.repartitionById(recipe.parts, "part").rdd
        if self._rdd.getNumPartitions() != recipe.parts:
            raise StateError("Spark changed the parts of a shuffle; this is a bug")

    def __exit__(self, *_: object) -> None:
        if self._rdd is not None:
            cleaner = self._context._jsc.sc().cleaner()
            for shuffle in _shuffles(self._rdd._jrdd.rdd(), set()):
                if cleaner.isDefined():  # else the files go with the application
                    cleaner.get().doCleanupShuffle(shuffle, True)
            self._rdd = None
        if self._broadcast is not None:
            self._broadcast.destroy(blocking=True)  # the stream's secret is in it
            self._broadcast = None

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
