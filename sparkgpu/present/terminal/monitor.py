"""``sparkgpu monitor``: shows a run from another terminal or machine, by the files in its folder alone.

It changes nothing there, and ends as the run ends: with its result, or with what stopped it. A run that is
killed cannot say so: its lock does, on its own machine. Elsewhere, one that takes no sample for a time is
taken for dead. Times are those of the run's files: the clocks of two machines may differ.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.registry.engines import BRANCHES, Branch
from sparkgpu.core.errors import EXIT_DONE, EXIT_INTERRUPTED, ConfigError, DataError, TrialError
from sparkgpu.core.host.telemetry import Sample, TelemetryReader
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.events import Event, EventReader
from sparkgpu.core.rundir.files import read_record
from sparkgpu.core.rundir.lock import was_killed
from sparkgpu.core.rundir.metrics_json import read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import StopRecord
from sparkgpu.core.rundir.targets import read_targets
from sparkgpu.core.table.schema import read_schema
from sparkgpu.core.words import listed, seconds_text
from sparkgpu.present.terminal.display import Display, open_display

SILENT_S = 15.0
"""After so long without a sign of life it is said."""
DEAD_S = 120.0
"""After so long the run is taken for dead."""
_LOOK_EVERY_S = 0.5
_REPORT_S = 60.0  # a run makes its report within so long after its result
_LEAST_S = 5.0  # a run is watched for so long before it is called dead


def attach(
    folder: Path,
    *,
    quiet: bool = False,
    dead_s: float = DEAD_S,
    wait: Callable[[float], None] = time.sleep,
) -> int:
    """Follow the run in `folder` to its end, and return its exit code; Ctrl-C detaches.

    Raises `ConfigError` if no run has begun there or the package of its metric is missing here, and
    `TrialError` if it shows no sign of life.
    """
    paths = RunPaths(root=folder)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder. Give the folder of a run, as `--out` named it."
        )
    if not paths.config.is_file():
        raise ConfigError(
            f"{folder}: it holds no run.toml, so no run has begun there. Give the folder of a run."
        )
    clock = RunClock(_began(paths))
    with open_display(quiet, clock=clock) as display:
        attached = _Attached(paths, display, clock, dead_s)
        try:
            while (code := attached.look()) is None:
                wait(_LOOK_EVERY_S)
        except KeyboardInterrupt:
            display.close()
            display.error("detached; the run goes on.")
            return EXIT_INTERRUPTED
    return code


class RunClock:
    """The time of the run, in seconds since the epoch: that of its files, and then this machine's."""

    def __init__(self, began: float) -> None:
        self._at, self._since = began, time.monotonic()

    def heard(self, at: float) -> None:
        """Something happened in the run at this time."""
        if at > self():
            self._at, self._since = at, time.monotonic()

    def __call__(self) -> float:
        return self._at + time.monotonic() - self._since


