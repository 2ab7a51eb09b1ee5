"""Features out on the command line, and the way from a million rows to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

from pyramidion import ObservationError, Snapshot
from tests.cli.shell import NOW, Shell, Stdin, as_bytes
from tests.store.stores import DAY, START, rows

ROWS = rows(100, NOW, seed=9).drop_columns(["t", "y"])
PROMISE = "P2: (1.0, 1e-09)-differentially private for any 1 counted observation, over 3 windows"


def expected(shell: Shell) -> pa.Table:
    with shell.open() as store:
        return store.featurize(ROWS)


def read(path: Path) -> pa.Table:
    """A file of features, whatever its format."""
    if path.suffix in (".csv", ".tsv"):
        return csv.read_csv(
            path, parse_options=csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
        )
    if path.suffix == ".parquet":
        return parquet.read_table(path)
    if path.suffix in (".arrow", ".feather"):
        return feather.read_table(path)
    return pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()])


def test_features_are_printed_as_csv_and_the_promise_beside_them(filled: Shell) -> None:
    done = filled("featurize", filled.saved(ROWS, "rows.parquet"))
    (filled.folder / "told.csv").write_text(done.out)
    told, wanted = read(filled.folder / "told.csv"), expected(filled)
    assert told.cast(wanted.schema).equals(wanted)
    assert PROMISE in done.err


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "arrow", "feather", "ndjson", "jsonl"])
def test_a_file_s_suffix_says_what_is_written(filled: Shell, suffix: str) -> None:
    output = filled.folder / f"features.{suffix}"
    done = filled("featurize", filled.saved(ROWS, "rows.csv"), "--output", output)
    assert done.out == f"wrote {output}: 100 rows, 4 columns\n"
    wanted = expected(filled)
    assert read(output).cast(wanted.schema).equals(wanted)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_the_promise_rides_in_files_that_can_carry_it(filled: Shell, suffix: str) -> None:
    output = filled.folder / f"features.{suffix}"
    filled("featurize", filled.saved(ROWS, "rows.csv"), "--output", output)
    assert read(output).schema.metadata[b"pyramidion.guarantee"] == PROMISE.encode()


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "ndjson", "arrow"])
def test_rows_may_come_by_standard_input(
    filled: Shell, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(as_bytes(ROWS, kind)))
    told = filled("featurize", "-", "--format", kind, "--json").told
    wanted = expected(filled)
    assert told["rows"] == [list(row.values()) for row in wanted.to_pylist()]
    assert told["names"] == wanted.column_names
    assert told["guarantee"]["windows"] == 3


def test_a_file_and_programs(filled: Shell) -> None:
    output = filled.folder / "features.csv"
    done = filled("featurize", filled.saved(ROWS, "rows.csv"), "--output", output, "--json")
    assert done.told["rows"] == 100
    assert done.told["output"] == str(output)
    assert done.err == ""


def test_many_batches_come_out_in_the_order_they_went_in(filled: Shell) -> None:
    many = pa.concat_tables([ROWS] * 1_500)  # more than two batches
    output = filled.folder / "features.parquet"
    filled("featurize", filled.saved(many, "rows.parquet"), "--output", output)
    wanted = expected(filled)
    assert read(output).equals(pa.concat_tables([wanted] * 1_500))


@pytest.mark.parametrize("suffix", ["csv", "ndjson", "parquet"])
def test_no_rows_give_no_features(filled: Shell, suffix: str) -> None:
    output = filled.folder / f"features.{suffix}"
    empty = filled.saved(ROWS.slice(0, 0), "rows.parquet")
    assert filled("featurize", empty, "--output", output).out.endswith("0 rows, 4 columns\n")
    assert read(output).num_rows == 0
    assert filled("featurize", empty, "--json").told["rows"] == []


def test_nothing_is_overwritten(filled: Shell) -> None:
    output = filled.folder / "features.csv"
    output.write_text("mine")
    done = filled("featurize", filled.saved(ROWS, "rows.csv"), "--output", output)
    assert (done.code, done.out) == (2, "")
    assert "exists already; choose another --output" in done.err
    assert output.read_text() == "mine"


def test_an_unknown_suffix_is_refused_before_anything_is_read(shell: Shell) -> None:
    done = shell("featurize", shell.saved(ROWS, "rows.csv"), "--output", "features.xlsx")
    assert done.code == 2
    assert "ends in no known format; use one of .csv" in done.err


def test_an_output_that_cannot_be_written_is_named(filled: Shell) -> None:
    output = filled.folder / "nowhere" / "features.csv"
    done = filled("featurize", filled.saved(ROWS, "rows.csv"), "--output", output)
    assert done.code == 2
    assert "cannot write" in done.err


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_half_a_file_is_not_left_behind(
    filled: Shell, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    featurize, calls = Snapshot.featurize, []

    def failing(*given: Any, **named: Any) -> pa.Table:
        calls.append(given)
        if len(calls) == 2:
            raise ObservationError("a bad row")
        return featurize(*given, **named)

    output = filled.folder / f"features.{suffix}"
    many = filled.saved(pa.concat_tables([ROWS] * 1_500), "rows.parquet")
    monkeypatch.setattr(Snapshot, "featurize", failing)
    assert filled("featurize", many, "--output", output).code == 2
    assert not output.exists()


def test_a_missing_feature_is_named(filled: Shell) -> None:
    done = filled("featurize", filled.saved(ROWS.drop_columns(["a"]), "rows.csv"))
    assert (done.code, done.out) == (2, "")
    assert "has no column 'a'" in done.err


def test_a_withdrawn_feature_is_asked_for_no_more(filled: Shell) -> None:
    filled("withdraw", "a", "--why", "x")
    done = filled("featurize", filled.saved(ROWS.drop_columns(["a"]), "rows.csv"))
    assert done.out.splitlines()[0] == '"P(y=1|b)"'


def test_without_a_sealed_window_there_are_no_features(shell: Shell) -> None:
    shell.create()
    done = shell("featurize", shell.saved(ROWS, "rows.csv"))
    assert (done.code, done.out) == (2, "")
    assert "no window is sealed" in done.err


def test_what_is_past_its_time_is_not_featurized_with(filled: Shell) -> None:
    file, late = filled.saved(ROWS, "rows.csv"), START + 65 * DAY
    done = filled("featurize", file, now=late)
    assert (done.code, done.out) == (2, "")
    assert "2 windows are past their time and may not be read any more; advance" in done.err
    filled("advance", now=late)
    done = filled("featurize", file, now=late)
    assert "over 2 windows" in done.err  # two were forgotten, one was sealed


def test_a_reader_that_left_is_no_error(filled: Shell) -> None:
    many = filled.saved(pa.concat_tables([ROWS] * 3_000), "rows.parquet")
    words = [sys.executable, "-m", "pyramidion", *filled.words("featurize", many, "--quiet")]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
    with filled.open() as store:  # and the store is as it was
        assert store.status().summarised_rows == 3_000


MILLION = 1_000_000


def test_a_million_imported_rows_can_be_featurized_in_the_next_command(shell: Shell) -> None:
    shell.create(max_rows_per_window=2 * MILLION)
    random = np.random.default_rng(5)
    shop = random.integers(0, 2, MILLION)
    table = pa.table(
        {
            "t": START + np.arange(MILLION) * (36 * DAY - 60) / MILLION,
            "y": (random.random(MILLION) < np.where(shop, 0.8, 0.3)).astype(np.int64),
            "a": random.integers(0, 10, MILLION).astype(str),
            "b": np.array(["x", "y"])[shop],
        }
    )
    history = shell.saved(table, "history.parquet")
    imported = shell.process("import", history, "--json").told
    assert (imported["accepted"], imported["late"], imported["windows_sealed"]) == (MILLION, 0, 3)
    asked = shell.saved(pa.table({"a": ["1", "1"], "b": ["x", "y"]}), "asked.ndjson")
    done = shell.process("featurize", asked)
    assert PROMISE in done.err
    told = csv.read_csv(pa.py_buffer(done.out.encode())).to_pydict()
    assert told["P(y=1|b)"] == pytest.approx([0.3, 0.8], abs=0.02)
