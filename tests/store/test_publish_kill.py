"""Killed while shared tables are replaced, a store comes back sharing just what it serves."""

from __future__ import annotations

import pytest

from pyramidion.errors import ExpiredError
from tests.dying import died
from tests.store import inspect
from tests.store.stores import DAY, SECOND, START, Stand
from tests.store.test_publish import card, keys_of, names, reader, rolled, same, url

POINTS = ("erase.committed", "erase.destroyed", "retire.after")


def went_on(stand: Stand) -> None:
    """A window is sealed, then the first one retires."""
    stand.clock.now = START + 10 * DAY
    store = stand.open()
    rolled(stand, store)
    stand.clock.now = START + 50 * DAY
    store.advance()


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_one_set_is_shared_and_its_key_alone_is_left(
    point: str, stand: Stand
) -> None:
    store = stand.create()
    rolled(stand, store)
    store.publisher.start(url(stand))
    before, old = names(stand), card(store)
    stand.close()
    assert died(lambda: went_on(Stand(stand.folder)), at=point)
    stand.clock.now = START + 50 * DAY
    store = stand.open()
    stand.clock.pass_(60)
    store.advance()
    told = store.status().shared
    assert told is not None
    assert told.to_delete == 0
    assert not before & names(stand)
    with pytest.raises(ExpiredError):
        reader(stand, old).snapshot()
    served = inspect.parts(store).serving.current
    assert len(names(stand)) == len(keys_of(store)) == (0 if served is None else 1)
    if served is not None:
        assert same(reader(stand, card(store)).snapshot(), served)
        assert served.expires == int((START + 60 * DAY) * SECOND)
    stand.close()
