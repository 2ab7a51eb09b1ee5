"""Programs that have keys or rows in memory: no core file, and no other process looks inside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PRINTS = """
import ctypes, resource, sys
import pyramidion.cli.program as program
program.main = lambda **_: print(
    ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), *resource.getrlimit(resource.RLIMIT_CORE)
)
sys.argv = ["pyramidion"]
program.run()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can refuse to be dumped")
def test_program_cannot_be_dumped() -> None:
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, text=True)
    assert done.stdout.split() == ["0", "0", "0"], done.stderr


@pytest.mark.servers
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can refuse to be dumped")
def test_memory_of_a_service_is_roots(tmp_path: Path) -> None:
    words = ["serve", "--data", str(tmp_path), "--keys", f"file:{tmp_path}/{{stream}}", "--port"]
    serving = subprocess.Popen(
        [sys.executable, "-m", "pyramidion", *words, "0", "--json"], stdout=subprocess.PIPE
    )
    try:
        assert serving.stdout is not None
        assert serving.stdout.readline()
        assert os.stat(f"/proc/{serving.pid}/mem").st_uid == 0
        limits = Path(f"/proc/{serving.pid}/limits")
        if os.geteuid() == 0:
            assert "Max core file size        0                    0" in limits.read_text()
        else:
            with pytest.raises(PermissionError):
                Path(f"/proc/{serving.pid}/maps").read_text()
    finally:
        serving.kill()
        serving.wait()
        serving.stdout.close()
