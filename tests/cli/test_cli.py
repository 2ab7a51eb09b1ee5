"""The command line and the drafts it writes, in process and as people run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

import pyramidion
from pyramidion import cli
from pyramidion.cli import program
from pyramidion.cli import schema as schema_commands
from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.errors import SchemaError
from pyramidion.rows.draft import draft

TABLE = pa.table(
    {
        "time_hour": pa.array([0], pa.timestamp("s")),
        "user_id": [700_001],
        "carrier": ["SECRET"],
        "distance": [1234.5],
        "fresh": [True],
        "late": [1],
    }
)
EXPECTED = Schema(
    time="time_hour",
    label=Label("late", classes=[0, 1]),
    features=[
        Categorical("user_id"),
        Categorical("carrier"),
        Continuous("distance", bins=4, bounds=(0, 1)),
        Categorical("fresh", domain=[False, True]),
    ],
)


def run(*arguments, **options):
    command = [sys.executable, "-m", "pyramidion", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def save(table, file):
    if file.suffix in (".csv", ".tsv"):
        options = csv.WriteOptions(delimiter="\t" if file.suffix == ".tsv" else ",")
        csv.write_csv(table, file, options)
    elif file.suffix == ".parquet":
        parquet.write_table(table, file)
    elif file.suffix == ".feather":
        feather.write_feather(table, file)
    elif file.suffix == ".arrow":
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    else:
        file.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))
    return file


@pytest.fixture
def flights(tmp_path):
    return save(TABLE, tmp_path / "flights.csv")


@pytest.fixture
def schema_file(tmp_path):
    file = tmp_path / "schema.toml"
    file.write_text(EXPECTED.to_toml())
    return file


# Drafts


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "feather", "arrow", "ndjson", "jsonl"])
def test_every_format_gives_the_same_draft(tmp_path, suffix):
    text = draft(save(TABLE, tmp_path / f"flights.{suffix}"))
    assert Schema.from_toml(text) == EXPECTED


def test_a_draft_holds_no_value_of_the_file(flights):
    text = draft(flights)
    assert not any(value in text for value in ("SECRET", "1234.5", "700001"))


def test_a_draft_says_where_it_comes_from_and_what_to_change(flights):
    text = draft(flights)
    assert "column names and types alone" in text
    assert "bounds = [0.0, 1.0]  # CHANGE:" in text
    assert '# unit = "user_id"' in text


def drafted(tmp_path, **columns):
    return draft(save(pa.table(columns), tmp_path / "data.parquet"))


def test_a_draft_without_a_label_still_parses_and_asks_for_one(tmp_path):
    text = drafted(tmp_path, a=["x"])
    assert 'name = "CHANGE_ME"  # CHANGE' in text
    assert Schema.from_toml(text).feature_names == ("a",)


def test_a_flag_among_the_names_of_labels_is_preferred(tmp_path):
    schema = Schema.from_toml(drafted(tmp_path, rating=[1], clicked=[True], a=["x"]))
    assert schema.label == Label("clicked", classes=[False, True])


def test_a_lone_flag_is_the_label(tmp_path):
    assert Schema.from_toml(drafted(tmp_path, a=["x"], bought=[True])).labels[0].name == "bought"


@pytest.mark.parametrize(
    ("column", "label"),
    [
        ({"rating": [3]}, Label("rating", edges=[2, 3, 4])),
        ({"y": [0.5]}, Label("y", edges=[2, 3, 4])),
        ({"outcome": ["won"]}, Label("outcome", classes=["no", "yes"])),
        ({"Target": [7]}, Label("Target", classes=[0, 1])),
    ],
)
def test_a_label_s_type_chooses_classes_or_edges(tmp_path, column, label):
    assert Schema.from_toml(drafted(tmp_path, a=["x"], **column)).label == label


def test_a_time_named_so_is_found_without_a_time_type(tmp_path):
    text = drafted(tmp_path, a=["x"], ts=[1.5])
    assert 'time = "ts"  # CHANGE: check that these are seconds' in text
    assert 'time = "time"  # CHANGE: this is text' in drafted(tmp_path, a=["x"], time=["noon"])


def test_a_second_time_and_nested_columns_are_left_out_aloud(tmp_path):
    when = pa.array([0], pa.timestamp("us"))
    text = drafted(tmp_path, a=["x"], time=when, seen=when, tags=[["t"]])
    assert 'left out: "seen"' in text
    assert 'left out: "tags"' in text
    assert Schema.from_toml(text).feature_names == ("a",)


@pytest.mark.parametrize(
    ("kind", "feature"),
    [
        (pa.dictionary(pa.int8(), pa.string()), Categorical("a")),
        (pa.large_string(), Categorical("a")),
        (pa.string_view(), Categorical("a")),
        (pa.null(), Categorical("a")),
        (pa.uint64(), Categorical("a")),
        (pa.float16(), Continuous("a", bins=4, bounds=(0, 1))),
        (pa.decimal128(9, 2), Continuous("a", bins=4, bounds=(0, 1))),
    ],
)
def test_a_column_s_type_chooses_the_feature(tmp_path, kind, feature):
    file = tmp_path / "data.arrow"
    with pa.ipc.new_file(file, pa.schema([("a", kind)])):
        pass
    assert Schema.from_toml(draft(file)).features == (feature,)


def test_strange_column_names_are_quoted(tmp_path):
    name = 'a "quoted"\nname # of é\x7f'
    assert Schema.from_toml(drafted(tmp_path, **{name: ["x"], "b": ["y"]})).feature(name)


def test_a_column_without_a_name_is_skipped(tmp_path):
    (tmp_path / "data.csv").write_text(",a\n0,x\n")
    assert Schema.from_toml(draft(tmp_path / "data.csv")).feature_names == ("a",)


def test_a_long_ndjson_file_is_read_up_to_its_last_whole_line(tmp_path):
    (tmp_path / "data.ndjson").write_text('{"a": "some text", "b": 1.5}\n' * 50_000)
    assert Schema.from_toml(draft(tmp_path / "data.ndjson")).feature_names == ("a", "b")


BAD_DATA = {
    "empty.csv": (b"", "cannot be read as .csv; check"),
    "ragged.csv": (b"a,b\n1,SECRET,3\n", "cannot be read as .csv; check"),
    "latin.csv": (b"\xe9,b\n1,2\n", "cannot be read as .csv; check"),
    "twice.csv": (b"a,a\n1,2\n", "two columns called 'a'; rename"),
    "empty.parquet": (b"", "cannot be read as .parquet; check"),
    "text.parquet": (b"SECRET", "cannot be read as .parquet; check"),
    "text.arrow": (b"SECRET SECRET SECRET", "cannot be read as .arrow; check"),
    "list.ndjson": (b'["SECRET"]\n', "cannot be read as .ndjson; check"),
    "empty.jsonl": (b"", "cannot be read as .jsonl; check"),
    "blank.jsonl": (b"\n", "no column left for a feature; give"),
    "label.csv": (b"time,label\n1,0\n", "no column left for a feature; give"),
    "notes.docx": (b"", "ends in no known format; use one of .csv"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_an_unusable_data_file_is_named_and_never_quoted(tmp_path, name):
    content, sentence = BAD_DATA[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SchemaError, match=f"{name}.*{sentence}") as refusal:
        draft(tmp_path / name)
    assert "SECRET" not in str(refusal.value)
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


def test_a_missing_data_file_and_a_directory_are_named(tmp_path):
    with pytest.raises(SchemaError, match=r"no file .*nowhere.csv; give"):
        draft(tmp_path / "nowhere.csv")
    with pytest.raises(SchemaError, match="is a directory; give"):
        draft(tmp_path)


# Commands


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from pyramidion.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print({'numba', 'pyarrow', 'numpy', 'sklearn'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "schema" in done.stdout
    assert done.stdout.endswith("set()\n")


def test_version_is_the_package_s(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"pyramidion {pyramidion.__version__}\n"


def test_draft_prints_a_schema(capsys, flights):
    assert cli.main(["schema", "draft", str(flights)]) == 0
    assert Schema.from_toml(capsys.readouterr().out) == EXPECTED


def test_draft_prints_json(capsys, flights):
    assert cli.main(["schema", "draft", str(flights), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert Schema.from_dict(told["schema"]) == Schema.from_toml(told["toml"]) == EXPECTED


def test_draft_writes_a_new_file_and_says_so(capsys, flights, tmp_path):
    output = tmp_path / "schema.toml"
    assert cli.main(["schema", "draft", str(flights), "--output", str(output)]) == 0
    assert Schema.from_toml(output) == EXPECTED
    assert "marked CHANGE" in capsys.readouterr().out


def test_draft_overwrites_nothing(capsys, flights, schema_file):
    before = schema_file.read_text()
    assert cli.main(["schema", "draft", str(flights), "--output", str(schema_file)]) == 2
    assert "exists already; choose another" in capsys.readouterr().err
    assert schema_file.read_text() == before


def test_draft_into_a_directory_that_is_not_there_is_refused(capsys, flights, tmp_path):
    output = str(tmp_path / "nowhere" / "schema.toml")
    assert cli.main(["schema", "draft", str(flights), "--output", output]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_check_lists_the_tables(capsys, schema_file):
    assert cli.main(["schema", "check", str(schema_file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("is a valid schema: 4 tables, label late (2)")
    assert [line.split() for line in lines[3:]] == [
        ["user_id", "sketch", "open"],
        ["carrier", "sketch", "open"],
        ["distance", "dense", "5"],
        ["fresh", "dense", "4"],
    ]


def test_check_reminds_of_what_is_still_to_change(capsys, flights, tmp_path):
    (tmp_path / "schema.toml").write_text(draft(flights))
    assert cli.main(["schema", "check", str(tmp_path / "schema.toml")]) == 0
    assert "still marked CHANGE" in capsys.readouterr().out


@pytest.mark.parametrize(("limit", "kind"), [(20, "dense"), (19, "sketch")])
def test_check_makes_groups_dense_up_to_the_file_s_own_limit(capsys, tmp_path, limit, kind):
    schema = Schema(
        features=EXPECTED.features[2:], label=EXPECTED.label, groups=[("distance", "fresh")]
    )
    file = tmp_path / "schema.toml"
    file.write_text(f"{schema.to_toml()}\n[settings]\nepsilon = 1\ndense_limit = {limit}\n")
    assert cli.main(["schema", "check", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tables"][-1] == {"table": "distance,fresh", "kind": kind, "rows": 20}


def test_check_refuses_bad_settings_too(capsys, schema_file):
    schema_file.write_text(schema_file.read_text() + "\n[settings]\nepsilon = 0\n")
    assert cli.main(["schema", "check", str(schema_file)]) == 2
    assert "setting 'epsilon' must be above 0" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "required: COMMAND; see `pyramidion --help`"),
        (("schema",), "required: COMMAND; see `pyramidion schema --help`"),
        (("scheme",), "invalid choice: 'scheme'"),
        (("schema", "draft"), "required: FILE"),
        (("schema", "draft", "nowhere.csv"), "there is no file nowhere.csv"),
        (("schema", "check", "nowhere.toml"), "there is no file nowhere.toml"),
        (("schema", "check", "."), ". is a directory"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments, sentence):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_installed_command_and_the_module_are_the_same():
    command = os.path.join(os.path.dirname(sys.executable), "pyramidion")
    installed = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert installed.stdout == run("--help").stdout


@pytest.mark.parametrize("arguments", [("--help",), ("schema", "check")])
def test_a_reader_that_left_is_no_error(arguments, schema_file):
    reader, writer = os.pipe()
    os.close(reader)
    files = [schema_file] if arguments[-1] == "check" else []
    command = [sys.executable, "-m", "pyramidion", *arguments, *files]
    environment = os.environ | {"PYTHONUNBUFFERED": ""}  # unbuffered, argparse hides it itself
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, check=False, env=environment
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_interrupt_is_exit_code_130(monkeypatch, schema_file):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(schema_commands, "check", interrupted)
    assert cli.main(["schema", "check", str(schema_file)]) == 130


def test_letters_the_terminal_cannot_show_are_no_traceback(tmp_path):
    (tmp_path / "data.csv").write_text("é,b\nx,y\n", encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = run("schema", "draft", tmp_path / "data.csv", env=environment)
    assert done.returncode == 2
    assert "PYTHONIOENCODING=utf-8" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_path_that_may_not_be_searched_is_no_traceback(monkeypatch, capsys, schema_file):
    def forbidden(arguments):
        raise PermissionError(13, "Permission denied", "locked/data.csv")

    monkeypatch.setattr(schema_commands, "draft", forbidden)
    assert cli.main(["schema", "draft", "locked/data.csv"]) == 2
    assert "locked/data.csv: Permission denied; check" in capsys.readouterr().err


# The page about it


def commands():
    """Every command's parser by its name."""
    (found,) = [
        action for action in program._parser()._actions if hasattr(action, "_name_parser_map")
    ]
    return found._name_parser_map


