"""CSV and JSON lines, plain or compressed, with the parser of training (`sparkgpu.prepare.text`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparkgpu.core.table.source import Source
from sparkgpu.predict.readers.reading import chosen
from sparkgpu.prepare.text import CsvParser, unified
from sparkgpu.prepare.text_files import TextFiles


def read_csv(source: Source, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """A reader (`sparkgpu.predict.readers.reading.Reader`).

    Every value comes as text, so that a category such as ``007`` stays what training saw, whatever the other
    new rows hold.
    """
    files = TextFiles(source)
    parser = files.parser
    assert isinstance(parser, CsvParser)
    wanted = parser.names if columns is None else [name for name in columns if name in parser.names]
    texts = dict.fromkeys(wanted or parser.names[:1], pa.string())
    for table in files.parsed(lambda lines: parser.read(lines, texts)):
        yield chosen(_batch(table), columns)


def read_json_lines(source: Source, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """A reader (`sparkgpu.predict.readers.reading.Reader`).

    The columns are those of some of the rows; they keep the types there as long as they fit.
    """
    files = TextFiles(source)
    parser, known = files.parser, files.sampled()

    def read(lines: bytes) -> pa.Table | None:
        table = parser.read(lines, known)
        return table if table is not None else parser.read(lines, unified(known, parser.infer(lines)))

    for table in files.parsed(read):
        yield chosen(_batch(table), list(known) if columns is None else columns)


def _batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]
