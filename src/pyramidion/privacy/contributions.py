"""Contribution bounds: how many observations of one person a count window can hold.

Without a unit the noise of a window hides any k observations. With one it hides all that a
person can have in the window: k in each block of time that the window touches. A store draws
its noise by `hidden_of`, and a plan predicts by it.
"""

from __future__ import annotations

import math

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.windows import Slots
from pyramidion.errors import SchemaError


def blocks_of(schema: Schema, settings: Settings) -> Slots | None:
    """The blocks that people's rows are bounded in; None without a unit.

    Settings by which the bound could not be kept are refused.
    """
    if schema.unit is None:
        return None
    length, told = settings.unit_block_us, f"the schema protects the people in {schema.unit!r}"
    if settings.window_us is None:
        raise SchemaError(
            f"{told} and count windows are cut by rows, so one could last for any number of "
            f"blocks; write count_window as a duration"
        )
    if length is None or settings.hot_rows is not None:
        raise SchemaError(
            f"{told} and rows may leave the hot window by their number, before their block is "
            f"over; set hot_window and leave hot_rows out"
        )
    if length % settings.hot_step_us:
        raise SchemaError(
            f"{told} and setting 'unit_block' ({settings.unit_block}) is not a multiple of "
            f"'hot_step' ({settings.hot_step}); make it one"
        )
    if length > (settings.hot_window_us or 0):
        raise SchemaError(
            f"{told} and setting 'unit_block' ({settings.unit_block}) is longer than 'hot_window' "
            f"({settings.hot_window}), whose rows are all that is known of people; lower unit_block"
        )
    return Slots(length, settings.origin_us)


def blocks_touched(window: int, skew: int, block: int) -> int:
    """During how many blocks a window can take rows: from ``skew`` before its start to its stop.

    Windows and blocks are multiples of their lengths from one origin, so the time from the
    start of a block to that moment is, modulo the divisor g that they share, −skew. The most
    blocks are touched where it is longest.

    >>> blocks_touched(window=28, skew=0, block=7), blocks_touched(window=28, skew=1, block=7)
    (4, 5)
    >>> blocks_touched(window=30, skew=1, block=7)
    6
    """
    shared = math.gcd(window, block)
    into = block - shared + -skew % shared
    return (into + skew + window - 1) // block + 1


def hidden_of(schema: Schema, settings: Settings) -> int:
    """How many observations the noise of a window hides: k, or k in each block it touches."""
    blocks = blocks_of(schema, settings)
    if blocks is None:
        return settings.k
    skew = 0 if schema.time is None else settings.max_skew_us
    return settings.k * blocks_touched(settings.window_us or 0, skew, blocks.length)
