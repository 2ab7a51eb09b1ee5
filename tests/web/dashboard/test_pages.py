"""What pages say: the API's numbers, escaped, kept by nobody, and no more than needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pyramidion import Categorical, Label, Schema
from pyramidion.errors import StorageError
from pyramidion.learn.estimators import estimator_named
from pyramidion.web.dashboard import static_files
from tests.store.stores import tiny
from tests.waiting import wait_for
from tests.web.dashboard.filled import MODEL, OTHER, PAGES, STREAM, Filled, logged_in, word_of
from tests.web.dashboard.numbers import Answers, compare
from tests.web.dashboard.visitors import inside
from tests.web.service.security.guarded import Guarded, rows
from tests.web.service.services import Inside

each_page = pytest.mark.parametrize("page", PAGES)
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "style-src": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
    "form-action": "'self'",
}
NUMBER = re.compile(r'<data class="number" value="([^"]*)" data-number="([^"]*)">([^<]*)</data>')


def numbers_in(text: str) -> list[dict[str, str]]:
    found = [map(unescape, each) for each in NUMBER.findall(text)]
    return [{"value": v, "address": a, "text": t} for v, a, t in found]


@each_page
def test_every_number_is_the_one_that_the_api_tells(filled: Filled, page: str) -> None:
    told = filled.browser().get(f"/streams/{STREAM}{page}")
    assert told.status_code == 200
    found = compare(numbers_in(told.text), Answers(filled.caller(), STREAM))
    assert found >= {"/groups": 0, "/deletions": 0}.get(page, 3)


def test_numbers_that_are_wrong_are_found(filled: Filled) -> None:
    exposed = filled.caller().get(f"/v1/streams/{STREAM}/pyramid").json()["exposed"]
    text = filled.browser().get(f"/streams/{STREAM}").text
    text = text.replace(f'value="{exposed}"', f'value="{exposed + 1}"')
    with pytest.raises(AssertionError):
        compare(numbers_in(text), Answers(filled.caller(), STREAM))


def test_the_first_sentence_adds_up(filled: Filled) -> None:
    told = filled.caller().get(f"/v1/streams/{STREAM}/pyramid").json()
    parts = ("exposed", "summarised", "retained", "gone")
    assert sum(told[part] for part in parts) == told["collected"]
    assert min(told["exposed"], told["summarised"], told["retained"], told["locked_away"]) > 0
    assert told["gone"] == 0  # the vault has them all
    status = filled.caller().get(f"/v1/streams/{STREAM}").json()
    assert status["hot_rows"] == told["exposed"]
    assert sum(window["rows"] for window in status["windows"]) == told["collected"]
    assert "url" not in status["vault"]


@each_page
def test_a_page_of_a_stream_without_rows_says_so(filled: Filled, page: str) -> None:
    told = filled.browser().get(f"/streams/{OTHER}{page}")
    assert told.status_code == (404 if page == "/ledger/2" else 200)


@each_page
def test_a_live_update_is_the_page_without_what_stands_around_it(filled: Filled, page: str) -> None:
    browser = filled.browser()
    whole = browser.get(f"/streams/{STREAM}{page}").text
    part = browser.get(f"/streams/{STREAM}{page}", headers={"X-Live": "1"}).text
    assert "<html" not in part
    assert re.sub(r"\s+", "", part) in re.sub(r"\s+", "", whole)


@each_page
def test_nobody_keeps_a_page_and_nothing_comes_from_elsewhere(filled: Filled, page: str) -> None:
    told = filled.browser().get(f"/streams/{STREAM}{page}")
    headers = told.headers
    assert headers["cache-control"] == "no-store"
    parts = (part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert dict(parts) == POLICY
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    for address in re.findall(r'(?:src|href|action)="([^"]*)"', told.text):
        assert address.startswith(("/", "#")), address
        assert not address.startswith("//")
    assert " style=" not in told.text
    assert "<style" not in told.text
    assert " onclick=" not in told.text


def test_nodes_of_a_tree_of_windows_are_listed(tmp_path: Path) -> None:
    made = Inside(tmp_path)
    try:
        made.create("s", windows="tree", tree_radix=2, tree_depth=2, retention="90d")
        made.fill()
        told = logged_in(made.url, made.token()).get("/streams/s/windows").text
        assert "Nodes of the tree" in told
        assert compare(numbers_in(told), Answers(made.caller(), "s")) >= 2 * 2 + 2
    finally:
        made.close()


def test_trouble_is_shown_without_its_place(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise StorageError("/srv/data is on a full disk; free some space")

    stream = filled.service._streams[STREAM]
    monkeypatch.setattr(stream.pyramid, "advance", full)
    wait_for(lambda: stream.trouble)
    for role in ("admin", "train"):
        told = filled.browser(role).get(f"/streams/{STREAM}").text
        assert "could not be done" in told
        assert "/srv/data" not in told


def test_the_printable_report_runs_no_script(filled: Filled) -> None:
    browser, query = filled.browser(), {"from": "2026-03-23", "to": "2026-03-29T12:00"}
    told = browser.get(f"/streams/{STREAM}/exposure/report", params=query)
    assert told.status_code == 200
    assert "script" not in told.headers["content-security-policy"].replace("default-src 'none'", "")
    assert "<script" not in told.text
    assert "What was exposed" in told.text


def test_an_exposure_that_cannot_be_told_says_why(filled: Filled) -> None:
    told = filled.browser().get(f"/streams/{STREAM}/exposure?from=2099-01-01&to=2099-01-02")
    assert told.status_code == 200
    assert "in the future" in told.text


def test_the_log_is_verified_at_the_press_of_a_button(filled: Filled) -> None:
    browser = filled.browser("admin")
    page = browser.get(f"/streams/{STREAM}/audit-log").text
    told = browser.post(f"/streams/{STREAM}/audit-log", data={"csrf": word_of(page)}).text
    assert "Sound." in told
    compare(numbers_in(told), Answers(filled.caller(), STREAM))


def test_a_loss_is_the_one_that_the_api_tells(filled: Filled) -> None:
    browser = filled.browser("train")
    word = word_of(browser.get(f"/streams/{STREAM}/models").text)
    told = browser.post(f"/streams/{STREAM}/models/{MODEL}/loss", data={"csrf": word}).text
    found = numbers_in(told)
    api = Answers(filled.caller(), STREAM)
    assert len(found) == 3
    for each in found:
        assert float(each["value"]) == pytest.approx(api.at(each["address"]))


# --- what comes from outside is text ----------------------------------------------------------

HOSTILE = "\"><img src=x onerror=alert(1)>'&"


class Elements(HTMLParser):
    """The elements of a page, and the attributes of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A stream whose names would be markup."""
    made = Guarded(tmp_path_factory.mktemp("hostile"))
    schema = Schema(
        label=Label(HOSTILE + "y", classes=["</script><script>alert(2)</script>", "b"]),
        features=[Categorical(HOSTILE + "a"), Categorical("b", domain=["x", "y"])],
        groups=[(HOSTILE + "a", "b")],
        time="t",
    )
    made.service.create("s", schema, tiny())
    store = made.pyramid("s")
    names = {"y": HOSTILE + "y", "a": HOSTILE + "a", "b": "b", "t": "t"}
    for seed in range(2):
        batch = rows(200, made.clock.now, seed=seed)
        batch = batch.rename_columns([names[name] for name in batch.column_names]).to_pylist()
        told = ("</script><script>alert(2)</script>", "b")
        store.observe([row | {HOSTILE + "y": told[row[HOSTILE + "y"]]} for row in batch])
        made.clock.pass_(0 if seed else 10 * 86_400)
        store.advance()
    store.register(HOSTILE, estimator_named("LogisticRegression", {}))
    store.admin.reseed(why=HOSTILE)
    store.admin.note(
        "vault.granted", grant=HOSTILE, engineer=HOSTILE, columns=[HOSTILE], purpose="x"
    )
    yield made
    made.close()


@each_page
def test_names_are_text_and_never_markup(hostile: Guarded, page: str) -> None:
    told = inside(hostile).get(f"/streams/s{page.replace('/2', '/1')}")
    assert told.status_code == 200
    for tag, attributes in Elements(told.text).found:
        assert tag != "img"
        assert not any(name.startswith("on") for name in attributes)
    assert "alert(2)</script>" not in told.text
    assert "onerror=alert(1)>" not in told.text


def test_hostile_names_are_on_the_pages_as_they_are(hostile: Guarded) -> None:
    for page in ("tables", "groups", "models", "vault", "audit-log"):
        told = inside(hostile).get(f"/streams/s/{page}").text
        assert HOSTILE in unescape(told), page


def test_a_model_of_a_hostile_name_can_be_measured(hostile: Guarded) -> None:
    visitor = inside(hostile)
    page = visitor.get("/streams/s/models").text
    action = next(
        a["action"] for t, a in Elements(page).found if "/loss" in (a.get("action") or "")
    )
    assert action is not None
    told = visitor.post(action)
    assert told.status_code == 200
    assert "hot rows its" in told.text


# --- files -------------------------------------------------------------------------------------


def test_files_may_be_kept_because_their_addresses_change_with_them(guarded: Guarded) -> None:
    for name in static_files.files():
        told = guarded.client.get(static_files.address(name))
        assert told.status_code == 200
        assert told.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert told.headers["content-type"].startswith(static_files.KINDS[Path(name).suffix])


def test_no_other_file_is_served(guarded: Guarded) -> None:
    for path in (
        "/static/0000/style.css",
        static_files.address("style.css").replace("style.css", "live.js"),
        "/static/x/..%2f..%2fapp.py",
        "/static/x/%2e%2e/app.py",
        "/static/",
        "/static/x/",
    ):
        assert guarded.client.get(path).status_code == 404, path


def test_the_plot_library_is_the_installed_one(guarded: Guarded) -> None:
    assert not (static_files.OWN / static_files.PLOTS).exists()
    assert "site-packages" in str(static_files.files()[static_files.PLOTS])
    assert len(static_files.styles()) >= 1
