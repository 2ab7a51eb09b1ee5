"""A prediction server away from the store: tables and models in memory, no rows, no disk.

app         its routes: those of the service that need no rows and no store
copies      the snapshots and models that it holds, renewed and dropped in time
edge        all that one edge answers from, its limits, numbers for Prometheus
bodies      rows in
server      the process: an address, a stop that finishes what was accepted
"""

from __future__ import annotations

from pyramidion.errors import refuse_missing

refuse_missing(
    "an edge",
    ["httptools", "httpx", "msgspec", "prometheus_client", "starlette", "uvicorn", "uvloop"],
    "client,serve",
)
