"""The paths of every file in a run directory, and the removal of half-finished ones.

``DONE`` is the last file of a trial.
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.files import digest, read_json, remove_half_written, synced_digest, write_text


class _Below:
    """The path of a file, or of a folder, below the root of what it belongs to."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: TrialPaths | LanePaths | RunPaths, owner: type) -> Path:
        return folder.root / self._name


@dataclass(frozen=True, kw_only=True)
class TrialPaths:
    """``trials/<name>/``: all files of one trial."""

    root: Path

    predictions = _Below("predictions.parquet")
    refitted = _Below("refitted.parquet")
    """Predictions of the test rows by the model that `sparkgpu refit` made, which saw these rows."""
    fit = _Below("fit.json")
    learning_curve = _Below("learning_curve.csv")
    checkpoints = _Below("checkpoints")
    rank_logs = _Below("ranks")
    gang = _Below("gang")
    """Files of ranks on several machines for each other and for the worker, during training."""
    error = _Below("error.json")
    done = _Below("DONE")
    search = _Below("search.csv")
    """The history of a search: a line for each setting that was tried."""
    left_out = _Below("LEFT_OUT")
    """Is there if the trial did not begin, for lack of time."""

    def finish(self) -> None:
        """Write ``DONE``: the digests of what the trial leaves, as ``b2sum --check`` reads them."""
        left = [self.predictions, self.refitted, self.fit, *sorted(self.root.glob("model.*"))]
        lines = [f"{synced_digest(file)}  {file.name}\n" for file in left if file.exists()]
        write_text(self.done, "".join(lines))

    def damaged(self, among: str = "*") -> Path | None:
        """The first file, of those that are named so, that is not as the finished trial left it.

        Earlier versions left no digests; without them nothing is known.
        """
        text = self.done.read_text(encoding="ascii", errors="replace") if self.done.exists() else ""
        for wanted, _, name in (line.partition("  ") for line in text.splitlines()):
            file = self.root / Path(name).name
            if file.match(among) and not (file.is_file() and digest(file) == wanted):
                return file
        return None

    def check(self, among: str = "*") -> None:
        """Raise `ConfigError` if one is `damaged`."""
        if file := self.damaged(among):
            raise ConfigError(
                f"{file}: it is damaged or gone. `sparkgpu run --resume --out {self.root.parent.parent}` "
                "trains that model again."
            )

    def move_to(self, trial: TrialPaths) -> None:
        """Make these files those of another trial."""
        trial.root.mkdir(parents=True, exist_ok=True)
        for path in self.root.iterdir():
            path.replace(trial.root / path.name)
        self.root.rmdir()


@dataclass(frozen=True, kw_only=True)
class LanePaths:
    """``lanes/<i>/``: settings, log and events of one lane."""

    root: Path

    lane = _Below("lane.json")
    log = _Below("lane.log")
    network_waits = _Below("network.waits")
    """Is there while the lane's network waits for the end of the trees."""

    def events(self, branch: str) -> Path:
        return self.root / f"{branch}.events.jsonl"

    def phases(self, branch: str) -> Path:
        return self.root / f"{branch}.phases.json"

    def error(self, branch: str) -> Path:
        return self.root / f"{branch}.error.json"

    def ended(self, branch: str) -> Path:
        """Appears when the process of a branch has ended, and with it its use of the device."""
        return self.root / f"{branch}.ended"


