"""Everything that can go wrong, as one tree.

    PyramidionError
    ├── SchemaError            the schema or a setting is not usable as written
    ├── ObservationError       rows that cannot be counted; says which and why, never what
    ├── PrivacyError           would break the guarantee, or exceed the budget; always raised
    ├── StateError             the verb does not fit the state (reading what is populating, ...)
    ├── Busy                   more is sent than is taken; says when to come back
    ├── FormatError            bytes that are foreign, damaged or from a newer version
    └── StorageError           the disk refuses: full, read-only, missing; nothing was lost
        └── KeyHolderError     the holder of the store key is missing, locked or has no such key

A message names the thing, the rule and the remedy. It never holds a value from
an observation. ``status`` is the HTTP status the service answers with.
"""

from __future__ import annotations


class PyramidionError(Exception):
    """The root: ``except PyramidionError`` catches everything this package raises on purpose."""

    status = 500


class SchemaError(PyramidionError, ValueError):
    """A schema or a setting that cannot be used as written."""

    status = 422


class ObservationError(PyramidionError, ValueError):
    """Rows that cannot be counted, by number and reason.

    ``problems`` maps each reason to the numbers of its rows in the batch;
    values are never part of it.
    """

    status = 422

    def __init__(self, message: str, problems: dict[str, list[int]] | None = None) -> None:
        super().__init__(message)
        self.problems: dict[str, list[int]] = dict(problems or {})

    def __reduce__(self) -> tuple[type[ObservationError], tuple[str, dict[str, list[int]]]]:
        return type(self), (str(self), self.problems)


class PrivacyError(PyramidionError, ValueError):
    """Something that would break the privacy contract. Never a warning."""

    status = 409


class StateError(PyramidionError, RuntimeError):
    """A verb that does not fit the state of the thing it is called on."""

    status = 409


class Busy(PyramidionError, RuntimeError):  # noqa: N818
    """More is sent than is taken at the moment: nothing of it was; come back.

    ``retry_after`` says in how many seconds.
    """

    status = 429

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = max(1, int(retry_after))

    def __reduce__(self) -> tuple[type[Busy], tuple[str, int]]:
        return type(self), (str(self), self.retry_after)


class FormatError(PyramidionError, ValueError):
    """Bytes that are not ours, are damaged, or come from a newer version."""

    status = 422


class StorageError(PyramidionError, OSError):
    """The disk refuses: it is full, read-only, or a file is gone. Nothing was lost or half done."""

    status = 507


class KeyHolderError(StorageError):
    """The holder of the store key cannot be reached, or does not have the key."""

    status = 503
