"""The rows of a table that lies on this machine as Parquet: threads run a function over parts of it.

The other executor of the same functions is `sparkgpu.prepare.spark_rows`. pyarrow only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.core.host.processor import usable_cores
from sparkgpu.core.table.schema import SplitName
from sparkgpu.core.table.source import Source
from sparkgpu.prepare.columns import ROW_ID, TIME_TYPES, WORDS, is_number, spark_type
from sparkgpu.prepare.file_columns import file_columns, file_states, files_of, open_parquet, refusing_damaged

ResultT = TypeVar("ResultT")
Work = Callable[[Iterator[pa.RecordBatch]], ResultT]
"""A function of the batches of one part of a table, each with the column `ROW_ID`, then those asked for."""

_READABLE = ("boolean", "string", WORDS, *TIME_TYPES)
_PART_ROWS = 1_048_576
_BATCH_ROWS = 131_072
_BATCH_VALUES = 8_000_000
_MOST_THREADS = 8  # each holds a batch and what its function makes of it


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Consecutive rows from row id `first` on: some row groups of one file after the other."""

    first: int
    groups: Sequence[tuple[Path, Sequence[int]]]


class LocalRows:
    """The rows of a local Parquet table. A row's id is its position, with files in the order of their names.

    `origin` is the source of which `source` is a copy in Parquet, if it is one. `starts` are the first row
    ids of the user's own validation and test rows, which follow the others. Raises `DataError` if a file
    cannot be read, if it names a column twice, or if files disagree on a type.
    """

    def __init__(self, source: Source, origin: Source | None = None) -> None:
        columns = file_columns(source)
        assert columns is not None
        columns.check_types()
        self._columns = columns
        self.states = file_states(columns.schemas)
        self._metadata = {file: pq.read_metadata(file) for file in columns.schemas}
        self.starts: dict[SplitName, int] = {}
        for split, table in source.held_out.items():
            self.starts[split] = self.num_rows
            self.states |= file_states(files_of(table))
            self._metadata |= {file: pq.read_metadata(file) for file in files_of(table)}
        self.schema = pa.schema(list(columns.kinds.items()))
        own = columns if origin is None else file_columns(origin)
        self.notes: Sequence[str] = () if own is None else own.notes
        self.padded = source.padded

    @property
    def num_rows(self) -> int:
        return sum(metadata.num_rows for metadata in self._metadata.values())

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The columns' types in Spark's spelling."""
        return {field.name: spark_type(field.type) for field in self.schema}

    @property
    def files(self) -> list[Path]:
        """The files in the order of their row ids."""
        return list(self._metadata)

    @property
    def stored(self) -> Mapping[str, tuple[str, str]]:
        """The columns of types that Spark does not have: as what it reads them, and the SQL of the values."""
        return self._columns.stored

    @property
    def spark_types(self) -> dict[str, str]:
        """The columns that Spark can read, with the types in which it does."""
        return {
            name: self.stored[name][0] if name in self.stored else self._int96.get(name, kind)
            for name, kind in self.types.items()
            if kind in _READABLE or is_number(kind)
        }

    @cached_property
    def _int96(self) -> dict[str, str]:
        """Timestamps of 96 bits, which for Spark have a time zone."""
        schemas = [metadata.schema for metadata in self._metadata.values()]
        columns = [schema.column(place) for schema in schemas for place in range(len(schema))]
        return {column.path: "timestamp" for column in columns if column.physical_type == "INT96"}

    @property
    def num_groups(self) -> int:
        """The number of row groups of all files."""
        return sum(metadata.num_row_groups for metadata in self._metadata.values())

    def map(self, work: Work[ResultT], columns: Iterable[str]) -> list[ResultT]:
        """What `work` makes of each part of the table, in their order; threads run it."""
        parts, names = self._parts(), list(dict.fromkeys(columns))
        with ThreadPoolExecutor(min(len(parts), usable_cores(), _MOST_THREADS)) as threads:
            return list(threads.map(lambda part: work(self._batches(part, names)), parts))

    def _parts(self) -> list[_Part]:
        """All rows in parts of about `_PART_ROWS`, and of at least one row group."""
        parts: list[_Part] = []
        waiting: list[tuple[Path, list[int]]] = []
        first = end = 0
        for file, metadata in self._metadata.items():
            waiting.append((file, []))
            for index in range(metadata.num_row_groups):
                rows = metadata.row_group(index).num_rows
                if end > first and end - first + rows > _PART_ROWS:
                    parts.append(_Part(first=first, groups=waiting))
                    waiting, first = [(file, [])], end
                waiting[-1][1].append(index)
                end += rows
        return [*parts, _Part(first=first, groups=waiting)]

    def _batches(self, part: _Part, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The part's rows in the order of their ids; a column is null in files that lack it."""
        rows = max(1_024, min(_BATCH_ROWS, _BATCH_VALUES // max(1, len(columns))))
        first = part.first
        for file, groups in part.groups:
            names = self._metadata[file].schema.to_arrow_schema().names
            own = [name for name in columns if name in names]
            with refusing_damaged(self._columns.source), open_parquet(file, self._metadata[file]) as opened:
                for batch in opened.iter_batches(rows, row_groups=groups, columns=own, use_threads=False):
                    ids = pa.array(np.arange(first, first + batch.num_rows))
                    first += batch.num_rows
                    found = [
                        batch.column(name)
                        if name in own
                        else pa.nulls(batch.num_rows, self.schema.field(name).type)
                        for name in columns
                    ]
                    yield pa.RecordBatch.from_arrays([ids, *found], names=[ROW_ID, *columns])


class Mergeable(Protocol):
    """What a function of batches found out; the findings of two parts of a table give those of both."""

    def merge(self, other: Self) -> None: ...


FoundT = TypeVar("FoundT", bound=Mergeable)


def merged(parts: Sequence[FoundT]) -> FoundT:
    """The findings of all parts of a table, of which there is at least one."""
    whole, *others = parts
    for other in others:
        whole.merge(other)
    return whole
