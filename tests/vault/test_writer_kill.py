"""Kill -9 while a vault seals, stores and erases: no batch is lost, twice, or raw anywhere.

Stores of a vault are killed at its own points here, and at all others in `test_kill`. After
each kill the custodian opens every file: an acknowledged batch is in exactly one, or hot.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pyramidion.storage.data_keys import DataKeys
from pyramidion.storage.fault_points import POINTS
from pyramidion.vault.writer import Sealer
from tests.store import killing_workload as work
from tests.store.killing import Ordeal

OURS = [point for point in POINTS if point.startswith("vault.")]
OLDER = ["commit.after", "step.before", "erase.committed", "erase.destroyed", "rewrap.before"]
FORGETTING = replace(work.BY_TIME, vault_every="10m", vault_retention="1h")


def test_there_are_five_places_to_die_on_the_way_into_a_vault() -> None:
    ends = ["written", "committed", "uploaded", "stored", "settled"]
    assert [f"vault.{end}" for end in ends] == OURS


@pytest.mark.parametrize(
    ("settings", "passings"),
    [
        pytest.param(work.BY_TIME, (1,), id="for ever"),
        pytest.param(FORGETTING, (2,), id="for an hour"),
        pytest.param(FORGETTING, (1, 2, 3), id="again and again", marks=pytest.mark.campaign),
    ],
)
def test_a_batch_is_in_one_sealed_file_or_hot_wherever_its_store_was_killed(
    folder: Path, settings: object, passings: tuple[int, ...]
) -> None:
    ordeal, random = Ordeal(folder / "store", 7, settings), Random(7)
    for passing in passings:
        for point in random.sample(OURS + OLDER, len(OURS + OLDER)):
            assert ordeal.run(f"{point}:{passing}")
            ordeal.check()
            assert ordeal.problems == []
            assert _raw(ordeal.folder) == []


def _raw(folder: Path) -> list[Path]:
    """Files that begin like Arrow's or Parquet's, or hold a value twice in the clear.

    Keys and the audit log are in hexadecimal digits, which now and then look like a value.
    """
    values = tuple(f"a{n}".encode() * 2 for n in range(10, 40))
    files = [path for path in folder.rglob("*") if path.is_file()]
    digits = [path for path in files if path.name == "key" or path.name.startswith("audit.db")]
    found = [p for p in files if p not in digits and any(v in p.read_bytes() for v in values)]
    return found + [p for p in files if p.read_bytes()[:6].startswith((b"PAR1", b"ARROW1"))]


# --- a broken one is found out ------------------------------------------------------------------


def _marks_as_sealed_too_early() -> None:
    take = Sealer._take

    def early(self: Sealer, rewrites: int, number: int, *given: object) -> None:
        take(self, rewrites, number, *given)  # type: ignore[arg-type]
        self._catalogue.note(vaulted=number)

    Sealer._take = early  # type: ignore[method-assign,assignment]


def _keeps_locks() -> None:
    DataKeys._drop = lambda self, keys: None  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("sabotage", "fact"), [(_marks_as_sealed_too_early, "vault"), (_keeps_locks, "keys")]
)
def test_a_vault_that_breaks_its_word_is_found_out(
    folder: Path, sabotage: object, fact: str
) -> None:
    ordeal = Ordeal(folder / "store", 3, FORGETTING)
    for _ in range(8):
        ordeal.run("commit.after:3", sabotage=sabotage)  # type: ignore[arg-type]
        ordeal.check()
    assert fact in {of for of, _ in ordeal.problems}
