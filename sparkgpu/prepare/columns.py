"""The columns that preparation adds to the user's own, under names that no table is likely to contain.

They get their final names (`sparkgpu.table.schema`) only at the end, so a user's column may be called
``label`` or ``split``.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparkgpu.errors import DataError
from sparkgpu.table import schema
from sparkgpu.words import listed

ROW_ID = "__sparkgpu_row_id"
LABEL = "__sparkgpu_label"
WEIGHT = "__sparkgpu_weight"
SPLIT = "__sparkgpu_split"
FOLD = "__sparkgpu_fold"

IN_TABLE = {
    SPLIT: schema.SPLIT,
    ROW_ID: schema.ROW_ID,
    LABEL: schema.LABEL,
    WEIGHT: schema.WEIGHT,
    FOLD: schema.FOLD,
}
"""Their names in ``table/``, in the order of writing."""


def own_columns(names: Iterable[str]) -> list[str]:
    """The user's columns among `names`."""
    return [name for name in names if name not in IN_TABLE]


def refuse_reserved(source: str, names: Iterable[str]) -> None:
    """Raise `DataError` if the user's table contains one of the names above."""
    taken = [name for name in names if name.startswith("__sparkgpu_")]
    if taken:
        raise DataError(
            f"{source}: {listed(taken)}: names that begin with __sparkgpu_ are reserved. Rename them."
        )
