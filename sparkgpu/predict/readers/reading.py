"""The interface that reads a source of one format without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.source import Source

Reader = Callable[[Source, Sequence[str] | None], Iterator[pa.RecordBatch]]
"""Yields some columns (None: all) of a local table; its entry is in `sparkgpu.core.config.registry.formats`.

A column that the table lacks is left out. Raises `DataError`, or one of pyarrow's errors, if it cannot be
read.
"""


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


def chosen(batch: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """Only these columns of a batch, as far as it has them."""
    if columns is None:
        return batch
    return batch.select([name for name in columns if name in batch.schema.names])
