"""Scales the probabilities of a finished trial by a temperature, fitted on its validation rows."""

from __future__ import annotations

from sparkgpu.plan.trial_spec import TrialSpec
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.score.calibration import scaled, temperature
from sparkgpu.score.predictions import LabelReader
from sparkgpu.score.scorer import align
from sparkgpu.table.predictions import read_predictions, write_predictions
from sparkgpu.table.schema import TableSchema


def calibrate(spec: TrialSpec, record: FitRecord, paths: RunPaths, schema: TableSchema) -> FitRecord:
    """Write the trial's predictions again, at the temperature that the returned record has."""
    file = paths.trial(spec.name).predictions
    found = read_predictions(file, schema)
    valid = LabelReader(paths, schema).of("valid", spec.fold)
    valid_NC = align(valid.row_id_N, *found["valid"])
    by = temperature(schema.task, valid.label_N, valid_NC, valid.weight_N)
    write_predictions(
        file, {split: (row_id_N, scaled(values, by)) for split, (row_id_N, values) in found.items()}, schema
    )
    return record.model_copy(update={"temperature": by})
