"""The groups that a store counts: `store.groups`, and how groups come and features go.

How groups are chosen from hot rows is in `select_groups`, how chosen ones are judged in
`group_trials`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from pyramidion.config.schema import bare
from pyramidion.counts.layout import PRIOR
from pyramidion.storage import records
from pyramidion.storage.audit_log import Fact
from pyramidion.storage.deletions import withdrawn
from pyramidion.storage.outbox import PendingEntry
from pyramidion.store.access import Access
from pyramidion.store.change import Also, Edit
from pyramidion.store.group_trials import GroupStatus, groups_of
from pyramidion.store.select_groups import Selecting, Selection
from pyramidion.store.state import StoreState
from pyramidion.store.transitions import Rewrite, drop_tables, settle


class Groups:
    """The groups of a store: which there are, and how they come and go.

    A group is two or more features that are counted together, in a table of their own.

    Parameters
    ----------
    access : Access
        The open store.
    lifecycle : StoreState
        Its windows and tables.
    selecting : Selecting
        Chooses groups from hot rows.
    settle : callable
        Has the vault and the other shards follow a withdrawal, at a time.

    Examples
    --------
    >>> import tempfile
    >>> from pyramidion import Categorical, Label, Pyramid, Schema, Settings
    >>> features = [Categorical(name, domain=["EWR", "JFK"]) for name in ("origin", "dest")]
    >>> schema = Schema(features=features, label=Label("late", classes=[0, 1]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     given = {"keys": f"file:{folder}/key"}
    ...     with Pyramid.create(f"{folder}/store", schema, Settings(epsilon=1.0), **given) as store:
    ...         store.groups.add(["origin", "dest"])
    ...         print([(group.name, group.state) for group in store.groups.status()])
    ...         store.groups.withdraw("origin,dest", why="not needed")
    ...         print(store.groups.status())
    [('origin,dest', 'by hand')]
    []
    """

    def __init__(
        self,
        access: Access,
        lifecycle: StoreState,
        selecting: Selecting,
        settle: Callable[[int], None],
    ) -> None:
        self._access = access
        self._state = lifecycle
        self._selecting = selecting
        self._settle = settle

    def add(self, group: Iterable[str]) -> None:
        """Count features together, from the next window that is not open yet."""
        self._access.check_open()
        self._access.run(lambda: add_group(self._state, group))

    def select(self, *, share: Fraction | int = 1) -> Selection:
        """Choose groups worth counting from the hot rows, privately, and count them as `add` does.

        Chosen groups are on trial: `status` reports how they do.

        Parameters
        ----------
        share : Fraction or int, default=1
            How much each window with hot rows pays, of what it kept back for this at its birth
            (`selection_share`).
        """
        now = self._access.begin()
        return self._access.run(lambda: self._selecting.choose(Fraction(share), now))

    def status(self) -> list[GroupStatus]:
        """List the groups: by hand, on trial, kept or dropped, and what sealed tables say of them.

        Reading sealed tables costs no budget.
        """
        self._access.check_open()
        return self._access.run(lambda: groups_of(self._state))

    def withdraw(self, name: str, *, why: str) -> None:
        """Erase a group, or a feature with its groups, now: its tables in every window.

        A feature's column is erased in hot rows, too. The share of the budget returns with the
        next window.

        Parameters
        ----------
        name : str
            A feature, or the features of a group, joined by commas.
        why : str
            The reason, for the deletion record and the audit log.
        """
        now = self._access.begin()

        def erase(entry: PendingEntry) -> None:
            withdraw(self._state, name, why, now, entry)
            self._settle(now)

        def record() -> None:
            facts: dict[str, Fact] = {"why": why}
            if name not in self._state.births.chosen:  # a chosen name is known from rows
                facts = {"name": name, **facts}
            self._access.outbox.do("tables.withdrawn", self._access.present(), facts, erase)

        self._access.run(record)
        self._access.start_due_work(now)


def add_group(store: StoreState, group: Iterable[str]) -> None:
    """Count features together, from the next window that is not open yet."""
    with store.moves:
        schema = store.schema.plus(group)
        store.pins.note(schema=schema.to_toml())
        with store.arrivals:
            store.learn(schema)


def withdraw(store: StoreState, name: str, why: str, now: int, entry: Edit) -> None:
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
