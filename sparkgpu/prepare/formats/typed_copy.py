"""A typed copy of a local CSV or JSON lines table in Parquet, made by pyarrow as Spark would read it.

Spark reads text three times, and slowly: for the types, the figures and the rows of a table. The copy has
Spark's types, values and order of rows, and takes the way of a Parquet table from then on. A pass over the
files converts them to the types that some of their lines show; if other lines show more, a second pass
follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.host.cores import usable_cores
from sparkgpu.prepare.formats.csv_table import CsvTable
from sparkgpu.prepare.formats.json_table import JsonTable
from sparkgpu.prepare.formats.text_blocks import LeftToSparkError, TextTable, TypedBlock
from sparkgpu.prepare.formats.text_files import text_files
from sparkgpu.prepare.formats.text_types import ARROW_TYPES, Seen
from sparkgpu.table.source import COMPRESSED, Source, table_files

_TABLES: dict[str, type[CsvTable] | type[JsonTable]] = {"csv": CsvTable, "json": JsonTable}
_MOST_THREADS = 8  # each holds a block as bytes, as texts and in its types
_SMALL_BYTES = 1 << 26
_UNPACKED = 5
"""About as many bytes are in a byte of a compressed file."""
_GROUP_ROWS = 131_072
_GROUP_VALUES = 16_000_000
_MOST_COLUMNS = 20_000  # Spark's parser of CSV has a limit just above


def is_small(source: Source) -> bool:
    """Whether a typed copy of a local table of texts takes less time than the start of Spark."""
    path = Path(source.location)
    if source.format not in _TABLES or not path.exists():
        return False
    sizes = ((file.stat().st_size, file.suffix.lower() in COMPRESSED) for file in text_files(source))
    return sum(size * (_UNPACKED if packed else 1) for size, packed in sizes) <= _SMALL_BYTES


def typed_copy(source: Source, folder: Path) -> Source:
    """The source in a Parquet file in `folder`, or as it is if that is left to Spark; the log says why.

    Raises `DataError` if CSV files have no common header, as `open_csv` does.
    """
    path = Path(source.location)
    if source.format not in _TABLES or not path.exists():
        return source
    made = folder / "typed-copy.parquet"
    try:
        files = text_files(source)
        every = [file for file in table_files(path) if file.stat().st_size] if path.is_dir() else [path]
        if not files or len(files) < len(every):
            raise LeftToSparkError("only Spark can unpack it")
        if any(file.parent not in (path, path.parent) for file in files):
            raise LeftToSparkError("names of folders are values")
        _write(_TABLES[source.format](source, files), made)
    except (LeftToSparkError, pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        made.unlink(missing_ok=True)
        print(f"{source.name}: Spark reads it, and not pyarrow: {error}", flush=True)
        return source
    return source.model_copy(update={"location": str(made), "format": "parquet", "was_text": True})


class _Look:
    """What all texts of each column showed so far."""

    def __init__(self, table: TextTable) -> None:
        self._table = table
        self.seen: dict[str, frozenset[Seen]] = dict.fromkeys(table.columns, frozenset())

    def add(self, found: Mapping[str, Set[Seen]]) -> None:
        for name, seen in found.items():
            self.seen[name] = self.seen.get(name, frozenset()) | seen

    def types(self) -> dict[str, str]:
        """The types of all columns in Spark's order. Raises `LeftToSparkError` if one is not certain."""
        types = {}
        for name in self._table.ordered(self.seen):
            kind = self._table.type_of(self.seen[name])
            if kind is None:
                raise LeftToSparkError(f"the type of {name!r} is not certain")
            types[name] = kind
        if not 1 < len(types) <= _MOST_COLUMNS:
            raise LeftToSparkError("it has too few or too many columns")
        return types


def _write(table: TextTable, made: Path) -> None:
    """Write the copy. Raises `LeftToSparkError`, or an error of reading."""
    look = _Look(table)
    for lines in table.sample():
        look.add(table.look(lines))
    types = look.types()
    while not _pass(table, types, look, made):
        wider = look.types()
        assert wider != types
        types = wider


def _pass(table: TextTable, types: dict[str, str], look: _Look, made: Path) -> bool:
    """Write all rows in these types; False, and more is known of the columns, if the types do not fit."""
    known = {name for name, kind in types.items() if kind == "string" and "word" in look.seen[name]}
    schema = pa.schema([(name, ARROW_TYPES[kind]) for name, kind in types.items()])
    rows, fitting = 0, True
    with _Groups(made, schema) as groups:
        for block in _in_order(table, types, known):
            look.add(block.seen)
            look.types()  # here a column that is unclear ends it
            fitting = fitting and block.table is not None
            if fitting and block.table is not None:
                groups.add(block.table)
                rows += block.table.num_rows
    if fitting and not rows:
        raise LeftToSparkError("it has no rows")
    return fitting and look.types() == types


def _in_order(table: TextTable, types: Mapping[str, str], known: Set[str]) -> Iterator[TypedBlock]:
    """The blocks of all files, converted by threads that are a few blocks ahead."""
    workers = min(usable_cores(), _MOST_THREADS)
    waiting: deque[Future[TypedBlock]] = deque()
    with ThreadPoolExecutor(workers) as threads:
        try:
            for block in table.blocks():
                waiting.append(threads.submit(table.typed, block, types, known))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


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
