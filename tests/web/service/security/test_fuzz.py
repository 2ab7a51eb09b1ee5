"""Bodies nobody would write: whatever comes, no route with a body breaks or quotes it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyramidion.config.toml import written
from pyramidion.web.bodies import ARROW, CSV, JSON, TOML
from tests.store.stores import CUSTODIAN, DAY, SCHEMA, START, TINY, rows
from tests.web.service.security.guarded import MARKER, MODEL, OTHER, STREAM, Guarded, arrow_bytes
from tests.web.service.security.test_roles import address, routes_of

KEY = CUSTODIAN.public.to_code()
REQUEST = {
    "from": START,
    "to": START + DAY,
    "columns": ["a"],
    "reason": "case 1",
    "engineer": "Ada",
    "key": KEY,
    "broker": KEY,
}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", f"/v1/streams/{STREAM}/observations"): [{"t": 1, "y": 1, "a": "q", "b": "x"}],
    ("POST", f"/v1/streams/{STREAM}/features"): [{"a": "q", "b": "x"}],
    ("POST", f"/v1/streams/{STREAM}/models/{MODEL}/predictions"): {"a": "q", "b": "x"},
    ("POST", f"/v1/streams/{STREAM}/models/{MODEL}/predictions?"): {"features": [0.5, 0.5, 0.5]},
    ("PUT", f"/v1/streams/{STREAM}/models/fuzzed"): {
        "estimator": "LogisticRegression",
        "params": {"C": 1.0},
        "label": "y",
        "only": ["a"],
        "without": [],
        "merge": None,
    },
    ("PUT", "/v1/streams/fuzzed"): {"schema": SCHEMA.to_toml(), "settings": TINY},
    ("POST", f"/v1/streams/{STREAM}/groups"): {"features": ["a", "b"]},
    ("POST", f"/v1/streams/{STREAM}/groups/select"): {"share": 0.5},
    ("POST", f"/v1/streams/{OTHER}/vault/requests"): REQUEST,
    ("POST", f"/v1/streams/{STREAM}/reseed"): {"why": "fuzzed"},
    ("POST", f"/v1/streams/{STREAM}/clock"): {"answer": "confirm", "why": "fuzzed"},
    ("POST", "/v1/plans?rows=1000&epsilon=1"): {"schema": SCHEMA.to_toml(), "settings": TINY},
    ("POST", "/v1/drafts"): {"refused": "whatever it is"},
    ("POST", "/v1/tokens"): {"name": "fuzzed", "roles": ["observe"], "streams": ["s"]},
}
"""A good body of each route that reads one; where there are two, a ? tells them apart."""
ROWS = tuple(list(BODIES)[:3])
TAKEN = {
    ("PUT", "/v1/streams/fuzzed"),
    ("PUT", f"/v1/streams/{STREAM}/models/fuzzed"),
    ("POST", f"/v1/streams/{STREAM}/reseed"),
    ("POST", f"/v1/streams/{STREAM}/groups/select"),
}
"""Routes whose good bodies change the store: they get fewer, and only bad ones."""

each_route = pytest.mark.parametrize("route", BODIES, ids=lambda route: route[1])
each_row_route = pytest.mark.parametrize("route", ROWS, ids=lambda route: route[1])
often = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.just(MARKER)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def sent(guarded: Guarded, route: tuple[str, str], body: bytes, kind: str = JSON) -> None:
    answer = guarded.ask(*route, content=body, headers={"Content-Type": kind})
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert set(answer.json()) == {"error"}
        assert route not in ROWS or MARKER not in answer.text


@each_route
@often
@given(body=values)
def test_any_json_is_taken_or_refused(guarded: Guarded, route: tuple[str, str], body: Any) -> None:
    sent(guarded, route, json.dumps(body).encode())


@each_route
@often
@given(body=st.binary(max_size=200), kind=st.sampled_from([JSON, ARROW, CSV, TOML, "text/plain"]))
def test_any_bytes_are_refused_or_taken(
    guarded: Guarded, route: tuple[str, str], body: bytes, kind: str
) -> None:
    sent(guarded, route, body, kind)


@each_route
@often
@given(data=st.data())
def test_a_good_body_with_one_value_put_in_another_place_is_taken_or_refused(
    guarded: Guarded, route: tuple[str, str], data: st.DataObject
) -> None:
    told = json.loads(json.dumps(BODIES[route]))
    target = told[0] if isinstance(told, list) else told
    name = data.draw(st.sampled_from(sorted(target)))
    target[name] = data.draw(values)
    sent(guarded, route, json.dumps(told).encode())


@often
@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=4))
def test_any_features_are_taken_or_refused(guarded: Guarded, numbers: list[float]) -> None:
    route = ("POST", f"/v1/streams/{STREAM}/models/{MODEL}/predictions")
    sent(guarded, route, json.dumps({"features": numbers}).encode())


@each_route
@often
@given(data=st.data())
def test_a_good_body_with_bytes_changed_is_taken_or_refused(
    guarded: Guarded, route: tuple[str, str], data: st.DataObject
) -> None:
    if route in TAKEN:
        return
    body = bytearray(json.dumps(BODIES[route]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    sent(guarded, route, bytes(body))


@each_row_route
@pytest.mark.parametrize("seed", range(8))
def test_an_arrow_stream_with_bytes_changed_is_taken_or_refused(
    guarded: Guarded, route: tuple[str, str], seed: int
) -> None:
    made = random.Random(seed)
    table = rows(20, guarded.clock.now)
    if seed % 2:
        table = table.set_column(2, "a", table["a"].dictionary_encode())
    whole = arrow_bytes(table)
    for _ in range(60):
        body = bytearray(whole)
        for _ in range(made.choice((1, 1, 2, 8))):
            body[made.randrange(len(body))] = made.choice((0, 1, 0x7F, 0x80, 0xFF))
        if made.random() < 0.2:
            del body[made.randrange(len(body)) :]
        sent(guarded, route, bytes(body), ARROW)


FILE = f"{SCHEMA.to_toml()}\n{written({'settings': TINY})}".encode()
FILES = [("PUT", "/v1/streams/-fuzzed"), ("POST", "/v1/plans?rows=1000&epsilon=1")]
"""Routes that take a schema file; no stream may be called so, and so none is made."""


@pytest.mark.parametrize("route", FILES, ids=lambda route: route[1])
@often
@given(data=st.data())
def test_a_schema_file_with_bytes_changed_is_taken_or_refused(
    guarded: Guarded, route: tuple[str, str], data: st.DataObject
) -> None:
    body = bytearray(FILE)
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    sent(guarded, route, bytes(body), TOML)


PARTS = (
    *("[label]", "[[features]]", "[settings]", "name", "classes", "edges", "epsilon", "hot_rows"),
    *("=", ".", ",", "\n", "[", "]", "{", "}", '"y"', MARKER, "true", "1979-05-27"),
    *("0", "nan", "-inf", "1e999", "9" * 400),
)
words = st.sampled_from(PARTS)


@pytest.mark.parametrize("route", FILES, ids=lambda route: route[1])
@often
@given(told=st.lists(words, max_size=30).map(" ".join))
def test_any_words_of_a_schema_file_are_taken_or_refused(
    guarded: Guarded, route: tuple[str, str], told: str
) -> None:
    sent(guarded, route, told.encode(), TOML)


names = st.sampled_from(["t", "y", "a", "b", "n", MARKER, "", '"', "a,a", "\r", '"\n"'])
fields = st.sampled_from(
    ["1", "0", "q", "x", "", "NaN", '"', '"q"', "1e999", "true", "\xff", MARKER]
)
lines = st.lists(st.lists(fields, max_size=5).map(",".join), max_size=4)


@pytest.mark.parametrize("route", [*ROWS, ("POST", "/v1/drafts")], ids=lambda route: route[1])
@often
@given(head=st.lists(names, max_size=5), rows=lines, end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_csv_is_taken_or_refused(
    guarded: Guarded, route: tuple[str, str], head: list[str], rows: list[str], end: str
) -> None:
    body = end.join([",".join(head), *rows]).encode("latin-1")
    answer = guarded.ask(*route, content=body, headers={"Content-Type": CSV})
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert set(answer.json()) == {"error"}
        assert MARKER not in answer.text


def shape(path: str) -> str:
    """A path without its names."""
    parts = path.partition("?")[0].split("/")
    known = ("{", "fuzzed", STREAM, OTHER, MODEL)
    return "/".join("{}" if part.startswith(known) else part for part in parts)


def test_every_route_that_reads_a_body_is_fuzzed(guarded: Guarded) -> None:
    known = {(method, shape(path)) for method, path in BODIES}
    unknown = {
        (method, path)
        for method, path in routes_of(guarded.app)
        if method in ("POST", "PUT") and (method, shape(path)) not in known
    }
    assert {path.rpartition("/")[2] for _, path in unknown} == {"advance", "retrain"}
    for method, path in unknown:
        assert reads_nothing(guarded, method, address(path)), (method, path)


@each_route
def test_what_is_fuzzed_is_seen_to_read_its_body(guarded: Guarded, route: tuple[str, str]) -> None:
    assert not reads_nothing(guarded, *route)


def reads_nothing(guarded: Guarded, method: str, path: str) -> bool:
    """Whether a route answers the same whatever its body is: it has none."""
    answers = set()
    for kind in (JSON, CSV):
        for body in (b"{", b"{}", b"\xff"):
            answer = guarded.ask(method, path, content=body, headers={"Content-Type": kind})
            assert answer.status_code != 404, "what is not there reads nothing either"
            told = answer.text if answer.status_code >= 400 else ""
            answers.add((answer.status_code, told))
    return len(answers) == 1
