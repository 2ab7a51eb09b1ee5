"""What a model is to learn, from a request body or from the query of a training set."""

from __future__ import annotations

from typing import Any, TypedDict, cast

import msgspec
from starlette.requests import Request

from pyramidion.errors import FormatError
from pyramidion.learn.workload import Merge
from pyramidion.web.schemas import Workload, format_error


class Arguments(TypedDict):
    """The arguments of `Pyramid.register` and `Pyramid.training_set`, of the right types."""

    label: str | None
    only: list[str] | None
    without: list[str]
    merge: Merge | None


def arguments_of(workload: Workload) -> Arguments:
    """The arguments; whether they fit the schema is for the store to check."""
    merge = cast("Merge | None", workload.merge)
    return Arguments(
        label=workload.label, only=workload.only, without=workload.without, merge=merge
    )


def workload_of(request: Request) -> Arguments:
    """The workload of a query: ``?label=y&only=a&only=a,b&without=c&merge={...}``."""
    query = request.query_params
    given: dict[str, Any] = {"label": query.get("label"), "only": query.getlist("only") or None}
    given["without"] = query.getlist("without")
    try:
        if "merge" in query:
            given["merge"] = msgspec.json.decode(query["merge"])
        return arguments_of(msgspec.convert(given, Workload))
    except msgspec.ValidationError as problem:
        raise format_error(problem, Workload) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise FormatError('merge is not valid JSON; send {"new": ["old", "older"]}') from None
