"""``clock``: the time that a store goes by, and which clock is right where they disagree."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from pyramidion.cli.options import Commands, Parser, add_store, opened, say_erased
from pyramidion.cli.output import date, past_its_time
from pyramidion.cli.store import did
from pyramidion.store.clocks import SECOND, ClockStatus

FOLLOWS = {
    "nothing": "the system's clock",
    "system": "the system's clock",
    "rows": "imported rows, until rows are observed",
    "given": "--now",
}


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    looking = commands.add_parser(
        "clock",
        help="show the time that a store goes by, and say which clock is right",
        description="Show the time that a store goes by. Where the system's clock has jumped, "
        "nothing is erased or sealed until somebody says which clock is right. Looking changes "
        "nothing; a service that has the store open takes the same answers over HTTP.",
    )
    looking.add_argument(
        "answer",
        metavar="confirm|correct",
        nargs="?",
        choices=("confirm", "correct"),
        help="confirm: the system's clock is right, and the store goes by it, later or earlier. "
        "correct: it was wrong and has been set right, and the store's own time goes on",
    )
    looking.add_argument("--why", metavar="TEXT", help="the reason, for the audit log")
    add_store(looking)
    looking.set_defaults(run=clock)


def clock(arguments: argparse.Namespace) -> None:
    """Show the clocks, or take an answer."""
    with opened(arguments, reading=True) as pyramid:
        if arguments.answer is None:
            found, now = pyramid.clock, pyramid.now
            due = pyramid.admin.due(max(found.system, found.present) / SECOND)
            if arguments.json:
                print(json.dumps(found.to_dict() | {"now": now}))
                return
            print(_told(found, now))
            if found.alarm is not None and due.erases:
                print(f"if it is confirmed, {past_its_time(due)} and is erased")
            return
        why = arguments.why or ""
        if arguments.answer == "correct":
            done = pyramid.admin.correct_clock(why=why)
        else:
            due = pyramid.admin.due(pyramid.clock.system / SECOND)
            if why and due.erases:
                say_erased(due)
            done = pyramid.admin.confirm_clock(why=why)
        found, now = pyramid.clock, pyramid.now
    if arguments.json:
        print(json.dumps(found.to_dict() | {"now": now, "done": asdict(done)}))
    else:
        print(_told(found, now))
        print(did(done))


def _told(found: ClockStatus, now: int) -> str:
    lines = [
        ("store", date(now)),
        ("system", date(found.system)),
        ("follows", FOLLOWS[found.follows]),
    ]
    if found.alarm is not None:
        lines.append(("alarm", f"since {date(found.alarm.at)}: {found.problem}"))
    return "\n".join(f"{name:8} {text}" for name, text in lines)
