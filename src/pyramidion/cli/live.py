"""``live``: a service with a year of flights flowing through it, to look at."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING

from pyramidion.cli.options import Commands, Parser, add_json, add_quiet, ours_to_interrupt
from pyramidion.cli.output import bar, remark, warn
from pyramidion.cli.serve import PORT, ROLES, SERVED
from pyramidion.cli.temporary import hear_nothing, scratch
from pyramidion.errors import PyramidionError, StorageError, refuse_missing

if TYPE_CHECKING:
    from pyramidion.demo.flights import Flights
    from pyramidion.demo.flow import Flow, Moment
    from pyramidion.demo.year import Clock
    from pyramidion.web.service.service import Service

HOST = "127.0.0.1"
FIRST, LAST = date(2013, 2, 1), date(2013, 12, 31)
USUAL = date(2013, 4, 11)
"""A hundred days in: five windows are sealed, and one is gone already."""
GRACE = 3  # seconds that requests have to finish once a stop was asked for
MOST = 10_000  # flights of which one flows
FASTEST = 1_000.0  # days each second; no machine is that fast
FEEDING = ("observe", "train", "predict", "admin")
"""The roles of who sends the flights."""
NEEDED = [*SERVED, "httpx"]


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    living = commands.add_parser(
        "live",
        help="serve a year of flights that flows while one looks",
        description="Serve a stream into which the flights from New York in 2013 flow, a day each "
        "second by a simulated clock: windows seal and retire, hot rows leave, models are trained "
        "and asked. Prints the address and a token to log in with. Everything lies in temporary "
        "directories, which Ctrl-C or SIGTERM remove.",
    )
    living.add_argument(
        "--pace",
        metavar="DAYS",
        type=_pace,
        default=1.0,
        help="days of 2013 that go by each second, at most (default: %(default)g)",
    )
    living.add_argument(
        "--begin",
        metavar="DATE",
        type=_begin,
        default=USUAL,
        help=f"the first day that flows; those before are there at once (default: {USUAL})",
    )
    living.add_argument(
        "--port",
        type=int,
        help=f"the port; 0: a free one (default: {PORT}, or a free one where that is taken)",
    )
    living.add_argument(
        "--one-in", metavar="N", type=_whole, default=1, help="only every Nth flight (default: 1)"
    )
    living.add_argument(
        "--for",
        metavar="SECONDS",
        type=_seconds,
        dest="seconds",
        help="stop after so long (default: when it is told to)",
    )
    add_quiet(living)
    add_json(living)
    living.set_defaults(run=live)


def _pace(text: str) -> float:
    return _number(text, "a number of days above 0", FASTEST)


def _seconds(text: str) -> float:
    return _number(text, "a number of seconds above 0", threading.TIMEOUT_MAX)


def _number(text: str, what: str, most: float) -> float:
    with suppress(ValueError):
        if 0 < float(text) <= most:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be {what}, {most:g} at most")


def _whole(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST}")
    return int(text)


def _begin(text: str) -> date:
    with suppress(ValueError):
        if FIRST <= date.fromisoformat(text) <= LAST:
            return date.fromisoformat(text)
    raise argparse.ArgumentTypeError(f"must be a date from {FIRST} to {LAST}")


def live(arguments: argparse.Namespace) -> None:
    """Serve until somebody says stop, and leave nothing behind."""
    from pyramidion.demo import check_installed

    check_installed()
    refuse_missing("the living demo", NEEDED, "client,serve,vault")
    ours_to_interrupt()
    with (
        scratch(2, lambda told: remark(arguments, told)) as (place, keys),
        _listening(arguments) as listening,
    ):
        from pyramidion.demo import flights
        from pyramidion.demo.flow import STREAM, days_until, one_in, prepare
        from pyramidion.demo.year import Clock
        from pyramidion.web.logs import logged
        from pyramidion.web.service.service import Service

        clock, first, data = Clock(), days_until(arguments.begin), place / "data"
        loaded = one_in(flights.load(), arguments.one_in)
        holder = f"file:{keys}/{{stream}}.key"
        with bar(arguments, "flights", None) as progress:
            prepare(
                data / STREAM,
                loaded,
                clock,
                first,
                keys=holder.format(stream=STREAM),
                vault=place / "vault",
                watch=progress.update,
            )
        with (
            logged(troubles=True),
            Service(data, keys=holder, clocks={STREAM: clock}) as service,
        ):
            problem = _flowing(arguments, service, listening, loaded, clock)
    remark(arguments, "stopped; all of it is removed")
    if problem is not None:
        raise problem


def _flowing(
    arguments: argparse.Namespace,
    service: Service,
    listening: socket.socket,
    loaded: Flights,
    clock: Clock,
) -> PyramidionError | None:
    """Serve while flights flow; what ended these before their time."""
    from pyramidion.demo.flow import Flow, days_until
    from pyramidion.web.client import Client
    from pyramidion.web.service.server import serve

    url = f"http://{HOST}:{listening.getsockname()[1]}"
    login, feeding = (
        service.tokens.add(name, roles, [], service.now)
        for name, roles in (("you", ROLES), ("flights", FEEDING))
    )
    shown, stop, first = Shown(arguments), threading.Event(), days_until(arguments.begin)
    with Client(url, token=feeding, retries=2) as client:
        pace = arguments.pace
        flow = Flow(client, loaded, clock, first, pace=pace, tell=shown.tell, stop=stop)
        try:
            shown.introduce(url, login)
            flow.start()
            shown.watch(flow, stop)
            serve(service, listening, stop=stop, grace=GRACE)
        finally:
            hear_nothing()
            stop.set()
            listening.close()  # or who was not answered yet would wait on
            flow.join()
            shown.end()
    return flow.problem


@contextmanager
def _listening(arguments: argparse.Namespace) -> Iterator[socket.socket]:
    """The port that was asked for; or the usual one, or else a free one."""
    from pyramidion.web.listen import bound

    try:
        found = bound(HOST, PORT if arguments.port is None else arguments.port)
    except StorageError:
        if arguments.port is not None:
            raise
        remark(arguments, f"port {PORT} is taken, so another one is used")
        found = bound(HOST, 0)
    with found:
        yield found


class Shown:
    """What is printed: the address and a token, then one line that changes as time goes by.

    Where no terminal would show the line change, there is one for each month; as JSON, one for
    each day.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._changing = not (arguments.json or arguments.quiet) and sys.stderr.isatty()
        self._last = ""
        self._written = threading.Lock()
        self._watcher: threading.Thread | None = None

    def introduce(self, url: str, token: str) -> None:
        """Say where it is, and how one gets in."""
        if self._arguments.json:
            told = json.dumps({"url": url, "token": token})
        else:
            pace = self._arguments.pace
            speed = "a day" if pace == 1 else f"{pace:g} days"
            told = (
                f"The flights of 2013 flow, {speed} each second, from {self._arguments.begin} on.\n"
                f"\n  look here    {url}/\n  log in with  {token}\n\n"
                f"The raw history is sealed to a custodian whose key was thrown away: nobody opens "
                f"it.\nCtrl-C ends it and removes everything, the token too."
            )
        print(told, flush=True)

    def tell(self, moment: Moment) -> None:
        """Say what there is now."""
        day, line = moment.at[:10], _line(moment)
        if self._changing:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r{line[:width]}\x1b[K")
        elif self._arguments.json and self._last[:10] != day:
            self._print(json.dumps(asdict(moment)))
        elif not (self._arguments.json or self._arguments.quiet) and self._last[:7] != day[:7]:
            self._write(f"{line}\n")
        self._last = day

    def watch(self, flow: Flow, stop: threading.Event) -> None:
        """Say when the flights end, before their time or with the year."""
        self._watcher = threading.Thread(
            target=self._watch, args=(flow, stop), name="pyramidion watcher", daemon=True
        )
        self._watcher.start()

    def _watch(self, flow: Flow, stop: threading.Event) -> None:
        began = time.monotonic()
        most = self._arguments.seconds
        while not (flow.over or flow.problem) and not stop.wait(0.1):
            if most is not None and time.monotonic() > began + most:
                stop.set()
        if stop.is_set():
            return
        if flow.problem is not None:
            self._new_line()
            warn(f"the flights stopped, the service goes on: {flow.problem}")
        elif self._arguments.json:
            self._print(json.dumps({"over": True}))
        elif not self._arguments.quiet:
            self._new_line()
            self._write("the year is over, and its clock stands still; Ctrl-C ends it\n")
        if most is not None and not stop.wait(max(0.0, began + most - time.monotonic())):
            stop.set()

    def end(self) -> None:
        """Nothing more is said."""
        self._new_line()
        if self._watcher is not None:
            self._watcher.join()

    def _new_line(self) -> None:
        if self._changing and self._last:
            self._write("\n")

    def _write(self, text: str) -> None:
        with self._written, suppress(OSError, ValueError):  # nobody looks any more
            sys.stderr.write(text)
            sys.stderr.flush()

    def _print(self, line: str) -> None:
        with self._written, suppress(OSError, ValueError):
            print(line, flush=True)


def _line(moment: Moment) -> str:
    epsilon = "none" if moment.epsilon is None else f"{moment.epsilon:g}"
    return (
        f"{moment.at[:10]}  rows: {moment.hot:,} hot · {moment.summarised:,} summarised · "
        f"{moment.sealed:,} sealed · {moment.gone:,} gone · ε = {epsilon}"
    )
