"""A snapshot as bytes: the same features elsewhere, from nobody but the service, until it ends."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pyramidion import Categorical, Label, Schema, Settings
from pyramidion.counts.deadline import Deadline
from pyramidion.counts.signing import sign, unsign
from pyramidion.counts.snapshot import Snapshot
from pyramidion.counts.snapshot_file import LIFE, etag_of, snapshot_bytes, snapshot_from
from pyramidion.errors import FormatError, PrivacyError, StateError
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.rows.observations import Door
from tests.counts.test_snapshot import arena_of, rows_of, snapshot_of, stream, ways

SIGNER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = SIGNER.public_key()
SECOND = 1_000_000
NOW = 1_000 * SECOND


def sent(snapshot: Snapshot, now: int = NOW, **given: Any) -> bytes:
    return snapshot_bytes(snapshot, stream="flights", now=now, signer=SIGNER, **given)


def taken(data: bytes, at: float = NOW / SECOND) -> Snapshot:
    return snapshot_from(data, stream="flights", verifier=KEY, clock=lambda: at)


def ending(at: int | None, **given: Any) -> Snapshot:
    door, birth = stream(**given)
    return Snapshot(door, arena_of(500, **given), birth.guarantee(1), expires=at)


# --- there and back -------------------------------------------------------------------------


@ways
def test_features_are_the_same_feature_by_feature(given: dict[str, Any]) -> None:
    snapshot, rows = snapshot_of(windows=2, **given), rows_of(60, seed=7)
    again = taken(sent(snapshot))
    assert again.names == snapshot.names
    assert again.parts == snapshot.parts
    assert again.tables == snapshot.tables
    assert again.rows == snapshot.rows
    assert again.guarantee == snapshot.guarantee
    np.testing.assert_array_equal(again.array(rows), snapshot.array(rows))
    for row in rows.to_pylist()[:5]:
        np.testing.assert_array_equal(again.featurize_one(row), snapshot.featurize_one(row))


def test_weights_and_values_of_every_type_survive() -> None:
    schema = Schema(
        features=[Categorical("a", domain=["x", b"\x00\xff", 3, 2.5]), Categorical("b")],
        label=Label("y", classes=["no", "yes"]),
        groups=[("a", "b")],
        weight="p",
    )
    chosen = Settings(epsilon=5.0, p_min=0.1, weight_unit=4, buckets=64, passthrough=9)
    door = Door(schema, chosen, b"secret")
    birth = TableDesign(chosen, door.encoder.shapes, 2, b"secret")
    arena = birth.arena()
    rows = pa.table(
        {"a": ["x", "z"] * 50, "b": ["u", "v"] * 50, "y": ["no", "yes"] * 50, "p": [0.2, 1.0] * 50}
    )
    arena.add(door.observations(rows))
    arena.seal()
    snapshot = Snapshot(door, arena, birth.guarantee(1))
    again = taken(sent(snapshot))
    some = [{"a": a, "b": "u"} for a in ("x", b"\x00\xff", 3, 2.5, "other", None)]
    for row in some:
        np.testing.assert_array_equal(again.featurize_one(row), snapshot.featurize_one(row))


def test_the_header_says_what_the_noise_is_and_what_is_promised() -> None:
    snapshot = snapshot_of()
    header, _ = unsign(sent(snapshot), "snapshot", "flights", KEY)
    tables = {table["name"]: table for table in header["tables"]}
    assert set(tables) == set(snapshot.tables)
    assert tables["shop"]["variance"] == snapshot._arena.layout.tables[1].variance > 0
    assert header["guarantee"] == snapshot.guarantee.to_dict()
    assert header["stream"] == "flights"


def test_nothing_else_goes_along() -> None:
    snapshot = snapshot_of()
    header, payload = unsign(sent(snapshot), "snapshot", "flights", KEY)
    assert set(header) == {
        "format", "stream", "made", "expires", "schema", "cuts", "settings", "tables",
        "guarantee", "etag", "size",
    }  # fmt: skip
    secret = snapshot._arena.layout.secret
    assert bytes(payload[: 2 + len(secret)]) == len(secret).to_bytes(2, "little") + secret
    raw = pa.Codec("zstd").decompress(
        payload[2 + len(secret) :], decompressed_size=header["size"], asbytes=True
    )
    assert raw == snapshot._arena.to_bytes()


def test_tables_with_exact_counts_taken_off_never_leave() -> None:
    door, _ = stream()
    raw = snapshot_of().without(door.observations(rows_of(10)))
    with pytest.raises(PrivacyError, match="as raw as those rows"):
        sent(raw)


# --- nobody but the service -------------------------------------------------------------------


def small() -> bytes:
    """Few bytes, so that each can be tried."""
    schema = Schema(features=[Categorical("a", domain=["x"])], label=Label("y", classes=[0, 1]))
    chosen = Settings(epsilon=1.0)
    door = Door(schema, chosen, b"s")
    birth = TableDesign(chosen, door.encoder.shapes, 2, b"s")
    arena = birth.arena()
    arena.seal()
    return sent(Snapshot(door, arena, birth.guarantee(1)))


def test_every_flipped_byte_is_refused() -> None:
    data = small()
    assert taken(data).names
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x41
        with pytest.raises(FormatError):
            taken(bytes(changed))


def test_every_truncation_is_refused() -> None:
    data = small()
    for length in range(len(data)):
        with pytest.raises(FormatError):
            taken(data[:length])


def test_another_key_and_another_kind_are_refused() -> None:
    with pytest.raises(FormatError, match="another key"):
        snapshot_from(
            small(),
            stream="flights",
            verifier=Ed25519PrivateKey.generate().public_key(),
            clock=lambda: 0.0,
        )
    with pytest.raises(FormatError, match="is a signed model and no snapshot"):
        taken(sign(SIGNER, "model", "flights", {}, b""))


def test_a_header_that_this_version_cannot_read_is_refused() -> None:
    header, payload = unsign(small(), "snapshot", "flights", KEY)
    for changed in (
        header | {"format": 3},
        {k: v for k, v in header.items() if k != "schema"},
        header | {"schema": {"label": 3}},
        header | {"size": header["size"] - 1},
        header | {"settings": header["settings"] | {"unheard_of": 1}},
        json.loads(json.dumps(header)) | {"cuts": None},
    ):
        with pytest.raises(FormatError, match=r"upgrade|damaged|count tables"):
            taken(sign(SIGNER, "snapshot", "flights", changed, payload))


# --- until it ends ------------------------------------------------------------------------------


def test_it_lives_a_day_or_until_a_window_retires() -> None:
    assert taken(sent(ending(None))).expires == NOW + LIFE
    assert taken(sent(ending(NOW + 2 * LIFE))).expires == NOW + LIFE
    assert taken(sent(ending(NOW + 5 * SECOND))).expires == NOW + 5 * SECOND
    assert taken(sent(ending(None), life=SECOND)).expires == NOW + SECOND


def test_it_featurizes_until_its_expiry_and_no_longer() -> None:
    clock = [NOW / SECOND]
    snapshot = snapshot_from(
        sent(ending(NOW + 9 * SECOND)), stream="flights", verifier=KEY, clock=lambda: clock[0]
    )
    row = rows_of(1).to_pylist()[0]
    clock[0] += 8.9
    snapshot.featurize_one(row)
    clock[0] += 0.1
    assert snapshot.expired
    for ask in (
        lambda: snapshot.featurize_one(row),
        lambda: snapshot.featurize([row]),
        lambda: snapshot.array([row]),
        lambda: snapshot.featurize_keys(np.zeros((5, 1), dtype=np.uint64)),
        lambda: snapshot.rows,
        lambda: sent(snapshot),
    ):
        with pytest.raises(StateError, match="has expired: its time is over"):
            ask()
    assert "_arena" not in vars(snapshot)
    assert "estimates" not in vars(snapshot)


def test_a_clock_set_back_does_not_bring_it_back() -> None:
    clock = [NOW / SECOND]
    snapshot = snapshot_from(
        sent(ending(NOW + 9 * SECOND)), stream="flights", verifier=KEY, clock=lambda: clock[0]
    )
    row = rows_of(1).to_pylist()[0]
    clock[0] += 9
    with pytest.raises(StateError, match="expired"):
        snapshot.featurize_one(row)
    clock[0] -= 100
    with pytest.raises(StateError, match="expired"):
        snapshot.featurize_one(row)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many microseconds have passed, by the clock that nobody sets."""
    made = [0]

    def slow(at: int, clock: Any, *, latest: int) -> Deadline:
        return Deadline(at, clock, latest=latest, passing=lambda: made[0])

    monkeypatch.setattr("pyramidion.counts.snapshot_file.Deadline", slow)
    return made


