"""``featurize``, ``training-set`` and ``predict``: rows to features and predictions."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from pyramidion.cli.options import (
    Commands,
    Parser,
    add_quiet,
    add_rows,
    add_store,
    add_workload,
    opened,
    workload_of,
)
from pyramidion.cli.output import Pace, bar, remark, several, warn
from pyramidion.cli.row_files import add_output, kind_of, writing
from pyramidion.errors import SchemaError, StateError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from pyramidion.counts.guarantee import Guarantee
    from pyramidion.learn.models import Model
    from pyramidion.learn.training_set import TrainingSet
    from pyramidion.rows.files import DataFile
    from pyramidion.store.pyramid import Pyramid


def add(commands: Commands[Parser]) -> None:
    """Add the commands."""
    featurizing = commands.add_parser(
        "featurize",
        help="turn rows into features, from the complete tables",
        description="Turn rows into features, from the complete tables; what they promise is "
        "told on stderr. Rows need the features of the schema, and no label.",
    )
    featurizing.add_argument("file", metavar="FILE", help="a data file, or - for stdin")
    add_output(featurizing)
    add_rows(featurizing)
    add_store(featurizing)
    featurizing.set_defaults(run=featurize)

    training = commands.add_parser(
        "training-set",
        help="write the hot rows as features and label, for training",
        description="Write the hot rows as features and label; no row meets its own label through "
        "the counts. They are raw (P1), and the store cannot erase a copy: delete it when the "
        "rows leave the hot window.",
    )
    add_workload(training)
    add_output(training)
    add_quiet(training)
    add_store(training)
    training.set_defaults(run=training_set)

    predicting = commands.add_parser(
        "predict",
        help="turn rows into predictions of a model",
        description="Turn rows into predictions of a model. It is trained first, on the hot rows "
        "and the complete tables, so predictions are as raw as those (P1). Rows need the features "
        "of the schema, and no label.",
    )
    predicting.add_argument("name", metavar="NAME", help="a model; `pyramidion models` lists them")
    predicting.add_argument("file", metavar="FILE", help="a data file, or - for stdin")
    predicting.add_argument(
        "--probabilities",
        action="store_true",
        help="a column for each class (default: the likeliest class, or the expected number)",
    )
    add_output(predicting)
    add_rows(predicting)
    add_store(predicting)
    predicting.set_defaults(run=predict)


# --- featurize ------------------------------------------------------------------------------


def featurize(arguments: argparse.Namespace) -> None:
    """Turn rows into features."""
    import pyarrow as pa

    file = _file(arguments)
    with opened(arguments, reading=True) as pyramid:
        snapshot = pyramid.snapshot()
        tables = (
            snapshot.featurize(batch, threads=os.cpu_count() or 1)
            for batch in _asked(file, pyramid)
        )
        none = pa.schema([(name, pa.float32()) for name in snapshot.names])
        _write(arguments, tables, none, snapshot.guarantee, file.rows_hint)


def _file(arguments: argparse.Namespace) -> DataFile:
    """The rows to read; what is wrong with the output is said before that, too."""
    from pyramidion.rows.files import DataFile

    kind_of(arguments)
    return DataFile(arguments.file, format=arguments.format)


def _asked(file: DataFile, pyramid: Pyramid) -> Iterator[pa.Table]:
    """The features of a file's rows, batch by batch."""
    from pyramidion.rows.observations import types_for

    types = types_for(pyramid.schema, pyramid.keyed_by)
    return file.batches(pyramid.schema.feature_names, types=types)


def _write(
    arguments: argparse.Namespace,
    tables: Iterator[pa.Table],
    none: pa.Schema,
    promise: Guarantee,
    total: int | None,
) -> None:
    """Write tables as they come, and tell how many rows; ``none`` are the fields if there are no.

    What is wrong with the first rows is said before anything is written.
    """
    pace, rows, to_file = Pace(), 0, arguments.output is not None
    first = list(islice(tables, 1))
    fields = first[0].schema if first else none
    what = arguments.run.__name__.replace("_", "-")
    with (
        writing(arguments.output, kind_of(arguments), fields, promise) as write,
        bar(arguments, what, total, shown=to_file) as progress,
    ):
        for table in chain(first, tables):
            write(table)
            rows += table.num_rows
            progress.update(table.num_rows)
    remark(arguments, pace.told(rows))
    remark(arguments, str(promise))
    if not to_file:
        return
    if what == "predict":
        made = f"{arguments.output} was computed by a model of hot rows (P1)"
        warn(f"{made}; the store cannot erase it")
    if arguments.json:
        told = {"output": str(arguments.output), "rows": rows, "names": fields.names}
        print(json.dumps(told | {"guarantee": promise.to_dict()}))
    else:
        columns = several(len(fields.names), "column")
        print(f"wrote {arguments.output}: {several(rows, 'row')}, {columns}")


