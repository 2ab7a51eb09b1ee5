"""``vault``: what it holds: status, files, verify, adopt, attach."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyramidion.cli.options import Commands, Parser, add_store, moment, opened
from pyramidion.cli.output import date, several, size, table
from pyramidion.errors import FormatError, StateError

if TYPE_CHECKING:
    from pyramidion.store.pyramid import Pyramid
    from pyramidion.vault.files import VaultStatus
    from pyramidion.vault.vault import Vault


def add(verbs: Commands[Parser]) -> None:
    """Add the commands."""
    showing = verbs.add_parser(
        "status",
        help="show what the vault holds, and what is on its way",
        description="Show what the vault holds, and what is on its way to it.",
    )
    add_store(showing)
    showing.set_defaults(run=status)

    listing = verbs.add_parser(
        "files",
        help="list the sealed files",
        description="List the sealed files with rows that arrived from one time up to another.",
    )
    listing.add_argument("--from", dest="first", metavar="TIME", type=moment)
    listing.add_argument("--to", dest="last", metavar="TIME", type=moment)
    add_store(listing)
    listing.set_defaults(run=files)

    verifying = verbs.add_parser(
        "verify",
        help="read every sealed file, and say which are not as they were sealed",
        description="Read every sealed file and name those that are missing, cut off, changed, "
        "swapped or unknown, and batches that no file has. No key opens for it. It ends with exit "
        "code 3 where there are any.",
    )
    add_store(verifying)
    verifying.set_defaults(run=verify)

    adopting = verbs.add_parser(
        "adopt",
        help="take in files that another copy of the store sealed",
        description="Take in files of the vault that this store does not know: those that the "
        "store sealed which this one was restored in place of. Each is checked, but whoever can "
        "write to the vault can make one that fits, so compare digests with that store's audit "
        "log first.",
    )
    adopting.add_argument("files", metavar="FILE", nargs="+", help="its name, as verify tells it")
    add_store(adopting)
    adopting.set_defaults(run=adopt)

    attaching = verbs.add_parser(
        "attach",
        help="give a vault to a store that has none",
        description="Seal what is observed from now on to a custodian. A store keeps its vault.",
    )
    attaching.add_argument(
        "--vault", metavar="URL", required=True, help="a directory, or a URL for fsspec"
    )
    attaching.add_argument(
        "--custodian", metavar="FILE", type=Path, required=True, help="the custodian's public key"
    )
    add_store(attaching)
    attaching.set_defaults(run=attach)


def adopt(arguments: argparse.Namespace) -> None:
    """Take in files that another copy sealed."""
    names = [name.removesuffix(".parquet").removesuffix(".json") for name in arguments.files]
    with opened(arguments) as pyramid:
        found = vault_of(pyramid).adopt(names)
    if arguments.json:
        print(json.dumps([asdict(each) for each in found]))
    else:
        rows = sum(each.rows for each in found)
        print(f"{several(len(found), 'file')} taken in, with {several(rows, 'row')}")


def attach(arguments: argparse.Namespace) -> None:
    """Give a store a vault."""
    from pyramidion.storage.disk import read
    from pyramidion.vault.key_pairs import PublicKey

    custodian = PublicKey.from_text(read(arguments.custodian))
    with opened(arguments) as pyramid:
        url = pyramid.admin.attach_vault(arguments.vault, custodian).url
    if arguments.json:
        print(json.dumps({"url": url, "custodian": custodian.fingerprint}))
    else:
        print(f"rows are sealed in {url} from now on, to the custodian {custodian.fingerprint}")


def vault_of(pyramid: Pyramid) -> Vault:
    """The vault of a store that has one."""
    if pyramid.vault is None:
        raise StateError("this store has no vault; attach one, or make one with a vault")
    return pyramid.vault


def status(arguments: argparse.Namespace) -> None:
    """Show what the vault holds."""
    with opened(arguments, reading=True) as pyramid:
        vault = vault_of(pyramid)
        found, store = vault.status(), vault.store
    print(json.dumps({"store": store} | asdict(found)) if arguments.json else _told(found, store))


def _told(found: VaultStatus, store: str) -> str:
    lines = [
        f"store      {store}",
        f"vault      {found.url}",
        f"custodian  {found.custodian}",
        f"sealed     {several(found.files, 'file')}, {several(found.rows, 'row')}",
    ]
    if found.first is not None:
        lines.append(f"arrived    {date(found.first)} to {date(found.last)}")
    lines.append(f"waiting    {several(found.waiting_rows, 'row')} to be sealed")
    if found.backlog_files:
        why = f" ({found.problem})" if found.problem else ""
        lines.append(
            f"backlog    {several(found.backlog_files, 'file')}, {size(found.backlog_bytes)}, "
            f"since {date(found.backlog_since)}{why}"
        )
    if found.to_delete:
        lines.append(f"to delete  {several(found.to_delete, 'file')} that nothing opens any more")
    return "\n".join(lines)


def files(arguments: argparse.Namespace) -> None:
    """List the sealed files."""
    first, last = (
        None if at is None else round(at * 1e6) for at in (arguments.first, arguments.last)
    )
    with opened(arguments, reading=True) as pyramid:
        found = vault_of(pyramid).files(first, last)
    if arguments.json:
        print(json.dumps([asdict(each) for each in found]))
        return
    head = ["file", "first arrival", "last arrival", "rows", "in the vault"]
    rows = [
        [
            f.name,
            date(f.first),
            date(f.last),
            f.rows,
            "no" if f.stored is None else "yes",
        ]
        for f in found
    ]
    print(table(head, rows) if rows else "there is no sealed file of that time")


def verify(arguments: argparse.Namespace) -> None:
    """Say what is not as it was sealed."""
    with opened(arguments, reading=True) as pyramid:
        found = vault_of(pyramid).verify()
    if arguments.json:
        print(json.dumps([asdict(each) for each in found]))
    elif found:
        print(table(["file", "what is wrong"], [[each.name, each.why] for each in found]))
    else:
        print("every sealed file is as it was sealed")
    if found:
        raise FormatError(
            f"the vault is not as it was sealed in {several(len(found), 'place')}; restore files "
            f"from a copy of it"
        )
