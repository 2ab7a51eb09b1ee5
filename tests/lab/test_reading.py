from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab import reading
from lab.reading import Field, Groups, Lines, among, find, fingerprint
from pyramidion.errors import ObservationError, StorageError

FIELDS = (Field("n", pa.int64()), Field("word", pa.string(), required=False))
NAMES = ("n", "word")
CANARY = "canary"


def lines(folder: Path, text: str, name: str = "a.csv", **about: object) -> Lines:
    file = folder / name
    file.write_bytes(text.encode("latin-1"))
    told: dict[str, object] = {"names": NAMES, "shape": "n,word"} | about
    return Lines(file, FIELDS, **told)  # type: ignore[arg-type]


def rows(file: Lines | Groups, *between: int) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for table in file.read(*between) for row in table.to_pylist()]


def error_of(file: Lines | Groups) -> str:
    with pytest.raises(ObservationError) as told:
        rows(file)
    assert CANARY not in str(told.value)
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__ or told.value.__context__ is None
    return str(told.value)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK", 64)


def test_rows_are_read_and_empty_fields_are_missing(tmp_path: Path) -> None:
    assert rows(lines(tmp_path, "1,a\n2,\n")) == [(1, "a"), (2, None)]


def test_the_last_line_may_lack_its_end(tmp_path: Path) -> None:
    file = lines(tmp_path, "1,a\n2,b")
    assert (file.rows, rows(file)) == (2, [(1, "a"), (2, "b")])


def test_a_single_line_without_an_end_is_a_row(tmp_path: Path) -> None:
    file = lines(tmp_path, "1,a")
    assert (file.rows, rows(file)) == (1, [(1, "a")])


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    assert rows(lines(tmp_path, "1,a\r\n2,b\r\n")) == [(1, "a"), (2, "b")]


def test_a_header_tells_where_fields_are(tmp_path: Path) -> None:
    file = lines(tmp_path, "\xef\xbb\xbfword,other,n\na,x,1\n", names=None)
    assert (file.rows, rows(file)) == (1, [(1, "a")])


def test_quoted_fields_may_hold_separators(tmp_path: Path) -> None:
    assert rows(lines(tmp_path, '1,"a, ""b"""\n', quoted=True)) == [(1, 'a, "b"')]


def test_separators_may_have_two_characters(tmp_path: Path) -> None:
    assert rows(lines(tmp_path, "1::a,b:c\n", separator="::")) == [(1, "a,b:c")]


@pytest.mark.usefixtures("small_blocks")
@settings(deadline=None, max_examples=50)
@given(
    words=st.lists(st.text("abc", max_size=9), min_size=1, max_size=60),
    cuts=st.tuples(*[st.integers(0, 70)] * 3),
    packed=st.booleans(),
    ended=st.booleans(),
)
def test_any_part_of_a_file_is_what_it_is_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    words: list[str],
    cuts: tuple[int, int, int],
    packed: bool,
    ended: bool,
) -> None:
    a, b, c = sorted(cuts)
    text = "\n".join(f"{i},{word}" for i, word in enumerate(words)) + "\n" * ended
    file = tmp_path_factory.mktemp("cut") / ("a.gz" if packed else "a.csv")
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found = Lines(file, FIELDS, names=NAMES)
    whole = [(i, word or None) for i, word in enumerate(words)]
    assert found.rows == len(words)
    assert rows(found, a, c) == whole[a:c]
    assert rows(found, a, b) + rows(found, b, c) == whole[a:c]


@settings(deadline=None, max_examples=50)
@given(
    count=st.integers(1, 50),
    size=st.integers(1, 9),
    cuts=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_any_part_of_a_parquet_file_is_what_it_is_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, count: int, size: int, cuts: tuple[int, int]
) -> None:
    file = tmp_path_factory.mktemp("cut") / "a.parquet"
    table = pa.table({"n": range(count), "word": ["w"] * count})
    pq.write_table(table, file, row_group_size=size)
    a, b = sorted(cuts)
    assert rows(Groups(file, FIELDS), a, b) == [(i, "w") for i in range(count)[a:b]]


