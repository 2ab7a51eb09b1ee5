from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab import reading
from lab.criteo import CATEGORIES, FIELDS, NUMBERS, load, quartiles
from lab.datasets import DataSet
from pyramidion import Settings
from pyramidion.config.schema import Continuous
from pyramidion.errors import ObservationError, StorageError
from pyramidion.rows.observations import Door

Row = list[int | str | None]
NAMES = [field.name for field in FIELDS]


def row(label: int = 0, number: int | None = 1, category: str | None = "a") -> Row:
    return [label, *[number] * 13, *[category] * 26]


def text(rows: list[Row]) -> bytes:
    lines = ("\t".join("" if value is None else str(value) for value in row) for row in rows)
    return "".join(line + "\n" for line in lines).encode()


def parquet(file: Path, rows: list[Row], **kinds: pa.DataType) -> Path:
    kind = {field.name: field.kind for field in FIELDS} | kinds
    columns = {name: pa.array([row[i] for row in rows], kind[name]) for i, name in enumerate(NAMES)}
    pq.write_table(pa.table(columns), file, row_group_size=3)
    return file


def written(file: Path, rows: list[Row]) -> Path:
    file.write_bytes(text(rows))
    return file


def clicks(data: DataSet) -> list[int]:
    found: list[int] = data.table(0, data.rows)["click"].to_pylist()
    return found


def test_fields_are_named_and_empty_ones_are_missing(tmp_path: Path) -> None:
    data = load(written(tmp_path / "train.txt", [row(1, None, None), row(0, -2, "b7")]))
    first, second = data.table(0, 2).to_pylist()
    assert first == dict.fromkeys([*NUMBERS, *CATEGORIES]) | {"time": 0, "click": 1}
    assert (second["click"], second["I13"], second["C1"], second["C26"]) == (0, -2, "b7", "b7")


def test_rows_are_a_second_apart(tmp_path: Path) -> None:
    data = load(written(tmp_path / "train.txt", [row()] * 5))
    assert data.table(0, 5)["time"].to_pylist() == [0, 1, 2, 3, 4]
    assert data.table(3, 5)["time"].to_pylist() == [3, 4]


def test_the_schema_has_bins_and_open_categories(tmp_path: Path) -> None:
    schema = load(written(tmp_path / "train.txt", [row(number=i) for i in range(10)])).schema
    assert schema.feature_names == (*NUMBERS, *CATEGORIES)
    assert not any(schema.feature(name).dense for name in CATEGORIES)
    assert {schema.feature(name).to_dict()["type"] for name in NUMBERS} == {"continuous"}


def test_quartiles_know_nothing_of_the_future(tmp_path: Path) -> None:
    rows = [row(number=i) for i in range(8)]
    same = [load(written(tmp_path / "train.txt", rows + [row(number=n)] * 2)) for n in (5, 1_000)]
    assert same[0].schema == same[1].schema
    assert same[0].schema.feature("I1").to_dict()["edges"] == [1.5, 3.5, 5.5]


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=80))
def test_quartiles_cut_distinct_values_and_leave_no_bin_of_theirs_empty(values: list[int]) -> None:
    found = np.array(values)
    edges = quartiles(found)
    bins = np.bincount(np.searchsorted(edges, found, side="right"), minlength=len(edges) + 1)
    assert bins.all() or len(set(values)) == 1
    if len(set(values)) == len(values) and len(values) >= 4:
        assert len(bins) == 4
        assert bins.max() - bins.min() <= 1


def test_a_number_that_is_always_missing_has_an_edge_still(tmp_path: Path) -> None:
    assert load(written(tmp_path / "train.txt", [row(number=None)] * 3)).schema.feature("I1").codes


values = st.tuples(
    st.integers(0, 1),
    st.lists(st.none() | st.integers(-3, 2**40), min_size=13, max_size=13),
    st.lists(st.none() | st.text("0af", min_size=1, max_size=8), min_size=26, max_size=26),
)
tables = st.lists(values.map(lambda told: [told[0], *told[1], *told[2]]), min_size=1, max_size=12)


