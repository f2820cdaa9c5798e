"""What the report of a run is made of: its results, plan and table, read once for all sections."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property

from sparkgpu.config.toml import load
from sparkgpu.plan.plan import Plan
from sparkgpu.report.curves import TestRows
from sparkgpu.report.failures import judged_segments
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results
from sparkgpu.score import compare
from sparkgpu.score.segments import Segment
from sparkgpu.table.rows import Rows, read_rows
from sparkgpu.table.schema import TableSchema

_SEED = 7


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A run as its sections see it; a section reads its own files (profile, telemetry) through `paths`."""

    paths: RunPaths
    results: Results
    schema: TableSchema
    plan: Plan
    test: TestRows

    @property
    def settings_besides(self) -> str:
        """What a repetition needs besides ``run.toml``: the cluster, if spark-submit named it."""
        master = self.plan.master
        if master is None or not self.paths.config.is_file():
            return ""
        named = load(file=self.paths.config).cluster.master
        return "" if named else f"--set cluster.master={shlex.quote(master)}"

    @cached_property
    def features(self) -> Rows:
        """The features of the test rows in `test`."""
        return read_rows(self.paths, self.schema, "test", every=self.test.every)

    @cached_property
    def segments(self) -> dict[str, tuple[Segment, ...]]:
        """Groups of the test rows with each model's loss there; they take a while with many features."""
        return judged_segments(self.schema, self.test, self.features)

    @property
    def values(self) -> dict[str, float | None]:
        """Each model's main metric on the test rows, in the run's order."""
        metric = self.results.comparison.metric
        return {model.name: model.metrics.test.get(metric) for model in self.results.models}

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % interval of the primary metric of each model that has one, on the rows in `test`."""
        labels, found = self.test.labels, {}
        for model in self.test.trials:
            low, high = compare.interval(
                self.schema.task, labels.label_N, self.test.mean(model), _SEED, weight_N=labels.weight_N
            )
            if low is not None and high is not None:
                found[model] = (low, high)
        return found
