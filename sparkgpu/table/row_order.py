"""Whether a split's files hold their rows in the order of the row ids, and files that do.

A file may hold several stretches of the source, in any order, if one Spark task read several source files.
The rows are then written again range by range: in memory are the rows of some ranges and one row group each,
never the whole split. A row group that spans many ranges is read for each of them, so writers begin a new row
group where the ids jump (`stretches`). pyarrow and numpy only.

N rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.host.cores import usable_cores
from sparkgpu.table.rows import as_numpy
from sparkgpu.table.schema import ROW_ID

GROUP_ROWS = 131_072
_RANGE_VALUES = 32_000_000  # of one range: 256 MB as doubles
_BINS = 65_536
_JUMP_ROWS = 8_192
_FEWEST_ROWS = 4_096  # of a stretch with a row group of its own
_MOST_THREADS = 4


@dataclass(frozen=True, kw_only=True)
class _Group:
    """One row group of one file, with its least and greatest row id."""

    file: Path
    index: int
    rows: int
    first: int
    last: int


def files_of(folder: Path) -> list[Path]:
    """The complete files of a split, by name."""
    return sorted(file for file in folder.glob("*.parquet") if file.name[0] not in "._")


def ordered_files(folder: Path, scratch: Path) -> list[Path]:
    """The split's files in an order that gives ascending row ids; files without rows are left out.

    Prepared tables are in order, but for those of a cluster and of earlier versions: of these an ordered copy
    is written to `scratch`.
    """
    found = _in_order(folder)
    return write_in_order(files_of(folder), scratch / f"{folder.name}-ordered") if found is None else found


def put_in_order(folder: Path) -> None:
    """Name the files of a split in the order of their row ids, and write them again if that needs more.

    Whoever then reads them by name has ascending ids. The folder must not be in use.
    """
    assert folder.is_dir()
    found = _in_order(folder)
    if found is None:
        made = folder.with_name(f".{folder.name}.ordered")
        shutil.rmtree(made, ignore_errors=True)
        write_in_order(files_of(folder), made)
        shutil.rmtree(folder)
        made.rename(folder)
    elif [file.name for file in found] != sorted(file.name for file in found):
        for number, file in enumerate(found):
            file.rename(folder / f"ordered-{number:05d}.parquet")


def write_in_order(files: Sequence[Path], folder: Path) -> list[Path]:
    """Write the rows of `files` in the order of their ids to files in `folder`. Returns them in order."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = [group for file in files for group in _groups(file)]
    columns = len(pq.read_schema(files[0]).names)
    ranges = _ranges(files, groups, max(_FEWEST_ROWS, _RANGE_VALUES // columns))

    def write(number: int, begin: int, end: int) -> Path:
        rows = _between([group for group in groups if group.first < end and group.last >= begin], begin, end)
        target = folder / f"part-{number:05d}.parquet"
        words = [field.name for field in rows.schema if pa.types.is_string(field.type)]
        pq.write_table(rows, target, row_group_size=GROUP_ROWS, use_dictionary=words)
        return target

    with ThreadPoolExecutor(min(_MOST_THREADS, usable_cores(), len(ranges))) as threads:
        begins, ends = zip(*ranges, strict=True)
        return list(threads.map(write, range(len(ranges)), begins, ends))


def stretches(row_id_N: NDArray[np.int64]) -> Iterator[slice]:
    """The rows from one jump of the ids to the next, short stretches together with those that follow."""
    step_N = np.diff(row_id_N)
    jumps = np.flatnonzero((step_N <= 0) | (step_N > _JUMP_ROWS)) + 1
    begin = 0
    for end in (*jumps.tolist(), len(row_id_N)):
        if end - begin >= _FEWEST_ROWS or (end == len(row_id_N) and end > begin):
            yield slice(begin, end)
            begin = end


def _in_order(folder: Path) -> list[Path] | None:
    """The files with rows in the order of their ids; None if no order of the files gives ascending ids."""
    ranges = []
    for file in files_of(folder):
        found = _groups(file)
        if found:
            ranges.append((min(group.first for group in found), max(group.last for group in found), file))
    ranges.sort()
    if any(left[1] >= right[0] for left, right in pairwise(ranges)):
        return None
    return [file for *_, file in ranges] if all(_ascends(file) for *_, file in ranges) else None


def _groups(file: Path) -> list[_Group]:
    """The row groups that have rows, with the ids of the file's statistics."""
    metadata = pq.read_metadata(file)
    column = metadata.schema.to_arrow_schema().get_field_index(ROW_ID)
    found = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if group.num_rows:
            ids = group.column(column).statistics
            found.append(_Group(file=file, index=index, rows=group.num_rows, first=ids.min, last=ids.max))
    return found


def _ids(file: Path) -> Iterator[NDArray[Any]]:
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(GROUP_ROWS, columns=[ROW_ID]):
            yield as_numpy(batch.column(ROW_ID))


def _ascends(file: Path) -> bool:
    last = -1
    for row_id_N in _ids(file):
        if row_id_N[0] <= last or (row_id_N[1:] <= row_id_N[:-1]).any():
            return False
        last = int(row_id_N[-1])
    return True


def _ranges(files: Sequence[Path], groups: Sequence[_Group], most_rows: int) -> list[tuple[int, int]]:
    """Ranges of ids, each with at most about `most_rows` rows, from the first id to after the last."""
    first, end = min(group.first for group in groups), max(group.last for group in groups) + 1
    width = -(-(end - first) // _BINS)
    rows_B = np.zeros(_BINS, dtype=np.int64)
    for file in files:
        for row_id_N in _ids(file):
            rows_B += np.bincount((row_id_N - first) // width, minlength=_BINS)
    found, begin, held = [], first, 0
    for bin_, rows in enumerate(rows_B.tolist()):
        if held and held + rows > most_rows:
            found.append((begin, first + bin_ * width))
            begin, held = first + bin_ * width, 0
        held += rows
    return [*found, (begin, end)]


def _between(groups: Sequence[_Group], begin: int, end: int) -> pa.Table:
    """The rows of the groups whose ids are from `begin` to before `end`, in order."""
    parts = []
    for group in sorted(groups, key=lambda group: group.first):
        with pq.ParquetFile(group.file) as file:
            rows = file.read_row_group(group.index)
        if group.first < begin or group.last >= end:
            row_id_N = as_numpy(rows[ROW_ID])
            rows = rows.filter(pa.array((row_id_N >= begin) & (row_id_N < end)))
        parts.append(rows)
    whole = pa.concat_tables(parts)
    row_id_N = as_numpy(whole[ROW_ID])
    if (row_id_N[1:] > row_id_N[:-1]).all():
        return whole
    return whole.take(pa.array(np.argsort(row_id_N, kind="stable")))
