"""Makes ``metrics.json`` from the predictions of all trials: one scorer scores, compares and blends them.

It reads only the run directory, so it can be repeated. Blend weights come only from the validation rows. The
comparison on the test rows uses each model's predictions averaged over its trials. If the user named a column
of row weights, it weights every figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from sparkgpu.plan.plan import Plan, TrialSpec
from sparkgpu.rundir.files import read_record
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.rundir.results import (
    ComparisonResult,
    DoneTrial,
    FailedTrial,
    ModelResult,
    PairResult,
    SplitMetrics,
    Spread,
)
from sparkgpu.score import blend, compare, metrics
from sparkgpu.score.predictions import LabelReader, Labels, averaged, trial_predictions
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import SplitName, TableSchema

_SPLITS: tuple[SplitName, SplitName] = ("valid", "test")
_ALWAYS = ("trees", "neural")  # always in `models`, trained or not

Predictions = Mapping[SplitName, FloatArray]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The parts of ``metrics.json`` that follow from predictions."""

    models: tuple[ModelResult, ...]
    trials: tuple[DoneTrial | FailedTrial, ...]
    comparison: ComparisonResult


@dataclass(frozen=True, kw_only=True)
class _Scored:
    """One finished trial: its metrics and its predictions in the order of the labels."""

    spec: TrialSpec
    fit: FitRecord
    metrics: SplitMetrics
    values: Predictions


def evaluate(
    paths: RunPaths,
    plan: Plan,
    schema: TableSchema,
    failed: Mapping[str, str],
    seed: int,
    notes: Mapping[str, str],
) -> Evaluation:
    """Score what finished. `failed` gives the reasons of failed trials, `notes` other notes on trials."""
    labels = LabelReader(paths, schema)
    done = [spec for spec in plan.trials if paths.trial(spec.name).done.exists()]
    scored = [_score(paths, schema, spec, labels) for spec in done]
    names = tuple(dict.fromkeys((*_ALWAYS, *(spec.model for spec in plan.trials))))
    pooled = {
        model: _pool(schema, own, labels)
        for model in names
        if (own := [trial for trial in scored if trial.spec.model == model])
    }
    models = [_model(model, plan, scored) for model in names]
    if len(pooled) > 1:
        valid = labels.all("valid")
        weights = blend.blend_weights(
            schema.task,
            valid.label_N,
            {name: found["valid"] for name, found in pooled.items()},
            weight_N=valid.weight_N,
        )
        mixed: Predictions = {
            split: blend.blend({name: pooled[name][split] for name in weights}, weights) for split in _SPLITS
        }
        pooled["blend"] = mixed
        models.append(
            ModelResult(
                name="blend",
                engine="blend",
                status="done",
                trials=tuple(trial.spec.name for trial in scored),
                weights=weights,
                metrics=SplitMetrics(
                    valid=_compute(schema, labels, "valid", mixed),
                    test=_compute(schema, labels, "test", mixed),
                ),
                std=Spread(test={}),
            )
        )
    return Evaluation(
        models=tuple(models),
        trials=(
            *(_done_trial(trial, plan, notes) for trial in scored),
            *(_failed_trial(spec, plan, failed) for spec in plan.trials if spec not in done),
        ),
        comparison=_comparison(schema, labels, pooled, seed),
    )


def _compute(
    schema: TableSchema, labels: LabelReader, split: SplitName, values: Predictions
) -> metrics.Metrics:
    rows = labels.all(split)
    return metrics.compute(schema.task, rows.label_N, values[split], rows.weight_N)


def _score(paths: RunPaths, schema: TableSchema, spec: TrialSpec, labels: LabelReader) -> _Scored:
    own: dict[SplitName, Labels] = {split: labels.of(split, spec.fold) for split in _SPLITS}
    values = trial_predictions(paths, schema, spec.name, own)
    found = {
        split: metrics.compute(schema.task, rows.label_N, values[split], rows.weight_N)
        for split, rows in own.items()
    }
    return _Scored(
        spec=spec,
        fit=read_record(paths.trial(spec.name).fit, FitRecord),
        metrics=SplitMetrics(valid=found["valid"], test=found["test"]),
        values=values,
    )


