"""The verbs of a service over HTTP, and features made in this process.

client      START HERE: class Client, a verb for each route
fresh       a snapshot that is kept fresh behind the scenes
calls       requests, sent again when that is safe; errors as the service raised them
rows        rows as the body of a request
answers     what comes back
"""

from __future__ import annotations

from pyramidion.errors import refuse_missing

refuse_missing("the client", ["httpx", "msgspec"], "client")

from pyramidion.web.client.answers import FetchedRows, Receipt  # noqa: E402
from pyramidion.web.client.client import Client  # noqa: E402
from pyramidion.web.client.fresh import FreshSnapshot  # noqa: E402

__all__ = ["Client", "FetchedRows", "FreshSnapshot", "Receipt"]
