"""Other work is told from one's own."""

from __future__ import annotations

import subprocess
import sys
import time

from sparkgpu.core.host.meters import OtherWork

BUSY_S = 0.4
BUSY = f"""
import time
while time.process_time() < {BUSY_S}:
    pass
print("done", flush=True)
input()
"""


def test_the_time_of_another_process_is_counted() -> None:
    began, others = time.monotonic(), OtherWork()
    child = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout and child.stdout.readline() == "done\n"
    elapsed_s = time.monotonic() - began
    assert others.cores() * elapsed_s > 0.9 * BUSY_S
    child.communicate("\n")


def test_ones_own_time_is_not() -> None:
    others = OtherWork()
    others._own_s -= 1e6  # as if this process had worked for so long meanwhile
    assert others.cores() == 0.0
