"""``pyramidion exposure``: text, JSON, a page, and refusals."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from pyramidion import Categorical, Label, Schema
from pyramidion.cli import exposure as command
from pyramidion.config.durations import EPOCH
from pyramidion.store.exposure.exposed import COMPONENTS
from tests.cli.shell import NOW, Shell
from tests.store.stores import DAY, HOUR, START

A, B = START + 34 * DAY + HOUR, NOW


def parsed(page: str) -> ElementTree.Element:
    """A page that is well-formed, as XML is."""
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))  # noqa: S314  # our own


def test_the_text_begins_with_a_plain_sentence_and_has_tables(filled: Shell) -> None:
    """The store was filled by an import just before its clock's time: all of it was exposed."""
    done = filled("exposure", "--from", A, "--to", B)
    assert done.code == 0, done.err
    first, _ = done.out.split("\n", 1)
    assert re.fullmatch(
        r"An intruder on the store's machine between \d{4}-\d\d-\d\d 01:00 and \d{4}-\d\d-\d\d "
        r"23:59 \(UTC\) could read 3,600 raw observations; 3,600 of them arrived during that "
        r"time\.",
        first,
    )
    for head in ("hot step  arrived from", "window  from", "Columns of these observations"):
        assert head in done.out


def test_json_has_what_the_report_has(filled: Shell) -> None:
    told = filled("exposure", "--from", A, "--to", B, "--json").told
    with filled.open(NOW) as store:
        found = store.exposure(A, B)
    assert (told["rows"], told["arrived"]) == (found.rows, found.arrived)
    assert (told["start"], told["stop"]) == (int(A * 1e6), int(B * 1e6))
    assert [window["number"] for window in told["windows"]] == [w.number for w in found.windows]


def test_looking_makes_nothing_due(filled: Shell) -> None:
    later = NOW + 100 * DAY
    before = filled("status", "--json", now=NOW).told
    assert filled("exposure", "--from", A, "--to", B, now=later).code == 0
    after = filled("status", "--json", now=NOW).told
    assert after["hot_rows"] == before["hot_rows"] > 0
    assert after["windows"] == before["windows"]


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_page_is_well_formed_and_needs_nothing_but_itself(
    filled: Shell, component: str
) -> None:
    file = filled.folder / "report.html"
    done = filled("exposure", "--from", A, "--to", B, "--component", component, "--html", file)
    assert done.code == 0, done.err
    page = file.read_text("utf-8")
    tree = parsed(page)
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|@import|https?:", page)
    (picture,) = tree.iter("svg")
    assert [child.tag for child in picture][:2] == ["title", "desc"]
    assert all(child.text for child in picture.findall("./*")[:2])
    for table in tree.iter("table"):
        assert table.findall("./thead/tr/th[@scope='col']")
    assert "@media print" in page
    assert "prefers-color-scheme: dark" in page
    assert done.out.split("\n")[0] in " ".join("".join(tree.itertext()).split())


def test_the_timeline_has_a_bar_for_each_step_and_window(filled: Shell) -> None:
    file = filled.folder / "report.html"
    told = filled("exposure", "--from", A, "--to", B, "--html", file, "--json").told
    classes = [each.get("class") for each in parsed(file.read_text("utf-8")).iter("rect")]
    assert classes.count("hot") == len(told["hot"]) > 1
    assert "populating" in classes
    assert "sealed" in classes
    assert classes.count("shade") == 1


def test_names_of_a_schema_are_escaped(shell: Shell) -> None:
    evil = "<script>alert('x')</script>&"
    schema = Schema(label=Label("y", classes=[0, 1]), features=[Categorical(evil)])
    shell.create(schema)
    file = shell.saved(pa.table({"y": [0, 1], evil: ["p", "q"]}), "rows.parquet")
    assert shell("observe", file).code == 0
    page = shell.folder / "report.html"
    done = shell("exposure", "--from", NOW, "--to", NOW, "--html", page)
    assert done.code == 0, done.err
    text = page.read_text("utf-8")
    assert "<script" not in text
    assert evil in "".join(parsed(text).itertext())


def test_times_are_read_as_people_write_them(filled: Shell) -> None:
    told = filled("exposure", "--from", "1972-10-31T02:00+01:00", "--to", B, "--json").told
    assert told["start"] == int(A * 1e6), EPOCH


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--from", str(B), "--to", str(A)], "ends before it begins; give the earlier"),
        (["--from", str(A), "--to", str(NOW + 1)], "ends in the future"),
        (["--from", str(A)], "the following arguments are required: --to"),
        (["--from", "soon", "--to", str(B)], "must be seconds since 1970 or a date"),
        (["--from", str(A), "--to", str(B), "--component", "moon"], "invalid choice: 'moon'"),
    ],
)
def test_a_mistake_is_one_sentence(filled: Shell, words: list[str], told: str) -> None:
    done = filled("exposure", *words)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1


def test_a_page_that_cannot_be_written_is_one_sentence(filled: Shell) -> None:
    nowhere = filled.folder / "nowhere" / "report.html"
    done = filled("exposure", "--from", A, "--to", B, "--html", nowhere)
    assert done.code == 2
    assert "check the path" in done.err


def test_the_help_knows_every_component() -> None:
    assert command.COMPONENTS == COMPONENTS
