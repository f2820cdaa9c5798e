"""Rows of every kind of feature, as the table of a run holds them and as an exported ONNX file takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import OTHER_LEVEL, Feature, FeatureKind, TableSchema, Task

ROWS = 900
ZONES, STREETS = ("north", "south", OTHER_LEVEL), tuple(f"s{number}" for number in range(60))


def schema_of(task: Task) -> TableSchema:
    def feature(name: str, source: str, *levels: str) -> Feature:
        kind: FeatureKind = "categorical" if levels else "numeric"
        return Feature(name=name, source=source, kind=kind, pipeline=name, levels=levels)

    return TableSchema(
        source="made", target="y", task=task,
        classes=() if task == "regression" else ("a", "b", "c") if task == "multiclass" else ("no", "yes"),
        features=(
            feature("size_m", "size [m]"), feature("zone", "zone", *ZONES), feature("tied", "tied"),
            feature("street", "street", *STREETS), feature("constant", "constant"),
        ),
        rows=ROWS, splits={"train": ROWS}, fingerprint="",
    )  # fmt: skip


def made_rows() -> Rows:
    drawn = np.random.default_rng(0)
    numeric_NF = drawn.normal(size=(ROWS, 3)) * [1e3, 1, 1]
    numeric_NF[:, 1] = np.round(numeric_NF[:, 1])
    numeric_NF[:, 2] = 4.0
    numeric_NF[::7, 0] = np.nan
    codes_NK = np.stack([drawn.integers(-1, 3, ROWS), drawn.integers(-1, 60, ROWS)], axis=1)
    return Rows(
        row_id_N=np.arange(ROWS), label_N=np.zeros(ROWS), weight_N=None,
        numeric_NF=numeric_NF.astype(np.float32), codes_NK=codes_NK.astype(np.int32),
    )  # fmt: skip


def inputs_of(rows: Rows) -> dict[str, NDArray[Any]]:
    """The inputs of an ONNX file: words that training never saw, too."""
    zones = np.array(["north", "south", "never seen", ""], dtype=object)
    streets = np.array([*STREETS, "no such street"], dtype=object)
    return {
        "size [m]": rows.numeric_NF[:, [0]], "tied": rows.numeric_NF[:, [1]],
        "constant": rows.numeric_NF[:, [2]],
        "zone": zones[rows.codes_NK[:, [0]]], "street": streets[rows.codes_NK[:, [1]]],
    }  # fmt: skip
