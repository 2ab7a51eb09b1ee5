from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("PYRAMIDION_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def movielens() -> Path:
    folder = DATA / "movielens-1m"
    if not (folder / "ratings.dat").exists():
        pytest.skip(f"MovieLens 1M is not at {folder}; set PYRAMIDION_DATA to the folder above it")
    return folder
