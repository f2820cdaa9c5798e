"""Blocks of ports: two holders never share one, a dead holder's block is free, an occupied one is skipped."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host import reservations as module
from sparkgpu.core.host.reservations import BLOCK, reserved_ports

OF_RUNS = (module._FIRST, module._END)
# Not those of real runs on this machine, which come and go meanwhile; still below the kernel's own.
FIRST, END = 31000, 32600
HOLD = f"""
import sys
from sparkgpu.core.host import reservations as module
module._FIRST, module._END = {FIRST}, {END}
from sparkgpu.core.host.reservations import reserved_ports
with reserved_ports(int(sys.argv[1])) as ports:
    print(*ports, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks and ports only for this test, since other runs on this machine hold their own."""
    monkeypatch.setattr(module, "_FIRST", FIRST)
    monkeypatch.setattr(module, "_END", END)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@contextmanager
def holder(count: int) -> Iterator[tuple[subprocess.Popen[str], tuple[int, ...]]]:
    """Another process that holds `count` blocks until it is told to release them."""
    command = [sys.executable, "-c", HOLD, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, tuple(int(port) for port in process.stdout.readline().split())
        finally:
            process.kill()


def test_the_ports_lie_below_those_the_kernel_hands_out_to_clients() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert 1024 < OF_RUNS[0] < OF_RUNS[1] <= first and first >= END


def test_two_holders_get_different_blocks_and_the_kernel_frees_those_of_one_that_is_killed() -> None:
    with holder(1) as (process, theirs):
        with reserved_ports(3) as ours:
            bases = sorted((*theirs, *ours))
            assert len(bases) == 4 and all(after - before >= BLOCK for before, after in pairwise(bases))
        process.kill()
        process.wait(timeout=60)
        with reserved_ports(1) as ours:
            assert ours == theirs


@pytest.mark.parametrize(("place", "address"), [(0, "127.0.0.1"), (BLOCK - 1, "0.0.0.0")])
def test_a_block_with_an_occupied_port_is_passed_over(place: int, address: str) -> None:
    with reserved_ports(2) as free:
        pass
    with socket.socket() as listener:
        listener.bind((address, free[0] + place))
        listener.listen()
        with reserved_ports(1) as ports:
            assert ports == (free[1],)


def test_too_many_blocks_are_refused_with_what_was_found() -> None:
    with pytest.raises(DeviceError) as caught, reserved_ports(2000):
        raise AssertionError("there are no 2000 blocks")
    message = str(caught.value)
    assert message.startswith(
        f"2000 lanes need 2000 blocks of {BLOCK} free TCP ports between {FIRST} and {END};"
    )
    assert message.endswith("Stop other runs, or ask for fewer lanes.")
    with reserved_ports(1) as ports:  # the refused request has released its blocks
        assert ports[0] < END - BLOCK
