"""What windows are born with: how their tables share the budget, and what is kept back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from pyramidion.encoding import Encoder, TableShape
from pyramidion.errors import SchemaError
from pyramidion.people import hidden_of
from pyramidion.privacy.birth import Birth, parts_of, reserves_of, sizes_of
from pyramidion.privacy.weights import combined, tables_read, weights_of
from pyramidion.schema import Schema
from pyramidion.settings import Settings
from pyramidion.storage.readings import PURPOSES, Purpose, Readings


class Births:
    """Births by the number of a window: some of them are read, and keep something back."""

    def __init__(self, settings: Settings, readings: Readings, secret: bytes, hidden: int) -> None:
        self._settings = settings
        self._readings = readings
        self._secret = secret
        self._hidden = hidden

    @staticmethod
    def refuse_unusable(schema: Schema, settings: Settings, shapes: Sequence[TableShape]) -> None:
        """Raise for a schema and settings that no window could be born with."""
        labels, hidden = schema.cardinality, hidden_of(schema, settings)
        reserves, levels, kept = reserves_of(settings), settings.levels, settings.kept_windows
        if levels is not None and kept is not None and levels.span(levels.depth - 1) > kept:
            raise SchemaError(
                f"settings 'tree_radix' and 'tree_depth' make nodes of more windows than are kept "
                f"({kept}), which are never whole; lower one of them or raise retention"
            )
        for level, part in enumerate(parts_of(settings, reserves)):
            span = 1 if levels is None else levels.span(level)
            born = {"reserves": reserves, "k": hidden, "part": part, "span": span}
            Birth(settings, shapes, labels, b"nobody's", **born).layout  # type: ignore[arg-type]  # noqa: B018

    def of(
        self,
        window: int,
        schema: Schema,
        encoder: Encoder,
        *,
        level: int = 0,
        above: Fraction | None = None,
    ) -> Birth:
        """Everything a window of this number is born with, or a node of a level that it begins.

        ``above`` is what the nodes over a window cost, as shares of its budget, where that is
        known already.
        """
        shares = dict(self._settings.shares or ())
        kept = {name: share for name, share in shares.items() if name in schema.table_names}
        settings = replace(self._settings, shares=kept or None)
        read = self._readings.of("weights").values()
        quantiles = combined([{name: q for name, (q,) in values.items()} for values in read])
        reserves = reserves_of(settings, self.due(window, schema, encoder.shapes))
        levels, part = settings.levels, parts_of(settings, reserves)[level]
        if above is not None:
            part = 1 - above / (1 - sum(reserves.values()))
        return Birth(
            settings,
            encoder.shapes,
            schema.cardinality,
            self._secret,
            reserves=reserves if level == 0 else reserves_of(settings),
            weights=weights_of(settings, sizes_of(settings, encoder.shapes), quantiles),
            k=self._hidden,
            prior=encoder.prior,
            part=part,
            span=1 if levels is None else levels.span(level),
        )

    def due(self, window: int, schema: Schema, shapes: Sequence[TableShape]) -> list[Purpose]:
        """What is to be read from a window of this number: nothing was, for some windows."""
        settings = self._settings
        wanted = {
            "weights": settings.weighted and bool(tables_read(settings, shapes)),
            "bins": bool(schema.binned),
        }
        every = {"weights": settings.weights_every, "bins": settings.bins_period}
        last = {of: max(self._readings.of(of), default=None) for of in PURPOSES}
        return [
            of for of, at in last.items() if wanted[of] and (at is None or window - at >= every[of])
        ]
