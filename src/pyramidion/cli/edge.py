"""``edge``: predictions away from the store."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from pyramidion import __version__
from pyramidion.cli.options import Commands, Parser, add_json, add_limits, limits_of
from pyramidion.errors import SchemaError

PORT = 8781
EVERY = 15.0


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "edge",
        help="predict away from the store: tables and models in memory, no rows, no disk",
        description="Answer predictions and features from copies of a service's tables and "
        "models, held in memory and renewed from the service, until Ctrl-C or SIGTERM. While the "
        "service is away, copies serve until they expire.",
    )
    parser.add_argument(
        "--from", dest="url", metavar="URL", required=True, help="the address of the service"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        required=True,
        help="the edge's own token, with the role predict",
    )
    parser.add_argument(
        "--stream", action="append", metavar="STREAM", required=True, help="may be repeated"
    )
    parser.add_argument(
        "--model",
        action="append",
        metavar="MODEL",
        default=[],
        help="a model to hold, or STREAM/MODEL where there are several streams; may be repeated",
    )
    parser.add_argument(
        "--token-hash-file",
        metavar="FILE",
        type=Path,
        required=True,
        help="whose tokens are answered: the service's file of tokens, or lines ID SHA256",
    )
    parser.add_argument(
        "--key",
        metavar="HEX",
        help="the service's public key, as its /v1/key says (default: the one it tells first)",
    )
    parser.add_argument(
        "--trust",
        metavar="FILE.pem",
        type=Path,
        help="certificates to trust (default: the system's)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=PORT, help=f"the port; 0: a free one (default: {PORT})"
    )
    parser.add_argument(
        "--certificate", metavar="FILE.pem", type=Path, help="the certificate chain, for TLS"
    )
    parser.add_argument("--certificate-key", metavar="FILE.pem", type=Path, help="its key")
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=float,
        default=EVERY,
        help=f"how often to look for newer copies (default: {EVERY:g})",
    )
    add_limits(parser, 16)
    add_json(parser)
    parser.set_defaults(run=edge)


def edge(arguments: argparse.Namespace) -> None:
    """Answer until somebody says stop."""
    wanted = _wanted(arguments.stream, arguments.model)
    if arguments.every <= 0:
        raise SchemaError("--every must be above 0 seconds; give such a number")
    from pyramidion.web.client import Client
    from pyramidion.web.descriptors import raise_limit
    from pyramidion.web.edge.bodies import LIMITS
    from pyramidion.web.edge.copies import Copies
    from pyramidion.web.edge.edge import Edge
    from pyramidion.web.edge.server import serve
    from pyramidion.web.listen import Certificate, bound
    from pyramidion.web.logs import logged
    from pyramidion.web.tokens import TokenFile

    raise_limit()
    certificate = Certificate.of(arguments.certificate, arguments.certificate_key)
    tokens = TokenFile(arguments.token_hash_file)
    tokens.check()
    client = Client(
        arguments.url,
        token=_token(arguments.token_file),
        key=arguments.key,
        verify=True if arguments.trust is None else arguments.trust,
        timeout=20.0,
        retries=0,  # the edge looks again by itself
    )
    limits = limits_of(arguments, LIMITS)
    with logged(), bound(arguments.host, arguments.port) as listening:
        host, port = listening.getsockname()[:2]
        scheme = "http" if certificate is None else "https"
        copies = Copies(client, wanted, clock=time.time, every=arguments.every)
        _say(arguments, f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", wanted)
        about = {"open_metrics": arguments.open_metrics, "version": __version__}
        made = Edge(copies.begin(), tokens, limits, **about)
        serve(made, listening, certificate)


def _say(arguments: argparse.Namespace, where: str, wanted: dict[str, list[str]]) -> None:
    if arguments.json:
        print(json.dumps({"url": where, "streams": wanted}), flush=True)
        return
    print(f"edge at {where}", flush=True)
    for stream, models in wanted.items():
        print(f"  {stream}: {', '.join(models) or 'features only'}", flush=True)


def _wanted(streams: list[str], models: list[str]) -> dict[str, list[str]]:
    """The models of each stream.

    >>> _wanted(["flights"], ["late"]), _wanted(["a", "b"], ["b/m"])
    ({'flights': ['late']}, {'a': [], 'b': ['m']})
    """
    wanted: dict[str, list[str]] = {stream: [] for stream in streams}
    for model in models:
        stream, _, name = model.rpartition("/")
        stream = stream or (streams[0] if len(wanted) == 1 else "")
        if stream not in wanted or not name:
            raise SchemaError(
                f"--model {model} names no stream of this edge; write STREAM/MODEL, and give "
                f"--stream STREAM"
            )
        wanted[stream].append(name)
    return wanted


def _token(path: Path) -> str:
    from pyramidion.config.secret_files import read_secret

    lines = read_secret(path).decode("utf-8", errors="replace").split()
    if len(lines) != 1:
        raise SchemaError(f"{path} must hold one token and nothing else; write it anew")
    return lines[0]
