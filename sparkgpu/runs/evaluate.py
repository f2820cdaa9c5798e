"""From the predictions of all trials to ``metrics.json``: scored by one scorer, compared and blended.

Reads only the run directory, so it can be repeated. Blend weights come from the validation rows alone; what
is compared on the test rows are each model's predictions averaged over its trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.plan.plan import Plan, TrialSpec
from sparkgpu.rundir.files import read_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.score import blend, compare, metrics, scorer
from sparkgpu.table.predictions import read_predictions
from sparkgpu.table.rows import read_rows
from sparkgpu.table.schema import SplitName, TableSchema

Values = NDArray[np.float64]
_SPLITS: tuple[SplitName, SplitName] = ("valid", "test")


@dataclass(frozen=True, kw_only=True)
class _Labels:
    """Row ids and labels of the rows a prediction is about."""

    row_id_N: NDArray[np.int64]
    label_N: NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class _Scored:
    """One finished trial: its metrics and its predictions in the order of the labels."""

    spec: TrialSpec
    fit: FitRecord
    metrics: dict[SplitName, metrics.Metrics]
    values: dict[SplitName, Values]


def evaluate(
    paths: RunPaths,
    plan: Plan,
    schema: TableSchema,
    failed: Mapping[str, str],
    seed: int,
    notes: Mapping[str, str],
) -> dict[str, Any]:
    """The parts of ``metrics.json`` that follow from predictions: models, trials, comparison.

    `failed` says of trials why they failed, `notes` what else befell them.
    """
    labels = _Reader(paths, schema)
    scored = [
        _score(paths, schema, spec, labels) for spec in plan.trials if paths.trial(spec.name).done.exists()
    ]
    pooled = {
        model: _pool(schema, [trial for trial in scored if trial.spec.model == model], labels)
        for model in ("trees", "neural")
        if any(trial.spec.model == model for trial in scored)
    }
    models = [_model_entry(model, plan, scored) for model in ("trees", "neural")]
    if len(pooled) == 2:
        weights = blend.blend_weights(
            schema.task, labels.all("valid").label_N, {name: found["valid"] for name, found in pooled.items()}
        )
        pooled["blend"] = {
            split: blend.blend({name: pooled[name][split] for name in weights}, weights) for split in _SPLITS
        }
        models.append(
            {
                "name": "blend",
                "engine": "blend",
                "status": "done",
                "trials": [trial.spec.name for trial in scored],
                "weights": weights,
                "metrics": {
                    split: metrics.compute(schema.task, labels.all(split).label_N, pooled["blend"][split])
                    for split in _SPLITS
                },
                "std": {"test": {}},
            }
        )
    return {
        "models": models,
        "trials": [
            *(_trial_entry(trial, plan, notes) for trial in scored),
            *(
                _failed_entry(spec, plan, failed)
                for spec in plan.trials
                if not paths.trial(spec.name).done.exists()
            ),
        ],
        "comparison": _comparison(schema, labels, pooled, seed),
    }


class _Reader:
    """Labels of the splits, read once each."""

    def __init__(self, paths: RunPaths, schema: TableSchema) -> None:
        self._paths = paths
        self._schema = schema
        self._read: dict[tuple[SplitName, int | None], _Labels] = {}

    def of(self, split: SplitName, fold: int | None) -> _Labels:
        """The rows of `split` as a trial of `fold` sees them."""
        key = (split, fold if split != "test" else None)
        if key not in self._read:
            rows = read_rows(self._paths, self._schema, split, fold=key[1], features=False)
            self._read[key] = _Labels(row_id_N=rows.row_id_N, label_N=rows.label_N)
        return self._read[key]

    def all(self, split: SplitName) -> _Labels:
        """Every row that some trial validated on (all folds together), or the test rows."""
        folds = self._schema.folds
        if split == "test" or folds is None:
            return self.of(split, None)
        parts = [self.of("valid", fold) for fold in range(folds)]
        row_id_N = np.concatenate([part.row_id_N for part in parts])
        order = np.argsort(row_id_N, kind="stable")
        label_N = np.concatenate([part.label_N for part in parts])[order]
        return _Labels(row_id_N=row_id_N[order], label_N=label_N)


def _score(paths: RunPaths, schema: TableSchema, spec: TrialSpec, labels: _Reader) -> _Scored:
    found = read_predictions(paths.trial(spec.name).predictions, schema)
    values: dict[SplitName, Values] = {}
    for split in _SPLITS:
        row_id_N, predicted = found[split]
        values[split] = scorer.align(labels.of(split, spec.fold).row_id_N, row_id_N, predicted)
    return _Scored(
        spec=spec,
        fit=FitRecord.model_validate(read_json(paths.trial(spec.name).fit)),
        metrics={
            split: metrics.compute(schema.task, labels.of(split, spec.fold).label_N, values[split])
            for split in _SPLITS
        },
        values=values,
    )


def _pool(schema: TableSchema, trials: list[_Scored], labels: _Reader) -> dict[SplitName, Values]:
    """One model's predictions averaged over its trials; with folds, each validated row over its own."""
    test = np.mean([trial.values["test"] for trial in trials], axis=0)
    if schema.folds is None:
        return {"valid": np.mean([trial.values["valid"] for trial in trials], axis=0), "test": test}
    whole = labels.all("valid").row_id_N
    total = np.zeros((len(whole), *test.shape[1:]))
    count = np.zeros(len(whole))
    for trial in trials:
        place = np.searchsorted(whole, labels.of("valid", trial.spec.fold).row_id_N)
        total[place] += trial.values["valid"]
        count[place] += 1
    # A fold whose trial failed leaves its rows without a prediction: the mean of the others stands in.
    missing = count == 0
    count[missing] = 1
    average = total / count.reshape(-1, *([1] * (total.ndim - 1)))
    if missing.any():
        average[missing] = average[~missing].mean(axis=0)
    return {"valid": average, "test": test}


