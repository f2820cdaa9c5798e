"""A column of row weights affects every figure of a run; balanced classes affect none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.config.keys import DataConfig
from sparkgpu.errors import DataError
from sparkgpu.plan.plan import LanePlan, Plan, TrialSpec
from sparkgpu.prepare.labels import check_weights, class_weights
from sparkgpu.prepare.target import Target
from sparkgpu.rundir.files import write_json, write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.runs.evaluate import Evaluation, evaluate
from sparkgpu.table.predictions import write_predictions
from sparkgpu.table.schema import Feature, TableSchema, Task

CLASSES = {"binary": ("no", "yes"), "multiclass": ("a", "b", "c"), "regression": ()}
BALANCE = (0.625, 2.5, 4.0)


class MadeRun:
    """A tiny table with the predictions of two models and two trials each, from one random draw."""

    def __init__(self, task: Task, folds: int | None = None) -> None:
        rng = np.random.default_rng(5)
        self.task: Task = task
        self.folds = folds
        self.rows = 240
        self.classes = CLASSES[task]
        self.split_N = np.array(["valid" if folds is None else "train", "test"])[np.arange(self.rows) % 2]
        self.fold_N = np.arange(self.rows) // 2 % (folds or 1)
        self.weight_N = rng.integers(0, 4, self.rows)
        if self.classes:
            self.label_N = rng.integers(0, len(self.classes), self.rows)
        else:
            self.label_N = rng.normal(size=self.rows)
        self.predicted = {
            f"{model}-{number}": self._predicted(rng, noise)
            for model, noise in (("trees", 1.0), ("neural", 1.4))
            for number in range(folds or 2)
        }

    def _predicted(self, rng: np.random.Generator, noise: float) -> np.ndarray:
        if not self.classes:
            return self.label_N + noise * rng.normal(size=self.rows)
        logit_NC = noise * rng.normal(size=(self.rows, len(self.classes)))
        logit_NC[np.arange(self.rows), self.label_N] += 1.0
        share_NC = np.exp(logit_NC)
        return share_NC / share_NC.sum(axis=1, keepdims=True)

    def evaluated(self, root: Path, *, repeated: bool = False, weight: str | None = None,
                  balanced: bool = False) -> Evaluation:  # fmt: skip
        """Write the run to `root`, with weighted rows, or with each row repeated as often as its weight."""
        paths = RunPaths(root=root)
        own_N = np.repeat(np.arange(self.rows), self.weight_N if repeated else 1)
        row_id_N = np.arange(len(own_N))
        label_N, split_N, fold_N = self.label_N[own_N], self.split_N[own_N], self.fold_N[own_N]
        balance = BALANCE[: len(self.classes)] if balanced else ()
        schema = TableSchema(
            source="made", target="y", task=self.task, classes=self.classes,
            features=(Feature(name="x", source="x", kind="numeric", pipeline="x"),),
            weighted=weight is not None or balanced, weight=weight, class_weights=balance,
            folds=self.folds, rows=len(own_N), splits={}, fingerprint="",
        )  # fmt: skip
        in_table_N = self.weight_N[own_N].astype(float) if weight else np.ones(len(own_N))
        if balanced:
            in_table_N = in_table_N * np.asarray(balance)[label_N]
        for split in np.unique(split_N):
            here = split_N == split
            columns = {"row_id": row_id_N[here], "label": label_N[here], "fold": fold_N[here]}
            if schema.weighted:
                columns["weight"] = in_table_N[here]
            paths.split(split).mkdir(parents=True)
            pq.write_table(pa.table(columns), paths.split(split) / "part-0.parquet")
        trials = tuple(self._leave_trial(paths, schema, name, row_id_N, own_N) for name in self.predicted)
        lane = LanePlan(
            index=0, device="cpu", cuda_visible_devices="", device_name="CPU", threads=1, tree_threads=1,
            neural_threads=1, heap_bytes=1, port_base=1,
        )  # fmt: skip
        plan = Plan(preset="fast", lanes=(lane,), trials=trials, reasons={})
        return evaluate(paths, plan, schema, {}, 7, {})

    def _leave_trial(
        self, paths: RunPaths, schema: TableSchema, name: str, row_id_N: np.ndarray, own_N: np.ndarray
    ) -> TrialSpec:
        model, _, number = name.partition("-")
        fold = int(number) if self.folds else None
        split_N, fold_N = self.split_N[own_N], self.fold_N[own_N]
        is_valid_N = split_N == "valid" if fold is None else (split_N == "train") & (fold_N == fold)
        values = self.predicted[name][own_N]
        parts = {"valid": is_valid_N, "test": split_N == "test"}
        write_predictions(
            paths.trial(name).predictions,
            {split: (row_id_N[here], values[here]) for split, here in parts.items()},
            schema,
        )
        fit = FitRecord(
            trial=name, engine="x", fit_s=1.0, predict_s=1.0, train_rows=1, train_rows_per_s=1.0,
            peak_host_bytes=1, best_iteration=1,
        )  # fmt: skip
        write_json(paths.trial(name).fit, fit)
        write_text(paths.trial(name).done, "")
        return TrialSpec.model_validate(
            {"name": name, "model": model, "engine": "x", "seed": 7, "fold": fold, "lane": 0, "gang": (0,)}
        )


@pytest.mark.parametrize("folds", [None, 3])
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
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
        column="y", task="binary", classes=("no", "yes"), class_rows=(30, 10), sql="", rows=40, rows_refused=0
    )
    balanced = DataConfig(class_weights="balanced")
    expected = compute_class_weight("balanced", classes=np.array([0, 1]), y=label_N)
    assert class_weights(balanced, target) == pytest.approx(tuple(expected))
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
    for number, split in enumerate(("train", "test")):
        part = slice(3 * number, 3 * number + 3)
        (tmp_path / f"split={split}").mkdir()
        table = pa.table({"weight": [float(value) for value in weight[part]], "fold": [0, 1, 0]})
        pq.write_table(table, tmp_path / f"split={split}" / "part-00000.parquet")
    schema = TableSchema(
        source="made", target="y", task="regression", features=(), weighted=True, weight="w", folds=folds,
        rows=6, splits={}, fingerprint="",
    )  # fmt: skip
    if where is None:
        check_weights(tmp_path, schema)
        return
    with pytest.raises(DataError) as refused:
        check_weights(tmp_path, schema)
    assert str(refused.value) == (
        f"data.weight 'w' is zero in all {where}, so nothing there would count. Choose another column, or "
        "another split."
    )
