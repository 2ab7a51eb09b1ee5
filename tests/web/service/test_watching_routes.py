"""What officers ask for: the pyramid, one window's ledger, grants, and the log's verification."""

from __future__ import annotations

import httpx
import pytest

from tests.store.stores import SECOND
from tests.web.service.services import Inside, error_of


@pytest.fixture
def admin(shared: Inside) -> httpx.Client:
    return shared.caller("admin")


def test_every_row_that_was_collected_is_in_one_layer(admin: httpx.Client) -> None:
    told = admin.get("/v1/streams/s/pyramid").json()
    assert told["collected"] == told["exposed"] + told["summarised"] + told["gone"] == 400
    assert (told["exposed"], told["summarised"], told["locked_away"]) == (200, 200, None)


def test_the_sums_of_the_ledger_are_those_of_its_lines(admin: httpx.Client) -> None:
    whole = admin.get("/v1/streams/s/ledger").json()
    sums = admin.get("/v1/streams/s/ledger?lines=no").json()
    for window, summed in zip(whole["windows"], sums["windows"], strict=True):
        lines = window.pop("lines")
        assert window == summed
        tables = sum(line["amount"] for line in lines if line["kind"] == "table")
        assert tables == pytest.approx(summed["tables"])
        alone = admin.get(f"/v1/streams/s/ledger/{window['number']}").json()
        assert alone == window | {"lines": lines}
    assert error_of(admin.get("/v1/streams/s/ledger?lines=some")) == (422, "SchemaError")


@pytest.mark.parametrize("window", ["99", "-1", "01", "x", "1.0"])
def test_a_window_that_is_not_there_has_no_ledger(admin: httpx.Client, window: str) -> None:
    assert error_of(admin.get(f"/v1/streams/s/ledger/{window}")) == (404, "MissingError")


def test_tables_tell_noise_and_typical_counts(admin: httpx.Client) -> None:
    told = admin.get("/v1/streams/s/tables").json()["tables"]
    assert all(table["deviation"] > 0 and table["typical"] >= 0 for table in told)


def test_the_newest_entries_of_the_log_and_its_verification(
    shared: Inside, admin: httpx.Client
) -> None:
    whole = admin.get("/v1/streams/s/audit-log").text.splitlines()
    assert admin.get("/v1/streams/s/audit-log?last=1").text.splitlines() == whole[-1:]
    assert admin.get("/v1/streams/s/audit-log?last=999").text.splitlines() == whole
    for wrong in ("-1", "x", "", "9" * 30):
        told = admin.get("/v1/streams/s/audit-log", params={"last": wrong})
        assert error_of(told) == (422, "SchemaError")
    told = admin.get("/v1/streams/s/audit-log/verification").json()
    log = shared.service._streams["s"].pyramid.audit_log
    assert (told["sound"], told["entries"], told["head"]) == (True, len(whole), log.head)


def test_grants_are_told_as_the_log_has_them(inside: Inside) -> None:
    inside.create()
    store, now = inside.service._streams["s"].pyramid, inside.service.now
    admin = inside.caller("admin")
    assert admin.get("/v1/streams/s/grants").json() == {"grants": []}
    about = {"engineer": "Ada", "columns": ["a"], "purpose": "read", "files": 1}
    for name, seconds in (("used", 60), ("revoked", 60), ("over", 1)):
        expires = now + seconds * SECOND
        store.admin.note("vault.granted", grant=name, expires=expires, first=1, last=2, **about)
    store.admin.note("vault.opened", grant="used", rows=3)
    store.admin.note("vault.rewritten", grant="used", rows=3)
    store.admin.note("vault.revoked", grant="revoked", held=1)
    store.admin.note("vault.opened", grant="unknown", rows=3)
    inside.clock.pass_(2)
    told = {each["grant"]: each for each in admin.get("/v1/streams/s/grants").json()["grants"]}
    assert list(told) == ["over", "revoked", "used"]
    assert {name: each["open"] for name, each in told.items()} == {
        "over": False,
        "revoked": False,
        "used": True,
    }
    assert [each["opened"] for each in told.values()] == [0, 0, 2]
    assert told["used"]["columns"] == ["a"]
    assert told["revoked"]["ended"] is not None
