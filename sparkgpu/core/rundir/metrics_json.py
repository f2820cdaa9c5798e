"""``metrics.json``, all results of a run, as typed records. Only this module writes and reads it.

A key without a value is not written (only a blend has `weights`). Keys that earlier versions with the same
`schema_version` did not write have defaults here, and keys that a later version may add are ignored.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.checks import Check
from sparkgpu.core.rundir.files import Name, Part, read_record, write_json
from sparkgpu.core.rundir.groups import ColumnGroups
from sparkgpu.core.rundir.intervals import IntervalsResult
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import HostRecord, SearchRecord
from sparkgpu.core.words import listed, seconds_text

_LATE = 1.1

MetricValues = dict[str, float | None]
"""Metrics by name, with their natural values; None if the rows do not define one."""


class SplitMetrics(Part):
    """Metrics on the validation rows and on the test rows; empty if nothing finished."""

    valid: MetricValues = Field(default_factory=dict)
    test: MetricValues = Field(default_factory=dict)

    def of(self, split: Literal["valid", "test"]) -> MetricValues:
        return self.test if split == "test" else self.valid


class Spread(Part):
    """Standard deviations over the trials of a model; None for a single trial."""

    test: MetricValues = Field(default_factory=dict)


class RunInfo(Part):
    """The run itself.

    `started_at` is in UTC, `sparkgpu` is the version that ran it, `time_limit_s` the time that it was given.
    """

    name: str
    started_at: str
    wall_s: float
    time_limit_s: float | None = None
    sparkgpu: str
    versions: dict[str, str]
    host: HostRecord
    peak_rss_bytes: int

    @property
    def wall_text(self) -> str:
        """The wall time in words, beside the limit if there was one."""
        wall = seconds_text(self.wall_s)
        if self.time_limit_s is None:
            return wall
        late = ", too short for this table here" if self.wall_s > _LATE * self.time_limit_s else ""
        return f"{wall}; the limit was {seconds_text(self.time_limit_s)}{late}"


class DataInfo(Part):
    """The prepared table; `weighted`: a column weights the metrics. The run predicts `other_targets`, too.

    `rows_read` rows were read. `rows` of them are used and `rows_refused` are not, which `refused` counts by
    reason.
    """

    source: str
    rows: int
    rows_refused: int
    rows_read: int | None = None
    refused: dict[str, int] = Field(default_factory=dict)
    num_features: int
    target: str
    task: Literal["binary", "multiclass", "regression"]
    classes: tuple[str, ...]
    splits: dict[str, int]
    fingerprint: str
    weighted: bool = False
    other_targets: tuple[str, ...] = ()


class CalibrationResult(Part):
    """How well a model is calibrated on the test rows, before and after temperature scaling.

    `error` is the expected calibration error. The `temperature` was fitted on the validation rows; it is the
    mean over trials, each of which has its own. `applied` tells whether predictions and metrics are scaled.
    """

    temperature: float
    error_before: float
    error_after: float
    brier_before: float
    brier_after: float
    applied: bool


class DecisionResult(Part):
    """Decisions by the rule of ``[decision]`` on the test rows, beside the most probable class.

    The validation rows chose the `threshold` of the probability of the class `positive` (None with more than
    two classes). `goal` says what `value` and `plain` are; `ci95` is of their difference.
    """

    rule: str
    positive: str | None
    threshold: float | None
    goal: str
    value: float | None
    plain: float | None
    ci95: tuple[float | None, float | None]

    def in_words(self) -> str:
        if self.threshold is None:
            return "the class with the least expected cost, by decision.costs"
        return f"{self.positive} from a probability of {self.threshold:.4f} on, by the rule {self.rule}"


class ModelResult(Part):
    """One model of the run, under any name: the means over its finished trials.

    With several trials, `averaged` holds the metrics of their averaged predictions, which is what a blend
    mixes and is compared with. `weights` are the shares of other models in a blend, and `gains` what each of
    them adds to it: by how much the primary metric on the validation rows is better than without it.
    ``partial`` means that some of its trials failed. A model that the configuration leaves out was never
    planned and has no engine.
    """

    name: Name
    engine: str | None
    status: Literal["done", "partial", "failed", "left out"]
    trials: tuple[Name, ...]
    weights: dict[str, float] | None = None
    gains: dict[str, float] | None = None
    metrics: SplitMetrics
    std: Spread
    averaged: SplitMetrics | None = None
    calibration: CalibrationResult | None = None
    decision: DecisionResult | None = None
    intervals: IntervalsResult | None = None
    groups: tuple[ColumnGroups, ...] = ()

    @property
    def only(self) -> str | None:
        """The member of a blend that has all of its weight, so that the blend is that model again."""
        held = [name for name, share in (self.weights or {}).items() if share]
        return held[0] if len(held) == 1 else None


class TrialResult(Part):
    """One engine with one seed and one fold, on the devices of its lane or gang."""

    name: Name
    model: Name
    engine: str
    seed: int
    fold: int | None
    lane: int
    strategy: str
    devices: tuple[str, ...]


class DoneTrial(TrialResult):
    """A finished trial: its metrics and the facts of its `FitRecord`.

    It trained `steps` trees or epochs of `most_steps` that it was allowed; `still_improving` tells whether it
    reached that limit while the validation rows still gained. All are None if its engine does not tell.
    `out_of_time` tells whether the run's time limit ended it. If the run calibrates, `temperature` is that of
    its probabilities.
    """

    status: Literal["done"]
    metrics: SplitMetrics
    fit_s: float
    predict_s: float
    train_rows_per_s: float
    peak_host_bytes: int
    peak_device_bytes: int | None
    best_iteration: int
    steps: int | None = None
    most_steps: int | None = None
    still_improving: bool | None = None
    out_of_time: bool = False
    temperature: float | None = None
    search: SearchRecord | None = None
    native_parameters: dict[str, str]
    device_proof: dict[str, object]
    notes: tuple[str, ...] = ()


class FailedTrial(TrialResult):
    """A failed trial: only its reason."""

    status: Literal["failed"]
    error: str
    metrics: SplitMetrics = SplitMetrics()


class FoldsResult(Part):
    """The difference of two models in each fold that both predicted: its mean, and an interval.

    `ci95` is of what another split of the rows would show (two Nones with fewer than three folds); `ahead`
    counts the folds in which `a` is the better one.
    """

    folds: int
    ahead: int
    difference: float
    ci95: tuple[float | None, float | None]


class PairResult(Part):
    """Two models on the same test rows: the metric of `a` minus that of `b`, its interval and the leader.

    Both ends of `ci95` are None if there is no interval; `sentence` gives all of it in words. `over_folds` is
    their difference on the rows of the folds, if there are folds.
    """

    a: str
    b: str
    difference: float | None
    ci95: tuple[float | None, float | None]
    verdict: Literal["a", "b", "tie"]
    method: str = ""
    sentence: str
    over_folds: FoldsResult | None = None


class ComparisonResult(Part):
    """Every pair of models by `metric`, on the test rows.

    `leader` has the best value on the validation rows (None if no model finished), so that its value on the
    test rows is not the best of several. `caveats` are sentences that belong to the verdict.
    """

    metric: str
    leader: str | None
    pairs: tuple[PairResult, ...]
    caveats: tuple[str, ...] = ()


class CostInfo(Part):
    """Wall hours of the run times its lanes; watt-hours of the GPUs if they report their power.

    `price` is that of the hours, in the currency of the key `cost.price_per_hour` (None without it).
    """

    device_hours: float
    energy_wh: float | None
    price: float | None


class RefitInfo(Part):
    """From which run, and on how many rows, `sparkgpu refit` made this run directory."""

    run: str
    rows: int
    added_rows: int
    refit_s: float

    @property
    def sentence(self) -> str:
        new = f" ({self.added_rows:,} of them new)" if self.added_rows else ""
        return (
            f"all figures are those of the run {self.run}, whose models were then trained once more on all "
            f"{self.rows:,} rows{new}; no row is left to measure them on"
        )


class Results(Part):
    """The whole of ``metrics.json``. `phases_s` are seconds by place (a branch of a lane) and phase.

    `refit` is there if the models were trained once more, on all rows.
    """

    schema_version: Literal[1]
    run: RunInfo
    data: DataInfo
    models: tuple[ModelResult, ...]
    trials: tuple[Annotated[DoneTrial | FailedTrial, Field(discriminator="status")], ...]
    comparison: ComparisonResult
    cost: CostInfo
    checks: tuple[Check, ...] = ()
    phases_s: dict[str, dict[str, float]] = Field(default_factory=dict)
    refit: RefitInfo | None = None

    def done(self, model: str | None = None) -> tuple[DoneTrial, ...]:
        """The finished trials, of one model or of all."""
        return tuple(
            trial for trial in self.trials if isinstance(trial, DoneTrial) and model in (None, trial.model)
        )

    @property
    def failed(self) -> tuple[FailedTrial, ...]:
        return tuple(trial for trial in self.trials if isinstance(trial, FailedTrial))

    @property
    def pairs(self) -> tuple[PairResult, ...]:
        """The comparison without a blend that is one model again."""
        again = {model.name for model in self.models if model.only}
        return tuple(pair for pair in self.comparison.pairs if not again & {pair.a, pair.b})

    def as_dict(self) -> dict[str, Any]:
        """The content of ``metrics.json``, as plain values."""
        return self.model_dump(mode="json", exclude_unset=True)


def metrics_schema() -> str:
    """The JSON Schema of ``metrics.json``, in the form of a file. It requires the keys of every version."""
    found = Results.model_json_schema()
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **found,
        "title": "metrics.json of sparkgpu",
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def write_results(paths: RunPaths, results: Results) -> None:
    write_json(paths.metrics, results.as_dict())


def read_results(paths: RunPaths) -> Results:
    """The results of a run of this or an earlier version. Raises `ConfigError` if they are not readable."""
    again = f"`sparkgpu run --resume --out {paths.root}` scores the run again."
    return read_record(paths.metrics, Results, f"It is damaged, or of another version of sparkgpu; {again}")


def finished_results(paths: RunPaths) -> Results:
    """As `read_results`. Raises `ConfigError` also if the folder holds no finished run with one target."""
    if paths.targets_index.is_file():
        folders = listed(own.root for own in paths.targets())
        raise ConfigError(f"{paths.root}: this run has several targets. Give the folder of one: {folders}.")
    if not paths.metrics.is_file():
        raise ConfigError(f"{paths.root}: it holds no metrics.json. Give the folder of a finished run.")
    return read_results(paths)
