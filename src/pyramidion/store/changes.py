"""Changes of a store as a whole: groups come, features go, a copy takes over."""

from __future__ import annotations

from collections.abc import Iterable

from pyramidion.config.schema import bare
from pyramidion.counts.layout import PRIOR
from pyramidion.storage import records
from pyramidion.storage.audit_log import AuditLog
from pyramidion.storage.deletions import RESTORED, withdrawn
from pyramidion.storage.versions import leap
from pyramidion.store.change import Also, Change, Edit, Erasure, apply
from pyramidion.store.lifecycle import Lifecycle
from pyramidion.store.transitions import Rewrite, drop_tables, seal, settle
from pyramidion.vault.coverage import forgo

AFAR = 1_000_000_000  # batch numbers that are left out after restoring a backup


def add_group(store: Lifecycle, group: Iterable[str]) -> None:
    """Count features together, from the next window that is not open yet."""
    with store.moves:
        schema = store.schema.plus(group)
        store.pins.note(schema=schema.to_toml())
        with store.arrivals:
            store.learn(schema)


def withdraw(store: Lifecycle, name: str, why: str, now: int, entry: Edit) -> None:
    """Erase a feature (its column in hot rows too) or a group: its tables in every window.

    Its share of the budget returns with the next window that is opened. The record does not name
    a group that was chosen, nor does the ledger from then on: its name is known from rows. The
    ``entry`` for the audit log is committed with the erasure.
    """
    with store.moves, store.arrivals:
        settle(store, now)
        schema, feature = store.schema.less(name), name in store.schema.feature_names
        kept = {PRIOR, *schema.table_names}
        rows = store.hot.rewritten(lambda t: records.without(t, [name])) if feature else []
        chosen = store.births.chosen
        unnamed = {group for group in chosen if group not in kept}
        dropped = [n for n in store.births.dropped if not feature or name not in n.split(",")]
        read = store.readings.without(lambda of: of not in (*kept, *schema.binned, *dropped))

        def before() -> None:
            store.pins.note(schema=schema.to_toml())
            store.readings.replace(read)
            if unnamed:
                store.catalogue.unname_tables(lambda table: bare(table) in unnamed)

        def after() -> None:
            store.readings.replaced(read)
            store.learn(schema)

        drop_tables(
            store,
            lambda table: bare(table) in kept,
            withdrawn(name, chosen=name in chosen),
            why,
            now,
            expires=f"{'a chosen group' if name in chosen else repr(name)} was withdrawn",
            edits=[
                Also(before, after, [old.key.id for old, _ in read]),
                Rewrite(store.hot, rows),
                entry,
            ],
        )


def take_over(store: Lifecycle, now: int) -> None:
    """Make this copy the only one: from here on nothing opens the others.

    Populating windows and nodes are sealed: a table that goes on in two places would subtract to
    exact counts. Batch numbers and versions of models that the other copy may have given are not
    given again.
    """
    with store.moves:

        def before() -> None:
            last = store.last_batch()
            if store.catalogue.about("vault", ""):
                forgo(store.catalogue, (last + 1, last + AFAR - 1))
            store.catalogue.note(copy="restoring", next_batch=last + AFAR)
            leap(store.catalogue)

        if store.catalogue.about("copy", "") == "backup":
            erase = Erasure(RESTORED, "restored from a backup")
            apply(store, Change("restore", edits=[Also(before)], erase=erase), now)
        windows = store.catalogue.all("SELECT DISTINCT window FROM ledger")
        store.ledger.forfeit([row["window"] for row in windows], now, "restored from a backup")
        for tables in store.open_sets.all():
            seal(store, tables, now)
        store.catalogue.note(copy="")


def begin_log(store: Lifecycle, log: AuditLog, kind: str, now: int) -> None:
    """Have the log and the catalogue know each other; an entry tells where the log is a new one.

    Its ``former`` is the fingerprint of the log that the store had, if it had one: that is gone.
    """
    former, first = store.catalogue.about("audit_log", ""), log.first
    if former != first:
        log.append(kind, now, store=store.catalogue.about("store"), former=former or None)
        store.catalogue.note(audit_log=first)
