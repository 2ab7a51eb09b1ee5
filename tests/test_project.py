"""The project itself: what installs, what imports, what the commands list."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pyramidion

INSPECT = "tests/store/inspect.py"
"""The only file in `tests` that may use private attributes of a store."""
OTHERS = {
    "archive._now",
    "gathering._closed",
    "guarded.service._opened",
    "pool._threads",
    "Shard._opened",
}
"""Attributes of other objects that have the same name as one of a store."""


def test_public_names_are_sorted_and_load() -> None:
    assert pyramidion.__all__ == sorted(pyramidion.__all__)
    for name in pyramidion.__all__:
        assert getattr(pyramidion, name).__name__ == name
    assert set(pyramidion.__all__) <= set(dir(pyramidion))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = pyramidion.nothing


def test_importing_the_package_loads_no_heavy_module() -> None:
    heavy = "{'numpy', 'numba', 'pyarrow', 'sklearn', 'cryptography'} & set(sys.modules)"
    code = f"import sys, pyramidion, pyramidion.cli; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_extra_has_an_exact_version_in_the_constraints(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (root / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    wanted = list(project["dependencies"])
    for needs in project["optional-dependencies"].values():
        wanted += needs
    names = {re.split(r"[<>=\[ ]", need)[0].lower().replace("_", "-") for need in wanted}
    assert names <= pinned


def test_the_extras_are_all_there(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = "cassandra client demo dev models redis serve spark vault"
    assert sorted(project["optional-dependencies"]) == extras.split()


def test_bare_make_lists_the_targets(root: Path) -> None:
    told = subprocess.run(
        ["make", "--no-print-directory"],  # noqa: S607
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "MAKEFLAGS": ""},
    ).stdout
    for target in ("run", "test", "check", "bench", "docs"):
        assert f"make {target} " in told


def test_no_committed_file_names_a_registry(root: Path) -> None:
    hosts = (
        "pypi" + ".org",
        "python" + "hosted",
        "maven" + ".org",
        "npmjs" + ".",
        "debian" + ".org",
    )
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],  # noqa: S607
        cwd=root,
        check=False,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    if not files:
        pytest.skip("not a git checkout")
    for name in files:
        path = root / name
        if path.is_file() and path.suffix not in (".png", ".parquet"):
            text = path.read_text(errors="replace")
            assert not [host for host in hosts if host in text], name


@pytest.mark.parametrize("module", ["pyramidion.cli.warm", "pyramidion"])
def test_modules_run(module: str) -> None:
    arguments = [] if module == "pyramidion.cli.warm" else ["--version"]
    run = [sys.executable, "-m", module, *arguments]
    assert subprocess.run(run, check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n", "1"]], ids=["here", "in a worker"])
def test_where_all_is_required_whatever_is_skipped_fails_the_run(
    root: Path, tmp_path: Path, workers: list[str]
) -> None:
    for name, text in {
        "passes": "def test_a(): pass",
        "module": "pytest.importorskip('no_such_driver')\ndef test_b(): pass",
        "one": "def test_c(): pytest.skip('no server here')",
    }.items():
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n{text}\n")
    given = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull, *workers]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *given, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=root,
        env=os.environ | {"PYRAMIDION_REQUIRE_ALL": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    refused = re.findall(r"must not be skipped here: .*(test_\w+)\.py", done.stdout)
    assert sorted(refused) == ["test_module", "test_one"]


# --- tests -----------------------------------------------------------------------------------


def _private(cls: type) -> set[str]:
    """The private attributes and methods that a class uses."""
    tree = ast.parse(inspect.getsource(cls))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | set(
        vars(cls)
    )
    return {name for name in names if re.match("_[a-z]", name)}


def _uses(tree: ast.AST, names: set[str]) -> list[str]:
    """Where a module uses one of these attributes, of anything but ``self`` and ``cls``."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in names
        and ast.unparse(node.value) not in ("self", "cls")
        and ast.unparse(node) not in OTHERS
    ]


def test_private_attributes_of_a_store_are_found() -> None:
    names = _private(pyramidion.Pyramid)
    assert {"_state", "_home", "_threads", "_training", "_serving", "_keep", "_now"} <= names
    source = "stand.reopen()._state.hot\nself._state\nself.store._now()\npool._threads\n"
    found = ["1: stand.reopen()._state", "3: self.store._now"]
    assert _uses(ast.parse(source), names) == found


def test_one_file_of_the_tests_looks_into_a_store(root: Path) -> None:
    names, found = _private(pyramidion.Pyramid), []
    likely = re.compile(rf"(?<!\bself)(?<!\bcls)\.(?:{'|'.join(sorted(names))})\b")
    for file in sorted((root / "tests").rglob("*.py")):
        path, text = file.relative_to(root).as_posix(), file.read_text()
        if path != INSPECT and likely.search(text):  # parsing all takes seconds
            found += [f"{path}:{use}" for use in _uses(ast.parse(text), names)]
    assert found == [], f"use a public verb, or a function of {INSPECT}"
