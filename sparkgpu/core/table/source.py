"""Finds the table that SOURCE names, and its format, before Spark starts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sparkgpu.core.config.keys import PASSWORD_IN_URL
from sparkgpu.core.config.registry.source_formats import FORMATS
from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.core.rundir.files import Record
from sparkgpu.core.table.dialect import Dialect
from sparkgpu.core.table.schema import SplitName
from sparkgpu.core.words import listed, nearest

TABLE_PREFIX = "table:"
COMPRESSED = (".gz", ".bz2")
TEXT_FORMATS = ("csv", "json")
_LOCAL = ("parquet", "orc", *TEXT_FORMATS)
_READABLE = "Parquet, CSV (plain or .gz/.bz2), ORC, JSON lines, or table:NAME"


class Source(Record):
    """Where a table lies and how it is stored: found once, by the parent, and handed on as it is.

    `name` is what a run calls it. `format` None is a table of the catalog, of which `location` is the name.
    The user's own validation and test rows, if they lie elsewhere, are `valid` and `test`. Text tables are
    written in its `dialect`. `passed_over` are the files of its folder that are no data, `padded` columns of
    CSV whose whole numbers have leading zeros (known once it is read).
    """

    name: str
    location: str
    format: str | None
    dialect: Dialect = Dialect()
    passed_over: tuple[str, ...] = ()
    padded: tuple[str, ...] = ()
    valid: Source | None = None
    test: Source | None = None

    @property
    def held_out(self) -> dict[SplitName, Source]:
        """The user's own validation and test rows; their row ids follow those of this table."""
        found: dict[SplitName, Source | None] = {"valid": self.valid, "test": self.test}
        return {split: source for split, source in found.items() if source is not None}

    @property
    def is_catalog_table(self) -> bool:
        return self.format is None

    @property
    def is_far(self) -> bool:
        """Whether reading it is more than reading files of this machine."""
        return self.needs_catalog or any("://" in source.location for source in self.tables)

    @property
    def tables(self) -> tuple[Source, ...]:
        """This table and those of `held_out`, in the order of their row ids."""
        return (self, *self.held_out.values())

    @property
    def notes(self) -> list[str]:
        """What the user should know of the files beside those of the tables."""
        return [
            f"passed over {listed(table.passed_over)} in {table.name}: no data by their endings"
            for table in self.tables
            if table.passed_over
        ]

    @property
    def needs_catalog(self) -> bool:
        return any(source.is_catalog_table for source in self.tables)

    @property
    def is_opened_by_spark(self) -> bool:
        """Whether it is far, in another package's format, or in folders such as ``year=2024``."""
        if any(source.is_opened_by_spark for source in self.held_out.values()):
            return True
        path = Path(self.location)
        is_far = self.is_far or self.format not in _LOCAL
        return is_far or (
            path.is_dir() and any("=" in item.name and item.is_dir() for item in path.iterdir())
        )

    @property
    def lasting(self) -> str:
        """The text of SOURCE that names it from any folder."""
        return TABLE_PREFIX + self.location if self.is_catalog_table else self.location


def find_source(text: str, dialect: Dialect | None = None) -> Source:
    """Recognise a table from the text of SOURCE and the files there. Needs no Spark.

    Raises `DataError` if nothing is there, or nothing readable.
    """
    return _located(text).model_copy(update={"dialect": dialect or Dialect()})


def parquet_size(source: Source) -> tuple[int, int] | None:
    """The rows and columns of a Parquet table on this machine; None if only reading the table tells."""
    if source.format != "parquet" or source.is_opened_by_spark:
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = columns = 0
    try:
        for table in source.tables:
            place = Path(table.location)
            for file in table_files(place) if place.is_dir() else [place]:
                found = pq.read_metadata(file)
                rows += found.num_rows
                columns = max(columns, found.num_columns)
    except (OSError, pa.ArrowException):
        return None  # the preparation says what is wrong with it
    return rows, columns - 1


def _located(text: str) -> Source:
    if text.startswith(TABLE_PREFIX):
        name = text.removeprefix(TABLE_PREFIX)
        if not name:
            raise DataError("table: names no table; write table:NAME, such as table:sales.orders.")
        return Source(name=text, location=name, format=None)
    if PASSWORD_IN_URL.search(text):
        raise ConfigError(
            "SOURCE holds a password in its address, which logs and reports would show. Leave it out, and "
            "give it to Spark by the environment (docs/cluster.md)."
        )
    if re.match(r"[a-z0-9]+://", text) and not text.startswith("file://"):
        return Source(name=text, location=text, format=_format(text, Path(text.rstrip("/"))))
    path = Path(text.removeprefix("file://")).expanduser()
    if path.is_dir():
        data = table_files(path)
        others = sorted({*_visible_files(path)}.difference(data))
        beside = tuple(str(file.relative_to(path)) for file in others)
        format = _folder_format(text, data, beside)
        return Source(name=text, location=str(path.resolve()), format=format, passed_over=beside)
    if not path.exists():
        parent = path.parent
        names = [item.name for item in parent.iterdir()] if parent.is_dir() else []
        hint = nearest(path.name, names) if parent.is_dir() else f" There is no folder {parent} either."
        raise DataError(f"{text}: there is no such file.{hint} Give {_READABLE}.")
    if not path.is_file():
        raise DataError(f"{text}: it is neither a file nor a folder. Write the table to a file first.")
    if path.stat().st_size == 0:
        raise DataError(f"{text}: the file is empty (0 bytes). Give a table with a header and rows.")
    return Source(name=text, location=str(path.resolve()), format=_format(text, path))


def _format(text: str, path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compressed = False
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
        compressed = True
    found = next((entry for entry in FORMATS.all() if suffixes and suffixes[-1] in entry.endings), None)
    if found is None or (compressed and found.name not in TEXT_FORMATS):
        ending = path.suffix or "no ending"
        raise DataError(f"{text}: its format is unknown ({ending}). Give {_READABLE}.")
    return found.name


def _is_hidden(name: str) -> bool:
    """Whether Spark ignores files and folders of this name (``_x=1`` is a partition, not hidden)."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def table_files(folder: Path) -> list[Path]:
    """The files of a table in a folder, sorted by name: visible ones with the ending of a format."""
    endings = {ending for entry in FORMATS.all() for ending in entry.endings}
    return [
        path
        for path in _visible_files(folder)
        if not endings.isdisjoint(suffix.lower() for suffix in path.suffixes)
    ]


def _visible_files(folder: Path) -> list[Path]:
    """All files in a folder that are not hidden, sorted by name."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(map(_is_hidden, path.relative_to(folder).parts))
    )


def _folder_format(text: str, files: Sequence[Path], beside: Sequence[str]) -> str:
    if not files:
        found = (
            f"none of its files is of a known format ({listed(beside)})" if beside else "it holds no files"
        )
        raise DataError(f"{text}: {found}. Give a folder of {_READABLE}.")
    if not any(path.stat().st_size for path in files):
        raise DataError(f"{text}: every file in the folder is empty (0 bytes). Give a table with rows.")
    formats = Counter(_format(str(path), path) for path in files)
    if len(formats) > 1:
        raise DataError(
            f"{text}: the folder mixes {listed(formats)} files; keep one format in it, or give a single file."
        )
    found = next(iter(formats))
    empty = [path.name for path in files if not path.stat().st_size]
    if empty and found == "parquet":
        raise DataError(
            f"{text}: {listed(empty)} in this folder is empty (0 bytes), not a Parquet file. Remove it."
        )
    return found
