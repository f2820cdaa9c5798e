"""Opens tables that Spark holds: files of a cluster, tables of the catalog, folders such as ``year=2024``.

Text tables are parsed as local ones are, in Spark's Python workers, from the lines that Spark reads.
What cannot be read is refused with one sentence; a damaged row is never skipped.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkgpu.core.config.registry.source_formats import FORMATS
from sparkgpu.core.errors import DataError
from sparkgpu.core.table.rows import as_numpy
from sparkgpu.core.table.schema import SplitName
from sparkgpu.core.table.source import COMPRESSED, Source, table_files
from sparkgpu.core.words import listed, nearest
from sparkgpu.prepare.columns import ROW_ID, is_number, own_columns, quoted
from sparkgpu.prepare.csv_lines import csv_parser
from sparkgpu.prepare.file_columns import file_columns
from sparkgpu.prepare.held_out import check_held_out, other_type
from sparkgpu.prepare.json_lines import json_parser
from sparkgpu.prepare.row_id import blocks_of, numbered_by_blocks, numbered_by_footers, placed, shifted
from sparkgpu.prepare.spark_rows import LEADING_ZEROS, literal, with_values
from sparkgpu.prepare.text import LineError, Types, as_utf8, no_rows, padded, settled, unified
from sparkgpu.prepare.text_files import Parser
from sparkgpu.prepare.unreadable import refusing_unreadable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

_LINE = "value"
"""The column of `session.read.text`."""


class Opener(Protocol):
    """Opens a source of one format; its entry is in `sparkgpu.core.config.registry.source_formats`."""

    def __call__(self, session: SparkSession, source: Source) -> DataFrame:
        """The user's columns. If the row id is not among them, rows are ordered by their content.

        Raises `DataError`, or Spark's error, if it cannot be read.
        """


def open_numbered(session: SparkSession, source: Source, scratch: Path) -> DataFrame:
    """The user's columns and the row id.

    A table without positions (of the catalog, or in a format of another package) is first written to
    `scratch`, in the order of its content. Lines of text are parsed in each job over the result, so write or
    persist it. Raises `DataError`; jobs over the result belong into `refusing_unreadable`.
    """
    with refusing_unreadable(source):
        table = _open(session, source)
        if ROW_ID in table.columns:
            return table
        staged = str(scratch / "staged.parquet")
        shutil.rmtree(staged, ignore_errors=True)
        _storable(table).orderBy(_content_hash(table)).write.parquet(staged)
        return open_typed(session, Source(name=source.name, location=staged, format="parquet"))


def open_all(
    session: SparkSession, source: Source, scratch: Path, *, ignore: Collection[str]
) -> tuple[DataFrame, dict[SplitName, int]]:
    """As `open_numbered`, with the user's own validation and test rows, and their first row ids.

    Raises `DataError` if those lack a column or hold another type in it.
    """
    table, starts = open_numbered(session, source, scratch), {}
    types = {name: kind for name, kind in table.dtypes if name != ROW_ID}
    for split, held_out in source.held_out.items():
        starts[split] = table.count()
        folder = scratch / split
        folder.mkdir(exist_ok=True)
        other = open_numbered(session, held_out, folder)
        with refusing_unreadable(held_out):
            table = table.unionByName(_like(other, held_out.name, types, ignore, starts[split]))
    return table, starts


def _like(
    table: DataFrame, name: str, types: Mapping[str, str], ignore: Collection[str], first: int
) -> DataFrame:
    """The columns of `types` in `table`, with row ids from `first` on."""
    from pyspark.sql import functions as F

    found = dict(table.dtypes)
    check_held_out(name, found, types, ignore)
    for column, kind in types.items():
        own = found.get(column, kind)
        if own != kind and not (is_number(own) and is_number(kind)):
            raise other_type(name, column, own, kind)
    columns = [
        F.col(quoted(column)) if column in found else F.lit(None).cast(kind).alias(column)
        for column, kind in types.items()
    ]
    return table.select(*columns, (F.col(ROW_ID) + first).alias(ROW_ID))


def open_table(session: SparkSession, source: Source) -> DataFrame:
    """The user's columns, for predictions: those of CSV as texts, like `sparkgpu.predict.readers`."""
    with refusing_unreadable(source):
        table = open_csv(session, source, as_texts=True) if source.format == "csv" else _open(session, source)
        return table.drop(ROW_ID)


