"""What the documents say is so: their code runs, their links lead somewhere, nothing is left out.

How a code block is run follows from its language:

    python         executed; the blocks of a page share their names, from top to bottom
    pycon          a session, checked by doctest
    console        `$ pyramidion ...` is run and must print what follows; `make` and `pip` are not
    shell          run by test_guide.py of tests/vault and tests/web/service, and by
                   test_backends_guide.py of tests/store: machines and processes
    toml, csv, json  with a file name after the language, written to that file
    text           not run: diagrams and what programs printed
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib.util
import inspect
import io
import os
import re
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

import pyramidion
from pyramidion.cli.program import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")])
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"")
LANGUAGES = {"python", "pycon", "console", "shell", "toml", "csv", "json", "text"}
NOT_RUN = ("make", "pip")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@dataclass(frozen=True)
class Block:
    language: str
    file: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in FENCE.finditer(text):
        language, _, file = found[1].partition(" ")
        yield Block(language, file, found[2], text.count("\n", 0, found.start()) + 2)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text("utf-8"))


# --- code -------------------------------------------------------------------


@pages
def test_every_code_block_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for block in blocks(page):
            run(page, block, names)


def run(page: Path, block: Block, names: dict[str, Any]) -> None:
    assert block.language in LANGUAGES, f"{page.name}:{block.line}: nobody runs {block.language!r}"
    if block.file:
        Path(block.file).write_text(block.text, "utf-8")
    elif block.language == "python":
        padded = "\n" * (block.line - 1) + block.text  # so that a traceback names the line
        exec(compile(padded, str(page), "exec"), names)  # noqa: S102
    elif block.language == "pycon":
        run_session(page, block, names)
    elif block.language == "console":
        run_commands(page, block)


def run_session(page: Path, block: Block, names: dict[str, Any]) -> None:
    told: list[str] = []
    session = doctest.DocTestParser().get_doctest(
        block.text, names, page.name, str(page), block.line - 1
    )
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    session.globs = names
    runner.run(session, out=told.append, clear_globs=False)
    assert not runner.failures, "".join(told)


def run_commands(page: Path, block: Block) -> None:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        words = shlex.split(command)
        if words[0] in NOT_RUN:
            assert not printed, f"{page.name}: the output of {command!r} is not checked; drop it"
            assert words[0] != "make" or words[1] in targets(), f"there is no {command!r}"
            continue
        assert words[0] == "pyramidion", f"{page.name}: {command!r} is not ours to run"
        assert printed_by(words[1:]).rstrip("\n") == printed.rstrip("\n"), f"{page.name}: {command}"


def printed_by(arguments: list[str]) -> str:
    """What a command prints, in this process: a new one takes seconds to import everything."""
    terminal = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(terminal),
        contextlib.redirect_stderr(terminal),
        contextlib.suppress(SystemExit),
    ):
        patch.setenv("COLUMNS", "100")
        main(arguments)
    terminal.flush()
    return terminal.buffer.getvalue().decode("utf-8")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def test_every_make_target_that_is_named_exists() -> None:
    named = {
        name for page in PAGES for name in re.findall(r"`make ([a-z-]+)`", page.read_text("utf-8"))
    }
    assert named <= targets()


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_of_five_lines_shows_the_guarantee(capsys: pytest.CaptureFixture[str]) -> None:
    example = loaded(ROOT / "examples" / "five_lines.py")
    example.SEEN, example.LATER = 20_000, 5_000
    example.main()
    told = capsys.readouterr()
    assert "-differentially private for any 1 " in told.out
    assert not told.err


def test_the_example_of_a_store_seals_forgets_and_does_not_come_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = loaded(ROOT / "examples" / "store.py")
    example.DAYS, example.FLIGHTS = 80, 20
    example.SETTINGS = replace(example.SETTINGS, retention="45d")
    example.main()
    told = capsys.readouterr().out
    for fact in ("window 2 sealed", "window 1 forgotten", "no key that exists opens it"):
        assert fact in told


def test_the_benchmark_of_whole_calls_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    benchmark = loaded(ROOT / "benchmarks" / "whole.py")
    benchmark.ROWS = 1_000
    benchmark.main(benchmark.Report())
    assert "fit_transform" in capsys.readouterr().out


# --- links ------------------------------------------------------------------


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for found in LINK.finditer(prose(page)):
        link = found[1] or found[2]
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


def test_every_page_is_on_the_map() -> None:
    told = (DOCS / "index.md").read_text("utf-8")
    assert [page.name for page in DOCS.glob("*.md") if f"({page.name})" not in told] == ["index.md"]


def test_the_readme_opens_with_the_picture() -> None:
    first = next(line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if line)
    found = LINK.search(first)
    assert found is not None
    picture = ElementTree.parse(ROOT / (found[1] or found[2])).getroot()  # noqa: S314  # our own
    texts = {child.tag.rpartition("}")[2]: child.text for child in picture}
    assert texts["title"]
    assert texts["desc"]


def test_the_readme_shows_five_lines() -> None:
    first = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    assert len([line for line in first.text.splitlines() if line]) == 5


def benchmarks() -> str:
    return (DOCS / "benchmarks.md").read_text("utf-8")


def test_every_figure_of_the_readme_was_printed_by_the_benchmarks() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    section = re.search(r"^## How fast\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    assert section is not None
    figures = re.findall(r"\*\*([\d.,]+) (?:s|ms|µs|M/s|MB)\*\*", section[1])
    printed = re.findall(r"(?<![\d.])\d+(?:\.\d+)?(?![\d.])", benchmarks())
    assert figures
    for figure in figures:
        decimals = len(figure.partition(".")[2])
        number = float(figure.replace(",", ""))
        assert any(round(float(p), decimals) == number for p in printed), figure


# --- names ------------------------------------------------------------------


def test_public_names_are_sorted_and_load() -> None:
    assert sorted(pyramidion.__all__) == pyramidion.__all__
    assert all(hasattr(pyramidion, name) for name in pyramidion.__all__)


@pytest.mark.parametrize("name", pyramidion.__all__)
def test_every_public_name_and_its_attributes_are_documented(name: str) -> None:
    thing = getattr(pyramidion, name)
    if isinstance(thing, type) and issubclass(thing, pyramidion.PyramidionError):
        assert f"`{name}`" in (DOCS / "errors.md").read_text("utf-8")
        return
    api = (DOCS / "api.md").read_text("utf-8")
    section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", api, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/api.md has no section {name}"
    missing = [word for word in told_of(thing) if f"`{word}" not in section[1]]
    assert not missing


def told_of(thing: Any) -> set[str]:
    """Parameters, and what the class itself (not scikit-learn) defines in public."""
    own = {name for name in vars(thing) if not name.startswith(("_", "set_"))}
    knobs = {field.name for field in fields(pyramidion.Settings)}
    if thing is pyramidion.Settings:
        return own - knobs
    if thing is pyramidion.Snapshot:  # made by a featurizer, not by users
        return own
    parameters = set(inspect.signature(thing).parameters)
    if thing is pyramidion.CountFeaturizer:
        parameters -= knobs - {"epsilon", "delta", "k"}
    return own | parameters


def test_the_featurizer_has_every_knob_with_its_default() -> None:
    parameters = inspect.signature(pyramidion.CountFeaturizer).parameters
    for knob in pyramidion.Settings.knobs():
        if knob.store:
            continue
        assert knob.name in parameters
        assert parameters[knob.name].default == knob.default


def test_every_knob_is_documented_with_its_default() -> None:
    told = (DOCS / "settings.md").read_text("utf-8")
    for knob in pyramidion.Settings.knobs():
        default = "none, you choose" if knob.required else f"`{knob.default!r}`"
        row = re.search(rf"^\| `{knob.name}` \|.*$", told, re.MULTILINE)
        assert row is not None, f"{knob.name} is not documented; run python docs/generate.py"
        assert f"| {default} |" in row[0]


# --- generated parts and refusals -----------------------------------------------


@pages
def test_generated_parts_are_up_to_date(page: Path) -> None:
    text = page.read_text("utf-8")
    generated = loaded(DOCS / "generate.py").generated(text)
    assert generated == text, "run .venv/bin/python docs/generate.py"


HARD_TO_SHOW = (
    "is not UTF-8 text",
    "cannot be read; check its name",
    "TOML cannot hold a",
)


@pytest.mark.parametrize(
    ("module", "page"),
    [
        ("features", "schema"),
        ("label", "schema"),
        ("schema", "schema"),
        ("toml", "schema"),
        ("checks", "schema"),
        ("durations", "settings"),
        ("knobs", "settings"),
        ("settings", "settings"),
    ],
)
def test_every_refusal_is_shown(module: str, page: str) -> None:
    told = (DOCS / f"{page}.md").read_text("utf-8")
    source = ROOT / "src" / "pyramidion" / "config" / f"{module}.py"
    for pattern, words in refusals(ast.parse(source.read_text("utf-8"))):
        if len(words) < 10 or any(hard in words for hard in HARD_TO_SHOW):
            continue
        assert re.search(pattern, told), f"docs/{page}.md does not show: {words}"


def refusals(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each message that is raised, as a pattern with gaps for values, and its own words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            message = node.exc.args[0]
            parts = message.values if isinstance(message, ast.JoinedStr) else [message]
            texts = [p.value if isinstance(p, ast.Constant) else None for p in parts]
            pattern = "".join(".*" if text is None else re.escape(text) for text in texts)
            yield pattern, "".join(text or "" for text in texts)


# --- addresses ------------------------------------------------------------------

REGISTRIES = ("py" + "pi.org", "python" + "hosted.org", "anaconda" + ".org", "conda" + "-forge")
LEFT_OUT = {".git", ".venv", "build", "dist", "__pycache__"}


def files() -> Iterator[Path]:
    """Everything that could be tracked: not the environment, not caches."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            f
            for f in folders
            if f not in LEFT_OUT and not f.endswith(("_cache", ".egg-info")) and f != ".hypothesis"
        ]
        yield from (Path(folder) / name for name in names)


def test_no_file_names_a_registry() -> None:
    found = [
        path.relative_to(ROOT)
        for path in files()
        if any(address.encode() in path.read_bytes() for address in REGISTRIES)
    ]
    assert not found


TERMS = (
    "observation", "hot window", "count table", "window", "prior", "group", "weight", "ledger",
    "vault", "grant", "snapshot", "guarantee", "populating", "sealed",
)  # fmt: skip


def test_the_glossary_has_every_word_and_says_which_exist() -> None:
    told = (DOCS / "glossary.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| \*\*(.+?)\*\* \| (today|not yet|in part) \|", told, re.MULTILINE))
    assert [term for term in TERMS if term not in rows] == []
