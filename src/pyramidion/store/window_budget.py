"""What windows are born with: how their tables share the budget, and what is kept back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from pyramidion.config.schema import Schema, bare
from pyramidion.config.settings import Settings
from pyramidion.errors import SchemaError
from pyramidion.privacy.contributions import hidden_of
from pyramidion.privacy.table_noise import TableDesign, parts_of, reserves_of, sizes_of
from pyramidion.privacy.weights import by_size, combined, tables_read, weights_of
from pyramidion.rows.encoding import Encoder, TableShape
from pyramidion.storage.readings import Purpose, Readings

READ: tuple[Purpose, ...] = ("weights", "bins")
"""What is read from one window for the next ones."""


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
        if settings.shards > 1:
            _refuse_unshared(schema)
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
            TableDesign(settings, shapes, labels, b"nobody's", **born).layout  # type: ignore[arg-type]  # noqa: B018

    def of(
        self,
        window: int,
        schema: Schema,
        encoder: Encoder,
        *,
        level: int = 0,
        above: Fraction | None = None,
        hot: bool = True,
    ) -> TableDesign:
        """Everything a window of this number is born with, or a node of a level that it begins.

        ``above`` is what the nodes over a window cost, as shares of its budget, where that is
        known already. A window whose rows are never ``hot`` keeps nothing back for what is read
        from hot rows: its tables have it.
        """
        shares = dict(self._settings.shares or ())
        named = {name: share for name, share in shares.items() if name in schema.table_names}
        settings = replace(self._settings, shares=named or None)
        read = self._readings.of("weights").values()
        quantiles = combined([{name: q for name, (q,) in values.items()} for values in read])
        reserves, apart = self._kept_back(window, schema, encoder.shapes, level)
        if not hot:
            reserves = {of: share for of, share in reserves.items() if of == "rebuild"}
        levels, kept = settings.levels, {**reserves, **apart}
        part = parts_of(settings, kept)[level]
        if above is not None:
            part = 1 - above / (1 - sum(kept.values()))
        return TableDesign(
            settings,
            encoder.shapes,
            schema.cardinality,
            self._secret,
            reserves=reserves,
            apart=apart,
            weights=weights_of(settings, sizes_of(settings, encoder.shapes), quantiles),
            k=self._hidden,
            prior=encoder.prior,
            part=part,
            span=1 if levels is None else levels.span(level),
        )

    def _kept_back(
        self, window: int, schema: Schema, shapes: Sequence[TableShape], level: int
    ) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
        """What a window keeps back, and what the tables of chosen groups have of that.

        A node keeps nothing back itself, but reckons with the most that any of its windows does;
        there chosen groups are tables like all others, so that it always costs the same.
        """
        if level:
            return dict(reserves_of(self._settings)), {}
        reserves = dict(reserves_of(self._settings, self.due(window, schema, shapes)))
        apart = self._apart(shapes)
        if "selection" in reserves:
            kept = reserves["selection"] - sum(apart.values())
            reserves["selection"] = kept if self.selects(window) else Fraction(0)
        return reserves, apart

    def _apart(self, shapes: Sequence[TableShape]) -> dict[str, Fraction]:
        """Tables of chosen groups share a part of what is kept back for selection, by size."""
        share, groups = self._settings.reserves["selection"], self.chosen
        chosen = [shape for shape in shapes if bare(shape.name) in groups]
        if not share or not chosen or not self._settings.private:
            return {}
        pool = share * Fraction(repr(self._settings.selection_tables))
        return {name: pool * part for name, part in by_size(self._settings, chosen).items()}

    @property
    def chosen(self) -> dict[str, list[int]]:
        """The groups that were chosen and are not dropped, with the windows they go with."""
        found: dict[str, list[int]] = {}
        for window, values in self._readings.of("selection").items():
            for name, told in values.items():
                if name and not told:
                    found.setdefault(name, []).append(window)
        return found

    @property
    def dropped(self) -> dict[str, list[float]]:
        """The groups that were chosen and dropped: 0, 0 and the windows that counted them then.

        What these told is not kept: it would outlive those of them that go first.
        """
        every = self._readings.of("selection").values()
        there = {name: told for values in every for name, told in values.items() if name and told}
        return {name: told for name, told in there.items() if name not in self.chosen}

    def selects(self, window: int) -> bool:
        """Whether groups may be chosen from a window of this number, by when they last were."""
        every = self._settings.selection_every
        last = [values[""][0] for values in self._readings.of("selection").values()]
        return every is None or not last or window - max(last) >= every

    def due(self, window: int, schema: Schema, shapes: Sequence[TableShape]) -> list[Purpose]:
        """What is to be read from a window of this number: nothing was, for some windows."""
        settings = self._settings
        wanted = {
            "weights": settings.weighted and bool(tables_read(settings, shapes)),
            "bins": bool(schema.binned),
        }
        every = {"weights": settings.weights_every, "bins": settings.bins_period}
        last = {of: max(self._readings.of(of), default=None) for of in READ}
        return [
            of for of, at in last.items() if wanted[of] and (at is None or window - at >= every[of])
        ]


def _refuse_unshared(schema: Schema) -> None:
    """Raise for a schema whose tables in one shard would not be those in another."""
    if schema.binned:
        name = min(schema.binned)
        raise SchemaError(
            f"{name!r} has private bins, and those that one shard reads are not those of another; "
            f"give its edges, or keep the stream in one store"
        )
    if schema.unit is not None:
        raise SchemaError(
            f"the schema protects people (unit {schema.unit!r}), and a person's rows in several "
            f"shards would be more than the noise of any one hides; keep the stream in one store"
        )
