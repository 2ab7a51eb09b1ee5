"""Models over HTTP: registered, listed, trained again, forgotten, asked."""

from __future__ import annotations

import numpy as np
import pytest

from pyramidion.web.service.routes_models import is_fast
from tests.store.stores import DAY, rows
from tests.web.service.services import (
    ARROW_IN,
    ARROW_OUT,
    Inside,
    arrow_bytes,
    arrow_table,
    error_of,
    told_rows,
)

MODELS = "/v1/streams/s/models"


@pytest.fixture(scope="module")
def modelled(shared: Inside) -> Inside:
    """The shared service, with a classifier and a model without probabilities."""
    caller = shared.caller("train")
    made = caller.put(f"{MODELS}/m", json={"estimator": "LogisticRegression"})
    assert made.status_code == 200, made.text
    hard = caller.put(f"{MODELS}/hard", json={"estimator": "RidgeClassifier"})
    assert hard.status_code == 200, hard.text
    return shared


def test_a_model_is_told_with_its_recipe_and_state(modelled: Inside) -> None:
    caller = modelled.caller("predict")
    told = caller.get(f"{MODELS}/m").json()
    assert told["name"] == "m"
    assert told["available"]
    assert told["classes"] == [0, 1]
    assert told in caller.get(MODELS).json()["models"]


def test_what_a_model_learned_from_is_for_trainers(modelled: Inside) -> None:
    shown = [modelled.caller(role).get(f"{MODELS}/m").json() for role in ("train", "predict")]
    names = ("why", "rows", "trained", "took")
    assert [shown[0][name] for name in names[:2]] == ["", 200]
    assert all(shown[1][name] is None for name in names)
    assert {n: v for n, v in shown[0].items() if n not in names}.items() <= shown[1].items()


def test_why_a_model_is_unavailable_is_for_trainers(inside: Inside) -> None:
    inside.create()
    inside.fill()
    inside.caller("train").put(f"{MODELS}/m", json={"estimator": "LogisticRegression"})
    inside.clock.pass_(4 * DAY)
    inside.service._streams["s"].pyramid.advance()
    row = rows(1, inside.clock.now).drop_columns(["y"]).to_pylist()
    for method, path, given in (
        ("GET", "export", {}),
        ("POST", "predictions", {"json": row}),
    ):
        told = {
            roles: inside.caller(*roles).request(method, f"{MODELS}/m/{path}", **given).json()
            for roles in (("predict",), ("predict", "train"))
        }
        messages = [each["error"]["message"] for each in told.values()]
        assert messages[0] == "model 'm' is unavailable; a token with the role train is told why"
        assert "the hot window is empty" in messages[1]


def test_predictions_over_http_are_those_of_the_store(modelled: Inside) -> None:
    store, caller = modelled.service._streams["s"].pyramid, modelled.caller("predict")
    given = rows(9, modelled.clock.now, seed=5).drop_columns(["y"])
    wanted = np.asarray(store.predict_proba("m", given))
    address = f"{MODELS}/m/predictions"
    many = caller.post(address, json=given.to_pylist()).json()
    arrow = caller.post(address, content=arrow_bytes(given), headers=ARROW_IN).json()
    single = [caller.post(address, json=row).json() for row in given.to_pylist()]
    assert many["model"] == "m"
    assert many["classes"] == [0, 1]
    assert np.allclose(many["probabilities"], wanted, atol=1e-6)
    assert np.allclose(arrow["probabilities"], wanted, atol=1e-6)
    assert np.allclose([each["probabilities"][0] for each in single], wanted, atol=1e-6)


def test_predictions_say_which_version_they_are_of(modelled: Inside) -> None:
    caller = modelled.caller("predict")
    version = caller.get(f"{MODELS}/m").json()["version"]
    assert version > 0
    row = {"a": "1", "b": "x"}
    for body in (row, [row]):
        assert caller.post(f"{MODELS}/m/predictions", json=body).json()["version"] == version


