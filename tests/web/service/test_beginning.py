"""How a stream begins over HTTP: a draft, a plan, rows as CSV, estimators to choose from."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import jsonschema_rs
import pyarrow as pa
import pytest
from pyarrow import csv

from pyramidion.cli.program import main
from pyramidion.config.schema import Categorical, Label, Schema
from pyramidion.errors import BusyError, FormatError, TooLargeError
from pyramidion.learn.choices import CHOICES
from pyramidion.learn.estimators import estimator_named
from pyramidion.rows.draft import draft
from pyramidion.storage.hot import Receipt
from pyramidion.store.batching import Arrival
from pyramidion.web.bodies import CSV, TOML
from pyramidion.web.limits import Limits
from pyramidion.web.service.csv_bodies import draft_from
from pyramidion.web.service.routes_admin import _one_by_one
from pyramidion.web.service.schema_files import schema_file
from tests.store.stores import rows
from tests.web.service.services import Inside, error_of

AS_CSV = {"Content-Type": CSV}
AS_TOML = {"Content-Type": TOML}
STREAM = "/v1/streams/s"
SAMPLE = b"time,shop,price,bought\n2024-05-01T08:00:00,Zq7north,1.5,true\n,Zq7south,2.5,false\n"
SCHEMA = Schema(
    features=[Categorical("shop"), Categorical("item")], label=Label("y", classes=[0, 1])
)


def csv_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    csv.write_csv(table, sink)
    return sink.getvalue()


# --- drafts ---------------------------------------------------------------------------------


def test_a_draft_is_that_of_the_command_line(shared: Inside, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(SAMPLE)
    told = shared.caller("admin").post("/v1/drafts", content=SAMPLE, headers=AS_CSV).json()
    body = told["toml"].partition("\n")[2]
    assert body == draft(tmp_path / "rows.csv").partition("\n")[2]
    assert told["schema"] == Schema.from_toml(told["toml"]).to_dict()
    lines = told["toml"].splitlines()
    assert told["changes"] == [n for n, line in enumerate(lines, 1) if "CHANGE:" in line]


def test_a_draft_has_no_value_of_the_rows_in_it(shared: Inside) -> None:
    answer = shared.caller("admin").post("/v1/drafts", content=SAMPLE, headers=AS_CSV)
    assert answer.status_code == 200
    assert "Zq7" not in answer.text
    assert "1.5" not in answer.text


def test_a_draft_is_told_as_a_file_to_who_wants_one(shared: Inside) -> None:
    headers = AS_CSV | {"Accept": TOML}
    answer = shared.caller("admin").post("/v1/drafts", content=SAMPLE, headers=headers)
    assert answer.headers["content-type"].startswith(TOML)
    assert tomllib.loads(answer.text)["label"]["name"] == "bought"


def test_a_draft_leaves_nothing_behind(shared: Inside) -> None:
    before = {path: path.stat().st_size for path in shared.data.rglob("*") if path.is_file()}
    shared.caller("admin").post("/v1/drafts", content=SAMPLE, headers=AS_CSV)
    for path in shared.data.rglob("*"):
        if path.is_file():
            assert b"Zq7" not in path.read_bytes()
    assert before.keys() <= {path for path in shared.data.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", (422, "FormatError")),
        (b"a,b\n1\n", (422, "FormatError")),
        (b"Zq7,Zq7\n1,2\n", (422, "FormatError")),
        (b"CHANGE_ME,b\n1,2\n", (422, "FormatError")),
        (b"," * 5_000 + b"\n", (413, "TooLargeError")),
        (b'a"' + b"," * 5_000 + b"\n", (413, "TooLargeError")),
        (b'"\n\r",' * 5_000 + b"\n", (413, "TooLargeError")),
        (b'"a""b"x,' * 5_000 + b"\n", (413, "TooLargeError")),
        (b"a" * (1 << 20) + b"b", (413, "TooLargeError")),
    ],
)
def test_what_no_schema_can_be_drafted_for_is_refused_without_a_name(
    shared: Inside, body: bytes, code: tuple[int, str]
) -> None:
    answer = shared.caller("admin").post("/v1/drafts", content=body, headers=AS_CSV)
    assert error_of(answer) == code
    assert "Zq7" not in answer.text


def test_commas_in_quotes_and_rows_are_not_columns(shared: Inside) -> None:
    wide = b'"' + b"," * 5_000 + b'",label\n' + b'"' + b"," * 5_000 + b'",1\n'
    answer = shared.caller("admin").post("/v1/drafts", content=wide, headers=AS_CSV)
    assert answer.status_code == 200


def test_a_draft_is_made_for_csv_alone(shared: Inside) -> None:
    answer = shared.caller("admin").post("/v1/drafts", json={})
    assert error_of(answer) == (415, "UnsupportedError")


# --- plans ----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{"epsilon": "1"}, {"target": "0.2", "distinct": "item=50"}])
def test_a_plan_is_that_of_the_command_line(
    shared: Inside, tmp_path: Path, asked: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = f'{SCHEMA.to_toml()}\n[settings]\nepsilon = 9.0\ncount_window = "500 rows"\n'
    file = tmp_path / "schema.toml"
    file.write_text(text)
    words = [word for name, value in asked.items() for word in (f"--{name}", value)]
    capsys.readouterr()
    assert main(["plan", str(file), "--rows", "5000", *words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    admin = shared.caller("admin")
    query = {"rows": "5000", **asked}
    told = admin.post("/v1/plans", params=query, content=text, headers=AS_TOML)
    assert told.json() == printed
    as_json = {"schema": SCHEMA.to_toml(), "settings": {"count_window": "500 rows"}}
    assert admin.post("/v1/plans", params=query, json=as_json).json() == printed


def test_a_plan_as_a_file_makes_a_stream_as_it_stands(inside: Inside) -> None:
    admin = inside.caller("admin")
    text = f'{SCHEMA.to_toml()}\n[settings]\ncount_window = "500 rows"\n'
    headers = AS_TOML | {"Accept": TOML}
    query = {"rows": "500", "epsilon": "2"}
    planned = admin.post("/v1/plans", params=query, content=text, headers=headers)
    assert planned.headers["content-type"].startswith(TOML)
    made = admin.put(STREAM, content=planned.content, headers=AS_TOML)
    assert made.status_code == 201, made.text
    settings = inside.service._streams["s"].pyramid.settings
    assert (settings.epsilon, settings.window_rows) == (2.0, 500)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ({}, "rows"),
        ({"rows": "5000"}, "epsilon"),
        ({"rows": "many", "epsilon": "1"}, "rows"),
        ({"rows": "0", "epsilon": "1"}, "rows"),
        ({"rows": "5000", "epsilon": "-1"}, "epsilon"),
        ({"rows": "5000", "epsilon": "nan"}, "epsilon"),
        ({"rows": "5000", "epsilon": "1", "target": "0.1"}, "not both"),
        ({"rows": "5000", "epsilon": "1", "distinct": "nix=3"}, "nix"),
        ({"rows": "5000", "epsilon": "1", "distinct": "item"}, "distinct"),
        ({"rows": "5000", "epsilon": "1", "memory": "1"}, "memory"),
        ({"rows": "5000", "epsilon": "1", "skew": "-9"}, "skew"),
        ({"rows": "5000", "target": "1e-9", "memory": "20000"}, "raise the target"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(
    shared: Inside, query: dict[str, str], word: str
) -> None:
    body = {"schema": SCHEMA.to_toml()}
    answer = shared.caller("admin").post("/v1/plans", params=query, json=body)
    assert error_of(answer)[0] == 422
    assert word in answer.json()["error"]["message"]


def test_where_a_schema_is_no_toml_is_said_and_not_what_stands_there(shared: Inside) -> None:
    body, query = "[label]\nname = Zq7\n", {"rows": "5000", "epsilon": "1"}
    answer = shared.caller("admin").post("/v1/plans", params=query, content=body, headers=AS_TOML)
    assert error_of(answer) == (422, "FormatError")
    assert "line 2, column 8" in answer.json()["error"]["message"]
    assert "Zq7" not in answer.text


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 200 + " = 1",
        "[" + "a." * 200 + "a]",
        '"a b"' + ' . "a b"' * 200 + " = 1",
        "x = {a" + ".'a'" * 200 + " = 1}",
        'x = {y = """ " \' """, ' + "a." * 200 + "a = 1}",
        'x = 1 # """\n' + "a." * 200 + "a = 1",
        'x = """\n \'"""\n' + "a." * 200 + "a = 1",
    ],
)
def test_deep_key_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="more than 4 parts"):
        schema_file(text.encode(), TOML)


