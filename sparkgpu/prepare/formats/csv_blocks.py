"""Reads local CSV files in blocks of whole lines, where pyarrow and Spark surely find the same texts.

Spark takes each line for a row. So the two agree on rows of one length, each in a line of its own, with
quotes round whole values only. Anything else is left to Spark, which reads or refuses it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from sparkgpu.prepare.formats.csv_header import CsvHeader
from sparkgpu.prepare.formats.text_files import open_bytes
from sparkgpu.table.source import COMPRESSED

BLOCK_BYTES = 1 << 23
_HEADER_BYTES = 1 << 22
_LONGEST_LINE = 1 << 26
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_BLANKS = bytes(range(0x21))
"""What Java trims: Spark skips a line that holds nothing else."""
_BLANK_LINE = re.compile(rb"\n\r*[\x00-\x09\x0b\x0c\x0e-\x20][\x00-\x09\x0b-\x20]*(?=\n|\Z)")


class LeftToSparkError(Exception):
    """Spark may read the table in another way, or refuses it; the message says why."""


def header_line(files: Sequence[Path], header: CsvHeader) -> bytes:
    """The line with the names, the same in all files.

    Raises `LeftToSparkError` if it is not, or can be read in another way: Spark would take another one for a
    row.
    """
    lines = set()
    for file in files:
        with open_bytes(file) as opened:
            lines.add(_first_line(opened.read(_HEADER_BYTES).removeprefix(_BYTE_ORDER_MARK))[0])
    line = lines.pop()
    if lines:
        raise LeftToSparkError("its files write their header in several ways")
    if b'"' in line and not _quotes_whole_values(line, header.delimiter):
        raise LeftToSparkError("quotes in the header are not round whole names")
    if tuple(next(csv.reader([line.decode("utf-8")], delimiter=header.delimiter), [])) != header.names:
        raise LeftToSparkError("its header can be read in several ways")
    return line


def blocks(file: Path, line: bytes) -> Iterator[bytes]:
    """The lines of a file after its header `line`, in blocks of about `BLOCK_BYTES`.

    Raises `LeftToSparkError` at a line that is too long, and if the header comes again.
    """
    with open_bytes(file) as opened:
        pending, is_first = opened.read(BLOCK_BYTES).removeprefix(_BYTE_ORDER_MARK), True
        more = bool(pending)
        while more:
            data = opened.read(BLOCK_BYTES)
            more = bool(data)
            end = pending.rfind(b"\n") + 1 if more else len(pending)
            if not end and len(pending) > _LONGEST_LINE:
                raise LeftToSparkError("a line is very long")
            block, pending = pending[:end], pending[end:] + data
            if block and is_first:
                first, end = _first_line(block)
                block, is_first = block[end:], not first
            if any(_holds_line(block, line + ending) for ending in (b"\n", b"\r\n")):
                raise LeftToSparkError("it repeats its header")  # Spark takes it for a row, but not for types
            if block:
                yield block


def some_lines(file: Path, *, places: int, size: int) -> Iterator[bytes]:
    """Lines of `size` bytes from the beginning of a file without its header, and from further `places`.

    A compressed file is only read at its beginning.
    """
    with open_bytes(file) as opened:
        first = opened.read(size).removeprefix(_BYTE_ORDER_MARK)
        begin, end = _first_line(first)[1], first.rfind(b"\n") + 1
        if begin < end:
            yield first[begin:end]
        if file.suffix.lower() in COMPRESSED:
            return
        whole = file.stat().st_size
        for place in range(1, places):
            opened.seek(max(whole * place // places, size))
            data = opened.read(size)
            begin, end = data.find(b"\n") + 1, data.rfind(b"\n") + 1
            if begin < end:
                yield data[begin:end]


def read_block(block: bytes, header: CsvHeader, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """The rows of a block; empty values are null. Columns are texts unless `kinds` names a type.

    Raises `LeftToSparkError` if Spark may find other texts, and `pyarrow.ArrowInvalid` if a row has another
    length, a text is not UTF-8, or a value is not of its type.
    """
    if b"\0" in block:
        raise LeftToSparkError("it holds zero bytes")
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        raise LeftToSparkError("it holds carriage returns that end no line")
    if b'"' in block and not _quotes_whole_values(block, header.delimiter):
        raise LeftToSparkError("quotes are not round whole values")
    names = header.columns
    table = pyarrow.csv.read_csv(
        pa.py_buffer(block),
        read_options=pyarrow.csv.ReadOptions(
            column_names=names, use_threads=False, block_size=max(len(block), 1)
        ),
        parse_options=pyarrow.csv.ParseOptions(delimiter=header.delimiter),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: kinds.get(name, pa.string()) for name in names},
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    _check_lines(block, table.num_rows, header.delimiter)
    return table


def _first_line(block: bytes) -> tuple[bytes, int]:
    """The first line that is not blank, without its end, and where the next one begins."""
    begin = len(block) - len(block.lstrip(_BLANKS))
    begin = block.rfind(b"\n", 0, begin) + 1  # blanks at its own beginning belong to the line
    end = block.find(b"\n", begin) + 1 or len(block)
    return block[begin:end].rstrip(b"\r\n"), end


def _holds_line(block: bytes, line: bytes) -> bool:
    return block.startswith(line) or block.find(b"\n" + line) >= 0


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