def test_a_model_that_takes_long_answers_a_row_as_the_store_does(modelled: Inside) -> None:
    store, caller = modelled.service._streams["s"].pyramid, modelled.caller("train", "predict")
    caller.put(f"{MODELS}/trees", json={"estimator": "RandomForestClassifier"})
    row = {"a": "1", "b": "x"}
    told = caller.post(f"{MODELS}/trees/predictions", json=row).json()["probabilities"]
    assert np.allclose(told, store.predict_proba("trees", [row]), atol=1e-6)
    assert not is_fast(store.models["trees"])
    assert is_fast(store.models["m"])


def test_features_that_are_ready_made_are_predicted_as_their_row(modelled: Inside) -> None:
    caller, row = modelled.caller("predict"), {"a": "1", "b": "x"}
    vector = caller.post("/v1/streams/s/features", json=row).json()["rows"][0]
    address = f"{MODELS}/m/predictions"
    told = caller.post(address, json={"features": vector}).json()
    assert np.allclose(
        told["probabilities"], caller.post(address, json=row).json()["probabilities"], atol=1e-6
    )


@pytest.mark.parametrize("vector", [[], [1.0], ["1", "2", "3"], [None] * 3, "x", [[1.0]]])
def test_a_vector_of_the_wrong_shape_is_refused(modelled: Inside, vector: object) -> None:
    caller = modelled.caller("predict")
    answer = caller.post(f"{MODELS}/m/predictions", json={"features": vector})
    assert answer.status_code == 422
    error_of(answer)


KINDS = {
    "LogisticRegression": {},
    "RandomForestClassifier": {"n_estimators": 3},
    "GaussianNB": {},
    "KNeighborsClassifier": {},
    "Pipeline": {
        "steps": [["scale", {"class": "StandardScaler"}], ["nb", {"class": "GaussianNB"}]]
    },
}


@pytest.fixture(scope="module")
def kinds(modelled: Inside) -> Inside:
    """The shared service, with a model of each kind."""
    caller = modelled.caller("train")
    for kind, params in KINDS.items():
        made = caller.put(f"{MODELS}/{kind}", json={"estimator": kind, "params": params})
        assert made.status_code == 200, made.text
    return modelled


@pytest.mark.parametrize("kind", KINDS)
def test_a_feature_that_is_no_number_of_32_bits_is_refused_by_every_model(
    kinds: Inside, kind: str
) -> None:
    caller = kinds.caller("predict")
    for number in (1e39, -1e39, 1e308, 3.5e38):
        answer = caller.post(f"{MODELS}/{kind}/predictions", json={"features": [number, 1, 1, 1]})
        assert error_of(answer) == (422, "FormatError")
        assert "32 bits" in answer.text
        assert str(number) not in answer.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_finds_no_number_says_so(kinds: Inside, kind: str) -> None:
    caller = kinds.caller("predict")
    for number in (3e38, -3e38, 1e30, 1e-45):
        answer = caller.post(f"{MODELS}/{kind}/predictions", json={"features": [number] * 4})
        if answer.status_code == 200:
            # Logarithms of 1e60 have few digits left for a sum.
            assert sum(answer.json()["probabilities"][0]) == pytest.approx(1.0, abs=1e-3)
        else:
            assert error_of(answer) == (409, "StateError")
            assert "finds no number" in answer.text


def test_naive_bayes_finds_no_number_far_from_all_it_learned(kinds: Inside) -> None:
    answer = kinds.caller("predict").post(
        f"{MODELS}/GaussianNB/predictions", json={"features": [3e38] * 4}
    )
    assert error_of(answer) == (409, "StateError")


def test_a_model_without_probabilities_tells_classes(modelled: Inside) -> None:
    store, caller = modelled.service._streams["s"].pyramid, modelled.caller("predict")
    given = rows(9, modelled.clock.now, seed=5).drop_columns(["y"])
    told = caller.post(f"{MODELS}/hard/predictions", json=given.to_pylist()).json()
    assert told["predictions"] == list(store.predict("hard", given))
    single = caller.post(f"{MODELS}/hard/predictions", json=given.to_pylist()[0]).json()
    assert single["predictions"] == told["predictions"][:1]


