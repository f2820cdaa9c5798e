"""Prepared tables with a relation planted in them, without Spark; and what a trial of trees on one left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.config.parameters import TreesParameters
from sparkgpu.engines.engine import TreesTrial, Trial
from sparkgpu.plan.plan import LanePlan
from sparkgpu.plan.trial_spec import TrialSpec
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.files import write_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.predictions import read_predictions
from sparkgpu.table.schema import Feature, TableSchema

# A tree sees all rows and columns, so that what comes out can be told beforehand.
PLAIN: dict[str, Any] = {
    "ntrees": 1, "grow_policy": "depthwise", "max_depth": 1, "max_leaves": 0,
    "categorical_encoding": "one_hot_internal", "learn_rate": 1.0, "min_rows": 1e-3, "sample_rate": 1.0,
    "col_sample_rate": 1.0, "col_sample_rate_per_tree": 1.0, "reg_lambda": 0.0, "reg_alpha": 0.0,
    "max_bins": 256, "tree_method": "hist", "early_stopping_rounds": 0, "score_tree_interval": 1,
}  # fmt: skip
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
    words: Mapping[str, tuple[NDArray[Any], tuple[str, ...]]] | None = None,
    *,
    weight_N: NDArray[Any] | None = None,
    split_N: NDArray[Any] | None = None,
    fold_N: NDArray[Any] | None = None,
    parts: int = 1,
) -> Table:
    """Prepared as `sparkgpu.prepare` would: three rows of five to train on, NaN and None are gaps.

    With several `parts`, rows that follow each other lie in different files.
    """
    numbers, words = numbers or {}, words or {}
    rows = len(label_N)
    is_regression = label_N.dtype.kind == "f"
    classes = () if is_regression else tuple(f"class {code}" for code in range(label_N.max() + 1))
    if split_N is None:
        split_N = np.array(["train", "train", "train", "valid", "test"])[np.arange(rows) % 5]
    columns: dict[str, Any] = {
        "row_id": np.arange(rows),
        "label": label_N.astype(np.float64 if is_regression else np.int32),
    }
    if weight_N is not None:
        columns["weight"] = weight_N.astype(np.float64)
    if fold_N is not None:
        columns["fold"] = fold_N.astype(np.int32)
    columns |= {name: pa.array(value_N, from_pandas=True) for name, value_N in numbers.items()}
    columns |= {name: pa.array(word_N.tolist(), pa.string()) for name, (word_N, _) in words.items()}
    whole = pa.table(columns)
    paths = RunPaths(root=root)
    for split in ("train", "valid", "test"):
        paths.split(split).mkdir(parents=True)
        for part in range(parts):
            chosen_N = (split_N == split) & (np.arange(rows) % parts == part)
            pq.write_table(whole.filter(pa.array(chosen_N)), paths.split(split) / f"part-{part:05d}.parquet")
    schema = TableSchema(
        source="planted",
        target="y",
        task="regression" if is_regression else "binary" if len(classes) == 2 else "multiclass",
        classes=classes,
        features=(
            *(Feature(name=name, source=name, kind="numeric", pipeline=name) for name in numbers),
            *(
                Feature(name=name, source=name, kind="categorical", pipeline=name, levels=levels)
                for name, (_, levels) in words.items()
            ),
        ),
        weighted=weight_N is not None,
        folds=None if fold_N is None else int(fold_N.max()) + 1,
        rows=rows,
        splits={split: int((split_N == split).sum()) for split in ("train", "valid", "test")},
        fingerprint="",
    )
    write_json(paths.schema, schema)
    return Table(paths=paths, schema=schema, label_N=label_N, split_N=split_N)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one trial left: its record, predictions of the test rows and points of its learning curve."""

    record: FitRecord
    valid: NDArray[np.float64]
    test: NDArray[np.float64]
    curve: list[tuple[int, float]]
    """(number of trees, metric on valid)"""

    def accuracy(self, planted: Table) -> float:
        return float((self.test.argmax(axis=1) == planted.labels("test")).mean())


def outcome(planted: Table, name: str, record: FitRecord) -> Outcome:
    """Read back what the trial `name` wrote."""
    trial = planted.paths.trial(name)
    found = read_predictions(trial.predictions, planted.schema)
    lines = [line.split(",") for line in trial.learning_curve.read_text().splitlines()]
    step, valid = lines[0].index("step"), lines[0].index("valid")
    return Outcome(
        record=record,
        valid=found["valid"][1],
        test=found["test"][1],
        curve=[(int(line[step]), float(line[valid])) for line in lines[1:]],
    )


def trial_of(name: str, engine: str) -> TrialSpec:
    return TrialSpec(name=name, model="trees", engine=engine, seed=7, fold=None, lane=0, gang=(0,))


def parameters_of(engine: str, **settings: Any) -> TreesParameters:
    return TreesParameters.model_validate({**PLAIN, "engine": engine, **settings})


def planned(
    paths: RunPaths,
    schema: TableSchema,
    name: str,
    engine: str,
    lane: LanePlan,
    scratch: Path,
    **settings: Any,
) -> TreesTrial:
    """A trial as a lane's worker hands it to the engine."""
    own = paths.lane(0)
    return Trial(
        spec=trial_of(name, engine),
        parameters=parameters_of(engine, **settings),
        schema=schema,
        run=paths,
        lane=lane,
        events=EventWriter(own.events("trees"), own.phases("trees")),
        scratch=scratch,
    )


def cpu_lane(port_base: int = 50000) -> LanePlan:
    return LanePlan(
        index=0, device="cpu", cuda_visible_devices="", device_name="CPU", threads=1, tree_threads=1,
        neural_threads=1, heap_bytes=2**30, port_base=port_base,
    )  # fmt: skip
