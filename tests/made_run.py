"""A tiny run without engines: its table, and the predictions of two models, made at random."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from made_table import feature, made_rows, write_splits

from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.predictions import write_predictions
from sparkgpu.core.table.schema import DecisionRule, TableSchema, Task
from sparkgpu.runs.evaluate import Evaluation, evaluate

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
                  balanced: bool = False, failed: Mapping[str, str] | None = None,
                  decision: DecisionRule | None = None,
                  coverage: float | None = None) -> Evaluation:  # fmt: skip
        """Write the run to `root`, with weighted rows, or with each row repeated as often as its weight."""
        paths = RunPaths(root=root)
        own_N = np.repeat(np.arange(self.rows), self.weight_N if repeated else 1)
        row_id_N = np.arange(len(own_N))
        label_N, split_N, fold_N = self.label_N[own_N], self.split_N[own_N], self.fold_N[own_N]
        balance = BALANCE[: len(self.classes)] if balanced else ()
        schema = self.schema = TableSchema(
            source="made", target="y", task=self.task, classes=self.classes,
            features=(feature("x"),),
            weighted=weight is not None or balanced, weight=weight, class_weights=balance,
            folds=self.folds, rows=len(own_N), fingerprint="", decision=decision,
            splits={split: int((split_N == split).sum()) for split in set(split_N.tolist())},
        )  # fmt: skip
        in_table_N = self.weight_N[own_N].astype(float) if weight else np.ones(len(own_N))
        if balanced:
            in_table_N = in_table_N * np.asarray(balance)[label_N]
        whole = made_rows(
            schema.features, {"x": np.zeros(len(own_N))}, label_N,
            weight_N=in_table_N if schema.weighted else None, fold_N=fold_N if self.folds else None,
        )  # fmt: skip
        write_splits(paths, whole, split_N)
        trials = tuple(self._leave_trial(paths, schema, name, row_id_N, own_N) for name in self.predicted)
        lane = LanePlan(
            index=0, device="cpu", cuda_visible_devices="", device_name="CPU", threads=1, tree_threads=1,
            neural_threads=1, heap_bytes=1, port_base=1,
        )  # fmt: skip
        plan = self.plan = Plan(preset="fast", lanes=(lane,), trials=trials, reasons={})
        for name in failed or ():
            paths.trial(name).done.unlink()
        return evaluate(paths, plan, schema, failed or {}, 7, {}, coverage)

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
