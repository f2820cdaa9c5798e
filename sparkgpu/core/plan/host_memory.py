"""What trees take of the host's memory: whether a table fits, and what to do where it does not.

By measurement (docs/scale.md) H2O holds 12.4 bytes for each training and validation value. The library
xgboost holds a float32 of each value, up to two bytes of each as bins, and eight of each that it predicts.
"""

from __future__ import annotations

from collections.abc import Collection

from sparkgpu.core.words import gibibytes

_OF_H2O = 12.4
_OF_XGBOOST = 8.0
_BESIDE_HEAP = 0.75  # of a lane's memory; `plan.heap_bytes` gives the rest to Java
_SHARE = 0.5
"""Of a lane's memory for the trees of `xgboost`: the network, the parent and the files' cache want theirs."""


def beyond_memory(rows: int, columns: int, lane_bytes: int) -> str | None:
    """Why the library xgboost has to read a table of so many rows in all from disk; None if it fits."""
    needed = int(rows * columns * _OF_XGBOOST)
    if not lane_bytes or needed <= lane_bytes * _SHARE:
        return None
    return (
        f"{rows:,} rows of {columns} columns need {gibibytes(needed)} of memory, and the trees of a lane may "
        f"take {gibibytes(lane_bytes * _SHARE)}; so xgboost keeps their bins in files of the temporary folder"
    )


def too_large_for_h2o(rows: int, columns: int, lane_bytes: int) -> str | None:
    """What to do where H2O's matrix of so many training and validation rows does not fit; None if it does."""
    needed = int(rows * columns * _OF_H2O)
    room = int(lane_bytes * _BESIDE_HEAP)
    if not lane_bytes or needed <= room:
        return None
    return (
        f"h2o-xgboost needs about {gibibytes(needed)} for {rows:,} training and validation rows of {columns} "
        f"columns, and a lane has {gibibytes(room)} beside Java's heap: set "
        'trees.engine = "xgboost", which reads larger tables from disk'
    )


def reasons_of(
    engines: Collection[str], rows: int, columns: int, lane_bytes: int, *, test: float, on_gpu: bool
) -> dict[str, str]:
    """For the plan: what `engines` do with so large a table; `test` is its share of test rows."""
    found = {}
    if "h2o-xgboost" in engines and (text := too_large_for_h2o(int(rows * (1 - test)), columns, lane_bytes)):
        found["memory of h2o-xgboost"] = text
    if "xgboost" in engines and not on_gpu and (text := beyond_memory(rows, columns, lane_bytes)):
        found["memory of xgboost"] = text
    return found
