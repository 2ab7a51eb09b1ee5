"""The broker: who gets which rows until when, what is refused, and what the log has of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from io import BytesIO

import pyarrow as pa
import pytest

from pyramidion.counts.deadline import HighWater, passing, wall
from pyramidion.errors import FormatError, PyramidionError, SchemaError, StateError, StorageError
from pyramidion.vault.broker import ANSWER_WITHIN, MINUTE, OF_ONE, REFUSALS
from pyramidion.vault.documents import Grant, Revocation
from pyramidion.vault.envelope import Envelope
from pyramidion.vault.erase_person import Order
from pyramidion.vault.key_pairs import PrivateKey, PublicKey
from pyramidion.vault.parquet import decrypted
from pyramidion.vault.stream import Opener, challenge_context
from tests.vault.desk import CANARY, CUSTODIAN, DAY, ENGINEER, HOUR, NOON, OTHER, SECOND, Desk


def revocation(grant: Grant, by: PrivateKey = CUSTODIAN) -> str:
    return Revocation.make(grant.id, by, now=NOON).to_json()


# --- what a grant gives ---------------------------------------------------------------------


def test_a_grant_gives_the_rows_and_columns_it_names(desk: Desk) -> None:
    table = desk.opened(desk.grant(1))
    assert table.column_names == ["carrier", "_batch", "_arrived"]
    assert table.column("carrier").to_pylist() == [f"{CANARY} hour-1 {n}" for n in range(4)]


def test_the_log_has_each_step_in_order(desk: Desk) -> None:
    grant = desk.grant(0, 1)
    desk.opened(grant)
    assert desk.kinds() == ["vault.granted", "vault.opened"]
    (granted,), (opened,) = desk.said("vault.granted"), desk.said("vault.opened")
    assert granted["expires"] == grant.expires
    assert granted["request"] == grant.request
    assert opened["engineer"] == "Ada"
    assert (opened["files"], opened["rows"]) == (2, 8)
    assert opened["names"] == granted["names"] == sha256(b"hour-0\nhour-1").hexdigest()
    assert opened["purpose"] == granted["purpose"] == "read"
    assert desk.log.verify().sound


def test_a_grant_is_logged_once_and_every_opening_is(desk: Desk) -> None:
    grant = desk.grant()
    for _ in range(3):
        desk.opened(grant)
    assert desk.kinds() == ["vault.granted", *["vault.opened"] * 3]


def test_a_grant_of_one_hour_reads_that_hour_s_file_alone(desk: Desk) -> None:
    desk.opened(desk.grant(1))
    assert desk.place.gets == {"hour-1.parquet": 1}


def test_rows_of_a_granted_file_that_arrived_at_other_times_do_not_come(desk: Desk) -> None:
    start = NOON - DAY + HOUR
    grant = desk.grant(1, first=start + 1, last=start + HOUR // 2 + 1)
    table = desk.opened(grant)
    assert table.column("_batch").to_pylist() == [1, 2]


def test_the_first_moment_of_a_grant_is_in_it_and_the_last_is_not(desk: Desk) -> None:
    start = NOON - DAY + HOUR
    table = desk.opened(desk.grant(1, first=start, last=start + HOUR // 4))
    assert table.column("_arrived").to_pylist() == [start]


def test_a_file_without_a_granted_row_still_says_its_columns(desk: Desk) -> None:
    start = NOON - DAY + HOUR
    table = desk.opened(desk.grant(1, first=start + 1, last=start + 2))
    assert table.num_rows == 0
    assert table.schema.field("carrier").type == pa.string()


def test_rows_come_with_the_name_of_their_file(desk: Desk) -> None:
    grant = desk.grant()
    with desk.served() as address, desk.rows(grant, address) as rows:
        found = {name: batch.num_rows for name, batch in rows.by_file()}
        assert found == {"hour-0": 4, "hour-1": 4, "hour-2": 4}
        with pytest.raises(StateError, match="read already"):
            list(rows.batches())


def test_rows_come_as_pandas(desk: Desk) -> None:
    with desk.served() as address, desk.rows(desk.grant(0), address) as rows:
        assert rows.most == 4
        assert list(rows.to_pandas()["_batch"]) == [0, 1, 2, 3]


def test_files_of_different_columns_come_as_one_table(desk: Desk) -> None:
    key = PrivateKey.new().public.sealing
    old = desk.envelopes[0]
    header = replace(old.header, columns=("late",))
    desk.envelopes[0] = type(old).seal(header, old.key(CUSTODIAN), CUSTODIAN.public)
    table = desk.opened(desk.grant(0, 1))
    assert table.column("carrier").null_count == 4
    assert key not in repr(table).encode()


def test_a_batch_larger_than_a_frame_comes_whole(desk: Desk) -> None:
    desk.envelopes[0] = desk.seal("large", 0, batches=1, rows=60_000)
    table = desk.opened(desk.grant(0))
    assert table.num_rows == 60_000
    assert table.nbytes > 2 << 20
    assert set(table.column("carrier").to_pylist()) == {f"{CANARY} large 0"}


def test_a_grant_without_files_is_empty(desk: Desk) -> None:
    request = replace(desk.request(0), files=(), locks=())
    request = replace(request, signature=ENGINEER.sign(request.body()))
    grant = Grant.make(request, CUSTODIAN, now=NOON, expires=NOON + HOUR)
    assert desk.opened(grant).to_pydict() == {"carrier": [], "_batch": [], "_arrived": []}


# --- who is refused -------------------------------------------------------------------------


def refused(desk: Desk, grant: Grant, why: str, key: PrivateKey = ENGINEER) -> None:
    """Over the network: the sentence arrives, the log has it, and no file is read."""
    gets = desk.place.gets.total()
    with desk.served() as address, pytest.raises(PyramidionError, match=why):
        desk.rows(grant, address, key)
    assert desk.place.gets.total() == gets


def test_a_forged_grant_is_refused(desk: Desk) -> None:
    grant = desk.grant()
    forged = replace(grant, expires=grant.expires + DAY)
    forged = replace(forged, signature=OTHER.sign(forged.body()))
    with pytest.raises(FormatError, match="not signed by this store's custodian"):
        desk.broker.present(forged.to_json())
    ours = replace(forged, custodian=OTHER.public)
    ours = replace(ours, signature=OTHER.sign(ours.body()))
    refused(desk, ours, "not signed by this store's custodian")
    assert [said["grant"] for said in desk.said("vault.refused")] == [None, None]


def test_a_grant_for_other_files_is_refused(desk: Desk) -> None:
    one, two = desk.grant(0), desk.grant(1)
    swapped = replace(one, files=two.files)
    with pytest.raises(FormatError, match="not signed"):
        desk.broker.present(swapped.to_json())
    resigned = replace(swapped, signature=CUSTODIAN.sign(swapped.body()))
    with pytest.raises(FormatError, match="another purpose"):
        desk.opened(resigned)


def test_a_grant_for_another_store_is_refused(desk: Desk) -> None:
    grant = replace(desk.grant(), store="t")
    refused(desk, replace(grant, signature=CUSTODIAN.sign(grant.body())), "another store")


def test_a_grant_for_another_broker_is_refused(desk: Desk) -> None:
    refused(desk, desk.grant(broker=OTHER.public), "another broker")
    assert "another broker" in desk.said("vault.refused")[0]["why"]


def test_a_grant_ends_with_the_broker_s_process(desk: Desk) -> None:
    grant = desk.grant()
    desk.opened(grant)
    desk.broker = desk.started()
    refused(desk, grant, "started again")


def test_the_log_has_every_broker_by_its_fingerprint(desk: Desk) -> None:
    first, desk.broker = desk.broker, desk.started()
    told = [said["broker"] for said in desk.said("vault.broker")]
    assert told == [first.public.fingerprint, desk.broker.public.fingerprint]


def test_a_broker_that_stops_logs_the_end_of_its_grants(desk: Desk) -> None:
    grant = desk.grant()
    desk.broker.present(grant.to_json())
    desk.broker.close()
    assert desk.said("vault.expired") == [{"grant": grant.id, "why": "the broker was stopped"}]
    refused(desk, grant, "not held")


def test_a_grant_for_a_column_that_is_not_there_is_refused(desk: Desk) -> None:
    refused(desk, desk.grant(columns=["carrier", "price"]), "does not have|do not have")


def test_another_engineer_gets_nothing(desk: Desk) -> None:
    grant = desk.grant()
    with desk.served() as address, pytest.raises(SchemaError, match="for another key"):
        desk.rows(grant, address, OTHER)
    challenge = desk.broker.present(grant.to_json())
    with pytest.raises(FormatError, match="sealed to another key"):
        OTHER.open(challenge.sealed, challenge_context(grant))
    with pytest.raises(StateError, match="answers no challenge"):
        desk.broker.open(bytes(32))
    assert desk.place.gets.total() == 0
    assert desk.said("vault.refused")[-1]["grant"] is None


def test_an_answer_is_good_once(desk: Desk) -> None:
    grant = desk.grant()
    challenge = desk.broker.present(grant.to_json())
    token = ENGINEER.open(challenge.sealed, challenge_context(grant))
    desk.broker.open(token)
    with pytest.raises(StateError, match="answers no challenge"):
        desk.broker.open(token)


def test_an_answer_that_takes_too_long_is_refused(desk: Desk) -> None:
    grant = desk.grant()
    challenge = desk.broker.present(grant.to_json())
    desk.times.pass_(ANSWER_WITHIN)
    with pytest.raises(StateError, match="answers no challenge"):
        desk.broker.open(ENGINEER.open(challenge.sealed, challenge_context(grant)))


@pytest.mark.parametrize("end", ["expires", "is revoked"])
def test_an_answer_to_a_grant_that_is_over_by_then_is_refused(desk: Desk, end: str) -> None:
    grant = desk.grant(lasts=ANSWER_WITHIN // 2)
    challenge = desk.broker.present(grant.to_json())
    if end == "expires":
        desk.times.pass_(ANSWER_WITHIN // 2)
    else:
        desk.broker.revoke(revocation(grant))
    with pytest.raises(StateError, match=r"its time has passed|taken back"):
        desk.broker.open(ENGINEER.open(challenge.sealed, challenge_context(grant)))
    assert "vault.opened" not in desk.kinds()


def test_a_key_that_nothing_can_be_sealed_to_is_refused(desk: Desk) -> None:
    grant = replace(desk.grant(), key=PublicKey(bytes(32), bytes(32)))
    grant = replace(grant, signature=CUSTODIAN.sign(grant.body()))
    with pytest.raises(FormatError, match="none that can be sealed to"):
        desk.broker.present(grant.to_json())
    assert desk.broker.held() == []


def test_two_grants_of_one_name_are_not_mixed_up(desk: Desk) -> None:
    grant = desk.grant(0)
    desk.broker.present(grant.to_json())
    other = replace(grant, columns=("late",))
    other = replace(other, signature=CUSTODIAN.sign(other.body()))
    with pytest.raises(StateError, match="the name of another one"):
        desk.broker.present(other.to_json())


# --- time -----------------------------------------------------------------------------------


def test_a_grant_replayed_after_its_time_is_refused(desk: Desk) -> None:
    grant = desk.grant(lasts=HOUR)
    desk.opened(grant)
    desk.times.pass_(HOUR)
    refused(desk, grant, "its time has passed")
    assert desk.kinds()[-2:] == ["vault.expired", "vault.refused"]
    assert desk.said("vault.refused")[-1]["grant"] == grant.id


def test_a_grant_first_shown_after_its_time_is_refused(desk: Desk) -> None:
    grant = desk.grant(lasts=HOUR)
    desk.times.pass_(2 * HOUR)
    refused(desk, grant, "its time has passed")
    assert desk.kinds() == ["vault.refused"]


def test_a_grant_s_last_moment_is_before_its_end(desk: Desk) -> None:
    grant = desk.grant(lasts=HOUR)
    desk.times.pass_(HOUR - 1)
    assert desk.opened(grant).num_rows == 12


def test_an_end_is_logged_once_though_nobody_asks(desk: Desk) -> None:
    grant = desk.grant(lasts=HOUR)
    desk.broker.present(grant.to_json())
    desk.times.pass_(HOUR)
    for _ in range(3):
        desk.broker.expire()
    assert desk.said("vault.expired") == [{"grant": grant.id}]
    assert desk.broker.held() == []


def test_an_end_that_could_not_be_logged_ends_the_grant_and_is_logged_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.broker.present(desk.grant(lasts=HOUR).to_json())
    desk.times.pass_(HOUR)
    with monkeypatch.context() as patched:
        patched.setattr(desk.log, "append", full)
        with pytest.raises(StorageError):
            desk.broker.expire()
        assert not desk.broker._held
    desk.broker.expire()
    assert len(desk.said("vault.expired")) == 1


def test_a_clock_set_ahead_ends_a_grant(desk: Desk) -> None:
    grant = desk.grant(lasts=HOUR)
    desk.opened(grant)
    desk.times.wall += HOUR
    refused(desk, grant, "its time has passed")


def test_a_clock_set_back_does_not_revive_a_grant(desk: Desk) -> None:
    grant = desk.grant(lasts=HOUR)
    desk.opened(grant)
    desk.times.pass_(HOUR)
    desk.broker.expire()
    desk.times.wall -= DAY
    refused(desk, grant, "its time has passed")


def test_a_clock_set_back_does_not_stop_a_grant_s_time(desk: Desk) -> None:
    grant = desk.grant(lasts=HOUR)
    desk.opened(grant)
    desk.times.wall -= DAY
    desk.times.pass_(HOUR)
    refused(desk, grant, "its time has passed")


def test_a_clock_set_back_before_a_restart_does_not_revive_a_grant(desk: Desk) -> None:
    old = desk.grant(lasts=HOUR)
    desk.opened(old)
    desk.times.pass_(HOUR)
    desk.broker.expire()
    desk.times.wall -= DAY
    desk.times.passed = 0  # as when the machine starts again
    desk.broker = desk.started()
    grant = desk.grant(lasts=2 * HOUR)  # made by the same wrong clock
    refused(desk, grant, "its time has passed")


def test_a_clock_that_is_behind_the_custodian_s_does_not_make_a_grant_longer(desk: Desk) -> None:
    there = desk.times.wall + DAY
    grant = Grant.make(desk.request(), CUSTODIAN, now=there, expires=there + HOUR)
    desk.opened(grant)
    desk.times.pass_(HOUR)
    refused(desk, grant, "its time has passed")


def test_no_entry_is_older_than_the_one_before(desk: Desk) -> None:
    desk.opened(desk.grant())
    desk.times.wall -= DAY
    desk.opened(desk.grant(lasts=2 * DAY))
    times = [entry.at for entry in desk.log.entries() if entry.number]
    assert times == sorted(times)
    assert min(times) >= NOON


def test_time_that_the_log_has_seen_elsewhere_counts_too(desk: Desk) -> None:
    grant = desk.grant(lasts=HOUR)
    desk.broker.present(grant.to_json())
    desk.log.append("vault.sealed", NOON + DAY)
    desk.opened(desk.grant(lasts=3 * DAY))
    refused(desk, grant, "its time has passed")


def test_the_clocks_of_the_machine_are_used() -> None:
    first = wall()
    assert passing() <= passing()
    assert first <= HighWater()() <= wall() + SECOND
    assert HighWater(first + DAY)() >= first + DAY


# --- in the middle of a stream ----------------------------------------------------------------


def after_the_first_batch(desk: Desk, grant: Grant, act: object) -> tuple[int, str]:
    """Rows that came, and the error that ended them, when something happens on the way."""
    rows = 0

    def reading(name: str) -> None:
        if name == "hour-1.parquet":
            act()  # type: ignore[operator]

    desk.place.reading = reading
    with desk.served() as address, desk.rows(grant, address) as stream:
        try:
            for batch in stream.batches():
                rows += batch.num_rows
        except StateError as error:
            return rows, str(error)
    return rows, ""


def test_a_grant_that_expires_in_a_stream_ends_it_aloud(desk: Desk) -> None:
    grant = desk.grant(lasts=HOUR)
    rows, why = after_the_first_batch(desk, grant, lambda: desk.times.pass_(HOUR))
    assert rows == 4
    assert "its time has passed" in why
    assert desk.kinds()[-2:] == ["vault.expired", "vault.refused"]
    assert desk.place.gets["hour-2.parquet"] == 0


def test_a_grant_revoked_in_a_stream_ends_it_aloud(desk: Desk) -> None:
    grant = desk.grant()
    rows, why = after_the_first_batch(desk, grant, lambda: desk.broker.revoke(revocation(grant)))
    assert rows == 4
    assert "taken back" in why
    assert desk.kinds()[-2:] == ["vault.revoked", "vault.refused"]


def test_a_broker_that_stops_ends_its_streams_aloud(desk: Desk) -> None:
    rows, why = after_the_first_batch(desk, desk.grant(), desk.broker.close)
    assert rows == 4
    assert "not held" in why


def test_within_a_file_each_piece_asks_the_clock(desk: Desk) -> None:
    desk.envelopes[0] = desk.seal("large", 0, batches=1, rows=60_000)
    grant = desk.grant(0, lasts=HOUR)
    frames = desk.stream(grant)
    for _ in range(3):  # the opening, the file, a first piece
        next(frames)
    desk.times.pass_(HOUR)
    assert len(list(frames)) == 1  # why it ends


# --- revocations ------------------------------------------------------------------------------


def test_a_revoked_grant_is_refused(desk: Desk) -> None:
    grant = desk.grant()
    desk.opened(grant)
    assert desk.broker.revoke(revocation(grant)) == grant.id
    refused(desk, grant, "taken back")
    assert desk.said("vault.revoked") == [{"grant": grant.id, "held": 1}]


def test_a_grant_can_be_revoked_before_it_is_shown(desk: Desk) -> None:
    grant = desk.grant()
    desk.broker.revoke(revocation(grant))
    desk.broker.revoke(revocation(grant))
    refused(desk, grant, "taken back")
    assert len(desk.said("vault.revoked")) == 1


def test_a_grant_that_is_over_can_be_revoked_once_more(desk: Desk) -> None:
    grant = desk.grant(lasts=HOUR)
    desk.broker.present(grant.to_json())
    desk.times.pass_(HOUR)
    desk.broker.expire()
    desk.broker.revoke(revocation(grant))
    assert desk.kinds() == ["vault.granted", "vault.expired", "vault.revoked"]


def test_somebody_else_s_revocation_is_refused(desk: Desk) -> None:
    grant = desk.grant()
    with pytest.raises(FormatError, match="not signed by this store's custodian"):
        desk.broker.revoke(revocation(grant, OTHER))
    assert desk.opened(grant).num_rows == 12
    assert desk.kinds()[0] == "vault.refused"


def test_a_revocation_holds_though_it_cannot_be_logged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = desk.grant()
    desk.broker.present(grant.to_json())
    with monkeypatch.context() as patched:
        patched.setattr(desk.log, "append", full)
        with pytest.raises(StorageError):
            desk.broker.revoke(revocation(grant))
    refused(desk, grant, "taken back")


# --- the log ----------------------------------------------------------------------------------


def full(*_: object, **__: object) -> None:
    raise StorageError("the audit log is on a full disk; free some space, nothing was lost")


def test_what_cannot_be_logged_is_not_streamed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    grant = desk.grant()
    challenge = desk.broker.present(grant.to_json())
    token = ENGINEER.open(challenge.sealed, challenge_context(grant))
    monkeypatch.setattr(desk.log, "append", full)
    with pytest.raises(StorageError, match="full disk"):
        desk.broker.open(token)
    with desk.served() as address, pytest.raises(StorageError, match="full disk"):
        desk.rows(desk.grant(), address)
    assert desk.place.gets.total() == 0


def test_the_opening_is_logged_before_a_byte_is_made(desk: Desk) -> None:
    stream = desk.stream(desk.grant())
    assert desk.kinds() == ["vault.granted", "vault.opened"]
    assert desk.place.gets.total() == 0
    next(stream)


def test_nobody_fills_the_log_with_refusals(desk: Desk) -> None:
    for _ in range(REFUSALS + 50):
        with pytest.raises(FormatError):
            desk.broker.present(b"{}")
    assert len(desk.said("vault.refused")) == REFUSALS
    assert "next ones have no entries" in desk.said("vault.refused")[-1]["why"]
    assert desk.opened(desk.grant()).num_rows == 12
    desk.times.pass_(MINUTE)
    with pytest.raises(FormatError):
        desk.broker.present(b"{}")
    assert len(desk.said("vault.refused")) == REFUSALS + 1


def test_nobody_fills_the_log_with_a_grant_that_is_over(desk: Desk) -> None:
    grant = desk.grant()
    desk.broker.present(grant.to_json())
    desk.times.pass_(2 * HOUR)
    for _ in range(OF_ONE + 50):
        with pytest.raises(StateError, match="its time has passed"):
            desk.broker.present(grant.to_json())
    assert len(desk.said("vault.refused")) == OF_ONE
    for number in (1, 2):
        desk.times.pass_(MINUTE)
        for _ in range(5):
            with pytest.raises(StateError, match="its time has passed"):
                desk.broker.present(grant.to_json())
        assert len(desk.said("vault.refused")) == OF_ONE + number


def test_a_grant_of_thousands_of_files_is_logged(desk: Desk) -> None:
    (envelope,) = desk.envelopes[:1]
    desk.envelopes = [
        Envelope.seal(
            replace(envelope.header, name=f"20130107T050000Z-{number:016x}"),
            bytes(32),
            CUSTODIAN.public,
        )
        for number in range(2_000)
    ]
    hours = range(2_000)
    grant = desk.grant(*hours, first=NOON - DAY, last=NOON)
    desk.broker.present(grant.to_json())
    assert desk.said("vault.granted")[0]["files"] == 2_000


@pytest.mark.parametrize("name", ["", "../hour-0", "a/b", "hour-0\n", ".hidden", "x" * 101])
def test_a_grant_that_names_no_file_of_a_vault_is_refused(desk: Desk, name: str) -> None:
    header = replace(desk.envelopes[0].header, name=name)
    desk.envelopes = [Envelope.seal(header, bytes(32), CUSTODIAN.public)]
    with pytest.raises(SchemaError, match="as no vault names one"):
        desk.broker.present(desk.grant(0).to_json())
    assert not desk.broker.held()


def test_the_log_has_no_value_of_a_row(desk: Desk) -> None:
    desk.opened(desk.grant())
    assert CANARY not in "".join(desk.log.export())


# --- damage -----------------------------------------------------------------------------------


def damages() -> Iterator[tuple[str, object]]:
    yield "changed", lambda data, other: bytes([*data[:200], data[200] ^ 1]) + data[201:]
    yield "cut off", lambda data, other: data[:-9]
    yield "empty", lambda data, other: b""
    yield "another file", lambda data, other: other
    yield "gone", None


@pytest.mark.parametrize(("what", "damage"), list(damages()), ids=[d[0] for d in damages()])
def test_a_damaged_file_is_named_and_ends_the_stream(desk: Desk, what: str, damage: object) -> None:
    files = desk.place.files
    data = bytes(files.pop("hour-1.parquet"))
    if damage is not None:
        files["hour-1.parquet"] = damage(data, bytes(files["hour-2.parquet"]))  # type: ignore[operator]
    rows = []
    with desk.served() as address, desk.rows(desk.grant(), address) as stream:
        with pytest.raises((FormatError, StorageError), match="hour-1"):
            rows += list(stream.batches())
        with pytest.raises(StateError):
            stream.read_all()
    assert "hour-1" in desk.said("vault.refused")[0]["why"]


def test_a_place_that_fails_in_its_own_words_tells_none_of_them(desk: Desk) -> None:
    def reading(_: str) -> None:
        raise RuntimeError(CANARY)

    desk.place.reading = reading
    with pytest.raises(StorageError, match="could not read the vault") as told:
        desk.opened(desk.grant())
    assert CANARY not in str(told.value)
    assert CANARY not in json.dumps(desk.said("vault.refused"))


# --- a grant to erase ---------------------------------------------------------------------------


def order_for(desk: Desk, grant: Grant, person: str | int = "nobody") -> tuple[bytes, bytes]:
    """The answer to a challenge, and an order under it."""
    challenge = desk.broker.present(grant.to_json())
    token = ENGINEER.open(challenge.sealed, challenge_context(grant))
    return token, Order("carrier", person, {}).seal(grant, token)


def plain(desk: Desk, grant: Grant, person: str) -> list[tuple[bytes, bytes]]:
    """All that the engineer decrypts of a stream that erases somebody."""
    token, order = order_for(desk, grant, person)
    source = BytesIO(b"".join(desk.broker.erase(token, order)))
    return list(Opener(source, grant, token, ENGINEER).frames())


def test_erase_grant_is_refused_to_readers(desk: Desk) -> None:
    """Also to a program that does not ask what the grant is for."""
    with pytest.raises(SchemaError, match="gives no rows"):
        desk.stream(desk.grant(purpose="erase"))
    assert desk.place.gets.total() == 0
    assert desk.kinds() == ["vault.granted", "vault.refused"]


def test_read_grant_is_refused_to_erasers(desk: Desk) -> None:
    with pytest.raises(SchemaError, match="erases nobody"):
        desk.broker.erase(*order_for(desk, desk.grant()))
    assert desk.kinds() == ["vault.granted", "vault.refused"]


def test_erasing_gives_the_engineer_no_row(desk: Desk) -> None:
    frames = plain(desk, desk.grant(purpose="erase"), f"{CANARY} hour-1 2")
    assert [kind for kind, _ in frames] == [b"F", b"S", b"V"] * 3 + [b"E"]
    assert not any(CANARY.encode() in piece for _, piece in frames)
    sealed = Envelope.from_bytes(frames[2][1])
    with pytest.raises(FormatError, match="another key"):
        sealed.key(ENGINEER)


def test_custodian_opens_rewritten_files(desk: Desk) -> None:
    frames = plain(desk, desk.grant(purpose="erase"), f"{CANARY} hour-1 2")
    (_, data), (_, envelope) = frames[4], frames[5]
    sealed = Envelope.from_bytes(envelope)
    batches = decrypted(data, sealed.key(CUSTODIAN), sealed.header)
    table = pa.Table.from_batches(batches)
    assert table.column("carrier").to_pylist()[1:3] == [f"{CANARY} hour-1 1", None]
    assert table.column("_window").to_pylist() == [1, 1, 0, 1]
    old = desk.envelopes[1].header
    assert replace(sealed.header, name="", size=0, digest="") == replace(
        old, name="", size=0, digest=""
    )


def test_log_says_what_a_grant_did(desk: Desk) -> None:
    read, erase = desk.grant(0), desk.grant(1, purpose="erase")
    desk.opened(read)
    plain(desk, erase, "nobody")
    (opened,), (rewritten,) = desk.said("vault.opened"), desk.said("vault.rewritten")
    assert (opened["grant"], opened["purpose"]) == (read.id, "read")
    assert (rewritten["grant"], rewritten["purpose"]) == (erase.id, "erase")
    assert (rewritten["files"], rewritten["rows"]) == (1, 4)


def test_erase_grant_serves_one_person(desk: Desk) -> None:
    grant = desk.grant(purpose="erase")
    for _ in range(2):
        plain(desk, grant, "one")
    with pytest.raises(StateError, match="another person"):
        desk.broker.erase(*order_for(desk, grant, "other"))
    assert desk.kinds()[1:] == ["vault.rewritten"] * 2 + ["vault.refused"]
    assert "other" not in desk.said("vault.refused")[0]["why"].replace("another", "")


def test_order_under_another_answer_is_refused(desk: Desk) -> None:
    grant = desk.grant(purpose="erase")
    (_, order), (token, _) = order_for(desk, grant), order_for(desk, grant)
    with pytest.raises(FormatError, match="another purpose"):
        desk.broker.erase(token, order)


def test_grant_for_an_unknown_purpose_is_refused(desk: Desk) -> None:
    grant = replace(desk.grant(), purpose="copy")
    with pytest.raises(FormatError, match="newer version"):
        desk.broker.present(replace(grant, signature=CUSTODIAN.sign(grant.body())).to_json())


def test_purpose_of_a_grant_cannot_be_changed(desk: Desk) -> None:
    """Its files' keys are sealed for that purpose, whoever signs."""
    grant = replace(desk.grant(purpose="erase"), purpose="read")
    with pytest.raises(FormatError, match="another purpose"):
        desk.opened(replace(grant, signature=CUSTODIAN.sign(grant.body())))
