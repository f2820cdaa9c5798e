"""The results of a run as pandas DataFrames, with the numbers as they are in its files.

Texts are of type object, counts int64, other numbers float64 with NaN where there is none; whole numbers that
may be absent are Int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sparkgpu.predict.fitted import typed_classes
from sparkgpu.predict.output import prediction_columns
from sparkgpu.rundir.curve import read_curve
from sparkgpu.rundir.explanations import Explanations
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import DoneTrial, MetricValues, Results
from sparkgpu.score.by_model import ModelPredictions
from sparkgpu.score.compare import interval
from sparkgpu.score.metrics import score
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema

_SEED = 7
_WHOLE = "Int64"  # pandas' whole numbers with gaps


def leaderboard(
    results: Results, split: Literal["valid", "test"], rows: ModelPredictions | None
) -> pd.DataFrame:
    """One row per model, the best by the primary metric first; a model of several trials: their average.

    `rows` give the 95 % interval of the primary metric; without them, or for fewer than ten rows, it is NaN.
    `std` is the primary metric's spread over the trials, on the test rows.
    """
    metric = results.comparison.metric
    names = list(dict.fromkeys(name for model in results.models for name in model.metrics.of(split)))
    lines: list[dict[str, Any]] = []
    for model in results.models:
        done = results.done(model.name)
        found = (model.averaged or model.metrics).of(split)
        low, high = leaderboard_interval(results, rows, model.name)
        lines.append(
            {
                "model": model.name,
                "engine": model.engine,
                "status": model.status,
                "leader": model.name == results.comparison.leader,
                "trials": len(done),
                **{name: _number(found.get(name)) for name in names},
                "ci_low": _number(low),
                "ci_high": _number(high),
                "std": _number(model.std.test.get(metric)),
                "fit_s": _mean([trial.fit_s for trial in done]),
                "predict_s": _mean([trial.predict_s for trial in done]),
                "train_rows_per_s": _mean([trial.train_rows_per_s for trial in done]),
            }
        )
    lines.sort(key=lambda line: _place(metric, line.get(metric, np.nan)))
    return pd.DataFrame(lines).astype({"model": object, "engine": object, "status": object})


def table(results: Results) -> pd.DataFrame:
    """The test metrics, one row per model: the means over its trials."""
    models = {model.name: model.metrics.test for model in results.models}
    return pd.DataFrame.from_dict(models, orient="index")


def trials(results: Results) -> pd.DataFrame:
    """One row per trial, finished or not, with its metrics on the test rows."""
    names = list(dict.fromkeys(name for trial in results.trials for name in trial.metrics.test))
    lines = [
        {
            "trial": trial.name,
            "model": trial.model,
            "engine": trial.engine,
            "status": trial.status,
            "seed": trial.seed,
            "fold": trial.fold,
            "lane": trial.lane,
            "devices": ", ".join(trial.devices),
            "strategy": trial.strategy,
            **_numbers(names, trial.metrics.test),
            **_measured(trial if isinstance(trial, DoneTrial) else None),
            "error": None if isinstance(trial, DoneTrial) else trial.error,
        }
        for trial in results.trials
    ]
    whole = dict.fromkeys(("fold", "best_iteration", "peak_host_bytes", "peak_device_bytes"), _WHOLE)
    return pd.DataFrame(lines).astype(whole | {"error": object})


def curves(paths: RunPaths, results: Results) -> pd.DataFrame:
    """One row per trial and step (a tree or an epoch), with the score on its training and validation rows."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("model", "trial", "step", "elapsed_s", "metric", "train", "valid")
    }
    for trial in results.trials:
        metric, points = read_curve(paths.trial(trial.name).learning_curve)
        for point in points:
            values = (trial.model, trial.name, point.step, point.elapsed_s, metric, point.train, point.valid)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    texts = dict.fromkeys(("model", "trial", "metric"), object)
    numbers = dict.fromkeys(("elapsed_s", "train", "valid"), np.float64)
    return pd.DataFrame(columns).astype({**texts, "step": np.int64, **numbers})


def pairs(results: Results) -> pd.DataFrame:
    """One row per compared pair: the metric of `a` minus that of `b` on the test rows, and who is ahead."""
    lines = [
        (
            pair.a,
            pair.b,
            results.comparison.metric,
            _number(pair.difference),
            *map(_number, pair.ci95),
            {"a": pair.a, "b": pair.b}.get(pair.verdict),
            pair.sentence,
        )
        for pair in results.comparison.pairs
    ]
    names = ("a", "b", "metric", "difference", "ci_low", "ci_high", "ahead", "sentence")
    numbers = dict.fromkeys(("difference", "ci_low", "ci_high"), np.float64)
    return pd.DataFrame(lines, columns=list(names), dtype=object).astype(numbers)


def importance(found: Explanations) -> pd.DataFrame:
    """One row per column of the source and model, the leading column first."""
    lines = [
        (one.column, model, value.mean, _number(value.std), value.share, value.shuffles)
        for one in found.importances
        for model, value in one.models.items()
    ]
    names = ("column", "model", "importance", "std", "share", "shuffles")
    numbers = dict.fromkeys(("importance", "std", "share"), np.float64)
    kinds = {**numbers, "shuffles": np.int64}
    return pd.DataFrame(lines, columns=list(names), dtype=object).astype(kinds)


def predictions(schema: TableSchema, rows: ModelPredictions, name: str) -> pd.DataFrame:
    """Each row's id in the source, its label and what `name` predicts; without rows that it did not predict.

    The columns of the prediction are those of ``sparkgpu predict``.
    """
    values = rows.values[name]
    known_N = _known(values)
    labels, values = rows.labels.where(known_N), values[known_N]
    columns: dict[str, NDArray[Any]] = {"row_id": labels.row_id_N}
    if schema.classes:
        classes_C = typed_classes(schema)
        columns |= {"label": classes_C[labels.label_N], "prediction": classes_C[values.argmax(axis=1)]}
        for place, column in enumerate(prediction_columns(schema)[1:]):
            columns[column] = values[:, place]
    else:
        columns |= {"label": labels.label_N, "prediction": values}
    return pd.DataFrame(columns)


def leaderboard_interval(
    results: Results, rows: ModelPredictions | None, model: str
) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of the primary metric of `model`; two Nones without its predictions."""
    if rows is None or model not in rows.values:
        return None, None
    values = rows.values[model]
    known_N = _known(values)
    labels = rows.labels.where(known_N)
    return interval(results.data.task, labels.label_N, values[known_N], _SEED, weight_N=labels.weight_N)


def _known(values: FloatArray) -> NDArray[np.bool_]:
    """The rows that have a prediction, (N,)."""
    return np.asarray(np.isfinite(values.reshape(len(values), -1)).all(axis=1))


def _measured(trial: DoneTrial | None) -> dict[str, Any]:
    return {
        "fit_s": trial.fit_s if trial else np.nan,
        "predict_s": trial.predict_s if trial else np.nan,
        "train_rows_per_s": trial.train_rows_per_s if trial else np.nan,
        "best_iteration": trial.best_iteration if trial else None,
        "peak_host_bytes": trial.peak_host_bytes if trial else None,
        "peak_device_bytes": trial.peak_device_bytes if trial else None,
    }


def _numbers(names: Sequence[str], values: MetricValues) -> dict[str, float]:
    return {name: _number(values.get(name)) for name in names}


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else np.nan


def _place(metric: str, value: float) -> float:
    return np.inf if np.isnan(value) else -score(metric, value)
