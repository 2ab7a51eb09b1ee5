"""Packages that only some parts need: asked for by the part, named by its extra."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from pyramidion.errors import SchemaError


def refuse_missing(what: str, packages: Iterable[str], extra: str) -> None:
    """Raise if a package of an extra, which ``what`` needs, is not installed.

    >>> refuse_missing("the demo", ["math", "json"], "demo")
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise SchemaError(
            f"{what} needs {' and '.join(missing)}, not installed here; "
            f"pip install 'pyramidion[{extra}]'"
        )
