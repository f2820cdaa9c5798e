"""Load that shifts the timing of a run, drawn from a seed: see `benchmarks/soak.py`.

Busy processes that start and stop, another nice level, fewer cores (a CPU control group, v1 or v2), a slow
file system (`benchmarks/slow_disk.py`) and an empty file cache. `find_means` reports what this machine does
not allow; the load then does without it.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_PERIOD_US = 100_000
_BOUND_S = 10.0
# The nice level of the control group and its weight there (sched_prio_to_weight): between sessions a level
# of a process may count for nothing (sched_autogroup_enabled). No 19: a run that starves looks like one that
# hangs.
_GROUP_NICE = {0: 0, 5: 5, 10: 10, 19: 10}
_WEIGHTS = {0: 1024, 5: 335, 10: 110}


@dataclass(frozen=True, kw_only=True)
class Means:
    """What this machine allows: our own CPU control group, a slow file system."""

    cpu_group: bool
    slow_disk: bool


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load on one run. `cores` and `delay_ms` are None for no limit."""

    cold: bool = False
    nice: int = 0
    spinners: int = 0
    cores: float | None = None
    delay_ms: float | None = None
    seed: int = 0

    def __str__(self) -> str:
        words = ["cold"] if self.cold else []
        words += [f"nice {self.nice}"] if self.nice else []
        words += [f"{self.spinners} busy"] if self.spinners else []
        words += [f"{self.cores:g} cores"] if self.cores else []
        words += [f"disk +{self.delay_ms:g} ms"] if self.delay_ms else []
        return ", ".join(words) or "no load"


def draw(seed: str, means: Means, *, cold: bool) -> Load:
    """The load of one run: the same for the same seed on machines that allow the same."""
    chance = random.Random(seed)
    load = Load(
        cold=cold,
        nice=chance.choice((0, 5, 10, 19)),
        spinners=chance.randint(1, 3),
        cores=chance.choice((None, None, 1.0, 1.25, 1.5)),
        delay_ms=chance.choice((None, None, 1.0, 2.0, 4.0)),
        seed=chance.randrange(2**31),
    )
    kept = {
        "cores": load.cores if means.cpu_group else None,
        "delay_ms": load.delay_ms if means.slow_disk else None,
    }
    return Load(**{**vars(load), **kept})


def find_means(folder: Path) -> tuple[Means, list[str]]:
    """Try in `folder` what this machine allows. Also returns a sentence for each thing it does not allow."""
    said = []
    try:
        with _cpu_group(1.0, nice=0):
            cpu_group = True
    except OSError as error:
        cpu_group = False
        said.append(f"Fewer cores are left out: no CPU control group can be made ({error}).")
    probe, mount = folder / "probe", folder / "probe-mount"
    probe.mkdir()
    try:
        with _slow_disk(probe, mount, 1.0):
            slow_disk = True
    except OSError as error:
        slow_disk = False
        said.append(f"The slow file system is left out: {error}.")
    probe.rmdir()
    return Means(cpu_group=cpu_group, slow_disk=slow_disk), said


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A load that is active: `folder` holds the run's files, seen through the slow file system if any."""

    folder: Path
    group: Path | None
    nice: int

    def start(self, command: list[str], log: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            process = subprocess.Popen(
                ["nice", "-n", str(self.nice), *command],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=log.parent, env=environ,
                start_new_session=True,
            )  # fmt: skip
        if self.group:  # Python has only just started: it has no children yet
            with suppress(ProcessLookupError):
                (self.group / "cgroup.procs").write_text(str(process.pid), encoding="ascii")
        return process


@contextmanager
def loaded(load: Load, means: Means, folder: Path, mount: Path) -> Iterator[Loaded]:
    """Keep `load` active for the block; with a slow file system, `folder` is visible at `mount`."""
    with ExitStack() as stack:
        group = None
        if means.cpu_group and (load.cores or load.nice):
            group = stack.enter_context(_cpu_group(load.cores, load.nice))
        seen = folder
        if load.delay_ms:
            seen = stack.enter_context(_slow_disk(folder, mount, load.delay_ms))
        if load.cold:
            drop_caches()
        for number in range(load.spinners):
            stack.enter_context(_spinner(f"{load.seed}-{number}"))
        yield Loaded(folder=seen, group=group, nice=load.nice)


def drop_caches() -> None:
    """Empty the machine's file cache. Raises PermissionError for anyone but root."""
    os.sync()
    _DROP_CACHES.write_text("3\n", encoding="ascii")


@contextmanager
def _cpu_group(cores: float | None, nice: int) -> Iterator[Path]:
    quota = round(cores * _PERIOD_US) if cores else None
    name = f"sparkgpu-soak-{os.getpid()}-{time.monotonic_ns()}"
    if (_GROUPS / "cpu" / "cpu.cfs_quota_us").exists():
        group = _GROUPS / "cpu" / name
        wanted = {"cpu.cfs_quota_us": str(quota or -1), "cpu.shares": str(_WEIGHTS[_GROUP_NICE[nice]])}
    else:
        group = _GROUPS / name
        wanted = {"cpu.max": f"{quota or 'max'} {_PERIOD_US}", "cpu.weight.nice": str(_GROUP_NICE[nice])}
    group.mkdir()
    try:
        for file, text in wanted.items():
            (group / file).write_text(text, encoding="ascii")
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Remove the group when its last process is gone; the kernel may need a moment. Otherwise it stays."""
    deadline = time.monotonic() + _BOUND_S
    while group.exists() and time.monotonic() < deadline:
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)


@contextmanager
def _slow_disk(folder: Path, mount: Path, delay_ms: float) -> Iterator[Path]:
    if not Path("/dev/fuse").exists() or shutil.which("umount") is None:
        raise OSError("there is no /dev/fuse or no umount here")
    mount.mkdir()
    program = Path(__file__).with_name("slow_disk.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(folder), str(mount), str(delay_ms)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + _BOUND_S
        while not mount.is_mount():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                said = process.communicate()[0].decode(errors="replace").strip().splitlines()
                raise OSError(said[-1] if said else f"nothing was mounted within {_BOUND_S:g} s")
            time.sleep(0.02)
        yield mount
    finally:
        # A lazy unmount: if the run still holds a file there, the watch reports it, not this function.
        subprocess.run(["umount", "--lazy", str(mount)], stderr=subprocess.DEVNULL, check=False)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_BOUND_S)
        process.kill()
        process.wait()
        mount.rmdir()


@contextmanager
def _spinner(seed: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, __file__, seed], start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _spin(seed: str) -> None:
    """Use a core for 0.1 to 3 s, rest for a random time of the same range, and repeat."""
    chance = random.Random(seed)
    while True:
        end = time.monotonic() + chance.uniform(0.1, 3)
        while time.monotonic() < end:
            pass
        time.sleep(chance.uniform(0.1, 3))


if __name__ == "__main__":
    from sparkgpu.core.host.processes import die_with_parent

    die_with_parent()
    _spin(sys.argv[1])
