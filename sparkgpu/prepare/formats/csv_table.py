"""Reads a local CSV table in blocks, where pyarrow and Spark surely find the same texts.

Spark takes each line for a row. So the two agree on rows of one length, each in a line of its own, with
quotes round whole values only. Anything else is left to Spark, which reads or refuses it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sparkgpu.prepare.formats.csv_header import check_headers
from sparkgpu.prepare.formats.text_blocks import (
    LeftToSparkError,
    TypedBlock,
    beginning,
    line_blocks,
    sampled_lines,
)
from sparkgpu.prepare.formats.text_types import Seen, as_type, fits, look_at, type_of
from sparkgpu.table.source import Source

_HEADER_BYTES = 1 << 22
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_BLANKS = bytes(range(0x21))
"""What Java trims: Spark skips a line that holds nothing else."""
_BLANK_LINE = re.compile(rb"\n\r*[\x00-\x09\x0b\x0c\x0e-\x20][\x00-\x09\x0b-\x20]*(?=\n|\Z)")


class CsvTable:
    """A `sparkgpu.prepare.formats.text_blocks.TextTable`.

    Raises `DataError` if the files have no common header, and `LeftToSparkError` if Spark may find other
    names in it, or rows.
    """

    def __init__(self, source: Source, files: Sequence[Path]) -> None:
        self._header = check_headers(source)
        self._files = files
        self.columns = self._header.columns
        if len(set(self.columns)) < len(self.columns):
            raise LeftToSparkError("its columns have no plain names")
        self._line = self._header_line()

    def sample(self) -> Iterator[bytes]:
        for lines, is_beginning in sampled_lines(self._files):
            if rest := lines[_first_line(lines)[1] :] if is_beginning else lines:
                yield rest

    def blocks(self) -> Iterator[bytes]:
        for file in self._files:
            is_first = True
            for lines in line_blocks(file):
                block = lines
                if is_first:
                    first, end = _first_line(block)
                    block, is_first = block[end:], not first
                if self._holds_header(block):
                    raise LeftToSparkError("it repeats its header")  # Spark takes it for a row, not for types
                if block:
                    yield block

    def look(self, block: bytes) -> Mapping[str, frozenset[Seen]]:
        table = self._read(block, {})
        return {name: look_at(_whole(table, name)) for name in self.columns}

    def typed(self, block: bytes, types: Mapping[str, str], known: Set[str]) -> TypedBlock:
        doubles = {name: pa.float64() for name, kind in types.items() if kind == "double"}
        try:
            table = self._read(block, doubles)
        except pa.ArrowInvalid:
            table, doubles = self._read(block, {}), {}
        if doubles and any(pc.all(pc.is_finite(table[name])).as_py() is False for name in doubles):
            table, doubles = self._read(block, {}), {}  # by which words, which Spark may not know?
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
        is_whole = len(columns) == len(types)
        return TypedBlock(table=pa.table(columns, names=list(types)) if is_whole else None, seen=seen)

    def type_of(self, seen: Set[Seen]) -> str | None:
        return type_of(seen)

    def ordered(self, names: Collection[str]) -> Sequence[str]:
        return self.columns

    def _header_line(self) -> bytes:
        """The line with the names, the same in all files: Spark would take another one for a row."""
        lines = {_first_line(beginning(file, _HEADER_BYTES))[0] for file in self._files}
        line = lines.pop()
        if lines:
            raise LeftToSparkError("its files write their header in several ways")
        if b'"' in line and not _quotes_whole_values(line, self._header.delimiter):
            raise LeftToSparkError("quotes in the header are not round whole names")
        names = next(csv.reader([line.decode("utf-8")], delimiter=self._header.delimiter), [])
        if tuple(names) != self._header.names:
            raise LeftToSparkError("its header can be read in several ways")
        return line

    def _holds_header(self, block: bytes) -> bool:
        line = self._line
        return (
            block.startswith((line + b"\n", line + b"\r\n"))
            or any(block.find(b"\n" + line + end) >= 0 for end in (b"\n", b"\r\n"))
            or block.endswith(b"\n" + line)
            or block == line
        )

    def _read(self, block: bytes, kinds: Mapping[str, pa.DataType]) -> pa.Table:
        """The rows of a block; empty values are null. Columns are texts unless `kinds` names a type.

        Raises `LeftToSparkError` if Spark may find other texts, and `pyarrow.ArrowInvalid` if a row has
        another length, a text is not UTF-8, or a value is not of its type.
        """
        delimiter = self._header.delimiter
        if b"\0" in block:
            raise LeftToSparkError("it holds zero bytes")
        if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
            raise LeftToSparkError("it holds carriage returns that end no line")
        if b'"' in block and not _quotes_whole_values(block, delimiter):
            raise LeftToSparkError("quotes are not round whole values")
        table = pyarrow.csv.read_csv(
            pa.py_buffer(block),
            read_options=pyarrow.csv.ReadOptions(
                column_names=self.columns, use_threads=False, block_size=len(block)
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: kinds.get(name, pa.string()) for name in self.columns},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        _check_lines(block, table.num_rows, delimiter)
        return table


def _whole(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _first_line(block: bytes) -> tuple[bytes, int]:
    """The first line that is not blank, without its end, and where the next one begins."""
    begin = len(block) - len(block.lstrip(_BLANKS))
    begin = block.rfind(b"\n", 0, begin) + 1  # blanks at its own beginning belong to the line
    end = block.find(b"\n", begin) + 1 or len(block)
    return block[begin:end].rstrip(b"\r\n"), end


def _quotes_whole_values(block: bytes, delimiter: str) -> bool:
    """Whether each quote begins or ends a value, or is doubled inside one."""
    byte_N = np.frombuffer(block, np.uint8)
    place_Q = np.flatnonzero(byte_N == _QUOTE)
    if len(place_Q) % 2:
        return False
    begin_P, end_P = place_Q[::2], place_Q[1::2]
    before_P = np.where(begin_P > 0, byte_N[begin_P - 1], _NEWLINE)
    after_P = np.where(end_P < len(byte_N) - 1, byte_N[np.minimum(end_P + 1, len(byte_N) - 1)], _NEWLINE)
    doubled_P = np.append(end_P[:-1] + 1 == begin_P[1:], False)
    begins_P = np.isin(before_P, (ord(delimiter), _NEWLINE))
    begins_P[1:] |= doubled_P[:-1]
    ends_P = np.isin(after_P, (ord(delimiter), _NEWLINE, _RETURN)) | doubled_P
    return bool(begins_P.all() and ends_P.all())


def _check_lines(block: bytes, rows: int, delimiter: str) -> None:
    """Raise `LeftToSparkError` unless each line that is not blank is a row."""
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    if rows == lines and delimiter not in " \t":  # a blank line has too few values
        return
    if _BLANK_LINE.search(b"\n" + block):
        raise LeftToSparkError("it has lines of blanks")
    if rows != sum(1 for line in block.split(b"\n") if line.strip(_BLANKS)):
        raise LeftToSparkError("it has line breaks inside values")
