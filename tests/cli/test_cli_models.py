"""Training sets, models and their predictions on the command line."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from pyramidion import Categorical, Guarantee, Label, LearningCurve, Models, Pyramid, Schema
from pyramidion.learn.fitting import Trainer
from tests.cli.shell import NOW, Shell, Stdin, as_bytes
from tests.cli.test_cli_features import read
from tests.cli.test_cli_rows import seen
from tests.store.stores import DAY, SCHEMA, START, rows

ROWS = rows(100, NOW, seed=9).drop_columns(["t", "y"])
RAW = "P1: NO privacy, raw rows or exact counts are in it, over 3 windows"
COPY = "holds raw rows (P1), in a copy that the store cannot erase; delete it when they leave"
LATER = START + 39 * DAY  # no row is hot any more


@pytest.fixture(scope="session")
def with_models(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That store with a classifier, a regressor, and one for coarser classes."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(template, folder, dirs_exist_ok=True)
    keys = f"file:{folder}/keys/store.key"
    with Pyramid.open(folder / "store", keys=keys, clock=lambda: NOW) as store:
        store.register("late", LogisticRegression(C=0.5))
        store.register("number", Ridge(), only=["a"])
        store.register("word", GaussianNB(), without=["b"], merge={"no": [0], "yes": [1]})
    return folder


@pytest.fixture
def taught(shell: Shell, with_models: Path) -> Shell:
    """A copy of that store."""
    shutil.copytree(with_models, shell.folder, dirs_exist_ok=True)
    return shell


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is trained."""
    begun: list[object] = []
    monkeypatch.setattr(Trainer, "_started", lambda *given: begun.append(given))
    yield
    assert not begun


def resting(shell: Shell) -> Pyramid:
    """The store, without its models."""
    return Pyramid.open(shell.path, keys=shell.keys, clock=lambda: NOW, train=False)


def printed(shell: Shell, out: str) -> pa.Table:
    """CSV that was printed."""
    (shell.folder / "printed.csv").write_text(out)
    return read(shell.folder / "printed.csv")


# --- training-set ------------------------------------------------------------------------


def hot(shell: Shell, **workload: Any) -> pa.Table:
    with resting(shell) as store:
        return store.training_set(**workload).to_arrow()


def test_the_training_set_is_printed_as_csv(filled: Shell) -> None:
    wanted = hot(filled)
    done = filled("training-set")
    assert (done.code, wanted.num_rows) == (0, 300)
    assert printed(filled, done.out).cast(wanted.schema).equals(wanted)


@pytest.mark.parametrize("suffix", ["tsv", "parquet", "arrow", "ndjson"])
def test_the_training_set_may_be_a_file(filled: Shell, suffix: str) -> None:
    output, wanted = filled.folder / f"hot.{suffix}", hot(filled)
    told = filled("training-set", "--output", output).out
    assert told == f"wrote {output}: 300 rows, 5 columns\n"
    assert read(output).cast(wanted.schema).equals(wanted)


def test_a_training_set_is_one_document_for_programs(filled: Shell) -> None:
    told = filled("training-set", "--json").told
    wanted = hot(filled)
    assert told["names"] == wanted.column_names
    assert told["rows"] == [list(row.values()) for row in wanted.to_pylist()]
    assert told["guarantee"]["level"] == "P1"


@pytest.mark.parametrize("option", ["--json", "--quiet"])
def test_that_a_copy_outlives_the_rows_is_said_in_any_case(filled: Shell, option: str) -> None:
    output = filled.folder / "hot.csv"
    done = filled("training-set", "--output", output, option)
    assert done.err.count("\n") == 1
    assert done.err.startswith(f"pyramidion: note: {output} {COPY}")


def test_a_training_set_promises_nothing(filled: Shell) -> None:
    output = filled.folder / "hot.parquet"
    assert RAW in filled("training-set", "--output", output).err
    assert parquet.read_schema(output).metadata[b"pyramidion.guarantee"] == RAW.encode()


