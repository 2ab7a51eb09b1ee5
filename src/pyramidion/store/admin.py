"""What the operator of a store does: `store.admin`.

Copies, damaged tables, an intrusion, clocks that disagree, the key holder, the vault and the audit
log. What an application does with a store are the methods of `Pyramid` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyramidion.config.durations import since_epoch
from pyramidion.errors import SchemaError
from pyramidion.rows.history import Replay
from pyramidion.storage.audit_log import AuditLog, Fact
from pyramidion.storage.home import Home
from pyramidion.store.access import Access
from pyramidion.store.backup import back_up
from pyramidion.store.rebuild import Rebuild, rebuild
from pyramidion.store.repair import Damage, mend, verify
from pyramidion.store.replay import taken
from pyramidion.store.reseed import Reseed, reseed
from pyramidion.store.schedule import Advance, Due, Schedule
from pyramidion.store.state import StoreState
from pyramidion.store.timekeeping import Timekeeping
from pyramidion.store.vaulting import attach_vault, erase_from_vault
from pyramidion.store.window_opener import WindowOpener

if TYPE_CHECKING:
    from pyramidion.vault.key_pairs import PrivateKey, PublicKey
    from pyramidion.vault.vault import Vault


class Admin:
    """Administration of a store: backups, repair, intrusions, clocks, keys and the vault.

    Parameters
    ----------
    access : Access
        The open store.
    home : Home
        Its directory and keys.
    lifecycle : StoreState
        Its windows and tables.
    opener : WindowOpener
        Opens windows.
    schedule : Schedule
        Decides what is due.
    timekeeping : Timekeeping
        Settles which clock is right.
    audit_log : AuditLog
        Where entries go.
    vault : callable
        Returns the attached vault, or None.
    open_vault : callable
        Opens the vault that the catalogue names.
    wake : callable
        Lets the store seal and erase what is due, if it was opened with ``advance=False``.
    advance : callable
        Does what is due: `Pyramid.advance`.

    Examples
    --------
    >>> import tempfile
    >>> from pyramidion import Categorical, Label, Pyramid, Schema, Settings
    >>> carrier = Categorical("carrier", domain=["AA", "UA"])
    >>> schema = Schema(features=[carrier], label=Label("late", classes=[0, 1]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     given = {"keys": f"file:{folder}/key"}
    ...     with Pyramid.create(f"{folder}/store", schema, Settings(epsilon=1.0), **given) as store:
    ...         _ = store.observe({"carrier": ["AA", "UA"], "late": [0, 1]})
    ...         print(store.admin.verify())
    ...         print(store.admin.backup(f"{folder}/backup") > 0)
    ...         print(store.admin.reseed(why="a laptop was stolen").sealed)
    []
    True
    (1,)
    """

    def __init__(
        self,
        access: Access,
        *,
        home: Home,
        lifecycle: StoreState,
        opener: WindowOpener,
        schedule: Schedule,
        timekeeping: Timekeeping,
        audit_log: AuditLog,
        vault: Callable[[], Vault | None],
        open_vault: Callable[[], Vault],
        wake: Callable[[], None],
        advance: Callable[[], Advance],
    ) -> None:
        self._access = access
        self._home = home
        self._state = lifecycle
        self._opener = opener
        self._schedule = schedule
        self._timekeeping = timekeeping
        self._audit_log = audit_log
        self._vault = vault
        self._open_vault = open_vault
        self._wake = wake
        self._advance = advance

    # --- copies --------------------------------------------------------------------

    def backup(self, path: str | Path) -> int:
        """Copy the store, or bring an older copy up to date; return the number of bytes copied.

        The copy opens with the same store key, so it ends with the next erasure or release.
        `Pyramid.restore` makes a store of it.
        """
        now = self._access.begin()
        return self._access.run(
            lambda: back_up(self._home, self._state, Path(path), self._audit_log, now)
        )

    # --- damaged tables and intrusions -----------------------------------------------

    def verify(self) -> list[Damage]:
        """Read every file; return those that are damaged, missing or do not add up."""
        self._access.check_open()
        return self._access.run(lambda: verify(self._state))

    def mend(self) -> list[Damage]:
        """Recompute damaged tables from sound ones, at no cost; return what was mended.

        Complete tables are the sum of the windows, so one window can be computed from the complete
        tables and all other windows.
        """
        now = self._access.begin()
        mended = self._access.run(lambda: mend(self._state, now))
        self._access.start_due_work(now)
        return mended

    def rebuild(
        self, window: int, rows: Any = None, *, why: str, share: Fraction | int = 1
    ) -> Rebuild:
        """Count a sealed window again, onto fresh noise, and charge it again.

        Parameters
        ----------
        window : int
            The number of the window.
        rows : rows in any container, optional
            Exactly the rows that the window counted; its hot rows if not given, while all of them
            are hot.
        why : str
            The reason, for the audit log.
        share : Fraction or int, default=1
            How much to pay, of what the window kept back for this at its birth (`rebuild_share`).
        """
        now = self._access.begin()
        rebuilt = self._access.record(
            "tables.rebuilt",
            now,
            {"window": window, "why": why},
            lambda entry: rebuild(self._state, window, rows, share, why, now, entry),
        )
        self._access.start_due_work(now)
        return rebuilt

    def reseed(self, *, why: str) -> Reseed:
        """Seal the populating windows, renew the store key, and continue with fresh noise.

        What an intruder copied is frozen: no later state of the same tables exists, and nothing
        written from now on opens with the old keys. It costs no budget.
        """
        now = self._access.begin()
        reseeded = self._access.record(
            "store.reseeded",
            now,
            {"why": why},
            lambda entry: reseed(self._state, self._opener, why, now, entry),
        )
        self._access.start_due_work(now)
        return reseeded

    # --- time and progress -----------------------------------------------------------

    def due(self, at: object = None) -> Due:
        """Return what `Pyramid.advance` would seal and erase at a moment, without doing it.

        Parameters
        ----------
        at : float, date or str, optional
            The moment: seconds since 1970, a date or ISO text. Now, if not given.
        """
        now = self._access.begin()
        return self._schedule.due(now if at is None else since_epoch(at), now)

    def confirm_clock(self, *, why: str) -> Advance:
        """Declare that the system clock is right: the store follows it, then does what is due.

        What came while clocks disagreed is dated by it, too, and what was dated in the future is
        dated now.
        """
        self._settle_clock(lambda: self._timekeeping.confirm(why), why)
        return self._advance()

    def correct_clock(self, *, why: str) -> Advance:
        """Declare that the system clock was wrong and is right again; then do what is due.

        The store's own time goes on. Refused while the system clock is further than `clocks.LIMIT`
        from it.
        """
        self._settle_clock(lambda: self._timekeeping.correct(why), why)
        return self._advance()

    def _settle_clock(self, settle: Callable[[], None], why: str) -> None:
        self._access.check_open()
        if not why:
            raise SchemaError("the audit log tells why a clock was settled; give a reason")
        self._wake()
        self._access.now()
        self._access.run(settle)

    def replayed(self, history: Replay) -> int:
        """Return how many rows of a history `Pyramid.replay` has observed already."""
        self._access.check_open()
        return taken(self._state, history)

    # --- keys and the audit log ------------------------------------------------------

    def check_key_holder(self) -> None:
        """Raise `KeyHolderError` unless the key holder can be reached and has the store's key.

        Without it rows are read and observed for a while, but the next hot step, seal or erasure
        fails.
        """
        self._access.check_open()
        self._access.run(self._home.keys.must_be_held)

    def note(self, kind: str, **facts: Fact) -> None:
        """Append an entry to the audit log about something done from outside, as a service does."""
        self._access.check_open()
        self._audit_log.append(kind, self._access.present(), **facts)

    # --- the vault -------------------------------------------------------------------

    def attach_vault(self, url: str, custodian: PublicKey) -> Vault:
        """Attach a vault: rows observed from now on are sealed there. A store keeps it for good.

        Parameters
        ----------
        url : str
            A directory, or a URL for fsspec.
        custodian : PublicKey
            Whose private key opens what is sealed.
        """
        self._access.check_open()

        def attach() -> Vault:
            with self._state.moves, self._state.arrivals:
                attach_vault(self._state, self._home.path, url, custodian)
                return self._open_vault()

        return self._access.run(attach)

    def erase_from_vault(
        self,
        person: str | int,
        grant: str | bytes,
        *,
        key: PrivateKey,
        broker: str,
        why: str = "asked for",
    ) -> list[str]:
        """Blank one person's rows in the vault files of an ``erase`` grant; return the new names.

        The broker rewrites every granted file, whoever is in it, and no row comes to this process.
        Erase the person's hot rows first (`Pyramid.erase_person`), or those that are not sealed yet
        reach the vault later.

        Parameters
        ----------
        person : str or int
            The value of the schema's unit column.
        grant : str or bytes
            The custodian's grant.
        key : PrivateKey
            The private key that the grant is made out to.
        broker : str
            The broker's address.
        why : str
            The reason, for the audit log; it must not say who.
        """
        now = self._access.begin()
        granted, names = erase_from_vault(
            self._state, self._vault(), person, grant, key, broker, why, self._access.run
        )
        facts: dict[str, Fact] = {"why": why, "files": len(names), "grant": granted}
        self._access.record("person.erased", now, facts, lambda _: None)
        return names