def page(root):
    return (root / "docs" / "command-line.md").read_text("utf-8")


@pytest.mark.parametrize("command", commands())
def test_every_command_has_a_section_and_an_example(root, command):
    section = re.search(rf"^## {command}\n(.*?)(?=^## |\Z)", page(root), re.MULTILINE | re.DOTALL)
    assert section is not None
    assert f"$ pyramidion {command} " in section[1]


STORELESS = (
    *("schema", "plan", "audit", "audit-log", "vault", "serve", "tokens", "edge", "demo"),
    "live",
)


@pytest.mark.parametrize("command", [name for name in commands() if name not in STORELESS])
def test_every_command_on_a_store_takes_the_shared_options(command):
    options = {
        option for action in commands()[command]._actions for option in action.option_strings
    }
    assert {"--data", "--keys", "--now", "--json"} <= options


def test_every_exit_code_is_on_the_page(root):
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page(root), re.MULTILINE)}
    ours = {program.MISTAKE, program.UNUSABLE, program.UNPAID, program.INTERRUPTED, program.UNREAD}
    assert told == ours | {0, 1}


@pytest.mark.parametrize(
    "error", [getattr(pyramidion, name) for name in pyramidion.__all__ if name.endswith("Error")]
)
def test_every_error_ends_with_the_code_that_the_page_says(root, error):
    (code,) = [
        line.split()[1] for line in page(root).splitlines() if f"`{error.__name__}`" in line
    ] or ["2"]
    assert program._code(error("x")) == int(code)


def test_a_program_ends_without_taking_the_interpreter_down() -> None:
    """Arrow's threads may still come for it, and would take the process with them."""
    code = (
        "import atexit, sys\n"
        "class Last:\n"
        "    def __del__(self): print('taken down')\n"
        "last = Last()\n"
        "atexit.register(print, 'asked to end')\n"
        "sys.argv = ['pyramidion', 'schema', 'draft', 'nothing.csv']\n"
        "from pyramidion.cli import run\n"
        "run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "asked to end\n")
    assert done.stderr.startswith("pyramidion: there is no file nothing.csv")
