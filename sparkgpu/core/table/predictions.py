"""Writes and reads the predictions of a trial, with row ids. pyarrow and numpy only.

N rows, C classes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.table.rows import as_numpy
from sparkgpu.core.table.schema import ROW_ID, SPLIT, SplitName, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

Predictions = Mapping[SplitName, tuple[NDArray[np.int64], NDArray[np.floating[Any]]]]


def write_predictions(path: Path, predictions: Predictions, schema: TableSchema) -> None:
    """Write row ids with their predictions (N,) or probabilities (N, C), one split after the other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = _prediction_names(schema)
    parts: list[pa.Table] = []
    for code, (row_id_N, values) in enumerate(predictions.values()):
        values_NC = np.asarray(values, dtype=np.float64).reshape(len(row_id_N), -1)
        assert values_NC.shape[1] == len(names)
        split_N = pa.DictionaryArray.from_arrays(
            np.full(len(row_id_N), code, dtype=np.int32), list(predictions)
        )
        columns = {ROW_ID: np.asarray(row_id_N, dtype=np.int64), SPLIT: split_N}
        columns |= {name: np.ascontiguousarray(values_NC[:, index]) for index, name in enumerate(names)}
        parts.append(pa.table(columns))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # Probabilities rarely repeat, so they are faster to write and read without a dictionary.
    pq.write_table(pa.concat_tables(parts), temporary, compression="snappy", use_dictionary=[SPLIT])
    temporary.replace(path)


def read_predictions(
    path: Path, schema: TableSchema
) -> dict[SplitName, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Read what `write_predictions` wrote: by split, row ids in file order with (N,) or (N, C) values."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = _prediction_names(schema)
    # Not `read_table`, which loads pandas.
    with pq.ParquetFile(path) as file:
        found = file.read(columns=[ROW_ID, SPLIT, *names])
    result: dict[SplitName, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    splits: tuple[SplitName, ...] = ("train", "valid", "test")
    for split in splits:
        own = found.filter(pc.equal(found[SPLIT], split))
        if own.num_rows:
            values_NC = np.column_stack([as_numpy(own[name]) for name in names])
            result[split] = as_numpy(own[ROW_ID]), values_NC if schema.classes else values_NC[:, 0]
    return result


def _prediction_names(schema: TableSchema) -> list[str]:
    return [f"probability_{code}" for code in range(len(schema.classes))] or ["prediction"]