@pytest.mark.parametrize("quote", ["'", '"', "'''", '"""'])
def test_text_with_points_is_no_deep_key(quote: str) -> None:
    text = f"x = {quote}{'a.' * 200}{quote} # {'a.' * 200}"
    assert schema_file(text.encode(), TOML) == {"x": "a." * 200}


def test_long_texts_take_linear_time() -> None:
    # A reader that takes the square of a megabyte would take an hour; all of these take seconds.
    subprocess.run([sys.executable, "-m", "tests.web.service.long_texts"], check=True, timeout=300)


def test_a_schema_with_many_points_is_read() -> None:
    text = (
        f"values = {[f'10.0.0.{n}' for n in range(200)]}\nedges = {[n / 7 for n in range(200)]}\n"
    )
    assert len(schema_file(text.encode(), TOML)["values"]) == 200


@pytest.mark.parametrize("before", [b"", b"\n", b"\r\n\r\n", b"\xef\xbb\xbf\n"])
def test_columns_are_counted_whatever_lines_stand_before_them(before: bytes) -> None:
    with pytest.raises(TooLargeError, match="columns"):
        draft_from(before + b"a" + b",b" * 10_000 + b"\n", Limits())


def test_a_plan_for_more_tables_than_may_be_is_refused(shared: Inside) -> None:
    wide = Schema(
        features=[Categorical(f"f{n}") for n in range(Limits().plan_tables + 1)],
        label=Label("y", classes=[0, 1]),
    )
    query = {"rows": "5000", "epsilon": "1"}
    answer = shared.caller("admin").post("/v1/plans", params=query, json={"schema": wide.to_toml()})
    assert error_of(answer) == (413, "TooLargeError")


