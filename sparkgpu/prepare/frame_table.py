"""A prepared table from a frame in memory, without Spark: for the estimators of scikit-learn.

Columns are taken by their type alone. N rows.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from sparkgpu.prepare.column_values import as_words, is_text
from sparkgpu.prepare.moments import TIME_PARTS
from sparkgpu.prepare.roles import safe_names
from sparkgpu.rundir.files import write_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.rows import Rows
from sparkgpu.table.schema import OTHER_LEVEL, Feature, SplitName, TableSchema

_MOST_LEVELS = 1_000
_FEWEST_ROWS = 10
"""With fewer rows all of them train, and early stopping watches the same ones."""


def early_stop_split(label_N: NDArray[Any], has_classes: bool, valid_size: float, seed: int) -> NDArray[Any]:
    """``train`` or ``valid`` for each row (N,); each class has a training row.

    The engines also predict a test split, which is of no use here: it is one of the other rows.
    """
    rows = len(label_N)
    split_N = np.full(rows, "train", dtype="<U5")
    if rows < _FEWEST_ROWS:
        return split_N
    count_C = Counter(label_N.tolist()) if has_classes else {}
    several_N = np.array([not has_classes or count_C[label] > 1 for label in label_N.tolist()])
    place_M = np.flatnonzero(several_N)
    wanted = max(math.ceil(valid_size * len(place_M)), len(count_C), 1)
    if wanted >= len(place_M) - len(count_C):
        return split_N
    stratify = label_N[place_M] if has_classes else None
    _, valid_M = train_test_split(place_M, test_size=wanted, random_state=seed % 2**32, stratify=stratify)
    split_N[valid_M] = "valid"
    return split_N


def frame_features(table: pa.Table, is_train_N: NDArray[np.bool_]) -> tuple[Feature, ...]:
    """The features of a table's columns by their types alone; levels are those of the training rows."""
    made: list[dict[str, Any]] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        if pa.types.is_dictionary(kind) or is_text(kind):
            levels = _levels(column, is_train_N)
            made.append({"source": name, "kind": "categorical", "reading": "words", "levels": levels})
        elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            made += [
                {"source": name, "kind": "numeric", "reading": "moment", "part": part} for part in TIME_PARTS
            ]
        else:
            made.append({"source": name, "kind": "numeric", "reading": "number"})
    names = safe_names([f"{one['source']}_{one['part']}" if "part" in one else one["source"] for one in made])
    return tuple(
        Feature(name=name, pipeline=name, type="string" if one["reading"] == "words" else "double", **one)
        for name, one in zip(names, made, strict=True)
    )


def _levels(column: pa.ChunkedArray, is_train_N: NDArray[np.bool_]) -> tuple[str, ...]:
    words = as_words(column.combine_chunks(), "string").filter(pa.array(is_train_N)).drop_null()
    counts = Counter(words.to_pylist())
    ordered = sorted(counts, key=lambda level: (-counts[level], level))
    if len(ordered) <= _MOST_LEVELS:
        return tuple(ordered)
    return (*(level for level in ordered[:_MOST_LEVELS] if level != OTHER_LEVEL), OTHER_LEVEL)


def write_frame_table(
    paths: RunPaths,
    schema: TableSchema,
    rows: Rows,
    label_N: NDArray[Any],
    weight_N: NDArray[Any] | None,
    split_N: NDArray[Any],
) -> None:
    """The prepared table of a run, in which the engines find their rows."""
    columns: dict[str, Any] = {"row_id": rows.row_id_N}
    columns["label"] = label_N.astype(np.int32 if schema.classes else np.float64)
    if weight_N is not None:
        columns["weight"] = weight_N.astype(np.float64)
    for place, feature in enumerate(schema.numeric):
        columns[feature.name] = pa.array(rows.numeric_NF[:, place], from_pandas=True)
    for place, feature in enumerate(schema.categorical):
        code_N = rows.codes_NK[:, place]
        columns[feature.name] = pa.DictionaryArray.from_arrays(
            pa.array(code_N, mask=code_N < 0), pa.array(feature.levels, pa.string())
        ).dictionary_decode()
    table = pa.table(columns)
    is_valid_N = split_N == "valid" if (split_N == "valid").any() else split_N == "train"
    of_split: dict[SplitName, NDArray[np.bool_]] = {
        "train": split_N == "train", "valid": is_valid_N, "test": is_valid_N,
    }  # fmt: skip
    for name, which_N in of_split.items():
        paths.split(name).mkdir(parents=True)
        pq.write_table(table.filter(pa.array(which_N)), paths.split(name) / "part-00000.parquet")
    write_json(paths.schema, schema)
