"""Local text tables (CSV and JSON lines, plain or compressed): their files in blocks of whole lines."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa

from sparkgpu.core.errors import DataError
from sparkgpu.core.host.processor import usable_cores
from sparkgpu.core.table.source import Source
from sparkgpu.prepare.csv_lines import CsvParser, csv_parser
from sparkgpu.prepare.file_columns import files_of
from sparkgpu.prepare.json_lines import JsonParser, json_parser
from sparkgpu.prepare.text import NOT_UTF8, LineError

BLOCK_BYTES = 1 << 23
_HEADER_BYTES = 1 << 22
_LONGEST_LINE = 1 << 26
_MOST_THREADS = 8  # each holds a block as bytes and as a table
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OPENERS: dict[str, Callable[..., IO[Any]]] = {".gz": gzip.open, ".bz2": bz2.open}

Parser = CsvParser | JsonParser
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Block:
    """Whole lines of a file; `line` is the number of the first one, from 1."""

    file: Path
    line: int
    data: bytes


class TextFiles:
    """The files of a local CSV or JSON lines table, in the order of their names.

    Raises `DataError`, here and in each method, for what cannot be read.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._files = [file for file in files_of(source) if file.stat().st_size]
        self.parser: Parser = json_parser(source.dialect)
        if source.format == "csv":
            self.parser = csv_parser(source.name, self._headers(), source.dialect)

    def parsed(self, parse: Callable[[bytes], Result]) -> Iterator[Result]:
        """The results of `parse` for all blocks, in order, by threads that are a few blocks ahead."""
        workers = min(usable_cores(), _MOST_THREADS)
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(workers) as threads:
            try:
                for block in self._blocks():
                    waiting.append(threads.submit(self._parsed, parse, block))
                    if len(waiting) > workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _headers(self) -> Iterator[tuple[str, str]]:
        for file in self._files:
            with self._opened(file) as opened:
                lines = opened.read(_HEADER_BYTES)
            begin, end = _first_line(lines)
            if begin < end:
                try:
                    yield file.name, lines[begin:end].decode("utf-8")
                except UnicodeDecodeError:
                    raise self._refusal(file, 1, NOT_UTF8) from None

    def _blocks(self) -> Iterator[Block]:
        for file in self._files:
            line, pending, before_header = 1, b"", True
            with self._opened(file) as opened:
                data = b"more"
                while data:
                    data = opened.read(BLOCK_BYTES)
                    end = data.rfind(b"\n") + 1
                    if data and not end:
                        pending += data
                        if len(pending) > _LONGEST_LINE:
                            raise self._refusal(
                                file, line, "is longer than 64 MiB. End each row with a line."
                            )
                        continue
                    block = Block(file=file, line=line, data=pending + data[:end])
                    pending = data[end:]
                    line += block.data.count(b"\n")
                    if before_header and block.data.strip(b"\r\n"):
                        block, before_header = self._without_header(block), False
                    if block.data.strip(b"\r\n"):
                        yield block

    def _without_header(self, block: Block) -> Block:
        if not isinstance(self.parser, CsvParser):
            return block
        _, end = _first_line(block.data)
        lines = block.data.count(b"\n", 0, end)
        return Block(file=block.file, line=block.line + lines, data=block.data[end:])

    def _parsed(self, parse: Callable[[bytes], Result], block: Block) -> Result:
        try:
            return parse(block.data)
        except LineError as error:
            raise self._refusal(block.file, block.line + error.place, error.fault) from None

    @contextmanager
    def _opened(self, file: Path) -> Iterator[IO[bytes]]:
        encoding = self._source.dialect.encoding
        try:
            with _OPENERS.get(file.suffix.lower(), open)(file, "rb") as opened:
                if encoding is not None:
                    yield pa.transcoding_input_stream(pa.PythonFile(opened, mode="r"), encoding, "utf-8")
                    return
                mark = opened.read(len(_BYTE_ORDER_MARK))
                if mark != _BYTE_ORDER_MARK:
                    opened.seek(0)
                yield opened
        except UnicodeError as error:
            raise DataError(
                f"{self._source.name}: {file.name} is not {encoding} text ({error}). Name its own in "
                "data.encoding."
            ) from None
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{self._source.name}: {file.name} cannot be read ({error}). Check the file, or write it "
                "again."
            ) from None

    def _refusal(self, file: Path, line: int, fault: str) -> DataError:
        of = f" of {file.name}" if len(self._files) > 1 else ""
        return DataError(f"{self._source.name}: line {line}{of} {fault}")


def _first_line(lines: bytes) -> tuple[int, int]:
    """Where the first line that is not empty begins, and where the next one does."""
    begin = len(lines) - len(lines.lstrip(b"\r\n"))
    return begin, lines.find(b"\n", begin) + 1 or len(lines)
