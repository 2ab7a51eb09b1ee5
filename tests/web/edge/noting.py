"""`pyramidion`, noting kernels compiled in an event loop: ``python -m tests.web.edge.noting FILE``.

The words of the program follow. FILE gets the name of each kernel.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
from typing import Any

from numba.core.dispatcher import Dispatcher


def main(file: str, *words: str) -> None:
    compiled = Dispatcher.compile

    def noted(kernel: Any, types: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            with open(file, "a", encoding="utf-8") as found:
                found.write(f"{kernel.__name__}\n")
        return compiled(kernel, types)

    Dispatcher.compile = noted
    sys.argv = ["pyramidion", *words]
    runpy.run_module("pyramidion", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
