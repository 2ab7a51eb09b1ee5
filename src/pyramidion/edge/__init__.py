"""A prediction server away from the store: tables and models in memory, no rows, no disk.

copies      the snapshots and models that it holds, renewed and dropped in time
access      whose tokens it answers, by their hashes
bodies      rows in, answers out, and the one shape of errors
app         the routes
server      the process: an address, a stop that finishes what was asked
"""

from __future__ import annotations

from pyramidion.extras import refuse_missing

refuse_missing("an edge", ["fastapi", "httpx", "msgspec", "uvicorn"], "client,serve")