def test_too_few_fields_are_told_by_line(tmp_path: Path) -> None:
    told = error_of(lines(tmp_path, f"1,a\n2,b\n{CANARY}\n"))
    assert told == (
        "line 3 of a.csv has 1 field; expected 2: n,word; the file may be truncated; "
        "mend it or fetch the file again"
    )


def test_too_many_fields_are_told_by_line(tmp_path: Path) -> None:
    assert "line 1 of a.csv has 3 fields; expected 2" in error_of(lines(tmp_path, "1,a,b\n"))


def test_an_empty_line_is_told(tmp_path: Path) -> None:
    assert "line 2 of a.csv has no n" in error_of(lines(tmp_path, "1,a\n\n2,b\n"))


def test_a_header_counts_as_a_line(tmp_path: Path) -> None:
    assert "line 3 of a.csv" in error_of(lines(tmp_path, "n,word\n1,a\n2\n", names=None))


@pytest.mark.usefixtures("small_blocks")
@settings(deadline=None, max_examples=50)
@given(before=st.integers(0, 60), after=st.integers(0, 60))
def test_the_flawed_line_is_found_wherever_it_is(
    tmp_path_factory: pytest.TempPathFactory, before: int, after: int
) -> None:
    text = "1,a\n" * before + f"1,{CANARY},x\n" + "1,a\n" * after
    told = error_of(lines(tmp_path_factory.mktemp("flaw"), text))
    assert f"line {before + 1} of a.csv has 3 fields" in told


def test_what_is_no_number_is_told(tmp_path: Path) -> None:
    told = error_of(lines(tmp_path, f"1,a\n{CANARY},b\n"))
    assert told == "line 2 of a.csv has a n that is not a whole number; " + reading.AGAIN


def test_text_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    assert "line 1 of a.csv has a word that is not UTF-8" in error_of(lines(tmp_path, "1,\xff\n"))


def test_a_quote_that_never_ends_is_told(tmp_path: Path) -> None:
    file = lines(tmp_path, f'1,"{CANARY}\n2,b\n3,"c\n', quoted=True)
    assert "line 1 of a.csv has a quote that does not end" in error_of(file)


@pytest.mark.usefixtures("small_blocks")
def test_a_quote_that_never_ends_is_found_in_later_blocks(tmp_path: Path) -> None:
    file = lines(tmp_path, "1,a\n" * 40 + '2,"b\n3,c\n', quoted=True)
    assert "line 41 of a.csv has a quote that does not end" in error_of(file)


def test_a_lone_carriage_return_does_not_move_rows(tmp_path: Path) -> None:
    assert "line 1 of a.csv" in error_of(lines(tmp_path, "1,a\r2,b\n3,c\n"))


def test_a_missing_value_is_told_where_one_is_required(tmp_path: Path) -> None:
    assert "line 2 of a.csv has no n; " in error_of(lines(tmp_path, "1,a\n,b\n"))


def test_of_two_flaws_the_first_row_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1,1\n1,7\n,1\n")
    small = Field("m", pa.int64(), "0 or 1", among([0, 1]))
    told = error_of(Lines(file, (Field("n", pa.int64()), small), names=("n", "m")))
    assert told == "line 2 of a.csv has a m that is not 0 or 1; " + reading.AGAIN


@pytest.mark.usefixtures("small_blocks")
def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    assert "line 2 of a.csv is longer than 64 bytes" in error_of(
        lines(tmp_path, "1,a\n" + "x" * 200)
    )


@pytest.mark.parametrize(("text", "names"), [("", NAMES), ("", None), ("n,word\n", None)])
def test_an_empty_file_is_told(tmp_path: Path, text: str, names: object) -> None:
    told = error_of(lines(tmp_path, text, names=names))
    assert told == "a.csv has no rows; fetch the file again"