def test_people_see_how_far_a_training_set_is(
    filled: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = seen(monkeypatch, filled, "training-set", "--output", filled.folder / "hot.csv")
    assert "training-set: 100%" in told
    assert "300/300" in told


@pytest.mark.parametrize(
    ("words", "workload"),
    [
        (["--only", "a", "a,b"], {"only": ["a", "a,b"]}),
        (["--only", "a", "--only", "a,b"], {"only": ["a", "a,b"]}),
        (["--without", "a"], {"without": ["a"]}),
        (["--merge", '{"no": [0]}'], {"merge": {"no": [0]}}),
        (["--merge", '{"1": [0], "0": [1]}'], {"merge": {1: [0], 0: [1]}}),
        (["--label", "y"], {}),
    ],
    ids=lambda given: " ".join(given),
)
def test_a_workload_chooses_tables_and_classes(
    filled: Shell, words: list[str], workload: dict[str, Any]
) -> None:
    output, wanted = filled.folder / "hot.parquet", hot(filled, **workload)
    assert filled("training-set", *words, "--output", output).code == 0
    assert read(output).equals(wanted)


def small(shell: Shell, label: Label | list[Label], **columns: list[Any]) -> Shell:
    """A store with two rows a day, and one sealed window."""
    shell.create(Schema(label=label, features=[Categorical("a")]))
    batch = shell.saved(pa.table({"a": ["p", "q"], **columns}), "batch.parquet")
    for day in (0, 9, 10):
        assert shell("observe", batch, now=START + day * DAY).code == 0
    return shell


@pytest.mark.parametrize(
    ("label", "values", "kind"),
    [
        (Label("y", classes=["no", "yes"]), ["no", "yes"], pa.string()),
        (Label("y", classes=[False, True]), [False, True], pa.bool_()),
        (Label("y", classes=[0.5, 1.5]), [0.5, 1.5], pa.float64()),
        (Label("y", classes=[b"n", b"y"]), [b"n", b"y"], pa.binary()),
        (Label("y", edges=[10, 20]), [3.25, 1e9], pa.float64()),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else "",
)
def test_a_label_is_what_it_is(
    shell: Shell, label: Label, values: list[Any], kind: pa.DataType
) -> None:
    output = shell.folder / "hot.parquet"
    done = small(shell, label, y=values)("training-set", "--output", output, now=START + 10 * DAY)
    assert done.code == 0, done.err
    column = read(output)["y"]
    assert (column.type, column.to_pylist()) == (kind, values * 2)


def test_json_tells_bytes_in_digits(shell: Shell) -> None:
    store = small(shell, Label("y", classes=[b"n", b"y"]), y=[b"n", b"y"])
    told = store("training-set", "--json", now=START + 10 * DAY).told
    assert [row[-1] for row in told["rows"]] == ["6e", "79"] * 2


def test_of_several_labels_one_must_be_named(shell: Shell) -> None:
    labels = [Label("y", classes=[0, 1]), Label("z", classes=["no", "yes"])]
    store, now = small(shell, labels, y=[0, 1], z=["no", "yes"]), START + 10 * DAY
    refused = store("training-set", now=now)
    assert (refused.code, refused.out) == (2, "")
    assert "several labels; name one of y, z" in refused.err
    told = store("training-set", "--label", "z", "--json", now=now).told
    assert (told["names"][-1], told["rows"][0][-1]) == ("z", "no")


def test_rows_that_came_one_by_one_are_written_together(shell: Shell) -> None:
    store, output = small(shell, SCHEMA.label, y=[0, 1]), shell.folder / "hot.parquet"
    store("training-set", "--output", output, now=START + 10 * DAY)
    assert parquet.ParquetFile(output).num_row_groups == 1


WRONG = {
    "table": (["--only", "c"], "only names 'c', which is no table"),
    "nothing left": (["--without", "a", "b"], "no table is left to learn from"),
    "label": (["--label", "z"], "there is no label 'z'"),
    "class": (["--merge", '{"no": [7]}'], "label 'y' has no class 7"),
    "no JSON": (["--merge", "{no: 0}"], "argument --merge: not a JSON object; write one such as"),
    "no object": (["--merge", "[0]"], "argument --merge: not a JSON object; write one such as"),
    "no list": (["--merge", '{"no": 0}'], "class 'no' must be a list"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_workload_is_one_sentence_and_no_file(filled: Shell, what: str) -> None:
    words, sentence = WRONG[what]
    output = filled.folder / "hot.csv"
    done = filled("training-set", *words, "--output", output)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert sentence in done.err
    assert not output.exists()


def test_without_hot_rows_there_is_no_training_set(filled: Shell) -> None:
    output = filled.folder / "hot.csv"
    filled("advance", now=LATER)
    done = filled("training-set", "--output", output, now=LATER)
    assert (done.code, done.out) == (2, "")
    assert "the hot window is empty" in done.err
    assert not output.exists()


def test_a_training_set_overwrites_nothing(filled: Shell) -> None:
    output = filled.folder / "hot.csv"
    output.write_text("mine")
    assert "exists already" in filled("training-set", "--output", output).err
    assert output.read_text() == "mine"


# --- predict -----------------------------------------------------------------------------


def fitted(shell: Shell, estimator: Any, **workload: Any) -> tuple[Any, np.ndarray]:
    """An estimator that learned from the hot rows, and the features of `ROWS`."""
    with resting(shell) as store:
        training = store.training_set(**workload)
        made = estimator.fit(np.asarray(training.X), training.y)
        features = store.featurize(ROWS).select(training.names)
    return made, np.column_stack([column.to_numpy() for column in features.columns])


def test_predictions_are_those_of_the_estimator_on_hot_rows(taught: Shell) -> None:
    done = taught("predict", "late", taught.saved(ROWS, "rows.csv"))
    estimator, features = fitted(taught, LogisticRegression(C=0.5))
    told = printed(taught, done.out)
    assert told.column_names == ["prediction"]
    assert told["prediction"].to_pylist() == estimator.predict(features).tolist()
    assert "training 'late' on the hot rows\n" in done.err
    assert RAW in done.err


def test_every_class_has_a_probability(taught: Shell) -> None:
    output = taught.folder / "late.parquet"
    rows_in = taught.saved(ROWS, "rows.parquet")
    done = taught("predict", "late", rows_in, "--probabilities", "--output", output)
    assert "computed by a model of hot rows (P1)" in done.err
    assert done.out == f"wrote {output}: 100 rows, 2 columns\n"
    estimator, features = fitted(taught, LogisticRegression(C=0.5))
    told = read(output)
    assert told.column_names == ["P(y=0)", "P(y=1)"]
    found = np.column_stack([column.to_numpy() for column in told.columns])
    np.testing.assert_allclose(found, estimator.predict_proba(features), rtol=1e-6)
    assert told.schema.metadata[b"pyramidion.guarantee"] == RAW.encode()


def test_a_regressor_predicts_numbers(taught: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(as_bytes(ROWS, "ndjson")))
    told = taught("predict", "number", "-", "--format", "ndjson", "--json").told
    estimator, features = fitted(taught, Ridge(), only=["a"])
    assert told["names"] == ["prediction"]
    assert told["guarantee"]["level"] == "P1"
    found = [number for (number,) in told["rows"]]
    np.testing.assert_allclose(found, estimator.predict(features), rtol=1e-5)


def test_many_batches_are_predicted_in_the_order_they_came(taught: Shell) -> None:
    many = taught.saved(pa.concat_tables([ROWS] * 700), "rows.parquet")  # more than a batch
    output = taught.folder / "number.parquet"
    assert taught("predict", "number", many, "--output", output).code == 0
    told = read(output)["prediction"].to_numpy()
    assert len(set(told[:100])) > 10
    np.testing.assert_allclose(told, np.tile(told[:100], 700))


@pytest.mark.parametrize(
    ("words", "head"),
    [(["late"], '"prediction"'), (["word", "--probabilities"], '"P(y=no)","P(y=yes)"')],
)
def test_no_rows_have_no_predictions(taught: Shell, words: list[str], head: str) -> None:
    (name, *options), empty = words, taught.saved(ROWS.slice(0, 0), "rows.parquet")
    done = taught("predict", name, empty, *options)
    assert (done.code, done.out) == (0, f"{head}\n")
    assert "training" not in done.err


WRONG_QUESTIONS = {
    "model": (["lade"], {}, "there is no model 'lade'; did you mean 'late'?"),
    "number": (["number", "--probabilities"], {}, "'number' gives no probabilities; leave out"),
    "column": (["late"], {"without": "a"}, "has no column 'a'"),
    "suffix": (["late", "--output", "late.xlsx"], {}, "ends in no known format"),
}


@pytest.mark.parametrize("what", WRONG_QUESTIONS)
def test_a_wrong_question_trains_nothing(taught: Shell, idle: None, what: str) -> None:
    (name, *words), changed, sentence = WRONG_QUESTIONS[what]
    asked = ROWS.drop_columns(changed.values())
    done = taught("predict", name, taught.saved(asked, "rows.csv"), *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert sentence in done.err


def test_without_models_predict_says_how_to_add_one(filled: Shell) -> None:
    done = filled("predict", "late", filled.saved(ROWS, "rows.csv"))
    assert "there is no model 'late'; add it with `pyramidion models add`" in done.err


def test_a_model_without_hot_rows_says_why_it_is_unavailable(taught: Shell) -> None:
    output = taught.folder / "late.csv"
    words = "late", taught.saved(ROWS, "rows.csv"), "--output", output, "--quiet"
    taught("advance", now=LATER)
    done = taught("predict", *words, now=LATER)
    assert (done.code, done.out) == (2, "")
    assert "model 'late' is unavailable: the hot window is empty" in done.err
    assert not output.exists()


# --- models ------------------------------------------------------------------------------


def test_a_store_without_models_says_how_to_add_one(filled: Shell) -> None:
    assert filled("models").out == "there are no models; add one with `pyramidion models add`\n"


def test_models_are_listed_with_what_they_learn_from(taught: Shell, idle: None) -> None:
    lines = [line.split("  ") for line in taught("models").out.splitlines()]
    merged = "all tables, without b, 0 as no, 1 as yes"
    assert [[cell.strip() for cell in line if cell] for line in lines] == [
        ["model", "estimator", "label", "learns from", "state"],
        ["late", "LogisticRegression(C=0.5)", "y", "all tables", "trained when asked"],
        ["number", "Ridge()", "y", "only a", "trained when asked"],
        ["word", "GaussianNB()", "y", merged, "trained when asked"],
    ]


def test_listing_models_makes_nothing_due(taught: Shell) -> None:
    taught("models", now=LATER)
    assert taught("status", "--json").told["hot_rows"] == 300


def test_programs_get_the_recipes(taught: Shell, idle: None) -> None:
    told = {model["name"]: model for model in taught("models", "--json").told["models"]}
    assert told["late"]["recipe"]["params"] == {"C": 0.5}
    assert told["number"]["only"] == ["a"]
    assert told["word"]["classes"] == ["no", "yes"]
    assert not told["word"]["available"]


def test_models_can_be_tried(taught: Shell) -> None:
    models = taught("models", "--train", "--json").told["models"]
    assert [(model["available"], model["rows"]) for model in models] == [(True, 300)] * 3


def test_models_that_were_tried_tell_what_they_have_learned(taught: Shell) -> None:
    done = taught("models", "--train", "--json")
    assert "measured on hot rows (P1)" in done.err
    for model in done.told["models"]:
        kind = "squared loss" if model["name"] == "number" else "log loss"
        assert model["version"] > 1  # registered once, and trained now
        assert 0 < model["took"] < 600
        assert model["expires"] > NOW * 1e6
        assert (model["loss"]["kind"], model["loss"]["tested"]) == (kind, 60)
        assert model["loss"]["guarantee"]["level"] == "P1"


def test_what_models_have_learned_stands_in_the_list(taught: Shell) -> None:
    head, *lines = taught("models", "--train").out.splitlines()
    for name in ("version", "took", "expires", "loss", "prior's"):
        assert name in head.split()
    assert [line.split()[-1] for line in lines] == ["available"] * 3


def test_a_model_that_was_not_tried_tells_nothing(taught: Shell, idle: None) -> None:
    for model in taught("models", "--json").told["models"]:
        told = [model[each] for each in ("version", "took", "expires", "loss")]
        assert told == [0, None, None, None]


def test_models_that_cannot_be_trained_say_why(taught: Shell) -> None:
    taught("advance", now=LATER)
    told = taught("models", "--train", now=LATER).out
    assert told.count("not available: the hot window is empty") == 3


def test_a_model_whose_package_is_missing_is_listed(
    taught: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.naive_bayes", None)
    assert "sklearn.naive_bayes.GaussianNB  y " in taught("models").out


def test_a_long_estimator_is_shortened_in_the_list(shell: Shell) -> None:
    shell.create()
    many = {"C": 0.123456789, "tol": 0.000123456789, "max_iter": 123456789}
    shell("models", "add", "late", "LogisticRegression", "--params", json.dumps(many))
    assert "LogisticRegression(C=0.123456789, max_iter=1234...  y" in shell("models").out


def test_models_needs_a_store_as_every_command_does(shell: Shell) -> None:
    done = shell.main("models")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "pyramidion: the following arguments are required: --data; see `pyramidion models --help`\n"
    )


def test_an_added_model_is_trained_and_its_recipe_is_kept(filled: Shell) -> None:
    words = "late", "Ridge", "--params", '{"alpha": 2}', "--only", "a", "b", "--quiet"
    done = filled("models", "add", *words)
    assert (done.out, done.err) == ("added late: Ridge(alpha=2), trained on 300 hot rows\n", "")
    with resting(filled) as store:
        assert store.models["late"].workload.only == ("a", "b")


def test_adding_a_model_tells_programs(filled: Shell) -> None:
    words = "late", "DummyClassifier", "--merge", '{"no": [0]}', "--json"
    told = filled("models", "add", *words).told
    assert told["recipe"] == {"class": "sklearn.dummy.DummyClassifier", "params": {}}
    assert (told["available"], told["classes"]) == (True, ["no", 1])


def test_a_model_may_be_added_before_there_is_anything_to_train_on(
    shell: Shell, idle: None
) -> None:
    shell.create()
    told = shell("models", "add", "late", "Ridge").out
    assert told.startswith("added late: Ridge(), not trained yet: ")
    assert shell("models", "add", "late", "GaussianNB").out.startswith("replaced late: Gaussian")


WRONG_MODELS = {
    "class": (["Nothing"], "no usual estimator is called 'Nothing'"),
    "parameter": (["Ridge", "--params", '{"a": 1}'], "Ridge has no parameter 'a'"),
    "value": (["Ridge", "--params", '{"alpha": -1}'], "The 'alpha' parameter of Ridge must be"),
    "no JSON": (["Ridge", "--params", "alpha=1"], "argument --params: not a JSON object; write"),
    "no model": (["StandardScaler"], "StandardScaler does not predict; register"),
    "workload": (["Ridge", "--only", "c"], "only names 'c', which is no table"),
}


@pytest.mark.parametrize("what", WRONG_MODELS)
def test_a_wrong_model_is_one_sentence_and_not_kept(filled: Shell, idle: None, what: str) -> None:
    (kind, *words), sentence = WRONG_MODELS[what]
    done = filled("models", "add", "late", kind, *words)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err.splitlines()[-1]
    assert filled("models", "--json").told["models"] == []


def test_a_removed_model_is_forgotten(taught: Shell, idle: None) -> None:
    assert taught("models", "remove", "late").out == "removed late\n"
    assert "late" not in taught("models").out
    assert taught("models", "remove", "word", "--json").told == {"removed": "word"}


def test_removing_what_is_not_there_is_a_mistake(taught: Shell) -> None:
    done = taught("models", "remove", "lade")
    assert (done.code, done.out) == (2, "")
    assert "there is no model 'lade'; did you mean 'late'?" in done.err


# --- models curve ------------------------------------------------------------------------


def drawn(monkeypatch: pytest.MonkeyPatch, losses: list[float], within: float = 0.05) -> None:
    """Have the store measure these losses."""
    sizes = [50 * 2**place for place in range(len(losses))]
    promise = Guarantee(level="P1", epsilon=np.inf, delta=1.0, k=1, windows=3)
    curve = LearningCurve(
        sizes, losses, loss="log loss", tested=500, within=within, guarantee=promise
    )
    monkeypatch.setattr(Models, "learning_curve", lambda *_, **__: curve)


def test_a_curve_shows_how_far_each_loss_is_above_the_best(
    taught: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn(monkeypatch, [0.75, 0.625, 0.51, 0.5, 0.5])
    done = taught("models", "curve", "late")
    assert done.out == (
        "log loss of late on the newest 500 hot rows\n"
        "\n"
        "rows      loss  above the best\n"
        "  50      0.75    50.0 %  ##############################\n"
        " 100     0.625    25.0 %  ###############\n"
        " 200      0.51     2.0 %  #\n"
        " 400       0.5     0.0 %\n"
        " 800       0.5     0.0 %\n"
        "\n"
        "smallest hot window within 5 % of the best: 200 rows to learn from\n"
    )
    assert "measured on hot rows (P1)" in done.err


@pytest.mark.parametrize("losses", [[0.5, 0.5], [0.5, 0.0], [0.0, 0.0]])
def test_a_curve_may_be_flat_or_perfect(
    taught: Shell, monkeypatch: pytest.MonkeyPatch, losses: list[float]
) -> None:
    drawn(monkeypatch, losses)
    assert taught("models", "curve", "late").code == 0


def test_a_curve_is_measured_on_the_hot_rows(taught: Shell) -> None:
    told = taught("models", "curve", "late", "--within", "0", "--json").told
    assert (told["sizes"][0], told["sizes"][-1], told["tested"]) == (50, 240, 60)
    assert told["smallest"] == told["sizes"][told["losses"].index(min(told["losses"]))]
    assert (told["within"], told["guarantee"]["level"]) == (0.0, "P1")


WRONG_CURVES = {
    "model": (["lade"], NOW, "there is no model 'lade'"),
    "bound": (["late", "--within", "-0.5"], NOW, "`within` must be at least 0"),
    "no number": (["late", "--within", "x"], NOW, "argument --within: invalid float value"),
    "rows": (["late"], LATER, "the hot window is empty"),
}


@pytest.mark.parametrize("what", WRONG_CURVES)
def test_a_wrong_curve_is_one_sentence(taught: Shell, idle: None, what: str) -> None:
    words, now, sentence = WRONG_CURVES[what]
    taught("advance", now=now)
    done = taught("models", "curve", *words, now=now)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err.splitlines()[-1]


# --- other commands, and stores that are not there ----------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("ledger",),
        ("training-set",),
        ("models",),
        ("backup", "copy"),
        ("advance",),
        ("featurize", "rows.csv"),
        ("observe", "new.parquet"),
        ("withdraw", "a", "--why", "x"),
    ],
    ids=lambda words: words[0],
)
def test_commands_that_ask_no_model_train_none(
    taught: Shell, idle: None, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(taught.folder)
    taught.saved(ROWS, "rows.csv")
    taught.saved(rows(10, NOW), "new.parquet")
    taught("advance", now=START + 37 * DAY)  # rows leave, too
    assert taught(*words, now=START + 37 * DAY).code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("training-set",),
        ("predict", "late", "rows.csv"),
        ("models",),
        ("models", "add", "late", "Ridge"),
        ("models", "remove", "late"),
        ("models", "curve", "late"),
    ],
    ids=" ".join,
)
def test_where_there_is_no_store_each_says_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(shell.saved(ROWS, "rows.csv").parent)
    done = shell(*words)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("pyramidion: there is no store at ")
    assert not shell.path.exists()
