"""Checks local text files in Python for faults that Spark would silently accept."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sparkgpu.errors import DataError
from sparkgpu.table.source import Source, table_files


def text_files(source: Source) -> list[Path]:
    """The files of a local text table that Python can open like Spark."""
    path = Path(source.location)
    files = table_files(path) if path.is_dir() else [path] if path.exists() else []
    return [file for file in files if file.stat().st_size and file.suffix.lower() != ".deflate"]


_OPENERS: dict[str, Callable[..., IO[Any]]] = {".gz": gzip.open, ".bz2": bz2.open}


def open_text(path: Path) -> IO[str]:
    opener: Callable[..., IO[str]] = _OPENERS.get(path.suffix.lower(), open)
    return opener(path, "rt", encoding="utf-8-sig", newline="")


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked."""
    opener: Callable[..., IO[bytes]] = _OPENERS.get(path.suffix.lower(), open)
    return opener(path, "rb")


@contextmanager
def refusing_other_text(source: Source) -> Iterator[None]:
    """Turn read errors within the block into one sentence."""
    try:
        yield
    except UnicodeDecodeError:
        raise DataError(f"{source.name}: it is not UTF-8 text. Save the file as UTF-8.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{source.name}: cannot be read ({error}). Check the file, or write it again."
        ) from None


def refuse_other_encodings(source: Source) -> None:
    """Raise `DataError` if a text file is not UTF-8; Spark would replace what it cannot decode by U+FFFD."""
    with refusing_other_text(source):
        for path in text_files(source):
            with open_text(path) as file:
                while file.read(1 << 20):
                    pass
