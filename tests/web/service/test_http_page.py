"""docs/http.md has every route of the app, with who may call it, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pyramidion.errors
from pyramidion.web import errors, tokens
from pyramidion.web.openapi import who
from pyramidion.web.service.app import create_app
from pyramidion.web.service.service import Service

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text("utf-8")
ROW = re.compile(r"^\| `(GET|POST|PUT|DELETE)` \| `(\S+)` \| ([a-z -]+) \|", re.MULTILINE)


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """Who may call which method and path."""
    service = Service(tmp_path_factory.mktemp("empty"), keys="file:{stream}.key")
    found = {}
    for each in create_app(service).routes:
        route = getattr(each.endpoint, "guard", None)  # type: ignore[attr-defined]
        for method in each.methods - {"HEAD"}:  # type: ignore[attr-defined]
            found[method, each.path] = "anybody" if route is None else who(route)  # type: ignore[attr-defined]
    service.close()
    return found


def test_the_page_has_every_route_and_who_may_call_it(
    routes: dict[tuple[str, str], str],
) -> None:
    assert {(method, path): may for method, path, may in ROW.findall(PAGE)} == routes


def test_the_page_has_every_code_of_an_error_with_its_status() -> None:
    told = dict[str, int]()
    for status, codes in re.findall(r"^\| (\d{3}) \| ([`\w, ]+) \|", PAGE, re.MULTILINE):
        told |= {code: int(status) for code in re.findall(r"\w+", codes)}
    classes = {**vars(pyramidion.errors), **vars(errors), **vars(tokens)}
    for code, status in told.items():
        if code not in ("Unforeseen", "RequestError"):
            assert classes[code].status == status, code
    ours = {
        name
        for name, each in classes.items()
        if isinstance(each, type)
        and issubclass(each, pyramidion.errors.PyramidionError)
        and each.status < 500
    }
    assert ours <= set(told)
