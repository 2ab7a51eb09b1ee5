"""The command line for tests: one store and its key, run in this process or in one of its own."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

from pyramidion import Pyramid, Schema
from pyramidion.cli import main
from pyramidion.config import toml
from tests.store.stores import DAY, SCHEMA, START, TINY

NOW = START + 36 * DAY - 60


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> Any:
        """What it printed as JSON."""
        assert self.code == 0, self.err
        return json.loads(self.out)


class Shell:
    """Runs commands on one store."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.path = folder / "store"
        self.keys = f"file:{folder / 'keys' / 'store.key'}"
        self._capsys = capsys

    def words(self, command: str, *arguments: object, now: float | None = NOW) -> list[str]:
        """A command line."""
        pretended = [] if now is None else ["--now", now]
        given = ["--data", self.path, "--keys", self.keys, *pretended]
        return [command, *map(str, arguments), *map(str, given)]

    def __call__(self, command: str, *arguments: object, now: float | None = NOW) -> Done:
        """Run a command in this process."""
        return self.main(*self.words(command, *arguments, now=now))

    def main(self, *words: str, parser: ArgumentParser | None = None) -> Done:
        """Run any words in this process, as ``pyramidion`` or another parser understands them."""
        self._capsys.readouterr()
        try:
            code = main(words, parser)
        except SystemExit as end:  # argparse leaves so
            code = int(end.code or 0)
        return Done(code, *self._capsys.readouterr())

    def process(self, command: str, *arguments: object, now: float | None = NOW) -> Done:
        """Run a command in a process of its own."""
        words = [sys.executable, "-m", "pyramidion", *self.words(command, *arguments, now=now)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def schema(self, schema: Schema = SCHEMA, **settings: Any) -> Path:
        """A schema file with a [settings] table."""
        told = {name: value for name, value in (TINY | settings).items() if value is not None}
        file = self.folder / "schema.toml"
        file.write_text(f"{schema.to_toml()}\n{toml.written({'settings': told})}")
        return file

    def create(self, schema: Schema = SCHEMA, **settings: Any) -> Done:
        """Make the store."""
        done = self("create", self.schema(schema, **settings))
        assert done.code == 0, done.err
        return done

    def open(self, now: float = NOW) -> Pyramid:
        """The store itself, to look behind the command line."""
        return Pyramid.open(self.path, keys=self.keys, clock=lambda: now)

    def saved(self, table: pa.Table, name: str) -> Path:
        """A data file."""
        path = self.folder / name
        path.write_bytes(as_bytes(table, path.suffix[1:]))
        return path


def as_bytes(table: pa.Table, kind: str) -> bytes:
    """A table in a data format."""
    sink = io.BytesIO()
    if kind in ("csv", "tsv"):
        csv.write_csv(table, sink, csv.WriteOptions(delimiter="\t" if kind == "tsv" else ","))
    elif kind == "parquet":
        parquet.write_table(table, sink)
    elif kind == "feather":
        feather.write_feather(table, sink)
    elif kind == "arrow":
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        sink.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
    return sink.getvalue()


class Stdin:
    """Standard input with these bytes in it."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)