@dataclass(frozen=True, kw_only=True)
class RunPaths:
    """The run directory; docs/run-directory.md describes each file."""

    root: Path

    config = _Below("run.toml")
    config_schema = _Below("run.schema.json")
    """The JSON Schema that the first line of ``run.toml`` names."""
    plan = _Below("plan.json")
    env = _Below("env.json")
    table = _Below("table")
    schema = _Below("table/schema.json")
    pipeline = _Below("pipeline")
    telemetry = _Below("telemetry.csv")
    hang_log = _Below("hang.log")
    """The stacks of the run's own process, if it hung in its last steps."""
    stopped = _Below("stopped.json")
    """What stopped the run before its end, and its exit code; a run that was killed leaves none."""
    running = _Below("running.json")
    """The owner of the folder while a run uses it: its process holds a lock on this file."""
    checkpoint_request = _Below("checkpoint-request")
    """While this file exists, every network in training writes one checkpoint as soon as it can."""
    metrics = _Below("metrics.json")
    targets_index = _Below("targets.json")
    """What a run with several targets found for each of them; these have the metrics."""
    profile = _Below("profile.json")
    """What is in the table, and checks of it."""
    explanations = _Below("explanations.json")
    """Importance and partial dependence of the models."""
    advice = _Below("advice.json")
    """What was predicted of the run before it began, if that was asked for."""
    bench = _Below("bench")
    """What ``sparkgpu bench scaling --out RUN/bench`` measured for the run."""
    report = _Below("report")

    def split(self, split: str) -> Path:
        return self.table / f"split={split}"

    def lanes(self) -> list[int]:
        """The indices of the lanes that have begun."""
        return sorted(int(folder.name) for folder in self.root.glob("lanes/*") if folder.name.isdecimal())

    def lane(self, index: int) -> LanePaths:
        return LanePaths(root=self.root / "lanes" / str(index))

    def trial(self, name: str) -> TrialPaths:
        """The files of a trial; of one for a target alone (``price:trees-s7``), in that target's folder."""
        target, _, own = name.rpartition(":")
        return TrialPaths(root=(self.target(target) if target else self).root / "trials" / own)

    def target(self, folder: str) -> RunPaths:
        """The run directory of one of several targets."""
        return RunPaths(root=self.root / "targets" / folder)

    def targets(self) -> list[RunPaths]:
        """Those of several targets; none in a run with one."""
        return [RunPaths(root=folder) for folder in sorted(self.root.glob("targets/*")) if folder.is_dir()]


def has_table(paths: RunPaths) -> bool:
    """Whether the run has its prepared table and, if Spark made it, the pipeline, which is saved after it."""
    if not paths.schema.exists():
        return False
    by_spark = paths.plan.exists() and read_json(paths.plan).get("prepared_by") == "spark"
    return paths.pipeline.exists() or not by_spark


def refuse_planted(paths: RunPaths) -> None:
    """Raise `ConfigError` if another user made a link or a pipe here: to write or to wait there is a trap."""
    for path in paths.root.rglob("*"):
        found = path.lstat()
        if found.st_uid != os.getuid() and not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            kind = "link" if stat.S_ISLNK(found.st_mode) else "pipe"
            raise ConfigError(
                f"{path}: another user made this {kind}; runs make none. Remove it, or use a copy of the run."
            )


def clear_unfinished(paths: RunPaths) -> list[str]:
    """Remove the half-finished files of a stopped run, so that nothing reads them as results.

    Returns a sentence for each finished trial that is damaged, and so has to run again.
    """
    damaged = []
    for file in sorted(paths.root.glob("trials/*/DONE")):
        if found := TrialPaths(root=file.parent).damaged():
            file.unlink()
            damaged.append(f"{found} is damaged or gone, so {file.parent.name} is trained again")
    if not has_table(paths):
        for folder in (paths.table, paths.pipeline, paths.root / "targets"):
            shutil.rmtree(folder, ignore_errors=True)
    for own in paths.targets():
        damaged += clear_unfinished(own)
        for file in paths.root.glob("trials/*/DONE"):  # a network of all targets is done with all its files
            if not own.trial(file.parent.name).done.exists():
                file.unlink()
    remove_half_written(paths.root)
    for pattern in ("lanes/*/*.events.jsonl", "lanes/*/*error.json", "trials/*/error.json"):
        for file in paths.root.glob(pattern):
            file.unlink()
    shutil.rmtree(paths.report, ignore_errors=True)
    paths.metrics.unlink(missing_ok=True)
    paths.targets_index.unlink(missing_ok=True)
    paths.stopped.unlink(missing_ok=True)
    paths.checkpoint_request.unlink(missing_ok=True)
    return damaged
