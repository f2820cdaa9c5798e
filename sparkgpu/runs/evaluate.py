"""Makes ``metrics.json`` from the predictions of all trials: one scorer scores, compares and blends them.

It reads only the run directory, so it can be repeated. Blend weights come only from the validation rows. The
comparison on the test rows uses each model's predictions averaged over its trials. If the user named a column
of row weights, it weights every figure.

Of splits with more than `MOST_VALUES` predicted values, the metrics are those of all rows (`runs/all_rows`).
What is fitted, and how wide intervals are, come from evenly spaced rows: millions tell more digits than are
shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from sparkgpu.core.host.telemetry import Sample
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.checks import Check
from sparkgpu.core.rundir.curve import read_curve, still_improving
from sparkgpu.core.rundir.files import read_record
from sparkgpu.core.rundir.metrics_json import (
    CalibrationResult,
    ComparisonResult,
    DoneTrial,
    FailedTrial,
    MetricValues,
    ModelResult,
    SplitMetrics,
    Spread,
)
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.runs.all_rows import MOST_VALUES, AllRows, sampled
from sparkgpu.runs.caveats import caveats, gpu_samples, idle_devices, nvml_proof
from sparkgpu.runs.checks import of_predictions
from sparkgpu.runs.groups import with_groups
from sparkgpu.runs.intervals import with_intervals
from sparkgpu.runs.pooled import BRANCHES, Calibration, Pooled, comparable, compare_pairs, decide, gains, mix
from sparkgpu.score import metrics
from sparkgpu.score.calibration import scaled
from sparkgpu.score.predictions import LabelReader, Labels, Mean, trial_predictions
from sparkgpu.score.rows import FloatArray

_AS_FITTED = {
    "fit_s", "predict_s", "train_rows_per_s", "peak_host_bytes", "peak_device_bytes", "best_iteration",
    "most_steps", "out_of_time", "native_parameters",
}  # fmt: skip
_SPLITS: tuple[SplitName, SplitName] = ("valid", "test")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The parts of ``metrics.json`` that follow from predictions."""

    models: tuple[ModelResult, ...]
    trials: tuple[DoneTrial | FailedTrial, ...]
    comparison: ComparisonResult
    checks: tuple[Check, ...]

    def with_caveat(self, text: str) -> Evaluation:
        """A copy whose verdict has one more caveat."""
        caveats = (*self.comparison.caveats, text)
        return replace(self, comparison=self.comparison.model_copy(update={"caveats": caveats}))


@dataclass(frozen=True, kw_only=True)
class _Scored:
    """One finished trial with its metrics."""

    spec: TrialSpec
    fit: FitRecord
    metrics: SplitMetrics


@dataclass(frozen=True, kw_only=True)
class _Model:
    """The finished trials of one model, and the mean of their predictions."""

    trials: tuple[_Scored, ...]
    pooled: Pooled
    calibration: CalibrationResult | None

    def with_metrics(self, name: str, whole: AllRows) -> _Model:
        """A copy whose trials have the metrics of all rows."""
        trials = (replace(one, metrics=whole.of(name, one.metrics, one.spec.name)) for one in self.trials)
        return replace(self, trials=tuple(trials))


