"""Writes the stores of format 7 that `tests/store/test_format.py` opens; run once, then kept.

python -m tests.data.make_store_format_7 FOLDER

One store has flat windows, the other a tree of windows and the column of a person. Both went
through everything that leaves a deletion record, so their exposure reports use all kinds.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from sklearn.linear_model import LogisticRegression
from tests.store.peopling import PEOPLE, of
from tests.store.stores import DAY, SCHEMA, START, Stand, observed, rows, states

from pyramidion import Pyramid

FLAT: dict[str, Any] = {"selection_share": 0.1, "retention": "30d"}
TREE: dict[str, Any] = {
    "windows": "tree",
    "tree_radix": 2,
    "tree_depth": 2,
    "retention": "40d",
    "k": 2,
    "p_min": 0.5,
}
PERSONS = ["ann", "ben", "cleo", "dan"]


def main(folder: Path) -> None:
    """Write both stores, each with its key and what was recorded of it."""
    flat = Stand(folder / "flat")
    live(flat, flat.create(SCHEMA, **FLAT), people=False)
    tree = Stand(folder / "tree")
    live(tree, tree.create(PEOPLE, **TREE), people=True)


def live(stand: Stand, store: Pyramid, people: bool) -> None:
    """Have a store observe, seal, retire, erase and reseed; record what it answers."""
    for number in range(7):
        now = stand.clock.now
        batch = of(PERSONS * 5, now, seed=number) if people else rows(20, now, seed=number)
        observed(store, batch, key=f"batch {number}")
        if number == 1:
            store.groups.withdraw("a,b", why="not worth it")
        if number == 2:
            store.groups.add(["a", "b"])
        if number == 3:
            store.register("model", LogisticRegression())
        if number == 4:
            store.admin.reseed(why="a drill")
        if number == 5 and people:
            store.erase_person("ann", why="asked for it")
        if number < 6:
            stand.clock.pass_(8 * DAY)
            store.advance()
    now = stand.clock.now
    sample = (of(PERSONS, now, seed=9) if people else rows(4, now, seed=9)).to_pylist()
    features = store.featurize(sample)
    intervals = [(START, now), (START + 9 * DAY, START + 17 * DAY), (now - DAY, now)]
    recorded = {
        "now": now,
        "rows": sample,
        "names": features.column_names,
        "features": [features[name].to_pylist() for name in features.column_names],
        "windows": states(store),
        "hot_rows": store.status().hot_rows,
        "ledger": store.ledger.report().to_dict(),
        "deletions": [[d.what, d.why, d.at, d.done] for d in store.status().deletions],
        "exposure": [[a, b, store.exposure(a, b).to_dict()] for a, b in intervals],
    }
    stand.close()
    (stand.path / "lock").write_bytes(b"")
    shutil.copy(stand.key, stand.folder / "store.key")
    shutil.rmtree(stand.key.parent)
    (stand.folder / "recorded.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
