"""Answers are no oracles: without the role ``train`` nobody learns about hot rows or erasures.

Two services go on from copies of one folder, so that all secrets, noise and tokens are the same.
Then they differ: in the values of one person's rows, in whose rows they are, or in the erasure of
that person. Every route of the application is asked with a token of each role but ``train``, and
every answer of the one service must be that of the other, byte for byte. The routes are those of
the application: a new one is compared, too, or the test fails until it says what to send.

What is left out of the comparison stands in `MASKED`, each with the reason.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from starlette.routing import Route

from pyramidion import Categorical, Label, Pyramid, Schema
from pyramidion.learn.estimators import estimator_named
from pyramidion.web.dashboard.pages import Page
from pyramidion.web.service.app import OPEN
from pyramidion.web.tokens import ROLES
from tests.store.stores import CUSTODIAN, DAY, START, tiny
from tests.store.stores import rows as observations
from tests.vault.vaults import down, vault_of
from tests.web.dashboard.filled import word_of
from tests.web.dashboard.visitors import Visitor
from tests.web.service.security.guarded import MODEL, STREAM, Guarded

NOW = START + 10 * DAY
WITHOUT = sorted((role for role in ROLES if role != "train"), key="admin".__eq__)
"""The roles; who can change something comes last."""
PEOPLE = Schema(
    time="t",
    label=Label("y", classes=[0, 1]),
    features=[
        Categorical("a"),
        Categorical("b", domain=["x", "y"]),
        Categorical("note"),
    ],
    groups=[("a", "b")],
    unit="who",
)
S, M = "/v1/streams/{stream}", "/v1/streams/{stream}/models/{model}"
NAMES = {"stream": STREAM, "model": MODEL, "table": "note", "window": "1", "new": "another"}
NAMES |= {"id": "0" * 16, "mark": "0" * 16, "name": "steps.css"}


def rows(who: list[str], at: float, *, label: int | None = None, note: str = "-") -> pa.Table:
    """Rows of some people; where a label is given, all have it."""
    random_ = np.random.default_rng(len(who))
    return pa.table(
        {
            "t": np.full(len(who), at),
            "y": random_.integers(0, 2, len(who)) if label is None else np.full(len(who), label),
            "a": random_.integers(0, 40, len(who)).astype(str),
            "b": random_.choice(["x", "y"], len(who)),
            "note": [note] * len(who),
            "who": who,
        }
    )


CROWD = [f"p{number % 30}" for number in range(200)]
TOLD = rows(["bob"] * 3, NOW).to_pylist()
ASKED = [{"a": "1", "b": "x", "note": "-"}]
SETTINGS = tiny(k=2, selection_share=0.1).to_dict()


# --- what the two differ in --------------------------------------------------------------------


def usual(store: Pyramid) -> None:
    """What one of the two has: rows that somebody else sent of Bob."""
    store.observe(rows(["bob", "bob"], NOW))


def other_values(store: Pyramid) -> None:
    """The same number of rows of the same person, with other labels, keys and lengths of text."""
    store.observe(rows(["bob", "bob"], NOW, label=1, note="long " * 100))


def other_person(store: Pyramid) -> None:
    """The same rows of somebody else: of Bob more would count."""
    store.observe(rows(["eve", "eve"], NOW))


def erased(store: Pyramid) -> None:
    """The same rows, and then the person is erased."""
    usual(store)
    store.erase_person("bob", why="request 17")


DIFFERENCES = (other_values, other_person, erased)


# --- what is asked ------------------------------------------------------------------------------

SENT: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", f"{S}/observations"): {"json": TOLD},
    ("POST", f"{S}/features"): {"json": ASKED},
    ("PUT", M): {"json": {"estimator": "LogisticRegression"}},
    ("POST", f"{M}/predictions"): {"json": ASKED},
    ("POST", f"{S}/groups"): {"json": {"features": ["b", "note"]}},
    ("POST", f"{S}/groups/select"): {"json": {"share": 1}},
    ("POST", f"{S}/clock"): {"json": {"answer": "confirm", "why": "drill"}},
    ("POST", f"{S}/reseed"): {"json": {"why": "drill"}},
    ("POST", f"{S}/vault/requests"): {"json": {}},
    ("POST", "/v1/drafts"): {"content": "a,b\n1,2\n", "headers": {"Content-Type": "text/csv"}},
    ("POST", "/v1/plans"): {
        "json": {"schema": PEOPLE.to_toml(), "settings": SETTINGS},
        "params": {"rows": "200"},
    },
    ("POST", "/v1/tokens"): {"json": {"name": "new", "roles": ["observe"]}},
    ("PUT", "/v1/streams/{new}"): {"json": {"schema": PEOPLE.to_toml(), "settings": SETTINGS}},
    ("DELETE", f"{S}/tables/{{table}}"): {"params": {"why": "not needed"}},
    ("GET", f"{S}/exposure"): {"params": {"from": START, "to": NOW}},
    ("GET", "/streams/{stream}/exposure/report"): {"params": {"from": START, "to": NOW}},
}
"""What is sent to routes of the API that take something, and to a page."""

FORMS: dict[str, dict[str, str]] = {
    "/streams/{stream}/first-steps/rows": {"rows": "t,y,a,b,note,who\n86400000,1,1,x,-,bob\n"},
    "/streams/{stream}/first-steps/model": {"model": MODEL, "estimator": "LogisticRegression"},
    "/streams/{stream}/first-steps/prediction": {"model": MODEL, "line": "a,b,note\n1,x,-\n"},
    "/first-steps/draft": {"name": "new", "sample": "a,y\n1,0\n2,1\n"},
    "/first-steps/plan": {"name": "new", "schema": PEOPLE.to_toml()},
    "/first-steps/create": {"name": "new", "schema": PEOPLE.to_toml()},
    "/streams/{stream}/models/{model}/loss": {},
    "/streams/{stream}/audit-log": {},
    "/logout": {},
}
"""The fields of forms of the dashboard."""

DRAWN = (f"{S}/groups/select",)
RAW = "a model is made of hot rows and its answers are as raw as they are (P1): that is its use"
NOISY = "what is chosen is drawn with fresh noise, and the ledger has its price"
RECORD = "the audit log is the record of erasures: when and why, never of whom or how many rows"
EDGE = "an edge must see that a model is another one, or it would go on with erased rows"
CLOCK = "how long requests took, by the machine's clock"

ALWAYS, ERASURE = (other_values, other_person, erased), (erased,)
MASKED: dict[tuple[str, str], tuple[tuple[Any, ...], str, str]] = {
    ("POST", f"{M}/predictions"): (ALWAYS, RAW, ""),
    ("GET", f"{M}/export"): (ALWAYS, RAW, ""),
    ("POST", "/streams/{stream}/first-steps/prediction"): (ALWAYS, RAW, ""),
    ("POST", f"{S}/groups/select"): (ALWAYS, NOISY, ""),
    ("GET", "/metrics"): (ALWAYS, CLOCK, r"(?m)^pyramidion_(request_seconds|\w+_created).*\n"),
    ("GET", f"{S}/models"): (ERASURE, EDGE, r'"version":\d+'),
    ("GET", "/streams/{stream}/models"): (ERASURE, EDGE, r"<dt>Version</dt>.*\n"),
    ("GET", M): (ERASURE, EDGE, r'"version":\d+'),
    ("GET", f"{S}/audit-log"): (ERASURE, RECORD, ""),
    ("GET", f"{S}/audit-log/verification"): (ERASURE, RECORD, ""),
    ("GET", "/streams/{stream}/audit-log"): (ERASURE, RECORD, ""),
    ("POST", "/streams/{stream}/audit-log"): (ERASURE, RECORD, ""),
}
"""What is not compared, where, and why: a whole body, or what a pattern finds in it."""


@dataclass(frozen=True)
class Address:
    """One route of the application."""

    method: str
    path: str
    is_page: bool
    takes: bool
    """Whether it reads a body, or parameters that it needs."""


def addresses(guarded: Guarded) -> list[Address]:
    """All routes: those that change something last, and after them what is drawn with noise."""
    found = []
    for route in guarded.app.routes:
        assert isinstance(route, Route) or hasattr(route, "methods"), route
        guard = getattr(route.endpoint, "guard", None)
        about = getattr(guard, "about", {})
        needs = any(asked.needed for asked in about.get("asks", ()))
        page = isinstance(guard, Page)
        for method in sorted(route.methods - {"HEAD"}):
            takes = "takes" in about or needs or (page and method == "POST")
            found.append(Address(method, route.path, page, takes))
    order = ["GET", "POST", "PUT", "DELETE"]
    return sorted(found, key=lambda each: (each.path in DRAWN, order.index(each.method)))


Place = tuple[str, str, str, str]
"""When, with which role, and at which route."""
Answers = dict[Place, tuple[int, dict[str, str], str]]


class Conversation:
    """All that callers of each role ask one service, and what it answers."""

    def __init__(self, guarded: Guarded, tokens: dict[str, str]) -> None:
        self._guarded, self._tokens = guarded, tokens
        self._routes = addresses(guarded)
        self.answers: Answers = {}

    def whole(self) -> Answers:
        """Now, and when all hot rows have left; who changes something does that at the end."""
        reads = [each for each in self._routes if each.method == "GET"]
        changes = [each for each in self._routes if each.method != "GET"]
        for role in WITHOUT:
            self.ask("now", role, reads if role == "admin" else self._routes)
        self._guarded.clock.pass_(4 * DAY)
        self.ask("later", "admin", [each for each in changes if each.path == f"{S}/advance"])
        for role in WITHOUT:
            self.ask("later", role, reads)
        self.ask("at last", "admin", changes)
        return self.answers

    def ask(self, when: str, role: str, routes: list[Address]) -> None:
        """Ask some routes with a token of one role."""
        visitor, token = Visitor(self._guarded), self._tokens[role]
        assert visitor.log_in(token).status_code == 303
        word = word_of(visitor.get("/streams?all=1").text)
        for each in routes:
            path, given = each.path.format(**NAMES), SENT.get((each.method, each.path), {})
            if each.is_page and each.method == "POST":
                form = {"csrf": word, **FORMS[each.path]}
                answer = visitor.client.post(path, data=form, headers=visitor.headers)
            elif each.is_page or each.path in OPEN:
                answer = visitor.client.request(each.method, path, **given)
            else:
                answer = self._guarded.ask(each.method, path, token=token, **given)
            self.answers[when, role, each.method, each.path] = told(answer, word)
        visitor.client.close()


def told(answer: httpx.Response, word: str) -> tuple[int, dict[str, str], str]:
    """Status, fields and body; a session's own word is left out of its pages."""
    fields = {name: value for name, value in answer.headers.items() if name != "set-cookie"}
    return answer.status_code, fields, answer.content.decode("latin-1").replace(word, "WORD")


