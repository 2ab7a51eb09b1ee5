"""How much a service or an edge takes, as options."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyramidion.web.limits import Limits

MOST = 1_000_000


def add_limits(parser: argparse.ArgumentParser, megabytes: int) -> None:
    """Add the options; a body has so many megabytes where nobody says otherwise."""
    parser.add_argument(
        "--rate", metavar="N", type=number, help="requests of a token each second (default: 5000)"
    )
    parser.add_argument(
        "--at-once", metavar="N", type=number, help="requests answered at once (default: 256)"
    )
    parser.add_argument(
        "--body",
        metavar="MB",
        type=number,
        help=f"the largest body in megabytes (default: {megabytes})",
    )
    parser.add_argument(
        "--open-metrics", action="store_true", help="let everybody read /metrics, not only admins"
    )


def limits_of(arguments: argparse.Namespace, usual: Limits) -> Limits:
    """The limits that were given, and the others as they are."""
    given: dict[str, Any] = {}
    if arguments.rate is not None:
        given |= {"per_second": float(arguments.rate), "burst": 2 * arguments.rate}
    if arguments.at_once is not None:
        given["at_once"] = arguments.at_once
    if arguments.body is not None:
        most = arguments.body << 20
        given |= {"body_bytes": most, "json_bytes": min(most, usual.json_bytes)}
        given["waiting_bytes"] = max(most, usual.waiting_bytes)
        given["held_bytes"] = max(2 * most, usual.held_bytes)
    return replace(usual, **given)


def number(text: str) -> int:
    """A limit, as it is typed."""
    if not text.isdecimal() or not 0 < int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST}")
    return int(text)
