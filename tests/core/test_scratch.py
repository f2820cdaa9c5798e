"""The scratch folder is private, ends with its run, and the next run removes those of dead runs."""

from __future__ import annotations

import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkgpu.core.host.reservations import scratch_folder, sweep

HOLD = """
import sys
from sparkgpu.core.host.reservations import scratch_folder
with scratch_folder() as folder:
    (folder / "library.so").write_bytes(b"x" * 100)
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@contextmanager
def another_run() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_the_folder_is_private_and_gone_afterwards_also_after_an_error(tmp_path: Path) -> None:
    other = tmp_path / "somebody-elses"
    other.mkdir()
    (other / "lock").touch()
    with pytest.raises(KeyboardInterrupt), scratch_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "file").touch()
        raise KeyboardInterrupt
    assert not folder.exists() and other.exists()
    with another_run() as (process, folder):
        process.communicate(timeout=5)
        assert process.returncode == 0 and not folder.exists()


def test_the_folder_of_a_killed_run_is_swept_by_the_next_one_and_that_of_a_live_run_is_kept() -> None:
    with another_run() as (dead, left), another_run() as (_, live):
        dead.kill()
        dead.wait(timeout=5)
        assert (left / "library.so").exists()
        with scratch_folder() as own:
            assert not left.exists()
            assert (live / "library.so").exists()
            sweep()
            assert own.exists()
            assert (live / "library.so").exists()
