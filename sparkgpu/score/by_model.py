"""What each model of a run predicts for the rows of one split: its trials averaged, and the blend of models.

N rows, C classes; predictions are probabilities (N, C), or values (N,) for a regression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import DoneTrial, Results
from sparkgpu.score import compare
from sparkgpu.score.blend import blend
from sparkgpu.score.predictions import LabelReader, Labels, Mean, trial_predictions
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema, Task

Interval = tuple[float, float] | tuple[None, None]
"""Both ends, or none."""

SEED = 7
"""Of the bootstrap of differences and intervals that are shown."""


@dataclass(frozen=True, kw_only=True)
class ModelPredictions:
    """The rows of a split, and for each model or trial its predictions of them, in the same order.

    A row that no trial of a model predicted (its fold failed) is NaN. Of a large split it may hold only every
    `every`-th row.
    """

    labels: Labels
    values: Mapping[str, FloatArray]
    every: int = 1

    def known(self, model: str) -> tuple[Labels, FloatArray]:
        """The rows that `model` predicted, and its predictions."""
        values = self.values[model]
        known_N = np.asarray(np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        return self.labels.where(known_N), values[known_N]

    def interval(self, task: Task, model: str) -> Interval:
        """The 95 % interval of the primary metric of `model`; two Nones without its predictions."""
        if model not in self.values:
            return None, None
        labels, values = self.known(model)
        return compare.interval(task, labels.label_N, values, SEED, weight_N=labels.weight_N)


def predictions_of_models(
    paths: RunPaths,
    schema: TableSchema,
    results: Results,
    split: Literal["valid", "test"],
    most_rows: int | None = None,
) -> ModelPredictions:
    """All models of the run but those with a trial whose predictions are gone or of other rows.

    Of a split with more than `most_rows` rows, evenly spaced ones.
    """
    reader = LabelReader(paths, schema)
    labels = reader.all(split)
    every = -(-len(labels.label_N) // most_rows) or 1 if most_rows else 1
    values: dict[str, FloatArray] = {}
    for model in results.models:
        if model.weights is None:
            mean = _mean(paths, schema, reader, split, results.done(model.name))
            if mean is not None:
                values[model.name] = mean[::every].copy()  # frees the memory of the other rows
        else:
            used = [name for name, share in model.weights.items() if share]
            if used and values.keys() >= set(used):
                shares = {name: model.weights[name] for name in used}
                values[model.name] = blend({name: values[name] for name in used}, shares)
    return ModelPredictions(labels=labels.each(every), values=values, every=every)


def predictions_of_trial(
    paths: RunPaths, schema: TableSchema, trial: DoneTrial, split: Literal["valid", "test"]
) -> ModelPredictions:
    """One trial, on the rows of its own fold. Raises the errors of `trial_predictions`."""
    labels = LabelReader(paths, schema).of(split, trial.fold)
    found = trial_predictions(paths, schema, trial.name, {split: labels})
    return ModelPredictions(labels=labels, values={trial.name: found[split]})


def _mean(
    paths: RunPaths,
    schema: TableSchema,
    reader: LabelReader,
    split: Literal["valid", "test"],
    trials: tuple[DoneTrial, ...],
) -> FloatArray | None:
    """The mean over the `trials` of a model; None if it cannot be made."""
    mean = Mean(reader.all(split))
    for trial in trials:
        labels = reader.of(split, trial.fold)
        try:
            mean.add(labels, trial_predictions(paths, schema, trial.name, {split: labels})[split])
        except (KeyError, OSError, ValueError):
            return None
    return mean.value() if trials else None
