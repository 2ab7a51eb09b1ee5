"""The noise of many windows summed, flat and in trees, measured on tables that are really born.

Windows and nodes are born as a store's are, the tables to sum are chosen as a store chooses them,
and what is drawn of their noise is summed as a store sums it. Only files and rows are left out:
noise does not depend on these.
"""

from __future__ import annotations

import numpy as np

from pyramidion.config.features import Categorical
from pyramidion.config.label import Label
from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.config.window_tree import Levels, Mechanism, best
from pyramidion.counts.arena import Arena
from pyramidion.counts.tree_cover import Piece, cover
from pyramidion.privacy.table_noise import TableDesign, parts_of
from pyramidion.rows.encoding import table_shapes

CELLS = 1_024
SCHEMA = Schema(
    features=[Categorical("x", domain=[str(value) for value in range(CELLS // 2)])],
    label=Label("y", classes=[0, 1]),
)


def trees(windows: int, mechanism: Mechanism) -> dict[str, Levels | None]:
    """What is compared: flat windows, the paper's binary tree, and the best tree."""
    binary = windows.bit_length()
    found: dict[str, Levels | None] = {"flat": None}
    if binary > 1:
        found["binary tree, equal shares"] = Levels(2, (1 / binary,) * binary)
    chosen = best(windows, mechanism)
    if chosen is not None:
        found["best tree"] = chosen
    return found


def deviation(windows: int, levels: Levels | None, mechanism: Mechanism, first: int = 0) -> float:
    """Of the noise in a sum of windows, in tables that have the whole budget.

    The oldest window is in slot ``first``: nodes that begin before it are gone already.
    """
    flat = _settings(mechanism, None)
    settings = _settings(mechanism, levels)
    births = [_birth(settings, level) for level in range(1 if levels is None else levels.depth)]
    noise = [{"x": birth.variances[1]} for birth in births]
    leaves = {slot: Piece([slot], noise[0]) for slot in range(first, first + windows)}
    nodes = [
        ((level, place), Piece(range(place * span, (place + 1) * span), noise[level]))
        for level, span in enumerate(
            [levels.span(n) for n in range(levels.depth)] if levels else []
        )
        if level > 0
        for place in range(-(-first // span), (first + windows) // span)
    ]
    chosen, standing = cover(leaves, nodes)
    levels_used = [*(0 for _ in chosen), *(level for level, _ in standing)]
    total: Arena | None = None
    for start in range(0, len(levels_used), 100):
        drawn = [births[level].arena() for level in levels_used[start : start + 100]]
        for arena in drawn:
            arena.seal()
        total = Arena.total([*([] if total is None else [total]), *drawn])
    if total is None:
        return 0.0
    cells = total.cells(1).astype(np.float64)
    return float(np.sqrt((cells**2).mean() / _birth(flat, 0).variances[1]))


def _settings(mechanism: Mechanism, levels: Levels | None) -> Settings:
    delta = 0.0 if mechanism == "laplace" else 1e-9
    told = {"epsilon": 1.0, "delta": delta, "count_window": 1_000, "weights": "equal"}
    told |= {"weights_share": 0.0, "bins_share": 0.0, "max_rows_per_window": 1_000}
    if levels is not None:
        shape = {"tree_radix": levels.radix, "tree_depth": levels.depth}
        told |= {"windows": "tree", **shape, "tree_shares": levels.shares}
    return Settings(**told)  # type: ignore[arg-type]


def _birth(settings: Settings, level: int) -> TableDesign:
    shapes = table_shapes(SCHEMA, settings.dense_limit)
    part = parts_of(settings, {})[level]
    return TableDesign(settings, shapes, SCHEMA.cardinality, b"nobody's", part=part)
