"""Processes end with their parent, and whole groups end, also those that ignore signals or are orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil

from sparkgpu.core.host.processes import end_groups, peak_resident_bytes

# Starts a child that ends with it, prints the child's id, and waits.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
FOLLOWER = """
import os, time
from sparkgpu.core.host.processes import die_with_parent
die_with_parent(os.getppid())
print("ready", flush=True)
time.sleep(60)
"""
# A leader with its own child; both can ignore SIGTERM.
LEADER = """
import signal, subprocess, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
if "leaves" not in sys.argv:
    time.sleep(60)
"""


def start(code: str, *arguments: str) -> tuple[subprocess.Popen[bytes], psutil.Process]:
    """A process that leads its group, and its child."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout
    return process, psutil.Process(int(process.stdout.readline()))


def gone(process: psutil.Process, within_s: float = 60.0) -> bool:
    """True if `process` has ended. A zombie has ended; its new parent has only not collected it yet."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.005)
    return False


def test_a_child_dies_with_a_parent_that_is_killed() -> None:
    parent, child = start(PARENT, FOLLOWER)
    parent.kill()
    parent.wait(timeout=60)
    assert gone(child)


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    code = "from sparkgpu.core.host.processes import die_with_parent; die_with_parent(1); print('alive')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert os.getpid() != 1
    assert (found.returncode, found.stdout) == (1, b"")


def test_ending_a_group_ends_the_grandchildren_too() -> None:
    leader, child = start(LEADER)
    began = time.monotonic()
    end_groups([leader], grace_s=600.0)
    assert time.monotonic() - began < 100.0  # it obeyed, so nothing waited for the end of the grace period
    assert leader.returncode == -signal.SIGTERM
    assert gone(child)
    end_groups([leader])  # once more does nothing


def test_a_group_whose_leader_has_left_is_ended_as_well() -> None:
    leader, child = start(LEADER, "leaves")
    leader.wait(timeout=60)
    assert child.is_running()
    end_groups([leader], grace_s=0.1)
    assert gone(child)


def test_groups_that_are_deaf_to_the_request_are_killed_after_one_grace_for_all() -> None:
    started = [start(LEADER, "deaf") for _ in range(3)]
    began = time.monotonic()
    end_groups([leader for leader, _ in started], grace_s=1.0)
    assert 1.0 <= time.monotonic() - began < 2.9  # one after the other they would take 3
    assert all(leader.returncode == -signal.SIGKILL and gone(child) for leader, child in started)


def test_peak_memory_counts_what_was_held_and_given_back_and_the_children() -> None:
    code = """
import subprocess, sys
from sparkgpu.core.host.processes import peak_resident_bytes
before = peak_resident_bytes()
held = bytearray(200 << 20)
del held
alone = peak_resident_bytes()
child = subprocess.Popen([sys.executable, "-c", "held = bytearray(100 << 20); print(1, flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
both = peak_resident_bytes()
child.kill()
print((alone - before) >> 20, (both - alone) >> 20)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    alone, more = map(int, found.stdout.split())
    assert 190 <= alone <= 215
    assert 100 <= more <= 140
    assert peak_resident_bytes() > 2**20
