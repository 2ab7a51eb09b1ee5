"""Files of a vault: when they are sealed, what is in them, where they wait, how they go."""

from __future__ import annotations

import stat
import threading
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyramidion import FormatError, KeyHolderError, Pyramid, SchemaError, StateError, StorageError
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import in_order
from pyramidion.storage.audit_log import AUDIT_LOG, AuditLog
from pyramidion.vault import writer
from pyramidion.vault.documents import Grant
from pyramidion.vault.envelope import Envelope, joined, lock_context
from pyramidion.vault.key_pairs import PrivateKey
from pyramidion.vault.parquet import ARRIVED, BATCH, BLANK, WINDOW, decrypted
from tests.store import inspect
from tests.store.peopling import EXACT, PEOPLE, of
from tests.store.stores import CUSTODIAN, DAY, HOUR, SECOND, START, Stand, observed, rows
from tests.vault.vaults import batches, down, opened, refusing, sealed, tables, vault_of

US = SECOND
NOISY = EXACT | {"epsilon": 1.0}


class Log:
    """What the audit log of a store is told from now on."""

    def __init__(self, store: Pyramid) -> None:
        self._path, self._start = store.path / AUDIT_LOG, store.audit_log.length

    @property
    def told(self) -> list[tuple[str, dict[str, Any]]]:
        """Kinds and facts, in order."""
        with closing(AuditLog.read(self._path)) as log:
            return [(entry.kind, dict(entry.facts)) for entry in log.entries(self._start)]

    def kinds(self) -> list[str]:
        """The kinds of entries, in order."""
        return [kind for kind, _ in self.told]


def _place(stand: Stand) -> Path:
    return Path(str(stand.vault))


def _imported(stand: Stand) -> Pyramid:
    """A store that took four weeks of history, one row each hour, an hour ago."""
    store = stand.create(hot_window="2d", count_window="28d", vault_every="1d")
    hours = START - 28 * DAY + HOUR * np.arange(28 * 24)
    table = pa.concat_tables(rows(1, float(at)) for at in hours)
    pq.write_table(table, stand.folder / "history.parquet")
    list(store.replay(in_order([DataFile(stand.folder / "history.parquet")], store.schema)))
    vault_of(store).carry()
    return store


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize(("day", "length"), [(0, 24), (13, 24), (13.25, 1), (27, 24)])
def test_rows_of_a_history_are_found_by_event_time(
    stand: Stand, day: float, length: int, reopened: bool
) -> None:
    store = _imported(stand)
    vault = vault_of(stand.reopen() if reopened else store)
    vault.seal()
    first = int((START + (day - 28) * DAY) * US)
    last = first + length * HOUR * US
    files = vault.files(first, last)
    assert len(files) <= 2
    arrived = [at for f in vault.envelopes(first, last) for at in _arrivals(vault, f)]
    assert len([at for at in arrived if first <= at < last]) == length
    for file in files:
        assert last - DAY * US <= file.last
        assert file.first <= first + DAY * US


def _arrivals(vault: Any, envelope: Envelope) -> list[int]:
    table = opened(vault, envelope)
    times = [int(at * US) for at in table["t"].to_pylist()]
    assert times == table[ARRIVED].to_pylist()
    return times


def _aged(stand: Stand, **settings: Any) -> Pyramid:
    """A store with a stored file for each of two hours."""
    store = stand.create(**settings)
    for hour in range(2):
        observed(store, rows(5, stand.clock.now, seed=hour))
        stand.clock.pass_(HOUR)
    store.advance()
    vault_of(store).carry()
    return store


# --- when and what ----------------------------------------------------------------------------


def test_rows_of_different_spans_are_in_different_files(stand: Stand) -> None:
    store = _aged(stand)
    assert [(file.first, file.rows) for file in vault_of(store).files()] == [
        (int(START) * US, 5),
        (int(START + HOUR) * US, 5),
    ]


