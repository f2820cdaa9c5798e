"""Each row's class and its place, which decides its split, for a local Parquet table.

pyarrow and numpy read them, without a job of Spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.prepare.file_columns import files_of
from sparkgpu.prepare.places import places_of
from sparkgpu.prepare.target import Target
from sparkgpu.table.rows import as_numpy
from sparkgpu.table.source import Source

BATCH_ROWS = 131_072


@dataclass(frozen=True, kw_only=True)
class Part:
    """Consecutive rows of a table from row id `begin` on: some row groups of one file after the other."""

    begin: int
    groups: Sequence[tuple[Path, Sequence[int]]]


def parts_of(source: Source, most_rows: int) -> list[Part]:
    """All rows of a local Parquet table in parts of about `most_rows`, and at least one row group."""
    parts: list[Part] = []
    waiting: list[tuple[Path, list[int]]] = []
    begin = end = 0
    for file in files_of(source):
        metadata = pq.read_metadata(file)
        waiting.append((file, []))
        for index in range(metadata.num_row_groups):
            rows = metadata.row_group(index).num_rows
            if end > begin and end - begin + rows > most_rows:
                parts.append(Part(begin=begin, groups=waiting))
                waiting, begin = [(file, [])], end
            waiting[-1][1].append(index)
            end += rows
    return [*parts, Part(begin=begin, groups=waiting)]


def batches(
    source: Source,
    columns: Sequence[str],
    *,
    part: Part | None = None,
    as_dictionaries: bool = False,
    rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Some columns of a local Parquet table in the order of row ids, texts as dictionaries if asked.

    Only the rows of `part`, if given. Batches have at most so many `rows`. A column is null in files that
    lack it.
    """
    nothing = pa.dictionary(pa.int32(), pa.string()) if as_dictionaries else pa.null()
    groups = [(file, None) for file in files_of(source)] if part is None else part.groups
    for file, indices in groups:
        metadata = pq.read_metadata(file)
        there = metadata.schema.to_arrow_schema().names
        own = [name for name in columns if name in there]
        with pq.ParquetFile(
            file, metadata=metadata, read_dictionary=own if as_dictionaries else None
        ) as opened:
            for batch in opened.iter_batches(rows, row_groups=indices, columns=own):
                yield pa.RecordBatch.from_arrays(
                    [
                        batch.column(name) if name in own else pa.nulls(batch.num_rows, nothing)
                        for name in columns
                    ],
                    names=list(columns),
                )


@dataclass(frozen=True, kw_only=True)
class ParquetRows:
    """All rows of a table by row id: the code of their class, and their place (`sparkgpu.prepare.places`).

    The code is 0 for a regression and -1 for a row without a target. Places follow from the `seed` and are
    computed where they are needed, some rows at a time: they are twice as large as the codes.
    """

    code_N: NDArray[np.int32]
    seed: int

    def cuts(
        self, shares: Sequence[float], codes: Sequence[int] | None
    ) -> list[tuple[int, list[float], float]]:
        """By class: the places up to which rows belong to each share, and the last place.

        `codes` None means all rows with a target, as class 0. Spark's ``percentile_approx`` gives the same
        result where it is exact.
        """
        found = []
        for code in (0,) if codes is None else codes:
            place_M = np.sort(places_of(self.seed, np.flatnonzero(self.code_N == code)))
            ends = [max(math.ceil(share * len(place_M)) - 1, 0) for share in shares]
            found.append((code, [float(place_M[end]) for end in ends], float(place_M[-1])))
        return found

    def beyond(self, limit_C: Sequence[float]) -> NDArray[np.bool_]:
        """The rows (N,) with a target whose place is beyond the limit of their class."""
        limits = np.array([*limit_C, math.inf])  # code -1 takes the last one
        beyond_N = np.empty(len(self.code_N), dtype=np.bool_)
        for begin in range(0, len(beyond_N), BATCH_ROWS):
            code_B = self.code_N[begin : begin + BATCH_ROWS]
            place_B = places_of(self.seed, np.arange(begin, begin + len(code_B)))
            beyond_N[begin : begin + len(code_B)] = place_B > limits[code_B]
        return beyond_N


def read_rows(source: Source, target: Target, seed: int) -> ParquetRows | None:
    """Read the target of every row; None if Spark may spell its classes differently."""
    codes: list[NDArray[np.int32]] = []
    try:
        for batch in batches(source, [target.column]):
            codes.append(as_numpy(_codes(batch.column(target.column), target.classes)))
    except (pa.ArrowException, ValueError):  # such as classes that are not whole numbers
        return None
    code_N = np.concatenate(codes) if codes else np.empty(0, dtype=np.int32)
    return ParquetRows(code_N=code_N, seed=seed)


def _codes(column: pa.Array, classes: Sequence[str]) -> pa.Array:
    if not classes or pa.types.is_null(column.type):
        return pc.subtract(column.is_valid().cast(pa.int32()), pa.scalar(1, pa.int32()))
    if pa.types.is_floating(column.type):
        column = column.cast(pa.int64())
    kind = column.type
    if pa.types.is_boolean(kind):
        values = pa.array([name == "true" for name in classes])
    elif pa.types.is_integer(kind):
        values = pa.array([int(name) for name in classes], kind)
    else:
        values = pa.array(classes, kind)
    return pc.index_in(column, value_set=values).fill_null(-1)
