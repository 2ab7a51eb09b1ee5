"""Where a data file's bytes come from, and the sentences that say what is wrong with them."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from pyramidion.errors import ObservationError, SchemaError

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
}
_EXPECTED = {
    "csv": "UTF-8 text, a header and then rows of as many fields",
    "tsv": "UTF-8 text, a header and then rows of as many fields",
    "ndjson": "one JSON object on each line",
    "parquet": "a whole Parquet file",
    "arrow": "a whole Arrow IPC file or stream",
}
BINARY = ("parquet", "arrow")
UNREADABLE = (
    *(OSError, EOFError, ValueError, TypeError, RecursionError, pa.ArrowException),
    MemoryError,  # a damaged length asks for more than there is
)
"""What reading can raise; the messages may quote the file and are not passed on."""


class Source:
    """The bytes of a file or of standard input, and their format."""

    def __init__(self, path: str | Path, *, format: str | None = None) -> None:  # noqa: A002
        self.path = Path(path)
        self.stdin = str(path) == "-"
        self.name = "standard input" if self.stdin else str(path)
        if not self.stdin and not self.path.exists():
            raise SchemaError(f"there is no file {path}; give the path of a data file")
        if self.path.is_dir() and not self.stdin:
            raise SchemaError(f"{path} is a directory; give the path of one file in it")
        self._gzip = not self.stdin and self.path.suffix.lower() == ".gz"
        self.format, self._called = self._checked(format)
        self.once = self.stdin or not self.path.is_file()  # a pipe cannot be read twice
        self.size: int | None = None if self.once else self.path.stat().st_size

    def _checked(self, given: str | None) -> tuple[str, str]:
        """The format, and what to call it."""
        if given is not None:
            if given not in _EXPECTED:
                raise SchemaError(
                    f"there is no data format {given!r}; use one of {', '.join(_EXPECTED)}"
                )
            if self._gzip and given in BINARY:
                raise SchemaError(f"{self.name} is compressed as a whole; unpack it first")
            return given, given
        if self.stdin:
            raise SchemaError(
                f"standard input does not tell its format; say which of {', '.join(_EXPECTED)}"
            )
        suffix = (self.path.with_suffix("") if self._gzip else self.path).suffix.lower()
        found = SUFFIXES.get(suffix)
        if found is None or (self._gzip and found in BINARY):
            raise SchemaError(
                f"{self.name} ends in no known format; use one of {', '.join(SUFFIXES)}"
            )
        return found, suffix

    def unreadable(self, done: int = 0) -> ObservationError:
        """The error for bytes that are not of the format, some rows in."""
        after = f" after row {done}" if done else ""
        return ObservationError(
            f"{self.name} cannot be read as {self._called}{after}; check that it is not empty or "
            f"damaged or cut short: expected {_EXPECTED[self.format]}"
        )

    def not_text(self, column: str, done: int = 0) -> ObservationError:
        """The error for bytes that are not text."""
        after = f" after row {done}" if done else ""
        return ObservationError(
            f"{self.name} has something else than UTF-8 text in column {column!r}{after}; write "
            f"the file as UTF-8"
        )

    def chosen(self, names: list[str], columns: Sequence[str] | None) -> list[str]:
        """The columns to read: all are there, and once."""
        chosen = list(dict.fromkeys(names if columns is None else columns))
        for column in chosen:
            if column not in names:
                raise ObservationError(
                    f"{self.name} has no column {column!r}; add it to the file, "
                    f"or take it out of the schema"
                )
            if names.count(column) > 1:
                raise ObservationError(
                    f"{self.name} has two columns called {column!r}; rename one of them"
                )
        return chosen

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        """The bytes from the beginning, unpacked; a pipe or standard input only once."""
        if self.stdin:
            yield sys.stdin.buffer
            return
        with self.path.open("rb") as raw:
            if not self._gzip:
                yield raw
                return
            with pa.CompressedInputStream(pa.PythonFile(raw, "r"), "gzip") as plain:
                yield plain

    @contextmanager
    def seekable(self) -> Iterator[Any]:
        """The bytes in a form that can be read from the end; a pipe is held in memory."""
        if self.once:
            with self.stream() as stream:
                yield pa.BufferReader(stream.read())
        else:
            with pa.OSFile(str(self.path)) as source:
                yield source


def read_all(stream: BinaryIO, size: int) -> bytes:
    """So many bytes, or all there are: a pipe gives what it has."""
    found, part = [], stream.read(size)
    while part and size:
        found.append(part)
        size -= len(part)
        part = stream.read(size)
    return b"".join(found)


class Rejoined(io.RawIOBase):
    """A stream whose beginning was already read."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = io.BytesIO(head), rest

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, from the beginning and then from the rest."""
        part = self._head.read(len(buffer)) or self._rest.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)
