"""The column that preparation adds to the user's own, under a name that no table is likely to contain."""

from __future__ import annotations

from collections.abc import Iterable

from sparkgpu.core.errors import DataError
from sparkgpu.core.words import listed

RESERVED = "__sparkgpu_"
ROW_ID = f"{RESERVED}row_id"
_TABLE = "__THIS__"  # in whose place a SQLTransformer puts the table


def own_columns(names: Iterable[str]) -> list[str]:
    """The user's columns among `names`."""
    return [name for name in names if name != ROW_ID]


def refuse_reserved(source: str, names: Iterable[str]) -> None:
    """Raise `DataError` if a column of the user's table is called like one of ours, or breaks Spark's SQL."""
    taken = [name for name in names if name.startswith(RESERVED) or _TABLE in name]
    if taken:
        raise DataError(
            f"{source}: {listed(taken)}: names that begin with {RESERVED} or hold {_TABLE} are reserved. "
            "Rename them."
        )
