"""Reads a source without Spark: in batches and in the order of its rows, by pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from sparkgpu.core.config.registry.source_formats import FORMATS
from sparkgpu.core.errors import DataError
from sparkgpu.core.table.source import Source
from sparkgpu.predict.frames import most_rows
from sparkgpu.prepare.csv_lines import CsvParser
from sparkgpu.prepare.file_columns import file_columns, files_of
from sparkgpu.prepare.text import unified
from sparkgpu.prepare.text_files import TextFiles

Reader = Callable[[Source, Sequence[str] | None], Iterator[pa.RecordBatch]]
"""Yields some columns (None: all) of a local table; `core.config.registry.source_formats` has its entry.

A column that the table lacks is left out. Raises `DataError`, or one of pyarrow's errors, if it cannot be
read.
"""


def reader_of(source: Source) -> Reader:
    """What reads the source. Raises `DataError` if only Spark can."""
    place = FORMATS.find(source.format).read if source.format is not None else None
    if place is None or source.is_far:
        what = "a table of the catalog" if source.is_catalog_table else "not a local file"
        raise DataError(
            f"{source.name}: it is {what}, which only Spark reads. Use spark-submit jobs/predict.py, or "
            "model.transform(frame) of sparkgpu.load."
        )
    reader: Reader = FORMATS.find(source.format or "").loaded_from(place)
    return reader


@contextmanager
def refusing_unreadable(source: Source) -> Iterator[None]:
    """Turn pyarrow's failures while reading `source` into one sentence with the fault."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise DataError(
            f"{source.name}: cannot be read as {source.format}: {lines[0].rstrip('.')}. Check the file, or "
            "write it again."
        ) from None


def read_typed(source: Source, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """A `Reader` of Parquet and ORC: the columns of all files, and those of folders such as ``year=2024``.

    Each file keeps its own types; a column that it lacks is null, as long as another file has it.
    """
    # 96-bit timestamps, from Spark and Hive, are microseconds, as Spark reads them.
    format = (
        ds.OrcFileFormat()
        if source.format == "orc"
        else ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    )
    root = Path(source.location)
    found = file_columns(source)
    kinds = found.kinds if found is not None else {}
    for file in files_of(source):
        own = format.inspect(str(file), LocalFileSystem())
        folders = file.relative_to(root).parts[:-1] if root.is_dir() else ()
        keys = [unquote(part.split("=", 1)[0]) for part in folders if "=" in part]
        of_folders = pa.schema([(key, pa.string()) for key in keys if key not in own.names])
        here = {*own.names, *of_folders.names}
        absent = [pa.field(name, kind) for name, kind in kinds.items() if name not in here]
        dataset = ds.dataset(
            file,
            schema=pa.schema([*own, *absent, *of_folders]),
            format=format,
            partitioning=ds.partitioning(of_folders, flavor="hive"),
            partition_base_dir=str(root),
        )
        names = dict.fromkeys([*kinds, *of_folders.names])
        wanted = [name for name in (names if columns is None else columns) if name in names]
        yield from dataset.to_batches(
            columns=wanted, batch_size=most_rows(len(wanted)), batch_readahead=1, fragment_readahead=1
        )


def read_csv(source: Source, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """A `Reader` with the parser of training.

    Every value comes as text, so that a category such as ``007`` stays what training saw, whatever the other
    new rows hold.
    """
    files = TextFiles(source)
    parser = files.parser
    assert isinstance(parser, CsvParser)
    wanted = parser.names if columns is None else [name for name in columns if name in parser.names]
    texts = dict.fromkeys(wanted or parser.names[:1], pa.string())
    for table in files.parsed(lambda lines: parser.read(lines, texts)):
        yield _batch(table, wanted)


def read_json_lines(source: Source, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """A `Reader` with the parser of training.

    The columns and their types are those that all rows show.
    """
    files = TextFiles(source)
    types = unified(*files.parsed(files.parser.infer))
    for table in files.parsed(lambda lines: files.parser.read(lines, types)):
        yield _batch(table, list(types) if columns is None else columns)


def _batch(table: pa.Table, columns: Sequence[str]) -> pa.RecordBatch:
    batch = table.combine_chunks().to_batches()[0]
    return batch.select([name for name in columns if name in batch.schema.names])
