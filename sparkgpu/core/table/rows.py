"""Reads the prepared table into arrays, whole or block by block. pyarrow and numpy only.

Rows come in the order of their ids, which is that of the files' names and of the rows in them. Features are
decoded block by block into one float32 and one int32 matrix, so a table is never in memory twice.

A block is some thousand consecutive rows of one row group. In a random order, blocks come from several row
groups in turn, since a sorted source is also sorted in the table.

N rows, F numeric features, K categorical features, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import FOLD, LABEL, ROW_ID, WEIGHT, SplitName, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_ROWS = 8_192
_GROUPS_PER_RANK = 4  # for shares of about the same size
_OPEN_GROUPS = 8  # open at a time: enough to mix rows, few enough for their buffers


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of one split. Labels are class codes (int64) or values (float64); missing is NaN or code -1.

    Labels of several targets are (N, T), values or class codes in float64, NaN for none.
    """

    row_id_N: NDArray[np.int64]
    label_N: NDArray[Any]
    weight_N: NDArray[np.float32] | None = None
    numeric_NF: NDArray[np.float32]
    codes_NK: NDArray[np.int32]

    def part(self, which: slice | NDArray[np.int64]) -> Rows:
        """Some of the rows; a slice copies nothing."""
        return Rows(**{name: array[which] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What there is of each row."""
        return {name: array for name, array in vars(self).items() if array is not None}


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts of one table, of which there is at least one, in their order."""
    return Rows(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in parts[0].arrays()}
    )


def pages(blocks: Iterator[Rows], rows: int) -> Iterator[Rows]:
    """The same rows, at least so many at a time."""
    waiting: list[Rows] = []
    held = 0
    for block in blocks:
        waiting.append(block)
        held += len(block.row_id_N)
        if held >= rows:
            yield joined(waiting)
            waiting, held = [], 0
    if waiting:
        yield joined(waiting)


def read_rows(
    paths: RunPaths,
    schema: TableSchema,
    split: SplitName,
    *,
    fold: int | None = None,
    features: bool = True,
    every: int = 1,
    share: tuple[int, int] = (0, 1),
) -> Rows:
    """The rows of a split; with `fold`, train and valid are selected from split train by their fold.

    Of those only every `every`-th, from the first on; the others take no memory. A `share` of (rank, ranks)
    is one of equal parts: whole row groups where there are many, else every so many rows; it may be empty.
    Features are in the schema's order, numeric and categorical separately; with `features=False` both
    matrices have no columns. Raises `DataError` if the table holds no such rows or cannot be read.
    """
    import pyarrow as pa

    if not features:
        schema = schema.with_features(())
    groups = RowGroups(paths, schema, split, fold=fold)
    first, (rank, ranks) = 0, share
    if ranks > 1 and len(groups.groups) >= _GROUPS_PER_RANK * ranks:
        groups.groups = groups.groups[rank::ranks]
    elif ranks > 1:
        first, every = rank, ranks
    most = -(-groups.rows // every)  # with folds there are fewer; the system gives no memory for the rest
    found = _empty(schema, most)
    seen = end = 0
    for block in groups.blocks():
        part = block.part(slice((first - seen) % every, None, every))
        begin, end = end, end + len(part.row_id_N)
        seen += len(block.row_id_N)
        for name, whole in found.arrays().items():
            whole[begin:end] = getattr(part, name)
    if not end and ranks == 1:
        which = f"split {split}" if fold is None else f"split {split} of fold {fold}"
        raise DataError(f"{paths.table}: the prepared table holds no rows of {which}. Prepare it again.")
    for whole in found.arrays().values():
        whole.resize((end, *whole.shape[1:]), refcheck=False)
    pa.default_memory_pool().release_unused()
    return found


def _empty(schema: TableSchema, rows: int) -> Rows:
    """Rows to be filled."""
    labels = (rows, len(schema.targets)) if schema.targets else rows
    return Rows(
        row_id_N=np.empty(rows, dtype=np.int64),
        label_N=np.empty(labels, dtype=np.int64 if schema.classes else np.float64),
        weight_N=np.empty(rows, dtype=np.float32) if schema.weighted else None,
        numeric_NF=np.empty((rows, len(schema.numeric)), dtype=np.float32),
        codes_NK=np.empty((rows, len(schema.categorical)), dtype=np.int32),
    )


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """One row group of one file of a split, and its number of rows; `begin` to `end` of them are read."""

    file: Path
    index: int
    rows: int
    begin: int = 0
    end: int | None = None


class RowGroups:
    """The rows of a split or, with `fold`, the rows of split train inside or outside that fold.

    For callers that cannot hold all of them. Raises `DataError`, here and in each method, if the table cannot
    be read.
    """

    def __init__(
        self, paths: RunPaths, schema: TableSchema, split: SplitName, *, fold: int | None = None
    ) -> None:
        import pyarrow.parquet as pq

        folded = fold is not None and split != "test"
        assert not folded or schema.folds is not None
        self._folder = paths.split("train" if folded else split)
        self._schema = schema
        self._fold = fold if folded else None
        self._in_fold = split == "valid"
        self._counts: list[int] | None = None
        with self._refusing():
            self.groups = tuple(
                RowGroup(file=file, index=index, rows=metadata.row_group(index).num_rows)
                for file in files_of(self._folder)
                for metadata in [pq.read_metadata(file)]
                for index in range(metadata.num_row_groups)
            )

    @property
    def rows(self) -> int:
        """The rows of all folds."""
        return sum(group.rows for group in self.groups)

    def thinned(self, most_rows: int) -> None:
        """Keep evenly spaced row groups with at most about `most_rows` rows, and at least one group."""
        self.groups = self.groups[:: -(-self.rows // most_rows) or 1]

    def share(self, begin: int, end: int, random: np.random.Generator) -> RowGroups:
        """Those that hold rows `begin` to `end` of all, if the groups follow each other in a random order.

        Shares that together are 0 to the number of rows hold each row once, and read no group whole but their
        own.
        """
        if self._counts is None:
            self._counts = [group.rows if self._fold is None else self._in(group) for group in self.groups]
        own, passed = [], 0
        for index in random.permutation(len(self.groups)):
            first, last = max(begin - passed, 0), min(end - passed, self._counts[index])
            passed += self._counts[index]
            if first < last:
                own.append(replace(self.groups[index], begin=first, end=last))
        found = copy(self)
        found.groups = tuple(own)
        return found

    def _in(self, group: RowGroup) -> int:
        """The number of its rows in or outside the fold."""
        import pyarrow.parquet as pq

        with self._refusing(), pq.ParquetFile(group.file) as file:
            fold_N = as_numpy(file.read_row_group(group.index, columns=[FOLD])[FOLD])
        return int(np.count_nonzero((fold_N == self._fold) == self._in_fold))

    def blocks(self, random: np.random.Generator | None = None) -> Iterator[Rows]:
        """Every row once: in the files' order or, with `random`, from several row groups at a time."""
        order = np.arange(len(self.groups)) if random is None else random.permutation(len(self.groups))
        waiting = [self.groups[index] for index in order[::-1]]
        most = 1 if random is None else _OPEN_GROUPS
        reading: list[Iterator[Rows]] = []
        with self._refusing():
            while waiting or reading:
                while waiting and len(reading) < most:
                    reading.append(self._read(waiting.pop()))
                place = 0 if random is None else int(random.integers(len(reading)))
                block = next(reading[place], None)
                if block is None:
                    del reading[place]
                elif len(block.row_id_N):
                    yield block

    def _read(self, group: RowGroup) -> Iterator[Rows]:
        import pyarrow.parquet as pq

        own = [ROW_ID, LABEL]
        own += [WEIGHT] if self._schema.weighted else []
        own += [FOLD] if self._fold is not None else []
        names = [*own, *(feature.name for feature in self._schema.features)]
        with pq.ParquetFile(group.file) as file:
            seen, end = 0, group.end
            for batch in file.iter_batches(_BLOCK_ROWS, row_groups=[group.index], columns=names):
                rows = self._decoded(batch)
                first = max(group.begin - seen, 0)
                yield rows.part(slice(first, None if end is None else max(end - seen, 0)))
                seen += len(rows.row_id_N)
                if end is not None and seen >= end:
                    return

    def _decoded(self, batch: pa.RecordBatch) -> Rows:
        import pyarrow as pa

        if self._fold is not None:
            in_fold = np.equal(as_numpy(batch.column(FOLD)), self._fold)
            batch = batch.filter(pa.array(in_fold == self._in_fold))
        rows = _empty(self._schema, batch.num_rows)
        rows.row_id_N[:] = as_numpy(batch.column(ROW_ID))
        label = batch.column(LABEL)
        rows.label_N[:] = as_numpy(label.flatten() if self._schema.targets else label).reshape(
            rows.label_N.shape
        )
        if rows.weight_N is not None:
            rows.weight_N[:] = as_numpy(batch.column(WEIGHT))
        for place, feature in enumerate(self._schema.numeric):
            rows.numeric_NF[:, place] = _slot(batch, feature.name)
        for place, feature in enumerate(self._schema.categorical):
            code_N = _slot(batch, feature.name)
            rows.codes_NK[:, place] = np.where(np.isnan(code_N), -1, code_N)
        return rows

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException) as error:
            line, *_ = str(error).strip().splitlines() or [type(error).__name__]
            raise DataError(
                f"{self._folder}: the prepared table cannot be read ({line}); start a new run."
            ) from error


def files_of(folder: Path) -> list[Path]:
    """The complete files of a split, by name."""
    return sorted(file for file in folder.glob("*.parquet") if file.name[0] not in "._")


def _slot(batch: pa.RecordBatch, name: str) -> NDArray[np.float32]:
    """Raises `pyarrow.ArrowTypeError` for a column of another type."""
    import pyarrow as pa

    column = batch.column(name)
    if column.type != pa.float32():
        raise pa.ArrowTypeError(f"{name} is {column.type}: another version of sparkgpu made it; run it again")
    return as_numpy(column)


def as_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Numbers without nulls, read-only. pyarrow's own `to_numpy` loads pandas (50 MB, half a second)."""
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    parts = [np.from_dlpack(chunk) for chunk in chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