def test_it_ends_though_the_clock_stands_still(passed: list[int]) -> None:
    snapshot = taken(sent(ending(NOW + 9 * SECOND)))
    row = rows_of(1).to_pylist()[0]
    passed[0] = 8 * SECOND
    snapshot.featurize_one(row)
    passed[0] = 9 * SECOND
    with pytest.raises(StateError, match="expired"):
        snapshot.featurize_one(row)


def test_time_passes_for_it_where_the_clock_was_set_back_before_it_came(passed: list[int]) -> None:
    snapshot = taken(sent(ending(None), life=9 * SECOND), at=0.0)
    row = rows_of(1).to_pylist()[0]
    passed[0] = 8 * SECOND
    snapshot.featurize_one(row)
    passed[0] = 9 * SECOND
    with pytest.raises(StateError, match="expired"):
        snapshot.featurize_one(row)


def test_one_that_is_over_is_not_taken_and_not_sent() -> None:
    data = sent(ending(NOW + 5 * SECOND))
    with pytest.raises(StateError, match=r"expired.*fetch a new one"):
        taken(data, NOW / SECOND + 5)
    with pytest.raises(StateError, match="past its retention"):
        sent(ending(NOW))


def test_the_snapshot_of_a_featurizer_never_ends() -> None:
    assert snapshot_of().expires is None
    assert not snapshot_of().expired


# --- etag ---------------------------------------------------------------------------------------


def tag(data: bytes) -> str:
    found = unsign(data, "snapshot", "flights", KEY)[0]["etag"]
    assert isinstance(found, str)
    return found


def test_the_same_tables_have_the_same_etag_whenever_they_are_asked_for() -> None:
    snapshot = snapshot_of()
    assert tag(sent(snapshot)) == tag(sent(snapshot, NOW + LIFE)) == tag(sent(snapshot, life=1))
    assert tag(sent(snapshot)) == etag_of(snapshot, stream="flights")
    assert tag(sent(ending(9 * NOW))) == etag_of(ending(9 * NOW), stream="flights")


def test_other_tables_have_another_etag() -> None:
    others = [snapshot_of(), snapshot_of(1_999), snapshot_of(windows=2), snapshot_of(passthrough=0)]
    found = {etag_of(other, stream="flights") for other in others}
    found |= {etag_of(snapshot_of(), stream="other"), etag_of(ending(NOW + 1), stream="flights")}
    assert len(found) == 6


def test_without_privacy_the_header_says_so() -> None:
    header, _ = unsign(sent(snapshot_of(epsilon=math.inf)), "snapshot", "flights", KEY)
    assert header["guarantee"]["level"] == "P1"
