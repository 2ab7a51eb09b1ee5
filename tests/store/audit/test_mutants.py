"""The mutants still fit the code; whether each is found, `make mutants` shows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.store.audit import mutants
from tests.store.audit.mutants import MUTANTS, ROOT, Edit, Mutant, infected, mutated

every = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


@every
def test_every_edit_of_a_mutant_fits_in_one_place_and_changes_code_that_parses(
    mutant: Mutant,
) -> None:
    for path, text in mutated(mutant, ROOT).items():
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(path.read_text("utf-8")))


@every
def test_the_test_that_a_mutant_must_turn_red_exists(mutant: Mutant) -> None:
    file, name = mutant.test.partition("[")[0].split("::")
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_rule_that_the_design_names_has_its_mutant() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert len(names) == len(MUTANTS)
    assert names >= {
        "halved Laplace noise",
        "halved Gaussian noise",
        "dropped signs",
        "skipped charge",
        "noise after the counts",
        "noise reused between windows",
        "exact prior",
        "unclipped weight",
        "kept checkpoint key",
    }


def test_code_that_has_moved_breaks_the_mutants_loudly() -> None:
    moved = Mutant("moved", (Edit("errors.py", "nobody wrote this", ""),), "")
    with pytest.raises(LookupError, match="has this 0 times, not once"):
        mutated(moved, ROOT)


@pytest.mark.parametrize(("file", "left"), [("a.py", 1), ("a_kernels.py", 0)])
def test_a_mutated_kernel_is_compiled_again_and_other_caches_are_kept(
    tmp_path: Path, file: str, left: int
) -> None:
    package = tmp_path / "whole" / mutants.PACKAGE
    package.mkdir(parents=True)
    (package / file).write_text("one")
    (package / "b.nbi").touch()
    mutant = Mutant("other", (Edit(file, "one", "two"),), "")
    tree = infected(mutant, tmp_path / "whole", tmp_path / "mutant")
    assert (tree / mutants.PACKAGE / file).read_text() == "two"
    assert len(list(tree.rglob("*.nbi"))) == left


def test_a_mutant_that_survives_is_told_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = iter([mutants.GREEN, mutants.RED, mutants.GREEN])
    monkeypatch.setattr(mutants, "tested", lambda *_: (next(codes), "told"))
    monkeypatch.setattr(mutants, "infected", lambda *_: None)
    monkeypatch.setattr(mutants, "MUTANTS", MUTANTS[:2])
    assert mutants.main() == 1
    told = capsys.readouterr().out
    assert f"GREEN: SURVIVES  {MUTANTS[1].name}" in told
    assert "1 of 2 mutants were found" in told


def test_a_test_that_is_red_without_a_mutant_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutants, "tested", lambda *_: (mutants.RED, "told"))
    assert mutants.main(["exact prior"]) == 1
    assert "RED  without a mutant" in capsys.readouterr().out
