"""A service in a process of its own: ``python -m tests.web.edge.upstream FOLDER PORT [LIFE]``.

It opens the store in FOLDER, says where it is, and answers until it is killed.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from pyramidion import Pyramid
from tests.web.client.service import Service


def main(folder: str, port: str, life: str = "") -> None:
    store = Pyramid.open(Path(folder) / "store", keys=f"file:{folder}/store.key")
    service = Service(store, time.time, int(port))
    if life:
        service.life = int(float(life) * 1_000_000)
    sys.stdout.write(f"{service.port}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
