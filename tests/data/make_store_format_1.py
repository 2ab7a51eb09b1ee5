"""Writes the store of format 1 that `tests/store/test_format.py` opens; run once, then kept.

python -m tests.data.make_store_format_1 FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tests.store.stores import DAY, Stand, observed, rows, states


def main(folder: Path) -> None:
    """Three sealed windows, one populating with a late group, hot rows, a withdrawal."""
    stand = Stand(folder)
    store = stand.create(selection_share=0.1)
    for number in range(5):
        observed(store, rows(20, stand.clock.now, seed=number), key=f"batch {number}")
        if number == 1:
            store.groups.withdraw("a,b", why="not worth it")
        if number == 2:
            store.groups.add(["a", "b"])
        if number < 4:
            stand.clock.pass_(10 * DAY)
            store.advance()
    batch = rows(3, stand.clock.now, seed=9).to_pylist()
    features = store.featurize(batch)
    recorded = {
        "now": stand.clock.now,
        "rows": batch,
        "names": features.column_names,
        "features": [features[name].to_pylist() for name in features.column_names],
        "windows": states(store),
        "hot_rows": store.status().hot_rows,
        "ledger": store.ledger.report().to_dict(),
    }
    stand.close()
    (stand.path / "lock").write_bytes(b"")
    shutil.copy(stand.key, folder / "store.key")
    shutil.rmtree(stand.key.parent)
    (folder / "recorded.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
