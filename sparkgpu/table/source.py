"""Finds the table that SOURCE names, and its format, before Spark starts."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sparkgpu.errors import DataError
from sparkgpu.words import listed, nearest

Format = Literal["parquet", "csv", "orc", "json"]

TABLE_PREFIX = "table:"
_FORMATS: dict[str, Format] = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".orc": "orc",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip
COMPRESSED = (".gz", ".bz2", ".deflate")
_ARCHIVES = (".zip", ".zst", ".xz", ".7z", ".rar", ".tar", ".tgz", ".lz4", ".snappy")
_READABLE = "Parquet, CSV (plain or .gz/.bz2), ORC, JSON lines, or table:NAME"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The location and the format of a table. `format` None means a table of the catalog."""

    name: str
    location: str
    format: Format | None


def find_source(text: str) -> Source:
    """Recognise a table from the text of SOURCE and the files there. Needs no Spark.

    Raises `DataError` if nothing is there, or nothing readable.
    """
    if text.startswith(TABLE_PREFIX):
        name = text.removeprefix(TABLE_PREFIX)
        if not name:
            raise DataError("table: names no table; write table:NAME, such as table:sales.orders.")
        return Source(name=text, location=name, format=None)
    if re.match(r"[a-z0-9]+://", text) and not text.startswith("file://"):
        return Source(name=text, location=text, format=_format(text, Path(text.rstrip("/"))))
    path = Path(text.removeprefix("file://")).expanduser()
    if path.is_dir():
        return Source(name=text, location=str(path.resolve()), format=_folder_format(text, path))
    if not path.exists():
        parent = path.parent
        names = [item.name for item in parent.iterdir()] if parent.is_dir() else []
        hint = nearest(path.name, names) if parent.is_dir() else f" There is no folder {parent} either."
        raise DataError(f"{text}: there is no such file.{hint} Give {_READABLE}.")
    if path.stat().st_size == 0:
        raise DataError(f"{text}: the file is empty (0 bytes). Give a table with a header and rows.")
    return Source(name=text, location=str(path.resolve()), format=_format(text, path))


def _format(text: str, path: Path) -> Format:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compressed = False
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
        compressed = True
    if suffixes and suffixes[-1] in _ARCHIVES:
        raise DataError(
            f"{text}: Spark cannot read {suffixes[-1]} archives. Unpack it, or compress the table with gzip."
        )
    found = _FORMATS.get(suffixes[-1]) if suffixes else None
    if compressed and found in ("parquet", "orc"):
        raise DataError(
            f"{text}: {suffixes[-1]} files are compressed inside, not as a whole. Unpack it, and give that "
            "file."
        )
    if found is None:
        ending = path.suffix or "no ending"
        raise DataError(f"{text}: its format is unknown ({ending}). Give {_READABLE}.")
    return found


def _is_hidden(name: str) -> bool:
    """Whether Spark ignores files and folders of this name (``_x=1`` is a partition, not hidden)."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def table_files(folder: Path) -> list[Path]:
    """The files of a table in a folder that Spark reads, sorted by name."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(map(_is_hidden, path.relative_to(folder).parts))
    )


def _folder_format(text: str, folder: Path) -> Format:
    files = table_files(folder)
    if not files:
        raise DataError(f"{text}: the folder holds no files. Give a folder of {_READABLE}.")
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