def _pool(schema: TableSchema, trials: Sequence[_Scored], labels: LabelReader) -> Predictions:
    """One model's predictions averaged over its trials; with folds, each row over its own fold's trials."""
    test = averaged([trial.values["test"] for trial in trials])
    if schema.folds is None:
        return {"valid": averaged([trial.values["valid"] for trial in trials]), "test": test}
    whole = labels.all("valid").row_id_N
    total = np.zeros((len(whole), *test.shape[1:]))
    count = np.zeros(len(whole))
    for trial in trials:
        place = np.searchsorted(whole, labels.of("valid", trial.spec.fold).row_id_N)
        total[place] += trial.values["valid"]
        count[place] += 1
    # If a fold's trial failed, its rows have no prediction: the mean of the others replaces it.
    missing = count == 0
    count[missing] = 1
    average = total / count.reshape(-1, *([1] * (total.ndim - 1)))
    if missing.any():
        average[missing] = average[~missing].mean(axis=0)
    return {"valid": average, "test": test}


def _model(model: str, plan: Plan, scored: Sequence[_Scored]) -> ModelResult:
    own = [trial for trial in scored if trial.spec.model == model]
    planned = [spec for spec in plan.trials if spec.model == model]
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
    return ModelResult(
        name=model,
        engine=planned[0].engine if planned else None,
        status=status,
        trials=tuple(trial.spec.name for trial in own),
        metrics=means,
        std=spread,
    )


def _done_trial(trial: _Scored, plan: Plan, notes: Mapping[str, str]) -> DoneTrial:
    spec, fit = trial.spec, trial.fit
    note = notes.get(spec.name)
    return DoneTrial(
        name=spec.name,
        model=spec.model,
        engine=spec.engine,
        seed=spec.seed,
        fold=spec.fold,
        lane=spec.lane,
        strategy=spec.strategy,
        devices=_devices(spec, plan),
        status="done",
        metrics=trial.metrics,
        fit_s=fit.fit_s,
        predict_s=fit.predict_s,
        train_rows_per_s=fit.train_rows_per_s,
        peak_host_bytes=fit.peak_host_bytes,
        peak_device_bytes=fit.peak_device_bytes,
        best_iteration=fit.best_iteration,
        native_parameters=fit.native_parameters,
        device_proof=fit.device_proof,
        notes=(*fit.notes, *([note] if note else [])),
    )


def _failed_trial(spec: TrialSpec, plan: Plan, failed: Mapping[str, str]) -> FailedTrial:
    return FailedTrial(
        name=spec.name,
        model=spec.model,
        engine=spec.engine,
        seed=spec.seed,
        fold=spec.fold,
        lane=spec.lane,
        strategy=spec.strategy,
        devices=_devices(spec, plan),
        status="failed",
        error=failed.get(spec.name, "the run ended before it was done"),
        metrics=SplitMetrics(valid={}, test={}),
    )


def _devices(spec: TrialSpec, plan: Plan) -> tuple[str, ...]:
    return tuple(plan.lanes[lane].device for lane in spec.gang)


def _comparison(
    schema: TableSchema, labels: LabelReader, pooled: Mapping[str, Predictions], seed: int
) -> ComparisonResult:
    metric = metrics.primary(schema.task)
    rows = labels.all("test")
    models = [name for name in pooled if name != "blend"]
    pairs = []
    for a, b in (*combinations(models, 2), *(("blend", name) for name in models if "blend" in pooled)):
        found = compare.compare(
            schema.task, rows.label_N, pooled[a]["test"], pooled[b]["test"], seed, weight_N=rows.weight_N
        )
        pairs.append(
            PairResult(
                a=a,
                b=b,
                difference=found.difference,
                ci95=found.ci95,
                verdict=found.verdict,
                method=found.method,
                sentence=found.sentence(a, b),
            )
        )
    values = {name: _compute(schema, labels, "test", found)[metric] for name, found in pooled.items()}
    return ComparisonResult(
        metric=metric, leader=next(iter(metrics.best(metric, values)), None), pairs=tuple(pairs)
    )
