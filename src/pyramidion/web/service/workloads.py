"""What is to be learned, as a caller says it: in a body, or in the query of a training set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec
from starlette.requests import Request

from pyramidion.errors import FormatError
from pyramidion.learn.workload import Merge

FIELDS = ("label", "only", "without", "merge")


class Asked(TypedDict):
    """The arguments of `Pyramid.register` and `Pyramid.training_set`, of the right types."""

    label: str | None
    only: list[str] | None
    without: list[str]
    merge: Merge | None


def workload_from(told: Mapping[str, Any]) -> Asked:
    """The workload of a JSON object; whether it fits the schema is for the store to say."""
    label, only, merge = told.get("label"), told.get("only"), told.get("merge")
    without = told.get("without", [])
    if not (label is None or isinstance(label, str)):
        raise FormatError("label must be the name of one; send it as text")
    if not (only is None or _names(only)) or not _names(without):
        raise FormatError(
            'only and without must be lists of tables, a group as "a,b"; send them so'
        )
    if not (merge is None or _merges(merge)):
        raise FormatError(
            'merge must be an object of new classes; send {"new": ["old", "older"]} or leave it out'
        )
    return Asked(label=label, only=only, without=without, merge=merge)


def workload_of(request: Request) -> Asked:
    """The workload of a query: ``?label=y&only=a&only=a,b&without=c&merge={...}``."""
    query = request.query_params
    told: dict[str, Any] = {"label": query.get("label")}
    told["only"] = query.getlist("only") or None
    told["without"] = query.getlist("without")
    if "merge" in query:
        try:
            told["merge"] = msgspec.json.decode(query["merge"])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            told["merge"] = False  # refused below, in the same words
    return workload_from(told)


def _names(told: object) -> bool:
    return isinstance(told, list) and all(isinstance(name, str) for name in told)


def _merges(told: object) -> bool:
    return isinstance(told, dict) and all(_classes(olds) for olds in told.values())


def _classes(olds: object) -> bool:
    plain = (str, int, float, bool)
    return isinstance(olds, list) and all(isinstance(old, plain) for old in olds)
