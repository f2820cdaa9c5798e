"""Prepared tables with a relation planted in them, without Spark; and what a trial of trees on one left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.config.parameters import TreesParameters
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.predictions import read_predictions
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.trials.engine import TreesTrial, Trial

# A tree sees all rows and columns, so that what comes out can be told beforehand.
PLAIN: dict[str, Any] = {
    "ntrees": 1, "grow_policy": "depthwise", "max_depth": 1, "max_leaves": 0,
    "categorical_encoding": "one_hot_internal", "learn_rate": 1.0, "min_rows": 1e-3, "sample_rate": 1.0,
    "col_sample_rate": 1.0, "col_sample_rate_per_tree": 1.0, "reg_lambda": 0.0, "reg_alpha": 0.0,
    "max_bins": 256, "tree_method": "hist", "early_stopping_rounds": 0, "score_tree_interval": 1,
}  # fmt: skip
PAIRS = 10_000
COLORS = ("amber", "blue", "cyan", "green", "pink", "red")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A prepared table; `split_N` says where each of its rows went."""

    paths: RunPaths
    schema: TableSchema
    label_N: NDArray[Any]
    split_N: NDArray[Any]

    def labels(self, split: str) -> NDArray[Any]:
        return self.label_N[self.split_N == split]


def table(
    root: Path,
    label_N: NDArray[Any],
    numbers: Mapping[str, NDArray[Any]] | None = None,
    texts: Mapping[str, tuple[NDArray[Any], tuple[str, ...]]] | None = None,
    *,
    weight_N: NDArray[Any] | None = None,
    split_N: NDArray[Any] | None = None,
    fold_N: NDArray[Any] | None = None,
    parts: int = 1,
) -> Table:
    """Prepared as `sparkgpu.prepare` would: three rows of five to train on, NaN and None are gaps.

    With several `parts` the rows lie in as many files.
    """
    from made_table import feature, made_rows, write_splits  # not on the path of h2o_trials.py

    numbers, texts = numbers or {}, texts or {}
    rows = len(label_N)
    is_regression = label_N.dtype.kind == "f"
    classes = () if is_regression else tuple(f"class {code}" for code in range(label_N.max() + 1))
    if split_N is None:
        split_N = np.array(["train", "train", "train", "valid", "test"])[np.arange(rows) % 5]
    features = (
        *(feature(name) for name in numbers),
        *(feature(name, *levels) for name, (_, levels) in texts.items()),
    )
    columns = {**numbers, **{name: text_N for name, (text_N, _) in texts.items()}}
    paths = RunPaths(root=root)
    whole = made_rows(features, columns, label_N, weight_N=weight_N, fold_N=fold_N)
    write_splits(paths, whole, split_N, parts=parts)
    schema = TableSchema(
        source="planted",
        target="y",
        task="regression" if is_regression else "binary" if len(classes) == 2 else "multiclass",
        classes=classes,
        features=features,
        weighted=weight_N is not None,
        folds=None if fold_N is None else int(fold_N.max()) + 1,
        rows=rows,
        splits={split: int((split_N == split).sum()) for split in ("train", "valid", "test")},
        fingerprint="",
    )
    write_json(paths.schema, schema)
    return Table(paths=paths, schema=schema, label_N=label_N, split_N=split_N)


def waves(root: Path, *, numbers: bool) -> Table:
    """`up` tells most, with waves against its direction; so does `down`. `free` and `color` tell a little."""
    random = np.random.default_rng(5)
    up_N, down_N, free_N = random.uniform(0, 1, (3, 4000))
    color_N = random.integers(0, len(COLORS), 4000)
    mean_N = 2 * up_N + np.sin(30 * up_N) - 2 * down_N - np.sin(30 * down_N) + free_N * (color_N % 2)
    noisy_N = mean_N + 0.3 * random.normal(size=4000)
    label_N = noisy_N if numbers else (noisy_N > mean_N.mean()).astype(int)
    columns = {"up": up_N, "down": down_N, "free": free_N}
    return table(root, label_N, columns, {"color": (np.array(COLORS)[color_N], COLORS)})


def bound(planted: Table, **rules: Any) -> Table:
    """The table with rules, as the preparation writes it."""
    schema = planted.schema.model_copy(update=rules)
    write_json(planted.paths.schema, schema)
    return Table(paths=planted.paths, schema=schema, label_N=planted.label_N, split_N=planted.split_N)


