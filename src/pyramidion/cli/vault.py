"""``vault``: keys, and the documents that people carry: request, grant, revoke."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyramidion.cli import vault_files, vault_rows
from pyramidion.cli.options import (
    Commands,
    Parser,
    add_json,
    add_passphrase,
    add_store,
    clock_of,
    folder,
    given_passphrase,
    moment,
    new_passphrase,
    opened,
    unlocked,
)
from pyramidion.cli.output import date, several
from pyramidion.errors import FormatError, SchemaError, StateError

if TYPE_CHECKING:
    from pyramidion.vault.documents import Grant, Request


EVER = (0, 1 << 53)
"""Microseconds from 1970 until long from now."""


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    vault = commands.add_parser(
        "vault",
        help="keys, requests and grants of the sealed raw history, and its rows",
        description="The vault: raw history that the store's machine cannot read. A custodian's "
        "key opens it, file by file, for an engineer who says why, and for a time.",
    )
    verbs = vault.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_keygen(verbs)
    _add_request(verbs)
    _add_sign(verbs)
    _add_grant(verbs)
    _add_revoke(verbs)
    vault_rows.add(verbs)
    vault_files.add(verbs)


# --- request ----------------------------------------------------------------------------------


def _add_request(verbs: Commands[Parser]) -> None:
    asking = verbs.add_parser(
        "request",
        help="ask the custodian for rows",
        description="Ask for rows that arrived from one time up to another. The request goes to "
        "the custodian, the key stays with who asks: the rows will open with it alone.",
    )
    asking.add_argument("--from", dest="first", metavar="TIME", type=moment)
    asking.add_argument("--to", dest="last", metavar="TIME", type=moment)
    asking.add_argument(
        "--columns", metavar="A,B", help="the columns that are needed (default: all)"
    )
    asking.add_argument(
        "--erase",
        action="store_true",
        help="ask for whole files, to erase a person from them with `erase-person --grant`; "
        "the grant gives no rows to read (default: of the whole vault)",
    )
    asking.add_argument(
        "--reason",
        metavar="TEXT",
        required=True,
        help="what the rows are for; it stays in the audit log for ever: it must not name a person",
    )
    asking.add_argument(
        "--as", dest="engineer", metavar="NAME", help="who asks (default: the user's name)"
    )
    asking.add_argument("--output", metavar="FILE", type=Path, required=True, help="the request")
    asking.add_argument(
        "--key-output", metavar="FILE", type=Path, required=True, help="the key of who asks"
    )
    asking.add_argument(
        "--protect", action="store_true", help="put the key under a passphrase, from a prompt"
    )
    add_passphrase(asking, "none")
    add_broker_at(asking)
    add_store(asking)
    asking.set_defaults(run=request)


def add_broker_at(parser: argparse.ArgumentParser) -> None:
    """Add ``--broker-at``."""
    parser.add_argument(
        "--broker-at",
        metavar="ADDRESS",
        help="where the broker answers, as http://HOST:PORT (default: as --data says)",
    )


def request(arguments: argparse.Namespace) -> None:
    """Ask for rows."""
    from pyramidion.vault.broker_server import found_at
    from pyramidion.vault.key_pairs import PrivateKey
    from pyramidion.vault.reader import hello

    refuse_there(arguments.output, arguments.key_output)
    first, last = _times(arguments)
    at = arguments.broker_at
    found = hello(at) if at else found_at(arguments.data)[1]
    passphrase = "" if given_passphrase(arguments) is None and not arguments.protect else None
    key = PrivateKey.new()
    text = key.to_text(new_passphrase(arguments) if passphrase is None else passphrase)
    with opened(arguments, reading=True) as pyramid:
        vault = vault_files.vault_of(pyramid)
        if found.store != vault.store:
            raise StateError("the broker there is another store's; give the address of this one's")
        written(arguments.key_output, text)
        try:
            made = vault.request(
                first,
                last,
                columns=_columns(arguments.columns, pyramid.schema),
                purpose="erase" if arguments.erase else "read",
                reason=arguments.reason,
                engineer=arguments.engineer or getpass.getuser(),
                key=key,
                broker=found.broker,
                now=round(clock_of(arguments)() * 1e6),
            )
            written(arguments.output, made.to_json())
        except BaseException:
            arguments.key_output.unlink(missing_ok=True)
            raise
    if arguments.json:
        print(json.dumps(_summary(made) | {"output": str(arguments.output)}))
        return
    print(_told(made))
    print(f"wrote {arguments.output}: for the custodian, who may compare these fingerprints")
    print(f"wrote {arguments.key_output}: for you alone, to open the grant with")


def _times(arguments: argparse.Namespace) -> tuple[int, int]:
    """From when up to when, in microseconds; to erase, at all times unless said."""
    told = arguments.first, arguments.last
    if not arguments.erase and None in told:
        raise SchemaError("which rows? give --from and --to, the times when they arrived")
    first, last = (
        end if time is None else round(time * 1e6) for time, end in zip(told, EVER, strict=True)
    )
    return first, last


def _columns(text: str | None, schema: Any) -> list[str]:
    """The columns that are asked for, all of them columns of the store's."""
    known = list(schema.columns)
    if text is None:
        return known
    asked = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    strangers = [name for name in asked if name not in known and not name.startswith("_")]
    if strangers or not asked:
        what = repr(strangers[0]) if strangers else "what was given"
        raise SchemaError(f"{what} is no column of the store; choose of {', '.join(known)}")
    return asked


