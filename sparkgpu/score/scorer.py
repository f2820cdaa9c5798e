"""Join predictions to labels by ``row_id``.

Limits: integer ids, arrays in memory; the caller reads the files. Every labelled row needs exactly one
prediction, and no other row may have one: a scorer that silently drops rows compares models on different
tables. N rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def align(row_id_N: Any, frame_row_id: Any, values: Any) -> npt.NDArray[Any]:
    """``values``, given in the order of ``frame_row_id``, in the order of ``row_id_N``.

    ``row_id_N``: ids of the labels. ``frame_row_id``: ids of the predictions. ``values``: one row for each
    prediction, (N,) or (N, C), returned without a copy if the order already agrees. It takes two sorts and no
    Python loop: 10 million shuffled rows take a few seconds. Raises ValueError, one sentence with counts, if
    ids are missing, duplicated (on either side) or unknown, are not integers, or differ from ``values`` in
    length.
    """
    wanted_N, given = _ids("label", row_id_N), _ids("prediction", frame_row_id)
    rows = np.asarray(values)
    if rows.ndim == 0 or len(rows) != len(given):
        raise ValueError(
            f"predictions have shape {rows.shape} but {len(given)} row_ids; give one row for each row_id."
        )
    # A stable sort takes linear time on files that are sorted or nearly sorted.
    wanted_order_N = np.argsort(wanted_N, kind="stable")
    wanted_sorted_N = wanted_N[wanted_order_N]
    num_repeated = int(np.count_nonzero(wanted_sorted_N[1:] == wanted_sorted_N[:-1]))
    if num_repeated:
        raise ValueError(
            f"labels repeat {num_repeated} of their {len(wanted_N)} row_ids; each must occur once."
        )
    if np.array_equal(wanted_N, given):
        return rows
    given_order = np.argsort(given, kind="stable")
    given_sorted = given[given_order]
    if not np.array_equal(wanted_sorted_N, given_sorted):
        raise ValueError(_mismatch(wanted_sorted_N, given_sorted))
    position_N = np.empty(len(given), dtype=np.int64)
    position_N[wanted_order_N] = given_order
    return rows[position_N]


def _ids(what: str, ids: Any) -> npt.NDArray[Any]:
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(
            f"{what} row_ids have type {array.dtype} and shape {array.shape}; "
            "a flat array of integers is needed."
        )
    return array


def _mismatch(wanted_sorted: npt.NDArray[Any], given_sorted: npt.NDArray[Any]) -> str:
    unique = np.unique(given_sorted)
    common = len(np.intersect1d(wanted_sorted, unique, assume_unique=True))
    faults = {
        "missing": len(wanted_sorted) - common,
        "duplicated": len(given_sorted) - len(unique),
        "unknown": len(unique) - common,
    }
    found = ", ".join(f"{count} {fault}" for fault, count in faults.items() if count)
    return (
        f"predictions do not match the {len(wanted_sorted)} labelled rows by row_id: {found}; "
        "every labelled row needs exactly one prediction."
    )
