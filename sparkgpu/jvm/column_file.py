"""Tables to and from the H2O of this process's JVM: a file of columns as a frame, values of a small frame.

The file holds whole columns, one after the other, in the bytes of H2O's chunks. H2O reads a part whenever it
needs it and keeps nothing, so the table takes no heap. One node only: this JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sparkgpu.jvm.handover import java_texts_by_column

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

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
    java: JVMView,
    name: str,
    file: Path,
    columns: Sequence[FileColumn],
    *,
    rows: int,
    rows_per_chunk: int,
) -> None:
    """Put the frame `name` into H2O's store; `file` must stay as long as the frame."""
    texts = java_texts_by_column(
        java,
        [
            [column.name for column in columns],
            [column.kind for column in columns],
            [str(column.offset) for column in columns],
            *(column.levels for column in columns),
        ],
    )
    java.water.fvec.ColumnFile.frame(name, str(file), rows, rows_per_chunk, texts)


def frame_values(java: JVMView, name: str, columns: int) -> NDArray[np.float64]:
    """The values (N, C) of the frame `name` with few rows and so many columns C; missing ones are NaN."""
    found = java.water.fvec.FrameValues.of(name)
    return np.frombuffer(found, "<f8").reshape(columns, -1).T