def _add_sign(verbs: Commands[Parser]) -> None:
    signing = verbs.add_parser(
        "sign",
        help="sign a request that a service drafted",
        description="Sign a request that a service drafted for this key, once you have seen what "
        "it asks for. It needs no store: run it where the private key is.",
    )
    signing.add_argument("draft", metavar="DRAFT.json", type=Path)
    _add_key(signing, "the key of who asks, as `vault keygen` made it")
    signing.add_argument("--output", metavar="FILE", type=Path, required=True, help="the request")
    add_passphrase(signing, PROMPT)
    add_json(signing)
    signing.set_defaults(run=sign)


def sign(arguments: argparse.Namespace) -> None:
    """Sign a draft."""
    from pyramidion.storage.disk import read
    from pyramidion.vault.documents import Request

    refuse_there(arguments.output)
    made = Request.from_draft(read(arguments.draft), unlocked(arguments.key, arguments))
    written(arguments.output, made.to_json())
    if arguments.json:
        print(json.dumps(_summary(made) | {"output": str(arguments.output)}))
        return
    print(_told(made))
    print(f"wrote {arguments.output}: for the custodian, who may compare these fingerprints")


# --- grant ------------------------------------------------------------------------------------


def _add_grant(verbs: Commands[Parser]) -> None:
    granting = verbs.add_parser(
        "grant",
        help="approve a request, with the custodian's key",
        description="Approve a request, for a time. It needs no store: run it where the private "
        "key is. What is asked is shown first; what is read once is read.",
    )
    granting.add_argument("request", metavar="REQUEST.json", type=Path)
    _add_key(granting, "the custodian's private key")
    granting.add_argument(
        "--expires",
        metavar="TIME",
        required=True,
        help="when it ends: a length from now, such as 2h, or a time",
    )
    granting.add_argument(
        "--broker",
        metavar="FINGERPRINT",
        help="refuse if the broker has another fingerprint than the one it printed when it started",
    )
    granting.add_argument(
        "--engineer", metavar="FINGERPRINT", help="refuse if who asks has another fingerprint"
    )
    granting.add_argument(
        "--yes", action="store_true", help="approve without a question; takes --broker"
    )
    granting.add_argument("--output", metavar="FILE", type=Path, required=True, help="the grant")
    _add_now(granting)
    add_passphrase(granting, PROMPT)
    add_json(granting)
    granting.set_defaults(run=grant)


def _add_key(parser: argparse.ArgumentParser, what: str, *, required: bool = True) -> None:
    parser.add_argument("--key", metavar="FILE", type=Path, required=required, help=what)


