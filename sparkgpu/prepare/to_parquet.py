"""Writes a local CSV, JSON lines or ORC table to one Parquet file, once; everything else reads that file.

A text table is read twice: its types are those that all rows show.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from sparkgpu.core.table.source import Source
from sparkgpu.prepare.columns import is_number, spark_type
from sparkgpu.prepare.file_columns import FileColumns, file_columns, refusing_damaged, unchanged
from sparkgpu.prepare.held_out import check_held_out, other_type
from sparkgpu.prepare.text import Types, no_rows, padded, settled, unified
from sparkgpu.prepare.text_files import TextFiles

_GROUP_ROWS = 131_072
_GROUP_BYTES = 1 << 26


def to_parquet(source: Source, folder: Path, *, ignore: Collection[str] = ()) -> Source:
    """The source in a Parquet file in `folder`, in the order of files and lines; any other source as it is.

    Left as they are: Parquet, and what Spark opens (`sparkgpu.prepare.spark_source`). The user's own
    validation and test rows become files of the same types; where one side has wider numbers, the other is
    written in them. Raises `DataError` if a table cannot be read or has no rows, or if those rows lack a
    column that is not in `ignore`.
    """
    if source.is_opened_by_spark or (source.format == "parquet" and not source.held_out):
        return source
    with unchanged(source):
        return _copied(source, folder, ignore)


def _copied(source: Source, folder: Path, ignore: Collection[str]) -> Source:
    own, found = settled(seen := _types_of(source)), {}
    for split, table in source.held_out.items():
        found[split] = _types_of(table, texts=[name for name, kind in own.items() if kind == pa.string()])
        check_held_out(table.name, found[split], own, ignore)
    types = {
        name: _wide_enough(
            name, kind, {source.held_out[split].name: kinds.get(name) for split, kinds in found.items()}
        )
        for name, kind in own.items()
    }
    held_out: dict[str, Source] = {
        split: _in_types(
            table, {name: types[name] for name in types if name in found[split]}, folder / f"{split}.parquet"
        )
        for split, table in source.held_out.items()
    }
    copy = _in_types(source, types, folder / "source.parquet")
    return copy.model_copy(update={**held_out, "padded": padded(seen)})


def _types_of(source: Source, texts: Collection[str] = ()) -> Types:
    """The columns' types. Those of text files are such that all rows have them; `texts` stay text."""
    columns = file_columns(source)
    if columns is not None:
        columns.check_types()
        return columns.kinds
    files = TextFiles(source)
    types = unified(*files.parsed(files.parser.infer))
    return {name: pa.string() if name in texts else kind for name, kind in types.items()}


def _wide_enough(column: str, kind: pa.DataType, others: Mapping[str, pa.DataType | None]) -> pa.DataType:
    """The type that holds a column's values in the source and in `others`, by the names of their tables.

    None and null are tables without a value. Raises `DataError` if values are of different kinds.
    """
    for table, other in others.items():
        if other is None or other in (kind, pa.null()):
            continue
        types = (spark_type(other), spark_type(kind))
        both = pa.schema([(column, kind)]), pa.schema([(column, other)])
        try:
            if is_number(types[0]) != is_number(types[1]):
                raise other_type(table, column, *types)
            kind = pa.unify_schemas(both, promote_options="permissive").field(column).type
        except pa.ArrowException:
            raise other_type(table, column, *types) from None
    return kind


def _in_types(source: Source, types: Types, made: Path) -> Source:
    """The table in Parquet with these columns, and possibly others if it is stored so already."""
    columns = file_columns(source)
    if columns is None:
        files = TextFiles(source)
        tables = files.parsed(lambda lines: files.parser.read(lines, types))
    elif source.format == "parquet" and all(columns.kinds[name] == kind for name, kind in types.items()):
        return source
    else:
        tables = _typed_tables(columns, pa.schema(list(types.items())))
    if not types or not _write(tables, types, made):
        raise no_rows(source.name)
    return source.model_copy(update={"location": str(made), "format": "parquet"})


def _typed_tables(columns: FileColumns, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of ORC or Parquet files with the columns and types of `schema`."""
    known = pa.schema([(name, columns.kinds[name]) for name in schema.names])
    form = (
        ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
        if columns.source.format == "parquet"
        else "orc"
    )
    with refusing_damaged(columns.source):
        files = ds.dataset([str(file) for file in columns.schemas], known, format=form)
        for batch in files.to_batches():
            yield pa.table(batch).cast(schema)


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


def rows_up_to(most: int, source: Source) -> int | None:
    """The number of a table's rows; None if there are more than `most`, or if Spark has to open it.

    Of text files it may be one more or less. Raises `DataError` if they cannot be read.
    """
    if source.is_opened_by_spark:
        return None
    rows, columns = 0, file_columns(source)
    if columns is not None:
        with refusing_damaged(source):
            rows = ds.dataset([str(file) for file in columns.schemas], format=source.format).count_rows()
        return rows if rows <= most else None
    files = TextFiles(source)
    for lines in files.parsed(lambda block: block.count(b"\n")):
        rows += lines
        if rows > most:
            return None
    return rows


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
