"""Reads the prepared table block by block, for callers that cannot hold all of it. pyarrow and numpy only.

A block is some thousand consecutive rows of one row group. Blocks come from several row groups in turn, in
the requested order, since a sorted source is also sorted in the table.

N rows of a block, F numeric features, K categorical features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import Rows, as_numpy, decode, files_of
from sparkgpu.core.table.schema import FOLD, LABEL, ROW_ID, WEIGHT, SplitName, TableSchema

_BLOCK_ROWS = 8_192
_OPEN_GROUPS = 8  # open at a time: enough to mix rows, few enough for their buffers


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """One row group of one file of a split, and its number of rows."""

    file: Path
    index: int
    rows: int


class RowGroups:
    """The rows of a split or, with `fold`, the rows of split train inside or outside that fold."""

    def __init__(
        self, paths: RunPaths, schema: TableSchema, split: SplitName, *, fold: int | None = None
    ) -> None:
        folded = fold is not None and split != "test"
        self._folder = paths.split("train" if folded else split)
        self._schema = schema
        self._fold = fold if folded else None
        self._in_fold = split == "valid"
        try:
            self.groups = tuple(
                RowGroup(file=file, index=index, rows=metadata.row_group(index).num_rows)
                for file in files_of(self._folder)
                for metadata in [pq.read_metadata(file)]
                for index in range(metadata.num_row_groups)
            )
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self._folder}: the prepared table cannot be read ({error}).") from error

    def thinned(self, most_rows: int) -> None:
        """Keep evenly spaced row groups with at most about `most_rows` rows, and at least one group."""
        rows = sum(group.rows for group in self.groups)
        self.groups = self.groups[:: -(-rows // most_rows) or 1]

    def blocks(self, random: np.random.Generator | None = None) -> Iterator[Rows]:
        """Every row once: in the files' order or, with `random`, from several row groups at a time."""
        order = np.arange(len(self.groups)) if random is None else random.permutation(len(self.groups))
        waiting = [self.groups[index] for index in order[::-1]]
        most = 1 if random is None else _OPEN_GROUPS
        reading: list[Iterator[Rows]] = []
        try:
            while waiting or reading:
                while waiting and len(reading) < most:
                    reading.append(self._read(waiting.pop()))
                place = 0 if random is None else int(random.integers(len(reading)))
                block = next(reading[place], None)
                if block is None:
                    del reading[place]
                elif len(block.row_id_N):
                    yield block
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self._folder}: the prepared table cannot be read ({error}).") from error

    def _read(self, group: RowGroup) -> Iterator[Rows]:
        schema = self._schema
        own = [
            ROW_ID,
            LABEL,
            *([WEIGHT] if schema.weighted else []),
            *([FOLD] if self._fold is not None else []),
        ]
        names = [*own, *(feature.name for feature in schema.features)]
        with pq.ParquetFile(group.file) as file:
            for batch in file.iter_batches(_BLOCK_ROWS, row_groups=[group.index], columns=names):
                yield self._decoded(batch)

    def _decoded(self, batch: pa.RecordBatch) -> Rows:
        schema = self._schema
        if self._fold is not None:
            in_fold = np.equal(as_numpy(batch.column(FOLD)), self._fold)
            batch = batch.filter(pa.array(in_fold == self._in_fold))
        label: Any = np.int64 if schema.classes else np.float64
        numeric_NF = np.empty((batch.num_rows, len(schema.numeric)), dtype=np.float32)
        codes_NK = np.empty((batch.num_rows, len(schema.categorical)), dtype=np.int32)
        decode(batch, schema, numeric_NF, codes_NK)
        return Rows(
            row_id_N=as_numpy(batch.column(ROW_ID)).astype(np.int64),
            label_N=as_numpy(batch.column(LABEL)).astype(label),
            weight_N=as_numpy(batch.column(WEIGHT)).astype(np.float32) if schema.weighted else None,
            numeric_NF=numeric_NF,
            codes_NK=codes_NK,
        )
