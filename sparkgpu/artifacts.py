"""The run directory: where every file of a run lies, and how files are written.

Files are the interface between processes, so a file is complete or absent: written under a temporary name
in the same folder, then renamed. ``DONE`` is the last file of a trial.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from sparkgpu.schema import Record, TableSchema


@dataclass(frozen=True, kw_only=True)
class TrialPaths:
    """``trials/<name>/``: everything one trial leaves."""

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
        """What ranks on several machines leave for each other and for the worker, while they train."""
        return self.root / "gang"

    @property
    def error(self) -> Path:
        return self.root / "error.json"

    @property
    def done(self) -> Path:
        return self.root / "DONE"


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


@dataclass(frozen=True, kw_only=True)
class RunPaths:
    """The run directory of the contract (docs/run-directory.md lists it file by file)."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "run.toml"

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
        """The stacks of the run's own process, where it hung at the very end."""
        return self.root / "hang.log"

    @property
    def checkpoint_request(self) -> Path:
        """While this file is there, every network that trains writes one checkpoint as soon as it can."""
        return self.root / "checkpoint-request"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.json"

    @property
    def report(self) -> Path:
        return self.root / "report"

    def split(self, split: str) -> Path:
        return self.table / f"split={split}"

    def lane(self, index: int) -> LanePaths:
        return LanePaths(root=self.root / "lanes" / str(index))

    def trial(self, name: str) -> TrialPaths:
        return TrialPaths(root=self.root / "trials" / name)

    def read_schema(self) -> TableSchema:
        return TableSchema.read(self.schema)


class FitRecord(Record):
    """``fit.json``: what one trial did, as its engine saw it. Seconds, bytes and rows per second.

    `native_parameters` is what the native library reports that it used, `device_proof` what shows on
    which device it ran; `parameters` are the settings that were asked for, in the engine's spelling.
    """

    trial: str
    engine: str
    fit_s: float
    predict_s: float
    train_rows: int
    train_rows_per_s: float
    peak_host_bytes: int
    peak_device_bytes: int | None = None
    best_iteration: int
    native_parameters: dict[str, str] = Field(default_factory=dict)
    device_proof: dict[str, Any] = Field(default_factory=dict)
    parameters: dict[str, Any] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


def write_text(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_json(path: Path, value: Record | dict[str, Any]) -> None:
    """Write a record or a dictionary as JSON, complete or not at all. NaN is refused (not JSON)."""
    data = value.model_dump(mode="json") if isinstance(value, Record) else value
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data
