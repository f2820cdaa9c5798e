"""Frames of any library as record batches: pandas, and whatever exports Arrow (polars, pyarrow, DuckDB, ...).

The rule is the Arrow PyCapsule interface (``__arrow_c_stream__``), so no library is needed for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkgpu.core.errors import DataError

if TYPE_CHECKING:
    import pandas

_MOST_ROWS = 131_072
_MOST_VALUES = 16_000_000


def most_rows(columns: int) -> int:
    """The rows of a batch of so many columns."""
    return max(1_024, min(_MOST_ROWS, _MOST_VALUES // max(columns, 1)))


def as_reader(data: Any) -> pa.RecordBatchReader:
    """A frame as a stream of batches. Raises `DataError` if it is no frame, or holds what Arrow cannot."""
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return _of_pandas(data)
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(f"the data cannot be read as a table: {_line(error)}.") from None
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    if kind.startswith("pyspark."):
        raise DataError(f"data is a {kind}; use model.transform(data) for Spark's frames.")
    if hasattr(data, "collect"):
        raise DataError(f"data is a {kind}, which holds no rows yet; give the result of its collect().")
    raise DataError(
        f"data is a {kind}; give a pandas, polars or pyarrow table, or another frame that exports Arrow."
    )


def batches(data: Any) -> Iterator[pa.RecordBatch]:
    """The frame's rows in order, in batches of a bounded size."""
    reader = as_reader(data)
    size = most_rows(len(reader.schema))
    for batch in reader:
        for begin in range(0, batch.num_rows, size):
            yield batch.slice(begin, size)


def _of_pandas(frame: pandas.DataFrame) -> pa.RecordBatchReader:
    names = [str(name) for name in frame.columns]
    columns = []
    for name, (_, values) in zip(names, frame.items(), strict=True):
        try:
            columns.append(pa.Array.from_pandas(values))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            columns.append(_mixed(values, name))
    flat = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]
    return pa.Table.from_arrays(flat, names=names).to_reader()


def _mixed(values: pandas.Series[Any], name: str) -> pa.Array:
    """A column of objects of several types: as text, missing values kept."""
    try:
        is_missing = values.isna()
        return pa.array(
            [None if gone else str(value) for value, gone in zip(values, is_missing, strict=True)],
            pa.string(),
        )
    except Exception as error:  # whatever the objects' own methods raise
        raise DataError(f"column {name!r} cannot be read: {_line(error)}. Convert it.") from None


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