def _model_entry(model: str, plan: Plan, scored: list[_Scored]) -> dict[str, Any]:
    own = [trial for trial in scored if trial.spec.model == model]
    planned = [spec for spec in plan.trials if spec.model == model]
    mean: dict[SplitName, Any] = {}
    spread: dict[SplitName, Any] = {}
    for split in _SPLITS:
        if own:
            mean[split], spread[split] = metrics.mean_and_std([trial.metrics[split] for trial in own])
    status = "done" if len(own) == len(planned) else ("partial" if own else "failed")
    return {
        "name": model,
        "engine": planned[0].engine if planned else None,
        "status": status if planned else "left out",  # by the configuration's `models`
        "trials": [trial.spec.name for trial in own],
        "metrics": {split: mean.get(split, {}) for split in _SPLITS},
        "std": {"test": spread.get("test") or {}},
    }


def _trial_entry(trial: _Scored, plan: Plan, notes: Mapping[str, str]) -> dict[str, Any]:
    fit = trial.fit
    note = notes.get(trial.spec.name)
    return {
        **_identity(trial.spec, plan),
        "status": "done",
        "metrics": dict(trial.metrics),
        **fit.model_dump(mode="json", exclude={"trial", "engine", "parameters", "train_rows", "notes"}),
        "notes": [*fit.notes, *([note] if note else [])],
    }


def _failed_entry(spec: TrialSpec, plan: Plan, failed: Mapping[str, str]) -> dict[str, Any]:
    reason = failed.get(spec.name, "the run ended before it was done")
    return {
        **_identity(spec, plan),
        "status": "failed",
        "error": reason,
        "metrics": {"valid": {}, "test": {}},
    }


def _identity(spec: TrialSpec, plan: Plan) -> dict[str, Any]:
    return {
        **spec.model_dump(include={"name", "model", "engine", "seed", "fold", "lane", "strategy"}),
        "devices": [plan.lanes[lane].device for lane in spec.gang],
    }


def _comparison(
    schema: TableSchema, labels: _Reader, pooled: Mapping[str, Mapping[SplitName, Values]], seed: int
) -> dict[str, Any]:
    metric = metrics.primary(schema.task)
    label_N = labels.all("test").label_N
    pairs = []
    for a, b in (("trees", "neural"), ("blend", "trees"), ("blend", "neural")):
        if a in pooled and b in pooled:
            found = compare.compare(schema.task, label_N, pooled[a]["test"], pooled[b]["test"], seed)
            pairs.append(
                {
                    "a": a,
                    "b": b,
                    "difference": found.difference,
                    "ci95": list(found.ci95),
                    "verdict": found.verdict,
                    "method": found.method,
                    "sentence": found.sentence(a, b),
                }
            )
    scores = {
        name: metrics.score(metric, value)
        for name, found in pooled.items()
        if (value := metrics.compute(schema.task, label_N, found["test"])[metric]) is not None
        and math.isfinite(value)
    }
    return {
        "metric": metric,
        "leader": max(scores, key=lambda name: scores[name], default=None),
        "pairs": pairs,
    }
