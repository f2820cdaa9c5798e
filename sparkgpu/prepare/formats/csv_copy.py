"""A typed copy of a local CSV table in Parquet, made by pyarrow as Spark would read it.

Spark reads a CSV table three times, and slowly: for its types, its figures and its rows. The copy has Spark's
types, values and order of rows, and takes the way of a Parquet table from then on. A pass over the files
converts them to the types that some of their lines show; if other lines show more, a second pass follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkgpu.host.cores import usable_cores
from sparkgpu.prepare.formats.csv_blocks import (
    LeftToSparkError,
    blocks,
    header_line,
    read_block,
    some_lines,
)
from sparkgpu.prepare.formats.csv_header import CsvHeader, check_headers
from sparkgpu.prepare.formats.csv_types import ARROW_TYPES, Seen, as_type, fits, look_at, type_of
from sparkgpu.prepare.formats.text_files import text_files
from sparkgpu.table.source import COMPRESSED, Source, table_files

_MOST_THREADS = 8  # each holds a block as bytes, as texts and in its types
_SAMPLE_BYTES = 1 << 16
_SAMPLE_PLACES = 16
_SMALL_BYTES = 1 << 26
_UNPACKED = 5
"""About as many bytes are in a byte of a compressed file."""
_GROUP_ROWS = 131_072
_GROUP_VALUES = 16_000_000
_MOST_COLUMNS = 20_000  # Spark's parser has a limit just above


@dataclass(kw_only=True)
class _Look:
    """What all texts of each column showed so far."""

    seen: dict[str, frozenset[Seen]] = field(default_factory=dict)

    def add(self, found: Mapping[str, Set[Seen]]) -> None:
        for name, seen in found.items():
            self.seen[name] = self.seen.get(name, frozenset()) | seen

    def types(self) -> dict[str, str]:
        """The type of each column. Raises `LeftToSparkError` if one is not certain."""
        types = {name: type_of(seen) for name, seen in self.seen.items()}
        if unclear := [name for name, kind in types.items() if kind is None]:
            raise LeftToSparkError(f"the type of {unclear[0]!r} is not certain")
        return {name: kind for name, kind in types.items() if kind is not None}


def is_small(source: Source) -> bool:
    """Whether a typed copy of a local CSV table takes less time than the start of Spark."""
    path = Path(source.location)
    if source.format != "csv" or not path.exists():
        return False
    sizes = ((file.stat().st_size, file.suffix.lower() in COMPRESSED) for file in text_files(source))
    return sum(size * (_UNPACKED if packed else 1) for size, packed in sizes) <= _SMALL_BYTES


def typed_copy(source: Source, folder: Path) -> Source:
    """The source in a Parquet file in `folder`, or as it is if that is left to Spark; the log says why.

    Raises `DataError` if the files have no common header, as `open_csv` does.
    """
    path = Path(source.location)
    if source.format != "csv" or not path.exists():
        return source
    header = check_headers(source)
    made = folder / "typed-copy.parquet"
    try:
        files = text_files(source)
        _check_files(path, files, header)
        _write(files, header, made)
    except (LeftToSparkError, pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        made.unlink(missing_ok=True)
        print(f"{source.name}: Spark reads it, and not pyarrow: {error}", flush=True)
        return source
    return source.model_copy(update={"location": str(made), "format": "parquet", "was_text": True})


def _check_files(path: Path, files: Sequence[Path], header: CsvHeader) -> None:
    every = [file for file in table_files(path) if file.stat().st_size] if path.is_dir() else [path]
    if not files or len(files) < len(every):
        raise LeftToSparkError("only Spark can unpack it")
    if any(file.parent not in (path, path.parent) for file in files):
        raise LeftToSparkError("names of folders are values")
    names = header.columns
    if not 1 < len(names) <= _MOST_COLUMNS or len(set(names)) < len(names):
        raise LeftToSparkError("its columns have no plain names, or there are too few or too many")


def _write(files: Sequence[Path], header: CsvHeader, made: Path) -> None:
    """Write the copy. Raises `LeftToSparkError`, or an error of reading."""
    line = header_line(files, header)
    look = _Look(seen={name: frozenset() for name in header.columns})
    step = max(1, len(files) // _SAMPLE_PLACES)
    for file in files[::step]:
        for lines in some_lines(file, places=max(1, _SAMPLE_PLACES // len(files)), size=_SAMPLE_BYTES):
            table = read_block(lines, header, {})
            look.add({name: look_at(_whole(table, name)) for name in table.column_names})
    types = look.types()
    while not _pass(files, header, line, types, look, made):
        wider = look.types()
        assert wider != types
        types = wider


def _pass(
    files: Sequence[Path], header: CsvHeader, line: bytes, types: dict[str, str], look: _Look, made: Path
) -> bool:
    """Write all rows in these types; False, and more is known of the columns, if the types do not fit."""
    known = {name for name, kind in types.items() if kind == "string" and "word" in look.seen[name]}
    schema = pa.schema([(name, ARROW_TYPES[kind]) for name, kind in types.items()])
    rows, fitting = 0, True
    with _Groups(made, schema) as groups:
        for block in _in_order(files, header, line, types, known):
            look.add(block.seen)
            look.types()  # here a column that is unclear ends it
            fitting = fitting and block.table is not None
            if fitting and block.table is not None:
                groups.add(block.table)
                rows += block.table.num_rows
    if fitting and not rows:
        raise LeftToSparkError("it has no rows")
    return fitting and look.types() == types


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Some rows in their types, or None if they do not fit; and what their columns showed."""

    table: pa.Table | None
    seen: Mapping[str, frozenset[Seen]]


