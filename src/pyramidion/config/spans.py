"""How long things last by some settings, in what the code reckons in: microseconds and rows."""

from __future__ import annotations

from datetime import date, timedelta

from pyramidion.config.durations import microseconds, since_epoch


class Spans:
    """What follows from the knobs of a store that are lengths; `Settings` has them."""

    count_window: str | int | timedelta
    retention: str | timedelta
    hot_window: str | timedelta | None
    hot_rows: int | None
    hot_step: str | timedelta
    hot_step_rows: int | None
    max_skew: str | timedelta
    origin: float | str | date
    train_within: str | timedelta
    bins_every: int
    unit_block: str | timedelta | None
    shard_wait: str | timedelta
    vault_every: str | timedelta
    vault_retention: str | timedelta | None

    @property
    def bins_period(self) -> int:
        """Windows between two readings of bin edges: as set, and at most half of those kept.

        So edges are replaced before the window that they were read from is forgotten.
        """
        kept = self.retention_us // self.window_us if self.window_us is not None else 2**40
        return max(1, min(self.bins_every, kept // 2))

    @property
    def window_us(self) -> int | None:
        """Length of a count window in microseconds; None if it is counted in rows.

        >>> from pyramidion.config.settings import Settings
        >>> Settings(epsilon=1, count_window="12h").window_us
        43200000000
        """
        rows = self.window_rows
        return microseconds(self.count_window) if rows is None else None

    @property
    def window_rows(self) -> int | None:
        """Length of a count window in accepted rows; None if it is a length of time."""
        return self.count_window if isinstance(self.count_window, int) else None

    @property
    def retention_us(self) -> int:
        """How long a window is kept, in microseconds."""
        return microseconds(self.retention)

    @property
    def hot_window_us(self) -> int | None:
        """How long a raw row is kept at most, in microseconds; None if rows alone bound it."""
        return None if self.hot_window is None else microseconds(self.hot_window)

    @property
    def hot_step_us(self) -> int:
        """Length of a step of the hot window, in microseconds."""
        return microseconds(self.hot_step)

    @property
    def step_rows(self) -> int | None:
        """The most rows of a step: as set, else a tenth of ``hot_rows``, else None.

        >>> from pyramidion.config.settings import Settings
        >>> Settings(epsilon=1, hot_rows=1000).step_rows
        100
        """
        if self.hot_step_rows is None and self.hot_rows is not None:
            return max(1, self.hot_rows // 10)
        return self.hot_step_rows

    @property
    def max_skew_us(self) -> int:
        """How far in the future an event time may lie, in microseconds."""
        return microseconds(self.max_skew)

    @property
    def unit_block_us(self) -> int | None:
        """Length of a block of people's rows in microseconds; None if rows bound the hot window.

        >>> from pyramidion.config.settings import Settings
        >>> Settings(epsilon=1, hot_window="36h", hot_step="5h").unit_block_us == 35 * 3600 * 10**6
        True
        """
        if self.unit_block is not None or self.hot_window_us is None:
            return None if self.unit_block is None else microseconds(self.unit_block)
        return self.hot_window_us // self.hot_step_us * self.hot_step_us

    @property
    def shard_wait_us(self) -> int:
        """How long a window that ended waits for all shards, in microseconds."""
        return microseconds(self.shard_wait)

    @property
    def train_within_us(self) -> int:
        """How long all models together may take to be trained, in microseconds."""
        return microseconds(self.train_within)

    @property
    def vault_every_us(self) -> int:
        """How long a file of the vault takes rows, in microseconds."""
        return microseconds(self.vault_every)

    @property
    def vault_retention_us(self) -> int | None:
        """How long the vault keeps rows, in microseconds; None: forever."""
        return None if self.vault_retention is None else microseconds(self.vault_retention)

    @property
    def origin_us(self) -> int:
        """Where windows and steps begin to be counted, in microseconds since 1970."""
        return since_epoch(self.origin)
