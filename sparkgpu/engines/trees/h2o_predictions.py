"""The predictions of a model that H2O has trained: by its saved trees in this process, or by H2O.

The package xgboost applies the trees many times faster than H2O, which hands its predictions over in files,
and needs no test rows inside H2O. H2O then predicts only some rows, against which the saved trees are held.

N rows, C classes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h2o
import numpy as np
import pyarrow.parquet as pq
from h2o.estimators import H2OXGBoostEstimator
from numpy.typing import NDArray

from sparkgpu.engines.engine import Model, TreesTrial
from sparkgpu.engines.saved_model import compared
from sparkgpu.jvm.column_file import frame_values
from sparkgpu.rundir.records import SavedModelRecord
from sparkgpu.table.row_groups import RowGroups
from sparkgpu.table.schema import ROW_ID, SplitName, TableSchema

if TYPE_CHECKING:
    from h2o import H2OFrame
    from py4j.java_gateway import JVMView

Predictions = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Row ids, with values (N,) or with probabilities (N, C) in the order of the schema's classes."""

_HELD_ROWS = 1_000


def can_apply_saved_trees() -> bool:
    """Whether the package that applies saved trees is installed."""
    return find_spec("xgboost") is not None


def by_saved_trees(saved: Model, trial: TreesTrial) -> dict[SplitName, Predictions]:
    """The predictions of the saved model for the trial's validation and test rows, block by block."""
    asked: tuple[SplitName, ...] = ("valid", "test")
    return {split: _blockwise(saved, trial, split) for split in asked}


def _blockwise(saved: Model, trial: TreesTrial, split: SplitName) -> Predictions:
    ids, values = [], []
    for rows in RowGroups(trial.run, trial.schema, split, fold=trial.spec.fold).blocks():
        ids.append(rows.row_id_N)
        values.append(saved.predict(rows))
    return np.concatenate(ids), np.concatenate(values)


def held_against_h2o(
    predicted: Predictions, model: H2OXGBoostEstimator, valid: H2OFrame, trial: TreesTrial, java: JVMView
) -> SavedModelRecord:
    """Hold the saved model's predictions of validation rows against those of the H2O in `java`.

    Raises `TrialError`.
    """
    rows = valid[:_HELD_ROWS, :]
    found = rows[ROW_ID].cbind(model.predict(rows))
    value_NC = frame_values(java, found.frame_id, found.ncols)
    columns = dict(zip(found.names, value_NC.T, strict=True))
    own = _predictions(columns, trial.schema)
    return compared(trial.name, own, predicted, on_gpu=trial.parameters.on_gpu)


def all_by_h2o(
    model: H2OXGBoostEstimator, frames: Mapping[SplitName, H2OFrame], schema: TableSchema, scratch: Path
) -> dict[SplitName, Predictions]:
    """H2O's own predictions for whole splits."""
    return {
        split: by_h2o(model, frame, schema, scratch / f"predicted-{split}") for split, frame in frames.items()
    }


def by_h2o(model: H2OXGBoostEstimator, frame: H2OFrame, schema: TableSchema, folder: Path) -> Predictions:
    """H2O's own predictions for a frame.

    They pass through Parquet in `folder`, which is removed: H2O's CSV download takes longer.
    """
    shutil.rmtree(folder, ignore_errors=True)  # left by a driver that was lost in the middle of this
    predicted = frame[ROW_ID].cbind(model.predict(frame))
    h2o.export_file(predicted, str(folder), format="parquet", parts=1)
    found = pq.read_table(folder)
    shutil.rmtree(folder)
    return _predictions({name: found[name].to_numpy() for name in found.column_names}, schema)


def _predictions(columns: Mapping[str, NDArray[Any]], schema: TableSchema) -> Predictions:
    names = [f"p{code}" for code in range(len(schema.classes))] or ["predict"]
    values = np.column_stack([columns[name] for name in names])
    return columns[ROW_ID].astype(np.int64), values if schema.classes else values[:, 0]
