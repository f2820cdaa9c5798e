"""Writes rows of the prepared table as one file of whole columns, in the order of their row ids.

The file begins with the number of its rows. The rows stream through. Only where they must change places,
or a fold is asked for, their ids and folds are in memory as a whole. `sparkgpu.jvm.column_file` says what
the bytes of a column mean.

N rows of the file, R rows of the split's files.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.errors import DataError, DeviceError
from sparkgpu.jvm.column_file import MISSING, ColumnKind, FileColumn
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.rows import as_codes, as_float32, as_numpy
from sparkgpu.table.schema import FOLD, ROW_ID, SplitName

_BATCH_ROWS = 65_536
_ALIGNED = 64  # bytes
_ROWS = struct.Struct("<q")  # how the file begins
# Written pages count as memory of this process until it lets go of them.
_MOST_HELD_BYTES = 64 * 2**20

Place = slice | NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class WantedColumn:
    """A column of the table, as numbers of `kind` or, with `words`, as the places of its words among them.

    With `levels` the numbers are categories, and these are their names.
    """

    name: str
    kind: ColumnKind
    words: tuple[str, ...] | None = None
    levels: tuple[str, ...] = ()

    def values(self, column: pa.Array) -> NDArray[Any]:
        """The values of a batch, with H2O's marks for missing ones; infinite ones are missing to H2O."""
        if self.words is not None:
            code_N = as_codes(column, self.words)
            return np.where(code_N < 0, MISSING[self.kind], code_N)
        if self.kind != "float32":
            return as_numpy(column)
        value_N = as_float32(column)
        if np.isinf(value_N).any():
            value_N = np.where(np.isinf(value_N), np.float32("nan"), value_N)
        return value_N


@dataclass(frozen=True, kw_only=True)
class ColumnRows:
    """A file of columns and its number of rows."""

    file: Path
    columns: tuple[FileColumn, ...]
    rows: int


def kind_of_places(count: int) -> ColumnKind:
    """The smallest kind that holds the places of `count` levels, and the mark of a missing one."""
    return "uint8" if count <= MISSING["uint8"] else "int32"


def write_column_rows(
    paths: RunPaths, split: SplitName, fold: int | None, wanted: Sequence[WantedColumn], target: Path
) -> None:
    """Write the rows of a split, or of split train inside or outside a fold, to the new file `target`.

    Raises `DataError` if the table cannot be read, and `DeviceError` if `target` cannot be written.
    """
    folded = fold is not None and split != "test"
    folder = paths.split("train" if folded else split)
    files = sorted(file for file in folder.glob("*.parquet") if file.name[0] not in "._")
    try:
        place_R = _places(files, fold if folded else None, is_inside=split == "valid")
        held = sum(pq.read_metadata(file).num_rows for file in files)
        rows = held if place_R is None else int((place_R >= 0).sum())
        if rows == 0:
            raise DataError(f"{paths.table}: the prepared table holds no rows of split {split}.")
        columns, size = _layout(wanted, rows)
        mapped = _mapped(target, size)
        _ROWS.pack_into(mapped, 0, rows)
        column_N = [np.frombuffer(mapped, column.kind, rows, column.offset) for column in columns]
        most_rows = max(1, _MOST_HELD_BYTES * rows // size)
        begin = kept = 0
        names = [one.name for one in wanted]
        for batch in _batches(files, names, words=[one.name for one in wanted if one.words is not None]):
            end = begin + batch.num_rows
            to: Place = slice(begin, end)
            which: Place = slice(None)
            if place_R is not None:
                which = np.flatnonzero(place_R[begin:end] >= 0)
                to = place_R[begin:end][which]
            for value_N, one, column in zip(column_N, wanted, batch.columns, strict=True):
                value_N[to] = one.values(column)[which]
            begin, kept = end, kept + batch.num_rows
            if kept > most_rows:
                mapped.madvise(mmap.MADV_DONTNEED)
                kept = 0
    except (FileNotFoundError, pa.ArrowException) as error:
        raise DataError(f"{folder}: the prepared table cannot be read ({error}).") from error
    pa.default_memory_pool().release_unused()


def read_column_rows(file: Path, wanted: Sequence[WantedColumn]) -> ColumnRows:
    """What `write_column_rows` wrote to `file` for the same `wanted`."""
    with file.open("rb") as opened:
        (rows,) = _ROWS.unpack(opened.read(_ROWS.size))
    return ColumnRows(file=file, columns=_layout(wanted, rows)[0], rows=rows)


def _places(files: Sequence[Path], fold: int | None, *, is_inside: bool) -> NDArray[np.int64] | None:
    """Where each row goes, -1 for rows of other folds; None if all rows go where they are."""
    if fold is None and _ascend(files):
        return None
    names = [ROW_ID] if fold is None else [ROW_ID, FOLD]
    own = pa.Table.from_batches(_batches(files, names))
    kept_N = np.arange(own.num_rows)
    if fold is not None:
        kept_N = np.flatnonzero((as_numpy(own[FOLD]) == fold) == is_inside)
    place_R = np.full(own.num_rows, -1)
    place_R[kept_N[np.argsort(as_numpy(own[ROW_ID])[kept_N], kind="stable")]] = np.arange(len(kept_N))
    return place_R


def _ascend(files: Sequence[Path]) -> bool:
    last = -1
    for batch in _batches(files, [ROW_ID]):
        row_id_N = as_numpy(batch.column(0))
        if not len(row_id_N):
            continue
        if row_id_N[0] <= last or not (row_id_N[1:] > row_id_N[:-1]).all():
            return False
        last = int(row_id_N[-1])
    return True


def _batches(
    files: Sequence[Path], names: Sequence[str], *, words: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pq.ParquetFile(path, read_dictionary=list(words)) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(names)):
                yield batch.select(list(names))


def _layout(wanted: Sequence[WantedColumn], rows: int) -> tuple[tuple[FileColumn, ...], int]:
    """Where each column begins, and the size of the file in bytes."""
    columns = []
    end = _ALIGNED
    for one in wanted:
        columns.append(FileColumn(name=one.name, kind=one.kind, offset=end, levels=one.levels))
        end += -(-rows * np.dtype(one.kind).itemsize // _ALIGNED) * _ALIGNED
    return tuple(columns), end


def _mapped(target: Path, size: int) -> mmap.mmap:
    """A new file of this size, mapped. Its disk space is taken at once, since a mapping cannot fail later."""
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    except OSError as error:
        target.unlink()
        raise DeviceError(
            f"{target.parent}: no room for {size / 2**30:.1f} GiB, the rows for H2O ({error.strerror}). Set "
            "TMPDIR to a folder on a larger disk."
        ) from error
    finally:
        os.close(descriptor)
