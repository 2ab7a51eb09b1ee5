"""The project itself: what installs, what imports, what the commands list."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pyramidion


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
    extras = "cassandra client demo dev evaluate models redis serve spark vault"
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


@pytest.mark.parametrize("module", ["pyramidion.warm", "pyramidion"])
def test_modules_run(module: str) -> None:
    arguments = [] if module == "pyramidion.warm" else ["--version"]
    run = [sys.executable, "-m", module, *arguments]
    assert subprocess.run(run, check=False, capture_output=True).returncode == 0
