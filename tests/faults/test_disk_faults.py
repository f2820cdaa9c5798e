"""Disks of a run fill up, can only be read any more, or lose its folder."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from injected import BOUND_S, CASE_S, OPTIONS, Case, Metrics, Outcome, half_written, injected
from running import COMMAND
from small_disks import SmallDisk

pytestmark = [pytest.mark.spark, pytest.mark.timeout(CASE_S)]

NO_JVM = ("--set", "trees.engine=lightgbm")
TAKEN_AWAY = ("no space", "only read")
Undisturbed = Callable[..., Metrics]


def removed(folder: Path) -> None:
    while folder.exists():  # something is written there meanwhile
        shutil.rmtree(folder, ignore_errors=True)


def inject(case: Case, disk: SmallDisk, fault: str) -> None:
    case.inject(disk.fill if fault == "no space" else disk.only_read)


def ends_on(disk: SmallDisk, case: Case, outcome: Outcome, **promised: object) -> None:
    """Wait for the end, mend the disk, and check. Nobody can remove a file from a disk that is only read."""
    was_read_only = disk.only_reads
    case.run.wait(BOUND_S)
    seconds = time.monotonic() - case.since
    disk.mend()
    if was_read_only:
        for file in [case.run.paths.running, *half_written(case.run.paths.root)]:
            file.unlink(missing_ok=True)
        for folder in case.temporary.iterdir():
            shutil.rmtree(folder)
    case.since = time.monotonic() - seconds
    case.ends(outcome, **promised)  # type: ignore[arg-type]


@pytest.mark.fault
@pytest.mark.parametrize("fault", TAKEN_AWAY)
@pytest.mark.parametrize("phase", ["start", "preparation"])
def test_a_run_folder_that_cannot_be_written_is_refused_before_there_is_a_table(
    fault: str, phase: str, wine: Path, disk: Callable[..., SmallDisk], tmp_path: Path
) -> None:
    full_at_once = (fault, phase) == ("no space", "start")  # one page, which the name of its owner takes
    folder = disk(tmp_path / "out", "4k" if full_at_once else "400m")
    with injected(f"{fault}: run folder", phase, wine, tmp_path) as case:
        if phase != "start":
            case.reach(phase)
        if not full_at_once:
            inject(case, folder, fault)
        said = "the disk is full" if fault == "no space" else "[Rr]ead-only"
        code = 2 if (fault, phase) == ("only read", "start") else 3
        ends_on(
            folder, case, "refused", code=code, said=rf"{said}.*{tmp_path / 'out'}|{tmp_path / 'out'}.*{said}"
        )


@pytest.mark.fault
@pytest.mark.parametrize("fault", TAKEN_AWAY)
@pytest.mark.parametrize("phase", ["training", "report"])
def test_a_run_folder_that_cannot_be_written_any_more_is_resumed_once_it_can(
    fault: str,
    phase: str,
    wine: Path,
    undisturbed: Undisturbed,
    disk: Callable[..., SmallDisk],
    tmp_path: Path,
) -> None:
    folder = disk(tmp_path / "out")
    with injected(f"{fault}: run folder", phase, wine, tmp_path, *NO_JVM) as case:
        case.reach(phase, "neural")
        inject(case, folder, fault)
        ends_on(
            folder, case, "resumable", code=3, whole=lambda: undisturbed(*NO_JVM),
            said=r"Then `sparkgpu run --resume --out .*out` goes on from here\.",
        )  # fmt: skip


def test_a_full_disk_ends_a_run_with_a_sentence_and_it_can_be_resumed(
    wine: Path, disk: Callable[..., SmallDisk], call: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """The fast part: one full disk without a JVM. That resumed runs finish, others show."""
    folder = disk(tmp_path / "out", "40m")
    with injected("no space: run folder", "training, fast", wine, tmp_path, *NO_JVM) as case:
        case.reach("training", "neural")
        inject(case, folder, "no space")
        assert case.run.wait(BOUND_S) == 3
        folder.mend()
        case.nothing_left()
        root = case.run.paths.root
        assert case.run.stderr == (
            f"sparkgpu: the disk is full ({root}). Free some space, or choose folders on another disk with "
            f"--out and TMPDIR. Then `sparkgpu run --resume --out {root}` goes on from here.\n"
        )
        code, said, _ = call("run", "--resume", "--out", root, "--dry-run")
        assert code == 0 and "neural-s7" in said
        case.line |= {"outcome": "resumable", "code": 3}


@pytest.mark.fault
@pytest.mark.parametrize(
    ("fault", "phase", "outcome"),
    [
        ("no space", "starting Spark", "refused"),
        ("no space", "starting H2O", "resumable"),
        ("no space", "training", "finished"),
        ("only read", "starting Spark", "refused"),
        ("only read", "starting H2O", "resumable"),
        ("only read", "training", "finished"),
    ],
)
def test_a_temporary_folder_that_cannot_be_written_is_told(
    fault: str, phase: str, outcome: Outcome, wine: Path, undisturbed: Undisturbed,
    disk: Callable[..., SmallDisk], tmp_path: Path,
) -> None:  # fmt: skip
    scratch = disk(tmp_path / "tmp")
    with injected(f"{fault}: TMPDIR", phase, wine, tmp_path) as case:
        case.reach(phase)
        inject(case, scratch, fault)
        words = "the disk is full" if fault == "no space" else "read-only file system"
        promised = {
            "refused": {"code": 3, "said": f"{words}.*TMPDIR"},
            "resumable": {"code": 5, "said": "(?i)trees-s7 failed: .*(No space left|disk is full|read-only)"},
            "finished": {"code": 0},
        }[outcome]
        ends_on(scratch, case, outcome, whole=undisturbed, **promised)


@pytest.mark.fault
@pytest.mark.parametrize("phase", ["preparation", "training", "report"])
def test_a_run_whose_folder_is_removed_ends_and_leaves_no_piece_of_it(
    phase: str, wine: Path, tmp_path: Path
) -> None:
    options = () if phase == "preparation" else NO_JVM
    with injected("run folder removed", phase, wine, tmp_path, *options) as case:
        case.reach(phase, "trees" if phase == "preparation" else "neural")
        case.inject(lambda: removed(case.run.paths.root))
        case.ends("refused", code=3, said="somebody removed the folder while the run used it")
        assert not case.run.paths.root.exists()


@pytest.mark.fault
@pytest.mark.parametrize("phase", ["training", "scores", "finished"])
def test_a_resumed_run_in_a_read_only_folder_is_refused(
    phase: str, wine: Path, disk: Callable[..., SmallDisk], tmp_path: Path
) -> None:
    folder = disk(tmp_path / "out")
    command = [*COMMAND, "run", wine, *OPTIONS, *NO_JVM]
    (tmp_path / "first").mkdir()
    with injected("--resume, read-only folder", phase, wine, tmp_path, command=command) as case:
        if phase == "finished":
            assert case.run.wait(BOUND_S) == 0
        else:
            case.reach(phase, "neural")
            case.run.signal(signal.SIGKILL)
            case.run.process.wait()
    folder.only_read()
    before = sorted(file for file in folder.place.rglob("*"))
    command = [*COMMAND, "run", "--resume"]
    with injected("--resume, read-only folder", phase, wine, tmp_path, command=command) as case:
        case.inject(lambda: None)
        case.run.wait(BOUND_S)
        assert sorted(file for file in folder.place.rglob("*")) == before
        ends_on(folder, case, "refused", code=2, said=r"out: cannot be written \(Read-only file system\)")


@pytest.mark.fault
@pytest.mark.parametrize("kilobytes", [4, 16, 40])
def test_a_limit_on_the_size_of_files_is_told(kilobytes: int, wine: Path, tmp_path: Path) -> None:
    limited = ["prlimit", f"--fsize={kilobytes * 1024}", *COMMAND, "run", wine, *OPTIONS, *NO_JVM]
    with injected("ulimit -f", f"{kilobytes} kB", wine, tmp_path, command=limited) as case:
        case.inject(lambda: None)
        case.ends("refused", code=3, said=r"file too large .*`ulimit -f`")
