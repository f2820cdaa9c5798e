"""Ports and the scratch folder are a run's own while it lives, and free when it is dead."""

from __future__ import annotations

import os
import socket
import stat
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
from sparkgpu.core.host.reservations import BLOCK, reserved_ports, scratch_folder

OF_RUNS = (module._FIRST, module._END)
# Not those of real runs on this machine, which come and go meanwhile; still below the kernel's own.
FIRST, END = 31000, 32600
HOLD = f"""
import sys
from sparkgpu.core.host import reservations as module
module._FIRST, module._END = {FIRST}, {END}
with module.reserved_ports(1) as ports, module.scratch_folder() as folder:
    (folder / "library.so").write_bytes(b"x" * 100)
    print(*ports, folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports and temporary files only for this test, since other runs on this machine have their own."""
    monkeypatch.setattr(module, "_FIRST", FIRST)
    monkeypatch.setattr(module, "_END", END)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@contextmanager
def another_run() -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """Another process with a block of ports and a scratch folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            port, folder = process.stdout.readline().split()
            yield process, int(port), Path(folder)
        finally:
            process.kill()


def test_the_ports_lie_below_those_the_kernel_hands_out_to_clients() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert 1024 < OF_RUNS[0] < OF_RUNS[1] <= first and first >= END


def test_two_runs_get_different_ports_and_the_next_run_has_and_removes_what_a_killed_one_left() -> None:
    with another_run() as (dead, theirs, left), another_run() as (_, _, live):
        with reserved_ports(3) as ours:
            bases = sorted((theirs, *ours))
            assert len(bases) == 4 and all(after - before >= BLOCK for before, after in pairwise(bases))
        dead.kill()
        dead.wait(timeout=60)
        assert (left / "library.so").exists()
        with reserved_ports(1) as ours, scratch_folder() as own:
            assert ours == (theirs,)
            assert not left.exists()
            with scratch_folder():
                assert own.exists() and (live / "library.so").exists()


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


def test_the_folder_is_private_and_gone_afterwards_also_after_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), scratch_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "file").touch()
        raise KeyboardInterrupt
    assert not folder.exists()
    with another_run() as (process, _, folder):
        process.communicate(timeout=60)
        assert process.returncode == 0 and not folder.exists()


def test_what_others_put_into_the_temporary_folder_is_neither_opened_nor_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "lock").write_text("kept")
    link = tmp_path / "sparkgpu-run-link"
    link.symlink_to(precious)
    for name, mode in (("shared", 0o777), ("pipe", 0o700), ("linked", 0o700)):
        folder = tmp_path / f"sparkgpu-run-{name}"
        folder.mkdir()
        folder.chmod(mode)
        if name == "linked":
            (folder / "lock").symlink_to(precious / "lock")
        elif name == "pipe":
            os.mkfifo(folder / "lock")  # to open it would wait for a writer
        else:
            (folder / "lock").touch()
    with scratch_folder():
        pass
    assert (precious / "lock").read_text() == "kept" and link.is_symlink()
    assert {"sparkgpu-run-shared", "sparkgpu-run-linked"} <= {path.name for path in tmp_path.iterdir()}


def test_a_temporary_folder_with_a_blank_has_another_name_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (there := tmp_path / "my files").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(there))
    with scratch_folder() as folder:
        assert " " not in str(folder)
        (folder / "kept").write_text("x")
        assert [file.name for file in there.rglob("kept")] == ["kept"]
    assert not folder.parent.exists() and not list(there.iterdir())