# --- training-set ---------------------------------------------------------------------------


def training_set(arguments: argparse.Namespace) -> None:
    """Write the hot rows as features and label."""
    kind_of(arguments)
    with opened(arguments, reading=True) as pyramid:
        hot = pyramid.status().hot_rows
        training = pyramid.training_set(**workload_of(arguments, pyramid.schema))
        tables = _whole(_rows_of(training))
        first = list(islice(tables, 1))
        if not first:
            raise StateError("the hot window is empty, so there is nothing to train on; observe")
        where = arguments.output or "what is printed"
        warn(
            f"{where} holds raw rows (P1), in a copy that the store cannot erase; delete it when "
            f"they leave the hot window"
        )
        fields, promise = first[0].schema, training.guarantee
        _write(arguments, chain(first, tables), fields, promise, hot)


def _rows_of(training: TrainingSet) -> Iterator[pa.Table]:
    import pyarrow as pa

    names = [*training.names, training.label.name]
    for X, y in training.batches():
        yield pa.table([*map(pa.array, X.T), pa.array(y)], names=names)


def _whole(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Small tables put together: rows that came one by one should not be written so."""
    import pyarrow as pa

    from pyramidion.rows.files import ROWS

    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        if rows >= ROWS:
            yield pa.concat_tables(held).combine_chunks()
            held, rows = [], 0
    if held:
        yield pa.concat_tables(held).combine_chunks()


# --- predict --------------------------------------------------------------------------------


def predict(arguments: argparse.Namespace) -> None:
    """Turn rows into predictions."""
    import pyarrow as pa

    file = _file(arguments)
    with opened(arguments, reading=True) as pyramid:
        model, rows = _model(pyramid, arguments), _asked(file, pyramid)
        answers = pyramid.predict_proba if arguments.probabilities else pyramid.predict
        names, kind = _columns(model, arguments.probabilities)
        first = list(islice(rows, 1))
        if first:
            remark(arguments, f"training {model.name!r} on the hot rows")
            pyramid.models.retrain(model.name)
        tables = (_table(names, answers(model.name, batch)) for batch in chain(first, rows))
        none = pa.schema([(name, kind) for name in names])
        promise = pyramid.snapshot().guarantee.raw()
        _write(arguments, tables, none, promise, file.rows_hint)


def _model(pyramid: Pyramid, arguments: argparse.Namespace) -> Model:
    """The model that is asked, if it has what is asked of it."""
    from pyramidion.config.checks import nearest
    from pyramidion.learn.recipes import estimator_of

    name, models = arguments.name, dict(pyramid.models.items())
    if name not in models:
        remedy = nearest(name, models) if models else "add it with `pyramidion models add`"
        raise SchemaError(f"there is no model {name!r}; {remedy}")
    model = models[name]
    if arguments.probabilities and not (
        model.classes and hasattr(estimator_of(model.recipe), "predict_proba")
    ):
        raise SchemaError(f"model {name!r} gives no probabilities; leave out --probabilities")
    return model


def _columns(model: Model, probabilities: bool) -> tuple[list[str], pa.DataType]:
    """What predictions are called, and of which type they are."""
    import numpy as np
    import pyarrow as pa

    if probabilities:
        return [f"P({model.label}={each})" for each in map(str, model.classes)], pa.float64()
    return ["prediction"], pa.array(np.array(model.classes or (0.0,))).type


def _table(names: list[str], predictions: NDArray[Any]) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    columns = np.asarray(predictions).reshape(-1, len(names)).T
    return pa.table([pa.array(column) for column in columns], names=names)
