"""MovieLens: who liked which movie, from the official files.

Read are the folders of 1M and 10M (``ratings.dat``, ``movies.dat``) and of 20M, 25M and 32M
(``ratings.csv``, ``movies.csv``). A movie is liked where its rating is 4 or more, as in the
paper. Features are the user, the movie, and a 0 or 1 for each genre: 20 with the 18 of 1M.
The catalogue of movies is public, so movies have a domain; users are open.

1M also says who the users are (``users.dat``). `load_people` has gender, age and occupation as
features in the place of the user: what is told so is also known of users who are new.

Rows keep the place of their movie in the catalogue, and genres are looked up as rows are read, so
32 million made-up ratings fit into 2.2 GB of memory while they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab.datasets import ROWS, DataSet
from lab.reading import Field, Lines, among, find, fingerprint
from pyramidion.config.schema import Categorical, Label, Schema
from pyramidion.errors import ObservationError, SchemaError

LIKED = 4
"""The least rating of a movie that is liked."""

LOWEST, HIGHEST = 0.5, 5.0
LABELS = ("liked", "rating")
PEOPLE = ("gender", "age", "occupation")


def load(path: str | Path, label: str = "liked") -> DataSet:
    """Read the ratings of a folder, for classes (``liked``) or for regression (``rating``)."""
    if label not in LABELS:
        raise SchemaError(f"MovieLens has no label {label!r}; use one of {', '.join(LABELS)}")
    files = find(path, ("ratings.dat", "movies.dat"), ("ratings.csv", "movies.csv"))
    movies = _movies(files[1])
    rated = _ratings(_lines(files[0], movies), movies, label)

    def read(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for batch in rated.slice(start, stop - start).to_batches(max_chunksize=ROWS):
            yield _joined(batch, movies, label)

    rows = rated.num_rows
    about = _label(label, rated, halves=files[0].suffix == ".csv")
    schema = _schema(movies, about)
    return DataSet("movielens", _title(rows), schema, rows, read, fingerprint(files, label))


def ratings(path: str | Path) -> DataSet:
    """The ratings of a folder as numbers."""
    data = load(path, "rating")
    return replace(data, name="movielens-ratings", made_for=("regression", "evolution"))


def load_people(path: str | Path) -> DataSet:
    """The ratings of 1M by what is known of the users, and not by who they are."""
    (file,) = find(path, ("users.dat",))
    data, people = load(path), _people(file)
    about = [people[name].combine_chunks() for name in PEOPLE]
    features = [
        Categorical(name, domain=sorted(column.unique().to_pylist()))
        for name, column in zip(PEOPLE, about, strict=True)
    ]

    def read(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for batch in data.read(start, stop):
            place = pc.index_in(batch["user"], value_set=people["user"].combine_chunks())
            columns = {name: batch[name] for name in batch.schema.names if name != "user"}
            told = dict(zip(PEOPLE, (column.take(place) for column in about), strict=True))
            yield pa.record_batch(columns | told)

    schema = replace(data.schema, features=(*data.schema.features[1:], *features))
    return replace(
        data,
        name="movielens-people",
        title=f"{data.title}, by gender, age and occupation",
        schema=schema,
        read=read,
        fingerprint=f"{data.fingerprint}-{fingerprint([file])}",
    )


def _people(file: Path) -> pa.Table:
    number = pa.int32()
    names = ("user", *PEOPLE, "zip")
    fields = _fields(user=number, gender=pa.string(), age=number, occupation=number)
    return pa.concat_tables(Lines(file, fields, "::", names, shape="::".join(names)).read())


def _title(rows: int) -> str:
    """As people call it, from how many ratings there are.

    >>> _title(1_000_209), _title(100_836)
    ('MovieLens 1M (1,000,209 ratings)', 'MovieLens (100,836 ratings)')
    """
    millions = round(rows / 1e6)
    return f"MovieLens {f'{millions}M ' if millions else ''}({rows:,} ratings)"


def _schema(movies: pa.Table, label: Label) -> Schema:
    return Schema(
        time="time",
        label=label,
        features=[
            Categorical("user"),
            Categorical("movie", domain=movies["movie"].to_pylist()),
            *(Categorical(genre, domain=[0, 1]) for genre in movies.column_names[1:]),
        ],
    )


def _label(name: str, rated: pa.Table, *, halves: bool) -> Label:
    """Classes, or bins with a star (or half a star) in the middle of each."""
    if name == "liked":
        return Label(name, classes=[0, 1])
    stars = rated[name].to_numpy()
    step = 0.5 if halves or np.any(stars % 1) else 1.0
    return Label(name, edges=np.arange(step, HIGHEST, step) + step / 2)


def _movies(file: Path) -> pa.Table:
    """The catalogue by number: movies, and a column of 0 and 1 for each genre."""
    text, number = pa.string(), pa.int32()
    if file.suffix == ".dat":
        names, fields = ("movie", "title", "genres"), _fields(movie=number, genres=text)
        lines = Lines(file, fields, "::", names, shape="movie::title::genres")
    else:
        fields = _fields(movieId=number, genres=text)
        lines = Lines(file, fields, quoted=True, shape="movieId,title,genres")
    table = pa.concat_tables(lines.read()).rename_columns(["movie", "genres"]).sort_by("movie")
    if pc.count_distinct(table["movie"]).as_py() < table.num_rows:
        raise ObservationError(f"{file.name} lists a movie twice; fetch the file again")
    return _with_genres(table.combine_chunks())


def _with_genres(table: pa.Table) -> pa.Table:
    lists = pc.split_pattern(table["genres"].chunk(0), "|")
    every, owner = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    columns = {"movie": table["movie"]}
    for genre in sorted(every.unique().to_pylist()):
        has = np.zeros(table.num_rows, dtype=np.int8)
        has[owner[pc.equal(every, genre).to_numpy(zero_copy_only=False)]] = 1
        columns[genre] = pa.array(has)
    return pa.table(columns)


def _ratings(lines: Lines, movies: pa.Table, label: str) -> pa.Table:
    """All ratings in order: time, user, the movie's place in the catalogue, label."""
    user, movie, rating, time = (field.name for field in lines.fields)
    parts = [
        pa.table(
            {
                "time": table[time],
                "user": table[user],
                "place": pc.index_in(table[movie], value_set=movies["movie"].combine_chunks()),
                label: _told(table[rating], label),
            }
        )
        for table in lines.read()
    ]
    whole = pa.concat_tables(parts)
    del parts
    keys = [whole[name].to_numpy() for name in ("place", "user", "time")]
    order = pa.array(np.lexsort(keys))
    return pa.table({name: whole[name].combine_chunks().take(order) for name in whole.column_names})


