from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.datasets import DataSet
from lab.movielens import load, load_people
from pyramidion import Settings
from pyramidion.errors import ObservationError, SchemaError, StorageError
from pyramidion.rows.observations import Door

RATINGS = [(2, 10, 5, 300), (1, 20, 3, 200), (2, 20, 4, 100), (1, 10, 1, 200)]
MOVIES = [(20, "Heat, The", "Drama|War"), (10, "Amélie", "Drama")]


def dat(folder: Path, ratings: object = RATINGS, movies: object = MOVIES) -> Path:
    write(folder / "ratings.dat", "::", ratings)
    write(folder / "movies.dat", "::", movies)
    return folder


def write(file: Path, separator: str, rows: object, head: str = "") -> None:
    lines = [separator.join(map(str, row)) + "\n" for row in rows]  # type: ignore[attr-defined]
    file.write_text(head + "".join(lines), encoding="latin-1" if file.suffix == ".dat" else "utf-8")


def table_csv(folder: Path) -> Path:
    write(folder / "ratings.csv", ",", RATINGS, "userId,movieId,rating,timestamp\n")
    movies = [(number, f'"{title}"', genres) for number, title, genres in MOVIES]
    write(folder / "movies.csv", ",", movies, "movieId,title,genres\n")
    return folder


def all_of(data: DataSet) -> pa.Table:
    return data.table(0, data.rows)


def test_rows_come_in_the_order_of_time_user_and_movie(tmp_path: Path) -> None:
    table = all_of(load(dat(tmp_path)))
    keys = list(zip(*(table[name].to_pylist() for name in ("time", "user", "movie")), strict=True))
    assert keys == [(100, 2, 20), (200, 1, 10), (200, 1, 20), (300, 2, 10)]


def test_of_the_same_second_users_come_before_movies(tmp_path: Path) -> None:
    table = all_of(load(dat(tmp_path, [(2, 10, 1, 9), (1, 20, 1, 9)])))
    assert table["user"].to_pylist() == [1, 2]


def test_a_movie_is_liked_from_a_rating_of_4(tmp_path: Path) -> None:
    assert all_of(load(dat(tmp_path)))["liked"].to_pylist() == [1, 0, 0, 1]


def test_genres_are_those_of_the_movie(tmp_path: Path) -> None:
    table = all_of(load(dat(tmp_path)))
    assert table["Drama"].to_pylist() == [1, 1, 1, 1]
    assert table["War"].to_pylist() == [1, 0, 1, 0]


def test_both_layouts_give_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "csv").mkdir()
    old, new = load(dat(tmp_path)), load(table_csv(tmp_path / "csv"))
    assert all_of(old) == all_of(new)
    assert old.schema == new.schema


def test_the_catalogue_is_declared_and_users_are_open(tmp_path: Path) -> None:
    schema = load(dat(tmp_path)).schema
    assert schema.feature_names == ("user", "movie", "Drama", "War")
    domains = [feature.to_dict().get("domain") for feature in schema.features]
    assert domains == [None, [10, 20], [0, 1], [0, 1]]


def test_ratings_of_whole_stars_have_five_bins(tmp_path: Path) -> None:
    data = load(dat(tmp_path), label="rating")
    assert data.schema.labels[0].centers == (1, 2, 3, 4, 5)
    assert all_of(data)["rating"].to_pylist() == [4, 1, 3, 5]


def test_ratings_of_half_stars_have_ten_bins(tmp_path: Path) -> None:
    halves = load(table_csv(tmp_path), label="rating").schema.labels[0]
    assert halves.centers == tuple(half / 2 for half in range(1, 11))
    ten_million = load(dat(tmp_path, [(1, 10, 3.5, 1)]), label="rating")
    assert ten_million.schema.labels[0] == halves


def test_the_title_says_how_many(tmp_path: Path) -> None:
    assert load(dat(tmp_path)).title == "MovieLens (4 ratings)"


def test_labels_have_fingerprints_of_their_own(tmp_path: Path) -> None:
    dat(tmp_path)
    assert load(tmp_path).fingerprint == load(tmp_path).fingerprint
    assert load(tmp_path).fingerprint != load(tmp_path, "rating").fingerprint


def test_another_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="no label 'stars'; use one of liked, rating"):
        load(dat(tmp_path), label="stars")


def test_a_wrong_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as told:
        load(tmp_path / "none")
    assert str(told.value) == (
        f"no folder at {tmp_path / 'none'}; give the folder that holds ratings.dat and "
        f"movies.dat, or ratings.csv and movies.csv"
    )


