"""Loads the model that a trial saved, and compares its predictions with those of the trained one.

N rows, C classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.errors import TrialError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord, SavedModelRecord
from sparkgpu.core.table.predictions import read_predictions
from sparkgpu.core.table.rows import RowGroups
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.score.predictions import align
from sparkgpu.trials.engine import load_fitted

_MOST_ROWS = 1_000  # a file that reads wrongly reads wrongly in the first of them
_TOLERANCE = 1e-5
# A GPU adds the same float32 products in another order than the CPU, or rounds them to TF32.
_TOLERANCE_FROM_GPU = 1e-3


def check_saved_model(record: FitRecord, paths: RunPaths, schema: TableSchema) -> SavedModelRecord:
    """Apply the saved model, on the CPU, to the first test rows. Raises `TrialError` if it differs."""
    trial = paths.trial(record.trial)
    rows = next(RowGroups(paths, schema, "test").blocks()).part(slice(_MOST_ROWS))
    row_id_N, values = read_predictions(trial.predictions, schema)["test"]
    found = load_fitted(record.engine, trial.root, schema).predict(rows)
    return compared(record.trial, (rows.row_id_N, found), (row_id_N, values), on_gpu=record.on_gpu)


def compared(
    trial: str, few: tuple[NDArray[np.int64], NDArray[np.float64]],
    many: tuple[NDArray[np.int64], NDArray[np.float64]], *, on_gpu: bool,
) -> SavedModelRecord:  # fmt: skip
    """Compare two predictions by row id, on the rows of `few`. Raises `TrialError`."""
    (few_id_N, found), (many_id_N, values) = few, many
    own = np.isin(many_id_N, few_id_N)
    expected = align(few_id_N, many_id_N[own], values[own])
    difference = largest_difference(expected, found)
    if not difference <= (_TOLERANCE_FROM_GPU if on_gpu else _TOLERANCE):
        raise TrialError(
            f"{trial}: the saved model predicts other values than the trained one; on {len(expected)} rows "
            f"they differ by up to {difference:.1e}. Please report this."
        )
    return SavedModelRecord(rows=len(expected), largest_difference=difference)


def largest_difference(expected: NDArray[np.float64], found: NDArray[np.float64]) -> float:
    """The largest difference of two predictions (N,) or (N, C), in units of the largest value if above 1."""
    size = max(float(np.abs(expected).max(initial=0.0)), 1.0)
    return float(np.abs(found - expected).max(initial=0.0)) / size