@pytest.mark.parametrize(
    ("header", "has"),
    [
        ("number,word\n", "no column n;"),
        ("\n", "no column n;"),
        ("\0\r,\n", "no column n;"),
        ("n,n,word\n", "more than one column n;"),
    ],
)
def test_wrong_columns_are_told(tmp_path: Path, header: str, has: str) -> None:
    assert f"a.csv has {has}" in error_of(lines(tmp_path, header + "1,a\n", names=None))


def test_a_packed_file_that_was_cut_short_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(os.urandom(1000))[:-20])
    told = error_of(Lines(file, FIELDS, names=NAMES))
    assert told == "a.gz is cut short or not packed by gzip; fetch the file again"


def test_a_file_that_is_not_packed_is_told(tmp_path: Path) -> None:
    assert "not packed by gzip" in error_of(lines(tmp_path, "1,a\n", "a.gz"))


def test_a_file_that_went_away_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        rows(Lines(tmp_path / "gone.csv", FIELDS, names=NAMES))
    with pytest.raises(StorageError, match="cannot be read"):
        rows(Groups(tmp_path / "gone.parquet", FIELDS))


def parquet(folder: Path, **columns: object) -> Groups:
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=2)
    return Groups(folder / "a.parquet", FIELDS)


def test_parquet_may_hold_numbers_as_floats_and_empty_text(tmp_path: Path) -> None:
    file = parquet(tmp_path, word=["a", ""], n=[1.0, 2.0])
    assert rows(file) == [(1, "a"), (2, None)]


def test_rows_of_parquet_are_told_by_number(tmp_path: Path) -> None:
    told = error_of(parquet(tmp_path, n=[1.0, 2.0, float("nan")], word=["a", "b", "c"]))
    assert told == "row 3 of a.parquet has no n; " + reading.AGAIN


def test_parquet_of_other_kinds_is_told(tmp_path: Path) -> None:
    told = error_of(parquet(tmp_path, n=[CANARY], word=["a"]))
    assert told == "column n of a.parquet has a value that is not a whole number; " + reading.AGAIN


def test_parquet_without_a_column_is_told(tmp_path: Path) -> None:
    assert "a.parquet has no column n;" in error_of(parquet(tmp_path, word=["a"]))


def test_parquet_without_rows_is_told(tmp_path: Path) -> None:
    file = parquet(tmp_path, n=pa.array([], pa.int64()), word=pa.array([], pa.string()))
    assert "a.parquet has no rows" in error_of(file)


def test_parquet_that_was_cut_short_is_told(tmp_path: Path) -> None:
    file = parquet(tmp_path, n=[1], word=["a"])
    file.file.write_bytes(file.file.read_bytes()[:-9])
    assert "a.parquet is not a whole Parquet file" in error_of(file)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as told:
        find(tmp_path / "none", ("a", "b"), ("c",))
    assert str(told.value) == (
        f"no folder at {tmp_path / 'none'}; give the folder that holds a and b, or c"
    )


def test_a_file_in_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(StorageError, match="is a file; give the folder that holds a"):
        find(tmp_path / "a", ("a",))


def test_the_first_layout_that_is_whole_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "c").touch()
    assert find(tmp_path, ("a", "b"), ("c",)) == [tmp_path / "c"]
    with pytest.raises(StorageError, match="lacks files"):
        find(tmp_path, ("a", "b"))


def test_a_fingerprint_changes_with_name_size_time_and_purpose(tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    seen = []
    for text, time, name in (("x", 1, file), ("xx", 1, file), ("x", 2, file), ("x", 1, other)):
        name.write_text(text)
        os.utime(name, (time, time))
        seen.append(fingerprint([name]))
    assert len({*seen, fingerprint([other], "liked")}) == 5
    assert fingerprint([other]) == seen[-1]
