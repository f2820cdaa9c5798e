"""The numbers behind the plots: predictions joined to labels, ROC curves, confusion, learning curves.

Limits: every row counts alike, as in the scorer; the test split alone, and at most `MOST_ROWS` rows of it,
evenly spaced, since a picture gains nothing from more. N rows, C classes.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkgpu.rundir.paths import RunPaths
from sparkgpu.score.scorer import align
from sparkgpu.table.predictions import read_predictions
from sparkgpu.table.rows import read_rows
from sparkgpu.table.schema import TableSchema

FloatArray = npt.NDArray[np.float64]

MOST_ROWS = 200_000
MOST_POINTS = 500  # of a line: more than it has pixels across would only cost time


@dataclass(frozen=True, kw_only=True)
class TestRows:
    """Labels of the test split and the predictions of each model's finished trials, in the same order.

    Predictions are probabilities (N, C), or values (N,) for regression. `every` says that each so-manieth row
    is here.
    """

    label_N: npt.NDArray[Any]
    trials: dict[str, tuple[FloatArray, ...]]
    every: int = 1

    def mean(self, model: str) -> FloatArray:
        """The model's predictions averaged over its trials."""
        return np.asarray(np.mean(self.trials[model], axis=0))


def read_test(paths: RunPaths, schema: TableSchema, metrics: dict[str, Any]) -> TestRows:
    """Read what is there; a trial whose predictions are gone or do not fit the table is left out."""
    rows = read_rows(paths, schema, "test", features=False)
    every = -(-len(rows.label_N) // MOST_ROWS) or 1
    trials: dict[str, tuple[FloatArray, ...]] = {}
    for trial in metrics["trials"]:
        path = paths.trial(trial["name"]).predictions
        if trial.get("status") != "done" or not path.exists():
            continue
        try:
            row_id_N, values = read_predictions(path, schema)["test"]
            values = align(rows.row_id_N, row_id_N, values)[::every].astype(np.float64)
        except (KeyError, OSError, ValueError):
            continue
        trials[trial["model"]] = (*trials.get(trial["model"], ()), values)
    weights = {model["name"]: model.get("weights") or {} for model in metrics["models"]}.get("blend", {})
    if weights and weights.keys() <= trials.keys():
        mixed = sum(share * np.mean(trials[model], axis=0) for model, share in weights.items())
        trials["blend"] = (np.asarray(mixed, dtype=np.float64),)
    return TestRows(label_N=rows.label_N[::every], trials=trials, every=every)


def roc(label_N: npt.NDArray[Any], score_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """False and true positive rates, from (0, 0) to (1, 1), in at most `MOST_POINTS` points.

    Rows with equal scores are one step, as for the area in ``metrics.json``. Both classes must be there.
    """
    order_N = np.argsort(-score_N, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(score_N[order_N]) != 0, True))
    positive_N = label_N[order_N] == 1
    true = np.concatenate([[0.0], np.cumsum(positive_N)[ends]])
    false = np.concatenate([[0.0], np.cumsum(~positive_N)[ends]])
    true, false = true / true[-1], false / false[-1]
    if len(true) > MOST_POINTS:
        # Evenly along the curve, which is steep at first: even steps of one axis would cut its corner.
        kept = np.unique(np.searchsorted(true + false, np.linspace(0.0, 2.0, MOST_POINTS)))
        kept = np.unique(np.append(kept[kept < len(true)], len(true) - 1))
        true, false = true[kept], false[kept]
    return false, true


def confusion(label_N: npt.NDArray[Any], probability_NC: FloatArray) -> FloatArray:
    """Share of each true class (row) that is taken for each class (column), (C, C); 0 for absent classes."""
    num_classes = probability_NC.shape[1]
    codes_N = label_N.astype(np.int64) * num_classes + probability_NC.argmax(axis=1)
    counts = np.bincount(codes_N, minlength=num_classes**2).reshape(num_classes, -1)
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """``learning_curve.csv`` of one trial, for its first metric; NaN where a value is blank."""

    trial: str
    metric: str
    step: FloatArray
    train: FloatArray
    valid: FloatArray


def read_learning_curve(path: Path, trial: str) -> LearningCurve | None:
    """None where the file is absent or holds no row."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        return None
    rows = [row for row in rows if row["metric"] == rows[0]["metric"] and row["step"]]
    if not rows:
        return None
    rows = rows[:: -(-len(rows) // MOST_POINTS)]

    def column(name: str) -> FloatArray:
        return np.array([float(row[name] or "nan") for row in rows])

    return LearningCurve(
        trial=trial,
        metric=rows[0]["metric"],
        step=column("step"),
        train=column("train"),
        valid=column("valid"),
    )
