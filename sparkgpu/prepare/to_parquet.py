"""Writes a local CSV, JSON lines or ORC table to one Parquet file, once; everything else reads that file.

The types of text columns come from some of the lines. If other lines do not fit, the types are widened by
what all lines show, and the file is written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.source import Source
from sparkgpu.prepare.file_columns import file_columns, files_of
from sparkgpu.prepare.text import Types, no_rows, settled, unified
from sparkgpu.prepare.text_files import TextFiles

_GROUP_ROWS = 131_072
_GROUP_BYTES = 1 << 26


def to_parquet(source: Source, folder: Path) -> Source:
    """The source in a Parquet file in `folder`, in the order of files and lines; any other source as it is.

    Left as they are: Parquet, and what Spark opens (`sparkgpu.prepare.spark_source`). Raises `DataError` if
    the table cannot be read or has no rows.
    """
    if source.format == "parquet" or source.is_opened_by_spark:
        return source
    made = folder / "source.parquet"
    if not (_write_orc(source, made) if source.format == "orc" else _write_text(source, made)):
        raise no_rows(source.name)
    return source.model_copy(update={"location": str(made), "format": "parquet"})


def _write_text(source: Source, made: Path) -> int:
    files = TextFiles(source)
    types: Types = files.sampled()
    while True:
        rows, found = _pass(files, types, made)
        if found == types:
            return rows
        types = found


def _pass(files: TextFiles, types: Types, made: Path) -> tuple[int, Types]:
    """Write the rows in these types, until a block does not fit. Returns the types that fit all rows."""
    found = types

    def typed(lines: bytes) -> tuple[pa.Table | None, Types]:
        tried = found
        table = files.parser.read(lines, tried)
        return table, tried if table is not None else files.parser.infer(lines)

    def fitting() -> Iterator[pa.Table]:
        nonlocal found
        for table, own in files.parsed(typed):
            found = unified(found, own)
            if table is not None and found == types:
                yield table

    rows = _write(fitting(), pa.schema(list(settled(types).items())), made)
    return rows, found


def _write_orc(source: Source, made: Path) -> int:
    columns = file_columns(source)
    if columns is not None and any(len(kinds) > 1 for kinds in columns.kinds.values()):
        raise DataError(
            f"{source.name}: cannot be read as orc: its files disagree on the type of a column. Write them "
            "again with one schema."
        )
    try:
        if columns is None:
            raise pa.ArrowInvalid("a file that is none, or names a column twice")
        schema = pa.schema([(name, kinds[0]) for name, kinds in columns.kinds.items()])
        files = ds.dataset([str(file) for file in files_of(source)], schema, format="orc")
        return _write((pa.table(batch) for batch in files.to_batches()), schema, made)
    except (OSError, pa.ArrowException):
        raise DataError(
            f"{source.name}: cannot be read as orc: it is damaged, cut short, names a column twice, or is in "
            "another format. Check the file, or write it again."
        ) from None


def _write(tables: Iterator[pa.Table], schema: pa.Schema, made: Path) -> int:
    """Write row groups whose sizes depend on the table alone. Returns the number of rows."""
    texts = [found.name for found in schema if found.type == pa.string()]
    rows, waiting = 0, []
    with pq.ParquetWriter(
        made,
        schema,
        use_dictionary=texts,
        compression={name: "snappy" if name in texts else "none" for name in schema.names},
        write_statistics=False,
        coerce_timestamps="us",  # Spark knows no nanoseconds
        allow_truncated_timestamps=True,
    ) as writer:
        for table in tables:
            waiting.append(table.cast(schema))
            rows += table.num_rows
            size = sum(found.nbytes for found in waiting)
            if size > _GROUP_BYTES or sum(map(len, waiting)) >= _GROUP_ROWS:
                writer.write_table(pa.concat_tables(waiting), row_group_size=_GROUP_ROWS)
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=_GROUP_ROWS)
    return rows