def test_a_plan_for_an_error_is_made_for_fewer_tables(shared: Inside) -> None:
    wide = Schema(
        features=[Categorical(f"f{n}") for n in range(Limits().target_tables + 1)],
        label=Label("y", classes=[0, 1]),
    )
    query = {"rows": "5000", "target": "0.1"}
    answer = shared.caller("admin").post("/v1/plans", params=query, json={"schema": wide.to_toml()})
    assert error_of(answer) == (413, "TooLargeError")


def test_two_plans_are_made_at_once_and_who_asks_for_a_third_comes_back(shared: Inside) -> None:
    query, told = {"rows": "5000", "epsilon": "1"}, {"schema": SCHEMA.to_toml()}
    caller = shared.caller("admin")
    with _one_by_one():
        assert caller.post("/v1/plans", params=query, json=told).status_code == 200
        with _one_by_one():
            answer = caller.post("/v1/plans", params=query, json=told)
            assert error_of(answer) == (429, "BusyError")
            assert int(answer.headers["retry-after"]) > 0
    assert caller.post("/v1/plans", params=query, json=told).status_code == 200


# --- rows as CSV ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    made = Inside(tmp_path_factory.mktemp("counted"))
    made.create()
    made.fill()
    yield made
    made.close()


def test_rows_of_csv_are_observed_once_under_a_key(counted: Inside) -> None:
    caller = counted.caller()
    before = caller.get(STREAM).json()["hot_rows"]
    body = csv_bytes(rows(7, counted.clock.now, seed=5))
    headers = AS_CSV | {"Idempotency-Key": "once"}
    for _ in range(2):
        answer = caller.post(f"{STREAM}/observations", content=body, headers=headers)
        assert answer.json() == {"accepted": 7, "refused": 0, "late": 0}
    assert caller.get(STREAM).json()["hot_rows"] == before + 7


def test_features_and_predictions_of_csv_are_those_of_json(counted: Inside) -> None:
    caller = counted.caller()
    caller.put(f"{STREAM}/models/m", json={"estimator": "LogisticRegression"})
    table = rows(9, counted.clock.now, seed=6).select(["a", "b"])
    for path in ("features", "models/m/predictions"):
        as_csv = caller.post(f"{STREAM}/{path}", content=csv_bytes(table), headers=AS_CSV)
        as_json = caller.post(f"{STREAM}/{path}", json=table.to_pylist())
        assert as_csv.status_code == 200, as_csv.text
        assert as_csv.json() == as_json.json()


def test_a_header_alone_brings_no_rows(counted: Inside) -> None:
    body = csv_bytes(rows(1, counted.clock.now)).partition(b"\n")[0]
    answer = counted.caller().post(f"{STREAM}/observations", content=body, headers=AS_CSV)
    assert answer.json()["accepted"] == 0


def test_a_bad_row_is_told_by_its_number_or_skipped(counted: Inside) -> None:
    caller = counted.caller()
    body = csv_bytes(rows(3, counted.clock.now)) + csv_bytes(rows(1, 9e9)).partition(b"\n")[2]
    answer = caller.post(f"{STREAM}/observations", content=body, headers=AS_CSV)
    assert error_of(answer) == (422, "ObservationError")
    assert list(answer.json()["error"]["problems"].values()) == [[3]]
    query = {"errors": "skip"}
    answer = caller.post(f"{STREAM}/observations", params=query, content=body, headers=AS_CSV)
    assert (answer.json()["accepted"], answer.json()["refused"]) == (3, 1)


