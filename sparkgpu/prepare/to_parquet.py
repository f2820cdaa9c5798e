"""Writes a local CSV, JSON lines or ORC table to one Parquet file, once; everything else reads that file.

A text table is read twice: its types are those that all rows show.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from sparkgpu.core.table.source import Source
from sparkgpu.prepare.column_types import spark_type
from sparkgpu.prepare.file_columns import file_columns, refusing_damaged
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


def types_at_first_sight(source: Source) -> dict[str, str]:
    """The columns of a table that Spark need not open, with types in Spark's spelling.

    Those of text files come from the header and the first lines. Raises `DataError` if it cannot be read.
    """
    if source.format in ("parquet", "orc"):
        columns = file_columns(source)
        assert columns is not None
        return {name: spark_type(kind) for name, kind in columns.kinds.items()}
    files = TextFiles(source)
    first = next(files.parsed(files.parser.infer), {})
    return {name: spark_type(kind) for name, kind in settled(first).items()}


def _write_text(source: Source, made: Path) -> int:
    files = TextFiles(source)
    types = settled(unified(*files.parsed(files.parser.infer)))
    if not types:
        return 0
    return _write(files.parsed(lambda lines: files.parser.read(lines, types)), types, made)


def _write_orc(source: Source, made: Path) -> int:
    columns = file_columns(source)
    assert columns is not None
    columns.check_types()
    with refusing_damaged(source):
        schema = pa.schema(list(columns.kinds.items()))
        files = ds.dataset([str(file) for file in columns.schemas], schema, format="orc")
        return _write((pa.table(batch) for batch in files.to_batches()), columns.kinds, made)


def _write(tables: Iterator[pa.Table], types: Types, made: Path) -> int:
    """Write row groups whose sizes depend on the table alone. Returns the number of rows."""
    schema = pa.schema(list(types.items()))
    texts = [name for name, kind in types.items() if kind == pa.string()]
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
            waiting.append(table)
            rows += table.num_rows
            size = sum(found.nbytes for found in waiting)
            if size > _GROUP_BYTES or sum(map(len, waiting)) >= _GROUP_ROWS:
                writer.write_table(pa.concat_tables(waiting), row_group_size=_GROUP_ROWS)
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=_GROUP_ROWS)
    return rows