def _open(session: SparkSession, source: Source) -> DataFrame:
    if source.format is None:
        return _open_catalog_table(session, source)
    opener: Opener = FORMATS.find(source.format).loaded()
    return opener(session, source)


def _open_catalog_table(session: SparkSession, source: Source) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        return session.table(source.location)
    except AnalysisException:  # also for a text that is not a valid name
        names = [table.name for table in session.catalog.listTables()]
        raise DataError(
            f"{source.name}: the catalog has no such table.{nearest(source.location, names)} It has "
            f"{listed(names) or 'no tables'} in the database {session.catalog.currentDatabase()}; "
            "name one as table:NAME or table:DATABASE.NAME."
        ) from None


def _storable(table: DataFrame) -> DataFrame:
    """The table, with columns of types that files cannot store (no type, intervals) as text."""
    from pyspark.sql import functions as F

    return table.select(
        *(
            F.col(quoted(name)).cast("string").alias(name)
            if kind == "void" or kind.startswith("interval")
            else F.col(quoted(name))
            for name, kind in table.dtypes
        )
    )


def _content_hash(table: DataFrame) -> Column:
    """A 64-bit hash of a row's content (columns sorted by name, so that their order does not matter)."""
    from pyspark.sql import functions as F

    types = dict(table.dtypes)
    hashable = [name for name in own_columns(types) if "map<" not in types[name]]
    return F.xxhash64(*(F.col(quoted(name)) for name in sorted(hashable)))


def open_typed(session: SparkSession, source: Source) -> DataFrame:
    """Parquet and ORC: the columns of all files, null in files that lack a column.

    In Parquet, Spark reads pandas' timestamps in nanoseconds and durations as whole numbers; here they become
    timestamps and seconds.
    """
    assert source.format is not None
    session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    files = file_columns(source)
    if files is not None:
        files.check_types()
    reader = _reader(session, source).format(source.format)
    if files is None or files.absent:  # it costs a job
        reader = reader.option("mergeSchema", "true")
    table = reader.load(literal(source.location))
    if files is None or source.format != "parquet":
        return numbered_by_blocks(table)
    return with_values(numbered_by_footers(table), files.stored)


def open_csv(session: SparkSession, source: Source, as_texts: bool = False) -> DataFrame:
    """The columns with the types that all rows show, or as texts."""
    lines = _lines(session, source)
    blocks = blocks_of(lines, first_of=_LINE)
    header_of = {block.file: block.line for block in reversed(blocks)}
    names = {file: Path(unquote(file)).name for file in reversed(header_of)}
    headers = ((name, _header(name, header_of[file], source)) for file, name in names.items())
    parser = csv_parser(source.name, headers, source.dialect)
    types = dict.fromkeys(parser.names, pa.string()) if as_texts else None
    return _parsed(shifted(lines, blocks, with_header=True), parser, source, types)


def open_json(session: SparkSession, source: Source) -> DataFrame:
    """The columns with the types that all rows show."""
    lines = _lines(session, source)
    return _parsed(shifted(lines, blocks_of(lines)), json_parser(source.dialect), source)


def _reader(session: SparkSession, source: Source) -> DataFrameReader:
    """Of files in folders of any depth, as everywhere; Spark by itself goes into those that name a column."""
    folder = Path(source.location)
    parts = (part for file in table_files(folder) for part in file.relative_to(folder).parts[:-1])
    is_plain = folder.is_dir() and not any("=" in part for part in parts)
    reader = session.read.option("recursiveFileLookup", str(is_plain).lower())
    if source.passed_over:
        names = f"*{{{','.join(FORMATS.find(source.format or '').endings)}}}{{,{','.join(COMPRESSED)}}}"
        names = re.sub("[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", names)
        reader = reader.option("pathGlobFilter", names)
    return reader


