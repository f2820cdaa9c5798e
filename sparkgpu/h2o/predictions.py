"""The predictions of a model that H2O has trained, from the file that the trial saved: its MOJO.

The file is what users get, so it is what predicts here: the package xgboost applies its trees, many times
faster than H2O, and needs no rows inside H2O. H2O's own scoring library must then predict the same.

N rows, C classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.records import SavedModelRecord
from sparkgpu.core.table.rows import RowGroups
from sparkgpu.core.table.schema import SplitName
from sparkgpu.h2o.mojo import MOJO, MojoModel, load_mojo
from sparkgpu.trials.engine import TreesTrial
from sparkgpu.trials.saved_model import compared

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

Predictions = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Row ids, with values (N,) or with probabilities (N, C) in the order of the schema's classes."""

_PREDICTED: tuple[SplitName, ...] = ("valid", "test")
_VERIFIED_ROWS = 1_000


def by_saved_model(trial: TreesTrial, java: JVMView) -> dict[SplitName, Predictions]:
    """The predictions of the trial's MOJO for its validation and test rows, block by block."""
    saved = load_mojo(trial.paths.root, trial.schema, java)
    found = {}
    for split in _PREDICTED:
        ids, values = [], []
        for rows in RowGroups(trial.run, trial.schema, split, fold=trial.spec.fold).blocks():
            ids.append(rows.row_id_N)
            values.append(saved.predict(rows))
        found[split] = np.concatenate(ids), np.concatenate(values)
    return found


def verify_saved_model(predicted: Predictions, trial: TreesTrial, java: JVMView) -> SavedModelRecord:
    """Compare predictions of validation rows with those of H2O's scoring library in `java`.

    Raises `TrialError` if they differ.
    """
    model = MojoModel(trial.paths.root / MOJO, trial.schema, java)
    rows = next(RowGroups(trial.run, trial.schema, "valid", fold=trial.spec.fold).blocks())
    rows = rows.part(np.flatnonzero(model.can_read(rows))[:_VERIFIED_ROWS])
    return compared(trial.name, (rows.row_id_N, model.predict(rows)), predicted, on_gpu=False)
