"""Who was let read the vault or erase from it, as the audit log says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyramidion.storage.audit_chain import GRANT_USED, Entry

TOLD = ("engineer", "purpose", "columns", "files", "first", "last", "expires")
ENDS = ("vault.expired", "vault.revoked")


def granted(entries: Iterable[Entry], now: int) -> list[dict[str, Any]]:
    """Every grant, the newest first: whether it is open now, and how often it was used."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        name = str(entry.facts.get("grant"))
        if entry.kind == "vault.granted":
            about = {fact: entry.facts.get(fact) for fact in TOLD}
            found[name] = {"grant": name, "at": entry.at, **about, "ended": None, "opened": 0}
        elif name in found and entry.kind in ENDS:
            found[name]["ended"] = found[name]["ended"] or entry.at
        elif name in found and entry.kind in GRANT_USED:
            found[name]["opened"] += 1
    for told in found.values():
        expires = told["expires"]
        told["open"] = told["ended"] is None and (expires is None or expires > now)
    return list(found.values())[::-1]
