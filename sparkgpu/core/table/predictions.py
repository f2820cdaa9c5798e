"""Writes and reads the predictions of a trial, in the order of the row ids. pyarrow and numpy only.

N rows, C classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.table.rows import as_numpy
from sparkgpu.core.table.schema import ROW_ID, SPLIT, SplitName, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_ROWS = 65_536

Predictions = Mapping[SplitName, tuple[NDArray[np.int64], NDArray[np.floating[Any]]]]


def write_predictions(path: Path, predictions: Predictions, schema: TableSchema) -> None:
    """Write row ids with their predictions (N,) or probabilities (N, C), one split after the other.

    Rows that executors predicted may come in any order; the file has that of their ids.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = _prediction_names(schema)
    parts: list[pa.Table] = []
    for code, (row_id_N, values) in enumerate(predictions.values()):
        values_NC = np.asarray(values, dtype=np.float64).reshape(len(row_id_N), len(names))
        sorted_id_N = np.asarray(row_id_N, dtype=np.int64)
        if (sorted_id_N[1:] < sorted_id_N[:-1]).any():
            order_N = np.argsort(row_id_N, kind="stable")
            sorted_id_N, values_NC = sorted_id_N[order_N], values_NC[order_N]
        split_N = pa.DictionaryArray.from_arrays(
            np.full(len(row_id_N), code, dtype=np.int32), list(predictions)
        )
        columns = {ROW_ID: sorted_id_N, SPLIT: split_N}
        columns |= {name: np.ascontiguousarray(values_NC[:, index]) for index, name in enumerate(names)}
        parts.append(pa.table(columns))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # Probabilities rarely repeat, so they are faster to write and read without a dictionary.
    pq.write_table(pa.concat_tables(parts), temporary, compression="snappy", use_dictionary=[SPLIT])
    temporary.replace(path)


def read_predictions(
    path: Path, schema: TableSchema, *, only: Mapping[SplitName, NDArray[np.int64]] | None = None
) -> dict[SplitName, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Read what `write_predictions` wrote: by split, row ids in file order with (N,) or (N, C) values.

    Of the splits in `only` the rows with these ids, which are in their order; the others take no memory.
    """
    result: dict[SplitName, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    splits: tuple[SplitName, ...] = ("train", "valid", "test")
    for split in splits:
        wanted_M = (only or {}).get(split)
        kept = []
        for row_id_N, values in prediction_blocks(path, schema, split):
            if wanted_M is not None:
                place_N = np.searchsorted(wanted_M[:-1], row_id_N)
                is_wanted_N = wanted_M[place_N] == row_id_N
                row_id_N, values = row_id_N[is_wanted_N], values[is_wanted_N]  # noqa: PLW2901
            kept.append((row_id_N, values))
        if kept:
            ids, found = zip(*kept, strict=True)
            result[split] = np.concatenate(ids), np.concatenate(found)
    return result


def prediction_blocks(
    path: Path, schema: TableSchema, split: SplitName
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Row ids and predictions of one split, some at a time, in file order."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = _prediction_names(schema)
    with pq.ParquetFile(path) as file:  # not `read_table`, which loads pandas
        place = file.schema_arrow.get_field_index(SPLIT)
        for group in range(file.num_row_groups):
            known = file.metadata.row_group(group).column(place).statistics
            if known is not None and known.has_min_max and not known.min <= split <= known.max:
                continue
            for batch in file.iter_batches(_BLOCK_ROWS, row_groups=[group], columns=[ROW_ID, SPLIT, *names]):
                own = batch.filter(pc.equal(batch[SPLIT], split))
                if own.num_rows:
                    values_NC = np.column_stack([as_numpy(own[name]) for name in names])
                    yield as_numpy(own[ROW_ID]), values_NC if schema.classes else values_NC[:, 0]


def _prediction_names(schema: TableSchema) -> list[str]:
    return [f"probability_{code}" for code in range(len(schema.classes))] or ["prediction"]