def test_csv_of_more_rows_than_a_window_takes_is_taken_in_parts(inside: Inside) -> None:
    inside.create(count_window="4 rows", hot_rows=100)
    caller, now = inside.caller(), inside.clock.now
    body, late = csv_bytes(rows(9, now)), csv_bytes(rows(1, 9e9)).partition(b"\n")[2]
    headers = AS_CSV | {"Idempotency-Key": "file"}
    answer = caller.post(f"{STREAM}/observations", content=body + late, headers=headers)
    assert error_of(answer) == (422, "ObservationError")
    assert "the first 8 rows are in" in answer.json()["error"]["message"]
    assert list(answer.json()["error"]["problems"].values()) == [[9]]
    answer = caller.post(f"{STREAM}/observations", content=body, headers=headers)
    assert answer.json() == {"accepted": 9, "refused": 0, "late": 0}
    assert caller.get(STREAM).json()["hot_rows"] == 9


def test_once_parts_of_a_file_are_in_a_full_queue_is_waited_for(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside.create(count_window="4 rows", hot_rows=100)
    stream, parts = inside.service._streams["s"], list[str]()
    real = stream.observe

    def full(arrival: Arrival, number: int, size: int) -> Future[Receipt]:
        parts.append("full" if len(parts) in (0, 2) else "in")
        if parts[-1] == "full":
            raise BusyError("too much waits already; come back", retry_after=0)
        return real(arrival, number, size)

    monkeypatch.setattr(stream, "observe", full)
    body = csv_bytes(rows(9, inside.clock.now))
    ask = partial(inside.caller().post, f"{STREAM}/observations", content=body, headers=AS_CSV)
    assert error_of(ask()) == (429, "BusyError")  # nothing is in yet
    assert ask().json()["accepted"] == 9
    assert parts == ["full", "in", "full", "in", "in"]


def test_the_schema_of_a_stream_is_told(shared: Inside) -> None:
    told = shared.caller("observe").get(f"{STREAM}/schema").json()
    store = shared.service._streams["s"].pyramid
    assert Schema.from_dict(told["schema"]) == store.schema
    assert told["settings"]["epsilon"] == store.settings.epsilon


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "cannot be read"),
        (b"t,y,a\n1,1,q\n", "no column 'b'"),
        (b"t,y,a,a,b\n1,1,q,q,x\n", "two columns called 'a'"),
        (b"t,y,a,b\n1,Zq7,q,x\n", "column 'y'"),
        (b"t,y,a,b\n1,1,q\n", "cannot be read"),
        (b"\xff,y,a,b\n1,1,q,x\n", "cannot be read"),
    ],
)
def test_csv_that_does_not_fit_is_refused_in_a_sentence(
    counted: Inside, body: bytes, word: str
) -> None:
    answer = counted.caller().post(f"{STREAM}/observations", content=body, headers=AS_CSV)
    assert error_of(answer) == (422, "ObservationError")
    assert word in answer.json()["error"]["message"]
    assert "Zq7" not in answer.text


def test_csv_has_the_limits_of_other_bodies(tmp_path: Path) -> None:
    inside = Inside(tmp_path, Limits(rows=5, columns=6))
    try:
        inside.create()
        caller = inside.caller()
        many = csv_bytes(rows(6, inside.clock.now))
        wide = b"t,y,a,b,c,d,e\n1,1,q,x,,,\n"
        for body in (many, wide):
            answer = caller.post(f"{STREAM}/observations", content=body, headers=AS_CSV)
            assert error_of(answer) == (413, "TooLargeError")
    finally:
        inside.close()


# --- estimators -----------------------------------------------------------------------------


def test_every_estimator_that_is_told_can_be_registered(shared: Inside) -> None:
    caller = shared.caller()
    told = caller.get("/v1/estimators").json()["estimators"]
    assert [each["estimator"] for each in told] == [choice.estimator for choice in CHOICES]
    for each in told:
        assert each["installed"]
        made = estimator_named(each["estimator"], each["params"])
        assert hasattr(made, "predict_proba") == (each["predicts"] == "probabilities")
    first = {"estimator": told[0]["estimator"], "params": told[0]["params"]}
    assert caller.put(f"{STREAM}/models/first", json=first).json()["available"]


def test_answers_have_the_shapes_that_the_document_says(shared: Inside) -> None:
    caller = shared.caller()
    components = caller.get("/openapi.json").json()["components"]
    plan = {"rows": 100, "epsilon": 1}
    answers = {
        "Schema": caller.get(f"{STREAM}/schema").json(),
        "Draft": caller.post("/v1/drafts", content=SAMPLE, headers=AS_CSV).json(),
        "Plan": caller.post("/v1/plans", params=plan, json={"schema": SCHEMA.to_toml()}).json(),
        "Estimator": caller.get("/v1/estimators").json()["estimators"][0],
    }
    for name, answer in answers.items():
        shape = {"$ref": f"#/components/schemas/{name}", "components": components}
        jsonschema_rs.validate(shape, answer)
