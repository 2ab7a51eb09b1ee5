"""Open Bandit as one bandit: what both policies showed in all campaigns, day by day.

Policies learn from all of it, and are judged on what ``random`` showed the day after, where every
item of a campaign was as likely as any other. A row's choices are the items of its campaign, whose
numbers are the campaign's own: here an item is called ``men/3``. How often a user clicked an item
before (``affinity``) is known for the item that was shown alone, so policies cannot ask for it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab import open_bandit
from lab.bandits import NAME, Bandit, Choices
from lab.datasets import of_table
from lab.open_bandit import CAMPAIGNS, ITEM, POLICIES, POSITIONS, USER
from pyramidion.config.schema import Categorical, Label, Schema

DAY = 86_400
P_MIN = 0.01
"""Below the least propensity of ``random``, 1 in 80; ``bts`` was bolder at times, to one in a
million, and what it showed so counts 100 times and no more."""


def load(path: str | Path) -> Bandit:
    """All logs of a folder that has the official layout."""
    items, logs = [], []
    for campaign in CAMPAIGNS:
        for policy in POLICIES:
            data = open_bandit.load(path, campaign, policy)
            logs.append(_named(data.table(0, data.rows), campaign, policy))
        items.append(_catalogue(Path(path), campaign))
    catalogue, rows = pa.concat_tables(items), pa.concat_tables(logs)
    order = np.argsort(rows["time"].to_numpy(), kind="stable")
    rows = rows.take(pa.array(order)).combine_chunks()
    schema = _schema(catalogue)
    about = f"open-bandit:{P_MIN}:{rows.num_rows}:{pc.sum(rows['time']).as_py()}"
    title = f"Open Bandit ({rows.num_rows:,} items shown, {pc.sum(rows['click'])} clicked)"
    data = of_table("open-bandit", title, schema, rows, about)

    def choices(some: pa.Table) -> Choices:
        return _choices(some, catalogue)

    return Bandit(
        data.name,
        data.title,
        schema,
        data.rows,
        data.read,
        about,
        made_for=(NAME,),
        days=_days(rows),
        p_min=P_MIN,
        about=["item", *ITEM],
        choices=choices,
        judged=lambda some: some.filter(pc.equal(some["policy"], "random")),
    )


def _named(rows: pa.Table, campaign: str, policy: str) -> pa.Table:
    """Rows with their campaign, the policy that showed them, and items by their whole names."""
    names = pc.binary_join_element_wise(campaign, pc.cast(rows["item_id"], pa.string()), "/")
    known = {name: rows[name] for name in rows.column_names if name not in ("item_id", "affinity")}
    told = {"campaign": [campaign] * len(rows), "policy": [policy] * len(rows)}
    return pa.table({"time": known.pop("time"), "item": names, **known, **told})


def _catalogue(path: Path, campaign: str) -> pa.Table:
    """The items of a campaign, by their whole names."""
    items = open_bandit.items(path, campaign)
    names = pc.binary_join_element_wise(campaign, pc.cast(items["item_id"], pa.string()), "/")
    known = {name: items[name] for name in ITEM}
    return pa.table({"item": names, **known, "campaign": [campaign] * items.num_rows})


def _schema(catalogue: pa.Table) -> Schema:
    kinds = [Categorical(name, domain=_values(catalogue[name])) for name in ITEM]
    return Schema(
        time="time",
        label=Label("click", classes=[0, 1]),
        weight="propensity_score",
        features=[
            Categorical("item", domain=catalogue["item"].to_pylist()),
            *kinds,
            Categorical("position", domain=POSITIONS),
            Categorical("campaign", domain=CAMPAIGNS),
            *map(Categorical, USER),
        ],
        groups=[(ITEM[0], USER[0]), (ITEM[0], USER[1]), ("item", "position")],
    )


def _values(column: pa.ChunkedArray) -> list[str]:
    return sorted(column.unique().to_pylist())


def _days(rows: pa.Table) -> list[tuple[int, int]]:
    day = rows["time"].to_numpy() // DAY
    starts = np.flatnonzero(np.diff(day, prepend=day[0] - 1))
    stops = [*starts[1:].tolist(), rows.num_rows]
    return list(zip(starts.tolist(), stops, strict=True))


def _choices(rows: pa.Table, catalogue: pa.Table) -> Choices:
    """All items of each row's campaign."""
    campaigns = catalogue["campaign"].to_numpy(zero_copy_only=False)
    firsts = np.array([np.argmax(campaigns == name) for name in CAMPAIGNS])
    many = np.array([np.sum(campaigns == name) for name in CAMPAIGNS])
    known = pa.array(CAMPAIGNS)
    place = pc.index_in(rows["campaign"], value_set=known).to_numpy()
    sizes = many[place]
    starts = np.cumsum(sizes) - sizes
    item = np.arange(sizes.sum()) - np.repeat(starts, sizes) + np.repeat(firsts[place], sizes)
    context = rows.select(["position", "campaign", *USER])
    repeated = context.take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))
    shown = catalogue.select(["item", *ITEM]).take(pa.array(item))
    columns = {name: table[name] for table in (shown, repeated) for name in table.column_names}
    return Choices(pa.table(columns), sizes)
