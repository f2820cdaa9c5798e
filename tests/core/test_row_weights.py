"""A column of row weights affects every figure of a run; balanced classes affect none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_run import MadeRun
from made_table import made_rows, write_part

from sparkgpu.core.config.keys import DataConfig
from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import TableSchema, Task
from sparkgpu.prepare.target import Target, check_weights, class_weights


@pytest.mark.parametrize(
    ("task", "folds"), [("binary", 3), ("binary", None), ("multiclass", None), ("regression", 3)]
)
def test_a_weight_of_three_gives_the_metrics_of_three_equal_rows(
    task: Task, folds: int | None, tmp_path: Path
) -> None:
    made = MadeRun(task, folds)
    weighted = made.evaluated(tmp_path / "weighted", weight="w")
    repeated = made.evaluated(tmp_path / "repeated", repeated=True)
    plain = made.evaluated(tmp_path / "plain")
    assert [model.name for model in weighted.models] == ["trees", "neural", "blend"]
    for one, same, other in zip(weighted.models, repeated.models, plain.models, strict=True):
        for split in ("valid", "test"):
            assert one.metrics.of(split) == pytest.approx(same.metrics.of(split), rel=1e-9)
            assert one.metrics.of(split) != pytest.approx(other.metrics.of(split), rel=1e-3)
        assert one.weights == (pytest.approx(same.weights, abs=1e-6) if same.weights else None)
    for pair, same, other in zip(
        weighted.comparison.pairs, repeated.comparison.pairs, plain.comparison.pairs, strict=True
    ):
        assert pair.difference == pytest.approx(same.difference, rel=1e-6)
        assert pair.ci95 != pytest.approx(other.ci95, rel=1e-3)
    assert weighted.comparison.leader == repeated.comparison.leader


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_balanced_classes_leave_metrics_as_they_are(task: Task, tmp_path: Path) -> None:
    made = MadeRun(task)
    assert made.evaluated(tmp_path / "balanced", balanced=True) == made.evaluated(tmp_path / "plain")
    both = made.evaluated(tmp_path / "both", weight="w", balanced=True)
    own = made.evaluated(tmp_path / "own", weight="w")
    for one, same in zip(both.models, own.models, strict=True):
        assert one.metrics.test == pytest.approx(same.metrics.test, rel=1e-6)


def test_class_weights_are_those_of_scikit_learn_and_of_classes_alone() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    label_N = np.repeat([0, 1], [30, 10])
    target = Target(
        column="y", task="binary", classes=("no", "yes"), class_rows=(30, 10), type="string", rows=40,
        rows_refused=0,
    )  # fmt: skip
    expected = compute_class_weight("balanced", classes=np.array([0, 1]), y=label_N)
    assert class_weights(DataConfig(class_weights="balanced"), target) == pytest.approx(tuple(expected))
    assert class_weights(DataConfig(weight="w"), target) == ()


@pytest.mark.parametrize(
    ("weight", "folds", "where"),
    [([1, 1, 1, 0, 0, 0], None, "3 rows of split test"), ([0, 1, 0, 1, 1, 1], 2, "2 rows of fold 0"),
     ([0, 1, 1, 0, 0, 1], None, None), ([0, 1, 0, 0, 0, 1], 2, "2 rows of fold 0"),
     ([1, 1, 0, 0, 0, 1], 2, None)],
)  # fmt: skip
def test_a_table_in_which_nothing_would_count_is_refused(
    weight: list[int], folds: int | None, where: str | None, tmp_path: Path
) -> None:
    paths = RunPaths(root=tmp_path)
    for number, split in enumerate(("train", "test")):
        weight_N = [float(value) for value in weight[3 * number : 3 * number + 3]]
        write_part(paths, split, made_rows((), {}, [0.5] * 3, weight_N=weight_N, fold_N=[0, 1, 0]))
    schema = TableSchema(
        source="made", target="y", task="regression", features=(), weighted=True, weight="w", folds=folds,
        rows=6, splits={"train": 3, "valid": 0, "test": 3}, fingerprint="",
    )  # fmt: skip
    if where is None:
        check_weights(paths, schema)
        return
    with pytest.raises(DataError) as refused:
        check_weights(paths, schema)
    assert str(refused.value) == (
        f"data.weight 'w' is zero in all {where}, so nothing there would count. Choose another column, or "
        "another split."
    )
