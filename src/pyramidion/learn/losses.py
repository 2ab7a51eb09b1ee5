"""How well a model does on rows it has not seen, beside knowing the label's rates alone."""

from __future__ import annotations

from dataclasses import dataclass

from pyramidion.counts.guarantee import Guarantee
from pyramidion.errors import StateError
from pyramidion.learn.jobs import TEST

FEWEST = 10  # rows that must be there to test on


@dataclass(frozen=True)
class Loss:
    """The loss of a model on the newest hot rows, after it learned from those before; P1.

    The store forgets it when one of these rows leaves. Who took a copy must do so too.

    >>> promise = Guarantee(level="P1", epsilon=float("inf"), delta=1.0, k=1, windows=1)
    >>> told = dict(kind="log loss", tested=60, at=0, guarantee=promise)
    >>> Loss(model=0.45, prior=0.6, **told).gain
    0.25
    """

    model: float
    prior: float
    """That of the class rates of the rows before, or of their mean."""
    kind: str
    """Log loss for classes, squared loss for numbers, or the error rate."""
    tested: int
    """The newest rows, which both were measured on."""
    at: int
    """When, by the store's clock in microseconds."""
    guarantee: Guarantee

    @property
    def gain(self) -> float:
        """The share of the prior's loss that the model saves; below 0 it does harm."""
        return 1 - self.model / self.prior if self.prior else 0.0


def refuse_few(rows: int) -> None:
    """Raise where hot rows are too few to keep some for testing."""
    if rows < FEWEST * TEST:
        raise StateError(
            f"a loss needs {FEWEST * TEST} hot rows and there are {rows}; observe more, or keep a "
            f"longer hot window"
        )
