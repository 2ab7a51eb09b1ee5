"""How large the counts of a table are, told by its noisy cells alone.

A cell is read for the rows that fall into it, so what matters is the cell that an observation
falls into: with counts n and N rows, the mean of n over rows is Σ n² / N. Of noisy cells c, whose
noise has variance σ², the sum of c² - σ² has the same mean as Σ n²; in a signed sketch too, where
it is the known estimate of a second moment. N is the prior's noisy total. So nothing is looked at
but tables that are sealed, and nothing is spent (P2).
"""

from __future__ import annotations

import numpy as np

from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import PRIOR


def typical_counts(arena: Arena) -> dict[str, float]:
    """By table, the count in the cell that an observation falls into, on average; 0 at least."""
    index = arena.layout.index
    rows = max(float(arena.cells(index[PRIOR]).sum()), 1.0)
    found = {}
    for name, number in index.items():
        table, cells = arena.layout.tables[number], arena.cells(number)
        squares = sum(float(np.square(row, dtype=np.float64).sum()) for row in cells) / table.rows
        noise = table.variance * cells[0].size
        found[name] = max(squares - noise, 0.0) / rows
    return found
