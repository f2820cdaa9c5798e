"""The paths of every file in a run directory, and the removal of half-finished ones.

``DONE`` is the last file of a trial.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from sparkgpu.rundir.files import read_json


@dataclass(frozen=True, kw_only=True)
class TrialPaths:
    """``trials/<name>/``: all files of one trial."""

    root: Path

    @property
    def predictions(self) -> Path:
        return self.root / "predictions.parquet"

    @property
    def fit(self) -> Path:
        return self.root / "fit.json"

    @property
    def learning_curve(self) -> Path:
        return self.root / "learning_curve.csv"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def rank_logs(self) -> Path:
        return self.root / "ranks"

    @property
    def gang(self) -> Path:
        """Files of ranks on several machines for each other and for the worker, during training."""
        return self.root / "gang"

    @property
    def error(self) -> Path:
        return self.root / "error.json"

    @property
    def done(self) -> Path:
        return self.root / "DONE"

    @property
    def search(self) -> Path:
        """The history of a search: a line for each setting that was tried."""
        return self.root / "search.csv"

    @property
    def left_out(self) -> Path:
        """Is there if the trial did not begin, for lack of time."""
        return self.root / "LEFT_OUT"


@dataclass(frozen=True, kw_only=True)
class LanePaths:
    """``lanes/<i>/``: settings, log and events of one lane."""

    root: Path

    @property
    def lane(self) -> Path:
        return self.root / "lane.json"

    @property
    def log(self) -> Path:
        return self.root / "lane.log"

    def events(self, branch: str) -> Path:
        return self.root / f"{branch}.events.jsonl"

    def phases(self, branch: str) -> Path:
        return self.root / f"{branch}.phases.json"

    def error(self, branch: str) -> Path:
        return self.root / f"{branch}.error.json"

    def ended(self, branch: str) -> Path:
        """Appears when the process of a branch has ended, and with it its use of the device."""
        return self.root / f"{branch}.ended"

    @property
    def network_waits(self) -> Path:
        """Is there while the lane's network waits for the end of the trees."""
        return self.root / "network.waits"


@dataclass(frozen=True, kw_only=True)
class RunPaths:
    """The run directory; docs/run-directory.md describes each file."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "run.toml"

    @property
    def config_schema(self) -> Path:
        """The JSON Schema that the first line of ``run.toml`` names."""
        return self.root / "run.schema.json"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def env(self) -> Path:
        return self.root / "env.json"

    @property
    def table(self) -> Path:
        return self.root / "table"

    @property
    def schema(self) -> Path:
        return self.table / "schema.json"

    @property
    def pipeline(self) -> Path:
        return self.root / "pipeline"

    @property
    def telemetry(self) -> Path:
        return self.root / "telemetry.csv"

    @property
    def hang_log(self) -> Path:
        """The stacks of the run's own process, if it hung in its last steps."""
        return self.root / "hang.log"

    @property
    def stopped(self) -> Path:
        """What stopped the run before its end, and its exit code; a run that was killed leaves none."""
        return self.root / "stopped.json"

    @property
    def checkpoint_request(self) -> Path:
        """While this file exists, every network in training writes one checkpoint as soon as it can."""
        return self.root / "checkpoint-request"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.json"

    @property
    def profile(self) -> Path:
        """What is in the table, and checks of it."""
        return self.root / "profile.json"

    @property
    def explanations(self) -> Path:
        """Importance and partial dependence of the models."""
        return self.root / "explanations.json"

    @property
    def advice(self) -> Path:
        """What was predicted of the run before it began, if that was asked for."""
        return self.root / "advice.json"

    @property
    def bench(self) -> Path:
        """What ``sparkgpu bench scaling --out RUN/bench`` measured for the run."""
        return self.root / "bench"

    @property
    def report(self) -> Path:
        return self.root / "report"

    def split(self, split: str) -> Path:
        return self.table / f"split={split}"

    def lanes(self) -> list[int]:
        """The indices of the lanes that have begun."""
        return sorted(int(folder.name) for folder in self.root.glob("lanes/*") if folder.name.isdecimal())

    def lane(self, index: int) -> LanePaths:
        return LanePaths(root=self.root / "lanes" / str(index))

    def trial(self, name: str) -> TrialPaths:
        return TrialPaths(root=self.root / "trials" / name)


def has_table(paths: RunPaths) -> bool:
    """Whether the run has its prepared table and, if Spark made it, the pipeline, which is saved after it."""
    if not paths.schema.exists():
        return False
    by_spark = paths.plan.exists() and read_json(paths.plan).get("prepared_by") == "spark"
    return paths.pipeline.exists() or not by_spark


def clear_unfinished(paths: RunPaths) -> None:
    """Remove the half-finished files of a stopped run, so that nothing reads them as results."""
    if not has_table(paths):
        for folder in (paths.table, paths.pipeline):
            shutil.rmtree(folder, ignore_errors=True)
    for pattern in ("lanes/*/*.events.jsonl", "lanes/*/*error.json", "trials/*/error.json"):
        for file in paths.root.glob(pattern):
            file.unlink()
    shutil.rmtree(paths.report, ignore_errors=True)
    paths.metrics.unlink(missing_ok=True)
    paths.stopped.unlink(missing_ok=True)
    paths.checkpoint_request.unlink(missing_ok=True)
