"""Write the parts of the documents that follow from the code: ``python docs/generate.py``.

Between ``<!-- generated: name -->`` and ``<!-- end -->`` stands what a function
here returns. The tests fail where a document differs from it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

from pyramidion import Categorical, Continuous, Label, PyramidionError, Schema, Settings

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REGION = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def knobs(*, store: bool) -> str:
    """The table of settings: those of counting, or those that only a store has."""
    rows = ["| knob | symbol | unit | default | what it does |", "| --- | --- | --- | --- | --- |"]
    for knob in Settings.knobs():
        if knob.store is not store:
            continue
        default = "none, you choose" if knob.required else f"`{knob.default!r}`"
        rows.append(
            f"| `{knob.name}` | {knob.symbol} | {knob.unit} | {default} | {_cell(knob.help)} |"
        )
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


FEATURE_REFUSALS = (
    'Categorical("")',
    "Categorical(7)",
    'Categorical("carrier\\ud800")',
    'Categorical("carrier", domain="AA")',
    'Categorical("carrier", domain=[])',
    'Categorical("carrier", domain=["AA", None])',
    'Categorical("carrier", domain=[True, 1])',
    'Categorical("carrier", domain=[float("nan")])',
    'Categorical("carrier", domain=[2**64])',
    'Categorical("carrier", domain=[("AA", "UA")])',
    'Categorical("carrier", domain=["\\ud800"])',
    'Continuous("distance")',
    'Continuous("distance", edges=[])',
    'Continuous("distance", edges=[500, 100])',
    'Continuous("distance", edges=["500"])',
    'Continuous("distance", edges=[float("inf")])',
    'Continuous("distance", bins=4.0, bounds=(0, 5000))',
    'Continuous("distance", bins=1, bounds=(0, 5000))',
    'Continuous("distance", bins=4, bounds=(5000, 0))',
)

LABEL_REFUSALS = (
    'Label("late")',
    'Label("late", classes=[1])',
    'Label("late", classes=[1, "1"])',
    'Label("late", classes=[0, 1], values=[0.0, 1.0])',
    'Label("rating", edges=[2, 3, 4], values=[1.5, 2.5])',
    'Label("rating", edges=[-1.7e308, 1.7e308])',
    'Label("late", classes=["no", "yes"]).centers',
    'Label("delay", bins=4, bounds=(0, 60), values=[5, 20, 40, 60])',
)

SCHEMA_REFUSALS = (
    "Schema(features=[], label=late)",
    'Schema(features=["carrier"], label=late)',
    "Schema(features=[carrier], label=[])",
    'Schema(features=[carrier], label=["late"])',
    'Schema(features=[carrier], label=Label("carrier", classes=[0, 1]))',
    "Schema(features=[carrier, carrier], label=late)",
    'Schema(features=[carrier, dest], label=late, groups=[("carrier",)])',
    'Schema(features=[carrier, dest], label=late, groups=[("carrier", "carrier")])',
    'Schema(features=[carrier, dest], label=late, groups=[("carrier", "dst")])',
    'Schema(features=[carrier, dest], label=late, groups=[("carrier", "dest"), '
    '("dest", "carrier")])',
    'Schema(features=[carrier, dest, comma], label=late, groups=[("carrier", "dest")])',
    'Schema(features=[carrier], label=[Label(f"label {i}", classes=range(10)) for i in range(4)])',
    'Schema(features=[Categorical("carrier@7")], label=late)',
    'Schema(features=[carrier], label=late).feature("carier")',
    'Schema(features=[Categorical("carrier")], label=late).less("carrier")',
    'Schema(features=[Categorical("who"), Categorical("a")], label=late, unit="who").less("who")',
    'Schema(features=[Categorical("a", domain=[7, "7"])], label=late).refuse_alike()',
    'Schema(features=[Categorical("a", domain=["", "x"])], label=late).refuse_alike()',
    'Schema(features=[Categorical("a", domain=[2.0**60])], label=late).refuse_alike()',
)

TOML_REFUSALS = (
    "Schema.from_toml(7)",
    'Schema.from_toml("none.toml")',
    'Schema.from_toml("/")',
    'Schema.from_toml("features = [")',
    'Schema.from_toml("feature = []")',
    "Schema.from_toml(\"[label]\\nname = 'late'\\nclasses = [0, 1]\")",
    'Schema.from_dict({"label": "late", "features": []})',
    'Schema.from_dict({"label": told, "features": [{"name": "carrier"}]})',
    'Schema.from_dict({"label": told, "features": [{"name": "carrier", "type": "category"}]})',
    'Schema.from_dict({"label": {**told, "classes": [0, {"hexa": "00"}]}, "features": []})',
)

SETTINGS_REFUSALS = (
    "Settings(epsilon=0)",
    'Settings(epsilon="1")',
    "Settings(epsilon=1, delta=1)",
    "Settings(epsilon=1, k=0)",
    "Settings(epsilon=1, buckets=1000)",
    'Settings(epsilon=1, sketch="count-mean")',
    "Settings(epsilon=1, columns=[])",
    'Settings(epsilon=1, shares={"carrier": 0})',
    'Settings(epsilon=1, shares=["carrier"])',
    "Settings(epsilon=1, k=11, max_rows_per_window=10)",
    "Settings(epsilon=1, p_min=1e-6, weight_unit=2**20, max_rows_per_window=2**40)",
    'Settings(epsilon=1, retention="1 year")',
    'Settings(epsilon=1, hot_step="0s")',
    'Settings(epsilon=1, count_window="1000000")',
    'Settings(epsilon=1, origin="new year")',
    "Settings(epsilon=1, origin=1e12)",
    'Settings(epsilon=1, retention="30d")',
    'Settings(epsilon=1, count_window="30m")',
    'Settings(epsilon=1, selection="leaky-mutual-information")',
    "Settings(epsilon=1, hot_window=None)",
    'Settings(epsilon=1, hot_window="12h")',
    "Settings(epsilon=1, hot_rows=1000, hot_step_rows=2000)",
    "Settings(epsilon=1, weights_share=0.5, bins_share=0.48)",
    'Settings(epsilon=1, windows="tree", count_window=1000)',
    'Settings(epsilon=1, windows="tree", delta=0)',
    'Settings(epsilon=1, windows="tree", tree_depth=2, tree_shares=[1])',
    "Settings(epsilon=1, tree_shares=[1, 0])",
    'Settings(epsilon=1, shards=3, weights="equal", count_window=1000)',
    'Settings(epsilon=1, shards=3, weights="equal", windows="tree", count_window="1d")',
    "Settings(epsilon=1, shards=3)",
    'Settings(epsilon=1, shards=3, weights="equal", selection_share=0.1)',
    'Settings.from_dict({"delta": 0})',
    'Settings.from_dict({"epsilon": 1, "detla": 0})',
    "Settings.from_toml(\"time = 'time'\")",
)


def _refusals(written: Iterable[str]) -> str:
    """A session in which every line is refused."""
    public = (Categorical, Continuous, Label, Schema, Settings)
    names = {thing.__name__: thing for thing in public} | GIVEN
    lines = ["```pycon"]
    for line in written:
        try:
            eval(line, dict(names))  # noqa: S307  # our own lines, from above
        except PyramidionError as error:
            kind = type(error)
            lines += [
                f">>> {line}",
                "Traceback (most recent call last):",
                f"{kind.__module__}.{kind.__qualname__}: {error}",
            ]
        else:
            raise SystemExit(f"this is not refused any more: {line}")
    return "\n".join([*lines, "```", ""])


GIVEN = {
    "carrier": Categorical("carrier"),
    "dest": Categorical("dest"),
    "comma": Categorical("carrier,dest"),
    "late": Label("late", classes=[0, 1]),
    "told": {"name": "late", "classes": [0, 1]},
}
"""What docs/schema.md sets before the refusals that need it."""


def layers() -> str:
    """The layers of imports, top first, as the linter has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]["layers"]
    lines = [layer.replace("pyramidion.", "").replace(" | ", "  ") for layer in contract]
    return "\n".join(["```text", *lines, "```", ""])


PARTS: dict[str, Callable[[], str]] = {
    "knobs": lambda: knobs(store=False),
    "store-knobs": lambda: knobs(store=True),
    "layers": layers,
    "feature-refusals": lambda: _refusals(FEATURE_REFUSALS),
    "label-refusals": lambda: _refusals(LABEL_REFUSALS),
    "schema-refusals": lambda: _refusals(SCHEMA_REFUSALS),
    "toml-refusals": lambda: _refusals(TOML_REFUSALS),
    "settings-refusals": lambda: _refusals(SETTINGS_REFUSALS),
}


def generated(text: str) -> str:
    """A document with every generated part written anew."""
    return REGION.sub(lambda match: f"{match[1]}{PARTS[match[2]]()}{match[3]}", text)


def main() -> int:
    """Rewrite the documents that differ; say which."""
    for path in sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")]):
        before = path.read_text("utf-8")
        after = generated(before)
        if after != before:
            path.write_text(after, "utf-8")
            sys.stdout.write(f"wrote {path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