# --- two services ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Base:
    """A folder with a service's data that was closed, and tokens of it."""

    folder: Path
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """A sealed window, a window that fills, hot rows in it, and a model."""
    folder = tmp_path_factory.mktemp("base")
    made = Guarded(folder)
    made.service.create(STREAM, PEOPLE, tiny(k=2, selection_share=0.1))
    store = made.pyramid()
    store.observe(rows(CROWD, START))
    made.clock.pass_(10 * DAY)
    store.advance()
    store.observe(rows(CROWD, NOW))
    store.register(MODEL, estimator_named("LogisticRegression", {}))
    tokens = {role: made.token(role) for role in ROLES}
    made.close()
    return Base(folder, tokens)


def answered(base: Base, folder: Path, differ: Callable[[Pyramid], None]) -> Answers:
    """Has a copy of the service go on, and asks it; one after the other, in the same place."""
    shutil.copytree(base.folder, folder)
    drawn = random.Random(7)
    tokens = SimpleNamespace(
        token_hex=lambda size: drawn.randbytes(size).hex(),
        token_urlsafe=lambda size: drawn.randbytes(size).hex()[:43],
    )
    signers = SimpleNamespace(urandom=random.Random(8).randbytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyramidion.web.service.tokens.secrets", tokens)  # the tokens that are made
        patch.setattr("pyramidion.storage.audit_chain.os", signers)  # the keys of entries
        patch.setattr("pyramidion.web.service.streams.TICK", 1e6)  # nothing is done unasked
        made = Guarded(folder, now=NOW)
        try:
            store = made.pyramid()
            store.advance()
            differ(store)
            store.advance()
            return Conversation(made, base.tokens).whole()
        finally:
            made.close()
            shutil.rmtree(folder)


@pytest.fixture(scope="module")
def usually(base: Base) -> Answers:
    """What one of the two answers."""
    return answered(base, base.folder.parent / "service", usual)


def masked(found: Answers, difference: Callable[[Pyramid], None]) -> Answers:
    """The answers without what is not compared."""
    made = {}
    for (*who, method, path), (status, fields, body) in found.items():
        whom, _, pattern = MASKED.get((method, path), ((), "", ""))
        if difference in whom and status < 400:
            body = re.sub(pattern, "", body) if pattern else ""
            fields = {name: value for name, value in fields.items() if name != "content-length"}
        made[(*who, method, path)] = status, fields, body
    return made


def first_difference(one: object, other: object) -> str:
    """Where two answers part."""
    texts = str(one), str(other)
    place = next(
        (n for n, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts))
    )
    return " | ".join(text[max(0, place - 60) : place + 60] for text in texts)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: each.__name__)
