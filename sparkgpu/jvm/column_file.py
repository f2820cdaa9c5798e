"""A file of columns as a frame inside the H2O of this process's JVM, without parsing (``jvm/jars``).

The file holds whole columns, one after the other, in the bytes of H2O's chunks. H2O reads a part whenever it
needs it and keeps nothing, so the table takes no heap. One node only: this JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sparkgpu.jvm.handover import java_texts_by_column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ColumnKind = Literal["uint8", "int32", "int64", "float32", "float64"]
MISSING: dict[ColumnKind, int | float] = {
    "uint8": 255, "int32": -(2**31), "int64": -(2**63), "float32": float("nan"), "float64": float("nan"),
}  # fmt: skip
"""What stands for a missing value."""


@dataclass(frozen=True, kw_only=True)
class FileColumn:
    """A column from byte `offset` of its file on; with `levels` its values are their places, from 0 on."""

    name: str
    kind: ColumnKind
    offset: int
    levels: tuple[str, ...] = ()


def put_frame(
    session: SparkSession,
    name: str,
    file: Path,
    columns: Sequence[FileColumn],
    *,
    rows: int,
    rows_per_chunk: int,
) -> None:
    """Put the frame `name` into H2O's store; `file` must stay as long as the frame."""
    java = session.sparkContext._jvm
    assert java is not None
    texts = java_texts_by_column(
        session,
        [
            [column.name for column in columns],
            [column.kind for column in columns],
            [str(column.offset) for column in columns],
            *(column.levels for column in columns),
        ],
    )
    java.water.fvec.ColumnFile.frame(name, str(file), rows, rows_per_chunk, texts)
