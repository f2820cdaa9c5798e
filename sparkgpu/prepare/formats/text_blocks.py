"""What a table of texts must do to get a typed copy, and the blocks of whole lines of its files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from sparkgpu.prepare.formats.text_files import open_bytes
from sparkgpu.prepare.formats.text_types import Seen
from sparkgpu.table.source import COMPRESSED

BLOCK_BYTES = 1 << 23
SAMPLE_BYTES = 1 << 16
SAMPLE_PLACES = 16
_LONGEST_LINE = 1 << 26
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LeftToSparkError(Exception):
    """Spark may read the table in another way, or refuses it; the message says why."""


@dataclass(frozen=True, kw_only=True)
class TypedBlock:
    """Some rows in their types, or None if they do not fit; and what their columns showed."""

    table: pa.Table | None
    seen: Mapping[str, frozenset[Seen]]


class TextTable(Protocol):
    """A local table of texts. Each method raises `LeftToSparkError`, or an error of reading."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that are known before a row is read."""

    def sample(self) -> Iterator[bytes]:
        """Some of the lines."""

    def blocks(self) -> Iterator[bytes]:
        """All lines of rows, some at a time."""

    def look(self, block: bytes) -> Mapping[str, frozenset[Seen]]:
        """What the columns of a block show."""

    def typed(self, block: bytes, types: Mapping[str, str], known: Set[str]) -> TypedBlock:
        """The rows of a block; columns of words that are `known` as such need no further look."""

    def type_of(self, seen: Set[Seen]) -> str | None:
        """Spark's type of a column that showed this; None if it is not certain."""

    def ordered(self, names: Collection[str]) -> Sequence[str]:
        """All columns in Spark's order."""


def line_blocks(file: Path) -> Iterator[bytes]:
    """The lines of a file in blocks of about `BLOCK_BYTES`, without its byte order mark."""
    with open_bytes(file) as opened:
        pending = opened.read(BLOCK_BYTES).removeprefix(_BYTE_ORDER_MARK)
        more = bool(pending)
        while more:
            data = opened.read(BLOCK_BYTES)
            more = bool(data)
            end = pending.rfind(b"\n") + 1 if more else len(pending)
            if not end and len(pending) > _LONGEST_LINE:
                raise LeftToSparkError("a line is very long")
            block, pending = pending[:end], pending[end:] + data
            if block:
                yield block


def beginning(file: Path, size: int) -> bytes:
    """The first bytes of a file, without its byte order mark."""
    with open_bytes(file) as opened:
        return opened.read(size).removeprefix(_BYTE_ORDER_MARK)


def sampled_lines(files: Sequence[Path]) -> Iterator[tuple[bytes, bool]]:
    """Lines from up to `SAMPLE_PLACES` places of the files, and whether they begin a file.

    A compressed file is only read at its beginning.
    """
    places = max(1, SAMPLE_PLACES // len(files))
    for file in files[:: max(1, len(files) // SAMPLE_PLACES)]:
        first = beginning(file, SAMPLE_BYTES)
        if end := first.rfind(b"\n") + 1:
            yield first[:end], True
        if file.suffix.lower() in COMPRESSED:
            continue
        with file.open("rb") as opened:
            whole = file.stat().st_size
            for place in range(1, places):
                opened.seek(max(whole * place // places, SAMPLE_BYTES))
                data = opened.read(SAMPLE_BYTES)
                begin, end = data.find(b"\n") + 1, data.rfind(b"\n") + 1
                if begin < end:
                    yield data[begin:end], False
