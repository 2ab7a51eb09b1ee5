"""How easy the package is to navigate: ``python -m benchmarks.structure [--json]``.

Counts entries, modules and lines, measures the import graph, and counts the files of the package
that one call enters: one more observed row, a seal, a retirement, one prediction over HTTP.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from types import FrameType

import grimp
import httpx
import uvicorn
from sklearn.linear_model import LogisticRegression

import pyramidion
from pyramidion import Categorical, Label, Schema, Settings
from pyramidion.web.service.app import create_app
from pyramidion.web.service.service import Service
from pyramidion.web.tokens import ROLES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(pyramidion.__file__).parent
DAY = 86_400.0


def main(arguments: list[str]) -> None:
    """Print all measures, as a table or as JSON."""
    measures = {**tree(), **imports(), **writers(), **crossed()}
    if "--json" in arguments:
        print(json.dumps(measures, indent=2))
        return
    width = max(map(len, measures))
    for name, value in measures.items():
        print(f"{name:<{width}}  {value:>7,}")


def tree() -> dict[str, int]:
    """Entries in the package root, modules, and lines."""
    modules = list(PACKAGE.rglob("*.py"))
    entries = [p for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()]
    tests = list((ROOT / "tests").rglob("*.py"))
    return {
        "entries in the package root": sum(not p.name.startswith("__") for p in entries),
        "modules": len(modules),
        "lines of the package": sum(map(lines, modules)),
        "lines of the tests": sum(map(lines, tests)),
    }


def lines(path: Path) -> int:
    """The number of lines in a file."""
    return len(path.read_text("utf-8").splitlines())


def imports() -> dict[str, int]:
    """The longest chain of imports at module level, and how many modules have one importer."""
    graph = grimp.build_graph("pyramidion", cache_dir=None)
    direct = {name: _at_module_level(graph, name) for name in graph.modules}
    importers = Counter(each for imported in direct.values() for each in imported)

    @cache
    def depth(name: str) -> int:
        return 1 + max(map(depth, direct[name]), default=0)

    return {
        "longest import chain": max(map(depth, direct)),
        "modules with one importer": sum(importers[name] == 1 for name in graph.modules),
    }


def _at_module_level(graph: grimp.ImportGraph, name: str) -> frozenset[str]:
    """What a module imports as it loads: imports inside functions are indented, and left out."""
    path = PACKAGE.parent.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    source = path.read_text("utf-8").splitlines()
    return frozenset(
        each
        for each in graph.find_modules_directly_imported_by(name)
        for detail in graph.get_import_details(importer=name, imported=each)
        if not source[detail["line_number"] - 1].startswith(" ")
    )


def writers() -> dict[str, int]:
    """State changes in SQL outside storage, callback lists, and functions appended to them."""
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    outside = [t for p, t in texts.items() if "storage" not in p.relative_to(PACKAGE).parts]
    trees = [ast.parse(text) for text in texts.values()]
    lists = {name for tree in trees for name in callback_lists(tree)}
    return {
        "`SET state` outside storage": sum(len(re.findall(r"SET state", t)) for t in outside),
        "callback lists": sum(len(callback_lists(tree)) for tree in trees),
        "callback registrations": sum(registrations(tree, lists) for tree in trees),
    }


def callback_lists(tree: ast.AST) -> list[str]:
    """Attributes that are declared as a list of callables."""
    return [
        node.target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and ast.unparse(node.annotation).startswith("list[Callable[")
    ]


def registrations(tree: ast.AST, lists: Collection[str]) -> int:
    """How often a function is appended to one of these lists; calls append other things."""
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "append"
        and isinstance(node.func.value, ast.Attribute)
        and node.func.value.attr in lists
        and not isinstance(node.args[0], ast.Call)
        for node in ast.walk(tree)
    )


# --- files that one call enters ------------------------------------------------------------


class Recorder:
    """Notes the files of the package whose functions are called, in every thread made under it."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __enter__(self) -> Recorder:
        threading.setprofile(self._look)
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            self.files.add(frame.f_code.co_filename)

    def count(self, call: Callable[[], object]) -> int:
        """How many files one call enters."""
        self.files = set()
        call()
        return len(self.files)


def crossed() -> dict[str, int]:
    """How many files four ordinary calls enter, in a store with a group and a model."""
    now = [1_000 * DAY]
    schema = Schema(
        time="t",
        label=Label("y", classes=[0, 1]),
        features=[Categorical("a"), Categorical("b", domain=[1, 2])],
        groups=[("a", "b")],
    )
    settings = Settings(
        epsilon=1.0,
        buckets=16,
        count_window="10d",
        retention="30d",
        hot_window="3d",
        hot_step="1d",
        max_skew="1h",
    )

    def rows(size: int) -> list[dict[str, object]]:
        return [{"t": now[0], "a": f"v{i % 5}", "b": i % 3, "y": i % 2} for i in range(size)]

    with tempfile.TemporaryDirectory() as folder, Recorder() as recorder:
        service = Service(
            Path(folder) / "data", keys=f"file:{folder}/{{stream}}.key", clock=lambda: now[0]
        )
        token = service.tokens.add("structure", ROLES, ["*"], 0)
        store = service.create("stream", schema, settings).pyramid
        store.observe(rows(50))
        now[0] += 11 * DAY
        store.advance()  # models need a sealed window
        store.observe(rows(50))
        store.register("model", LogisticRegression())
        found = {"one HTTP prediction": _predicted(recorder, service, token, rows(1)[0])}
        store.advance()
        found["one more row"] = recorder.count(lambda: store.observe(rows(1)))
        now[0] += 11 * DAY
        found["a seal"] = recorder.count(store.advance)
        now[0] += 31 * DAY
        found["a retirement"] = recorder.count(store.advance)
        service.close()
    return {f"files entered by {name}": count for name, count in found.items()}


def _predicted(recorder: Recorder, service: Service, token: str, row: dict[str, object]) -> int:
    config = uvicorn.Config(create_app(service), port=0, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1/streams/stream/models/model/predictions"
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as client:
        client.post(url, json=[row]).raise_for_status()
        count = recorder.count(lambda: client.post(url, json=[row]).raise_for_status())
    server.should_exit = True
    thread.join()
    return count


if __name__ == "__main__":
    main(sys.argv[1:])
