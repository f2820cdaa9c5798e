"""Reads a local table of JSON lines in blocks, where pyarrow and Spark surely find the same values.

That is one plain object in each line, whose values are numbers, texts or truths, the same in all rows of a
column. Anything else is left to Spark, which reads or refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from sparkgpu.prepare.formats.text_blocks import LeftToSparkError, TypedBlock, line_blocks, sampled_lines
from sparkgpu.prepare.formats.text_types import ARROW_TYPES, Seen
from sparkgpu.table.source import Source

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
"""Spark makes decimals of whole numbers beyond 64 bits."""
_SHOWN: dict[str, frozenset[Seen]] = {
    "null": frozenset(), "bool": frozenset({"boolean"}), "int64": frozenset({"bigint"}),
    "double": frozenset({"double"}), "string": frozenset({"word"}),
}  # fmt: skip


class JsonTable:
    """A `sparkgpu.prepare.formats.text_blocks.TextTable`."""

    columns: Sequence[str] = ()

    def __init__(self, source: Source, files: Sequence[Path]) -> None:
        self._files = files

    def sample(self) -> Iterator[bytes]:
        return (lines for lines, _ in sampled_lines(self._files))

    def blocks(self) -> Iterator[bytes]:
        return (block for file in self._files for block in line_blocks(file))

    def look(self, block: bytes) -> Mapping[str, frozenset[Seen]]:
        table = _read(block, None)
        return {column.name: _shown(column.type) for column in table.schema}

    def typed(self, block: bytes, types: Mapping[str, str], known: Set[str]) -> TypedBlock:
        schema = pa.schema([(name, ARROW_TYPES[kind]) for name, kind in types.items()])
        try:
            table = _read(block, schema)
        except pa.ArrowInvalid:
            return TypedBlock(table=None, seen=self.look(block))
        if len(table.schema) > len(schema):  # columns that no line of the sample had
            return TypedBlock(table=None, seen=self.look(block))
        for column in table.columns:
            if pa.types.is_floating(column.type) and pc.all(pc.is_finite(column)).as_py() is False:
                raise LeftToSparkError("it holds numbers that are not finite")
        return TypedBlock(table=table.select(list(types)), seen={})

    def type_of(self, seen: Set[Seen]) -> str | None:
        if len(seen) > 1:
            return "double" if seen == {"bigint", "double"} else None
        kind = next(iter(seen), "word")
        return {"word": "string", "unclear": None}.get(kind, kind)

    def ordered(self, names: Collection[str]) -> Sequence[str]:
        if "" in names or any(ord(letter) > 0xD7FF for name in names for letter in name):
            raise LeftToSparkError("its columns have no plain names")
        return sorted(names)


def _shown(kind: pa.DataType) -> frozenset[Seen]:
    if pa.types.is_timestamp(kind):  # for Spark such texts are words
        return _SHOWN["string"]
    return _SHOWN.get(str(kind), frozenset({"unclear"}))


def _read(block: bytes, schema: pa.Schema | None) -> pa.Table:
    """The rows of a block, in the types of a schema or those that pyarrow infers.

    Raises `LeftToSparkError` unless each line is an object, and `pyarrow.ArrowInvalid` if one is damaged or
    has other types.
    """
    block.decode("utf-8")
    if b"\\u0000" in block or b"\0" in block:
        raise LeftToSparkError("it holds zero bytes")
    if _LONG_NUMBER.search(block):
        raise LeftToSparkError("it holds whole numbers that may be beyond 64 bits")
    table = pyarrow.json.read_json(
        pa.BufferReader(block),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block)),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
    )
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    ends = block.count(b"}\n{") + block.count(b"}\r\n{")
    if not table.num_rows == lines == ends + 1 or block.count(b"\r") != block.count(b"\r\n"):
        raise LeftToSparkError("it has lines that are not one object each")
    return table
