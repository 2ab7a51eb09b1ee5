"""Read texts of a megabyte that a caller could send; `test_beginning` bounds how long it takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from pyramidion.config.checks import nearest
from pyramidion.config.durations import microseconds
from pyramidion.errors import PyramidionError
from pyramidion.web.bodies import TOML
from pyramidion.web.service.schema_files import schema_file

SIZE = 1 << 20
SCHEMAS = [
    "a" * SIZE,
    "a" * SIZE + "=1",
    "a" + " ." * (SIZE // 2),
    "#" * SIZE,
    "'\"" * (SIZE // 2),
    'x="' + '\\"' * (SIZE // 2),
    'x="""' + '" ' * (SIZE // 2),
    "x='" + "a." * (SIZE // 2),
    "x=" + "1" * SIZE,
    "x=1" + "_1" * (SIZE // 2),
    "x=1." + "1" * SIZE,
]
LETTERS = "".join(map(chr, range(0x4E00, 0x4E00 + 200))) * (SIZE // 200)


def main() -> None:
    """Read all of them."""
    reads: list[Callable[[], object]] = [
        partial(schema_file, text.encode(), TOML) for text in SCHEMAS
    ]
    reads.append(partial(microseconds, "1w" + " " * SIZE + "x"))
    reads.append(partial(nearest, LETTERS, [LETTERS[7:]]))
    for read in reads:
        with suppress(PyramidionError):
            read()


if __name__ == "__main__":
    main()