def _in_order(
    files: Sequence[Path], header: CsvHeader, line: bytes, types: Mapping[str, str], known: Set[str]
) -> Iterator[_Block]:
    """The blocks of all files, converted by threads that are a few blocks ahead."""
    workers = min(usable_cores(), _MOST_THREADS)
    waiting: deque[Future[_Block]] = deque()
    with ThreadPoolExecutor(workers) as threads:
        try:
            for file in files:
                for block in blocks(file, line):
                    waiting.append(threads.submit(_typed, block, header, types, known))
                    if len(waiting) > workers:
                        yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _typed(block: bytes, header: CsvHeader, types: Mapping[str, str], known: Set[str]) -> _Block:
    """The rows of a block; columns of words that are `known` as such need no further look."""
    doubles = {name: pa.float64() for name, kind in types.items() if kind == "double"}
    try:
        table = read_block(block, header, doubles)
    except pa.ArrowInvalid:
        table, doubles = read_block(block, header, {}), {}
    if doubles and any(pc.all(pc.is_finite(table[name])).as_py() is False for name in doubles):
        table, doubles = read_block(block, header, {}), {}  # by which words, which Spark may not know?
    seen: dict[str, frozenset[Seen]] = {}
    columns: list[pa.Array] = []
    for name, kind in types.items():
        column = _whole(table, name)
        if name not in known and name not in doubles:
            seen[name] = look_at(column)
            found = as_type(column, kind) if fits(seen[name], kind) else None
            if found is None:
                continue
            column = found
        columns.append(column)
    whole = len(columns) == len(types)
    return _Block(table=pa.table(columns, names=list(types)) if whole else None, seen=seen)


def _whole(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class _Groups:
    """Writes row groups whose sizes depend on the table alone, as do the parts that follow from them."""

    def __init__(self, made: Path, schema: pa.Schema) -> None:
        texts = [found.name for found in schema if found.type == pa.string()]
        self._schema = schema
        self._size = max(1_024, min(_GROUP_ROWS, _GROUP_VALUES // len(schema)))
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._writer = pq.ParquetWriter(
            made,
            schema,
            use_dictionary=texts,
            compression={name: "snappy" if name in texts else "none" for name in schema.names},
            write_statistics=False,
        )

    def __enter__(self) -> _Groups:
        return self

    def __exit__(self, *_: object) -> None:
        self._write(self._rows)
        self._writer.close()

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table.cast(self._schema))
        self._rows += table.num_rows
        if self._rows >= self._size:
            self._write(self._rows // self._size * self._size)

    def _write(self, rows: int) -> None:
        """Write the first waiting rows."""
        if rows:
            whole = pa.concat_tables(self._waiting)
            self._writer.write_table(whole.slice(0, rows), row_group_size=self._size)
            self._waiting = [whole.slice(rows)]
            self._rows -= rows