@pytest.mark.parametrize(
    ("ratings", "told"),
    [
        (
            [(1, 10, 4, 9), (1, 20, 5)],
            "line 2 of ratings.dat has 3 fields; expected 4: user::movie",
        ),
        ([(1, 77, 4, 9)], "line 1 of ratings.dat has a movie that is not in movies.dat"),
        ([(1, 10, "good", 9)], "line 1 of ratings.dat has a rating that is not a number"),
        ([(1, 10, 6, 9)], "line 1 of ratings.dat has a rating that is not between 0.5 and 5"),
        ([(1, 10, "nan", 9)], "line 1 of ratings.dat has a rating that is not between 0.5 and 5"),
        ([(1, 10, 4, "")], "line 1 of ratings.dat has no time"),
        ([("x", 10, 4, 9)], "line 1 of ratings.dat has a user that is not a whole number"),
        ([], "ratings.dat has no rows"),
    ],
)
def test_flaws_of_ratings_are_told(tmp_path: Path, ratings: object, told: str) -> None:
    with pytest.raises(ObservationError) as error:
        load(dat(tmp_path, ratings))
    assert str(error.value).startswith(told)


@pytest.mark.parametrize(
    ("movies", "told"),
    [
        ([(10, "A")], "line 1 of movies.dat has 2 fields; expected 3: movie::title::genres"),
        ([(10, "A", "Drama"), (10, "A", "War")], "movies.dat lists a movie twice"),
        ([(10, "A", "")], "line 1 of movies.dat has no genres"),
    ],
)
def test_flaws_of_movies_are_told(tmp_path: Path, movies: object, told: str) -> None:
    with pytest.raises(ObservationError) as error:
        load(dat(tmp_path, movies=movies))
    assert str(error.value).startswith(told)


def test_a_csv_of_other_columns_is_told(tmp_path: Path) -> None:
    table_csv(tmp_path)
    write(tmp_path / "ratings.csv", ",", RATINGS, "user,movie,rating,timestamp\n")
    with pytest.raises(ObservationError, match=r"ratings\.csv has no column userId"):
        load(tmp_path)


@pytest.fixture(scope="module")
def million(movielens: Path) -> DataSet:
    return load(movielens)


def test_a_million_ratings_are_what_they_are_known_to_be(million: DataSet) -> None:
    table = all_of(million)
    assert million.title == "MovieLens 1M (1,000,209 ratings)"
    assert table.num_rows == 1_000_209
    assert len(million.schema.features) == 20
    assert pc.mean(table["liked"]).as_py() == pytest.approx(0.575, abs=0.0005)
    assert pc.min(pc.pairwise_diff(table["time"].combine_chunks())).as_py() >= 0


@settings(deadline=None, max_examples=20)
@given(cuts=st.tuples(*[st.integers(0, 1_000_300)] * 3))
def test_parts_of_the_ratings_join(million: DataSet, cuts: tuple[int, int, int]) -> None:
    a, b, c = sorted(cuts)
    parts = itertools.chain(million.read(a, b), million.read(b, c))
    empty = pa.Table.from_batches([], next(million.read(0, 1)).schema)
    joined = pa.concat_tables([empty, *map(pa.Table.from_batches, zip(parts))])
    whole = pa.concat_tables([empty, *map(pa.Table.from_batches, zip(million.read(a, c)))])
    assert joined.equals(whole)
    assert whole.num_rows == max(0, min(c, million.rows) - a)


def test_a_store_takes_the_ratings(million: DataSet) -> None:
    door = Door(million.schema, Settings(epsilon=1.0), b"secret")
    assert len(door.observations(million.table(0, 5_000))) == 5_000


def test_ratings_by_people_know_who_rated_but_not_which_user(tmp_path: Path) -> None:
    folder = dat(tmp_path)
    users = sorted({row["user"] for row in all_of(load(folder)).to_pylist()})
    write(folder / "users.dat", "::", [(u, "FM"[u % 2], 10 * u, u, "00000") for u in users])
    data = load_people(folder)
    by_user, by_people = all_of(load(folder)), all_of(data)
    told = by_user["user"].to_pylist()
    assert by_people["gender"].to_pylist() == ["FM"[u % 2] for u in told]
    assert by_people["age"].to_pylist() == [10 * u for u in told]
    assert by_people["occupation"].to_pylist() == told
    assert "user" not in (*by_people.column_names, *data.schema.feature_names)
    assert by_people["liked"] == by_user["liked"]
    assert data.name == "movielens-people"
    assert data.fingerprint != load(folder).fingerprint
