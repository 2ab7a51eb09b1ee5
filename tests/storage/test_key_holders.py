"""Store keys: held outside the store, made and destroyed durably, shared by nobody's mistake."""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from pyramidion import Pyramid
from pyramidion.errors import FormatError, KeyHolderError, SchemaError
from pyramidion.storage import key_holders as module
from pyramidion.storage.key_holders import FileHolder, StoreKey, holder_at
from tests.secrets_on_disk import secret
from tests.store.stores import DAY, SCHEMA, Stand, rows, tiny

KEY = bytes(range(32))


@pytest.fixture
def holder(tmp_path: Path) -> FileHolder:
    return FileHolder(tmp_path / "held" / "store.key")


# --- the file -----------------------------------------------------------------------------


def test_a_key_that_was_added_is_there_for_the_next_process(holder: FileHolder) -> None:
    holder.add("one", KEY)
    assert FileHolder(holder.path).keys() == {"one": KEY}


def test_a_key_that_was_dropped_is_gone_and_others_stay(holder: FileHolder) -> None:
    holder.add("one", KEY)
    holder.add("two", KEY[::-1])
    holder.drop(["one", "never there"])
    assert holder.keys() == {"two": KEY[::-1]}
    assert KEY.hex() not in holder.path.read_text()


def test_where_there_is_no_file_there_are_no_keys(holder: FileHolder) -> None:
    assert holder.keys() == {}


