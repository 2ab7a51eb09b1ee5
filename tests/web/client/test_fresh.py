"""A snapshot in this process: the store's features, renewed in time, and none beyond its time."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pyramidion import Client, Pyramid
from pyramidion.counts.snapshot_file import snapshot_bytes
from pyramidion.errors import ExpiredError, FormatError, StateError, UnreachableError
from tests.store.stores import DAY, Stand, observed, rows
from tests.waiting import wait_for
from tests.web.client.service import TOKEN, Service

NEVER = 3600.0


def rolled(stand: Stand, store: Pyramid) -> None:
    """Another window is sealed, so the tables change."""
    stand.clock.pass_(10 * DAY)
    store.advance()


def same(one: object, other: object) -> bool:
    return bool((np.asarray(one) == np.asarray(other)).all())


def test_features_are_those_of_the_store(client: Client, store: Pyramid) -> None:
    with client.snapshot("flights") as fresh:
        assert fresh.featurize(rows(20)).equals(store.featurize(rows(20)))
        assert fresh.guarantee == store.snapshot().guarantee
        assert fresh.names == store.snapshot().names
        assert same(fresh.array(rows(5)), store.snapshot().array(rows(5)))
        for row in rows(5).to_pylist():
            assert same(fresh.featurize_one(row), store.snapshot().featurize_one(row))


def test_features_need_no_request(client: Client, service: Service) -> None:
    with client.snapshot("flights", every=NEVER) as fresh:
        before = len(service.asked)
        for row in rows(50).to_pylist():
            fresh.featurize_one(row)
        assert len(service.asked) == before


def test_new_tables_are_taken_behind_the_scenes(
    client: Client, store: Pyramid, stand: Stand
) -> None:
    with client.snapshot("flights", every=0.02) as fresh:
        before = fresh.featurize(rows(20))
        rolled(stand, store)
        wait_for(lambda: fresh.guarantee.windows == 2)
        assert fresh.featurize(rows(20)).equals(store.featurize(rows(20)))
        assert not fresh.featurize(rows(20)).equals(before)


def test_tables_that_are_the_same_are_not_sent_again(
    client: Client, service: Service, store: Pyramid, stand: Stand
) -> None:
    with client.snapshot("flights", every=NEVER) as fresh:
        held = fresh.current
        assert not fresh.renew()
        assert "If-None-Match" in service.headers[-1]
        assert fresh.current is held
        rolled(stand, store)
        assert fresh.renew()
        assert fresh.current is not held


def test_tables_that_are_the_same_live_on_before_they_expire(client: Client, stand: Stand) -> None:
    with client.snapshot("flights", every=NEVER) as fresh:
        first = fresh.expires
        stand.clock.pass_(0.49 * DAY)
        fresh.renew()
        assert fresh.expires == first
        stand.clock.pass_(0.02 * DAY)
        fresh.renew()
        assert first is not None
        assert fresh.expires == first + int(0.51 * DAY * 1_000_000)
        stand.clock.pass_(0.6 * DAY)
        fresh.featurize(rows(2))


def test_withdrawn_tables_go(client: Client, store: Pyramid) -> None:
    with client.snapshot("flights", every=0.02) as fresh:
        assert any("a*b" in name for name in fresh.names)
        store.groups.withdraw("a,b", why="not needed")
        wait_for(lambda: not any("a*b" in name for name in fresh.names))


# --- when nobody answers ------------------------------------------------------------------------


def test_it_goes_on_without_the_service_until_it_expires(
    client: Client, service: Service, stand: Stand
) -> None:
    with client.snapshot("flights", every=0.02) as fresh:
        before = fresh.featurize(rows(20))
        service.close()
        wait_for(lambda: fresh.trouble != "")
        stand.clock.pass_(DAY - 1)
        assert fresh.featurize(rows(20)).equals(before)
        stand.clock.pass_(1)
        with pytest.raises(ExpiredError, match="has expired: its time is over"):
            fresh.featurize(rows(20))
        stand.clock.pass_(-5 * DAY)
        with pytest.raises(ExpiredError):
            fresh.featurize_one(rows(1).to_pylist()[0])


def test_it_is_renewed_when_the_service_is_back(
    client: Client, service: Service, store: Pyramid, stand: Stand
) -> None:
    with client.snapshot("flights", every=0.02) as fresh:
        service.close()
        stand.clock.pass_(DAY)
        with pytest.raises(ExpiredError):
            fresh.featurize(rows(2))
        again = Service(store, stand.clock, service.port)
        wait_for(lambda: not fresh.current.expired)
        assert fresh.featurize(rows(20)).equals(store.featurize(rows(20)))
        assert fresh.trouble == ""
        again.close()


def test_a_clock_set_back_does_not_lengthen_the_life_of_what_comes_later(
    client: Client, service: Service, stand: Stand
) -> None:
    with client.snapshot("flights", every=NEVER) as fresh:
        service.life = 60_000_000
        stand.clock.pass_(0.6 * DAY)
        fresh.renew()
        stand.clock.pass_(60)
        assert fresh.current.expired
        stand.clock.pass_(-DAY / 2)
        with pytest.raises(ExpiredError):  # made in the past, as the client knows by now
            fresh.renew()


def test_a_refusal_of_the_first_one_is_raised_at_once(stand: Stand, service: Service) -> None:
    with Client(service.url, token=TOKEN) as client:
        service.faults = []
        service.store = stand.held(empty(stand))
        with pytest.raises(StateError, match="no window is sealed"):
            client.snapshot("flights")


def empty(stand: Stand) -> Pyramid:
    from tests.store.stores import SCHEMA, tiny

    keys = f"file:{stand.folder / 'other.key'}"
    return Pyramid.create(stand.folder / "other", SCHEMA, tiny(), keys=keys, clock=stand.clock)


# --- whose --------------------------------------------------------------------------------------


def test_the_key_is_kept_from_the_first_use_on(
    client: Client, service: Service, stand: Stand
) -> None:
    with client.snapshot("flights", every=NEVER) as fresh:
        service.signer = Ed25519PrivateKey.generate()
        stand.clock.pass_(0.6 * DAY)
        with pytest.raises(FormatError, match="another key signed it"):
            fresh.renew()
        assert "another key" in fresh.trouble
        fresh.featurize(rows(2))
    assert service.counted("GET", "/v1/key") == 1


def test_a_key_that_is_given_is_not_asked_for(service: Service, stand: Stand) -> None:
    public = service.signer.public_key().public_bytes_raw().hex()
    with (
        Client(service.url, token=TOKEN, key=public, clock=stand.clock) as client,
        client.snapshot("flights", every=NEVER) as fresh,
    ):
        fresh.featurize(rows(2))
    assert service.counted("GET", "/v1/key") == 0
    with (
        Client(service.url, token=TOKEN, key="00" * 32, clock=stand.clock) as client,
        pytest.raises(FormatError),
    ):
        client.snapshot("flights")


# --- the end ------------------------------------------------------------------------------------


def threads() -> int:
    return sum(thread.name == "pyramidion snapshot" for thread in threading.enumerate())


def test_closing_lets_go_of_the_tables_and_the_thread(client: Client) -> None:
    fresh = client.snapshot("flights", every=0.02)
    held = weakref.ref(fresh.current._arena)
    fresh.close()
    wait_for(lambda: threads() == 0)
    gc.collect()
    assert held() is None
    with pytest.raises(ExpiredError, match="it was closed"):
        fresh.featurize(rows(1))


def test_one_that_nobody_has_is_not_renewed(client: Client, service: Service) -> None:
    fresh = client.snapshot("flights", every=0.02)
    wait_for(lambda: service.counted("GET", "/snapshot") > 2)
    del fresh
    gc.collect()
    wait_for(lambda: threads() == 0)


def test_threads_featurize_while_it_is_renewed(
    client: Client, service: Service, store: Pyramid, stand: Stand
) -> None:
    service.life = int(40 * DAY) * 1_000_000
    with client.snapshot("flights", every=0.005) as fresh:
        stop, wrong = threading.Event(), list[Exception]()
        row = rows(1).to_pylist()[0]

        def ask() -> None:
            try:
                while not stop.is_set():
                    fresh.featurize_one(row)
            except Exception as problem:  # told below
                wrong.append(problem)

        asking = [threading.Thread(target=ask) for _ in range(4)]
        for thread in asking:
            thread.start()
        for number in range(2):
            observed(store, rows(50, stand.clock.now, seed=number))
            rolled(stand, store)
            wait_for(lambda number=number: fresh.guarantee.windows == 2 + number)  # type: ignore[misc]
        stop.set()
        for thread in asking:
            thread.join()
        assert wrong == []


def test_a_client_that_was_closed_renews_no_more(client: Client) -> None:
    fresh = client.snapshot("flights", every=NEVER)
    client.close()
    with pytest.raises((UnreachableError, RuntimeError)):
        fresh.renew()
    fresh.close()


# --- copies of another stream, and old ones -----------------------------------------------------


def signed(service: Service, store: Pyramid, at: float, stream: str = "flights") -> bytes:
    now = int(at * 1_000_000)
    return snapshot_bytes(store.snapshot(), stream=stream, now=now, signer=service.signer)


def test_snapshot_of_another_stream_is_refused(
    client: Client, service: Service, store: Pyramid, stand: Stand
) -> None:
    client.key()
    data = signed(service, store, stand.clock.now, "clicks")
    service.faults.append(lambda: (200, data, {"ETag": '"other"'}))
    with pytest.raises(FormatError, match="not of stream 'flights'"):
        client.snapshot("flights", every=NEVER)


def test_replayed_snapshot_is_refused(
    client: Client, service: Service, store: Pyramid, stand: Stand
) -> None:
    old = signed(service, store, stand.clock.now)
    rolled(stand, store)
    old_and_valid = signed(service, store, stand.clock.now)
    stand.clock.pass_(60)
    with client.snapshot("flights", every=NEVER) as fresh:
        held = fresh.current
        for data, reason in ((old, "expired"), (old_and_valid, "older than the one")):
            service.faults.append(lambda data=data: (200, data, {"ETag": '"old"'}))
            with pytest.raises((FormatError, ExpiredError), match=reason):
                fresh.renew()
        assert fresh.current is held
        assert not held.expired
        fresh.renew()
        assert fresh.trouble == ""
