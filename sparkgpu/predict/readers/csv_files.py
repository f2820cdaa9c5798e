"""CSV, plain or compressed; every value comes as text, and an empty one is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.csv

from sparkgpu.errors import DataError
from sparkgpu.predict.readers.reading import chosen
from sparkgpu.prepare.formats.csv_header import check_headers
from sparkgpu.prepare.formats.text_files import text_files
from sparkgpu.table.source import Source

_BLOCK_BYTES = 1 << 24


def read_csv(source: Source, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """A reader (`sparkgpu.predict.readers.reading.Reader`)."""
    header = check_headers(source)
    files = text_files(source)
    if not files:
        raise DataError(
            f"{source.name}: files that end with .deflate are read by Spark alone. Unpack them, or compress "
            "them with gzip."
        )
    for file in files:
        with (
            pa.input_stream(str(file), compression="detect") as stream,
            pyarrow.csv.open_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES),
                parse_options=pyarrow.csv.ParseOptions(delimiter=header.delimiter),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(header.names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
            ) as opened,
        ):
            for batch in opened:
                yield chosen(batch.rename_columns(header.columns), columns)
