"""Too much is refused with 429 and a time to come back; nothing grows without bounds."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.errors import BusyError
from pyramidion.web import limits as bounds
from pyramidion.web.bodies import JSON, json_from
from pyramidion.web.limits import MANY, SLOTS, Admission, JsonMemory, Limits, Rate
from pyramidion.web.service import calls
from tests.store.stores import START, rows
from tests.waiting import PATIENCE
from tests.web.service.security.guarded import ARROW_IN, STREAM, Guarded, arrow_bytes, code_of
from tests.web.service.services import told_rows


class Ticking:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=60),
    st.floats(0.1, 100),
    st.integers(1, 20),
)
def test_a_bucket_gives_no_more_than_its_burst_and_what_time_adds(
    gaps: list[float], per_second: float, burst: int
) -> None:
    rate, now, taken = Rate(per_second, burst), 0.0, 0
    for gap in gaps:
        now += gap
        taken += rate.wait("x", now) == 0.0
        assert taken <= burst + now * per_second + 1e-6


@given(st.floats(0.1, 100), st.integers(1, 20))
def test_who_comes_back_when_told_gets_one(per_second: float, burst: int) -> None:
    rate = Rate(per_second, burst)
    for _ in range(burst):
        assert rate.wait("x", 0.0) == 0.0
    wait = rate.wait("x", 0.0)
    assert wait > 0
    assert rate.wait("x", wait * 1.000001) == 0.0


def test_callers_who_rest_are_forgotten() -> None:
    rate = Rate(1.0, 1)
    for number in range(3 * MANY):
        rate.wait(number, float(number))
    assert len(rate._levels) <= MANY + 1


def test_strangers_take_fixed_room_however_many_they_are() -> None:
    clock = Ticking()
    admission = Admission(Limits(), clock)
    for number in range(20_000):
        clock.now += 1.0
        admission.strange(f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")
    assert len(admission._strangers._levels) <= SLOTS


def test_one_who_has_a_network_of_addresses_is_one_stranger() -> None:
    admission = Admission(Limits(stranger_burst=3), Ticking())
    for number in range(3):
        admission.strange(f"2001:db8::{number:x}")
    with pytest.raises(BusyError):
        admission.strange("2001:db8::ffff:1")
    admission.strange("2001:db8:0:1::1")


def test_a_token_that_asks_too_often_is_told_when_to_come_back(
    fresh: Callable[..., Guarded],
) -> None:
    guarded = fresh(Limits(per_second=0.5, burst=3))
    token, other = guarded.token("admin"), guarded.token("admin")
    asked = [guarded.ask("GET", "/v1/streams", token=token) for _ in range(4)]
    assert [answer.status_code for answer in asked] == [200, 200, 200, 429]
    assert code_of(asked[-1]) == "BusyError"
    assert 1 <= int(asked[-1].headers["retry-after"]) <= 2
    assert guarded.ask("GET", "/v1/streams", token=other).status_code == 200


def test_what_is_forbidden_counts_as_asked(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh(Limits(per_second=0.01, burst=2))
    token = guarded.token("observe")
    asked = [guarded.ask("GET", "/v1/tokens", token=token).status_code for _ in range(3)]
    assert asked == [403, 403, 429]


def test_failed_logins_are_bounded_and_never_shut_out_who_is_known(
    fresh: Callable[..., Guarded],
) -> None:
    guarded = fresh(Limits(stranger_per_second=0.01, stranger_burst=2))
    asked = [guarded.client.get("/v1/streams") for _ in range(3)]
    assert [answer.status_code for answer in asked] == [401, 401, 429]
    assert int(asked[-1].headers["retry-after"]) >= 1
    assert guarded.ask("GET", "/v1/streams", "observe").status_code == 200
    assert guarded.client.get("/healthz").status_code == 200


def test_no_more_requests_are_answered_at_once_than_may_be(
    fresh: Callable[..., Guarded], monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = fresh(Limits(at_once=2))
    token, enough, go = guarded.token(), threading.Semaphore(0), threading.Event()
    whole = type(guarded.pyramid()).status

    def slow(store: Any) -> Any:
        enough.release()
        assert go.wait(PATIENCE)
        return whole(store)

    monkeypatch.setattr(type(guarded.pyramid()), "status", slow)
    found: list[int] = []

    def ask() -> None:
        found.append(guarded.ask("GET", f"/v1/streams/{STREAM}", token=token).status_code)

    with guarded.client:  # one loop for all
        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert enough.acquire(timeout=PATIENCE)
        refused = guarded.ask("GET", f"/v1/streams/{STREAM}/groups", token=token)
        go.set()
        for thread in threads:
            thread.join()
        after = guarded.ask("GET", f"/v1/streams/{STREAM}/groups", token=token)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert found == [200, 200]
    assert after.status_code == 200
    assert set(guarded.service.admission.answering.values()) == {0}


def test_bodies_together_take_no_more_memory_than_there_is_for_them(
    fresh: Callable[..., Guarded],
) -> None:
    guarded = fresh(Limits(held_bytes=1_000))
    body = arrow_bytes(rows(1_000, guarded.clock.now))
    answer = guarded.ask(
        "POST", f"/v1/streams/{STREAM}/observations", "observe", content=body, headers=ARROW_IN
    )
    assert (answer.status_code, code_of(answer)) == (429, "BusyError")
    assert guarded.service.admission.held == 0


def test_what_was_held_is_given_back_whatever_came_of_it(guarded: Guarded) -> None:
    for body in (b"{", b"[]", b'[{"t": 1}]', b"\xff"):
        guarded.ask("POST", f"/v1/streams/{STREAM}/observations", "observe", content=body)
        guarded.client.post(f"/v1/streams/{STREAM}/observations", content=body)
    assert guarded.service.admission.held == 0
    assert set(guarded.service.admission.answering.values()) == {0}


def repeated(one: bytes, size: int = 1 << 18) -> bytes:
    return b"[" + b",".join([one] * (size // (len(one) + 1))) + b"]"


def entries(number: int, value: bytes) -> bytes:
    return b"{" + b",".join(b'"%c":%s' % (97 + n, value) for n in range(number)) + b"}"


DOCUMENTS = {
    "rows": repeated(b'{"hour":7.25,"colour":"green","size":"xl","y":1}'),
    "short rows": repeated(b'{"":1}'),
    "empty rows": repeated(b"{}"),
    **{f"rows of {n}": repeated(entries(n, b"1.5")) for n in (1, 5, 6, 10, 11, 21, 22)},
    "rows of other names": b"["
    + b",".join(b'{"%x":1.5}' % n for n in range(65_536, 84_000))
    + b"]",
    "one row of many names": b"{"
    + b",".join(b'"%x":1.5' % n for n in range(65_536, 87_383))
    + b"}",
    "nested objects": repeated(b'{"":' * 200 + b"1" + b"}" * 200),
    "nested lists": repeated(b"[" * 200 + b"]" * 200),
    "lists": repeated(b"[]"),
    **{f"lists of {n}": repeated(b"[" + b",".join([b"1"] * n) + b"]") for n in (1, 2, 5, 9)},
    "fractions": repeated(b"0.5"),
    "whole numbers": repeated(b"1234"),
    "short texts": repeated(b'"ab"'),
    "texts": repeated('"\u00e9\u20ac"'.encode()),
    "wide texts": repeated('"\U0001f600aaaaaaaaaaaaaa"'.encode()),
    "escaped texts": repeated(b'"\\ud83d\\ude00aaaaaaaaa"'),
    "one text": b'"' + b"a" * (1 << 18) + b'"',
    "one wide text": b'"' + b"a" * (1 << 18) + '\U0001f600"'.encode(),
}


def traced(parse: Callable[[], object]) -> int:
    """The most memory that parsing takes at once."""
    tracemalloc.start()
    try:
        parse()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_json_takes_no_more_memory_than_it_is_counted_for(document: str) -> None:
    body = DOCUMENTS[document]
    bound = JsonMemory().add(body)
    # 4 KB for what the parser keeps itself.
    assert len(body) + traced(lambda: json_from(body, JSON)) <= bound + 4_096


@given(st.sampled_from(sorted(DOCUMENTS)), st.lists(st.integers(0, 1 << 18), max_size=5))
def test_json_in_parts_is_counted_as_a_whole(document: str, cuts: list[int]) -> None:
    body = DOCUMENTS[document]
    ends = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    memory = JsonMemory()
    assert sum(memory.add(body[a:b]) for a, b in pairwise(ends)) == JsonMemory().add(body)


def test_large_json_bodies_are_read_one_after_the_other(
    fresh: Callable[..., Guarded], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = json.dumps(told_rows(2_000, START)).encode()
    need = JsonMemory().add(many)
    guarded = fresh(Limits(held_bytes=2 * need - 1))
    read, reading, go_on = calls.rows_from, threading.Event(), threading.Event()

    def slowly(*given: Any) -> Any:
        if not reading.is_set():  # the first alone
            reading.set()
            go_on.wait(PATIENCE)
        return read(*given)

    monkeypatch.setattr(calls, "rows_from", slowly)
    path, token, answers = f"/v1/streams/{STREAM}/observations", guarded.token("observe"), []

    def send() -> None:
        answers.append(guarded.ask("POST", path, token=token, content=many))

    with guarded.client:
        first = threading.Thread(target=send)
        first.start()
        reading.wait(PATIENCE)
        held = guarded.service.admission.held
        refused = [guarded.ask("POST", path, token=token, content=many) for _ in range(3)]
        go_on.set()
        first.join()
        after = guarded.ask("POST", path, token=token, content=many)
    assert held == need
    told = [(each.status_code, each.headers.get("retry-after")) for each in refused]
    assert told == [(429, "1")] * 3
    assert [answers[0].status_code, after.status_code] == [200, 200]
    assert guarded.service.admission.held == 0


def test_json_that_never_fits_is_too_large(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh(Limits(held_bytes=1 << 20))
    nested = DOCUMENTS["nested objects"]
    answer = guarded.ask("POST", f"/v1/streams/{STREAM}/observations", "observe", content=nested)
    assert (answer.status_code, code_of(answer)) == (413, "TooLargeError")
    assert guarded.service.admission.held == 0


@pytest.mark.parametrize(
    "asked",
    [
        {"url": "/v1/" + "x" * 3_000},
        {"url": "/v1/streams?" + "x" * 9_000},
        {"url": "/v1/streams", "headers": {f"x-{n}": "y" for n in range(120)}},
        {"url": "/v1/streams", "headers": {"x": "y" * 40_000}},
    ],
    ids=["path", "query", "fields", "field"],
)
def test_fields_beyond_what_is_read_are_refused(guarded: Guarded, asked: dict[str, Any]) -> None:
    answer = guarded.client.get(**asked)
    assert (answer.status_code, code_of(answer)) == (431, "LongError")


def test_a_body_larger_than_allowed_is_refused_by_its_length_and_by_its_bytes(
    fresh: Callable[..., Guarded],
) -> None:
    guarded = fresh(Limits(body_bytes=1_000, json_bytes=500))
    path = f"/v1/streams/{STREAM}/observations"
    for size, kind in ((1_001, ARROW_IN), (501, {})):
        whole = guarded.ask("POST", path, "observe", content=b" " * size, headers=kind)
        parts = iter([b" " * 100] * (size // 100 + 1))
        chunked = guarded.ask("POST", path, "observe", content=parts, headers=kind)
        assert (whole.status_code, code_of(whole)) == (413, "TooLargeError")
        assert (chunked.status_code, code_of(chunked)) == (413, "TooLargeError")


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate", "identity, gzip", "x"])
def test_an_encoded_body_is_refused(guarded: Guarded, encoding: str) -> None:
    answer = guarded.ask(
        "POST",
        f"/v1/streams/{STREAM}/observations",
        "observe",
        content=b"[]",
        headers={"Content-Encoding": encoding},
    )
    assert (answer.status_code, code_of(answer)) == (415, "UnsupportedError")


def test_every_limit_says_what_it_bounds() -> None:
    source = bounds.__file__
    with open(source) as file:
        text = file.read()
    for name in Limits.__dataclass_fields__:
        _, _, after = text.partition(f"    {name}: ")
        assert after.split("\n")[1].strip().startswith('"""'), name