def test_predictions_are_told_as_arrow_to_who_wants_it(modelled: Inside) -> None:
    store, caller = modelled.service._streams["s"].pyramid, modelled.caller("predict")
    given = rows(9, modelled.clock.now, seed=5).drop_columns(["y"])
    headers = ARROW_IN | ARROW_OUT
    address = f"{MODELS}/m/predictions"
    table = arrow_table(caller.post(address, content=arrow_bytes(given), headers=headers).content)
    assert table.column_names == ["P(y=0)", "P(y=1)"]
    wanted = np.asarray(store.predict_proba("m", given))
    assert np.allclose(np.column_stack([table[0], table[1]]), wanted, atol=1e-6)
    hard = caller.post(f"{MODELS}/hard/predictions", json=given.to_pylist(), headers=ARROW_OUT)
    assert arrow_table(hard.content)["y"].to_pylist() == list(store.predict("hard", given))


def test_the_loss_of_a_model_stands_beside_the_priors(modelled: Inside) -> None:
    store = modelled.service._streams["s"].pyramid
    told = modelled.caller("train").get(f"{MODELS}/m/loss").json()
    found = store.models.loss("m")
    assert (told["loss"], told["prior"], told["tested"]) == (found.model, found.prior, found.tested)
    assert told["guarantee"]["level"] == "P1"


def test_a_row_that_cannot_be_read_is_refused_alike_alone_and_in_a_list(modelled: Inside) -> None:
    caller, address = modelled.caller("predict"), f"{MODELS}/m/predictions"
    for row in ({"a": "1"}, {"a": ["secret"], "b": "x"}):
        for body in (row, [row]):
            answer = caller.post(address, json=body)
            assert error_of(answer) == (422, "ObservationError")
            assert "secret" not in answer.text


def test_a_model_that_is_not_there_is_missing(modelled: Inside) -> None:
    caller = modelled.caller()
    answers = [
        caller.get(f"{MODELS}/nix"),
        caller.delete(f"{MODELS}/nix"),
        caller.post(f"{MODELS}/nix/retrain"),
        caller.post(f"{MODELS}/nix/predictions", json=told_rows(1, 0.0)),
    ]
    assert {error_of(answer) for answer in answers} == {(404, "MissingError")}


def test_a_model_is_trained_again_and_forgotten(inside: Inside) -> None:
    inside.create()
    inside.fill()
    caller = inside.caller("train", "predict")
    caller.put(f"{MODELS}/m", json={"estimator": "LogisticRegression", "params": {"C": 0.5}})
    before = caller.get(f"{MODELS}/m").json()
    inside.clock.pass_(60)
    after = caller.post(f"{MODELS}/m/retrain").json()
    assert after["trained"] > before["trained"]
    assert after["estimator"]["params"] == {"C": 0.5}
    assert caller.delete(f"{MODELS}/m").json() == {"removed": "m"}
    assert caller.get(MODELS).json() == {"models": []}


def test_a_model_goes_when_its_rows_leave(inside: Inside) -> None:
    inside.create()
    inside.fill()
    caller = inside.caller()
    caller.put(f"{MODELS}/m", json={"estimator": "LogisticRegression"})
    inside.clock.pass_(5 * DAY)
    caller.post("/v1/streams/s/advance")
    assert not caller.get(f"{MODELS}/m").json()["available"]
    answer = caller.post(f"{MODELS}/m/predictions", json={"a": "1", "b": "x"})
    assert error_of(answer) == (409, "StateError")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"estimator": 1},
        {"estimator": "nix"},
        {"estimator": "os.system"},
        {"estimator": "LogisticRegression", "params": {"nix": 1}},
        {"estimator": "LogisticRegression", "params": {"C": "high"}},
        {"estimator": "LogisticRegression", "nix": 1},
        {"estimator": "LogisticRegression", "only": "x"},
        {"estimator": "LogisticRegression", "only": 5},
        {"estimator": "LogisticRegression", "without": {"a": 1}},
        {"estimator": "LogisticRegression", "merge": [1]},
        {"estimator": "LogisticRegression", "merge": {"1": 5}},
        {"estimator": "LogisticRegression", "label": 5},
        {"estimator": "LogisticRegression", "label": ["y"]},
    ],
)
def test_a_recipe_that_makes_no_model_is_refused(modelled: Inside, body: dict[str, object]) -> None:
    answer = modelled.caller("train").put(f"{MODELS}/bad", json=body)
    assert answer.status_code == 422, answer.text
    error_of(answer)
    assert "bad" not in {m["name"] for m in modelled.caller().get(MODELS).json()["models"]}
