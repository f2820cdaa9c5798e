"""The columns of a typed table (Parquet, ORC) on this machine; its files may have different columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from sparkgpu.core.errors import DataError, fault_of_machine
from sparkgpu.core.table.source import Source, table_files
from sparkgpu.core.words import listed
from sparkgpu.prepare.columns import spark_type, stored_as


@dataclass(frozen=True, kw_only=True)
class FileColumns:
    """The columns of each file of a table, with the files in the order of their row ids."""

    source: Source
    schemas: Mapping[Path, pa.Schema]

    @cached_property
    def kinds(self) -> dict[str, pa.DataType]:
        """All columns in the order of their appearance, with the type in the first file that has it."""
        kinds: dict[str, pa.DataType] = {}
        for schema in self.schemas.values():
            for column in schema:
                kinds.setdefault(column.name, column.type)
        return kinds

    @cached_property
    def absent(self) -> dict[str, int]:
        """The columns that some files lack, and the number of those files."""
        having = Counter(name for schema in self.schemas.values() for name in schema.names)
        return {
            name: len(self.schemas) - files for name, files in having.items() if files < len(self.schemas)
        }

    @property
    def notes(self) -> list[str]:
        """What the user should know of columns that some files lack."""
        lacking: dict[int, list[str]] = {}
        for name, files in self.absent.items():
            lacking.setdefault(files, []).append(repr(name))
        of = f"of {len(self.schemas):,} files and null there"
        return [
            f"column {names[0]} is absent in {files:,} {of}"
            if len(names) == 1
            else f"columns {listed(names)} are absent in {files:,} {of}"
            for files, names in lacking.items()
        ]

    @cached_property
    def stored(self) -> dict[str, tuple[str, str]]:
        """The columns of types that Spark does not have: as what it reads them, and the SQL of the values."""
        return {name: found for name, kind in self.kinds.items() if (found := stored_as(kind))}

    def check_types(self) -> None:
        """Raise `DataError` if files disagree on a column's type, which Spark does not always notice."""
        for schema in self.schemas.values():
            for column in schema:
                kinds = (column.type, self.kinds[column.name])
                if len({(spark_type(kind), stored_as(kind)) for kind in kinds}) > 1:
                    raise DataError(
                        f"{self.source.name}: cannot be read as {self.source.format}: its files disagree on "
                        f"the type of a column ({column.name!r}). Write them again with one schema."
                    )


def file_columns(source: Source) -> FileColumns | None:
    """The columns of a local Parquet or ORC table, from its files; None for any other table.

    Raises `DataError` if a file cannot be read or names a column twice.
    """
    if source.format not in ("parquet", "orc") or not Path(source.location).exists():
        return None
    schemas = {}
    for file in files_of(source):
        with refusing_damaged(source):
            schema = schemas[file] = _schema(file, source)
        twice = [name for name, times in Counter(schema.names).items() if times > 1]
        if twice:
            raise DataError(
                f"{source.name}: cannot be read as {source.format}: it has duplicate column names "
                f"({listed(twice)}). Give each column one name."
            )
    return FileColumns(source=source, schemas=schemas)


def files_of(source: Source) -> list[Path]:
    """The files of a local table, in the order of their row ids."""
    path = Path(source.location)
    return table_files(path) if path.is_dir() else [path]


def file_states(files: Iterable[Path]) -> dict[Path, tuple[int, ...] | None]:
    """Size, time and inode of each file, which tell whether it changed; None for one that is gone."""
    found: dict[Path, tuple[int, ...] | None] = dict.fromkeys(files)
    for file in found:
        with suppress(OSError):
            state = file.stat()
            found[file] = state.st_size, state.st_mtime_ns, state.st_ino
    return found


CHANGED = (
    "it was changed, replaced or removed while it was read. Start again, with a table that stays as it is "
    "meanwhile."
)


def changed(name: str) -> DataError:
    return DataError(f"{name}: {CHANGED}")


@contextmanager
def unchanged(source: Source) -> Iterator[None]:
    """Raise `DataError` if a file of a local table changes while the block reads it."""
    before = [file_states(files_of(table)) for table in source.tables]
    yield
    if before != [file_states(files_of(table)) for table in source.tables]:
        raise changed(source.name)


def open_parquet(file: Path, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open the file; 96-bit timestamps, from Spark and Hive, are read as microseconds, as Spark does."""
    return pq.ParquetFile(file, metadata=metadata, coerce_int96_timestamp_unit="us")


def _schema(file: Path, source: Source) -> pa.Schema:
    if source.format == "orc":
        return pyarrow.orc.ORCFile(file).schema
    with open_parquet(file) as opened:
        return opened.schema_arrow


@contextmanager
def refusing_damaged(source: Source) -> Iterator[None]:
    """Turn pyarrow's errors while it reads into one sentence."""
    start = f"{source.name}: cannot be read as {source.format}: "
    try:
        yield
    except PermissionError as error:
        raise DataError(f"{start}you have no permission to read it. Ask its owner.") from error
    except FileNotFoundError:
        raise changed(source.name) from None
    except (OSError, pa.ArrowException) as error:
        if fault_of_machine(error) is not None:
            raise
        raise DataError(
            f"{start}it is damaged, cut short, or in another format. Check the file, or write it again."
        ) from error
