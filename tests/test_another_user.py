"""Two users on one machine: what one plants or tries does not reach the other's runs. Root can be both."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import COMMAND, SMALL, finished

GOLDEN = Path(__file__).parent / "golden" / "2026-11-23"
OTHER = 12346
# Root that is bound by the modes of files, as everybody else is.
AS_USER = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner")
PLANT = """
cd "$1"
mkdir -m 777 sparkgpu-run-folder sparkgpu-run-linked sparkgpu-run-pipe sparkgpu-run-file
touch sparkgpu-run-file/lock sparkgpu-run-plain
mkfifo -m 666 sparkgpu-run-pipe/lock sparkgpu-run-fifo
ln -s "$1/precious/lock" sparkgpu-run-linked/lock
for name in sparkgpu-run-link sparkgpu-ports-0 h2o-root hsperfdata_root; do ln -s "$1/precious" "$name"; done
"""
# Goes at every new folder of the other user, again and again, and tells what it got.
ATTACK = """
while sleep .1; do
    for run in "$1"/sparkgpu-run-*; do
        [ -O "$run" ] || [ -h "$run" ] && continue
        echo "saw"
        ls "$run" && echo "listed $run"
        cat "$run"/lock "$run"/*/h2o-login && echo "read $run"
        mkfifo "$run/fifo" && echo "planted in $run"
        ln -s "$1/precious" "$run/link" && echo "planted in $run"  # fails where the run just removed it
        mv "$run" "$run.moved" && echo "moved $run"
        rmdir "$run" && echo "removed $run"
    done
    grep -l CANARY /proc/[0-9]*/environ && echo "read an environment"
done 2>/dev/null
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users"),
    pytest.mark.process,
]


def other(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A shell of the other user."""
    command = ["sh", "-c", script, "sh", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd="/", env={"PATH": os.environ["PATH"]},
        user=OTHER, group=OTHER, extra_groups=[],
    )  # fmt: skip


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that all users can reach, which is not so of pytest's own."""
    with tempfile.TemporaryDirectory(prefix="two-users-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def shared(place: Path) -> Path:
    """A folder for temporary files of all users, as /tmp, with what the other one planted in it."""
    (shared := place / "tmp").mkdir()
    shared.chmod(0o1777)
    (shared / "precious").mkdir(mode=0o700)
    (shared / "precious" / "lock").write_text("kept")
    assert other(PLANT, shared).wait() == 0
    return shared


@contextmanager
def attacked(shared: Path) -> Iterator[set[str]]:
    """What the other user got, who tries during the block."""
    got: set[str] = set()
    with other(ATTACK, shared) as attacker:
        try:
            yield got
        finally:
            attacker.terminate()
        got |= set(attacker.communicate()[0].splitlines())


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--set", "trees.engine=lightgbm"), marks=pytest.mark.slow),
        pytest.param((), marks=pytest.mark.spark),
    ],
)
def test_what_another_user_plants_or_tries_in_the_temporary_folder_reaches_no_run(
    options: tuple[str, ...], wine: Path, shared: Path, place: Path
) -> None:
    before = sorted(shared.iterdir())
    command = [*COMMAND, "run", wine, "--target", "target", "--cpu-lanes", "1", *SMALL, *options]
    environ = {**os.environ, "TMPDIR": str(shared), "MINE": "CANARY"}
    with attacked(shared) as got:
        finished([*AS_USER, *command], place / "run", place, environ=environ)
    assert got == {"saw"}
    assert sorted(shared.iterdir()) == before
    assert [file.read_text() for file in (shared / "precious").iterdir()] == ["kept"]
    found = other('find "$1" -name run.toml -readable; find "$1" ! -type l -writable', place / "run")
    assert found.communicate()[0] == ""


@pytest.fixture
def golden(place: Path) -> Path:
    """A finished run, to belong to whom the test says."""
    shutil.copytree(GOLDEN, place / "run")
    return place / "run"


def given(path: Path, owner: int) -> dict[Path, tuple[int, ...]]:
    """Give a folder and its files to `owner`; others may read them. Returns their states."""
    for one in (path, *path.rglob("*")):
        os.chown(one, owner, owner, follow_symlinks=False)
    return states(path)


def states(path: Path) -> dict[Path, tuple[int, ...]]:
    found = {one: one.lstat() for one in (path, *path.rglob("*"))}
    return {one: (state.st_ino, state.st_mode, state.st_mtime_ns) for one, state in found.items()}


def said(*words: object, folder: Path) -> tuple[int, str]:
    """What a command that only may what modes allow ends with, within the seconds of a refusal."""
    command = [*AS_USER, *COMMAND, *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("owner", [0, pytest.param(OTHER, marks=pytest.mark.slow)])
def test_a_run_that_we_may_only_read_predicts_and_is_not_changed(
    golden: Path, place: Path, owner: int
) -> None:
    given(golden, owner)
    for folder in filter(Path.is_dir, (golden, *golden.rglob("*"))):
        folder.chmod(0o555)
    before = states(golden)
    for model in ("trees", "neural"):
        out = place / f"{model}.csv"
        assert said("predict", golden, "small.parquet", "--model", model, "--out", out, folder=golden) == (
            0,
            "",
        )
    for command, code in (("report", 3), ("run --resume --out", 2)):
        found, sentence = said(*command.split(), golden, folder=golden)
        assert (found, sentence.count("\n")) == (code, 1), sentence
        assert "ermission denied" in sentence and str(golden) in sentence
    assert states(golden) == before


@pytest.mark.parametrize(
    ("command", "name", "kind"),
    [
        ("report", "report", "link"),
        ("report", "metrics.json", "pipe"),
        ("run --resume --out", "running.json", "link"),
        ("run --resume --out", "lanes/0/lane.log", "link"),
        ("run --resume --out", "plan.json", "pipe"),
    ],
)
def test_nothing_is_written_through_what_another_user_planted_in_a_run_folder(
    golden: Path, place: Path, command: str, name: str, kind: str
) -> None:
    (precious := place / "precious").mkdir()
    (precious / "kept").write_text("kept")
    shutil.copy(golden / "small.parquet", place)
    (golden / name).unlink(missing_ok=True)
    (golden / name).parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        (golden / name).symlink_to(precious / ("kept" if "." in name else ""))
    else:
        os.mkfifo(golden / name)
    given(golden, OTHER)
    for folder in (golden, *golden.rglob("*")):
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o777)
    code, sentence = said(*command.split(), golden, folder=place)
    assert (code, sentence.count("\n")) == (2, 1), sentence
    assert f"{golden / name}: another user made this {kind}" in sentence
    assert [(file.name, file.read_text()) for file in precious.iterdir()] == [("kept", "kept")]
