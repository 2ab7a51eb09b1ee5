"""Nothing derived from the contents of hot rows outlives them uncharged.

Every file, catalogue column and output stands in a mapping here, with the reason why it may
be there. What is not in it fails the test, so who adds something must say what it is. Two
stores that took other rows at the same times then show that what is called public is.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import re
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv
from sklearn.linear_model import Ridge

import pyramidion
from pyramidion import (
    Admin,
    Categorical,
    Entry,
    Groups,
    Guarantee,
    Label,
    Loss,
    Model,
    Models,
    Pyramid,
    Receipt,
    Schema,
    Snapshot,
    StreamShards,
    TablePublisher,
    Verification,
)
from pyramidion.learn.exports import KINDS
from pyramidion.privacy import ledger
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import in_order
from pyramidion.store.clocks import ClockStatus
from pyramidion.store.erase_person import PersonErasure
from pyramidion.store.exposure.exposed import (
    Exposure,
    Forgotten,
    Gap,
    GrantExposed,
    HotExposed,
    ModelExposed,
    ModelsExposed,
    VaultExposed,
    WindowExposed,
)
from pyramidion.store.group_trials import GroupStatus
from pyramidion.store.publish import SharedStatus
from pyramidion.store.rebuild import Rebuild
from pyramidion.store.repair import Damage
from pyramidion.store.reseed import Reseed
from pyramidion.store.schedule import Advance, Due
from pyramidion.store.select_groups import Selection
from pyramidion.store.shards import ShardStatus
from pyramidion.store.status import Deletion, Layers, NodeStatus, Status, TableStatus, WindowStatus
from pyramidion.vault.files import FileStatus, VaultStatus
from pyramidion.vault.key_pairs import PrivateKey
from pyramidion.vault.verification import Problem
from tests.store import inspect
from tests.store.archive import Archive, watched
from tests.store.life import DAY, SETTINGS

PUBLIC = "public: schema, settings, row totals, arrival times, borders, counters"
DRAWN = "drawn: random names and numbers, and keys wrapped by the store key"
PAID = "P2: noisy since birth, paid by the `table` and `node` lines of its windows"
HOT = "P1: erased with the hot rows, when their step leaves"
CHOSEN = "P2: chosen groups, paid by the `spend` lines of all windows that were read"
SEALED = "of encrypted files: how long they are tells how well rows compress, see docs/vault.md"
VERB = "gives what is mapped elsewhere, or nothing"

CATALOGUE = {
    "about": {"name": PUBLIC, "value": "by name, see ABOUT"},
    "keys": {"id": DRAWN, "purpose": PUBLIC, "wrapped": DRAWN},
    "table_sets": dict.fromkeys(
        ("level", "number", "state", "slot", "start", "stop", "rows"), PUBLIC
    ),
    "arenas": {
        **dict.fromkeys(("id", "kind", "level", "number", "after", "current"), PUBLIC),
        "tables": f"{PUBLIC}; or {CHOSEN}; the noise of each is what its `table` line paid for",
        **dict.fromkeys(("key", "file"), DRAWN),
    },
    "members": dict.fromkeys(("level", "number", "window"), PUBLIC),
    "steps": {
        **dict.fromkeys(("number", "slot", "start", "rows"), PUBLIC),
        **dict.fromkeys(("key", "once", "file"), DRAWN),
    },
    "batches": {
        **dict.fromkeys(("number", "step", "rows", "arrived", "came", "since"), PUBLIC),
        "sealed": HOT,
    },
    "arrivals": {**dict.fromkeys(("batch", "place"), PUBLIC), "once": HOT},
    "ledger": {
        **dict.fromkeys(("id", "window", "kind", "amount", "at", "why"), PUBLIC),
        "purpose": f"{PUBLIC}; or {CHOSEN}, until they or their window go",
    },
    "deletions": dict.fromkeys(
        ("id", "what", "why", "holder", "at", "done", "kind", "ids"), PUBLIC
    ),
    "imports": {
        "input": "a keyed hash of what is public of the files, or of a sequence's name",
        "rows": PUBLIC,
    },
    "models": {"name": PUBLIC, "recipe": "public: a class, its parameters, names of tables"},
    "readings": {
        **dict.fromkeys(("window", "purpose"), PUBLIC),
        "key": DRAWN,
        "sealed": PAID,
    },  # and CHOSEN
    "uncounted": {"key": DRAWN, "block": PUBLIC, "sealed": HOT},
    "shared": {
        **dict.fromkeys(("name", "key", "file", "layout"), DRAWN),
        "chunks": PUBLIC,
    },
    "past_steps": dict.fromkeys(
        ("number", "start", "stop", "rows", "left", "came_first", "came_last"), PUBLIC
    ),
    "vault_files": {
        **dict.fromkeys(("first", "last", "first_batch", "last_batch", "rows", "gone"), PUBLIC),
        "stored": "public: when a file came to its place",
        **dict.fromkeys(("name", "lock"), DRAWN),
        **dict.fromkeys(("digest", "envelope"), DRAWN),
    },
}
ABOUT = {
    **dict.fromkeys(("settings", "copy", "keyed_by"), PUBLIC),
    "schema": f"{PUBLIC}; or {CHOSEN}, until the first of these windows is forgotten",
    "versions": PUBLIC,
    "spells": "public: when models were registered and histories replayed, names and times",
    **dict.fromkeys(("next_batch", "next_step", "clock", "clock_follows", "vaulted"), PUBLIC),
    **dict.fromkeys(("store", "store_key", "secret", "names", "audit_log"), DRAWN),
}
PASSING = {
    "untold": "see ENTRIES: what the audit log is about to tell",
    **dict.fromkeys(("vault", "unowed"), PUBLIC),
    "shared": "public, and a password: the URL of a table store, encrypted under a data key",
}
"""What some stores have beyond that, or at times."""
ENTRIES = {
    "log.genesis": {"key": DRAWN},
    "store.created": {"store": DRAWN, "former": DRAWN},
    "store.copied": {"key": DRAWN, "to": PUBLIC},
    "store.restored": {},
    "model.exported": {"name": PUBLIC, "version": PUBLIC},
    "rows.read": dict.fromkeys(("by", "token", "what"), PUBLIC),
    "store.reseeded": {"why": PUBLIC},
    "tables.rebuilt": {"window": PUBLIC, "why": PUBLIC},
    "tables.shared": {"where": PUBLIC},  # no password
    "tables.unshared": {"where": PUBLIC},
    "tables.withdrawn": {"name": PUBLIC, "why": PUBLIC},  # no name of a chosen group
}
"""The facts of each kind of entry of an audit log."""
HEADER = dict.fromkeys(
    (
        *("edition", "name", "version", "format", "label", "classes", "features", "tables"),
        *("made", "expires", "guarantee", "packages"),
    ),
    PUBLIC,
)
"""What stands in the header of an exported model; the payload is P1."""
FILES = {
    **dict.fromkeys(("lock", ".restoring"), PUBLIC),
    "catalogue.db": "see CATALOGUE",
    "catalogue.db-*": "see CATALOGUE",
    ".catalogue.db.new": "see CATALOGUE",
    ".catalogue.db.new-*": "see CATALOGUE",
    **dict.fromkeys(("audit.db", "audit.db-*"), "see ENTRIES"),
    **dict.fromkeys((".audit.db.*", ".audit.db.*-*"), "see ENTRIES"),
    "hot/????????????????.rows": HOT,
    "hot/.????????????????.rows.new": HOT,
    "tables/????????????????????????.tables": PAID,
    "tables/.????????????????????????.tables.new": PAID,
}
OUTPUTS: dict[type, dict[str, str]] = {
    Receipt: {"accepted": PUBLIC, "refused": HOT, "late": HOT, "blanked": HOT},
    Advance: dict.fromkeys(
        (
            "sealed",
            "nodes",
            "steps",
            "rows_erased",
            "retired",
            "dropped",
            "checkpoints",
            "opened",
            "trained",
        ),
        PUBLIC,
    ),
    ClockStatus: dict.fromkeys(("follows", "present", "system", "alarm"), PUBLIC),
    Due: dict.fromkeys(("at", "sealed", "retired", "steps", "rows"), PUBLIC),
    Status: {
        **dict.fromkeys(("path", "at", "hot_rows", "hot_steps", "oldest_hot"), PUBLIC),
        **dict.fromkeys(("summarised_rows", "windows", "tables", "deletions", "due"), PUBLIC),
        **dict.fromkeys(("nodes", "clock", "state"), PUBLIC),
        **dict.fromkeys(("guarantee", "composed_epsilon", "composed_delta"), PUBLIC),
        "bytes": HOT,  # the lengths of hot segments are in it
        "vault": "see VaultStatus",
        "shared": "see SharedStatus",
        "shard": "see ShardStatus",
    },
    ShardStatus: {
        **dict.fromkeys(("stream", "name", "shards", "left", "rows", "waiting", "missing"), PUBLIC),
        "problem": "public: why the table store or the key holder did not answer",
    },
    SharedStatus: dict.fromkeys(("at", "current", "to_delete", "problem"), PUBLIC),
    VaultStatus: {
        **dict.fromkeys(("url", "custodian", "files", "rows", "first", "last"), PUBLIC),
        **dict.fromkeys(("waiting_rows", "backlog_files", "backlog_since", "to_delete"), PUBLIC),
        "alone": PUBLIC,
        "problem": "public: the kind of an error",
        "backlog_bytes": SEALED,
    },
    FileStatus: {
        **dict.fromkeys(("first", "last", "first_batch", "last_batch", "rows", "locked"), PUBLIC),
        **dict.fromkeys(("name", "stored"), PUBLIC),
    },
    Problem: {"name": DRAWN, "why": "names a file, which is drawn"},
    WindowStatus: dict.fromkeys(("number", "state", "start", "stop", "rows"), PUBLIC),
    NodeStatus: dict.fromkeys(("number", "level", "state", "windows"), PUBLIC),
    TableStatus: dict.fromkeys(("name", "kind", "rows", "width", "windows", "deviation"), PUBLIC),
    Layers: dict.fromkeys(
        ("at", "collected", "exposed", "summarised", "retained", "gone", "locked_away", "waiting"),
        PUBLIC,
    ),
    Deletion: dict.fromkeys(("what", "why", "holder", "at", "done", "kind"), PUBLIC),
    Guarantee: dict.fromkeys(("level", "epsilon", "delta", "k", "windows", "unit"), PUBLIC),
    Selection: {
        "groups": CHOSEN,
        **dict.fromkeys(("windows", "rows", "unit", "charged"), PUBLIC),
    },
    GroupStatus: {
        **dict.fromkeys(("name", "features", "state", "why"), f"{PUBLIC}; or {CHOSEN}"),
        "windows": PUBLIC,
        **dict.fromkeys(("gain", "error"), PAID),
    },
    PersonErasure: dict.fromkeys(("steps", "windows"), PUBLIC),
    Reseed: dict.fromkeys(("sealed", "dropped", "opened"), PUBLIC),
    Rebuild: dict.fromkeys(("window", "rows", "unit", "charged"), PUBLIC),
    Entry: {
        **dict.fromkeys(("number", "at", "kind"), PUBLIC),
        **dict.fromkeys(("previous", "next", "signature", "hash"), DRAWN),
        "facts": "see ENTRIES",
    },
    Verification: {
        **dict.fromkeys(("entries", "problems"), PUBLIC),
        **dict.fromkeys(("first", "head"), DRAWN),
    },
    Damage: {
        "kind": PUBLIC,
        "window": PUBLIC,
        "node": PUBLIC,
        "why": "names a file, which is drawn",
    },
    Model: {
        **dict.fromkeys(("name", "recipe", "workload", "stale"), PUBLIC),
        **dict.fromkeys(("fitted", "why"), "P1: in memory, gone before the rows it learned from"),
    },
    Loss: {
        **dict.fromkeys(("model", "prior", "kind"), "P1: in memory, forgotten when its rows leave"),
        **dict.fromkeys(("tested", "at", "guarantee"), PUBLIC),
    },
    Exposure: dict.fromkeys(
        (
            *("component", "start", "stop", "at", "columns", "unit", "hot", "models", "windows"),
            *("k", "epsilon", "delta", "later", "forgotten", "vault", "gaps"),
        ),
        PUBLIC,
    ),
    HotExposed: dict.fromkeys(
        ("step", "first", "last", "rows", "arrived", "exact", "gone"), PUBLIC
    ),
    ModelExposed: dict.fromkeys(("name", "since", "until"), PUBLIC),
    ModelsExposed: dict.fromkeys(("registered", "rows", "ranges"), PUBLIC),
    WindowExposed: {
        **dict.fromkeys(("number", "start", "stop", "born", "sealed", "frozen", "erased"), PUBLIC),
        **dict.fromkeys(("rows", "states", "epsilon", "delta", "later", "noise"), PUBLIC),
        "noisy_rows": PAID,
    },
    Forgotten: dict.fromkeys(
        ("steps", "step_rows", "unrecorded", "windows", "window_rows"), PUBLIC
    ),
    GrantExposed: dict.fromkeys(("why", "grant", "since", "until", "opened"), PUBLIC),
    VaultExposed: dict.fromkeys(("files", "rows", "grants"), PUBLIC),
    Gap: dict.fromkeys(("start", "stop", "why"), PUBLIC),
    ledger.Report: dict.fromkeys(
        ("windows", "k", "unit", "retained", "composed_epsilon", "composed_delta", "shards"), PUBLIC
    ),
    ledger.WindowReport: dict.fromkeys(
        ("number", "unit", "budget", "lines", "spent", "left", "epsilon", "delta"), PUBLIC
    ),
    ledger.Line: dict.fromkeys(("window", "kind", "purpose", "amount", "at", "why"), PUBLIC),
}
VERBS: dict[type, dict[str, str]] = {
    Pyramid: {
        **dict.fromkeys(("create", "join", "open", "close", "restore", "erase_person"), VERB),
        "observe_all": VERB,
        "observe_turn": VERB,
        "bulk": "takes exact counts, in memory alone; gives numbers of windows, and their rows",
        "as_of": PAID,
        **dict.fromkeys(("observe", "replay", "advance", "status", "ledger", "snapshot"), VERB),
        **dict.fromkeys(("path", "schema", "settings", "keyed_by", "now", "clock"), PUBLIC),
        "audit_log": "see ENTRIES",
        "exposure": VERB,
        "featurize": PAID,
        "training_set": "P1: in memory, expires when its rows leave",
        "register": VERB,
        **dict.fromkeys(("predict", "predict_proba"), "P1: by a model that goes with its rows"),
        "vault": "sealed to the custodian, or what `VaultStatus` and `FileStatus` map",
        **dict.fromkeys(("models", "groups", "publisher", "shards", "admin"), "see below"),
    },
    Models: {
        **dict.fromkeys(
            ("values", "items"),
            "public recipes and row totals; what was learned is P1, gone before its rows",
        ),
        **dict.fromkeys(("unregister", "retrain"), VERB),
        "learning_curve": "P1: in memory, expires when its rows leave",
        "loss": "P1: in memory, forgotten when its rows leave",
        "export": "P1: in memory, for an edge, which drops it when its rows leave",
    },
    Groups: dict.fromkeys(("add", "select", "status", "withdraw"), VERB),
    TablePublisher: {
        **dict.fromkeys(("start", "stop"), VERB),
        "card": PAID,  # and a key that opens nothing else
    },
    StreamShards: dict.fromkeys(("status", "remove"), VERB),
    Admin: {
        **dict.fromkeys(("due", "replayed", "check_key_holder"), PUBLIC),
        **dict.fromkeys(("confirm_clock", "correct_clock", "reseed", "verify", "mend"), VERB),
        **dict.fromkeys(("attach_vault", "erase_from_vault"), VERB),
        "note": "see ENTRIES; what a service tells",
        "rebuild": "P2: noisy since birth, paid by the `spend` line of its window",
        "backup": HOT,  # the bytes it says were copied; the copy itself is in FILES
    },
    Snapshot: {
        **dict.fromkeys(("featurize", "featurize_one", "featurize_keys", "array"), PAID),
        "typical_counts": PAID,  # of its noisy cells alone
        "estimates": PAID,
        **dict.fromkeys(("expired", "expires", "made", "holds", "parts", "tables"), PUBLIC),
        "encoder": "makes keys by the stream's secret, of rows that one has",
        "values": "of rows that one has, in columns by the stream's secret",
        **dict.fromkeys(("without", "without_all"), "P1: in memory, never stored"),
        "expire": VERB,
        **dict.fromkeys(("names", "guarantee", "rows"), PUBLIC),
    },
    ledger.Ledger: dict.fromkeys(
        ("open", "spend", "forfeit", "left", "can_pay", "spent", "report", "of_window", "over"),
        PUBLIC,
    ),
}
EXPORTS = {
    **dict.fromkeys(("Categorical", "Continuous", "Label", "Schema", "Settings"), PUBLIC),
    **dict.fromkeys(("Guarantee", "Receipt", "Pyramid", "Snapshot"), "see OUTPUTS and VERBS"),
    **dict.fromkeys(("Admin", "Groups", "Models", "StreamShards", "TablePublisher"), "see VERBS"),
    **dict.fromkeys(("Loss", "Model", "Entry", "Verification"), "see OUTPUTS"),
    "Arrival": "rows on their way to a verb, and the key that their sender gives them",
    **dict.fromkeys(("AuditLog", "verify_lines"), "see ENTRIES"),
    **dict.fromkeys(
        ("FlooredScaler", "VowpalClassifier", "VowpalRegressor"), "P1 once fitted: in memory"
    ),
    **dict.fromkeys(("LearningCurve", "TrainingSet"), "P1: in memory, expire with their rows"),
    "Client": "keeps nothing; a snapshot it takes is P2, in memory, and expires with its windows",
    "Shard": PUBLIC,  # and where keys are; the catalogue has it encrypted
    "SharedTables": "P2: in memory, or encrypted in a table store; expires with its windows",
    "Revived": "P1: in memory, drops what it learned when it expires",
    "CountFeaturizer": "P2: in memory, with a ledger of its own",
    **dict.fromkeys(("PrivateKey", "PublicKey"), DRAWN),
    **dict.fromkeys(("Request", "Grant", "Revocation", "revoke_grant"), PUBLIC),
    **dict.fromkeys(
        ("Broker", "BrokerServer", "GrantedRows", "broker_at", "open_grant"),
        "P1 for who has a grant: in memory, the vault's rows sealed to an engineer",
    ),
    **dict.fromkeys(("Plan", "plan"), PUBLIC),  # from a schema and what a person says of it
    **dict.fromkeys(
        (name for name in pyramidion.__all__ if name.endswith("Error")), "names no value"
    ),
}

SCHEMA = Schema(
    time="t",
    label=Label("score", edges=[2.0, 3.0]),
    features=[Categorical("name"), Categorical("town", domain=["x", "y"]), Categorical("shop")],
    groups=[("name", "town")],
)
BUSY = dataclasses.replace(SETTINGS, checkpoint_rows=8, selection_share=0.1, rebuild_share=0.1)

Contents = Callable[[int], dict[str, list[Any]]]
"""What stands in so many rows; their times are given."""


def some(size: int) -> dict[str, list[Any]]:
    return {
        "score": [1.0, 2.5, 3.5, 2.5][:size],
        "name": ["a", "b", "c", "d"][:size],
        "town": ["x", "y", "x", "y"][:size],
        "shop": ["s"] * size,
    }


def others(size: int) -> dict[str, list[Any]]:
    return {
        "score": [9.75] * size,
        "name": [f"{'a much longer name ' * 20}{i}" for i in range(size)],
        "town": ["elsewhere"] * size,
        "shop": [f"another {i * 7919}" for i in range(size)],
    }


class Life:
    """A store that does all a store can do, and what it shows on the way."""

    schema = SCHEMA

    def __init__(self, folder: Path, contents: Contents) -> None:
        self.folder, self._contents = folder, contents
        self.disk, self.day = folder / "disk", 100.0
        self.disk.mkdir(parents=True)
        self.archive = Archive(self.disk)
        self.shown: list[Any] = []
        self.once: list[str] = []

    @property
    def given(self) -> dict[str, Any]:
        return {"keys": f"file:{self.folder}/key", "clock": lambda: self.day * DAY}

    def table(self, day: float, size: int = 3) -> pa.Table:
        return pa.table({"t": [day * DAY + i for i in range(size)]} | self._contents(size))

    def observe(self, day: float, size: int = 3) -> None:
        self.day = day + 0.01
        self.show(self.store.advance())
        self.once.append(f"{self._contents(1)['name'][0]} {day}")
        self.show(self.store.observe(self.table(day, size), key=self.once[-1]))
        self.show(self.store.advance())

    def history(self) -> Any:
        file = self.folder / "history.csv"
        rows = [self.table(100 + day, 4) for day in range(8)]
        csv.write_csv(pa.concat_tables(rows), file)
        return in_order([DataFile(file)], self.schema, chunk=10)

    def run(self) -> None:
        self.day = 107.1
        self.store = Pyramid.create(self.disk / "store", self.schema, BUSY, **self.given)
        self.show(*self.store.replay(self.history()))
        for day in (107.5, 108.2, 109.7, 112.5, 119.6):
            self.observe(day)
        self.store.groups.add(("town", "shop"))
        for day in (120.3, 125.1, 129.8, 130.5):
            self.observe(day)
        self.show(self.store.snapshot().names, self.store.snapshot().guarantee)
        self.store.register("model", Ridge())
        header, _ = self.store.models.export("model")
        self.show({n: v for n, v in header.items() if HEADER[n] == PUBLIC})
        self.store.admin.note("rows.read", by="ada", token="0", what="training set")  # noqa: S106 an id
        self.store.models.unregister("model")
        self.store.groups.withdraw("name", why="regulation")
        self.store.publisher.start(f"file:{self.folder / 'shared'}")
        for day in (131.2, 131.3):
            self.observe(day, 4)
        self.show(self.store.admin.reseed(why="somebody was in"), self.store.admin.verify())
        self.observe(131.4)
        reseeded = self.store.admin.reseed(why="again")
        self.show(reseeded, self.store.admin.rebuild(*reseeded.sealed, why="tampered with"))
        self.damage("sealed")
        self.show(
            [(each.kind, each.window) for each in self.store.admin.mend()],
            self.store.admin.verify(),
        )
        self.store.publisher.stop()
        self.store.admin.backup(self.disk / "backup")
        self.store.admin.backup(self.disk / "backup")
        self.store.close()
        backup = self.disk / "backup"
        self.store = Pyramid.restore(backup, self.disk / "restored", **self.given)
        self.observe(133.1)
        self.day = 137.0
        self.show(self.store.advance())

    def damage(self, kind: str) -> None:
        """Flip a bit of the newest file of a kind."""
        newest = inspect.table_files(self.store).current(kind)[-1]
        file = self.store.path / "tables" / newest["file"]
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)

    def show(self, *told: object) -> None:
        """Keep what the store says and shows in clear, once what it does behind is done."""
        inspect.settled(self.store)
        status = dataclasses.asdict(self.store.status())
        status |= {"path": "", "bytes": 0}
        spent = self.store.ledger.report().to_dict()
        exposed = self.exposed()
        sizes = sorted(file.stat().st_size for file in self.store.path.rglob("*.tables"))
        told_all = [status, spent, exposed, sizes, self.catalogue(), self.entries()]
        said = json.dumps(told_all, default=str)
        self.shown.append((told, said.replace(str(self.folder), "")))

    def entries(self) -> list[Any]:
        """The audit log, without what is drawn."""
        return [
            (
                entry.number,
                entry.at,
                entry.kind,
                {n: v for n, v in entry.facts.items() if ENTRIES[entry.kind][n] == PUBLIC},
            )
            for entry in self.store.audit_log.entries()
        ]

    def exposed(self) -> dict[str, Any]:
        """What the last five days exposed, without what is noisy."""
        told = self.store.exposure((self.day - 5) * DAY, self.day * DAY).to_dict()
        return told | {"windows": [window | {"noisy_rows": 0} for window in told["windows"]]}

    def catalogue(self) -> dict[str, list[Any]]:
        """All rows of the catalogue, without what is drawn or hot."""
        ask = inspect.catalogue(self.store).all
        found: dict[str, list[Any]] = {}
        for table, columns in CATALOGUE.items():
            kept = [c for c in columns if columns[c] == PUBLIC or table == "about"]
            rows = [list(row) for row in ask(f"SELECT {', '.join(kept)} FROM {table}")]  # noqa: S608
            if table == "about":
                rows = [row for row in rows if ABOUT.get(row[0]) == PUBLIC]
            found[table] = sorted(rows, key=str)
        found["sealed"] = [row[0] for row in ask("SELECT length(sealed) FROM batches")]
        return found


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    made = Life(tmp_path_factory.mktemp("life"), some)
    with watched(made.archive):
        made.run()
    yield made
    made.store.close()
    made.archive.close()


# --- everything is mapped -------------------------------------------------------------------


@pytest.mark.slow
def test_every_file_that_was_ever_written_is_mapped(life):
    folders = re.compile(r"(store|backup|restored|\.(store|backup|restored)\.[0-9a-f]{8})/")
    names = {name for name, _ in life.archive.versions}
    assert all(folders.match(name) for name in names)
    short = {folders.sub("", name, count=1) for name in names}
    assert {name for name in short if not any(fnmatch.fnmatch(name, f) for f in FILES)} == set()
    assert {f for f in FILES if not fnmatch.filter(short, f)} == set()


def test_every_column_of_the_catalogue_is_mapped(life):
    ask = inspect.catalogue(life.store).all
    tables = {row[0] for row in ask("SELECT name FROM sqlite_master WHERE type = 'table'")}
    found = {t: {row["name"] for row in ask(f"PRAGMA table_info({t})")} for t in tables}
    assert found == {table: set(columns) for table, columns in CATALOGUE.items()}
    assert {row[0] for row in ask("SELECT type FROM sqlite_master")} == {"table", "index"}


def test_every_fact_about_a_store_is_mapped(life):
    facts = inspect.catalogue(life.store).all("SELECT name FROM about")
    assert {row["name"] for row in facts} == set(ABOUT)


def test_every_fact_of_every_entry_of_the_audit_log_is_mapped(life):
    entries = list(life.store.audit_log.entries())
    assert {entry.kind for entry in entries} == set(ENTRIES)
    for entry in entries:
        assert set(entry.facts) == set(ENTRIES[entry.kind]), entry.kind


def test_a_vault_adds_two_facts_and_the_files_of_its_backlog(tmp_path):
    told = {"keys": f"file:{tmp_path}/key", "clock": lambda: 100.0 * DAY}
    given = told | {"vault": str(tmp_path / "vault"), "custodian": PrivateKey.new().public}
    with Pyramid.create(tmp_path / "store", SCHEMA, BUSY, **given) as store:
        before = {file.name for file in (tmp_path / "store").iterdir()}
        store.observe(pa.table({"t": [100.0 * DAY]} | some(1)))
        store.vault._backlog._place = None  # down
        store.vault.seal()
        facts = inspect.catalogue(store).all("SELECT name FROM about")
        after = {file.relative_to(tmp_path / "store") for file in store.path.rglob("*.*")}
    assert {row["name"] for row in facts} - set(ABOUT) == {"vault", "unowed"} <= PASSING.keys()
    assert "vault-backlog" in before
    backlog = [path.name for path in after if path.parent.name == "vault-backlog"]
    assert sorted(name.rpartition(".")[2] for name in backlog) == ["json", "parquet"]


def test_everything_in_the_header_of_an_exported_model_is_mapped():
    assert set(KINDS) == set(HEADER)


def test_every_field_of_every_output_is_mapped():
    for output, fields in OUTPUTS.items():
        assert {field.name for field in dataclasses.fields(output)} == set(fields), output


def test_every_public_name_of_a_store_a_snapshot_and_a_ledger_is_mapped(life):
    store = life.store
    by_subject = (store.models, store.groups, store.publisher, store.shards, store.admin)
    things = (store, *by_subject, store.snapshot(), store.ledger)
    assert {type(thing) for thing in things} == set(VERBS)
    for thing in things:
        named = {name for name in (*vars(type(thing)), *vars(thing)) if not name.startswith("_")}
        assert named == set(VERBS[type(thing)])


def test_every_exported_name_is_mapped():
    assert set(pyramidion.__all__) == set(EXPORTS)


def test_every_output_that_a_verb_gives_is_one_of_those_mapped():
    known = {kind.__name__ for kind in OUTPUTS} | {"Snapshot", "Ledger", "Schema", "Settings"}
    known |= {"Self", "None", "int", "str", "Path", "Iterator[Receipt]", "pa.Table", "TrainingSet"}
    known |= {"list[Receipt | PyramidionError]"}  # errors name no value
    known |= {"list[Damage]", "AuditLog", "Vault", "Vault | None", "list[str]"}
    known |= {"list[GroupStatus]", "Bulk", "bytes"}  # a card
    known |= {"Model", "LearningCurve", "NDArray[Any]", "Export", "ShardStatus | None"}
    known |= {"ValuesView[Model]", "ItemsView[str, Model]"}
    classes = (Pyramid, Models, Groups, TablePublisher, StreamShards, Admin)
    known |= {each.__name__ for each in classes}
    for each in classes:
        for name, verb in vars(each).items():
            if not name.startswith("_"):
                call = verb.fget if isinstance(verb, property) else getattr(verb, "__func__", verb)
                assert signature(call).return_annotation in known, name


# --- what is paid is paid ---------------------------------------------------------------------


def _tables(store: Pyramid) -> Iterator[tuple[set[int], Any]]:
    """Each count table on disk, with the windows it counts."""
    ask = inspect.catalogue(store).all
    sealed = {
        row[0] for row in ask("SELECT number FROM table_sets WHERE level = 0 AND state = 'sealed'")
    }
    query = "SELECT kind, number, file, key FROM arenas WHERE current OR kind <> 'complete'"
    for row in ask(query):
        arena = inspect.table_files(store).read(row["file"], inspect.keys(store).get(row["key"]))
        for table in arena.layout.tables:
            yield (sealed if row["kind"] == "complete" else {row["number"]}), table


def test_rebuilt_tables_have_the_noise_that_their_window_paid_for_again(tmp_path):
    life = Life(tmp_path, some)
    life.store = Pyramid.create(life.disk / "store", SCHEMA, BUSY, **life.given)
    life.observe(105.2)
    (window,) = life.store.admin.reseed(why="as if").sealed
    charged = life.store.admin.rebuild(window, why="as if").charged
    lines = inspect.catalogue(life.store).lines(window)
    assert [line.amount for line in lines if line.kind == "spend"] == [charged]
    paid = {line.purpose: line.amount for line in lines if line.kind == "table"}
    tables = inspect.sealed(life.store, window).layout.tables
    costs = [table.rows / (2 * table.variance) for table in tables]
    assert sum(costs) <= float(charged) * (1 + 1e-9)
    for table, cost in zip(tables, costs, strict=True):
        share = paid[table.name] / sum(paid.values())
        assert cost <= float(charged * share) * (1 + 1e-9)
    life.store.close()


def test_every_table_on_disk_has_the_noise_that_its_windows_paid_for(tmp_path):
    life = Life(tmp_path, some)
    life.store = Pyramid.create(life.disk / "store", SCHEMA, BUSY, **life.given)
    life.observe(105.2)
    life.store.groups.add(("town", "shop"))
    life.observe(115.1)
    life.observe(125.1)
    lines = [line for line in inspect.catalogue(life.store).lines() if line.kind == "table"]
    seen = 0
    for windows, table in _tables(life.store):
        paid = [ln.amount for ln in lines if ln.purpose == table.name and ln.window in windows]
        assert len(paid) == table.windows >= 1
        assert table.variance >= sum(table.rows / (2 * amount) for amount in paid) * (1 - 1e-9)
        seen += 1
    life.store.close()
    assert seen > 15
    assert ("town,shop", 2) in {(table.purpose, table.window) for table in lines}


# --- what is hot is gone ------------------------------------------------------------------------


def _secrets(store: Pyramid) -> set[bytes]:
    """What is drawn or hot in the catalogue now, as bytes."""
    ask = inspect.catalogue(store).all
    found = {row[0] for row in ask("SELECT wrapped FROM keys")}
    found |= {row[0] for row in ask("SELECT once FROM arrivals")}
    found |= {row[0] for row in ask("SELECT sealed FROM batches")}
    for table in ("steps", "arenas"):
        found |= {row[0].encode() for row in ask(f"SELECT file FROM {table}")}  # noqa: S608
    return found


def test_nothing_that_is_hot_is_anywhere_in_the_store_once_its_step_has_left(tmp_path):
    life = Life(tmp_path, some)
    life.store = Pyramid.create(life.disk / "store", SCHEMA, BUSY, **life.given)
    ask = inspect.catalogue(life.store).all
    for day in (100.1, 100.2, 101.1, 101.2, 101.3):
        life.observe(day)
    before = _secrets(life.store)
    assert {row[0] for row in ask("SELECT DISTINCT step FROM batches")} == {1, 2}
    assert all(_present(life.store, each) for each in before)
    life.day = 103.1
    assert life.store.advance().steps == 1
    assert {row[0] for row in ask("SELECT number FROM steps")} == {2}
    assert {row[0] for row in ask("SELECT DISTINCT step FROM batches")} == {2}
    assert {row[0] for row in ask("SELECT number FROM batches")} == {3, 4, 5}
    assert len(list((life.store.path / "hot").iterdir())) == 1
    gone = before - _secrets(life.store)
    assert len(gone) > 8
    assert not [each for each in gone if _present(life.store, each)]
    left = {path.name.encode() for path in life.store.path.rglob("*")}
    assert b"catalogue.db" in left
    assert not gone & left
    life.store.close()


def _present(store: Pyramid, secret: bytes) -> bool:
    return any(secret in file.read_bytes() for file in store.path.iterdir() if file.is_file())


def test_once_all_steps_have_left_no_row_of_a_hot_table_is_in_the_catalogue(life):
    ask = inspect.catalogue(life.store).one
    for table, columns in CATALOGUE.items():
        if HOT in columns.values():
            assert ask(f"SELECT count(*) FROM {table}") == 0, table  # noqa: S608
    assert ask("SELECT count(*) FROM keys WHERE purpose LIKE '%hot step%'") == 0
    assert not list((life.store.path / "hot").iterdir())


# --- what is public is --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    made = Life(tmp_path_factory.mktemp("twin"), others)
    made.run()
    yield made
    made.store.close()


@pytest.mark.slow
def test_other_rows_at_the_same_times_leave_all_that_is_public_the_same(life, twin):
    assert len(life.shown) == len(twin.shown) > 30
    for one, other in zip(life.shown, twin.shown, strict=True):
        assert one == other


def test_the_twins_did_take_other_rows(life, twin):
    assert life.once != twin.once
    sizes = [(each.folder / "history.csv").stat().st_size for each in (life, twin)]
    assert sizes[1] > 2 * sizes[0]


def test_what_is_kept_of_an_import_does_not_depend_on_its_rows(life, twin):
    assert life.history().fingerprint == twin.history().fingerprint


def test_an_import_is_known_by_its_fingerprint_alone(life):
    kept = inspect.catalogue(life.store).all("SELECT rows FROM imports")
    assert [row["rows"] for row in kept] == [life.store.admin.replayed(life.history())] == [32]
