"""``import`` for a history, ``observe`` for new rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pyramidion.cli.options import (
    Commands,
    Parser,
    add_rows,
    add_skip_bad,
    add_store,
    opened,
    say_erased,
)
from pyramidion.cli.output import Pace, Stop, bar, date, past_its_time, remark, several, warn
from pyramidion.errors import ObservationError

if TYPE_CHECKING:
    from pyramidion.rows.history import Replay
    from pyramidion.storage.hot import Receipt
    from pyramidion.store.pyramid import Pyramid
    from pyramidion.store.status import Status


def add(commands: Commands[Parser]) -> None:
    """Add both commands."""
    importing = commands.add_parser(
        "import",
        help="replay a history of files by event time",
        description="Replay files in the order of event time; windows roll as it goes. An import "
        "that was broken off goes on where it stopped when it is run again, and one that is "
        "complete changes nothing. Rows later than now are refused.",
    )
    importing.add_argument("files", metavar="FILE", nargs="+", help="data files, or - for stdin")
    add_rows(importing)
    add_skip_bad(importing)
    add_store(importing)
    importing.set_defaults(run=import_files)

    observing = commands.add_parser(
        "observe",
        help="take in new rows",
        description="Take in new rows, batch by batch: what a batch brought is durable before the "
        "next is read. Rows whose window is sealed already are counted in the current one and "
        "are called late.",
    )
    observing.add_argument("file", metavar="FILE", help="a data file, or - for stdin")
    observing.add_argument(
        "--key",
        metavar="TEXT",
        help="makes it safe to send the same rows again, as long as they are hot: batch N is "
        "taken once under the key TEXT:N",
    )
    add_rows(observing)
    add_skip_bad(observing)
    add_store(observing)
    observing.set_defaults(run=observe)


@dataclass
class Totals:
    """Receipts added up."""

    accepted: int = 0
    refused: int = 0
    late: int = 0
    blanked: int = 0

    def add(self, receipt: Receipt) -> int:
        """One more; gives its rows."""
        self.accepted += receipt.accepted
        self.refused += receipt.refused
        self.late += receipt.late
        self.blanked += receipt.blanked
        return receipt.accepted + receipt.refused

    @property
    def rows(self) -> int:
        """All rows that were looked at."""
        return self.accepted + self.refused

    def __str__(self) -> str:
        told = f"{self.accepted:,} accepted, {self.refused:,} refused, {self.late:,} late"
        return told + (f", {self.blanked:,} blanked" if self.blanked else "")


# --- import ------------------------------------------------------------------------------


def import_files(arguments: argparse.Namespace) -> None:
    """Replay a history into the store."""
    from pyramidion.rows.files import DataFile
    from pyramidion.rows.history import in_order

    files = [DataFile(path, format=arguments.format) for path in arguments.files]
    with opened(arguments, reading=True) as pyramid:  # or it would erase what this is a part of
        remark(arguments, f"looking through {several(len(files), 'file')}")
        history = in_order(files, pyramid.schema)
        if arguments.errors == "refuse":
            _refuse_future(history, pyramid)
        before, done, pace = pyramid.status(), pyramid.admin.replayed(history), Pace()
        if done:
            remark(arguments, f"{several(done, 'row')} of these were imported before")
        _say_erased(history, pyramid, done)
        totals = _replayed(arguments, pyramid, history, done)
        if totals.rows:
            remark(arguments, pace.told(totals.rows))
        after = pyramid.status()
        _say_time(arguments, pyramid, after)
    _tell_import(arguments, history, totals, before, after)


def _replayed(
    arguments: argparse.Namespace, pyramid: Pyramid, history: Replay, done: int
) -> Totals:
    totals = Totals()
    with bar(arguments, "import", history.rows, done) as progress, Stop() as stop:
        replay = pyramid.replay(history, errors=arguments.errors)
        with _placed(lambda: f"the first {done + totals.rows:,} in the order of event time"):
            for receipt in replay:
                progress.update(totals.add(receipt))
                if stop.asked and done + totals.rows < history.rows:
                    raise KeyboardInterrupt(
                        f"stopped after {done + totals.rows:,} of {history.rows:,} rows; the "
                        f"import goes on from there when it is run again"
                    )
    return totals


def _refuse_future(history: Replay, pyramid: Pyramid) -> None:
    """Say that a time is in the future before any row is taken, not after years of them."""
    now = pyramid.status().clock.present
    if history.last is not None and history.last > now + pyramid.settings.max_skew_us:
        raise ObservationError(
            f"these files have event times beyond `max_skew` after now, {date(now)} UTC; mend "
            f"them, or give --now if it is later than that"
        )


def _say_erased(history: Replay, pyramid: Pyramid, done: int) -> None:
    """Say what is in the store and will be past its time when these rows are through."""
    if history.last is not None and done < history.rows:
        last = min(history.last, pyramid.status().clock.present)
        due = pyramid.admin.due(last / 1_000_000)
        if due.erases:
            say_erased(due)


def _say_time(arguments: argparse.Namespace, pyramid: Pyramid, after: Status) -> None:
    """Say by which time the store goes on, and what that erases."""
    now = after.clock.present
    due = pyramid.admin.due(now / 1_000_000)
    if after.clock.follows == "rows":
        remark(arguments, f"the store's time follows these rows, to {date(after.at)} UTC")
        told = "the first rows that are observed move the store to that time"
    else:
        told = "the next command at that time that does what is due erases it"
    if due.retired:
        warn(f"{past_its_time(due)}; {told}")
    elif due.erases:
        remark(arguments, f"{past_its_time(due)}; {told}")


def _tell_import(
    arguments: argparse.Namespace,
    history: Replay,
    totals: Totals,
    before: Status,
    after: Status,
) -> None:
    sealed = _sealed(after) - _sealed(before)
    imported_before = history.rows - totals.rows
    if arguments.json:
        told = {"rows": history.rows, "before": imported_before, **asdict(totals)}
        told |= {"windows_sealed": sealed, "hot_rows": after.hot_rows}
        print(json.dumps(told | {"first": history.first, "last": history.last}))
    elif not totals.rows:
        print(f"nothing new: all {several(history.rows, 'row')} were imported before")
    else:
        print(f"{several(totals.rows, 'row')}: {totals}")
        print(f"{several(sealed, 'window')} sealed, {several(after.hot_rows, 'hot row')} kept")


def _sealed(status: Status) -> int:
    return sum(window.rows > 0 and window.state != "populating" for window in status.windows)


# --- observe -----------------------------------------------------------------------------


def observe(arguments: argparse.Namespace) -> None:
    """Take in new rows."""
    from pyramidion.rows.files import ROWS, DataFile
    from pyramidion.rows.observations import types_for

    file = DataFile(arguments.file, format=arguments.format)
    totals, pace = Totals(), Pace()
    with opened(arguments) as pyramid:
        _say_history(pyramid)
        schema, most = pyramid.schema, min(ROWS, pyramid.settings.window_rows or ROWS)
        types = types_for(schema, pyramid.keyed_by)
        batches = file.batches(schema.columns, types=types, rows=most)
        with (
            bar(arguments, "observe", file.rows_hint) as progress,
            Stop() as stop,
            _placed(lambda: f"the first {totals.rows:,}"),
        ):
            for number, batch in enumerate(batches):
                if stop.asked:
                    raise KeyboardInterrupt(_stopped(arguments, totals))
                key = None if arguments.key is None else f"{arguments.key}:{number}"
                receipt = pyramid.observe(batch, key=key, errors=arguments.errors)
                progress.update(totals.add(receipt))
    remark(arguments, pace.told(totals.rows))
    print(
        json.dumps(asdict(totals)) if arguments.json else f"{several(totals.rows, 'row')}: {totals}"
    )


def _say_history(pyramid: Pyramid) -> None:
    """Say what of an imported history goes when live rows come."""
    clock = pyramid.status().clock
    due = pyramid.admin.due(clock.present / 1_000_000)
    if clock.follows == "rows" and due.erases:
        say_erased(due)


def _stopped(arguments: argparse.Namespace, totals: Totals) -> str:
    again = "with the same --key sends none twice" if arguments.key else "would send these twice"
    return f"stopped after {several(totals.rows, 'row')}, which are in; running it again {again}"


@contextmanager
def _placed(where: Callable[[], str]) -> Iterator[None]:
    """Bad rows are numbered within their batch: say where that begins, and what helps."""
    try:
        yield
    except ObservationError as error:
        if not error.problems:
            raise
        raise ObservationError(
            f"of the rows after {where()}, which are in: {error}, as --skip-bad does",
            error.problems,
        ) from None
