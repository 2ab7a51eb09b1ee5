"""How much a service takes at once; beyond that it refuses, and says when to come back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one service. Each protects memory or the others' patience."""

    body_bytes: int = 64 << 20
    """The largest body of a request."""
    rows: int = 1_000_000
    """The most rows in one body."""
    waiting_requests: int = 4_096
    """Observations of one stream that wait for a commit: requests,"""
    waiting_rows: int = 4_000_000
    """rows,"""
    waiting_bytes: int = 256 << 20
    """and bytes."""
    at_once: int = 256
    """Requests that are being answered, over all streams; observations that wait not included."""
    per_second: float = 5_000.0
    """Requests of one token each second, on average,"""
    burst: int = 10_000
    """and at most this many after a rest."""
    body_seconds: float = 30.0
    """How long a body may take to come in."""
