"""The machine of a run: its memory is exhausted, its clock jumps, it allows few threads or no /dev/shm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from injected import BOUND_S, CASE_S, OPTIONS, Metrics, injected
from running import COMMAND, until
from small_disks import SmallDisk
from test_process_faults import AGAIN, GANG, SOON
from test_surroundings_faults import OCCASIONS, WITHOUT_JVM, changed

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(CASE_S)]

OTHER = 54_321
MEMORY = Path("/sys/fs/cgroup/memory")
LIMIT, ROOM, MORE = 3328 << 20, 1280 << 20, 100 << 20
JUMPING = """
import os, time
_real = time.time
def _jumped():
    try:
        with open(os.environ["JUMP_FILE"]) as file:
            return _real() + float(file.read())
    except OSError:
        return _real()
time.time = _jumped
"""
IN_A_MOUNT = 'mount -t tmpfs -o size=4k{mode} tmpfs /dev/shm && {{ {fill}; exec "$@"; }}'


@pytest.fixture
def memory() -> Iterator[Callable[[int], Path]]:
    """Makes a control group with so many bytes of memory, in which the kernel kills if that is too little."""
    group = MEMORY / f"sparkgpu-{os.getpid()}"

    def limited(size: int) -> Path:
        try:
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text(str(size))
        except OSError as error:
            pytest.skip(f"needs a control group of memory: {error}")
        return group

    yield limited
    with suppress(FileNotFoundError):
        group.rmdir()


@pytest.fixture
def no_memory(memory: Callable[[int], Path]) -> Path:
    """A control group in which the kernel kills whoever needs one more page."""
    return memory(65_536)


def figure(group: Path, file: str, name: str) -> int:
    """One figure of a control group."""
    found = re.search(rf"^{name} (\d+)$", (group / file).read_text(), re.MULTILINE)
    assert found
    return int(found.group(1))


def inside(group: Path, command: Iterable[str | Path]) -> list[str | Path]:
    """The command as a member of the group."""
    return ["bash", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "--", *command]


@pytest.mark.parametrize("megabytes", [120, 240, 310])
def test_a_limit_of_memory_around_a_run_costs_what_the_kernel_kills(
    megabytes: int,
    wine: Path,
    memory: Callable[[int], Path],
    undisturbed: Callable[..., Metrics],
    tmp_path: Path,
) -> None:
    """The kernel kills the largest process, which is a worker or the run itself."""
    group = memory(megabytes << 20)
    command = inside(group, [*COMMAND, "run", wine, *OPTIONS, *WITHOUT_JVM])
    with injected("a limit of memory", f"{megabytes} MB", wine, tmp_path, command=command) as case:
        until(lambda: figure(group, "memory.oom_control", "oom_kill") > 0, "a kill", 60, case.run.process)
        case.inject(lambda: None)
        killed = case.run.wait(BOUND_S) == -signal.SIGKILL
        said = "" if killed else r"was killed by signal 9 \(out of memory\?\)"
        code = -signal.SIGKILL if killed else 5
        case.ends("resumable", code=code, said=said, whole=lambda: undisturbed(*WITHOUT_JVM))


@pytest.mark.parametrize("phase", ["preparation", "writing the table", "training"])
def test_files_in_memory_that_take_the_rest_cost_what_the_kernel_kills(
    phase: str, wine: Path, memory: Callable[[int], Path], disk: Callable[..., SmallDisk],
    undisturbed: Callable[..., Metrics], tmp_path: Path,
) -> None:  # fmt: skip
    group, file = memory(LIMIT), disk(tmp_path / "files", "4g").place / "filler"

    def take(size: int) -> None:
        with file.open("ab") as filler:
            subprocess.run(inside(group, ["head", "-c", str(size), "/dev/zero"]), stdout=filler, check=True)

    command = inside(group, [*COMMAND, "run", wine, *OPTIONS, *SOON])
    with injected("files in memory take the rest", phase, wine, tmp_path, command=command) as case:
        case.reach("start")
        take(LIMIT - ROOM)  # before, since it takes seconds
        case.reach(phase)
        case.inject(lambda: take(ROOM - figure(group, "memory.stat", "total_rss") + MORE))
        case.run.wait(BOUND_S)
        assert figure(group, "memory.oom_control", "oom_kill") > 0
        said = r"its Java ended or does not answer|was killed by signal 9 \(out of memory\?\)"
        case.ends("resumable", code=5, said=said, whole=lambda: undisturbed(*SOON))


@pytest.mark.parametrize("phase", ["reading the source", "fitting the feature pipeline", "writing the table"])
@pytest.mark.parametrize("how", ["the kernel kills", "the kernel refuses"])
def test_a_python_worker_of_spark_whose_memory_is_exhausted_is_told(
    how: str, phase: str, parted: Path, no_memory: Path, tmp_path: Path
) -> None:
    with injected(f"no memory, {how}: Spark's Python worker", phase, parted, tmp_path, *SOON) as case:
        case.reach(phase)
        case.process("Python worker of Spark")
        found = case.processes("Python worker of Spark")
        case.inject(lambda: None)
        for process in found:
            if how == "the kernel kills":
                (no_memory / "cgroup.procs").write_text(str(process.pid))
            else:
                process.rlimit(psutil.RLIMIT_AS, (1 << 20, 1 << 20))
        if case.run.wait(BOUND_S) == 0:  # it needed no more: such a small table is written elsewhere
            case.ends("finished", code=0)
        else:
            case.ends("refused", code=5, said="a Python worker of Spark was killed|memory is exhausted")


@pytest.mark.parametrize(
    ("role", "phase"),
    [
        *(("tree worker", phase) for phase in ("preparation", "training", "prediction")),
        *(("neural worker", phase) for phase in ("start", "training", "prediction")),
        *(("JVM", phase) for phase in ("start", "writing the table", "training")),
    ],
)
def test_a_process_whose_memory_is_exhausted_is_made_up_for(
    role: str, phase: str, wine: Path, no_memory: Path, undisturbed: Callable[..., Metrics], tmp_path: Path
) -> None:
    with injected(f"no memory: {role}", phase, wine, tmp_path, *SOON) as case:
        process = case.process(role)
        case.reach(phase, "neural" if role == "neural worker" else "trees")
        case.inject(lambda: (no_memory / "cgroup.procs").write_text(str(process.pid)))
        code, said = 5, "its Java ended or does not answer" if role == "JVM" else "out of memory"
        if (role, phase) == ("JVM", "start"):
            code, said = 3, "the Java in .* ended with status .* before Spark was up"
        case.ends("resumable", code=code, said=said, whole=lambda: undisturbed(*SOON))


@pytest.mark.parametrize("phase", ["start", "training", "prediction"])
def test_a_rank_whose_memory_is_exhausted_starts_again(
    phase: str, wine: Path, no_memory: Path, tmp_path: Path
) -> None:
    with injected("no memory: rank", phase, wine, tmp_path, *GANG) as case:
        case.reach("reading" if phase == "start" else phase, "neural")
        case.process("rank")
        rank = case.processes("rank")[-1]
        case.inject(lambda: (no_memory / "cgroup.procs").write_text(str(rank.pid)))
        case.ends("finished", code=0, said="" if phase == "prediction" else AGAIN)


@pytest.mark.parametrize("megabytes", [16, 40, 64])
def test_a_java_heap_that_is_too_small_is_told(
    megabytes: int, wine: Path, java: Path, tmp_path: Path
) -> None:
    """By a Java that takes another -Xmx, since the run passes on no options of Java from outside."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    for file in [*java.iterdir(), *(java / "bin").iterdir()]:
        if file.name != "java" and file != java / "bin":
            (home / file.relative_to(java)).symlink_to(file)
    small = f'case $word in -Xm*) word="-Xmx{megabytes}m";; esac; set -- "$@" "$word"; shift'
    (home / "bin" / "java").write_text(
        f'#!/bin/bash\nfor word; do {small}; done\nexec "{java}/bin/java" "$@"\n'
    )
    (home / "bin" / "java").chmod(0o755)
    own = changed({"JAVA_HOME": str(home)})
    with injected("a Java heap too small", f"{megabytes} MB", wine, tmp_path, environ=own) as case:
        assert case.run.wait(60) in (3, 5)
        case.line |= {"outcome": "refused", "code": case.run.process.returncode}
        assert "Traceback" not in case.run.stderr + case.run.stdout
        assert re.search(r"(?i)memory|heap|Java", case.run.stderr), case.run.stderr
        case.nothing_left()


