"""Tables beyond a lane's memory: trees of `xgboost` from disk and in memory, and what a plan says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_trees import COLORS, Outcome, Table, cpu_lane, outcome, planned, table

from sparkgpu.core.plan.host_memory import beyond_memory, reasons_of, too_large_for_h2o
from sparkgpu.core.plan.make_plan import GIB
from sparkgpu.trees import from_disk
from sparkgpu.trials.engine import Platform, make_engine

MANY: dict[str, Any] = {"ntrees": 12, "max_depth": 5, "learn_rate": 0.3, "sample_rate": 0.8}


def fit(planted: Table, name: str, *, lane_bytes: int, **settings: Any) -> Outcome:
    trial = planned(planted, name, "xgboost", **settings)
    trial = replace(trial, lane=cpu_lane().model_copy(update={"memory_bytes": lane_bytes}))
    return outcome(planted, name, make_engine("xgboost", Platform()).run(trial))


def mixed(root: Path, *, weighted: bool = False, fold_N: Any = None) -> Table:
    """Numbers with few values, so that cuts are the same however they are found, with gaps and a category."""
    random = np.random.default_rng(8)
    rows = 6000
    number_NF = random.integers(0, 40, (rows, 3)).astype(float)
    number_NF[random.random((rows, 3)) < 0.05] = np.nan
    word_N = random.choice(COLORS, rows)
    label_N = (np.nan_to_num(number_NF[:, 0]) + 8 * (word_N == "red") + 9 * random.normal(size=rows) > 20) * 1
    return table(
        root, label_N, {f"x{f}": number_NF[:, f] for f in range(3)}, {"color": (word_N, COLORS)},
        weight_N=random.integers(1, 4, rows).astype(float) if weighted else None, fold_N=fold_N, parts=3,
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["depthwise", "lossguide"])
@pytest.mark.parametrize("weighted", [False, True])
def test_trees_from_disk_are_those_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool, policy: str
) -> None:
    monkeypatch.setattr(from_disk, "_PAGE_VALUES", 4 * 500)
    planted = mixed(tmp_path, weighted=weighted)
    settings = {**MANY, "sample_rate": 1.0, "grow_policy": policy, "max_leaves": 20}
    expected = fit(planted, "memory", lane_bytes=GIB, **settings)
    found = fit(planted, "disk", lane_bytes=40_000, **settings)
    np.testing.assert_allclose(found.test, expected.test, atol=1e-5)
    assert dict(found.curve) == pytest.approx(dict(expected.curve), rel=1e-5)
    assert found.record.train_rows == expected.record.train_rows
    assert not expected.record.notes
    assert found.record.notes == (
        "6,000 rows of 4 columns need 0.0 GiB of memory, and the trees of a lane may take 0.0 GiB; so "
        "xgboost keeps their bins in files of the temporary folder",
    )


def test_a_sample_of_rows_and_early_stopping_work_from_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(from_disk, "_PAGE_VALUES", 4 * 500)
    planted = mixed(tmp_path)
    settings = {**MANY, "ntrees": 400, "early_stopping_rounds": 5}
    expected = fit(planted, "memory", lane_bytes=GIB, **settings)
    found = fit(planted, "disk", lane_bytes=40_000, **settings)
    assert found.record.best_iteration < 400
    assert found.log_loss() == pytest.approx(expected.log_loss(), abs=0.01)


def test_a_plan_says_what_trees_do_with_a_table_beyond_memory() -> None:
    assert beyond_memory(20_000_000, 30, 64 * GIB) is None
    assert beyond_memory(20_000_000, 30, 0) is None  # not known
    assert too_large_for_h2o(17_000_000, 30, 64 * GIB) is None
    found = reasons_of(["h2o-xgboost", "xgboost", "torch"], 20_000_000, 30, 6 * GIB, test=0.15, on_gpu=False)
    assert found == {
        "memory of h2o-xgboost": "h2o-xgboost needs about 5.9 GiB for 17,000,000 training and validation "
        'rows of 30 columns, and a lane has 4.5 GiB beside Java\'s heap: set trees.engine = "xgboost", which '
        "reads larger tables from disk",
        "memory of xgboost": "20,000,000 rows of 30 columns need 4.5 GiB of memory, and the trees of a lane "
        "may take 3.0 GiB; so xgboost keeps their bins in files of the temporary folder",
    }
