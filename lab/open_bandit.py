"""Open Bandit: clicks on what a policy chose to show, with the odds it chose it at.

Read is the official layout: ``<policy>/<campaign>/<campaign>.csv``, the log, beside
``item_context.csv``, the items. A policy is ``random`` or ``bts``; a campaign ``all``, ``men`` or
``women``. A model may know the item, its place on the page and its three categories; the user's
four features; and ``affinity``: how often this user clicked this item before, which the log has
as one column for each item. Items are public, so they and their categories have domains.

``propensity_score`` is the probability that the policy showed the item there. It is always read;
with ``weighted`` the schema counts an observation 1/p times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab.datasets import DataSet, of_table
from lab.reading import Field, Lines, among, find, fingerprint, zero_or_one
from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.errors import ObservationError, SchemaError

POLICIES = ("random", "bts")
CAMPAIGNS = ("all", "men", "women")
POSITIONS = (1, 2, 3)
USER = tuple(f"user_feature_{i}" for i in range(4))
ITEM = tuple(f"item_feature_{i}" for i in range(1, 4))
AFFINITY = (0.5, 1.5)
"""Never clicked before, once, more often."""


def load(
    path: str | Path, campaign: str = "all", policy: str = "random", *, weighted: bool = False
) -> DataSet:
    """Read what one policy showed in one campaign, in the order of time."""
    _refuse_unknown("policy", policy, POLICIES)
    _refuse_unknown("campaign", campaign, CAMPAIGNS)
    log, listed = _files(path, campaign, policy)
    catalogue = _items(listed)
    rows = _rows(log, catalogue)
    about = fingerprint((log, listed), policy, campaign, weighted)
    title = f"Open Bandit, {campaign} by {policy} ({rows.num_rows:,} items shown)"
    return of_table("open-bandit", title, _schema(catalogue, weighted), rows, about)


def items(path: str | Path, campaign: str, policy: str = "random") -> pa.Table:
    """The items of a campaign by number, with their categories."""
    return _items(_files(path, campaign, policy)[1])


def _files(path: str | Path, campaign: str, policy: str) -> Sequence[Path]:
    inside = f"{policy}/{campaign}"
    return find(path, (f"{inside}/{campaign}.csv", f"{inside}/item_context.csv"))


def _refuse_unknown(what: str, given: str, known: Iterable[str]) -> None:
    if given not in known:
        raise SchemaError(f"Open Bandit has no {what} {given!r}; use one of {', '.join(known)}")


def _schema(items: pa.Table, weighted: bool) -> Schema:
    return Schema(
        time="time",
        label=Label("click", classes=[0, 1]),
        weight="propensity_score" if weighted else None,
        features=[
            Categorical("item_id", domain=items["item_id"].to_pylist()),
            Categorical("position", domain=POSITIONS),
            *(Categorical(name, domain=_values(items[name])) for name in ITEM),
            *map(Categorical, USER),
            Continuous("affinity", edges=AFFINITY),
        ],
    )


def _values(column: pa.ChunkedArray) -> list[str]:
    return sorted(column.unique().to_pylist())


def _items(file: Path) -> pa.Table:
    """Items by number, with their categories."""
    fields = (Field("item_id", pa.int64()), *(Field(name, pa.string()) for name in ITEM))
    items = pa.concat_tables(Lines(file, fields).read()).sort_by("item_id").combine_chunks()
    if pc.count_distinct(items["item_id"]).as_py() < items.num_rows:
        raise ObservationError(f"{file.name} lists an item twice; fetch the file again")
    return items


def _rows(file: Path, items: pa.Table) -> pa.Table:
    """The log in the order of time. Only one affinity of each row is kept, so memory is small."""
    log = Lines(file, _fields(items["item_id"].combine_chunks()))
    whole = pa.concat_tables(_told(part, items) for part in log.read())
    order = np.argsort(whole["timestamp"].to_numpy(), kind="stable")
    seconds = pc.floor_temporal(whole["timestamp"], unit="second").cast(pa.timestamp("s", "UTC"))
    timed = whole.drop_columns("timestamp").add_column(0, "time", seconds.cast(pa.int64()))
    return timed.take(order).combine_chunks()


def _fields(items: pa.Array) -> tuple[Field, ...]:
    return (
        Field("timestamp", pa.timestamp("us", "UTC")),
        Field("item_id", pa.int64(), "in item_context.csv", among(items)),
        Field("position", pa.int64(), "1, 2 or 3", among(POSITIONS)),
        zero_or_one("click"),
        Field("propensity_score", pa.float64(), "above 0 and at most 1", _is_propensity),
        *(Field(name, pa.string()) for name in USER),
        *(Field(name, pa.float64()) for name in _affinities(items)),
    )


def _affinities(items: pa.Array) -> list[str]:
    return [f"user-item_affinity_{item}" for item in items.to_pylist()]


def _is_propensity(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_(pc.greater(column, 0), pc.less_equal(column, 1))


def _told(log: pa.Table, items: pa.Table) -> pa.Table:
    """Rows with their item's categories and the user's affinity to it."""
    place = pc.index_in(log["item_id"], value_set=items["item_id"].combine_chunks())
    names = _affinities(items["item_id"])
    each = np.stack([log[name].to_numpy() for name in names])
    its_own = each[place.to_numpy(), np.arange(log.num_rows)]
    about = {name: items[name].take(place) for name in ITEM}
    known = log.drop_columns(names)
    columns = {name: known[name] for name in known.column_names}
    return pa.table(columns | about | {"affinity": its_own})