class _Attached:
    """What was read of a run so far."""

    def __init__(self, paths: RunPaths, display: Display, clock: RunClock, dead_s: float) -> None:
        self._paths = paths
        self._display = display
        self._clock = clock
        self._dead_s = dead_s
        self._events: dict[tuple[int, Branch], EventReader] = {}
        self._telemetry = TelemetryReader(paths.telemetry)
        self._has_plan = self._has_table = self._is_silent = False
        self._code: int | None = None
        self._attached_s = self._ended_s = time.monotonic()
        self._last_change = _last_change(paths)
        # Only here do the clocks of two machines meet; later any change is a sign of life.
        self._heard_s = self._attached_s - max(0.0, time.time() - self._last_change)

    def look(self) -> int | None:
        """Show what is new; the exit code of the run if it has ended."""
        if not self._paths.root.is_dir():
            return self._gone()
        has_ended = self._result.is_file()  # before the events are read, so that none is missed
        if self._has_plan or self._paths.plan.is_file():
            self._show_news()
        if has_ended:
            return self._end()
        if self._paths.stopped.is_file():
            stopped = read_record(self._paths.stopped, StopRecord)
            self._display.close()
            self._display.error(f"the run stopped: {stopped.message}")
            return stopped.exit_code
        self._judge_silence()
        return None

    @property
    def _result(self) -> Path:
        """The file that a run writes last but for its report."""
        index = self._paths.targets_index
        return index if index.is_file() else self._paths.metrics

    def _show_news(self) -> None:
        if not self._has_plan:
            self._has_plan = True
            data = config_io.load(file=self._paths.config).data
            plan = read_record(self._paths.plan, Plan)
            self._display.plan(plan, data.source or "the built-in demo", listed(data.targets) or None)
        if not self._has_table and self._paths.schema.is_file():
            self._has_table = True
            self._display.table(read_schema(self._paths))
        for at, news in sorted(self._news(), key=lambda pair: pair[0]):
            self._clock.heard(at)
            if isinstance(news, Sample):
                self._display.sample(news)
            else:
                self._display.event(*news)

    def _news(self) -> Iterator[tuple[float, Sample | tuple[int, Branch, Event]]]:
        for folder in self._paths.lanes():
            for branch in BRANCHES:
                place = folder, branch
                if place not in self._events:
                    self._events[place] = EventReader(self._paths.lane(folder).events(branch))
                for event in self._events[place].new():
                    yield event.at, (folder, branch, event)
        for sample in self._telemetry.new():
            yield sample.at, sample

    def _end(self) -> int | None:
        """Show the result and, when the run has made it, the report."""
        if self._code is None:
            from sparkgpu.score.metrics import check_installed  # numpy: not before it is needed

            index = read_targets(self._paths)
            each = [self._paths.target(entry.folder) for entry in index.targets] if index else [self._paths]
            self._code = EXIT_DONE
            for paths in each:
                results = read_results(paths)
                check_installed(results.comparison.metric, paths.root)
                self._code = TrialError.exit_code if results.failed else self._code
                self._display.finish(results, paths)
            self._ended_s = time.monotonic()
        page = self._paths.report / "index.html"
        missing = f"there is no report; `sparkgpu report {self._paths.root}` makes it"
        age_s = max(time.monotonic() - self._ended_s, time.time() - self._result.stat().st_mtime)
        if not page.is_file() and age_s < _REPORT_S and not was_killed(self._paths):
            return None
        self._display.report(page, () if page.is_file() else (missing,))
        return self._code

    def _judge_silence(self) -> None:
        """Warn of silence, and raise `TrialError` at the end of patience."""
        now, change = time.monotonic(), _last_change(self._paths)
        if change != self._last_change:
            self._last_change, self._heard_s = change, now
            if self._is_silent:
                self._is_silent = False
                self._display.warning("there are signs of life again")
        silent_s, root = now - self._heard_s, self._paths.root
        goes_on = f"`sparkgpu run --resume --out {shlex.quote(str(root))}` goes on with it"
        if was_killed(self._paths):
            raise TrialError(f"{root}: the run was ended from outside (a kill, or no memory); {goes_on}.")
        if silent_s >= self._dead_s and now - self._attached_s >= min(_LEAST_S, self._dead_s):
            raise TrialError(
                f"{root}: no sign of life for {seconds_text(silent_s)}. The run was killed, or its machine "
                f"stopped; {goes_on}."
            )
        if silent_s >= SILENT_S and not self._is_silent:
            self._is_silent = True
            self._display.warning(f"no sign of life for {seconds_text(silent_s)}")

    def _gone(self) -> int:
        """The folder of a run that has no table yet goes with it."""
        root = self._paths.root
        self._display.close()
        log = root.with_name(f"{root.name}.interrupted.log")
        if not log.is_file():
            raise DataError(f"{root}: the folder is gone: the run refused its table, or somebody removed it.")
        self._display.error(f"the run was interrupted before it had a table; its log is {log}")
        return EXIT_INTERRUPTED


def _began(paths: RunPaths) -> float:
    """When the run began, or was resumed."""
    began = 0.0
    for sample in TelemetryReader(paths.telemetry).new():
        if not began or sample.elapsed_s < 1.0:
            began = sample.at - sample.elapsed_s
    return began or _last_change(paths)


def _last_change(paths: RunPaths) -> float:
    """When something last happened in the run's folder, in seconds since the epoch."""
    watched = [paths.config, paths.plan, paths.schema, paths.telemetry]
    watched += [paths.lane(index).events(branch) for index in paths.lanes() for branch in BRANCHES]
    times = [0.0]
    for file in watched:
        with contextlib.suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(times)
