"""Prepared tables from frames, without a run: random or given splits, numbers and words as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_table import made_rows, write_made_results, write_splits

from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import Feature, TableSchema

SPLITS = ("train", "valid", "test")


def make_table(
    root: Path,
    frame: pd.DataFrame,
    target: str,
    *,
    split_N: Any = None,
    best: dict[str, float] | None = None,
    group_rows: int | None = None,
    drop_constants: bool = False,
) -> RunPaths:
    """Write `frame` as a prepared table; `best` are the test metrics of the only model of the run."""
    paths = RunPaths(root=root)
    frame = frame[frame[target].notna()].reset_index(drop=True)
    if drop_constants:
        frame = frame.loc[:, frame.nunique(dropna=False) > 1]
    if split_N is None:
        split_N = np.random.default_rng(9).choice(SPLITS, len(frame), p=(0.7, 0.15, 0.15))
    is_number = pd.api.types.is_float_dtype(frame[target]) or frame[target].nunique() > 40
    classes = () if is_number else tuple(sorted(map(str, frame[target].unique())))
    task = "regression" if is_number else "binary" if len(classes) == 2 else "multiclass"
    label = frame[target].astype(float) if is_number else frame[target].astype(str).map(classes.index)
    features, columns = [], {}
    for place, title in enumerate(frame.columns.drop(target)):
        values, name = frame[title], f"f{place}"
        number = pd.api.types.is_numeric_dtype(values)
        levels = () if number else tuple(values[split_N == "train"].value_counts().index.astype(str))
        kind = "numeric" if number else "categorical"
        reading = "boolean" if values.dtype == bool else None
        features.append(
            Feature(name=name, source=title, kind=kind, pipeline=name, levels=levels, reading=reading)
        )
        columns[name] = values
    write_splits(paths, made_rows(features, columns, label), split_N, group_rows=group_rows)
    schema = TableSchema(
        source="made", target=target, task=task, classes=classes, features=tuple(features), rows=len(frame),
        splits={split: int((split_N == split).sum()) for split in SPLITS}, fingerprint="",
    )  # fmt: skip
    write_json(paths.schema, schema)
    if best is not None:
        model = {
            "name": "trees", "engine": "x", "status": "done", "trials": [],
            "metrics": {"test": best}, "std": {},
        }  # fmt: skip
        comparison = {"metric": next(iter(best)), "leader": "trees", "pairs": []}
        write_made_results(paths, schema, models=[model], comparison=comparison)
    return paths


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., RunPaths]:
    """`make_table` under a temporary folder."""

    def make(frame: pd.DataFrame, target: str = "y", **options: Any) -> RunPaths:
        return make_table(tmp_path / f"run-{len(list(tmp_path.iterdir()))}", frame, target, **options)

    return make