@pytest.mark.parametrize("phase", ["preparation", "training", "report"])
@pytest.mark.parametrize(("fault", "seconds"), [("a day forward", 86_400), ("an hour back", -3_600)])
def test_a_clock_that_jumps_changes_nothing(
    fault: str, seconds: int, phase: str, wine: Path, undisturbed: Callable[..., Metrics], tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(JUMPING)
    jump, paths = tmp_path / "jump", [str(tmp_path / "site"), *os.environ["PYTHONPATH"].split(os.pathsep)]
    own = changed({"JUMP_FILE": str(jump), "PYTHONPATH": os.pathsep.join(paths)})
    options = (*WITHOUT_JVM, "--set", "time_limit=10m", "--set", "repeats=1")
    with injected(f"the clock jumps {fault}", phase, wine, tmp_path, *options, environ=own) as case:
        case.reach(phase, "neural" if phase == "training" else "trees")
        case.inject(lambda: jump.write_text(str(seconds)))
        case.ends("finished", code=0)
        for name in ("models", "comparison"):
            assert case.run.metrics[name] == undisturbed(*options)[name]
        assert 0 < case.run.metrics["run"]["wall_s"] < CASE_S


@pytest.mark.parametrize("occasion", OCCASIONS)
@pytest.mark.parametrize(
    ("fault", "mode", "fill"),
    [("no space", "", "cat /dev/zero > /dev/shm/filler 2> /dev/null"), ("only read", ",ro", "true")],
)
def test_runs_do_without_shared_memory(
    fault: str, mode: str, fill: str, occasion: str, wine: Path, tmp_path: Path
) -> None:
    shell = ["unshare", "-m", "bash", "-c", IN_A_MOUNT.format(mode=mode, fill=fill), "--"]
    command = [*shell, *COMMAND, "run", wine, *OPTIONS, *OCCASIONS[occasion]]
    with injected(f"{fault}: /dev/shm", occasion, wine, tmp_path, command=command) as case:
        case.ends("finished", code=0, within_s=150)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("processes", [5, 20, 60])
def test_too_few_threads_are_told(processes: int, wine: Path, tmp_path: Path) -> None:
    """As a user who may read all files, since the limit does not hold for root."""
    user = ["setpriv", f"--reuid={OTHER}", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    command = ["prlimit", f"--nproc={processes}", *user, *COMMAND, "run", wine, *OPTIONS]
    with TemporaryDirectory(dir="/tmp") as cache:  # matplotlib asks for one that needs no privilege
        os.chown(cache, OTHER, OTHER)
        own = changed({"MPLCONFIGDIR": cache})
        with injected("ulimit -u", str(processes), wine, tmp_path, command=command, environ=own) as case:
            case.ends("refused", code=3, said="ulimit -u|the Java in .* ended with status 1")