def steps_in_the_wrong_direction(planted: Table, predict: Callable[[Rows], Any]) -> dict[str, int]:
    """Of pairs of rows that differ in one feature: how many predictions go against its direction."""
    random = np.random.default_rng(11)
    numbers_NF = random.uniform(0, 1, (PAIRS, 3)).astype(np.float32)
    codes_NK = random.integers(-1, len(COLORS), (PAIRS, 1)).astype(np.int32)

    def predicted(values_NF: Any) -> Any:
        found = predict(Rows(
            row_id_N=np.arange(PAIRS), label_N=np.zeros(PAIRS), numeric_NF=values_NF, codes_NK=codes_NK,
        ))  # fmt: skip
        return found[:, 1] if found.ndim == 2 else found

    wrong = {}
    for place, (name, sign) in enumerate({"up": 1, "down": -1, "free": 1}.items()):
        ends = np.sort(random.uniform(0, 1, (PAIRS, 2)).astype(np.float32), axis=1)
        low_NF, high_NF = numbers_NF.copy(), numbers_NF.copy()
        low_NF[:, place], high_NF[:, place] = ends.T
        wrong[name] = int((sign * (predicted(high_NF) - predicted(low_NF)) < 0).sum())
    return wrong


def interaction(model: Callable[[Rows], Any], a: int, b: int) -> float:
    """The greatest f(a', b') - f(a', b) - f(a, b') + f(a, b) of a prediction: 0 if they never meet."""
    random = np.random.default_rng(2)
    base_NF = random.uniform(0, 1, (2000, 3)).astype(np.float32)
    codes_NK = random.integers(0, len(COLORS), (2000, 1)).astype(np.int32)
    other_N2 = random.uniform(0, 1, (2000, 2)).astype(np.float32)
    total_N = np.zeros(2000)
    for first in (0, 1):
        for second in (0, 1):
            values_NF = base_NF.copy()
            values_NF[:, a] = other_N2[:, 0] if first else values_NF[:, a]
            values_NF[:, b] = other_N2[:, 1] if second else values_NF[:, b]
            rows = Rows(
                row_id_N=np.arange(2000), label_N=np.zeros(2000), numeric_NF=values_NF, codes_NK=codes_NK
            )
            total_N += (1 if first == second else -1) * model(rows)
    return float(np.abs(total_N).max())


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one trial left: its record, predictions of both splits and points of its learning curve."""

    planted: Table
    folder: Path
    record: FitRecord
    valid: NDArray[np.float64]
    test: NDArray[np.float64]
    curve: list[tuple[int, Any]]
    """(number of trees, metric on valid)"""

    def accuracy(self) -> float:
        return float((self.test.argmax(axis=1) == self.planted.labels("test")).mean())

    def log_loss(self) -> float:
        """Of the validation rows."""
        probability_N = self.valid[np.arange(len(self.valid)), self.planted.labels("valid")]
        return float(-np.log(probability_N).mean())


def outcome(planted: Table, name: str, record: FitRecord) -> Outcome:
    """Read back what the trial `name` wrote."""
    trial = planted.paths.trial(name)
    found = read_predictions(trial.predictions, planted.schema)
    return Outcome(
        planted=planted,
        folder=trial.root,
        record=record,
        valid=found["valid"][1],
        test=found["test"][1],
        curve=[(point.step, point.valid) for point in read_curve(trial.learning_curve)[1]],
    )


def planned(planted: Table, name: str, engine: str, **settings: Any) -> TreesTrial:
    """A trial as a lane's worker hands it to the engine."""
    own = planted.paths.lane(0)
    return Trial(
        spec=TrialSpec(name=name, model="trees", engine=engine, seed=7, fold=None, lane=0, gang=(0,)),
        parameters=TreesParameters.model_validate({**PLAIN, "engine": engine, **settings}),
        schema=planted.schema,
        run=planted.paths,
        lane=cpu_lane(),
        events=EventWriter(own.events("trees"), own.phases("trees")),
        scratch=planted.paths.root,
    )


def cpu_lane() -> LanePlan:
    return LanePlan(
        index=0, device="cpu", cuda_visible_devices="", device_name="CPU", threads=1, tree_threads=1,
        neural_threads=1, heap_bytes=2**30, port_base=50000,
    )  # fmt: skip