@settings(deadline=None, max_examples=25)
@given(rows=tables, cuts=st.tuples(*[st.integers(0, 12)] * 3), files=st.integers(1, 3))
def test_text_and_parquet_give_equal_rows_however_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Row],
    cuts: tuple[int, int, int],
    files: int,
) -> None:
    folder = tmp_path_factory.mktemp("criteo")
    step = -(-len(rows) // files)
    for day, start in enumerate(range(0, len(rows), step)):
        written(folder / f"day_{day}", rows[start : start + step])
    plain, packed = load(folder), load(parquet(folder / "a.parquet", rows))
    assert plain.table(0, len(rows)).equals(packed.table(0, len(rows)))
    assert (plain.rows, plain.schema) == (packed.rows, packed.schema)
    a, b, c = sorted(min(cut, len(rows)) for cut in cuts)
    for data in (plain, packed):
        whole = pa.Table.from_batches(data.read(0, len(rows)))
        parts = pa.Table.from_batches([*data.read(a, b), *data.read(b, c)], whole.schema)
        assert parts.combine_chunks().equals(whole.slice(a, c - a).combine_chunks())


def test_numbers_in_parquet_may_be_floats_and_text_may_be_empty(tmp_path: Path) -> None:
    rows = [row(1, 7, ""), row(0, None, "a")]
    floats = dict.fromkeys(NUMBERS, pa.float64())
    data = load(parquet(tmp_path / "a.parquet", rows, label=pa.int8(), **floats))
    assert data.table(0, 2).equals(load(written(tmp_path / "train.txt", rows)).table(0, 2))


def test_days_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    written(tmp_path / "day_10", [row(1)])
    (tmp_path / "day_2.gz").write_bytes(gzip.compress(text([row(0)] * 2)))
    assert clicks(load(tmp_path)) == [0, 0, 1]


def test_a_file_that_is_there_packed_and_unpacked_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(text([row()])))
    written(tmp_path / "train.txt", [row()])
    assert load(tmp_path).rows == 1


def test_the_contests_test_file_is_not_read(tmp_path: Path) -> None:
    written(tmp_path / "train.txt", [row()])
    written(tmp_path / "test.txt", [row()[1:]])
    assert load(tmp_path).rows == 1


def test_a_wrong_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no file or folder at .*; give one that holds train"):
        load(tmp_path / "none")
    with pytest.raises(StorageError, match=r"lacks files; give one that holds train\.txt, day_0"):
        load(tmp_path)


def test_flaws_are_told_by_line_also_when_far_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK", 200)
    flawed = row()
    flawed[0] = 2
    data = load(written(tmp_path / "train.txt", [*[row()] * 9, flawed]))
    assert data.table(0, 5).num_rows == 5
    with pytest.raises(ObservationError) as told:
        data.table(6, 10)
    assert str(told.value) == (
        "line 10 of train.txt has a label that is not 0 or 1; mend it or fetch the file again"
    )


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            text([row(), row()])[:-20],
            "line 2 of train.txt has 31 fields; expected 40: label, I1 to",
        ),
        (text([row(), [None, *row()[1:]]]), "line 2 of train.txt has no label"),
        (
            text([[0, "many", *row()[2:]]]),
            "line 1 of train.txt has a I1 that is not a whole number",
        ),
        (b"", "train.txt has no rows"),
    ],
)
def test_flaws_are_told(tmp_path: Path, lines: bytes, told: str) -> None:
    (tmp_path / "train.txt").write_bytes(lines)
    with pytest.raises(ObservationError) as error:
        clicks(load(tmp_path))
    assert str(error.value).startswith(told)


def test_parquet_of_another_shape_is_told(tmp_path: Path) -> None:
    pq.write_table(pa.table({"label": [0]}), tmp_path / "a.parquet")
    with pytest.raises(ObservationError, match=r"a\.parquet has no column I1"):
        load(tmp_path)


def test_labels_of_parquet_are_checked(tmp_path: Path) -> None:
    data = load(parquet(tmp_path / "a.parquet", [row()] * 4 + [row(3)]))
    with pytest.raises(
        ObservationError, match=r"row 5 of a\.parquet has a label that is not 0 or 1"
    ):
        clicks(data)


@pytest.fixture(scope="module")
def real(criteo: Path) -> DataSet:
    return load(criteo)


def test_real_rows_are_what_they_are_known_to_be(real: DataSet) -> None:
    assert (real.name, real.title) == ("criteo", "Criteo (137,139 advertisements)")
    assert pc.mean(real.table(0, real.rows)["click"]).as_py() == pytest.approx(0.257, abs=0.0005)


def test_real_bins_are_of_like_size(real: DataSet) -> None:
    feature = real.schema.feature("I9")
    assert isinstance(feature, Continuous)
    column = real.table(0, real.past)["I9"].drop_null().to_numpy()
    share = np.bincount(np.searchsorted(feature.cuts, column, side="right")) / len(column)
    assert share == pytest.approx([0.25] * 4, abs=0.02)


def test_a_store_takes_real_rows(real: DataSet) -> None:
    door = Door(real.schema, Settings(epsilon=1.0), b"secret")
    assert len(door.observations(real.table(0, 5_000))) == 5_000
