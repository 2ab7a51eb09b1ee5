"""``serve`` and ``tokens``: the service, and who may call it."""

from __future__ import annotations

import argparse
import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.cli.options import (
    Commands,
    Parser,
    add_json,
    add_limits,
    folder,
    limit,
    limits_of,
    ours_to_interrupt,
    say_erased,
)
from pyramidion.cli.output import date, table, warn
from pyramidion.errors import refuse_missing

if TYPE_CHECKING:
    from pyramidion.web.limits import Limits
    from pyramidion.web.service.tokens import Tokens

PORT = 8780
SERVED = [
    *("starlette", "uvicorn", "httptools", "uvloop"),
    *("msgspec", "prometheus_client", "jinja2", "plotly"),
]
"""Packages that a service needs."""
ROLES = ("observe", "train", "predict", "admin", "custodian-request")
"""As `pyramidion.web.tokens` has them, which is not loaded to show the help."""


def add(commands: Commands[Parser]) -> None:
    """Add both commands."""
    serving = commands.add_parser(
        "serve",
        help="serve the streams of a data directory over HTTP",
        description="Serve every store in a data directory as a stream, until Ctrl-C or SIGTERM; "
        "requests that were taken are finished. Callers need tokens: see `pyramidion tokens`.",
    )
    _add_folder(serving)
    serving.add_argument(
        "--keys",
        metavar="URL",
        help="who holds the store keys, with {stream} for the stream's name (default: "
        "file:~/.config/pyramidion/{stream}.key)",
    )
    serving.add_argument("--host", default="127.0.0.1", help="the address (default: 127.0.0.1)")
    serving.add_argument(
        "--port", type=int, default=PORT, help=f"the port; 0: a free one (default: {PORT})"
    )
    serving.add_argument(
        "--certificate", metavar="FILE.pem", type=Path, help="the certificate chain, for TLS"
    )
    serving.add_argument("--certificate-key", metavar="FILE.pem", type=Path, help="its key")
    add_limits(serving, 64)
    serving.add_argument(
        "--waiting",
        metavar="N",
        type=limit,
        help="observations of a stream that wait for a commit (default: 4096)",
    )
    add_json(serving)
    serving.set_defaults(run=serve)

    managing = commands.add_parser(
        "tokens",
        help="list who may call the service, let somebody in, take a token back",
        description="List the tokens of a service; a running one follows at once.",
    )
    _add_folder(managing, required=False)
    add_json(managing)
    managing.set_defaults(run=listed, parser=managing)
    verbs = managing.add_subparsers(title="commands", metavar="COMMAND")
    adding = verbs.add_parser(
        "add", help="make a token", description="Make a token; it is shown once, here."
    )
    adding.add_argument("name", metavar="NAME", help="who has it")
    adding.add_argument(
        "--role", action="append", choices=ROLES, required=True, help="what for; may be repeated"
    )
    adding.add_argument(
        "--stream", action="append", metavar="STREAM", help="for which (default: all, also new)"
    )
    _add_folder(adding)
    add_json(adding)
    adding.set_defaults(run=made)
    removing = verbs.add_parser("remove", help="take a token back", description="Take it back.")
    removing.add_argument("id", metavar="ID", help="as `pyramidion tokens` lists it")
    _add_folder(removing)
    add_json(removing)
    removing.set_defaults(run=removed)


def _add_folder(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=folder,
        required=required,
        help="the data directory, whose stores are the streams",
    )


def _waiting(arguments: argparse.Namespace, usual: Limits) -> Limits:
    waiting = arguments.waiting
    return usual if waiting is None else replace(usual, waiting_requests=waiting)


def serve(arguments: argparse.Namespace) -> None:
    """Serve until somebody says stop."""
    refuse_missing("the service", SERVED, "serve")
    from pyramidion.web.descriptors import raise_limit
    from pyramidion.web.limits import Limits
    from pyramidion.web.listen import Certificate, bound
    from pyramidion.web.logs import logged
    from pyramidion.web.service.server import collecting
    from pyramidion.web.service.server import serve as run
    from pyramidion.web.service.service import KEYS, Service

    raise_limit()
    certificate = Certificate.of(arguments.certificate, arguments.certificate_key)
    ours_to_interrupt()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, until it serves
    with (
        collecting(),
        logged(),
        bound(arguments.host, arguments.port) as listening,
        Service(
            arguments.data,
            keys=arguments.keys or KEYS,
            limits=limits_of(arguments, _waiting(arguments, Limits())),
            open_metrics=arguments.open_metrics,
            announce=lambda stream, due: say_erased(due, stream),
        ) as service,
    ):
        host, port = listening.getsockname()[:2]
        scheme = "http" if certificate is None else "https"
        where = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        if not len(service.tokens):
            warn(f"nobody has a token yet; `pyramidion tokens add NAME --data {arguments.data}`")
        print(json.dumps({"url": where}) if arguments.json else f"serving {where}", flush=True)
        run(service, listening, certificate)


def _tokens(arguments: argparse.Namespace) -> Tokens:
    from pyramidion.web.service.tokens import Tokens

    return Tokens.of(arguments.data)


def listed(arguments: argparse.Namespace) -> None:
    """List the tokens."""
    if arguments.data is None:
        arguments.parser.error("the following arguments are required: --data")
    found = _tokens(arguments).all()
    if arguments.json:
        print(json.dumps({"tokens": [token.to_dict() for token in found]}))
    elif not found:
        print("nobody has a token; make one with `pyramidion tokens add`")
    else:
        rows = [[t.id, t.name, " ".join(t.roles), " ".join(t.streams), date(t.made)] for t in found]
        print(table(["id", "name", "roles", "streams", "made"], rows))


def made(arguments: argparse.Namespace) -> None:
    """Make a token."""
    streams, now = arguments.stream or [], int(time.time() * 1_000_000)
    text = _tokens(arguments).add(arguments.name, arguments.role, streams, now)
    print(json.dumps({"token": text}) if arguments.json else text)


def removed(arguments: argparse.Namespace) -> None:
    """Take a token back."""
    gone = _tokens(arguments).remove(arguments.id)
    told = {"removed": gone.to_dict()}
    print(json.dumps(told) if arguments.json else f"took back the token of {gone.name}")
