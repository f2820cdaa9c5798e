"""The main picture of a run, by its task."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparkgpu.report.curves import TestRows
from sparkgpu.report.figure import Picture
from sparkgpu.report.pictures.binary import roc_curves
from sparkgpu.report.pictures.classes import confusion_matrices
from sparkgpu.report.pictures.regression import predicted_against_true
from sparkgpu.report.pictures.shared import with_predictions
from sparkgpu.score.metrics import primary, score
from sparkgpu.table.schema import TableSchema

_MOST_PANELS = 4


def quality(test: TestRows, schema: TableSchema, values: Mapping[str, float | None]) -> Picture | None:
    """ROC curves, confusion matrices, or predicted against true values; None without predictions.

    `values` are the models' main metric on the test split.
    """
    models = with_predictions(test, list(values))
    if not models or not len(test.labels.label_N):
        return None
    if schema.task == "binary":
        return roc_curves(test, schema, values)
    note = ""
    if len(models) > _MOST_PANELS:
        best = sorted(models, key=lambda model: -_score(schema, values[model]))[:_MOST_PANELS]
        models = [model for model in models if model in best]
        note = f" The best {_MOST_PANELS} of {len(values)} models."
    if schema.task == "multiclass":
        return confusion_matrices(test, schema, models, note)
    return predicted_against_true(test, schema, models, note)


def _score(schema: TableSchema, value: float | None) -> float:
    return -np.inf if value is None else score(primary(schema.task), value)
