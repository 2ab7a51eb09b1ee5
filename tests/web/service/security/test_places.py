"""No answer says where files, keys or the vault are on the service's machine."""

from __future__ import annotations

import io
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyramidion import Admin
from pyramidion.errors import FormatError, KeyHolderError, SchemaError, StateError, StorageError
from pyramidion.web.dashboard.pages import Page
from pyramidion.web.errors import ELSEWHERE, public_message
from pyramidion.web.logs import logged
from tests.store.stores import CUSTODIAN, DAY
from tests.web.dashboard.visitors import inside
from tests.web.service.security.guarded import OTHER, STREAM, Guarded
from tests.web.service.security.test_roles import TABLE, address

GETS = sorted(path for method, path in TABLE if method == "GET")
Makes = Callable[..., Guarded]


def pages(guarded: Guarded) -> list[str]:
    found = [
        route.path
        for route in guarded.app.routes
        if isinstance(getattr(getattr(route, "endpoint", None), "guard", None), Page)
        and "GET" in route.methods  # type: ignore[attr-defined]
    ]
    assert found
    return sorted(found)


def test_no_answer_of_a_full_service_has_a_place(guarded: Guarded) -> None:
    place = str(guarded.data.parent)
    visitor = inside(guarded)
    for stream in (STREAM, OTHER):  # the second one has a vault
        for path in GETS:
            answer = guarded.ask("GET", address(path, stream))
            assert place not in answer.text, path
        for path in pages(guarded):
            assert place not in visitor.get(address(path, stream)).text, path
    status = guarded.ask("GET", f"/v1/streams/{STREAM}").json()
    assert {each["holder"] for each in status["deletions"]} == {"file"}


PROBLEMS: list[type[Exception]] = [
    *(StorageError, KeyHolderError, FormatError, StateError, SchemaError),
    *(KeyError, OSError, sqlite3.OperationalError),
]


@pytest.mark.parametrize("kind", PROBLEMS, ids=lambda kind: kind.__name__)
def test_error_of_a_store_is_answered_without_its_place(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    place = str(guarded.data / STREAM / "catalogue.db")

    def fails(*_: Any, **__: Any) -> Any:
        raise kind(f"{place} is on a full disk; free some space")

    pyramid = guarded.pyramid()
    for name in ("observe_all", "snapshot", "status", "training_set", "exposure"):
        monkeypatch.setattr(pyramid, name, fails, raising=False)
    monkeypatch.setattr(Admin, "note", fails)
    monkeypatch.setattr(guarded.service._streams[STREAM].commits, "_observe_all", fails)
    visitor, log = inside(guarded), io.StringIO()
    with logged(log):
        rows = guarded.rows_json()
        sent = guarded.ask("POST", f"/v1/streams/{STREAM}/observations", json=rows)
        assert sent.status_code >= 400
        asked = [guarded.ask("GET", address(path)) for path in GETS]
        shown = [visitor.get(address(path)) for path in pages(guarded)]
    assert any(each.status_code >= 400 for each in asked)
    for answer in (sent, *asked, *shown):
        assert str(guarded.data.parent) not in answer.text
    if kind in PROBLEMS[:5]:
        assert sent.json()["error"] == {"code": kind.__name__, "message": ELSEWHERE}
        assert place in log.getvalue()


def test_lost_key_file_is_answered_without_its_place(fresh: Makes) -> None:
    guarded = fresh()
    guarded.fill()
    shutil.rmtree(guarded.data.parent / "keys")
    guarded.clock.pass_(10 * DAY)
    answers = [
        guarded.ask("POST", f"/v1/streams/{STREAM}/observations", json=guarded.rows_json()),
        guarded.ask("POST", f"/v1/streams/{STREAM}/advance"),
        guarded.ask("PUT", f"/v1/streams/{OTHER}", json={"schema": ""}),
    ]
    assert answers[1].status_code == 503
    for answer in answers:
        assert str(guarded.data.parent) not in answer.text


def test_lost_vault_is_answered_without_its_place(fresh: Makes, tmp_path: Path) -> None:
    guarded = fresh()
    guarded.pyramid().admin.attach_vault(str(tmp_path / "vault"), CUSTODIAN.public)
    guarded.fill()
    shutil.rmtree(tmp_path / "vault")
    guarded.clock.pass_(10 * DAY)
    for method, path in (("POST", "advance"), ("GET", "vault"), ("GET", "pyramid")):
        assert str(tmp_path) not in guarded.ask(method, f"/v1/streams/{STREAM}/{path}").text


def test_folder_in_the_way_of_a_new_stream_is_answered_without_its_place(fresh: Makes) -> None:
    guarded = fresh()
    (guarded.data / "taken").mkdir()
    (guarded.data / "taken" / "file").touch()
    body = {"schema": guarded.pyramid().schema.to_toml(), "settings": {"epsilon": 1.0}}
    answer = guarded.ask("PUT", "/v1/streams/taken", json=body)
    assert answer.status_code == 409
    assert str(guarded.data) not in answer.text


@pytest.mark.parametrize(
    "text",
    [
        "/srv/data/s/catalogue.db is on a full disk",
        "the store at /srv/my data/s is open in another process",
        "keys='file:keys/s.key' names no key holder",
        "~/keys/s.key is not there",
        "s3://bucket/vault cannot be reached",
        "redis://10.0.0.1:6379/0 does not answer",
        "there is nothing at '/var/lib'; give another",
    ],
)
def test_message_with_a_place_is_replaced(text: str) -> None:
    assert public_message(StorageError(text)) == ELSEWHERE


@pytest.mark.parametrize(
    "text",
    [
        "there is nothing at this address; /docs shows what there is",
        "give them as /features makes them",
        "unsupported content type; send application/json or text/csv",
        "epsilon must be above 0; write 1/2 as 0.5",
        "column 'a/b' is declared twice; remove one of them",
    ],
)
def test_message_without_a_place_is_kept(text: str) -> None:
    assert public_message(SchemaError(text)) == text
