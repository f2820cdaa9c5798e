"""The run's table inside a lane's own H2O: columns in a file that H2O reads in place, without parsing.

The columns lie one after the other in the bytes of H2O's chunks. H2O reads a part whenever it needs it and
keeps nothing, so the table takes no heap. One node only: the JVM of this process. The rows stream through as
they lie in the table's files, in the order of their ids.

N rows of the file, R rows of the split's files.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import h2o
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.core.errors import DataError, DeviceError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import as_numpy, files_of
from sparkgpu.core.table.schema import FOLD, LABEL, WEIGHT, SplitName, TableSchema
from sparkgpu.prepare.pyspark_internals import java_texts

if TYPE_CHECKING:
    from h2o import H2OFrame
    from py4j.java_gateway import JVMView

_BATCH_ROWS = 65_536
_ALIGNED = 64  # bytes
_MOST_ROWS_PER_CHUNK = 65_536
_LEAST_ROWS_PER_CHUNK = 1_000  # H2O copies a frame that has fewer chunks than threads, but none of fewer rows
_CHUNKS_PER_THREAD = 4


class LocalTables:
    """The run's table inside the H2O of this process's JVM, for all its trials.

    `scratch` is this lane's folder. Of each split, only the rows that the last trial asked for are kept.
    """

    def __init__(
        self, java: JVMView, paths: RunPaths, schema: TableSchema, scratch: Path, *, threads: int
    ) -> None:
        self._java = java
        self._paths = paths
        self._schema = schema
        self._scratch = scratch
        self._threads = threads
        self._made = 0
        self._kept: dict[str, tuple[object, H2OFrame, Path]] = {}

    def use(self, paths: RunPaths, schema: TableSchema) -> None:
        """From now on, give the rows of this table: each of several targets has its own."""
        self._paths, self._schema = paths, schema

    def coded(
        self, split: SplitName, fold: int | None, order: Mapping[str, Sequence[int]], unit: float = 1.0
    ) -> H2OFrame:
        """The rows that a trial uses for training, validation or testing, in the order of their ids.

        The features in `order` are numbers: the positions of their level codes in it, from 0 on. A level that
        is not there is missing. Other categorical features are categories. Labels are in `unit`.
        """
        asked = (self._paths, None if split == "test" else fold, tuple(order.items()), unit)
        if split in self._kept:
            kept, frame, file = self._kept[split]
            if kept == asked:
                return frame
            del self._kept[split]
            h2o.remove(frame.frame_id)
            file.unlink()
        self._made += 1
        name = f"rows_{split}_{self._made}"
        wanted = wanted_columns(self._schema, order, unit)
        file = self._scratch / f"{name}.columns"
        rows = write_columns(self._paths, split, fold, wanted, file)
        # Several chunks for each thread, of rows enough to be worth the way to them.
        each = -(-rows // (_CHUNKS_PER_THREAD * self._threads))
        per_chunk = min(max(each, _LEAST_ROWS_PER_CHUNK), _MOST_ROWS_PER_CHUNK)
        put_frame(self._java, name, file, wanted, rows, rows_per_chunk=per_chunk)
        frame = h2o.get_frame(name, light=True)
        self._kept[split] = (asked, frame, file)
        return frame


def wanted_columns(
    schema: TableSchema, order: Mapping[str, Sequence[int]], unit: float = 1.0
) -> list[WantedColumn]:
    """The label in `unit`, the weight and the features in the schema's order.

    The order counts: equally good cuts, and the columns that are drawn for a tree, follow from it.
    """
    codes = tuple(str(code) for code in range(len(schema.classes)))
    found = [WantedColumn(name=LABEL, kind="float32" if codes else "float64", levels=codes, unit=unit)]
    if schema.weighted:
        found.append(WantedColumn(name=WEIGHT, kind="float64"))
    for feature in schema.features:
        if feature.name in order:
            ordered = tuple(order[feature.name])
            found.append(WantedColumn(name=feature.name, kind="float32", order=ordered))
        else:
            found.append(WantedColumn(name=feature.name, kind="float32", levels=feature.levels))
    return found


@dataclass(frozen=True, kw_only=True)
class WantedColumn:
    """A column of the table as it is or, with `order`, the positions of its level codes in that order.

    With `levels` the numbers are categories, and these are their texts.
    """

    name: str
    kind: Literal["float32", "float64"]
    order: tuple[int, ...] | None = None
    levels: tuple[str, ...] = ()
    unit: float = 1.0

    def values(self, column: pa.Array) -> NDArray[Any]:
        """The values of a batch; infinite ones, and levels that are not in `order`, are missing to H2O."""
        value_N = as_numpy(column)
        if self.order is not None:
            return positions(value_N, self.order)
        if self.unit != 1:
            return value_N / self.unit
        is_infinite_N = np.isinf(value_N)
        return np.where(is_infinite_N, np.float32("nan"), value_N) if is_infinite_N.any() else value_N


def positions(code_N: NDArray[np.float32], order: Sequence[int]) -> NDArray[np.float32]:
    """Where each level code stands in `order`; NaN for a missing value and for a code that is not there."""
    missing = max(order, default=-1) + 1
    position_L = np.full(missing + 1, np.nan, dtype=np.float32)
    position_L[list(order)] = np.arange(len(order))
    found = np.where(code_N < missing, code_N, missing).astype(np.int64)  # NaN is not less
    return position_L[found]


def write_columns(
    paths: RunPaths, split: SplitName, fold: int | None, wanted: Sequence[WantedColumn], target: Path
) -> int:
    """Write rows of a split, or of split train inside or outside a fold, to `target`; return their number.

    Raises `DataError` if the table cannot be read, and `DeviceError` if `target` cannot be written.
    """
    folded = fold is not None and split != "test"
    folder = paths.split("train" if folded else split)
    files = files_of(folder)
    names = [one.name for one in wanted]
    try:
        if folded:
            fold_R = [as_numpy(batch.column(0)) for batch in _batches(files, [FOLD])]
            kept_R = (np.concatenate(fold_R) == fold) == (split == "valid")
            rows = int(kept_R.sum())
        else:
            rows = sum(pq.read_metadata(file).num_rows for file in files)
        if rows == 0:
            raise DataError(f"{paths.table}: the prepared table holds no rows of split {split}.")
        offsets, size = _layout(wanted, rows)
        mapped = _mapped(target, size)
        column_N = [
            np.frombuffer(mapped, one.kind, rows, begin) for one, begin in zip(wanted, offsets, strict=True)
        ]
        read = begin = 0
        for batch in _batches(files, names):
            part = batch.filter(pa.array(kept_R[read : read + batch.num_rows])) if folded else batch
            for value_N, one, column in zip(column_N, wanted, part.columns, strict=True):
                value_N[begin : begin + part.num_rows] = one.values(column)
            read, begin = read + batch.num_rows, begin + part.num_rows
            mapped.madvise(mmap.MADV_DONTNEED)  # written pages would count as memory of this process
    except (FileNotFoundError, pa.ArrowException) as error:
        raise DataError(f"{folder}: the prepared table cannot be read ({error}).") from error
    pa.default_memory_pool().release_unused()
    return rows


def put_frame(
    java: JVMView, name: str, file: Path, wanted: Sequence[WantedColumn], rows: int, *, rows_per_chunk: int
) -> None:
    """Put the frame `name` with the columns of `file` into H2O's store; `file` must stay as long as it."""
    texts = java_texts(
        java,
        [
            [column.name for column in wanted],
            [column.kind for column in wanted],
            [str(offset) for offset in _layout(wanted, rows)[0]],
            *(column.levels for column in wanted),
        ],
    )
    java.water.fvec.ColumnFile.frame(name, str(file), rows, rows_per_chunk, texts)


def _batches(files: Sequence[Path], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(names)):
                yield batch.select(list(names))


def _layout(wanted: Sequence[WantedColumn], rows: int) -> tuple[list[int], int]:
    offsets = []
    end = 0
    for one in wanted:
        offsets.append(end)
        end += -(-rows * np.dtype(one.kind).itemsize // _ALIGNED) * _ALIGNED
    return offsets, end


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