def test_answers_do_not_depend_on_hot_rows_or_erasures(
    base: Base, usually: Answers, difference: Callable[[Pyramid], None]
) -> None:
    one = masked(usually, difference)
    other = masked(answered(base, base.folder.parent / "service", difference), difference)
    assert one.keys() == other.keys()
    differing = [at for at in one if one[at] != other[at]]
    assert not differing, "\n".join(
        f"{at}: {first_difference(one[at], other[at])}" for at in differing
    )


@pytest.mark.parametrize("role", WITHOUT)
def test_answers_do_not_depend_on_how_vault_files_compress(tmp_path: Path, role: str) -> None:
    shown = []
    for name in ("one value", "many"):
        made = Guarded(tmp_path / name)
        made.create(STREAM)
        store = made.pyramid()
        store.admin.attach_vault(str(tmp_path / f"vault of {name}"), CUSTODIAN.public)
        place = down(store)
        batch = observations(2_000, START)
        store.observe(batch.take([0] * 2_000) if name == "one value" else batch)
        vault_of(store).seal()
        conversation = Conversation(made, {role: made.token(role)})
        conversation.ask("now", role, [each for each in addresses(made) if "vault" in each.path])
        conversation.ask("now", role, [Address("GET", S, False, False)])
        shown.append((conversation.answers, vault_of(store).status().backlog_bytes))
        place.left = 0
        made.close()
    assert shown[0][1] != shown[1][1]  # or there would be nothing to hide
    if role == "custodian-request":  # a draft has the files' own headers
        shown[0][0].pop(("now", role, "POST", f"{S}/vault/requests"))
    assert shown[0][0].items() <= shown[1][0].items()


def test_every_route_is_sent_what_it_takes(fresh: Callable[..., Guarded]) -> None:
    routes = addresses(fresh())
    taking = {(each.method, each.path) for each in routes if each.takes}
    assert taking <= SENT.keys() | {("POST", path) for path in FORMS}
    assert MASKED.keys() | SENT.keys() <= {(each.method, each.path) for each in routes}
