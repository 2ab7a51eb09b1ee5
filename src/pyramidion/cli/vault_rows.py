"""``vault``: granted rows: the broker that gives them, and ``open`` that takes them."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyramidion.cli.options import (
    Commands,
    Parser,
    add_json,
    add_passphrase,
    add_quiet,
    folder,
    ours_to_interrupt,
    unlocked,
)
from pyramidion.cli.output import Pace, bar, remark, several
from pyramidion.cli.row_files import Write, kind_of, writing
from pyramidion.errors import FormatError, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from pyramidion.vault.reader import GrantedRows


def add(verbs: Commands[Parser]) -> None:
    """Add the commands."""
    running = verbs.add_parser(
        "broker",
        help="give granted rows to engineers, until stopped",
        description="Run the broker of a store: it gives rows to engineers who have a grant. Its "
        "key lives in its memory alone, so stopping it ends all grants. It needs neither the "
        "store's lock nor its keys.",
    )
    running.add_argument(
        "--data", metavar="DIR", type=folder, required=True, help="the directory of the store"
    )
    running.add_argument(
        "--host", default="127.0.0.1", help="where to listen (default: %(default)s)"
    )
    running.add_argument("--port", type=int, default=0, help="the port (default: a free one)")
    add_json(running)
    running.set_defaults(run=broker)

    opening = verbs.add_parser(
        "open",
        help="read the rows of a grant",
        description="Read the rows of a grant, from the broker, into a new file. They are raw "
        "(P1), and nothing takes back what was read.",
    )
    opening.add_argument("grant", metavar="GRANT.json", type=Path)
    opening.add_argument(
        "--key", metavar="FILE", type=Path, required=True, help="the key that the request wrote"
    )
    opening.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help="write here, to a new file: Parquet, Arrow, Feather, NDJSON, CSV or TSV, as its "
        "suffix says; - for an Arrow stream to stdout",
    )
    opening.add_argument("--broker-at", metavar="ADDRESS", help="where the broker answers")
    opening.add_argument("--data", metavar="DIR", type=folder, help="the directory of the store")
    add_passphrase(opening, "none, or a prompt")
    add_quiet(opening)
    add_json(opening)
    opening.set_defaults(run=open_rows)


# --- broker -----------------------------------------------------------------------------------


def broker(arguments: argparse.Namespace) -> None:
    """Run a broker until a signal ends it."""
    from pyramidion.vault.broker_server import BrokerServer, announced, broker_at

    ours_to_interrupt()
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with broker_at(arguments.data) as made:
        server = BrokerServer(made, arguments.host, arguments.port)
        with announced(arguments.data, server):
            server.start()
            try:
                _announce(arguments, server)
                stopped.wait()
            finally:
                made.close()
                server.stop()
    if not arguments.json:
        print("stopped; all grants of this broker are over")


def _announce(arguments: argparse.Namespace, server: Any) -> None:
    made = server.broker
    told = {
        "address": server.address,
        "broker": made.public.to_code(),
        "fingerprint": made.public.fingerprint,
        "store": made.store,
        "custodian": made.custodian.fingerprint,
    }
    if arguments.json:
        print(json.dumps(told), flush=True)
        return
    print(f"broker of {arguments.data} at {told['address']}")
    print(f"fingerprint {told['fingerprint']}")
    print(f"store       {told['store']}")
    print(f"custodian   {told['custodian']}", flush=True)


def broker_of(arguments: argparse.Namespace) -> str:
    """The broker's address: as said, or as the store's directory says."""
    from pyramidion.vault.broker_server import found_at

    if arguments.broker_at:
        return str(arguments.broker_at)
    if arguments.data is None:
        raise SchemaError("where does the broker answer? give --broker-at ADDRESS, or --data")
    return found_at(arguments.data)[0]


# --- open -------------------------------------------------------------------------------------


def open_rows(arguments: argparse.Namespace) -> None:
    """Read the rows of a grant."""
    from pyramidion.counts.guarantee import Guarantee
    from pyramidion.storage.disk import read
    from pyramidion.vault.reader import open_grant

    ours_to_interrupt()
    to_stdout = str(arguments.output) == "-"
    kind = "arrow" if to_stdout else kind_of(arguments)
    if not to_stdout and arguments.output.exists():
        raise SchemaError(f"{arguments.output} exists already; choose another --output")
    key, pace, count = unlocked(arguments.key, arguments, bare=True), Pace(), 0
    promise = Guarantee(level="P1", epsilon=float("inf"), delta=1.0, k=1, windows=0)
    with open_grant(read(arguments.grant), key, broker_of(arguments)) as rows:
        tables = _alike(rows)
        first = list(islice(tables, 1))
        fields = first[0].schema
        made = _stdout(fields) if to_stdout else writing(arguments.output, kind, fields, promise)
        with (
            _private(),
            made as write,
            bar(arguments, "open", rows.most, shown=not to_stdout) as progress,
        ):
            for table in chain(first, tables):
                write(table)
                count += table.num_rows
                progress.update(table.num_rows)
    remark(arguments, pace.told(count))
    told = {"grant": rows.grant.id, "rows": count, "output": str(arguments.output)}
    if arguments.json and not to_stdout:
        print(json.dumps(told))
    elif not to_stdout:
        print(f"wrote {several(count, 'row')} to {arguments.output}; they are raw (P1)")


def _alike(rows: GrantedRows) -> Iterator[pa.Table]:
    """Tables of the same fields: as they come, or at once where files have different columns."""
    import pyarrow as pa

    asked = rows.grant.columns
    kinds = {tuple(n for n in asked if n in f.header.columns) for f in rows.grant.files}
    if len(kinds) != 1:
        yield rows.read_all()
        return
    yield from _cast(pa.Table.from_batches([batch]) for batch in rows.batches())


def _cast(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    import pyarrow as pa

    fields = None
    for table in tables:
        fields = table.schema if fields is None else fields
        try:
            yield table.cast(fields)
        except (pa.ArrowException, ValueError):
            fields = None
        if fields is None:
            raise FormatError(
                "files of this grant have a column of different types; ask for shorter times, or "
                "read them in Python with by_file()"
            )


@contextmanager
def _private() -> Iterator[None]:
    """Files that are made here are for their owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _stdout(fields: pa.Schema) -> Iterator[Write]:
    import pyarrow as pa

    sys.stdout.flush()
    with pa.ipc.new_stream(sys.stdout.buffer, fields) as writer:
        yield writer.write_table
    sys.stdout.buffer.flush()
