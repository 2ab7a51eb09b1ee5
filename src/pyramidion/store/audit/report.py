"""Both audits together: what was measured, which facts hold, and whether to raise the alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.store.audit import structural
from pyramidion.store.audit.statistical import Measured, measure
from pyramidion.store.audit.structural import Check


@dataclass(frozen=True)
class Audit:
    """What an audit found."""

    measured: Measured
    checks: tuple[Check, ...]

    @property
    def alarm(self) -> bool:
        """Whether more leaks than the ledger says, or a fact does not hold."""
        return self.measured.alarm or not all(check.holds for check in self.checks)

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "alarm": self.alarm,
            "measured": self.measured.to_dict(),
            "checks": [asdict(check) for check in self.checks],
        }

    def __str__(self) -> str:
        return "\n".join([*map(str, self.checks), "", str(self.measured)])


def audit(
    settings: Settings,
    *,
    like: Schema | None = None,
    canaries: int,
    rounds: int = 1,
    progress: Callable[[int], object] = lambda _: None,
) -> Audit:
    """Audit stores of these settings, with tables like those of a schema; all temporary.

    ``progress`` is called with the number of canaries that were just gone through, which
    are `canaries_of` in the end.
    """
    measured = measure(settings, canaries=canaries, rounds=rounds, like=like, progress=progress)
    return Audit(measured, structural.checks(settings, like, progress=progress))


def canaries_of(canaries: int, rounds: int) -> int:
    """How many canaries an audit goes through, those of the structural part included."""
    return canaries * rounds + structural.CANARIES * structural.WINDOWS
