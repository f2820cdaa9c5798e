"""The columns of a typed table (Parquet, ORC) on this machine; its files may have different columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from sparkgpu.core.table.source import Source, table_files


@dataclass(frozen=True, kw_only=True)
class FileColumns:
    """All columns in the order of their appearance, each with its types and the number of files with it.

    The first type is that of the first file.
    """

    kinds: Mapping[str, tuple[pa.DataType, ...]]
    having: Mapping[str, int]
    num_files: int

    @property
    def absent(self) -> dict[str, int]:
        """The columns that some files lack, and the number of those files."""
        return {name: self.num_files - files for name, files in self.having.items() if files < self.num_files}


def file_columns(source: Source) -> FileColumns | None:
    """The columns of a local Parquet or ORC table, from its files.

    None for any other table, and if a file cannot be read or names a column twice: then Spark reports the
    fault.
    """
    if source.format not in ("parquet", "orc") or not Path(source.location).exists():
        return None
    kinds: dict[str, list[pa.DataType]] = {}
    having: Counter[str] = Counter()
    files = files_of(source)
    for file in files:
        try:
            schema = _schema(file, source)
        except (OSError, pa.ArrowException):
            return None
        if len(set(schema.names)) < len(schema):
            return None
        for column in schema:
            known = kinds.setdefault(column.name, [])
            if column.type not in known:
                known.append(column.type)
        having.update(schema.names)
    return FileColumns(
        kinds={name: tuple(found) for name, found in kinds.items()},
        having=having,
        num_files=len(files),
    )


def files_of(source: Source) -> list[Path]:
    """The files of a local table, in the order of their row ids."""
    path = Path(source.location)
    return table_files(path) if path.is_dir() else [path]


def open_parquet(file: Path, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open the file; 96-bit timestamps, from Spark and Hive, are read as microseconds, as Spark does."""
    return pq.ParquetFile(file, metadata=metadata, coerce_int96_timestamp_unit="us")


def _schema(file: Path, source: Source) -> pa.Schema:
    if source.format == "orc":
        return pyarrow.orc.ORCFile(file).schema
    with open_parquet(file) as opened:
        return opened.schema_arrow
