"""Watches one run from outside: its processes, its stacks and what it leaves; see `benchmarks/soak.py`.

A process belongs to the run if it was seen below it, if its command names one of the run's folders, or if its
environment holds the run's mark. So short-lived and orphaned processes are found as well.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from sparkgpu.core.rundir.events import EventReader
from sparkgpu.core.rundir.paths import RunPaths

MARK = "SPARKGPU_SOAK"
_SHARED_MEMORY = Path("/dev/shm")
_SETTLE_S = 2.0
_STACKS_S = 15.0


class Watch:
    """The processes of one run and its folder `out`, which has a unique name. Made before the run starts."""

    def __init__(self, mark: str, out: Path) -> None:
        self._mark = mark
        self.paths = RunPaths(root=out)
        self._seen: dict[int, psutil.Process] = {}
        self._scratch: set[Path] = set()
        self._before = _leavable()
        self._events: dict[Path, EventReader] = {}
        self.first_tree_at: float | None = None
        """Seconds since the epoch."""
        self.retried = 0

    def look(self, pid: int) -> None:
        """Take one sample of the run's processes and read its workers' reports."""
        with suppress(psutil.Error):
            root = psutil.Process(pid)
            for process in (root, *root.children(recursive=True)):
                self._seen[process.pid] = process
                with suppress(psutil.Error):
                    words = process.cmdline()
                    if "--scratch" in words[:-1]:
                        self._scratch.add(Path(words[words.index("--scratch") + 1]).parent)
        for file in self.paths.root.glob("lanes/*/*.events.jsonl"):
            for event in self._events.setdefault(file, EventReader(file)).new():
                if event.kind == "phase" and event.text.startswith("hung"):
                    self.retried += 1
                elif self.first_tree_at is None and file.name.startswith("trees."):
                    grown = event.kind == "progress" and event.done
                    self.first_tree_at = event.at if grown or event.kind == "trial_done" else None

    def left(self) -> list[str]:
        """What is left of the run two seconds after its end; the kernel needs a moment to clean up."""
        deadline = time.monotonic() + _SETTLE_S
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def _left(self) -> list[str]:
        alive = {process.pid: process for process in self.alive()}
        found = [f"process {pid} {_command(process)[:120]}" for pid, process in alive.items()]
        found += [
            f"port {one.laddr.port} of process {one.pid}"
            for one in psutil.net_connections("tcp")
            if one.laddr and one.status == psutil.CONN_LISTEN and one.pid in alive
        ]
        own = self._seen.keys() | alive.keys()
        locks = _locks()
        found += [f"lock on inode {inode} of process {pid}" for inode, pid in locks.items() if pid in own]
        new = _leavable() - self._before
        used = _used_by_others({file for file in new if file.parent == _SHARED_MEMORY}, own)
        for path in sorted(new):
            # Other runs on this machine may hold ports and locks, too.
            with suppress(FileNotFoundError):
                holder = locks.get((path / "lock").stat().st_ino) if path.is_dir() else None
                if path in self._scratch or not (path in used or (holder and holder not in own)):
                    found.append(str(path))
        return found

    def alive(self) -> list[psutil.Process]:
        """The run's processes that are alive now."""
        folders = [self.paths.root.name, *map(str, self._scratch)]  # by name, since it may be mounted twice
        found = []
        for process in psutil.process_iter():
            if process.pid == os.getpid():
                continue
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and (
                    self._seen.get(process.pid) == process
                    or any(folder in _command(process) for folder in folders)
                    or process.environ().get(MARK) == self._mark
                ):
                    found.append(process)
        return found

    def demand(self) -> dict[str, float]:
        """Seconds of processor time that each living thread of the run has used or waited for."""
        found = {}
        for process in self.alive():
            for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
                with suppress(OSError):
                    had, waited, _ = file.read_text(encoding="ascii").split()
                    found[file.parent.name] = (int(had) + int(waited)) / 1e9
        return found

    def end(self, run: subprocess.Popen[bytes], within_s: float) -> str:
        """End the run as Ctrl-C does, or kill it if that fails. Returns which of the two it took."""
        run.send_signal(signal.SIGINT)
        how = "ended on SIGINT"
        deadline = time.monotonic() + within_s
        while run.poll() is None:
            self.look(run.pid)
            if time.monotonic() > deadline:
                how = f"had to be killed {within_s:g} s after SIGINT"
                run.kill()
                run.wait()
            time.sleep(0.05)
        return how

    def kill(self) -> None:
        """Kill what is left of the run, scratch folders included."""
        for process in self.alive():
            with suppress(psutil.Error):
                process.kill()
        for folder in self._scratch:
            shutil.rmtree(folder, ignore_errors=True)

    def keep_stacks(self, file: Path) -> None:
        """What each process of the run is doing: its state in the kernel, and its stacks if available.

        A JVM prints its stacks into lane.log on SIGQUIT; py-spy gives those of Python, if installed.
        """
        py_spy = shutil.which("py-spy")
        alive = self.alive()
        for process in alive:
            with suppress(psutil.Error):
                if process.name() == "java":
                    process.send_signal(signal.SIGQUIT)
        with file.open("w", encoding="utf-8") as text:
            if py_spy is None:
                text.write("py-spy is not installed: the stacks of Python are missing.\n")
            for process in alive:
                with suppress(psutil.Error, OSError):
                    text.write(f"\n== {process.pid} {process.status()} {_command(process)}\n")
                    text.write(_kernel_stacks(process.pid))
                    if py_spy and process.name().startswith("python"):
                        text.write(_python_stacks(py_spy, process.pid))
        _until_quiet(list(self.paths.root.glob("lanes/*/lane.log")))


