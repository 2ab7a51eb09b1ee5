"""Every number on a page, and the same number from the API.

A number that the API tells has its address in its answer beside it: the part of the stream's
address before the #, and the way in the JSON after it.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from pyramidion.web.dashboard.rendering import text_of


class Answers:
    """What the API says, asked once for each address."""

    def __init__(self, api: httpx.Client, stream: str) -> None:
        self._api, self._stream = api, stream
        self._known: dict[str, Any] = {}

    def at(self, address: str) -> Any:
        where, _, way = address.partition("#")
        stream, _, where = where.rpartition(":")
        told = self._told(f"/v1/streams/{stream or self._stream}/{where}".rstrip("/"))
        for step in way.split("/"):
            told = told[int(step)] if isinstance(told, list) else told[step]
        return told

    def _told(self, path: str) -> Any:
        if path not in self._known:
            answer = self._api.get(path)
            assert answer.status_code == 200, (path, answer.text)
            lines = "ndjson" in answer.headers["content-type"]
            text = f"[{','.join(answer.text.splitlines())}]" if lines else answer.text
            self._known[path] = json.loads(text)
        return self._known[path]


def compare(numbers: list[dict[str, str]], answers: Answers) -> int:
    """Check numbers of a page, each its address, its exact value and its text; how many."""
    for each in numbers:
        expected = answers.at(each["address"])
        exact = "" if expected is None else repr(expected)
        assert (each["value"], each["text"]) == (exact, text_of(expected)), each
    return len(numbers)
