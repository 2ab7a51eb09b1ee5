"""Raw rows leave only after the audit log says so."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from pyramidion.errors import StorageError
from pyramidion.web.bodies import ARROW
from pyramidion.web.middleware import Exchange
from tests.web.service.security.guarded import (
    MARKER,
    MODEL,
    STREAM,
    Guarded,
    captured,
    code_of,
    lines_of,
)

S = f"/v1/streams/{STREAM}"
RAW = {
    ("GET", f"{S}/training-set"): "train",
    ("GET", f"{S}/models/{MODEL}/export"): "predict",
    ("GET", f"{S}/models/{MODEL}/loss"): "train",
}
"""What leaves with raw rows, or with what was learned from them, and its role."""
each_raw = pytest.mark.parametrize("route", RAW, ids=lambda route: route[1])


def entries(guarded: Guarded) -> list[dict[str, Any]]:
    told = guarded.ask("GET", f"{S}/audit-log", "admin").text
    return [json.loads(line) for line in told.splitlines() if line]


@each_raw
def test_a_read_is_in_the_log_with_who_and_nothing_of_what(
    guarded: Guarded, route: tuple[str, str]
) -> None:
    token = guarded.token(RAW[route], name="Grace Hopper")
    before = len(entries(guarded))
    assert guarded.ask(*route, token=token).status_code == 200
    (read,) = [entry for entry in entries(guarded)[before:] if entry["kind"] == "rows.read"]
    assert set(read["facts"]) == {"token", "by", "what"}
    assert read["facts"]["token"] == token.split("_")[1]
    assert read["facts"]["by"] == "Grace Hopper"


@each_raw
def test_nothing_leaves_while_the_log_cannot_be_written(
    guarded: Guarded, route: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:

    def full(*_: object, **__: object) -> None:
        raise StorageError("the audit log is on a full disk; free some space")

    monkeypatch.setattr(type(guarded.pyramid().audit_log), "append", full)
    for headers in ({}, {"Accept": ARROW}):
        answer = guarded.ask(*route, RAW[route], headers=headers)
        assert (answer.status_code, code_of(answer)) == (507, "StorageError")


def test_nothing_leaves_while_another_holds_the_log(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = guarded.pyramid().audit_log
    monkeypatch.setattr("pyramidion.storage.audit_log.BUSY", 0.1)
    log._db.execute("PRAGMA busy_timeout=100")
    other = sqlite3.connect(log.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        answer = guarded.ask("GET", f"{S}/training-set", "train")
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert answer.status_code >= 500
    assert code_of(answer) != "Unforeseen"


def test_the_entry_is_there_before_the_first_byte(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    log = type(guarded.pyramid().audit_log)
    append = log.append

    def noted(self: Any, kind: str, *given: Any, **facts: Any) -> Any:
        done = append(self, kind, *given, **facts)
        order.append(kind)
        return done

    send = Exchange.send

    async def sent(self: Any, message: Any) -> None:
        order.append(message["type"])
        await send(self, message)

    monkeypatch.setattr(log, "append", noted)
    monkeypatch.setattr(Exchange, "send", sent)
    assert guarded.ask("GET", f"{S}/training-set", "train").status_code == 200
    assert order[0] == "rows.read"
    assert "rows.read" not in order[1:]


def test_refused_reads_are_in_the_log_of_the_service(guarded: Guarded) -> None:
    token = guarded.token("observe")
    with captured() as log:
        assert guarded.ask("GET", f"{S}/training-set", token=token).status_code == 403
        guarded.client.get(f"{S}/training-set")
    told = [line for line in lines_of(log) if line["event"] == "request"]
    asked = [(line["route"], line["status"], line.get("token")) for line in told]
    path = "/v1/streams/{stream}/training-set"
    assert asked == [(path, 403, token.split("_")[1]), (path, 401, None)]


def test_what_was_refused_leaves_no_trace_in_the_audit_log(guarded: Guarded) -> None:
    before = len(entries(guarded))
    guarded.ask("GET", f"{S}/training-set", "observe")
    guarded.ask("POST", f"{S}/observations", "observe", json=[{"a": MARKER}])
    assert len(entries(guarded)) == before


def test_an_empty_training_set_is_told_without_an_entry(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh()
    assert guarded.ask("GET", f"{S}/training-set", "train").status_code == 409
    assert "rows.read" not in [entry["kind"] for entry in entries(guarded)]
