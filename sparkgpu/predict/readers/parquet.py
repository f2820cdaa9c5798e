"""Parquet: a file, or a folder of files with the columns of all of them and of its folders' names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from sparkgpu.core.table.source import Source
from sparkgpu.predict.frames import most_rows
from sparkgpu.prepare.file_columns import file_columns, files_of, open_parquet

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def read_parquet(source: Source, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """A reader (`sparkgpu.predict.readers.reading.Reader`)."""
    root = Path(source.location)
    found = file_columns(source)
    kinds = {name: own[0] for name, own in found.kinds.items()} if found is not None else {}
    for file in files_of(source):
        constants = _folder_columns(file, root)
        names = [*kinds, *(name for name in constants if name not in kinds)]
        wanted = names if columns is None else [name for name in columns if name in names]
        with open_parquet(file) as opened:
            there = set(opened.schema_arrow.names)
            own = [name for name in wanted if name in there]
            for batch in opened.iter_batches(most_rows(len(wanted)), columns=own):
                yield _completed(batch, wanted, kinds, constants)


def _completed(
    batch: pa.RecordBatch,
    wanted: Sequence[str],
    kinds: Mapping[str, pa.DataType],
    constants: Mapping[str, str | None],
) -> pa.RecordBatch:
    """The batch with all wanted columns: null where its file lacks one, and those of the folders' names."""
    rows = batch.num_rows
    arrays = [
        batch.column(name)
        if name in batch.schema.names
        else pa.array([constants[name]] * rows, pa.string())
        if name in constants
        else pa.nulls(rows, kinds[name])
        for name in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(wanted))


def _folder_columns(file: Path, root: Path) -> dict[str, str | None]:
    """The columns in the names of the folders between `root` and the file, such as ``year=2024``."""
    parts = file.relative_to(root).parts[:-1] if root.is_dir() else ()
    pairs = (part.split("=", 1) for part in parts if "=" in part)
    return {unquote(name): None if text == _NO_VALUE else unquote(text) for name, text in pairs}