def _add_now(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--now", metavar="TIME", type=moment, help="pretend that it is this time")


def grant(arguments: argparse.Namespace) -> None:
    """Approve a request."""
    from pyramidion.storage.disk import read
    from pyramidion.vault.documents import Grant, Request

    refuse_there(arguments.output)
    _refuse_blind(arguments)
    asked = Request.from_json(read(arguments.request))
    now = _now(arguments)
    expires = _ending(arguments.expires, now)
    for who, key in (("broker", asked.broker), ("engineer", asked.key)):
        _refuse_unlike(who, getattr(arguments, who), key.fingerprint)
    if not arguments.json:
        print(_told(asked))
        print(f"until     {date(expires)}; what was read by then was read")
    _confirm(arguments)
    made = Grant.make(asked, unlocked(arguments.key, arguments), now=now, expires=expires)
    written(arguments.output, made.to_json())
    if arguments.json:
        told = {"grant": made.id, "expires": expires, "output": str(arguments.output)}
        print(json.dumps(_summary(made) | told))
    else:
        print(f"wrote {arguments.output}: grant {made.id}, for {plain(made.engineer)}")


def _ending(text: str, now: int) -> int:
    """A length from now, or a moment, in microseconds."""
    from pyramidion.config.durations import microseconds

    try:
        return now + microseconds(text, "--expires")
    except SchemaError:
        pass
    try:
        return round(moment(text) * 1e6)
    except argparse.ArgumentTypeError:
        raise SchemaError(
            'a grant expires after a length such as "2h", or at a time such as "2024-05-01T18:00"; '
            "give --expires one of them"
        ) from None


def _refuse_unlike(who: str, told: str | None, fingerprint: str) -> None:
    if told is not None and "".join(told.split()).lower() != fingerprint.replace(" ", ""):
        raise StateError(
            f"the {who} of this request has the fingerprint {fingerprint}, not the one given; "
            f"refuse it, and ask who made it"
        )


def _refuse_blind(arguments: argparse.Namespace) -> None:
    """A false broker would get the keys of whole files, so somebody must have compared."""
    if arguments.yes and arguments.broker is None:
        raise SchemaError(
            "with --yes nobody compares the broker's fingerprint; give --broker FINGERPRINT, as "
            "the broker printed it when it started"
        )


def _confirm(arguments: argparse.Namespace) -> None:
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise SchemaError("there is no terminal to ask whether to approve; give --yes and --broker")
    print("approve? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise StateError("the request was not approved; nothing was written")


# --- revoke -----------------------------------------------------------------------------------


def _add_revoke(verbs: Commands[Parser]) -> None:
    revoking = verbs.add_parser(
        "revoke",
        help="end a grant before its time",
        description="End a grant: sign that with the custodian's key, and take it to the broker, "
        "or write it to a file that somebody carries there. Running reads end, too.",
    )
    revoking.add_argument(
        "document", metavar="FILE", type=Path, help="a grant, or a revocation that was written"
    )
    _add_key(revoking, "the custodian's private key, for a grant", required=False)
    revoking.add_argument("--output", metavar="FILE", type=Path, help="write the revocation here")
    add_broker_at(revoking)
    revoking.add_argument("--data", metavar="DIR", type=folder, help="the directory of the store")
    _add_now(revoking)
    add_passphrase(revoking, PROMPT)
    add_json(revoking)
    revoking.set_defaults(run=revoke)


def revoke(arguments: argparse.Namespace) -> None:
    """End a grant."""
    from pyramidion.vault import reader

    at = vault_rows.broker_of(arguments) if arguments.broker_at or arguments.data else None
    if at is None and arguments.output is None:
        raise SchemaError("a revocation has to go somewhere; give --data, --broker-at or --output")
    text = _revocation(arguments)
    if arguments.output is not None:
        written(arguments.output, text)
    ended = str(json.loads(text)["grant"]) if at is None else reader.revoke_grant(text, at)
    if arguments.json:
        print(json.dumps({"grant": ended, "delivered": at is not None}))
    elif at is None:
        print(f"wrote {arguments.output}: grant {ended} ends when the broker gets it")
    else:
        print(f"grant {ended} is over; what was read was read")


def _revocation(arguments: argparse.Namespace) -> str:
    """The revocation in the file, or one of the grant in it."""
    from pyramidion.storage.disk import read
    from pyramidion.vault.documents import Grant, Revocation
    from pyramidion.vault.reader import read_grant

    text = read(arguments.document)
    try:
        Revocation.read(text)
        return text.decode()
    except FormatError:
        pass
    Grant.read(text)
    if arguments.key is None:
        raise SchemaError("to revoke a grant takes the custodian's private key; give --key")
    made = read_grant(text)
    key = unlocked(arguments.key, arguments)
    if key.public != made.custodian:
        raise SchemaError("this grant is another custodian's; give the key that it was made with")
    return Revocation.make(made.id, key, now=_now(arguments)).to_json()


# --- shared -----------------------------------------------------------------------------------


def _now(arguments: argparse.Namespace) -> int:
    return time.time_ns() // 1_000 if arguments.now is None else round(arguments.now * 1e6)


def plain(text: str) -> str:
    r"""Text of a stranger, without what would move a terminal's cursor or turn its letters.

    >>> plain("a bug\n\x1b[2Jfixed")
    'a bug\\n\\x1b[2Jfixed'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _told(asked: Request) -> str:
    """What is asked, for people."""
    headers = [file.header for file in asked.files]
    rows, times = sum(header.rows for header in headers), "-"
    if headers:
        first, last = min(h.first for h in headers), max(h.last for h in headers)
        times = f"{several(rows, 'row')}, arrived {date(first)} to {date(last)}"
    verb = "erases a person from" if asked.purpose == "erase" else "asks for"
    whole = " of whole files" if asked.purpose == "erase" else ""
    lines = {
        "who": f"{plain(asked.engineer)} {verb} rows that arrived from {date(asked.first)} up to "
        f"{date(asked.last)}",
        "why": plain(asked.reason),
        "columns": f"{plain(', '.join(asked.columns))}{whole}",
        "files": f"{several(len(headers), 'file')} with {times}",
        "store": plain(asked.store),
        "engineer": asked.key.fingerprint,
        "broker": asked.broker.fingerprint,
    }
    return "\n".join(f"{name:8}  {line}" for name, line in lines.items())


def _summary(asked: Request | Grant) -> dict[str, object]:
    """What is asked, for programs."""
    return {
        "store": asked.store,
        "engineer": asked.engineer,
        "reason": asked.reason,
        "purpose": asked.purpose,
        "first": asked.first,
        "last": asked.last,
        "columns": list(asked.columns),
        "files": [file.header.name for file in asked.files],
        "rows": sum(file.header.rows for file in asked.files),
        "engineer_fingerprint": asked.key.fingerprint,
        "broker_fingerprint": asked.broker.fingerprint,
    }


# --- keys, and files that are written once -------------------------------------------------------


PROMPT = "a prompt"


def _add_keygen(verbs: Commands[Parser]) -> None:
    making = verbs.add_parser(
        "keygen",
        help="make a custodian's pair of keys",
        description="Make a custodian's pair of keys: NAME.key, under a passphrase, for the "
        "custodian alone, and NAME.pub for the store. Run it on a machine that has no data.",
    )
    making.add_argument(
        "--output", metavar="NAME", type=Path, required=True, help="write NAME.key and NAME.pub"
    )
    add_passphrase(making, PROMPT)
    add_json(making)
    making.set_defaults(run=keygen)


def keygen(arguments: argparse.Namespace) -> None:
    """Make a pair of keys."""
    from pyramidion.vault.key_pairs import PrivateKey

    name = arguments.output
    private, public = (name.with_name(f"{name.name}.{end}") for end in ("key", "pub"))
    _refuse_beside(private)
    refuse_there(private, public)
    passphrase = new_passphrase(arguments)
    pair = PrivateKey.new()
    written(private, pair.to_text(passphrase))
    written(public, pair.public.to_text(), mode=0o644)
    told = {"private": str(private), "public": str(public)}
    if arguments.json:
        print(json.dumps(told | {"fingerprint": pair.public.fingerprint}))
        return
    print(f"wrote {private}: keep it, and a copy of it, away from the data; without it, or without")
    print("its passphrase, nobody opens the vault")
    print(f"wrote {public}: give it to the store")
    print(f"fingerprint {pair.public.fingerprint}")


def _refuse_beside(path: Path) -> None:
    """The private half never lies beside the data."""
    from pyramidion.storage.home import CATALOGUE

    here = path.absolute().parent.resolve()
    for parent in (here, *here.parents):
        if (parent / CATALOGUE).exists():
            raise SchemaError(
                f"{path} would lie in the store at {parent}, which it must not share a fate with; "
                f"choose a place that has no data, best on another machine"
            )
    if here.is_dir() and any(each.with_suffix(".json").exists() for each in here.glob("*.parquet")):
        raise SchemaError(
            f"{path} would lie beside the files it opens; choose a place that has no data, best on "
            f"another machine"
        )


def refuse_there(*paths: Path) -> None:
    """Raise if one of these is there: nothing is written over."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise SchemaError(f"{path} exists already; choose another name")


def written(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a new file, for its owner alone unless told otherwise."""
    from pyramidion.storage.disk import create_durably

    create_durably(path, text.encode(), mode=mode)