def _lines(session: SparkSession, source: Source) -> DataFrame:
    """The lines that are not empty, as their bytes, with the columns that folders name."""
    from pyspark.sql import functions as F

    if (encoding := source.dialect.encoding) and not "\n\n".encode(encoding).endswith(b"\n\n"):
        raise DataError(
            f"{source.name}: Spark cannot divide text in {encoding} into lines. Save the files as UTF-8."
        )
    lines = _reader(session, source).option("lineSep", "\n").text(literal(source.location))
    filled = placed(lines.where(f"{_LINE} NOT IN ('', '\\r')"))
    return filled.withColumn(_LINE, F.col(_LINE).cast("binary"))


def _header(file: str, line: bytes, source: Source) -> str:
    try:
        return as_utf8(line, source.dialect.encoding).decode()
    except LineError as error:
        raise DataError(f"{source.name}: the header of {file} {error.fault}") from None


def _parsed(numbered: DataFrame, parser: Parser, source: Source, types: Types | None = None) -> DataFrame:
    """Typed columns for the column of lines; the others stay."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    zeros: tuple[str, ...] = ()
    if types is None:
        found = numbered.select(_LINE, ROW_ID).mapInArrow(
            partial(_found_types, parser, source), "first long, schema binary"
        )
        parts = sorted((row.first, bytes(row.schema)) for row in found.collect())
        if not parts:
            raise no_rows(source.name)
        schemas = [pa.ipc.read_schema(pa.py_buffer(schema)) for _, schema in parts]
        seen = unified(*({field.name: field.type for field in schema} for schema in schemas))
        types, zeros = settled(seen), padded(seen)
    fields = [
        StructField(name, from_arrow_type(kind), metadata={LEADING_ZEROS: name in zeros})
        for name, kind in types.items()
    ]
    others = [field for field in numbered.schema if field.name != _LINE]
    return numbered.mapInArrow(partial(_typed_rows, parser, source, types), StructType([*fields, *others]))


def _found_types(
    parser: Parser, source: Source, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The first row id and the types of consecutive lines: a task may read files in any order."""
    for batch in batches:
        row_id_N = as_numpy(batch.column(ROW_ID))
        jumps = (np.flatnonzero(np.diff(row_id_N) != 1) + 1).tolist()
        for begin, end in pairwise([0, *jumps, batch.num_rows]):
            lines = batch.slice(begin, end - begin)
            if lines.num_rows:
                with _refusing_lines(source.name, lines):
                    types = parser.infer(_block(lines, source))
                schema = pa.schema(list(types.items())).serialize().to_pybytes()
                yield pa.RecordBatch.from_pydict({"first": row_id_N[begin : begin + 1], "schema": [schema]})


def _typed_rows(
    parser: Parser, source: Source, types: Types, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            with _refusing_lines(source.name, batch):
                table = parser.read(_block(batch, source), types)
            others = [own for own in batch.schema.names if own != _LINE]
            yield pa.RecordBatch.from_arrays(
                [column.combine_chunks() for column in table.columns] + [batch.column(own) for own in others],
                names=[*types, *others],
            )


def _block(batch: pa.RecordBatch, source: Source) -> bytes:
    lines = batch.column(_LINE)
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return as_utf8(bytes(pc.binary_join(whole, b"\n")[0].as_py()), source.dialect.encoding)


@contextmanager
def _refusing_lines(name: str, batch: pa.RecordBatch) -> Iterator[None]:
    try:
        yield
    except LineError as error:
        row = batch.column(ROW_ID)[error.place].as_py() + 1
        raise DataError(f"{name}: row {row:,} (in the order of the files) {error.fault}") from None