def test_a_file_ends_at_so_many_rows_too(stand: Stand) -> None:
    store = stand.create(vault_rows=10)
    for seed in range(5):
        store.observe(rows(4, seed=seed))
    vault_of(store).seal()
    assert [file.rows for file in vault_of(store).files()] == [8, 8, 4]


def test_a_span_that_is_over_is_sealed_by_advance(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    stand.clock.pass_(HOUR - 1)
    store.advance()
    assert vault_of(store).files() == []
    assert store.status().vault.waiting_rows == 5
    stand.clock.pass_(1)
    store.advance()
    assert len(vault_of(store).files()) == 1
    assert store.status().vault.waiting_rows == 0


def test_rows_of_the_running_span_wait_for_their_file(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    stand.close()  # few rows: they are read from the hot window again
    stand.clock.pass_(HOUR)
    store = stand.open()
    store.observe(rows(6))
    store.advance()
    status = store.status().vault
    assert (status.rows, status.waiting_rows) == (5, 6)


def test_rows_know_their_batch_arrival_and_window(stand: Stand) -> None:
    store = _aged(stand)
    first, second = tables(store)
    assert set(first[BATCH].to_pylist()) == {1}
    assert set(second[ARRIVED].to_pylist()) == {int(START + HOUR) * US}
    assert set(first[WINDOW].to_pylist()) == {1}


def test_batches_of_other_shapes_are_in_other_files_of_the_same_span(stand: Stand) -> None:
    store = stand.create()
    batch = rows(4)
    store.observe(batch)
    store.observe(batch.set_column(1, "y", batch["y"].cast(pa.float64())))
    store.observe(batch)
    vault_of(store).seal()
    assert sorted(file.rows for file in vault_of(store).files()) == [4, 8]
    assert sorted(batches(store)) == [1, 2, 3]


def test_many_small_batches_and_row_groups_lose_nothing(stand: Stand, monkeypatch: Any) -> None:
    monkeypatch.setattr(writer, "GROUP", 20)
    monkeypatch.setattr(writer, "PIECES", 3)
    store = stand.create()
    for seed in range(30):
        store.observe(rows(3, seed=seed))
    found = sealed(store)
    assert len(vault_of(store).files()) == 1
    names = found[1].column_names
    assert {n: t.to_pydict() for n, t in found.items()} == {
        seed + 1: rows(3, seed=seed).select(names).to_pydict() for seed in range(30)
    }


def test_a_column_in_which_nothing_came_is_sealed(stand: Stand) -> None:
    store = stand.create()
    batch = rows(4)
    given = batch.set_column(batch.column_names.index("a"), "a", pa.nulls(4))
    store.observe(given)
    assert sealed(store)[1]["a"].to_pylist() == [None] * 4


def test_the_envelope_tells_times_rows_and_columns_and_nothing_of_the_rows(stand: Stand) -> None:
    store = _aged(stand)
    header = vault_of(store).envelopes()[0].header
    assert (header.rows, header.first_batch, header.last_batch) == (5, 1, 1)
    assert set(header.columns) == {"t", "y", "a", "b"}
    assert header.custodian == CUSTODIAN.public.fingerprint


def test_each_file_has_a_key_of_its_own(stand: Stand) -> None:
    one, two = vault_of(_aged(stand)).envelopes()
    assert one.key(CUSTODIAN) != two.key(CUSTODIAN)


def test_another_custodian_opens_nothing(stand: Stand) -> None:
    vault = vault_of(_aged(stand))
    with pytest.raises(FormatError):
        opened(vault, vault.envelopes()[0], PrivateKey.new())


def test_sealed_files_are_for_their_owner_alone(stand: Stand) -> None:
    _aged(stand)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in _place(stand).iterdir()}
    assert modes == {0o600}


def test_a_request_for_an_hour_has_the_files_of_that_hour_alone(stand: Stand) -> None:
    store = _aged(stand)
    first = int(START + HOUR) * US
    asked = vault_of(store).request(
        first,
        first + int(HOUR) * US,
        columns=["a"],
        reason="a test",
        engineer="E",
        key=PrivateKey.new(),
        broker=PrivateKey.new().public,
        now=first,
    )
    assert [file.header.first for file in asked.files] == [first]


def test_a_request_seals_what_waits_so_that_its_range_is_whole(stand: Stand) -> None:
    store = stand.create()
    log = Log(store)
    store.observe(rows(5))
    now = int(START) * US
    given = {"columns": ["a"], "reason": "a test", "engineer": "E", "now": now}
    keys = {"key": PrivateKey.new(), "broker": PrivateKey.new().public}
    asked = vault_of(store).request(now, now + 1, **given, **keys)
    assert asked.files[0].header.rows == 5
    assert log.kinds()[0] == "vault.sealed"
    assert "vault.requested" in log.kinds()
    with pytest.raises(StateError, match="no rows that arrived then"):
        vault_of(store).request(now + 1, now + 2, **given, **keys)


def test_the_log_is_told_of_every_file_and_of_no_value(stand: Stand) -> None:
    store = stand.create()
    log = Log(store)
    store.observe(rows(5))
    vault_of(store).seal()
    vault_of(store).carry()
    (kind, facts), *_ = log.told
    assert kind == "vault.sealed"
    assert set(facts) == {"file", "digest", "rows", "first", "last"}
    stand.close()
    assert log.kinds() == ["vault.sealed", "vault.stored"]


# --- a place that is down ---------------------------------------------------------------------


def test_a_place_that_is_down_stops_nobody_who_observes(stand: Stand) -> None:
    store = stand.create(vault_rows=5)
    down(store)
    for seed in range(3):
        assert store.observe(rows(5, seed=seed)).accepted == 5
    vault_of(store).seal()
    status = store.status().vault
    assert (status.files, status.backlog_files) == (3, 3)
    assert status.backlog_since == int(START) * US
    assert list(_place(stand).iterdir()) == []


def test_what_kept_the_place_from_taking_files_is_told_by_its_kind_alone(stand: Stand) -> None:
    store = stand.create()
    down(store)
    store.observe(rows(5))
    vault_of(store).seal()
    with pytest.raises(ConnectionError):
        vault_of(store).carry()
    told = store.status().to_dict()["vault"]
    assert told["problem"] == "ConnectionError"
    assert "secret" not in str(told)


def test_a_place_that_comes_back_gets_the_whole_backlog_in_order(stand: Stand) -> None:
    store = stand.create(vault_rows=5)
    away = down(store)
    for seed in range(3):
        store.observe(rows(5, seed=seed))
    vault_of(store).seal()
    away.left = 0
    vault_of(store).carry()
    assert store.status().vault.backlog_files == 0
    assert len(list(_place(stand).iterdir())) == 6
    assert stand.files("vault-backlog") == set()
    assert vault_of(store).verify() == []
    assert sorted(batches(store)) == [1, 2, 3]


def test_a_place_that_fails_some_times_is_tried_again_behind_the_scenes(
    stand: Stand, monkeypatch: Any
) -> None:
    monkeypatch.setattr("pyramidion.vault.backlog.FIRST", 0.01)
    store = stand.create()
    away = down(store, 4)
    store.observe(rows(5))
    vault_of(store).seal()
    vault_of(store)._backlog._thread.join(0.05)
    while store.status().vault.backlog_files:  # the test's timeout ends this
        vault_of(store)._backlog._thread.join(0.05)
    assert away.left == 0
    assert len(list(_place(stand).iterdir())) == 2


def test_a_backlog_survives_a_restart_and_its_rows_the_hot_window(stand: Stand) -> None:
    store = stand.create()
    down(store)
    store.observe(rows(5))
    stand.clock.pass_(4 * DAY)
    store.advance()
    assert store.status().hot_rows == 0
    assert store.status().vault.backlog_files == 1
    store = stand.reopen()
    vault_of(store).carry()
    assert batches(store)[1].num_rows == 5
    assert len(list(_place(stand).iterdir())) == 2


def test_a_file_that_was_changed_in_the_backlog_is_not_stored(stand: Stand) -> None:
    store = stand.create()
    down(store)
    store.observe(rows(5))
    vault_of(store).seal()
    stand.close()
    (file,) = (stand.path / "vault-backlog").glob("*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(FormatError, match="was changed in the backlog"):
        vault_of(stand.open()).carry()


def test_a_file_that_nobody_has_is_named(stand: Stand) -> None:
    store = stand.create()
    down(store)
    store.observe(rows(5))
    vault_of(store).seal()
    stand.close()
    for file in (stand.path / "vault-backlog").iterdir():
        file.unlink()
    with pytest.raises(StorageError, match="neither in the backlog nor in the vault"):
        vault_of(stand.open()).carry()


# --- what is found out ------------------------------------------------------------------------


def _objects(stand: Stand, suffix: str) -> list[Path]:
    return sorted(_place(stand).glob(f"*.{suffix}"))


@pytest.mark.parametrize("suffix", ["parquet", "json"])
def test_bit_flips_are_found_and_named(stand: Stand, suffix: str) -> None:
    store = _aged(stand)
    file = _objects(stand, suffix)[0]
    data = bytearray(file.read_bytes())
    for at in {5, len(data) // 2, len(data) - 3}:
        data[at] ^= 1
        file.write_bytes(data)
        (problem,) = vault_of(store).verify()
        assert problem.name == file.name
        assert "changed" in problem.why
        data[at] ^= 1


def test_a_truncated_file_is_found_and_named(stand: Stand) -> None:
    store = _aged(stand)
    file = _objects(stand, "parquet")[0]
    file.write_bytes(file.read_bytes()[:-1])
    (problem,) = vault_of(store).verify()
    assert (problem.name, problem.why.partition(":")[0]) == (file.name, "truncated")


@pytest.mark.parametrize("suffix", ["parquet", "json"])
def test_swapped_files_are_found_and_both_named(stand: Stand, suffix: str) -> None:
    store = _aged(stand)
    one, two = _objects(stand, suffix)
    ours, theirs = one.read_bytes(), two.read_bytes()
    one.write_bytes(theirs)
    two.write_bytes(ours)
    problems = vault_of(store).verify()
    assert [problem.name for problem in problems] == [one.name, two.name]
    assert all("swapped" in problem.why for problem in problems)


def test_files_that_are_missing_or_strange_are_named(stand: Stand) -> None:
    store = _aged(stand)
    gone = _objects(stand, "parquet")[0]
    gone.rename(_place(stand) / "other.parquet")
    assert {(p.name, p.why) for p in vault_of(store).verify()} == {
        (gone.name, "missing"),
        ("other.parquet", "unknown to this store"),
    }


def test_a_changed_envelope_is_not_given_to_a_custodian(stand: Stand) -> None:
    store = _aged(stand)
    one, two = _objects(stand, "json")
    one.write_bytes(two.read_bytes())
    with pytest.raises(FormatError, match="is not the one that was sealed"):
        vault_of(store).envelopes()


def test_a_whole_pair_under_another_name_does_not_open(stand: Stand) -> None:
    vault = vault_of(_aged(stand))
    one, two = vault.envelopes()
    other = Envelope(two.header, one.wrapped)  # the key of one file, the header of another
    with pytest.raises(FormatError):
        opened(vault, other)


# --- retention --------------------------------------------------------------------------------


def test_files_past_their_time_go_from_the_catalogue_and_the_place(stand: Stand) -> None:
    store = _aged(stand, vault_retention="2d")
    log = Log(store)
    stand.clock.pass_(2 * DAY - 2 * HOUR)
    store.advance()
    vault_of(store).carry()
    (left,) = vault_of(store).files()
    assert left.first == int(START + HOUR) * US
    assert len(list(_place(stand).iterdir())) == 2
    assert log.kinds() == ["vault.erased"]
    assert any("vault file of" in record.what for record in store.status().deletions)


def test_the_locks_of_files_past_their_time_are_gone_from_the_catalogue(stand: Stand) -> None:
    store = _aged(stand, vault_retention="2d")
    locks = "SELECT count(*) FROM keys WHERE purpose = 'vault file'"
    assert inspect.catalogue(store).one(locks) == 2
    stand.clock.pass_(3 * DAY)
    store.advance()
    assert inspect.catalogue(store).one(locks) == 0


def test_with_a_retention_a_custodian_needs_the_stores_lock_too(stand: Stand) -> None:
    store = _aged(stand, vault_retention="2d")
    name = vault_of(store).files()[0].name
    data = (_place(stand) / f"{name}.json").read_bytes()
    envelope = Envelope.from_bytes(data)
    rows = (_place(stand) / f"{name}.parquet").read_bytes()
    with pytest.raises(FormatError, match="is damaged"):
        list(decrypted(rows, envelope.key(CUSTODIAN), envelope.header))
    key = joined(envelope.key(CUSTODIAN), vault_of(store).locks()[name])
    assert list(decrypted(rows, key, envelope.header))


def test_a_kept_request_opens_nothing_for_a_custodian_once_the_lock_is_gone(stand: Stand) -> None:
    store = _aged(stand, vault_retention="2d")
    vault, broker, name = vault_of(store), PrivateKey.new(), vault_of(store).files()[0].name
    given = {"columns": ["a"], "reason": "x", "engineer": "Ada", "key": PrivateKey.new()}
    request = vault.request(0, 1 << 53, broker=broker.public, now=1, **given)
    rows = (_place(stand) / f"{name}.parquet").read_bytes()
    grant = Grant.make(request, CUSTODIAN, now=1, expires=2)
    (file,) = [file for file in grant.files if file.header.name == name]
    assert list(decrypted(rows, grant.file_key(file, broker), file.header))  # while it runs
    half = request.files[0].key(CUSTODIAN)
    with pytest.raises(FormatError, match="is damaged"):
        list(decrypted(rows, half, request.files[0].header))
    for lock in request.locks:
        with pytest.raises(FormatError, match="sealed to another key"):
            CUSTODIAN.open(lock, lock_context(file.header))


def test_what_a_place_that_is_down_did_not_delete_is_deleted_later(stand: Stand) -> None:
    store = _aged(stand, vault_retention="2d")
    away = down(store)
    stand.clock.pass_(3 * DAY)
    store.advance()
    status = store.status().vault
    assert (status.files, status.to_delete) == (0, 2)
    assert len(list(_place(stand).iterdir())) == 4
    away.left = 0
    vault_of(store).carry()
    assert list(_place(stand).iterdir()) == []
    assert store.status().vault.to_delete == 0


def test_without_a_retention_nothing_is_erased(stand: Stand) -> None:
    store = _aged(stand)
    stand.clock.pass_(40 * DAY)
    store.advance()
    assert len(vault_of(store).files()) == 2


# --- how many rows are where --------------------------------------------------------------------


def _layers(store: Pyramid) -> tuple[int, int, int, int]:
    found = store.status().layers
    assert found.exposed + found.summarised + found.retained + found.gone == found.collected
    return found.exposed, found.summarised, found.retained, found.gone


def _past_retention(stand: Stand, **settings: Any) -> Pyramid:
    """A store of five rows, whose window is erased."""
    store = stand.create(count_window="1d", retention="10d", **settings)
    store.observe(rows(5, stand.clock.now))
    stand.clock.pass_(20 * DAY)
    store.advance()
    return store


def test_rows_in_the_vault_are_retained_not_gone(stand: Stand) -> None:
    assert _layers(_past_retention(stand)) == (0, 0, 5, 0)


def test_rows_that_the_vault_forgot_are_gone(stand: Stand) -> None:
    assert _layers(_past_retention(stand, vault_retention="12d")) == (0, 0, 0, 5)


def test_rows_from_before_the_vault_are_gone(stand: Stand) -> None:
    place, stand.vault = stand.vault, None
    store = _past_retention(stand)
    store.admin.attach_vault(str(place), CUSTODIAN.public)
    store.observe(rows(3, stand.clock.now))
    vault_of(store).seal()
    assert _layers(store) == (3, 0, 0, 5)
    stand.clock.pass_(4 * DAY)
    store.advance()
    assert _layers(store) == (0, 3, 0, 5)
    stand.clock.pass_(20 * DAY)
    store.advance()
    assert _layers(store) == (0, 0, 3, 5)


# --- replacing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", [None, "30d"])
def test_a_file_is_replaced_by_what_is_left_of_it(stand: Stand, retention: str | None) -> None:
    store = _aged(stand, vault_retention=retention)
    vault = vault_of(store)
    old, other = vault.files()
    left = opened(vault, vault.envelopes()[0]).slice(2)
    name = vault.replace(old.name, [left], why="a person was erased")
    vault.carry()
    assert [file.rows for file in vault.files()] == [3, 5]
    assert {file.name for file in vault.files()} == {name, other.name}
    assert not list(_place(stand).glob(f"{old.name}*"))
    assert tables(store)[0].to_pydict() == left.to_pydict()
    assert vault.verify() == []


def test_a_file_of_which_nothing_is_left_goes(stand: Stand) -> None:
    store = _aged(stand)
    vault = vault_of(store)
    assert vault.replace(vault.files()[0].name, []) is None
    vault.carry()
    assert len(vault.files()) == 1
    with pytest.raises(StateError, match="has no file"):
        vault.replace("other", [])


# --- hot rows that are rewritten ---------------------------------------------------------------


def _busy(store: Pyramid) -> None:
    """Have the sealer do nothing until hot rows are rewritten: what comes waits in its queue."""
    sealer, go = vault_of(store)._sealer, threading.Event()
    sealer._thread.submit(go.wait, 10)
    inspect.hot(store).rewrote.append(go.set)


def _idle(store: Pyramid) -> None:
    vault_of(store)._sealer._thread.submit(lambda: None).result()


def test_a_batch_that_waits_while_a_person_is_erased_is_sealed_without_them(stand: Stand) -> None:
    store = stand.create(PEOPLE, **NOISY)
    _busy(store)
    observed(store, of(["anna", "ben", "anna"]))
    store.erase_person("anna")
    vault_of(store).seal()
    assert {name for table in tables(store) for name in table["who"].to_pylist()} == {"ben", None}


def test_a_batch_that_waits_while_a_feature_is_withdrawn_is_sealed_without_it(stand: Stand) -> None:
    store = stand.create()
    _busy(store)
    observed(store, rows(5))
    store.groups.withdraw("a", why="asked for")
    vault_of(store).seal()
    (table,) = tables(store)
    assert "a" not in table.column_names
    assert "a" not in vault_of(store).envelopes()[0].header.columns


@pytest.mark.parametrize("who", ["anna", "ben", "nobody"])
def test_nobody_sees_in_a_sealed_file_how_many_hot_rows_a_person_had(
    stand: Stand, who: str
) -> None:
    store = stand.create(PEOPLE, **NOISY)
    log = Log(store)
    for seed, names in enumerate((["anna", "ben", "anna"], ["anna"], ["ben"])):
        observed(store, of(names, seed=seed))
    store.erase_person(who)
    vault_of(store).seal()
    (file,) = vault_of(store).files()
    assert (file.rows, file.first_batch, file.last_batch) == (5, 1, 3)
    assert [facts["rows"] for kind, facts in log.told if kind == "vault.sealed"] == [5]
    assert store.status().vault.rows == 5


def test_a_row_that_was_erased_before_it_was_sealed_is_blank(stand: Stand) -> None:
    store = stand.create(PEOPLE, **NOISY)
    observed(store, of(["anna", "ben", "anna"]))
    store.erase_person("anna")
    vault_of(store).seal()
    (table,) = tables(store)
    kept, *blank = table.to_pylist()
    assert kept["who"] == "ben"
    own = {BATCH: 1, ARRIVED: int(START) * US, WINDOW: BLANK}
    assert blank == [dict.fromkeys(table.column_names) | own] * 2


@pytest.mark.parametrize("verb", ["erase_person", "withdraw"])
def test_open_files_let_go_of_what_is_erased_before_that_is_told(stand: Stand, verb: str) -> None:
    store = stand.create(PEOPLE, **NOISY)
    observed(store, of(["anna", "ben", "anna"]))
    _idle(store)
    assert vault_of(store)._sealer._drafts
    erase = store.erase_person if verb == "erase_person" else store.groups.withdraw
    erase("a", why="asked for")
    assert not vault_of(store)._sealer._drafts


def test_the_log_tells_which_rows_left_unsealed(stand: Stand, monkeypatch: Any) -> None:
    store = stand.create(vault_every="30d")
    log = Log(store)
    for seed in range(2):
        observed(store, rows(5, seed=seed))
    stand.clock.pass_(4 * DAY)
    refusing(monkeypatch, 1)
    with pytest.raises(OSError, match="the disk refuses"):
        store.advance()
    store.advance()
    now = int(START) * US
    lost = {"first_batch": 1, "last_batch": 2, "rows": 10, "first": now, "last": now}
    assert log.told == [("vault.lost", lost)]


# --- what a request and an erasure leave --------------------------------------------------------


def test_a_request_for_many_files_is_told_by_their_number_and_a_digest(stand: Stand) -> None:
    store = _aged(stand)
    log = Log(store)
    vault = vault_of(store)
    given = {"columns": ["a"], "reason": "a test", "engineer": "E", "now": int(START) * US}
    keys = {"key": PrivateKey.new(), "broker": PrivateKey.new().public}
    asked = vault.request(0, 1 << 53, **given, **keys)
    ((_, facts),) = log.told
    names = sorted(file.header.name for file in asked.files)
    assert (facts["files"], facts["purpose"]) == (2, "read")
    assert facts["names"] == sha256("\n".join(names).encode()).hexdigest()


@pytest.mark.parametrize("retention", [None, "30d"])
def test_no_backup_from_before_brings_a_replaced_file_back(
    stand: Stand, retention: str | None
) -> None:
    store = stand.create(vault_retention=retention)
    down(store)
    store.observe(rows(5))
    vault = vault_of(store)
    vault.seal()
    store.admin.backup(stand.folder / "backup")
    left = opened(vault, vault.envelopes()[0]).slice(2)
    vault.replace(vault.files()[0].name, [left])
    stand.close()
    with pytest.raises(KeyHolderError):
        Pyramid.restore(stand.folder / "backup", stand.folder / "restored", **stand.given)


# --- a store and its vault ----------------------------------------------------------------------


def test_a_vault_may_not_lie_in_its_store(stand: Stand) -> None:
    stand.vault = stand.path / "vault"
    with pytest.raises(SchemaError, match="may not lie in its store"):
        stand.create()
    assert not stand.path.exists()


def test_a_vault_needs_a_custodian(stand: Stand) -> None:
    stand.vault = None
    store = stand.create()
    with pytest.raises(SchemaError, match="give both"):
        Pyramid.create(
            stand.folder / "other", store.schema, store.settings, vault="x", **stand.given
        )


def test_a_store_keeps_the_vault_it_has(stand: Stand) -> None:
    with pytest.raises(StateError, match="has a vault already"):
        stand.create().admin.attach_vault(str(stand.folder / "other"), CUSTODIAN.public)


def test_a_backup_has_the_backlog_so_that_a_restored_store_loses_no_sealed_row(
    stand: Stand,
) -> None:
    store = stand.create()
    down(store)
    store.observe(rows(5))
    stand.clock.pass_(4 * DAY)
    store.advance()  # the rows are in the backlog alone
    store.admin.backup(stand.folder / "backup")
    stand.close()
    restored = Pyramid.restore(stand.folder / "backup", stand.folder / "restored", **stand.given)
    stand.held(restored)
    vault_of(restored).carry()
    assert batches(restored)[1].num_rows == 5
    assert len(list(_place(stand).iterdir())) == 2
