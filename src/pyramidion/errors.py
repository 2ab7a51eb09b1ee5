"""Everything that can go wrong, as one tree.

    PyramidionError
    ├── SchemaError            the schema or a setting is not usable as written
    ├── ObservationError       rows that cannot be counted; says which and why, never what
    ├── PrivacyError           would break the guarantee, or exceed the budget; always raised
    ├── StateError             the verb does not fit the state (reading what is populating, ...)
    │   └── ExpiredError           a snapshot or a model whose time is over; a newer one answers
    ├── FormatError            bytes that are foreign, damaged or from a newer version
    ├── RequestError           a request that the service does not serve, whatever the store holds
    │   ├── UnknownCallerError     no token, or none that is known
    │   ├── ForbiddenError         a token without the role, or for other streams
    │   ├── MissingError           there is no such route, stream or model
    │   ├── TooLargeError          more than the service takes at once
    │   └── BusyError              too much waits already; come back in ``retry_after`` seconds
    ├── StorageError           the disk refuses: full, read-only, missing; nothing was lost
    │   ├── KeyHolderError     the holder of the store key is missing, locked or has no such key
    │   └── FailedError        a write or sync failed halfway; open the store again to know more
    └── UnreachableError       a service that does not answer, or not as ours do

A message names the thing, the rule and the remedy. It never holds a value from
an observation. ``status`` is the HTTP status the service answers with.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec


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


class ExpiredError(StateError):
    """A snapshot or a model whose time is over: what it was made of must be forgotten."""

    status = 503


class FormatError(PyramidionError, ValueError):
    """Bytes that are not ours, are damaged, or come from a newer version."""

    status = 422


class RequestError(PyramidionError):
    """A request that the service does not serve, whatever the store holds."""

    status = 400


class UnknownCallerError(RequestError):
    """Nobody the service knows: no token, a wrong one, or one that was taken back."""

    status = 401


class ForbiddenError(RequestError):
    """A caller whose token has no role for this, or is for other streams."""

    status = 403


class MissingError(RequestError):
    """There is no such thing, or the caller may not know of it."""

    status = 404


class TooLargeError(RequestError):
    """More than the service takes at once; nothing of it was taken."""

    status = 413


class BusyError(RequestError):
    """Too much waits already; nothing was taken, come back in ``retry_after`` seconds."""

    status = 429

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[BusyError], tuple[str, int]]:
        return type(self), (str(self), self.retry_after)


class StorageError(PyramidionError, OSError):
    """The disk refuses: it is full, read-only, or a file is gone. Nothing was lost or half done."""

    status = 507


class KeyHolderError(StorageError):
    """The holder of the store key cannot be reached, or does not have the key."""

    status = 503


class FailedError(StorageError):
    """The disk failed in the middle of a write: what the store holds is known once it is reopened.

    Whatever was refused with this error may be in or not. Sent again under the same key, it is
    taken once.
    """

    status = 503


class UnreachableError(PyramidionError, ConnectionError):
    """A service that does not answer, or whose answer is not one of ours."""

    status = 503


def refuse_missing(what: str, packages: Iterable[str], extra: str) -> None:
    """Raise `SchemaError` if a package that ``what`` needs is not installed.

    ``extra`` is the extra of pyramidion that installs these packages; the message names it.

    >>> refuse_missing("the demo", ["math", "json"], "demo")
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise SchemaError(
            f"{what} needs {' and '.join(missing)}, not installed here; "
            f"pip install 'pyramidion[{extra}]'"
        )
