"""Parquet files of a split in the order of their row ids, for readers that read whole files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq

from sparkgpu.table.schema import ROW_ID


def ordered_files(folder: Path, scratch: Path) -> list[Path]:
    """The split's files in an order that gives ascending row ids.

    Spark writes each file in ascending order. If two files overlap (their rows came from several source
    files), one sorted copy is written to `scratch`.
    """
    ranges = sorted((*_row_id_range(file), file) for file in folder.glob("*.parquet"))
    filled = [(first, last, file) for first, last, file in ranges if last >= 0]
    if all(left[1] < right[0] for left, right in pairwise(filled)):
        return [file for _, _, file in filled]
    whole = pq.read_table([str(file) for _, _, file in filled]).sort_by(ROW_ID)
    target = scratch / f"{folder.name}-sorted.parquet"
    pq.write_table(whole, target)
    return [target]


def _row_id_range(file: Path) -> tuple[int, int]:
    """Least and greatest row id from the file's statistics; (0, -1) if it has no rows."""
    metadata = pq.read_metadata(file)
    column = metadata.schema.to_arrow_schema().get_field_index(ROW_ID)
    groups = [metadata.row_group(index).column(column).statistics for index in range(metadata.num_row_groups)]
    if not groups or metadata.num_rows == 0:
        return 0, -1
    return min(group.min for group in groups), max(group.max for group in groups)