def evaluate(
    paths: RunPaths,
    plan: Plan,
    schema: TableSchema,
    failed: Mapping[str, str],
    seed: int,
    notes: Mapping[str, str],
    coverage: float | None = None,
    groups: Collection[str] = (),
) -> Evaluation:
    """Score what finished. `failed` gives the reasons of failed trials, `notes` other notes on trials.

    With `coverage`, each model gets intervals or sets that hold the truth in this share of rows. By the
    columns in `groups`, and by those beside the features, each gets its metrics in groups of the test rows.

    The predictions of one trial at a time are in memory, beside the mean of each model's.
    """
    labels = LabelReader(paths, schema, most_rows=max(MOST_VALUES // max(schema.num_outputs, 2), 1))
    tried = [spec for spec in plan.trials if not paths.trial(spec.name).left_out.exists()]
    done = [spec for spec in tried if paths.trial(spec.name).done.exists()]
    names = tuple(dict.fromkeys((*BRANCHES, *(spec.model for spec in plan.trials))))
    found = {
        model: _read(paths, schema, own, labels)
        for model in names
        if (own := [spec for spec in done if spec.model == model])
    }
    pooled = {name: model.pooled for name, model in found.items()}
    alone = {name for name, model in found.items() if len(model.trials) == 1 and schema.folds is None}
    averaged = {
        name: found[name].trials[0].metrics if name in alone else _compute(schema, labels, model)
        for name, model in pooled.items()
    }
    members = comparable(pooled)
    weights: dict[str, float] = {}
    if len(members) > 1:
        weights, pooled["blend"] = mix(schema, labels.all("valid"), members)
        averaged["blend"] = _compute(schema, labels, pooled["blend"])
    whole = AllRows(paths, schema, labels, done, pooled, weights)
    found = {name: model.with_metrics(name, whole) for name, model in found.items()}
    averaged = {
        name: found[name].trials[0].metrics if name in alone else whole.of(name, known)
        for name, known in averaged.items()
    }
    trials = {trial.spec.name: trial for model in found.values() for trial in model.trials}
    scored = [trials[spec.name] for spec in done]
    models = [_model(model, tried, found.get(model), averaged.get(model)) for model in names]
    judged = {
        name: averaged[name].valid
        if np.array_equal(model.has_valid_N, pooled[name].has_valid_N)
        else _compute(schema, labels, model).valid
        for name, model in members.items()
    }
    if weights:
        judged["blend"] = averaged["blend"].valid
        models.append(
            ModelResult(
                name="blend",
                engine="blend",
                status="done",
                trials=tuple(trial.spec.name for trial in scored),
                weights=weights,
                gains=gains(schema, labels.all("valid"), members, weights),
                metrics=averaged["blend"],
                std=Spread(test={}),
                **_calibration_of_blend(schema, pooled["blend"], labels),
            )
        )
    if schema.decision is not None:
        rows = labels.all("valid"), labels.all("test")
        models = [
            model.model_copy(update={"decision": decide(schema, *rows, pooled[model.name], seed)})
            if model.name in pooled
            else model
            for model in models
        ]
    if coverage is not None:
        models = with_intervals(paths, schema, labels, pooled, models, coverage)
    if groups or schema.beside:
        models = with_groups(paths, schema, labels, pooled, models, groups, seed)
    samples = gpu_samples(paths, plan)
    finished = tuple(_done_trial(paths, trial, plan, notes, samples) for trial in scored)
    on_gpu = {trial.spec.name for trial in scored if trial.fit.on_gpu}
    metric = metrics.primary(schema.task, schema.metric)
    leaders = metrics.best(metric, {model: values[metric] for model, values in judged.items()})
    leader = next(iter(leaders), None)
    return Evaluation(
        checks=of_predictions(schema, labels, pooled, models, leader, metric),
        models=tuple(models),
        trials=(
            *finished,
            *(_failed_trial(spec, plan, failed) for spec in tried if spec not in done),
        ),
        comparison=ComparisonResult(
            metric=metric,
            leader=leader,
            pairs=compare_pairs(schema, labels, pooled, _first(metric, judged), seed, averaged),
            caveats=(
                *caveats(schema, finished, pooled, labels.all("test")),
                *sampled(schema, labels),
                *idle_devices(paths, plan, samples, on_gpu),
            ),
        ),
    )


def _compute(schema: TableSchema, labels: LabelReader, pooled: Pooled) -> SplitMetrics:
    has_N = pooled.has_valid_N
    return SplitMetrics(
        valid=_metrics(schema, labels.all("valid").part(has_N), pooled.valid[has_N]),
        test=_metrics(schema, labels.all("test"), pooled.test),
    )


def _metrics(schema: TableSchema, rows: Labels, found: FloatArray) -> MetricValues:
    return metrics.compute(
        schema.task, rows.label_N, found, rows.weight_N, asked=schema.metric, also=schema.deviances
    )


def _calibration_of_blend(schema: TableSchema, blend: Pooled, labels: LabelReader) -> dict[str, Any]:
    """Only said: its members have a temperature if the run calibrates, and a second one gained nothing."""
    if not schema.classes:
        return {}
    has_N = blend.has_valid_N
    found = Calibration(schema.task, labels.all("test"))
    found.fit(labels.all("valid").part(has_N), blend.valid[has_N], blend.test)
    return {"calibration": found.result(applied=False)}


def _read(paths: RunPaths, schema: TableSchema, specs: Sequence[TrialSpec], labels: LabelReader) -> _Model:
    """Score the finished trials of one model, one after the other."""
    means = {split: Mean(labels.all(split)) for split in _SPLITS}
    calibration = Calibration(schema.task, labels.all("test")) if schema.classes else None
    trials = []
    for spec in specs:
        own: dict[SplitName, Labels] = {split: labels.of(split, spec.fold) for split in _SPLITS}
        values = trial_predictions(paths, schema, spec.name, own, labels.samples)
        fit = read_record(paths.trial(spec.name).fit, FitRecord)
        scores = {split: _metrics(schema, rows, values[split]) for split, rows in own.items()}
        trials.append(
            _Scored(spec=spec, fit=fit, metrics=SplitMetrics(valid=scores["valid"], test=scores["test"]))
        )
        for split, rows in own.items():
            means[split].add(rows, values[split])
        if calibration and fit.temperature is not None:
            calibration.add(fit.temperature, scaled(values["test"], 1 / fit.temperature))
        elif calibration:
            calibration.fit(own["valid"], values["valid"], values["test"])
    applied = any(trial.fit.temperature is not None for trial in trials)
    return _Model(
        trials=tuple(trials),
        pooled=Pooled(
            valid=means["valid"].value(), test=means["test"].value(), has_valid_N=means["valid"].known_N
        ),
        calibration=calibration.result(applied=applied) if calibration else None,
    )


def _model(
    model: str, tried: Sequence[TrialSpec], found: _Model | None, averaged: SplitMetrics | None
) -> ModelResult:
    own = found.trials if found else ()
    planned = [spec for spec in tried if spec.model == model]
    means, spread = SplitMetrics(valid={}, test={}), Spread(test={})
    if own:
        valid, _ = metrics.mean_and_std([trial.metrics.valid for trial in own])
        test, deviation = metrics.mean_and_std([trial.metrics.test for trial in own])
        means, spread = SplitMetrics(valid=valid, test=test), Spread(test=deviation)
    status: Literal["done", "partial", "failed", "left out"]
    if not planned:
        status = "left out"  # the configuration's `models` leaves it out
    else:
        status = "done" if len(own) == len(planned) else "partial" if own else "failed"
    more: dict[str, Any] = {"averaged": averaged} if len(own) > 1 else {}
    if found and found.calibration:
        more["calibration"] = found.calibration
    return ModelResult(
        name=model,
        engine=own[0].fit.engine if own else planned[0].engine if planned else None,
        status=status,
        trials=tuple(trial.spec.name for trial in own),
        metrics=means,
        std=spread,
        **more,
    )


def _done_trial(
    paths: RunPaths, trial: _Scored, plan: Plan, notes: Mapping[str, str], samples: Sequence[Sample]
) -> DoneTrial:
    spec, fit = trial.spec, trial.fit
    _, points = read_curve(paths.trial(spec.name).learning_curve)
    most = points[-1].step if fit.out_of_time and points else fit.most_steps
    anneals = fit.parameters.get("schedule", "constant") != "constant" and not fit.out_of_time
    note = notes.get(spec.name)
    found: dict[str, Any] = {"temperature": fit.temperature, "search": fit.search}
    return DoneTrial(
        **{key: value for key, value in found.items() if value is not None},
        **_planned(spec),
        engine=fit.engine,
        devices=fit.devices or plan.devices(spec),
        status="done",
        metrics=trial.metrics,
        **fit.model_dump(include=_AS_FITTED),
        steps=points[-1].step if points else None,
        still_improving=None if most is None else still_improving(points, most, anneals=anneals),
        device_proof={**fit.device_proof, **nvml_proof(samples, plan, spec, fit)},
        notes=(*fit.notes, *([note] if note else [])),
    )


def _planned(spec: TrialSpec) -> dict[str, Any]:
    return spec.model_dump(include={"name", "model", "seed", "fold", "lane", "strategy"})


def _failed_trial(spec: TrialSpec, plan: Plan, failed: Mapping[str, str]) -> FailedTrial:
    return FailedTrial(
        **_planned(spec),
        engine=spec.engine,
        devices=plan.devices(spec),
        status="failed",
        error=failed.get(spec.name, "the run ended before it was done"),
        metrics=SplitMetrics(valid={}, test={}),
    )


def _first(metric: str, judged: Mapping[str, MetricValues]) -> str | None:
    """The best model but for the blend, on the validation rows."""
    values = {model: found[metric] for model, found in judged.items() if model != "blend"}
    return next(iter(metrics.best(metric, values)), None)
