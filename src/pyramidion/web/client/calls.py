"""Requests to a service: sent again where that is safe, and errors as the service raised them.

What is sent again: a request that was turned away (429, 503), and one whose answer did not come,
unless doing it twice would matter. The wait doubles each time, by chance up to that, so that many
clients do not come back at once; a ``Retry-After`` is kept.
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from pyramidion import errors
from pyramidion.errors import (
    BusyError,
    ObservationError,
    PyramidionError,
    RequestError,
    SchemaError,
    UnreachableError,
)
from pyramidion.web.client.rows import Body

FIRST, LONGEST = 0.1, 10.0  # seconds: the first wait, and the longest that no one asked for
PATIENCE = 60.0  # seconds that a service may ask us to wait
SLOW = 600.0  # seconds that training may take
BUSY = (429, 502, 503, 504)
ACCEPTED = (200, 201, 202, 204, 304)

_random = secrets.SystemRandom()


def path_of(*parts: str) -> str:
    """The path of a thing, its names quoted.

    >>> path_of("streams", "flights", "tables", "origin/dest")
    '/v1/streams/flights/tables/origin%2Fdest'
    """
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Calls:
    """One service, and how it is asked. Threads may share it."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        verify: bool | str | Path | ssl.SSLContext,
        timeout: float,
        retries: int,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise SchemaError("the address of a service begins with http:// or https://; give that")
        self._retries = retries
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            headers={
                "Authorization": f"Bearer {token}",
                "User-Agent": "pyramidion",
            },
            verify=_trusted(verify),
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        twice: bool = True,
        retries: int | None = None,
        slow: bool = False,
    ) -> httpx.Response:
        """The answer to a request. ``twice``: whether doing it twice is as good as once.

        A ``slow`` one may take ten minutes, as training does.
        """
        given = {**(headers or {}), **({} if body is None else {"Content-Type": body.kind})}
        left = self._retries if retries is None else retries
        for attempt in range(left + 1):
            problem, wait = self._once(method, path, body, params, given, twice, slow)
            if isinstance(problem, httpx.Response):
                return problem
            if wait is None or attempt == left:
                raise problem
            limit = min(LONGEST, FIRST * 2**attempt)
            time.sleep(max(wait, _random.uniform(0, limit)))
        raise UnreachableError("retries must be 0 or more; give such a number")

    def told(self, method: str, path: str, body: Body | None = None, **given: Any) -> Any:
        """The same, as plain values."""
        return _decoded(self.ask(method, path, body, **given).content)

    @contextmanager
    def stream(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> Iterator[Iterator[bytes]]:
        """The pieces of a long answer, as they come."""
        try:
            with self._http.stream("GET", path, params=params, headers=headers) as answer:
                if answer.status_code not in ACCEPTED:
                    answer.read()
                    raise error_response(answer)
                yield answer.iter_bytes()
        except httpx.TransportError:
            broken = True
        else:
            broken = False
        if broken:
            raise UnreachableError("the service's answer broke off; ask again")

    def _once(
        self,
        method: str,
        path: str,
        body: Body | None,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        twice: bool,
        slow: bool,
    ) -> tuple[httpx.Response | PyramidionError, float | None]:
        """An answer; or a problem, and how long to wait before the next try (None: no use)."""
        content = None if body is None else body.content
        wait = httpx.Timeout(SLOW, connect=10.0) if slow else httpx.USE_CLIENT_DEFAULT
        try:
            answer = self._http.request(
                method, path, content=content, params=params, headers=headers, timeout=wait
            )
        except httpx.TransportError as problem:
            # A connection that never was has done nothing.
            again = twice or isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout)
            return _unreachable(problem), 0.0 if again else None
        if answer.status_code in ACCEPTED:
            return answer, None
        after = _after(answer) if answer.status_code in BUSY else None
        useful = after is not None and after <= PATIENCE and (twice or answer.status_code == 429)
        return error_response(answer), after if useful else None


def _trusted(verify: bool | str | Path | ssl.SSLContext) -> bool | ssl.SSLContext:
    """Whose certificates count: everybody's usual, a file's, or (False) anybody's."""
    if isinstance(verify, bool | ssl.SSLContext):
        return verify
    try:
        return ssl.create_default_context(cafile=str(verify))
    except (OSError, ssl.SSLError):
        pass
    raise SchemaError(f"{verify} holds no certificates; give a file of trusted ones, as PEM")


def _unreachable(problem: httpx.TransportError) -> UnreachableError:
    what = (
        "did not answer in time" if isinstance(problem, httpx.TimeoutException) else "is not there"
    )
    if isinstance(problem, httpx.ConnectError) and "CERTIFICATE" in str(problem).upper():
        what = "has a certificate that is not trusted"
    return UnreachableError(
        f"the service {what}; see to its address and whether it runs, then try again"
    )


def _after(answer: httpx.Response) -> float:
    """Seconds until one should come back."""
    told = answer.headers.get("retry-after", "0").strip()
    return float(told) if told.replace(".", "", 1).isdecimal() else 0.0


def _decoded(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    raise UnreachableError(
        "the service's answer is not JSON; see that the address is the right one"
    )


# --- errors ---------------------------------------------------------------------------------


def error_response(answer: httpx.Response) -> PyramidionError:
    """What the service raised, as the same class."""
    try:
        told = msgspec.json.decode(answer.content)["error"]
        code, message = str(told["code"]), str(told["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return UnreachableError(
            f"the address answers with status {answer.status_code} and not as a service of ours "
            f"does; see that it is the right one"
        )
    found = vars(errors).get(code)
    if not (isinstance(found, type) and issubclass(found, PyramidionError)):
        found = RequestError
    if found is ObservationError:
        problems = told.get("problems")
        return ObservationError(message, problems if isinstance(problems, dict) else None)
    if found is BusyError:
        return BusyError(message, int(_after(answer)) or 1)
    return found(message)
