"""Hot rows in encrypted append-only files: one file and one key for each hot step.

A batch is one sealed record. What stands beyond the length that the catalogue knows
was never acknowledged and is cut off at the next open or append.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pyramidion.errors import FormatError
from pyramidion.storage.ciphers import opened, sealed, sealed_size
from pyramidion.storage.disk import Health, explained, sync, write_all
from pyramidion.storage.fault_points import reach


class Segments:
    """The segment files in one folder."""

    def __init__(self, folder: Path, health: Health | None = None) -> None:
        self.folder = folder
        self._health = health or Health()
        self._writing = ThreadPoolExecutor(1, "hot rows")
        self._open: tuple[str, int] | None = None

    def append(
        self,
        file: str,
        start: int | Callable[[], int],
        data: Callable[[], bytes | bytearray],
        key: bytes,
        context: str,
        *,
        last: bool = True,
    ) -> Future[int]:
        """Write one record at ``start``, beside what the caller does meanwhile.

        The promise is kept, and gives the record's length, once it is durable; one that is not
        the ``last`` is durable when the last one is, or after `sync`. Records are written in the
        order of the calls, so ``start`` may be where the former one ends.
        """
        return self._writing.submit(self._append, file, start, data, key, context, last)

    def sync(self, file: str) -> Future[None]:
        """Make what was appended to a file durable."""
        return self._writing.submit(self._sync, file)

    def _append(
        self,
        file: str,
        start: int | Callable[[], int],
        data: Callable[[], bytes | bytearray],
        key: bytes,
        context: str,
        last: bool,
    ) -> int:
        reach("append.before")
        path, plain = self.folder / file, data()
        start = start if isinstance(start, int) else start()
        with explained(path), self._health.writing():
            descriptor = self._descriptor(file)
            os.ftruncate(descriptor, start)
            os.lseek(descriptor, start, os.SEEK_SET)
            for chunk in sealed(key, [plain], context.encode()):
                write_all(descriptor, chunk)
            reach("append.written")
        if last:
            self._sync(file)
        return sealed_size(len(plain))

    def _sync(self, file: str) -> None:
        with explained(self.folder / file), self._health.syncing(again=True):
            os.fdatasync(self._descriptor(file))
        reach("append.synced")

    def _descriptor(self, file: str) -> int:
        if self._open is None or self._open[0] != file:
            self._let_go()
            path = self.folder / file
            created = not path.exists()
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            self._open = (file, descriptor)
            if created:
                with self._health.syncing(again=False):
                    sync(self.folder)
        return self._open[1]

    def read(self, file: str, start: int, length: int, key: bytes, context: str) -> bytearray:
        """One record."""
        path = self.folder / file
        with explained(path), path.open("rb") as segment:
            segment.seek(start)
            data = segment.read(length)
        return opened(key, data, context.encode(), what=str(path))

    def cut(self, file: str, length: int) -> None:
        """Drop what was never acknowledged; refuses a file that lacks what was."""
        path = self.folder / file
        with explained(path):
            size = path.stat().st_size
            if size < length:
                raise FormatError(f"{path} is cut off; restore the store from a backup")
            if size > length:
                os.truncate(path, length)

    def _let_go(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def forget(self) -> None:
        """Close the file that is being appended to: its step is over."""
        self._let_go()

    def close(self) -> None:
        """Close all files."""
        self._writing.shutdown()
        self._let_go()
