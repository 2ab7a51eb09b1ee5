"""Rows in, features and training sets out, as JSON and as Arrow."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pyramidion import Categorical, Label, Schema
from tests.store.stores import rows
from tests.web.service.services import (
    ARROW_IN,
    ARROW_OUT,
    Inside,
    arrow_bytes,
    arrow_table,
    error_of,
    told_rows,
)
from tests.web.service.test_beginning import AS_CSV, csv_bytes

OBSERVATIONS = "/v1/streams/s/observations"
FEATURES = "/v1/streams/s/features"
TRAINING = "/v1/streams/s/training-set"


def hot_rows(inside: Inside, stream: str = "s") -> int:
    found = inside.service._streams[stream].pyramid.status().hot_rows
    assert found is not None
    return found


def test_rows_are_observed_as_a_list_an_object_or_arrow(inside: Inside) -> None:
    inside.create()
    caller, now = inside.caller("observe"), inside.clock.now
    listed = caller.post(OBSERVATIONS, json=told_rows(3, now))
    single = caller.post(OBSERVATIONS, json=told_rows(1, now)[0])
    arrow = caller.post(OBSERVATIONS, content=arrow_bytes(rows(5, now)), headers=ARROW_IN)
    told = [each.json() for each in (listed, single, arrow)]
    assert [each["accepted"] for each in told] == [3, 1, 5]
    assert all(each["refused"] == each["late"] == 0 for each in told)
    assert hot_rows(inside) == 9


def test_a_bad_row_refuses_the_request_and_says_which_one(inside: Inside) -> None:
    inside.create()
    caller = inside.caller("observe")
    given = told_rows(3, inside.clock.now)
    given[1]["y"] = "secret"
    answer = caller.post(OBSERVATIONS, json=given)
    assert error_of(answer) == (422, "ObservationError")
    assert [1] in answer.json()["error"]["problems"].values()
    assert "secret" not in answer.text
    assert hot_rows(inside) == 0


def test_bad_rows_are_left_out_when_asked(inside: Inside) -> None:
    inside.create()
    given = told_rows(3, inside.clock.now)
    given[1]["y"] = 7
    answer = inside.caller("observe").post(OBSERVATIONS, json=given, params={"errors": "skip"})
    assert (answer.json()["accepted"], answer.json()["refused"]) == (2, 1)


def test_rows_sent_again_under_their_key_are_counted_once(inside: Inside) -> None:
    inside.create()
    caller, given = inside.caller("observe"), told_rows(4, inside.clock.now)
    first = caller.post(OBSERVATIONS, json=given, headers={"Idempotency-Key": "k"})
    again = caller.post(OBSERVATIONS, json=given, headers={"Idempotency-Key": "k"})
    other = caller.post(OBSERVATIONS, json=given, headers={"Idempotency-Key": "l"})
    assert first.json() == again.json() == other.json()
    assert hot_rows(inside) == 8


def test_other_rows_under_a_used_key_are_refused(inside: Inside) -> None:
    inside.create()
    caller, now = inside.caller("observe"), inside.clock.now
    headers = {"Idempotency-Key": "k"}
    assert caller.post(OBSERVATIONS, json=told_rows(4, now), headers=headers).status_code == 200
    answer = caller.post(OBSERVATIONS, json=told_rows(3, now), headers=headers)
    assert error_of(answer) == (409, "StateError")
    assert "this idempotency key came with other rows" in answer.json()["error"]["message"]
    large = told_rows(1_000, now)  # is read in a thread
    assert error_of(caller.post(OBSERVATIONS, json=large, headers=headers)) == (409, "StateError")
    assert hot_rows(inside) == 4


def test_key_of_another_token_is_another_key(inside: Inside) -> None:
    inside.create()
    headers, now = {"Idempotency-Key": "k"}, inside.clock.now
    for _ in range(2):
        for caller, size in ((inside.caller("observe"), 4), (inside.caller("observe"), 5)):
            for _ in range(2):
                answer = caller.post(OBSERVATIONS, json=told_rows(size, now), headers=headers)
                assert answer.json()["accepted"] == size
    assert hot_rows(inside) == 18


def test_parts_of_another_file_under_a_used_key_are_refused(inside: Inside) -> None:
    inside.create(count_window="4 rows", hot_rows=100)
    caller, headers = inside.caller("observe"), AS_CSV | {"Idempotency-Key": "k"}
    bodies = [csv_bytes(rows(9, inside.clock.now, seed=seed)) for seed in (1, 2)]
    statuses = [
        caller.post(OBSERVATIONS, content=body, headers=headers).status_code
        for body in (*bodies, bodies[0])
    ]
    assert statuses == [200, 409, 200]
    assert hot_rows(inside) == 9


@pytest.mark.parametrize(
    ("body", "headers", "refused"),
    [
        (b"{", {}, (422, "FormatError")),
        (b"[1]", {}, (422, "ObservationError")),
        (b"x", ARROW_IN, (422, "FormatError")),
        (arrow_bytes(rows(9))[:-9], ARROW_IN, (422, "FormatError")),
        (b"a=1", {"Content-Type": "text/plain"}, (415, "UnsupportedError")),
    ],
    ids=["cut JSON", "no objects", "no Arrow", "cut Arrow", "another type"],
)
def test_a_body_that_holds_no_rows_is_refused(
    shared: Inside, body: bytes, headers: dict[str, str], refused: tuple[int, str]
) -> None:
    before = hot_rows(shared)
    answer = shared.caller("observe").post(OBSERVATIONS, content=body, headers=headers)
    assert error_of(answer) == refused
    assert hot_rows(shared) == before


def test_features_over_http_are_those_of_the_store(shared: Inside) -> None:
    store = shared.service._streams["s"].pyramid
    given = rows(7, shared.clock.now, seed=9)
    wanted = np.asarray(store.snapshot().array(given))
    told = shared.caller("predict").post(FEATURES, json=given.to_pylist()).json()
    assert told["names"] == store.snapshot().names
    assert np.array_equal(np.array(told["rows"], dtype=np.float32), wanted)
    assert told["guarantee"]["level"] == "P2"


def test_features_are_told_as_arrow_to_who_wants_it(shared: Inside) -> None:
    store = shared.service._streams["s"].pyramid
    given = rows(7, shared.clock.now, seed=9)
    answer = shared.caller("train").post(
        FEATURES, content=arrow_bytes(given), headers=ARROW_IN | ARROW_OUT
    )
    found = arrow_table(answer.content)
    assert found.equals(store.featurize(given))
    assert b"pyramidion.guarantee" in found.schema.metadata


def test_features_of_a_stream_without_tables_are_refused(inside: Inside) -> None:
    inside.create()
    answer = inside.caller("predict").post(FEATURES, json={"a": "1", "b": "x"})
    assert error_of(answer) == (409, "StateError")


def test_a_training_set_comes_as_json_lines_or_arrow(shared: Inside) -> None:
    store, caller = shared.service._streams["s"].pyramid, shared.caller("train")
    X, y = store.training_set()
    names = [*store.snapshot().names, "y"]
    lines = [json.loads(line) for line in caller.get(TRAINING).text.splitlines()]
    table = arrow_table(caller.get(TRAINING, headers=ARROW_OUT).content)
    assert all(list(line) == names for line in lines)
    assert [line["y"] for line in lines] == list(y)
    assert table.column_names == names
    assert np.array_equal(np.column_stack([table[name] for name in names[:-1]]), np.asarray(X))


def test_a_training_set_can_leave_tables_out_and_merge_classes(inside: Inside) -> None:
    schema = Schema(
        time="t",
        label=Label("y", classes=[0, 1, 2]),
        features=[Categorical("a"), Categorical("b")],
        groups=[("a", "b")],
    )
    inside.create(schema=schema)
    inside.fill()
    caller = inside.caller("train")

    def columns(**query: str) -> tuple[list[str], set[str]]:
        table = arrow_table(caller.get(TRAINING, params=query, headers=ARROW_OUT).content)
        return table.column_names, {str(value) for value in table["y"].to_pylist()}

    merged = columns(without="b", merge='{"some": [1, 2], "none": [0]}')
    assert merged == (["P(y=0|a)", "P(y=1|a)", "P(y=2|a)", "y"], {"some", "none"})
    group = caller.get(TRAINING, params={"only": "a,b"}, headers=ARROW_OUT)
    assert arrow_table(group.content).num_columns == 7  # three chances, three surpluses, y
    both = arrow_table(caller.get(f"{TRAINING}?only=a&only=b", headers=ARROW_OUT).content)
    assert both.num_columns == 7


@pytest.mark.parametrize("query", ["only=nix", "without=nix", "merge=x", "merge=[1]", "label=nix"])
def test_a_training_set_of_nothing_known_is_refused(shared: Inside, query: str) -> None:
    answer = shared.caller("train").get(f"{TRAINING}?{query}")
    assert answer.status_code == 422
    error_of(answer)


def test_who_reads_raw_rows_is_in_the_audit_log_before_the_first(shared: Inside) -> None:
    store = shared.service._streams["s"].pyramid
    before = len([e for e in store.audit_log.entries() if e.kind == "rows.read"])
    shared.caller("train").get(TRAINING)
    read = [e for e in store.audit_log.entries() if e.kind == "rows.read"]
    assert len(read) == before + 1
    assert read[-1].facts["by"] == "test"


def test_a_training_set_without_hot_rows_is_refused(inside: Inside) -> None:
    inside.create()
    answer = inside.caller("train").get(TRAINING)
    assert error_of(answer) == (409, "StateError")