def _command(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def _leavable() -> set[Path]:
    """Scratch folders of runs, and files in shared memory."""
    return {*Path(tempfile.gettempdir()).glob("sparkgpu-run-*"), *_SHARED_MEMORY.glob("*")}


def _locks() -> dict[int, int]:
    """Inode to process, for every lock that is held; a child process can keep its parent's lock."""
    found = {}
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        words = line.split()
        if "->" not in words:  # somebody waits for this lock but does not hold it
            found[int(words[5].rpartition(":")[2])] = int(words[4])
    return found


def _used_by_others(files: set[Path], own: set[int]) -> set[Path]:
    """The files among `files` that processes outside the run have open or mapped."""
    used: set[Path] = set()
    if files:
        for process in psutil.process_iter():
            with suppress(OSError):
                if process.pid not in own:
                    places = Path(f"/proc/{process.pid}")
                    opened = {Path(os.readlink(one)) for one in (places / "fd").iterdir()}  # noqa: PTH115
                    maps = (places / "maps").read_text(encoding="utf-8", errors="replace")
                    used |= {file for file in files if file in opened or str(file) in maps}
    return used


def _kernel_stacks(pid: int) -> str:
    found = ""
    for thread in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda one: int(one.name)):
        with suppress(OSError):
            name, state, place = (
                (thread / one).read_text(encoding="utf-8").strip() for one in ("comm", "stat", "wchan")
            )
            found += f"thread {thread.name} {name}: {state.rpartition(') ')[2][0]} in {place}\n"
    return found


def _python_stacks(py_spy: str, pid: int) -> str:
    # Nonblocking, since py-spy would wait forever for a process that is already stopped.
    command = [py_spy, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_STACKS_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"py-spy: no answer within {_STACKS_S:g} s\n"
    return done.stdout + done.stderr


def _until_quiet(logs: list[Path]) -> None:
    """Wait until no log has grown for a second, so that a JVM's output is complete."""
    deadline = time.monotonic() + _STACKS_S
    sizes, since = [-1], time.monotonic()
    while time.monotonic() < min(deadline, since + 1.0):
        now = [log.stat().st_size for log in logs if log.exists()]
        if now != sizes:
            sizes, since = now, time.monotonic()
        time.sleep(0.05)
