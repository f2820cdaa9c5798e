"""ORC, one stripe after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.orc

from sparkgpu.core.table.source import Source
from sparkgpu.predict.frames import most_rows
from sparkgpu.predict.readers.reading import chosen
from sparkgpu.prepare.file_columns import files_of


def read_orc(source: Source, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """A reader (`sparkgpu.predict.readers.reading.Reader`)."""
    for file in files_of(source):
        opened = pyarrow.orc.ORCFile(file)
        wanted = None if columns is None else [name for name in columns if name in opened.schema.names]
        size = most_rows(len(opened.schema))
        for stripe in range(opened.nstripes):
            batch = chosen(opened.read_stripe(stripe, columns=wanted), wanted)
            for begin in range(0, batch.num_rows, size):
                yield batch.slice(begin, size)
