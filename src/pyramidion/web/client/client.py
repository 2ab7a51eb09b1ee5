"""A service from afar: the verbs of a store, and of the service, over HTTP."""

from __future__ import annotations

import io
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from numpy.typing import NDArray

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.config.toml import written
from pyramidion.counts.signing import key_from
from pyramidion.errors import UnreachableError
from pyramidion.web.client.answers import NOT_OURS, FetchedRows, Receipt, predicted, probabilities
from pyramidion.web.client.calls import Calls, path_of
from pyramidion.web.client.fresh import EVERY, FreshSnapshot
from pyramidion.web.client.rows import ARROW, Body, body_of, json_of

Told = dict[str, Any]
"""What a service says of itself, as plain values."""

TRAINING = {"twice": False, "slow": True}
"""Waited for, and not asked for again meanwhile."""


class Client:
    """A service at an address, asked with a token.

    ``verify`` is whose certificates count: True, those of the system; or a file of others.
    ``key`` is the service's public key, as its ``/v1/key`` says: what signs snapshots and
    models. Without one, the first that the service tells is kept for as long as the client is.
    A request that was turned away or got no answer is sent again, ``retries`` times at most,
    where doing it twice is as good as once. Observations always are: each has a key by which
    the service knows it again.

    Threads may share a client. After a fork, make a new one.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str,
        verify: bool | str | Path | ssl.SSLContext = True,
        key: str | None = None,
        timeout: float = 60.0,
        retries: int = 6,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._calls = Calls(url, token=token, verify=verify, timeout=timeout, retries=retries)
        self._key = None if key is None else key_from(key)
        self._pinning = threading.Lock()
        self._clock = clock

    def close(self) -> None:
        """Let go of the connections; snapshots that were taken are not renewed any more."""
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- rows in, features out ----------------------------------------------------------------

    def observe(
        self,
        stream: str,
        rows: Any,
        *,
        key: str | None = None,
        errors: Literal["refuse", "skip"] = "refuse",
    ) -> Receipt:
        """Accept rows: when this returns they are durable, hot and counted, once.

        ``key`` tells the same rows sent again, also by another client with the same token; one is
        made where none is given. Other rows under a key that was used are refused.
        """
        told = self._calls.told(
            "POST",
            path_of("streams", stream, "observations"),
            body_of(rows),
            params={"errors": errors},
            headers={"Idempotency-Key": uuid4().hex if key is None else key},
        )
        return Receipt.of(told)

    def features(self, stream: str, rows: Any) -> pa.Table:
        """Features of rows, made by the service; `snapshot` makes them here, and faster."""
        answer = self._calls.ask(
            "POST", path_of("streams", stream, "features"), body_of(rows), headers={"Accept": ARROW}
        )
        with _arrow(io.BytesIO(answer.content)) as reader:
            return _read(reader.read_all)

    def snapshot(self, stream: str, *, every: float = EVERY) -> FreshSnapshot:
        """The complete tables, in this process; looked after every so many seconds."""
        path = path_of("streams", stream, "snapshot")
        calls = self._calls

        def fetch(etag: str | None, retries: int | None) -> tuple[bytes, str] | None:
            headers = {} if etag is None else {"If-None-Match": etag}
            answer = calls.ask("GET", path, headers=headers, retries=retries)
            if answer.status_code == 304:
                return None
            return answer.content, answer.headers.get("etag", "")

        return FreshSnapshot(fetch, stream, self.key, self._clock, every=every)

    def card(self, stream: str) -> bytes:
        """What opens the tables that a stream shares, for `SharedTables`; ends in a day at most."""
        return self._calls.ask("GET", path_of("streams", stream, "card")).content

    def key(self) -> Ed25519PublicKey:
        """The key that the service signs with: as given, or as it told at first."""
        with self._pinning:
            if self._key is None:
                told = self._calls.told("GET", path_of("key"))
                self._key = key_from(str(_of(told, "ed25519")))
            return self._key

    def training_set(self, stream: str, label: str | None = None) -> FetchedRows:
        """The hot rows as features and label: P1, drop them when the rows go. It is audited."""
        tables = list(self._training_tables(stream, label))
        if not tables:
            raise UnreachableError(NOT_OURS)
        return FetchedRows.of(pa.concat_tables(tables))

    def training_batches(self, stream: str, label: str | None = None) -> Iterator[FetchedRows]:
        """The same, piece by piece."""
        return map(FetchedRows.of, self._training_tables(stream, label))

    def _training_tables(self, stream: str, label: str | None) -> Iterator[pa.Table]:
        path, params = path_of("streams", stream, "training-set"), _given(label=label)
        with (
            self._calls.stream(path, params=params, headers={"Accept": ARROW}) as pieces,
            _arrow(_Pieces(pieces)) as reader,
        ):
            while (batch := _read(lambda: next(reader, None))) is not None:
                yield pa.Table.from_batches([batch])

    # --- models -------------------------------------------------------------------------------

    def models(self, stream: str) -> dict[str, Told]:
        """The registered models by name."""
        told = self._calls.told("GET", path_of("streams", stream, "models"))
        return {str(model["name"]): model for model in _of(told, "models")}

    def model(self, stream: str, name: str) -> Told:
        """One model: what it is, whether it is available, and if not, why."""
        return self._told("GET", stream, "models", name)

    def register(
        self,
        stream: str,
        name: str,
        estimator: str,
        params: Mapping[str, object] | None = None,
        *,
        label: str | None = None,
        only: Iterable[str] | None = None,
        without: Iterable[str] = (),
        merge: Mapping[str, Iterable[object]] | None = None,
    ) -> Told:
        """Have the service train an estimator, by its name, now and whenever rows or tables change.

        ``only`` and ``without`` choose features and groups, ``merge`` makes classes coarser.
        """
        asked: Told = {"estimator": estimator, "params": dict(params or {})}
        asked |= {} if label is None else {"label": label}
        asked |= {} if only is None else {"only": _listed(only)}
        asked |= {"without": _listed(without)} if without else {}
        asked |= {} if merge is None else {"merge": {n: list(old) for n, old in merge.items()}}
        return self._told("PUT", stream, "models", name, body=json_of(asked), **TRAINING)

    def retrain(self, stream: str, name: str) -> Told:
        """Train a model again now; what serves goes on until it is ready."""
        return self._told("POST", stream, "models", name, "retrain", **TRAINING)

    def unregister(self, stream: str, name: str) -> None:
        """Forget a model and its recipe."""
        self._told("DELETE", stream, "models", name, twice=False)

    def loss(self, stream: str, name: str) -> Told:
        """A model's loss on the newest hot rows, beside the prior's: P1."""
        return self._told("GET", stream, "models", name, "loss", **TRAINING)

    def export(self, stream: str, name: str) -> bytes:
        """A trained model, signed, for an edge: P1, it ends with its rows. It is audited."""
        return self._calls.ask("GET", path_of("streams", stream, "models", name, "export")).content

    def predict(self, stream: str, name: str, rows: Any) -> NDArray[Any]:
        """The likeliest class of each row, or the expected number: P1, as the model is."""
        return predicted(self.predictions(stream, name, rows))

    def predict_proba(self, stream: str, name: str, rows: Any) -> NDArray[np.float64]:
        """A probability for each class of each row: P1."""
        return probabilities(self.predictions(stream, name, rows))

    def predictions(self, stream: str, name: str, rows: Any) -> Told:
        """What the service says of rows: model, version, classes, and numbers."""
        return self._told("POST", stream, "models", name, "predictions", body=body_of(rows))

    # --- what is there --------------------------------------------------------------------------

    def streams(self) -> list[str]:
        """The streams that the token is for."""
        return list(_of(self._calls.told("GET", path_of("streams")), "streams"))

    def create(self, stream: str, schema: Schema, settings: Settings) -> Told:
        """Make a stream."""
        told = settings.to_dict()
        if settings.private:
            body = json_of({"schema": schema.to_toml(), "settings": told})
        else:  # JSON has no infinity
            given = {name: value for name, value in told.items() if value is not None}
            file = f"{schema.to_toml()}\n{written({'settings': given})}"
            body = Body(file.encode(), "application/toml")
        return self._told("PUT", stream, body=body, twice=False)

    def status(self, stream: str) -> Told:
        """What a stream holds now."""
        return self._told("GET", stream)

    def windows(self, stream: str) -> list[Told]:
        """The count windows, from populating to erased."""
        return list(_of(self._told("GET", stream, "windows"), "windows"))

    def tables(self, stream: str) -> list[Told]:
        """The complete count tables, and the noise in each."""
        return list(_of(self._told("GET", stream, "tables"), "tables"))

    def groups(self, stream: str) -> list[tuple[str, ...]]:
        """The groups of features that are counted together."""
        return [tuple(group) for group in _of(self._told("GET", stream, "groups"), "groups")]

    def ledger(self, stream: str) -> Told:
        """What each window has spent on what."""
        return self._told("GET", stream, "ledger")

    def exposure(
        self, stream: str, start: object, stop: object, *, component: str = "store"
    ) -> Told:
        """What an intruder from start to stop could read."""
        params = {"from": _moment(start), "to": _moment(stop), "component": component}
        return self._told("GET", stream, "exposure", params=params)

    def audit_log(self, stream: str) -> list[str]:
        """What was done, as lines that `verify_lines` reads."""
        answer = self._calls.ask("GET", path_of("streams", stream, "audit-log"))
        return answer.content.decode().splitlines()

    # --- what an admin does -----------------------------------------------------------------------

    def trials(self, stream: str) -> list[Told]:
        """All groups: by hand, on trial, kept or dropped, what sealed tables say, and why."""
        found: list[Told] = _of(self._told("GET", stream, "groups"), "trials")
        return found

    def select_groups(self, stream: str, *, share: float = 1) -> Told:
        """Choose groups worth counting from the hot rows, privately; windows pay for it."""
        body = json_of({"share": share})
        return self._told("POST", stream, "groups", "select", body=body, twice=False)

    def add_group(self, stream: str, group: Iterable[str]) -> list[tuple[str, ...]]:
        """Count features together, from the next window that is not open yet."""
        body = json_of({"features": list(group)})
        told = self._told("POST", stream, "groups", body=body, twice=False)
        return [tuple(each) for each in _of(told, "groups")]

    def withdraw(self, stream: str, name: str, *, why: str) -> None:
        """Erase a feature or a group, everywhere and now."""
        self._told("DELETE", stream, "tables", name, params={"why": why}, twice=False)

    def advance(self, stream: str) -> Told:
        """Do what is due."""
        return self._told("POST", stream, "advance")

    def reseed(self, stream: str, *, why: str) -> Told:
        """After a break-in: seal what is populating and go on with fresh noise."""
        return self._told("POST", stream, "reseed", body=json_of({"why": why}), twice=False)

    def tokens(self) -> list[Told]:
        """Who has a token, and for what; never the tokens themselves."""
        return list(_of(self._calls.told("GET", path_of("tokens")), "tokens"))

    def add_token(self, name: str, roles: Iterable[str], streams: Iterable[str] = ()) -> str:
        """Make a token; its text is told once, here. No streams: all of them."""
        asked = {"name": name, "roles": list(roles), "streams": list(streams)}
        told = self._calls.told("POST", path_of("tokens"), json_of(asked), twice=False)
        return str(_of(told, "token"))

    def remove_token(self, token: str) -> None:
        """Take a token back, by its id."""
        self._calls.told("DELETE", path_of("tokens", token), twice=False)

    def _told(self, method: str, stream: str, *parts: str, **given: Any) -> Told:
        body: Body | None = given.pop("body", None)
        told: Told = self._calls.told(method, path_of("streams", stream, *parts), body, **given)
        return told


def _of(told: object, name: str) -> Any:
    """A field of an answer."""
    if not isinstance(told, dict) or name not in told:
        raise UnreachableError(NOT_OURS)
    return told[name]


def _given(**params: str | None) -> dict[str, str]:
    return {name: value for name, value in params.items() if value is not None}


def _listed(names: Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _moment(told: object) -> str:
    iso = getattr(told, "isoformat", None)
    return str(told if iso is None else iso())


# --- Arrow ------------------------------------------------------------------------------------


class _Pieces(io.RawIOBase):
    """Pieces of an answer as a file to read from."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = piece
        some, self._left = self._left[: len(into)], self._left[len(into) :]
        into[: len(some)] = some
        return len(some)


def _arrow(source: io.RawIOBase | io.BytesIO) -> Any:
    buffered = io.BufferedReader(source) if isinstance(source, io.RawIOBase) else source
    return _read(lambda: pa.ipc.open_stream(buffered))


def _read(verb: Callable[[], Any]) -> Any:
    """What Arrow reads, or one sentence."""
    try:
        return verb()
    except (pa.ArrowException, OSError):
        pass
    raise UnreachableError("the service's answer is not a whole Arrow stream; ask again")
