"""Where the tables of an arena lie, and how keys find their cells.

Cell width comes from public bounds alone (rows a window may take, largest
weight, 64 noise scales), so overflow can neither happen nor tell anything.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.schema import READ
from pyramidion.counts import kernels
from pyramidion.errors import PrivacyError, SchemaError
from pyramidion.rows.hashing import derive

Kind = Literal["dense", "count-min", "count-median"]

PRIOR = ""
"""Name of the table of label totals, always the first."""

ALIGN = 64  # bytes: tables begin on cache lines of their own
_KINDS = {
    "dense": kernels.DENSE,
    "count-min": kernels.COUNT_MIN,
    "count-median": kernels.COUNT_MEDIAN,
}


@dataclass(frozen=True)
class Table:
    """Size, public bound and noise of one count table, or of a sum of several."""

    name: str
    kind: Kind
    rows: int
    width: int
    bound: int
    """No cell can ever pass this, whatever is observed."""
    variance: float = 0.0
    """Of the noise in one cell."""
    windows: int = 1
    """How many tables with noise of their own were summed."""

    @property
    def wide(self) -> bool:
        """Whether cells need 64 bits."""
        return self.bound >= 1 << 31


def read_from(name: str) -> int:
    """The window that a table's bins were read from; 0: none.

    >>> read_from("origin,distance@7"), read_from("origin")
    (7, 0)
    """
    found = READ.search(name)
    return 0 if found is None else int(found[0][1:])


def _refuse_unplaceable(table: Table) -> None:
    """Kernels check no index: sizes they would leave the block with must never reach them."""
    if table.kind == "dense":
        fits = table.rows == 1 and table.width >= 1
    else:
        power_of_two = table.width >= 2 and not table.width & (table.width - 1)
        fits = 1 <= table.rows <= kernels.MAX_ROWS and power_of_two
    if not fits:
        raise SchemaError(
            f"count table {table.name!r} cannot be laid out; a dense table has one hash row, a "
            f"sketch 1 to {kernels.MAX_ROWS}, and 2, 4, 8, ... buckets"
        )


@dataclass(frozen=True)
class Layout:
    """Where the tables of an arena lie, and how keys find their cells."""

    tables: tuple[Table, ...]
    labels: int
    secret: bytes = field(repr=False)
    weight: int = 1
    """Ω: the most that one observation may add to a cell."""

    def __post_init__(self) -> None:
        for table in self.tables:
            _refuse_unplaceable(table)
            if table.bound >= 1 << 62:
                raise PrivacyError(
                    f"count table {table.name!r} could pass 64-bit cells; lower "
                    f"max_rows_per_window or raise epsilon"
                )

    @cached_property
    def plan(self) -> NDArray[np.uint64]:
        """The tables as the kernels read them, see `pyramidion.counts.kernels`."""
        plan = np.zeros((len(self.tables), kernels.PLAN_WORDS), dtype=np.uint64)
        at = 0
        for row, table in zip(plan, self.tables, strict=True):
            row[: kernels.PLAN_SALT] = (
                _KINDS[table.kind],
                table.rows,
                table.width,
                64 - (table.width.bit_length() - 1),
                at // (8 if table.wide else 4),
                table.wide,
            )
            self._salt(row, table)
            at += -(-self.nbytes_of(table) // ALIGN) * ALIGN
        plan.flags.writeable = False
        return plan

    def _salt(self, row: NDArray[np.uint64], table: Table) -> None:
        """Each hash row its own odd multiplier; signs from an unrelated mix."""
        row[kernels.PLAN_SALT] = derive(self.secret, f"signs of {table.name}", 1)[0]
        for i in range(table.rows):
            words = derive(self.secret, f"row {i} of {table.name}", 2)
            row[kernels.PLAN_MULTIPLIER + i] = words[0] | np.uint64(1)
            row[kernels.PLAN_ADDEND + i] = words[1]

    def nbytes_of(self, table: Table) -> int:
        """Bytes of one table's cells."""
        return table.rows * table.width * self.labels * (8 if table.wide else 4)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the block."""
        return sum(-(-self.nbytes_of(table) // ALIGN) * ALIGN for table in self.tables)

    @cached_property
    def fingerprint(self) -> str:
        """Tells layouts apart without telling the secret."""
        return blake2b(
            self.plan.tobytes(), key=str(self.labels).encode(), digest_size=16
        ).hexdigest()

    @cached_property
    def told(self) -> list[dict[str, Any]]:
        """The tables as the head of a file has them."""
        return [asdict(table) for table in self.tables]

    @cached_property
    def index(self) -> dict[str, int]:
        """The tables' numbers by name."""
        return {table.name: number for number, table in enumerate(self.tables)}

    @cached_property
    def read(self) -> int:
        """The newest window that bins of these tables were read from; 0: none."""
        return max(map(read_from, self.index))

    def adds_to(self, other: Layout) -> bool:
        """Whether cells of tables that both have mean the same; their bounds may differ."""
        shared = [name for name in self.index if name in other.index]
        return (
            self.labels == other.labels
            and self.secret == other.secret
            and all(self._shape(name) == other._shape(name) for name in shared)
        )

    def _shape(self, name: str) -> tuple[Kind, int, int]:
        table = self.tables[self.index[name]]
        return table.kind, table.rows, table.width
