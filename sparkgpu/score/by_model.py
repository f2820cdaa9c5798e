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
from sparkgpu.score.blend import blend
from sparkgpu.score.predictions import LabelReader, Labels, trial_predictions
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema


@dataclass(frozen=True, kw_only=True)
class ModelPredictions:
    """The rows of a split, and for each model or trial its predictions of them, in the same order.

    A row that no trial of a model predicted (its fold failed) is NaN.
    """

    labels: Labels
    values: Mapping[str, FloatArray]


def predictions_of_models(
    paths: RunPaths, schema: TableSchema, results: Results, split: Literal["valid", "test"]
) -> ModelPredictions:
    """All models of the run but those with a trial whose predictions are gone or of other rows."""
    reader = LabelReader(paths, schema)
    values: dict[str, FloatArray] = {}
    for model in results.models:
        if model.weights is None:
            values |= _mean(paths, schema, reader, split, model.name, results.done(model.name))
        else:
            used = [name for name, share in model.weights.items() if share]
            if used and values.keys() >= set(used):
                shares = {name: model.weights[name] for name in used}
                values[model.name] = blend({name: values[name] for name in used}, shares)
    return ModelPredictions(labels=reader.all(split), values=values)


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
    model: str,
    trials: tuple[DoneTrial, ...],
) -> dict[str, FloatArray]:
    """The mean over the `trials` of a model, under its name; nothing if it cannot be made."""
    whole_N = reader.all(split).row_id_N
    total: FloatArray | None = None
    count_N = np.zeros(len(whole_N))
    for trial in trials:
        labels = reader.of(split, trial.fold)
        try:
            found = trial_predictions(paths, schema, trial.name, {split: labels})[split]
        except (KeyError, OSError, ValueError):
            return {}
        if total is None:
            total = np.zeros((len(whole_N), *found.shape[1:]))
        place_N = np.searchsorted(whole_N, labels.row_id_N)
        total[place_N] += found
        count_N[place_N] += 1
    if total is None:
        return {}
    divisor_N = np.where(count_N > 0, count_N, np.nan)
    return {model: total / divisor_N.reshape(-1, *([1] * (total.ndim - 1)))}
