"""A prediction server away from the store: tables and models in memory, no rows, no disk.

copies      the snapshots and models that it holds, renewed and dropped in time
access      whose tokens it answers, by their hashes
edge        all that one edge answers from, how much it takes, numbers for Prometheus
bodies      rows in
routing     routes, with who may call them; app: which there are, shapes: what they take
server      the process: an address, a stop that finishes what was asked
"""

from __future__ import annotations

from pyramidion.errors import refuse_missing

refuse_missing(
    "an edge",
    ["httptools", "httpx", "msgspec", "prometheus_client", "starlette", "uvicorn", "uvloop"],
    "client,serve",
)