def _lines(file: Path, movies: pa.Table) -> Lines:
    dat = file.suffix == ".dat"
    user, movie, rating, time = (
        ("user", "movie", "rating", "time") if dat else ("userId", "movieId", "rating", "timestamp")
    )
    listed = among(movies["movie"].combine_chunks())
    fields = (
        Field(user, pa.int32()),
        Field(movie, pa.int32(), f"in movies{file.suffix}", listed),
        Field(rating, pa.float32(), f"between {LOWEST} and {HIGHEST:g}", _in_scale),
        Field(time, pa.int64()),
    )
    if dat:
        names = (user, movie, rating, time)
        return Lines(file, fields, "::", names, shape="::".join(names))
    return Lines(file, fields, shape="userId,movieId,rating,timestamp")


def _fields(**kinds: pa.DataType) -> tuple[Field, ...]:
    return tuple(Field(name, kind) for name, kind in kinds.items())


def _in_scale(ratings: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(ratings, LOWEST), pc.less_equal(ratings, HIGHEST))


def _told(ratings: pa.ChunkedArray, label: str) -> pa.ChunkedArray:
    if label == "rating":
        return ratings
    return pc.greater_equal(ratings, LIKED).cast(pa.int8())


def _joined(batch: pa.RecordBatch, movies: pa.Table, label: str) -> pa.RecordBatch:
    """Rows with their movie's number and genres."""
    about = {name: movies[name].chunk(0).take(batch["place"]) for name in movies.column_names}
    wide = pa.float64() if label == "rating" else pa.int64()  # sums of int8 run over
    return pa.record_batch(
        {"time": batch["time"], "user": batch["user"], **about, label: batch[label].cast(wide)}
    )
