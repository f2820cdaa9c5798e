"""The named checks of predictions: planted faults fail, each alone, and sound predictions pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sparkgpu.core.rundir.metrics_json import (
    CalibrationResult,
    ModelResult,
    SplitMetrics,
    Spread,
    read_results,
)
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.runs.checks import of_predictions, with_table
from sparkgpu.runs.pooled import Pooled
from sparkgpu.score.calibration import calibration_error
from sparkgpu.score.groups import by_group
from sparkgpu.score.predictions import Labels
from sparkgpu.score.profile import write_profile
from sparkgpu.score.segments import by_level

ROWS = 3_000
SCHEMA = TableSchema(
    source="made", target="y", task="binary", classes=("no", "yes"), features=(), rows=2 * ROWS,
    splits={"valid": ROWS, "test": ROWS}, fingerprint="",
)  # fmt: skip


def failed(fault: str) -> set[str]:
    """The checks that fail of predictions with this fault."""
    random = np.random.default_rng(4)
    told_N, group_N = random.uniform(0.02, 0.98, 2 * ROWS), random.integers(0, 2, 2 * ROWS)
    is_test_N = np.arange(2 * ROWS) >= ROWS
    true_N = told_N.copy()
    if fault == "overfitting":
        true_N = np.where(is_test_N, 0.5 + 0.3 * (told_N - 0.5), np.round(told_N))
    if fault == "underfitting":
        true_N = np.full(2 * ROWS, 0.5)
    if fault == "calibration":
        true_N = np.clip(0.25 + told_N / 2, 0, 1)
    if fault == "group_gap":
        true_N = np.where(group_N == 1, 0.5 + 0.7 * (told_N - 0.5), told_N)
    label_N = (random.random(2 * ROWS) < true_N).astype(int)
    told_NC = np.column_stack([1 - told_N, told_N])
    rows = {
        split: Labels(row_id_N=np.flatnonzero(own_N), label_N=label_N[own_N], weight_N=None)
        for split, own_N in (("valid", ~is_test_N), ("test", is_test_N))
    }
    test_NC, labels_N = told_NC[is_test_N], rows["test"].label_N
    error = calibration_error("binary", labels_N, test_NC)
    grouping = by_level("shop", ("a", "b"), group_N[is_test_N])
    model = ModelResult(
        name="trees", engine="x", status="done", trials=(), metrics=SplitMetrics(), std=Spread(),
        calibration=CalibrationResult(
            temperature=1.0, error_before=error, error_after=error, brier_before=0, brier_after=0,
            applied=False,
        ),
        groups=(by_group("binary", labels_N, test_NC, "shop", grouping, seed=7),),
    )  # fmt: skip
    pooled = Pooled(valid=told_NC[~is_test_N], test=test_NC, has_valid_N=np.ones(ROWS, dtype=bool))
    reader: Any = SimpleNamespace(all=rows.__getitem__)
    found = of_predictions(SCHEMA, reader, {"trees": pooled}, [model], "trees", "roc_auc")
    assert [one.name for one in found] == ["overfitting", "underfitting", "calibration", "group_gap"]
    assert all((one.value > one.bound) >= (one.status == "failed") for one in found)
    return {one.name for one in found if one.status == "failed"}


@pytest.mark.parametrize("fault", ["overfitting", "underfitting", "calibration", "group_gap", "none"])
def test_a_planted_fault_of_predictions_is_named_and_sound_ones_pass(fault: str) -> None:
    found = failed(fault)
    assert fault in found if fault != "none" else not found


def test_a_planted_drift_is_named_with_its_distance_and_what_nobody_judged_is_said(table: Any) -> None:
    random = np.random.default_rng(6)
    split_N = random.choice(["train", "valid", "test"], ROWS, p=[0.6, 0.2, 0.2])
    frame = pd.DataFrame({"x": random.normal(size=ROWS), "y": random.choice(["no", "yes"], ROWS)})
    for moved in (0.0, 1.0):
        planted = frame.assign(x=frame["x"] + moved * (split_N == "test"))
        paths = table(planted, "y", split_N=split_N, best={"roc_auc": 0.5})
        found = {one.name: one for one in with_table(read_results(paths), write_profile(paths)).checks}
        assert [found[name].status for name in ("leak", "repeated_rows")] == ["passed", "passed"]
        assert found["drift"].status == ("failed" if moved else "passed")
        assert (found["drift"].value > 0.3) == bool(moved) and found["drift"].bound == 0.1
        assert found["group_gap"].status == "not judged" and "--groups" in found["group_gap"].evidence
