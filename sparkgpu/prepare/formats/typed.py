"""Parquet and ORC, whose files contain the types of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkgpu.errors import DataError
from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.file_columns import FileColumns, file_columns
from sparkgpu.prepare.formats.opening import literal
from sparkgpu.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType


def open_typed(session: SparkSession, source: Source, files: FileColumns | None) -> DataFrame:
    """The table with the columns of all files, null in files that lack a column.

    In Parquet, Spark reads pandas' moments in nanoseconds as whole numbers; here they become moments.
    """
    from pyspark.sql import functions as F

    session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    assert source.format is not None
    location = literal(source.location)
    files = files or file_columns(source)
    reader = session.read.format(source.format)
    if files is None:
        return reader.load(location)
    if files.absent:
        reader = reader.schema(_all_columns(session, source.format, files))
    table = reader.load(location)
    kinds = {
        name: found[0]
        for name, found in files.kinds.items()
        if source.format == "parquet" and any(map(_is_nanoseconds, found))
    }
    if not kinds:
        return table
    if any(len(files.kinds[name]) > 1 for name in kinds):  # Spark would mistake one unit for the other
        raise DataError(
            f"{source.name}: cannot be read as parquet: its files disagree on the type of a column. Write "
            "them again with one schema."
        )
    moment = "timestamp_micros({0} div 1000)"
    return table.select(
        *(
            F.expr(
                f"cast({moment.format(quoted(name))} AS {'timestamp' if kinds[name].tz else 'timestamp_ntz'})"
            ).alias(name)
            if name in kinds
            else F.col(quoted(name))
            for name in table.columns
        )
    )


def _all_columns(session: SparkSession, format: str, files: FileColumns) -> StructType:
    """Spark's own view of all columns, from the footers of a few files.

    For a folder, Spark itself reads only the first file's columns.
    """
    from pyspark.sql.types import StructType

    fields: dict[str, StructField] = {}
    for file in files.showing:
        for field in session.read.format(format).load(literal(str(file))).schema:
            fields.setdefault(field.name, field)
    return StructType(list(fields.values()))


def _is_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")
