"""Kernels are loaded in a thread when a process begins to answer.

Until they are, `/readyz` says no, and no request runs a kernel in the event loop: it could take
seconds in which nobody is answered.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from pyramidion.learn.warming import warm_answers

LOG = logging.getLogger("pyramidion.web")
RETRY = 5.0  # seconds


class Warming:
    """The kernels of one process that answers; nothing is loaded until `begin`."""

    def __init__(self, steps: Callable[[], Iterator[None]] = warm_answers) -> None:
        self._steps = steps
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.busy = False
        """Whether kernels may have to be compiled yet."""

    def begin(self) -> None:
        """Load them in a thread, once."""
        if self._thread is None:
            self.busy = True
            self._thread = threading.Thread(target=self._run, name="pyramidion warming")
            self._thread.start()

    def _run(self) -> None:
        while self.busy and not self._stop.is_set():
            try:
                for _ in self._steps():
                    if self._stop.is_set():
                        return
                self.busy = False
            except Exception as problem:  # a full disk, or no memory
                LOG.error("kernels failed to load", extra={"trouble": type(problem).__name__})
                self._stop.wait(RETRY)

    def close(self) -> None:
        """Load no more; waits for what is being compiled."""
        self._stop.set()
        if self._thread is not None and self._thread.is_alive():  # or a signal came as it started
            self._thread.join()
