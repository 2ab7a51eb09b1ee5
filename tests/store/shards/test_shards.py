"""Several stores that take rows of one stream: what they sum to, and what that costs."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sklearn.linear_model import LogisticRegression

from pyramidion import (
    Categorical,
    Continuous,
    FormatError,
    KeyHolderError,
    Label,
    Pyramid,
    Schema,
    SchemaError,
    Shard,
    StateError,
)
from pyramidion.storage import ciphers, key_holders
from pyramidion.storage.blocks import Generation
from pyramidion.storage.key_holders import FileHolder
from pyramidion.store import shard
from pyramidion.web.service.metrics import _of_status
from tests.dying import died
from tests.redis_servers import RedisServer
from tests.store import inspect
from tests.store.inspect import sealed
from tests.store.shards.streams import DAYS, NAMES, Stream, cells, exact, noise_in, rows, served
from tests.store.stores import SCHEMA, Clock, same, tiny, unpin

# --- the secret opens nothing ----------------------------------------------------------------


def sealing(monkeypatch: pytest.MonkeyPatch) -> tuple[set[bytes], set[bytes]]:
    """The keys that the store seals with from now on, and all random bytes that it draws."""
    used, drawn, draw = set[bytes](), set[bytes](), os.urandom

    def cipher(key: bytes) -> AESGCM:
        used.add(bytes(key))
        return AESGCM(key)

    def random(size: int) -> bytes:
        drawn.add(made := draw(size))
        return made

    monkeypatch.setattr(ciphers, "AESGCM", cipher)
    monkeypatch.setattr(key_holders, "AESGCM", cipher)
    monkeypatch.setattr(os, "urandom", random)
    return used, drawn


def test_whatever_is_sealed_has_a_key_that_was_drawn_for_it(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, drawn = sealing(monkeypatch)
    store = stream.begin("one")["one"]
    stream.observe("one", 40)
    stream.advance(10)
    secret = inspect.secret(store)
    assert store.snapshot().tables
    assert used
    assert used <= drawn - {secret}


def test_where_shards_meet_does_not_open_with_the_secret(stream: Stream) -> None:
    store = stream.begin("one")["one"]
    told = json.loads(inspect.catalogue(store).about("shard"))
    secret = inspect.secret(store)
    for key in (secret, shard._former_key(secret)):
        with pytest.raises(FormatError, match="under another key"):
            Shard._opened(told["sealed"], key)


def test_a_record_under_the_secret_is_sealed_anew(stream: Stream) -> None:
    """As in a store of format 7."""
    store = stream.begin("one")["one"]
    catalogue, secret = inspect.catalogue(store), inspect.secret(store)
    about = json.dumps(asdict(stream.shard("one").anywhere)).encode()
    former = b"".join(ciphers.sealed(shard._former_key(secret), [about], b"shard")).hex()
    catalogue.note(shard=former)
    stream.close("one")
    unpin(stream.path("one"), stream.folder / "keys" / "one.key")
    again = stream.reopen("one")
    assert inspect.parts(again).shards is not None
    assert inspect.parts(again).shards.shard == stream.shard("one").anywhere
    files = [path for path in stream.path("one").rglob("*") if path.is_file()]
    assert not any(former.encode() in path.read_bytes() for path in files)


# --- what is summed --------------------------------------------------------------------------


def test_without_noise_every_shard_serves_the_exact_counts_of_all(stream: Stream) -> None:
    stream.begin(epsilon=math.inf)
    for seed, name in enumerate(NAMES):
        stream.observe(name, 40 + seed, seed)
    stream.advance(10)
    for node in stream.nodes.values():
        found = served(node)
        assert found.rows == 40 + 41 + 42 == node.snapshot().rows
        assert same(cells(found), exact(node, found, stream.all_sent()))


def test_the_sum_is_that_of_the_sealed_tables_noise_and_all(stream: Stream) -> None:
    nodes = stream.begin()
    for seed, name in enumerate(NAMES):
        stream.observe(name, 40, seed)
    stream.advance(10)
    parts = [sealed(node, 1) for node in nodes.values()]
    for node in nodes.values():
        found = served(node)
        for table in range(len(found.layout.tables)):
            added = sum(part.cells(table).astype(np.int64) for part in parts)
            assert (found.cells(table) == added).all()


def test_the_noise_variance_of_the_sum_is_that_of_all_shards(stream: Stream) -> None:
    nodes = stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    one, three = sealed(nodes["one"], 1).layout.tables, served(nodes["one"]).layout.tables
    for alone, summed in zip(one, three, strict=True):
        assert summed.variance == pytest.approx(3 * alone.variance)
        assert summed.windows == 3
    assert nodes["one"].snapshot().guarantee.windows == 3


def test_the_guarantee_is_that_of_one_shard(stream: Stream) -> None:
    nodes = stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    promise = nodes["two"].snapshot().guarantee
    assert (promise.epsilon, promise.delta) == (1.0, 1e-9)
    assert [node.ledger.report().epsilon for node in nodes.values()] == [1.0] * 3


def test_features_of_all_shards_are_equal(stream: Stream) -> None:
    nodes = stream.begin()
    for seed, name in enumerate(NAMES):
        stream.observe(name, 60, seed)
    stream.advance(10)
    some = rows(30, seed=9)
    one, two, three = (node.featurize(some) for node in nodes.values())
    assert one.equals(two)
    assert two.equals(three)


def test_rows_are_charged_in_the_ledger_of_their_own_shard_alone(stream: Stream) -> None:
    nodes = stream.begin()
    stream.observe("one", 20)
    stream.advance(10)
    assert [len(node.ledger.report().windows) for node in nodes.values()] == [1, 0, 0]
    assert nodes["two"].snapshot().rows == 20  # summed, and paid for once


def test_the_noise_of_shards_is_independent(stream: Stream) -> None:
    nodes = stream.begin(buckets=1024)
    for seed, name in enumerate(NAMES):
        stream.observe(name, 10, seed)
    stream.advance(10)
    drawn = [
        noise_in(node, sealed(node, 1), stream.sent[name])["a"] for name, node in nodes.items()
    ]
    for i, one in enumerate(drawn):
        for other in drawn[:i]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(one.size)
    assert len({inspect.secret(node) for node in nodes.values()}) == 1


def test_a_window_is_given_once_nothing_opens_its_populating_states(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = stream.begin()
    stream.observe("one", 20)
    stream.close("two", "three")
    before = set(stream.tables.names())
    with monkeypatch.context() as broken:
        broken.setattr(FileHolder, "drop", _refused)
        with pytest.raises(KeyHolderError):
            stream.advance(10)
        assert inspect.keys(nodes["one"]).unfinished
        with pytest.raises(KeyHolderError):
            nodes["one"].advance()
        inspect.parts(nodes["one"]).shards._giving.give(int(stream.clock.now * 1e6))
        assert set(stream.tables.names()) == before
    nodes["one"].advance()
    assert len(stream.shard("one").roster.entries().windows) == 1


def _refused(*_: object) -> None:
    raise KeyHolderError("the holder is away")


# --- when a window joins ---------------------------------------------------------------------


def test_a_window_waits_until_every_shard_has_passed_it(stream: Stream) -> None:
    nodes = stream.begin()
    stream.observe("one", 20)
    stream.observe("two", 30)
    stream.close("two")
    stream.advance(10)
    with pytest.raises(StateError, match="no window"):
        nodes["one"].snapshot()
    assert nodes["one"].status().shard.waiting == 1
    stream.reopen("two")
    stream.advance()
    assert nodes["one"].snapshot().rows == 50


def test_a_shard_to_which_nothing_came_keeps_nobody_waiting(stream: Stream) -> None:
    nodes = stream.begin()
    stream.observe("one", 20)
    stream.advance(10)
    assert nodes["three"].snapshot().rows == 20


def test_a_window_that_waited_long_enough_joins_and_the_rest_joins_late(stream: Stream) -> None:
    nodes = stream.begin()
    stream.observe("one", 20)
    stream.observe("two", 30)
    stream.close("two")
    stream.advance(10)
    stream.advance(1.9)
    with pytest.raises(StateError, match="no window"):
        nodes["one"].snapshot()
    stream.advance(0.2)
    assert nodes["one"].snapshot().rows == 20
    stream.reopen("two")
    stream.advance()
    assert [node.snapshot().rows for node in nodes.values()] == [50] * 3


def test_a_table_store_that_is_away_is_told_and_keeps_no_row_out(stream: Stream) -> None:
    nodes = stream.begin()
    stream.observe("one", 20)
    shared, away = stream.folder / "shared", stream.folder / "away"
    shared.rename(away)
    shared.write_text("not a directory")
    stream.advance(10)
    stream.observe("one", 20)
    assert nodes["one"].status().shard.problem
    shared.unlink()
    away.rename(shared)
    stream.advance()
    assert nodes["one"].status().shard.problem == ""
    assert nodes["two"].snapshot().rows == 20


def test_what_a_table_store_lost_is_given_again(stream: Stream) -> None:
    nodes = stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    for name, chunks in stream.tables.names().items():
        stream.tables.delete(name, chunks)
    for name in NAMES:
        stream.reopen(name)
    stream.advance()
    assert [node.snapshot().rows for node in nodes.values()] == [60] * 3


# --- what the table store sees ----------------------------------------------------------------


def test_no_name_of_stream_or_shard_is_in_the_table_store(stream: Stream) -> None:
    stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    names = stream.tables.names()
    assert len(names) == 6
    assert len({name.partition(".")[0] for name in names}) == 3
    written = [path for path in (stream.folder / "shared").rglob("*") if path.is_file()]
    for word in ("clicks", *NAMES):
        assert not any(word in name for name in names)
        assert not any(word.encode() in path.read_bytes() for path in written)


def test_tables_under_the_names_of_before_are_read_and_given_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(Shard, "owner", lambda shard, _: f"{shard.stream}.{shard.name}")
        nodes = stream.begin()
        for name in NAMES:
            stream.observe(name, 20)
        stream.advance(10)
        left = Generation.new("clicks.two").name  # as a crash leaves it
        stream.tables.put(left, [b"x"], 1, None)
    former = set(stream.tables.names())
    assert all(name.startswith("clicks.") for name in former)
    stream.reopen("one").advance()  # the others are of before, and their tables are read
    assert nodes["one"].snapshot().rows == 60
    assert len(former & set(stream.tables.names())) == len(former) - 2
    for name in NAMES:
        stream.reopen(name)
    stream.advance()
    assert not former & set(stream.tables.names())
    assert len(stream.tables.names()) == 6
    assert [node.snapshot().rows for node in stream.nodes.values()] == [60] * 3


# --- forgetting ------------------------------------------------------------------------------


def test_a_window_past_its_retention_leaves_every_sum_and_its_key_is_gone(stream: Stream) -> None:
    nodes = stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    held = nodes["one"].snapshot()
    stream.advance(39.9)
    assert held.rows == 60
    roster = stream.shard("one").roster
    assert len(roster.entries().windows) == 3
    stream.advance(0.2, rounds=1)
    assert held.expired
    assert roster.entries().windows == ()
    for node in nodes.values():
        with pytest.raises(StateError, match="no window"):
            node.snapshot()
    names = stream.tables.names()
    assert len(names) == 3  # manifests alone


def test_nobody_sums_a_window_that_is_about_to_be_erased(stream: Stream) -> None:
    nodes = stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    seen = []
    for node in nodes.values():
        inspect.told(node, lambda _, node=node: seen.append(inspect.served(node)))
    stream.advance(40, rounds=1)
    assert seen
    assert not any(seen)
    assert stream.shard("one").roster.entries().windows == ()


def test_a_lost_shard_keeps_nothing_beyond_the_retention(stream: Stream) -> None:
    nodes = stream.begin()
    stream.observe("two", 20)
    stream.advance(10)
    stream.close("two", "three")
    assert nodes["one"].snapshot().rows == 20
    stream.advance(40)
    with pytest.raises(StateError, match="no window"):
        nodes["one"].snapshot()
    assert stream.shard("one").roster.entries().windows == ()


def test_one_fast_clock_forgets_nothing_for_the_others(stream: Stream) -> None:
    nodes = stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    assert [node.snapshot().rows for node in nodes.values()] == [60] * 3
    roster = stream.shard("one").roster
    before = {(window.shard, window.file) for window in roster.entries().windows}
    right = stream.clock
    nodes["one"].close()  # and opened by a clock that is 400 days ahead
    ahead = Clock()
    ahead.now = right.now + 400 * DAYS
    given = stream.given("one") | {"clock": ahead}
    fast = nodes["one"] = Pyramid.open(stream.path("one"), **given)
    for _ in range(6):
        for clock in (right, ahead):
            clock.pass_(DAYS / 24)
        for node in nodes.values():
            node.advance()
        kept = {(window.shard, window.file) for window in roster.entries().windows}
        assert kept == {key for key in before if key[0] != "one"}
        assert [nodes[name].snapshot().rows for name in ("two", "three")] == [40] * 2
    told = fast.status().shard
    assert told is not None
    assert "past their time by this shard's clock alone" in told.problem


def test_window_that_is_dated_anew_is_given_anew(stream: Stream) -> None:
    nodes = stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    roster, one = stream.shard("one").roster, nodes["one"]
    (before,) = roster.entries().of("one").values()
    inspect.change_catalogue(one, "UPDATE table_sets SET start = start + 1 WHERE level = 0")
    stream.advance(1)
    (after,) = roster.entries().of("one").values()
    assert (after.file, after.until) == (before.file, before.until + 1)
    assert [node.snapshot().rows for node in nodes.values()] == [60] * 3


def test_models_go_with_the_windows_of_other_shards(stream: Stream) -> None:
    nodes = stream.begin(hot_window="50d")
    stream.observe("two", 40)
    stream.advance(10)
    stream.observe("one", 40)
    node = nodes["one"]
    node.register("m", LogisticRegression())
    fitted = node.models["m"].fitted
    assert fitted is not None
    stream.advance(10)
    stream.close("two")
    stream.advance(30)
    assert node.snapshot().rows == 40  # its own
    assert node.models["m"].fitted is not fitted


def test_a_withdrawn_group_is_gone_from_what_the_shard_serves_and_gives(stream: Stream) -> None:
    nodes = stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    before = {w.file for w in stream.shard("one").roster.entries().windows if w.shard == "one"}
    nodes["one"].groups.withdraw("a,b", why="asked for")
    assert "a,b" not in nodes["one"].snapshot().tables
    assert nodes["one"].snapshot().rows == 60
    after = {w.file for w in stream.shard("one").roster.entries().windows if w.shard == "one"}
    assert before.isdisjoint(after)
    assert "a,b" in nodes["two"].snapshot().tables
    for name in ("two", "three"):
        nodes[name].groups.withdraw("a,b", why="asked for")
    stream.advance()
    assert [node.snapshot().rows for node in nodes.values()] == [60] * 3
    assert not any("a,b" in node.snapshot().tables for node in nodes.values())


# --- training --------------------------------------------------------------------------------


def test_own_hot_rows_are_taken_off_the_sum_and_no_others(stream: Stream) -> None:
    nodes = stream.begin(epsilon=math.inf, hot_window="20d", columns=["count"])
    for seed, name in enumerate(NAMES):
        stream.observe(name, 40 if name == "one" else 200, seed)
    stream.advance(10)
    node = nodes["one"]
    others = stream.sent["two"] + stream.sent["three"]
    X, _ = node.training_set()
    counted = exact(node, served(node), others)
    assert counted[""].sum() == 400
    reduced = inspect.parts(node).serving.reduced()
    assert reduced._all is not None
    assert same(cells(reduced._all._arena), counted)
    assert len(X) == 40


def test_own_hot_rows_of_a_window_that_waits_are_not_taken_off(stream: Stream) -> None:
    nodes = stream.begin(epsilon=math.inf, hot_window="30d", shard_wait="5d")
    for name in NAMES:
        stream.observe(name, 200)
    stream.advance(10)
    stream.observe("one", 30, 7)
    stream.close("two")
    stream.advance(10)
    node = nodes["one"]
    assert node.snapshot().rows == 600
    assert node.status().shard.waiting == 1
    node.training_set()
    assert inspect.parts(node).serving.reduced()._counted.hidden == 200


# --- who takes part ----------------------------------------------------------------------------


def test_a_stream_is_begun_once(stream: Stream) -> None:
    stream.begin("one")
    with pytest.raises(StateError, match="has shards already; join it"):
        Pyramid.create(
            stream.path("two"),
            SCHEMA,
            stream.settings(),
            shard=stream.shard("two"),
            **stream.given("two"),
        )
    stream.join("two")
    assert stream.nodes["two"].settings == stream.nodes["one"].settings
    assert stream.nodes["two"].schema == stream.nodes["one"].schema


def test_more_shards_than_were_planned_for_are_refused(stream: Stream) -> None:
    stream.begin("one", "two", shards=2)
    with pytest.raises(StateError, match="has 2 shards and setting 'shards' is 2"):
        stream.join("three")
    assert set(stream.shard("one").roster.entries().members) == {"one", "two"}


def test_a_name_is_given_once(stream: Stream) -> None:
    stream.begin("one")
    with pytest.raises(StateError, match="has a shard 'one' already"):
        Pyramid.join(stream.path("other"), stream.shard("one"), **stream.given("other"))


def test_a_shard_that_is_lost_is_removed_and_what_it_sealed_stays(stream: Stream) -> None:
    nodes = stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    stream.observe("two", 500)  # populating, and lost with it
    stream.close("two")
    stream.observe("one", 20)
    nodes["one"].shards.remove("two", why="its disk is gone")
    stream.advance(10)
    assert nodes["three"].snapshot().rows == 80
    assert nodes["three"].status().shard.left == {"two": 1}
    stream.join("four")
    stream.observe("four", 5)
    stream.advance(10)
    assert nodes["three"].snapshot().rows == 85


def test_a_removed_shard_takes_no_rows_and_gives_what_it_has(stream: Stream) -> None:
    nodes = stream.begin()
    stream.observe("two", 20)
    nodes["one"].shards.remove("two", why="no longer needed")
    nodes["two"].advance()
    with pytest.raises(StateError, match="was removed from stream"):
        nodes["two"].observe(rows(3))
    stream.advance(10)
    assert nodes["one"].snapshot().rows == 20


def test_a_removed_shard_leaves_the_roster_with_its_last_window(stream: Stream) -> None:
    stream.begin()
    stream.observe("two", 20)
    stream.advance(10)
    stream.close("two")
    stream.nodes["one"].shards.remove("two", why="lost")
    roster = stream.shard("one").roster
    stream.advance(39)
    assert set(roster.entries().members) == set(NAMES)
    stream.advance(21)
    assert set(roster.entries().members) == {"one", "three"}
    assert len(stream.tables.names()) == 2


def test_a_stream_that_broke_off_at_its_beginning_can_be_begun_again(stream: Stream) -> None:
    stream.shard("one").roster.found("one")  # and there its process was killed
    with pytest.raises(StateError, match="has told its schema yet"):
        stream.join("two")
    stream.begin("one", "two")
    assert set(stream.shard("one").roster.entries().members) == {"one", "two"}


@pytest.mark.parametrize("point", ["create.registered", "create.keyed", "create.filled"])
def test_a_join_that_was_killed_can_be_done_again(stream: Stream, point: str) -> None:
    stream.begin("one")
    assert died(lambda: Stream(stream.folder).join("two"), at=point)
    roster = stream.shard("one").roster
    assert set(roster.entries().members) == {"one", "two"}
    with pytest.raises(StateError, match="make it again at the same path, or remove it"):
        Pyramid.join(stream.path("three"), stream.shard("two"), **stream.given("three"))
    stream.join("two")
    assert set(roster.entries().members) == {"one", "two"}
    assert {path.name for path in stream.folder.glob(".*")} == set()
    stream.advance()
    assert not [name for name in roster._keys() if name.startswith("joining.")]


def test_a_join_under_a_name_that_is_taken_takes_nobody_away(stream: Stream) -> None:
    stream.begin("one", "two")
    with pytest.raises(StateError, match="has a shard 'two' already"):
        Pyramid.join(stream.path("three"), stream.shard("two"), **stream.given("three"))
    assert set(stream.shard("one").roster.entries().members) == {"one", "two"}
    assert not stream.path("three").exists()


def test_a_restored_shard_goes_on_under_its_name(stream: Stream) -> None:
    nodes = stream.begin()
    for name in NAMES:
        stream.observe(name, 20)
    stream.advance(10)
    stream.observe("two", 30)
    nodes["two"].admin.backup(stream.folder / "backup")
    stream.close("two")
    copy = stream.folder / "copy"
    restored = Pyramid.restore(stream.folder / "backup", copy, **stream.given("two"))
    stream.nodes["two"] = restored
    stream.advance(10)
    assert [node.snapshot().rows for node in nodes.values()] == [90] * 3


def test_a_holder_that_is_away_keeps_no_row_out_until_a_key_is_to_be_destroyed(
    stream: Stream,
) -> None:
    nodes = stream.begin()
    stream.observe("one", 20)
    stream.advance(10)
    keys, away = stream.folder / "keys" / "stream.key", stream.folder / "away"
    keys.rename(away)
    stream.observe("one", 20)
    stream.advance(10)
    assert "has no stream" in nodes["one"].status().shard.problem
    assert nodes["one"].snapshot().rows == 20
    with pytest.raises(KeyHolderError, match="has no stream"):
        stream.advance(30)
    away.rename(keys)
    stream.advance()
    assert nodes["one"].snapshot().rows == 20  # the second window


def test_a_shard_that_could_not_be_made_is_not_waited_for(stream: Stream) -> None:
    stream.begin("one")
    stream.path("two").mkdir()
    (stream.path("two") / "something").touch()
    with pytest.raises(StateError, match="exists already"):
        stream.join("two")
    assert set(stream.shard("one").roster.entries().members) == {"one"}


# --- what is refused -----------------------------------------------------------------------------


def test_shards_without_a_stream_are_refused(stream: Stream) -> None:
    with pytest.raises(SchemaError, match="would be no shard of a stream"):
        Pyramid.create(stream.path("one"), SCHEMA, stream.settings(), **stream.given("one"))


def test_a_stream_of_one_shard_is_refused(stream: Stream) -> None:
    with pytest.raises(SchemaError, match="no other store could join"):
        Pyramid.create(
            stream.path("one"), SCHEMA, tiny(), shard=stream.shard("one"), **stream.given("one")
        )


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (
            Schema(
                label=Label("y", classes=[0, 1]),
                features=[Continuous("x", bins=4, bounds=(0, 1))],
            ),
            "'x' has private bins.*give its edges",
        ),
        (
            Schema(
                label=Label("y", classes=[0, 1]),
                features=[Categorical("x")],
                unit="who",
            ),
            "protects people.*in one store",
        ),
    ],
)
def test_what_shards_would_count_differently_is_refused(
    stream: Stream, schema: Schema, sentence: str
) -> None:
    with pytest.raises(SchemaError, match=sentence):
        stream.begin("one", schema=schema)
    assert not (stream.folder / "keys").exists()


@pytest.mark.parametrize("place", ["one/stream.key", "shared/stream.key"])
def test_keys_beside_what_they_open_are_refused(stream: Stream, place: str) -> None:
    shard = replace(stream.shard("one"), keys=f"file:{stream.folder / place}")
    with pytest.raises(SchemaError, match="may not lie beside what they open"):
        Pyramid.create(
            stream.path("one"), SCHEMA, stream.settings(), shard=shard, **stream.given("one")
        )


@pytest.mark.parametrize("name", ["", "Node", "a.b", "a/b", "-a", "a" * 41])
def test_names_that_could_be_mistaken_are_refused(stream: Stream, name: str) -> None:
    with pytest.raises(SchemaError, match="small letters, digits and hyphens"):
        stream.shard(name)


# --- other table stores --------------------------------------------------------------------------


def test_shards_meet_in_redis_and_go_on_when_it_loses_all(
    stream: Stream, redis_server: RedisServer
) -> None:
    stream.url = redis_server.url
    nodes = stream.begin(epsilon=math.inf)
    for seed, name in enumerate(NAMES):
        stream.observe(name, 40, seed)
    stream.advance(10)
    assert same(
        cells(served(nodes["two"])), exact(nodes["two"], served(nodes["two"]), stream.all_sent())
    )
    stream.observe("one", 20, 9)
    redis_server.kill()
    stream.advance(10)
    assert nodes["one"].status().shard.problem
    assert nodes["one"].snapshot().rows == 120
    redis_server.start()
    stream.advance()
    assert [node.snapshot().rows for node in nodes.values()] == [140] * 3
    assert stream.reopen("three").snapshot().rows == 140  # all of it was given again


@pytest.fixture
def full(stream: Stream, redis_server: RedisServer) -> RedisServer:
    """A Redis that has 40 rows of each of three shards."""
    redis_server.asked("flushall")
    stream.url = redis_server.url
    stream.begin(epsilon=math.inf)
    for seed, name in enumerate(NAMES):
        stream.observe(name, 40, seed)
    stream.advance(10)
    assert [node.snapshot().rows for node in stream.nodes.values()] == [120] * 3
    return redis_server


def minute(stream: Stream) -> None:
    stream.advance(61 / 86_400)


def chunk(stream: Stream, name: str) -> str:
    """The key of a chunk of a window that a shard gave."""
    (window,) = stream.shard(name).roster.entries().of(name).values()
    return f"pyramidion:{window.held.name}:1"


def told(stream: Stream, name: str) -> str:
    """The key of what a shard has told."""
    manifest = stream.shard(name).roster.member(name).manifest
    assert manifest is not None
    return f"pyramidion:{manifest.name}:0"


def is_whole(stream: Stream) -> bool:
    """Whether every shard, opened anew, has all rows in its sum, and nothing to say."""
    found = [stream.reopen(name).status().shard for name in NAMES]
    return [(each.rows, each.missing, each.problem) for each in found] == [(120, {}, "")] * 3


def test_what_redis_lost_while_nobody_looked_is_given_again_within_a_minute(
    stream: Stream, full: RedisServer
) -> None:
    with full.away():
        pass
    assert full.asked("dbsize").strip() == b"0"
    snapshots = [node.snapshot() for node in stream.nodes.values()]
    minute(stream)
    assert not any(held.expired for held in snapshots)  # the windows stayed in every sum
    stream.close("one", "two")  # who gave is gone: what is there suffices
    assert stream.reopen("three").snapshot().rows == 120
    assert is_whole(stream)


def test_one_lost_chunk_is_given_again_by_a_shard_that_runs(
    stream: Stream, full: RedisServer
) -> None:
    full.asked("del", chunk(stream, "one"))
    minute(stream)
    assert full.asked("exists", chunk(stream, "one")).strip() == b"1"
    tables = inspect.parts(stream.nodes["two"]).shards._tables
    assert len(tables.names()) == 6  # and nothing is left over
    stream.close("one")
    assert stream.reopen("three").snapshot().rows == 120


def test_one_lost_chunk_is_given_again_by_a_shard_that_is_opened(
    stream: Stream, full: RedisServer
) -> None:
    full.asked("del", chunk(stream, "one"))
    stream.close("one")
    stream.reopen("one")
    assert full.asked("exists", chunk(stream, "one")).strip() == b"1"
    assert is_whole(stream)


def test_a_window_that_cannot_be_read_is_told_to_be_missing(
    stream: Stream, full: RedisServer
) -> None:
    full.asked("del", chunk(stream, "one"))
    stream.close("one")
    node = stream.reopen("three")
    found = node.status().shard
    assert (node.snapshot().rows, found.rows, found.missing) == (80, 80, {"one": 1})
    assert "has lost what shard 'one' gave it (a window)" in found.problem
    assert node.snapshot().guarantee.windows == 2
    others = stream.sent["two"] + stream.sent["three"]
    assert same(cells(served(node)), exact(node, served(node), others))  # each window whole or not
    assert ("shard_missing_windows", (), 1) in list(_of_status(node.status()))
    told = inspect.told(node)
    stream.advance(6 / 86_400)
    assert not told.published  # it is tried again, and serves on
    stream.reopen("one")
    stream.advance(6 / 86_400)
    found = node.status().shard
    assert (found.rows, found.missing, found.problem) == (120, {}, "")


def test_what_is_missing_stays_told_when_another_window_is_forgotten(
    stream: Stream, full: RedisServer
) -> None:
    stream.observe("two", 7, 9)
    stream.advance(10)
    given = stream.shard("two").roster.entries().of("two").values()
    later = max(given, key=lambda window: window.until)
    full.asked("del", f"pyramidion:{later.held.name}:0")
    stream.close("one", "two")
    stream.advance(31, rounds=1)  # the first windows are past their retention
    found = stream.nodes["three"].status().shard
    assert (found.rows, found.missing) == (0, {"two": 1})
    assert "shard 'two'" in found.problem


def test_a_lost_manifest_hides_nobody_elses_windows(stream: Stream, full: RedisServer) -> None:
    full.asked("del", told(stream, "one"))
    stream.close("one")
    node = stream.reopen("three")
    found = node.status().shard
    assert (node.snapshot().rows, found.missing) == (80, {"one": 1})
    assert "has lost what shard 'one' gave it (what it has told)" in found.problem
    stream.reopen("one")
    stream.advance(6 / 86_400)
    assert is_whole(stream)


def test_a_lost_manifest_is_told_again_by_a_shard_that_runs(
    stream: Stream, full: RedisServer
) -> None:
    passed = inspect.parts(stream.nodes["one"]).shards._told["one"][1].passed
    full.asked("del", told(stream, "one"))
    minute(stream)
    assert full.asked("exists", told(stream, "one")).strip() == b"1"
    assert inspect.parts(stream.nodes["two"]).shards._told["one"][1].passed == passed
    assert is_whole(stream)


def test_without_its_table_store_a_shard_that_is_opened_serves_its_own_windows(
    stream: Stream, full: RedisServer
) -> None:
    with full.away():
        node = stream.reopen("three")
        found = node.status().shard
        assert (node.snapshot().rows, found.missing) == (40, {"one": 1, "two": 1})
        assert "does not answer" in found.problem
    minute(stream)
    assert is_whole(stream)


def test_a_removed_shard_whose_manifest_is_lost_stays_on_the_roster(
    stream: Stream, full: RedisServer
) -> None:
    stream.nodes["one"].shards.remove("two", why="lost")
    stream.close("two")
    full.asked("del", told(stream, "two"))
    node = stream.reopen("three")
    assert node.status().shard.left == {"two": 0}
    assert node.status().shard.missing == {"two": 1}
    stream.reopen("two")
    stream.advance(6 / 86_400)
    assert is_whole(stream)


def test_where_shards_meet_is_encrypted_in_the_store(stream: Stream) -> None:
    stream.begin("one")
    stream.close()
    for file in stream.path("one").rglob("*"):
        if file.is_file():
            assert b"stream.key" not in file.read_bytes()
    assert inspect.parts(stream.reopen("one")).shards.shard == stream.shard("one")


def test_shards_meet_wherever_their_processes_are_started(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.begin("one")
    monkeypatch.chdir(stream.folder)
    near = Shard("clicks", "two", keys="file:keys/stream.key", tables="file:shared")
    Pyramid.join(stream.path("two"), near, **stream.given("two")).close()
    monkeypatch.chdir("/")
    assert stream.reopen("two").status().shard.problem == ""
    assert set(stream.nodes["two"].status().shard.shards) == {"one", "two"}


def test_a_shard_shares_no_complete_tables(stream: Stream) -> None:
    nodes = stream.begin("one")
    with pytest.raises(StateError, match="shares no complete tables"):
        nodes["one"].publisher.start(f"file:{stream.folder}/far")


def test_a_shard_does_not_tell_of_the_past_as_if_it_were_the_streams(stream: Stream) -> None:
    stream.begin("one", "two")
    with pytest.raises(StateError, match="a shard keeps windows of its own alone"):
        stream.nodes["one"].as_of("2030-01-01")
