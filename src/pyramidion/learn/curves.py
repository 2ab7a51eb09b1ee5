"""How much of the hot window a model needs: its loss against the rows it learns from.

The newest rows are kept for testing; the model learns from the rows just before them, more
and more. Where the loss stops falling, a larger hot window exposes rows for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyramidion.config.checks import checked_number, checked_whole
from pyramidion.counts.guarantee import Guarantee
from pyramidion.errors import SchemaError, StateError
from pyramidion.learn.jobs import TEST, tested

FEWEST = 50  # rows that the default sizes begin with, and that must be there to test on


class LearningCurve:
    """The loss of a model for each number of hot rows it learned from; P1.

    It goes when one of the rows it was measured on does.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        losses: Sequence[float],
        *,
        loss: str,
        tested: int,
        within: float,
        guarantee: Guarantee,
    ) -> None:
        self.loss = loss
        """Which loss: log loss for classes, squared loss for numbers, or the error rate."""
        self.within = within
        self.guarantee = guarantee
        self._sizes, self._losses, self._tested = list(sizes), list(losses), tested
        self._expired = ""

    def expire(self, why: str) -> None:
        """Drop the losses: what they were measured on must be forgotten."""
        self._expired = why
        self._losses.clear()

    @property
    def sizes(self) -> list[int]:
        """Rows the model learned from, growing."""
        return list(self._sizes)

    @property
    def tested(self) -> int:
        """The newest rows, which every loss was measured on."""
        return self._tested

    @property
    def losses(self) -> list[float]:
        """The loss for each size."""
        if self._expired:
            raise StateError(f"this learning curve has expired: {self._expired}; take a new one")
        return list(self._losses)

    @property
    def smallest(self) -> int:
        """The fewest rows whose loss is within the bound of the best one."""
        best = min(self.losses)
        limit = best + self.within * abs(best)
        return next(size for size, loss in self if loss <= limit)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return iter(zip(self._sizes, self.losses, strict=True))

    def __repr__(self) -> str:
        told = "expired" if self._expired else f"smallest={self.smallest}"
        return f"LearningCurve(sizes={self._sizes}, {told})"


def checked_sizes(given: Sequence[int] | None, rows: int) -> list[int]:
    """The sizes to try, growing: those given, or doubled from a few to all."""
    most = rows - tested(rows)
    if rows < FEWEST * TEST:
        raise StateError(
            f"a learning curve needs {FEWEST * TEST} hot rows and there are {rows}; observe more, "
            f"or keep a longer hot window"
        )
    if given is not None:
        chosen = sorted({checked_whole("a size of the curve", n, 1, most) for n in given})
        if not chosen:
            raise SchemaError("the learning curve has no sizes; name some, or leave them out")
        return chosen
    doubled = [FEWEST * 2**i for i in range(40)]
    return [*(n for n in doubled if 1.5 * n < most), most]


def checked_within(within: float) -> float:
    """A share of the best loss, not negative."""
    number = checked_number("`within`", within)
    if number < 0:
        raise SchemaError(f"`within` must be at least 0, not {number}; 0.05 is five per cent")
    return number
