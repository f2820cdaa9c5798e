"""The column that preparation adds to the user's own, under a name that no table is likely to contain."""

from __future__ import annotations

from collections.abc import Iterable

from sparkgpu.errors import DataError
from sparkgpu.words import listed

RESERVED = "__sparkgpu_"
ROW_ID = f"{RESERVED}row_id"


def own_columns(names: Iterable[str]) -> list[str]:
    """The user's columns among `names`."""
    return [name for name in names if name != ROW_ID]


def refuse_reserved(source: str, names: Iterable[str]) -> None:
    """Raise `DataError` if a column of the user's table is called like one of ours."""
    taken = [name for name in names if name.startswith(RESERVED)]
    if taken:
        raise DataError(
            f"{source}: {listed(taken)}: names that begin with {RESERVED} are reserved. Rename them."
        )