def test_only_the_owner_can_read_the_file(holder: FileHolder) -> None:
    old = os.umask(0)
    try:
        holder.add("one", KEY)
        holder.add("two", KEY)
    finally:
        os.umask(old)
    assert stat.S_IMODE(holder.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(holder.path.parent.stat().st_mode) == 0o700


def test_the_old_file_is_overwritten_when_a_key_is_dropped(holder: FileHolder) -> None:
    holder.add("one", KEY)
    old = os.open(holder.path, os.O_RDONLY)  # what a scan of the disk's blocks would see
    try:
        assert KEY.hex().encode() in os.pread(old, 1_000, 0)
        holder.drop(["one"])
        assert not os.pread(old, 1_000, 0).strip(b"\0")
    finally:
        os.close(old)


def test_a_draft_that_a_crash_left_is_overwritten_and_does_not_stand_in_the_way(
    holder: FileHolder,
) -> None:
    holder.add("one", KEY)
    draft = holder.path.with_name(f".{holder.path.name}.new")
    draft.write_text(json.dumps({"dead": KEY[::-1].hex()}))
    left = os.open(draft, os.O_RDONLY)
    try:
        holder.add("two", KEY)
        assert not os.pread(left, 1_000, 0).strip(b"\0")
    finally:
        os.close(left)
    assert set(holder.keys()) == {"one", "two"}
    assert not draft.exists()


def test_a_failure_before_the_new_file_is_durable_leaves_the_old_one(
    holder: FileHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder.add("one", KEY)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fsync", full)
        with pytest.raises(KeyHolderError, match="No space left"):
            holder.add("two", KEY)
    assert holder.keys() == {"one": KEY}
    holder.add("two", KEY)
    assert set(holder.keys()) == {"one", "two"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_key_file_that_others_may_read_is_refused(holder: FileHolder, mode: int) -> None:
    holder.add("one", KEY)
    holder.path.chmod(mode)
    for verb in (holder.keys, lambda: holder.add("two", KEY), lambda: holder.drop(["one"])):
        with pytest.raises(KeyHolderError, match=f"chmod 600 {holder.path}"):
            verb()
    holder.path.chmod(0o600)
    assert holder.keys() == {"one": KEY}


@pytest.mark.parametrize("content", ["", "{", "[]", '"x"', '{"one": 7}', '{"one": "zz"}'])
def test_a_file_with_other_content_says_so_and_is_left_alone(
    holder: FileHolder, content: str
) -> None:
    holder.path.parent.mkdir()
    secret(holder.path, content)
    for verb in (holder.keys, lambda: holder.add("one", KEY), lambda: holder.drop(["one"])):
        with pytest.raises(KeyHolderError, match="holds no store keys"):
            verb()
    assert holder.path.read_text() == content


def test_a_file_that_cannot_be_read_is_not_taken_for_one_without_keys(holder: FileHolder) -> None:
    holder.path.mkdir(parents=True)  # reading a folder fails for root as well
    for verb in (holder.keys, lambda: holder.add("one", KEY)):
        with pytest.raises(KeyHolderError, match="see to its folder and rights"):
            verb()


def test_the_error_for_a_broken_file_does_not_quote_it(holder: FileHolder) -> None:
    holder.path.parent.mkdir()
    secret(holder.path, '{"one": "' + KEY.hex())
    with pytest.raises(KeyHolderError) as caught:
        holder.keys()
    found: BaseException | None = caught.value
    while found is not None:
        assert KEY.hex()[:16] not in repr(found)
        found = found.__context__


def test_two_processes_may_add_and_drop_in_one_file_at_once(holder: FileHolder) -> None:
    work = textwrap.dedent(
        """
        import sys
        from pyramidion.storage.key_holders import FileHolder
        holder, me = FileHolder(sys.argv[1]), sys.argv[2]
        for number in range(40):
            holder.add(f"{me}.{number}", bytes(32))
            if number:
                holder.drop([f"{me}.{number - 1}"])
            assert f"{me}.{number}" in holder.keys()
        """
    )
    command = [sys.executable, "-c", work, str(holder.path)]
    working = [subprocess.Popen([*command, name]) for name in ("a", "b")]
    assert [each.wait() for each in working] == [0, 0]
    assert set(holder.keys()) == {"a.39", "b.39"}


def test_keys_can_be_read_while_others_are_added_and_dropped(holder: FileHolder) -> None:
    holder.add("mine", KEY)
    stop = threading.Event()

    def renew() -> None:
        for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count()):
            holder.add(f"{number}", KEY)
            holder.drop([f"{number}"])

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        for _ in range(2_000):
            assert holder.keys()["mine"] == KEY
    finally:
        stop.set()
        thread.join()


def test_a_file_that_is_replaced_and_zeroed_while_it_is_read_is_read_again(
    holder: FileHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder.add("mine", KEY)
    real = Path.open

    def slow(self: Path, *given: Any) -> Any:
        file = real(self, *given)
        monkeypatch.setattr(Path, "open", real)
        holder.add("other", KEY)
        return file

    monkeypatch.setattr(Path, "open", slow)
    assert holder.keys() == {"mine": KEY, "other": KEY}


# --- which holder ---------------------------------------------------------------------------


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert holder_at("file:~/x.key").path == tmp_path / "x.key"  # type: ignore[attr-defined]


def test_env_says_which_holder_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLIGHTS_KEYS", f"file:{tmp_path}/x.key")
    assert holder_at("env:FLIGHTS_KEYS").name == f"file:{tmp_path}/x.key"


@pytest.mark.parametrize("said", [None, "", "env:FLIGHTS_KEYS"])
def test_env_that_names_no_holder_is_refused(
    said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLIGHTS_KEYS", raising=False)
    if said is not None:
        monkeypatch.setenv("FLIGHTS_KEYS", said)
    with pytest.raises(KeyHolderError, match="FLIGHTS_KEYS names no key holder"):
        holder_at("env:FLIGHTS_KEYS")


@pytest.mark.parametrize("url", ["", "file", "file:", "vault9:x", "/path/to/key"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SchemaError, match="keys="):
        holder_at(url)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed distribution with a key holder of its own: keys in a dict that is a module's."""
    code = """
        STORES = {}


        class Holder:
            def __init__(self, where):
                self.name = f"drawer:{where}"
                self._keys = STORES.setdefault(where, {})

            def keys(self):
                return dict(self._keys)

            def add(self, name, key):
                self._keys[name] = key

            def drop(self, names):
                for name in names:
                    self._keys.pop(name, None)
    """
    place = tmp_path / "site"
    info = place / "drawer_keys-1.0.dist-info"
    info.mkdir(parents=True)
    (place / "drawer_keys.py").write_text(textwrap.dedent(code))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: drawer-keys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{module.SCHEMES}]\ndrawer = drawer_keys:Holder\n")
    monkeypatch.syspath_prepend(place)
    return "drawer:top"


def test_a_plug_in_holds_keys(plugin: str, stand: Stand) -> None:
    given = stand.given | {"keys": plugin}
    with Pyramid.create(stand.path, SCHEMA, tiny(), **given) as store:
        store.observe(rows(5))
        before = holder_at(plugin).keys()
        stand.clock.pass_(4 * DAY)
        store.advance()
        deletion = store.status().deletions[-1]
    after = holder_at(plugin).keys()
    assert len(before) == len(after) == 1
    assert before.keys() != after.keys()
    assert deletion.holder == "drawer:top"
    with Pyramid.open(stand.path, **given) as store:
        assert store.status().windows[0].rows == 5


# --- the store key ----------------------------------------------------------------------------


def test_a_wrapped_key_opens_in_its_own_context_alone(holder: FileHolder) -> None:
    store_key = StoreKey.new(holder, "store")
    wrapped = store_key.wrap(KEY, "hot step 1")
    assert store_key.unwrap(wrapped, "hot step 1") == KEY
    assert KEY not in wrapped
    with pytest.raises(FormatError, match="hot step 2"):
        store_key.unwrap(wrapped, "hot step 2")


def test_a_store_key_that_was_destroyed_opens_nothing(holder: FileHolder) -> None:
    store_key = StoreKey.new(holder, "store")
    wrapped = store_key.wrap(KEY, "hot step 1")
    holder.drop([store_key.name])
    for verb in (store_key.unwrap, store_key.wrap):
        with pytest.raises(KeyHolderError, match=r"does not have the key|holds no key"):
            verb(wrapped, "hot step 1")


def test_two_stores_in_one_file_leave_each_other_their_keys(stand: Stand) -> None:
    one = stand.create()
    two = stand.held(Pyramid.create(stand.folder / "two", SCHEMA, tiny(), **stand.given))
    for store in (one, two):
        store.observe(rows(5))
    for _ in range(3):
        stand.clock.pass_(4 * DAY)
        for store in (one, two):
            store.advance()
            store.observe(rows(5, stand.clock.now))
    assert len(FileHolder(stand.key).keys()) == 2
    assert stand.reopen().status().hot_rows == 5
    assert stand.open(stand.folder / "two").status().hot_rows == 5


@pytest.mark.parametrize("where", ["store/x.key", "store/hot/x.key", "other/../store/x.key"])
def test_a_key_in_the_store_it_opens_is_refused(stand: Stand, where: str) -> None:
    (stand.folder / "other").mkdir()
    given = stand.given | {"keys": f"file:{stand.folder}/{where}"}
    with pytest.raises(SchemaError, match="may not lie in the store"):
        Pyramid.create(stand.path, SCHEMA, tiny(), **given)
    assert not stand.path.exists()


def test_a_key_that_a_link_leads_into_the_store_is_refused(stand: Stand) -> None:
    stand.create()
    stand.close()
    (stand.folder / "link").symlink_to(stand.path)
    with pytest.raises(SchemaError, match="may not lie in the store"):
        Pyramid.open(stand.path, **stand.given | {"keys": f"file:{stand.folder}/link/x.key"})
