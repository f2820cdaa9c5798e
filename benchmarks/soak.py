"""Starts small runs one after the other under load that shifts their timing; none may hang or leave a trace.

    python benchmarks/soak.py [TABLE.parquet:TARGET ...] [--runs 200] [--cold] [--no-load] [--seed N]
    python benchmarks/soak.py --large 60 --cold --starts      # only starts, until the first tree is built
    python benchmarks/soak.py --runs 50 --no-load --at-once 3 --users 12345,12346     # as root

Without tables it uses two small ones of scikit-learn. `--large N` adds N runs on a generated table of a
million rows and 30 columns. The seed decides the load of each run, and the report records it: busy processes
that start and stop, a nice level, fewer cores, a slow file system below the table and the run. `--cold` also
empties the file cache before each start. The program names what the machine does not allow and does without
it (root may do most; the slow file system needs /dev/fuse, libfuse and `pip install mfusepy`).

`--at-once N` does N runs at the same time. `--users` starts them as these users in turn, who read the same
tables; at the end no process of theirs and no file in a temporary folder may be left, and what a further
user has there must be as it was.

It prints one line per run: how it ended, its wall seconds, the seconds until its first tree, how many hung
workers it restarted, and what was left two seconds after its end (processes, ports, locks, scratch folders,
shared memory). A run that takes longer than `--within` seconds counts as hung. If it still asks for processor
time, it is only starved and gets three times as long. The stacks of a hung run's processes are saved (those
of Python with `py-spy`, if installed) and the run is ended. `--keep` holds the folder of every run that was
not clean, without its rows. Each result is added to `--out` at once. `--resume-report FILE` continues such a
file: its runs count, and only the rest is run. Exit status 1 if a run hung, failed or left something, 130
after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
from soak_load import Load, Means, draw, drop_caches, find_means, loaded
from soak_tables import Table, write_tables
from soak_users import Users
from soak_watch import MARK, Watch

from sparkgpu.runs.provenance import versions

_SAMPLE_S = 0.5
_ENDING_S = 30.0
_DEMAND_S = 5.0


@dataclass(kw_only=True)
class Result:
    """One run, as a line of `--out`. `end` is done, failed or hung; `started_at` is since the epoch."""

    number: int
    table: str
    load: str
    seed: str
    started_at: float
    end: str = ""
    status: int = 0
    wall_s: float = 0.0
    first_tree_s: float | None = None
    retried: int = 0
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        return self.end != "done" or bool(self.left)

    def __str__(self) -> str:
        tree = "no tree" if self.first_tree_s is None else f"first tree {self.first_tree_s:.1f} s"
        words = [f"{self.end}, status {self.status}", f"{self.wall_s:.1f} s", tree]
        words += [f"retried {self.retried}"] if self.retried else []
        words += ["left: " + ("; ".join(self.left) or "nothing"), *self.notes]
        return f"{self.number}: {self.table} ({self.load}): " + ", ".join(words)


class Soak:
    """Does the runs in their own folder; `options` come from the command line."""

    def __init__(self, options: argparse.Namespace, means: Means, folder: Path) -> None:
        self.stopped = threading.Event()
        self.users = Users(options.users, folder / "files")
        self._options = options
        self._means = means
        self._folder = folder / "files"
        self._mount = folder / "slow"

    def run(self, number: int, table: Table) -> Result:
        """Do one run, from its load to what it leaves behind, and remove everything afterwards."""
        seed = f"{self._options.seed}-{number}"
        load = Load(cold=self._options.cold)
        if not self._options.no_load:
            load = draw(seed, self._means, cold=self._options.cold)
        mark = f"soak-{os.getpid()}-{number}"
        own = self.users.folder(number)
        watch = Watch(mark, self._folder / own / mark)
        with loaded(load, self._means, self._folder, self._mount) as under:
            command = [
                *self.users.prefix(number), sys.executable, "-m", "sparkgpu", "run",
                str(under.folder / table.file), "--target", table.target, "--cpu-lanes", "1", "--quiet",
                "--out", str(under.folder / own / mark),
            ]  # fmt: skip
            for text in table.settings:
                command += ["--set", text]
            result = Result(
                number=number, table=table.name, load=str(load), seed=seed, started_at=time.time()
            )
            process = under.start(command, self._log(number), {**os.environ, MARK: mark})
            try:
                self._follow(process, watch, result)
                result.left = watch.left() + self.users.writable(watch.paths.root)
            finally:
                watch.kill()
                process.wait()
        if result.bad or result.retried:
            self._keep(watch.paths.root, result)
            result.notes.append(f"kept in {self._kept(result)}")
        shutil.rmtree(watch.paths.root, ignore_errors=True)
        self._log(number).unlink()
        return result

    def _follow(self, process: subprocess.Popen[bytes], watch: Watch, result: Result) -> None:
        """Wait for the end of the run, or end it, and fill in `result`."""
        start = time.monotonic()
        good = {0}
        try:
            while process.poll() is None:
                watch.look(process.pid)
                if self.stopped.is_set():
                    raise KeyboardInterrupt
                if self._options.starts and watch.first_tree_at is not None:
                    good.add(130)
                    result.notes.append(watch.end(process, _ENDING_S))
                elif self._is_late(start) and not self._starves(process, watch, start):
                    result.end = "hung"
                    if self._is_late(start, 3.0):
                        result.notes.append("was busy or starved until three times --within")
                    watch.keep_stacks(self._kept(result) / "stacks.txt")
                    self._keep(watch.paths.root, result)  # the end may remove its folder
                    result.notes.append(watch.end(process, _ENDING_S))
                else:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_SAMPLE_S)
        except KeyboardInterrupt:
            watch.end(process, _ENDING_S)
            raise
        result.wall_s = round(time.monotonic() - start, 2)
        watch.look(process.pid)  # read the last reports
        result.status = process.returncode
        result.end = result.end or ("done" if result.status in good else "failed")
        result.retried = watch.retried
        if watch.first_tree_at is not None:
            result.first_tree_s = round(watch.first_tree_at - result.started_at, 2)

    def _is_late(self, start: float, times: float = 1.0) -> bool:
        return time.monotonic() - start > times * float(self._options.within)

    def _starves(self, process: subprocess.Popen[bytes], watch: Watch, start: float) -> bool:
        """Whether an overdue run is slow rather than hung: it keeps asking for processor time.

        A run in an endless loop would ask for it too, so three times `--within` is the limit.
        """
        if self._is_late(start, 3.0):
            return False
        before = watch.demand()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_DEMAND_S)
        grown = sum(max(0.0, now - before.get(thread, 0.0)) for thread, now in watch.demand().items())
        return process.poll() is not None or grown > _DEMAND_S / 2

    def _log(self, number: int) -> Path:
        return self._folder.parent / f"output-{number}.log"

    def _kept(self, result: Result) -> Path:
        folder: Path = self._options.keep / f"run-{result.number}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _keep(self, out: Path, result: Result) -> None:
        kept = self._kept(result)
        shutil.copy(self._log(result.number), kept / "output.log")
        if out.exists():
            with suppress(shutil.Error):  # some files vanish during the copy; the rest is copied
                shutil.copytree(out, kept, ignore=shutil.ignore_patterns("*.parquet"), dirs_exist_ok=True)


def summary(results: list[Result]) -> str:
    """The results of all runs, by table."""
    count = Counter(result.end for result in results)
    lines = [
        f"{len(results)} runs: {count['done']} done, {count['failed']} failed, {count['hung']} hung; "
        f"{sum(bool(result.retried) for result in results)} retried, "
        f"{sum(bool(result.left) for result in results)} left something"
    ]
    for name in sorted({result.table for result in results}):
        own = [result for result in results if result.table == name]
        walls = [result.wall_s for result in own]
        trees = [result.first_tree_s for result in own if result.first_tree_s is not None]
        line = (
            f"{name}, {len(own)} runs: wall from {min(walls):.1f} s, median {statistics.median(walls):.1f} s"
        )
        line += f", to {max(walls):.1f} s"
        if trees:
            line += f"; first tree median {statistics.median(trees):.1f} s, latest {max(trees):.1f} s"
        lines.append(line)
    memory = psutil.virtual_memory().total / 2**30
    lines.append(f"{len(os.sched_getaffinity(0))} cores, {memory:.1f} GiB, {platform.platform()}")
    lines.append(", ".join(f"{name} {version}" for name, version in versions().items()))
    return "\n".join(lines)


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    started = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parser.add_argument("tables", nargs="*", metavar="TABLE:TARGET", default=[])
    parser.add_argument("--runs", type=int, help="on the small tables: 200, or none if only --large is given")
    parser.add_argument("--large", type=int, default=0, metavar="N")
    parser.add_argument("--starts", action="store_true", help="end each run when its first tree is built")
    parser.add_argument("--cold", action="store_true", help="empty the file cache before each start")
    parser.add_argument("--no-load", action="store_true")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="with --no-load")
    parser.add_argument(
        "--users", type=lambda text: [int(one) for one in text.split(",")], default=[], metavar="UID,UID"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--within", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument(
        "--keep", type=Path, default=Path(tempfile.gettempdir()) / f"soak-{started}", metavar="DIR"
    )
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--resume-report", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    for text in options.tables:
        if not all(text.rpartition(":")) or not Path(text.rpartition(":")[0]).exists():
            parser.error(f"{text}: there is no such table. Give it as FILE:TARGET.")
    if options.at_once > 1 and not options.no_load:
        parser.error(f"--at-once {options.at_once}: a load is that of one run. Add --no-load.")
    if options.users and os.getuid() != 0:
        parser.error("--users: only root can start runs as other users.")
    if options.runs is None:
        options.runs = 200 if options.tables or not options.large else 0
    if options.resume_report and not options.resume_report.exists():
        parser.error(f"--resume-report {options.resume_report}: no such file.")
    if options.cold:
        try:
            drop_caches()
        except OSError as error:
            parser.error(f"--cold: the file cache cannot be emptied here, only root can ({error}).")
    return options


def main() -> int:
    options = options_of()
    # A shell that starts this in the background makes its children ignore Ctrl-C; undo that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    file = options.resume_report or options.out
    results: list[Result] = []
    if options.resume_report:
        lines = options.resume_report.read_text(encoding="utf-8").splitlines()
        results = [Result(**json.loads(line)) for line in lines]
    counted = {result.number for result in results}
    left: list[str] = []
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="sparkgpu-soak-", ignore_cleanup_errors=True) as name:
        try:
            (Path(name) / "files").mkdir()
            means, said = find_means(Path(name))
            if not options.no_load:
                print(*said, sep="\n", end="\n" * bool(said))
            soak = Soak(options, means, Path(name))
            tables = write_tables(
                options.tables, runs=options.runs, large=options.large, folder=Path(name) / "files"
            )
            todo = [pair for pair in enumerate(tables, start=1) if pair[0] not in counted]
            with soak.users.checked(left), ThreadPoolExecutor(options.at_once) as pool:
                runs = [pool.submit(soak.run, *pair) for pair in todo]
                try:
                    for run in as_completed(runs):
                        results.append(run.result())
                        print(results[-1], flush=True)
                        if file:
                            with file.open("a", encoding="utf-8") as opened:
                                opened.write(json.dumps(asdict(results[-1])) + "\n")
                except BaseException:
                    soak.stopped.set()
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        except KeyboardInterrupt:
            interrupted = True
    if results:
        print(summary(results))
    if left or options.users:
        print("left at the end: " + ("; ".join(left) or "nothing"))
    if left or any(result.bad for result in results):
        return 1
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
