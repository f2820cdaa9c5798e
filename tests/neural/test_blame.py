"""Of several ranks that are gone the one at fault is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkgpu.core.rundir.files import write_json
from sparkgpu.neural.launchers.gang import loss

RANK = """
import sys, time
from pathlib import Path
from sparkgpu.neural.launchers.heartbeat import Heartbeat
heartbeat = Heartbeat(Path(sys.argv[1]), int(sys.argv[2]))
print("there", flush=True)
time.sleep(600)
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three ranks of a first attempt that only beat."""
    attempt = tmp_path / "attempt-0"
    command = [sys.executable, "-c", RANK, str(attempt)]
    found = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE) for rank in range(3)]
    for rank in found:
        assert rank.stdout is not None and rank.stdout.readline() == b"there\n"
    yield found
    for rank in found:
        rank.kill()
        rank.wait()


def killed_first(attempt: Path, ranks: list[subprocess.Popen[bytes]]) -> None:
    ranks[2].kill()  # as torchrun's agent does, once it has seen it, the others are asked to end


def two_failed(attempt: Path, ranks: list[subprocess.Popen[bytes]]) -> None:
    for number, (message, at) in enumerate([("OSError: a peer has gone", 9.0), ("KeyError: 'x'", 7.0)]):
        write_json(attempt / f"rank-{number}.error.json", {"message": message, "at": at})


def never_started(attempt: Path, ranks: list[subprocess.Popen[bytes]]) -> None:
    (attempt / "rank-1.heartbeat").unlink()


@pytest.mark.parametrize(
    ("happen", "words"),
    [
        (killed_first, "rank 2 of 3 was killed (out of memory?); it wrote nothing"),
        (two_failed, "rank 1 of 3 failed with KeyError: 'x'"),
        (never_started, "rank 1 of 3 never started; it wrote nothing"),
    ],
)
def test_the_first_rank_at_fault_is_blamed_and_not_those_that_were_then_asked_to_end(
    tmp_path: Path,
    ranks: list[subprocess.Popen[bytes]],
    happen: Callable[[Path, list[subprocess.Popen[bytes]]], None],
    words: str,
) -> None:
    happen(tmp_path / "attempt-0", ranks)
    for rank in ranks:
        rank.terminate()
        rank.wait()
    assert loss(tmp_path / "attempt-0", 3, tmp_path / "logs") == words
