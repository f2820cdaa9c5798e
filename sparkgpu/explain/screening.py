"""A first pass over many columns: which of them are worth a closer look."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from sparkgpu.explain.columns import Column, Places
from sparkgpu.explain.models import Asking

_LEAST_ROWS = 100


def screened(own: Asking, columns: Sequence[Column], most: int, until: float) -> Sequence[Column]:
    """The `most` columns that are worth a closer look, found by halves.

    The columns are shuffled in groups; the half of the groups that costs more is kept, and cut in two, until
    a group is a column.
    """
    step_s = until - time.time()
    row_s, size = own.row_s(), len(own.sample.rows.row_id_N)
    groups_at_once = 2 * most
    parts = np.array_split(np.arange(len(columns)), min(groups_at_once, len(columns)))
    halvings = int(np.ceil(np.log2(max(len(columns) / groups_at_once, 1)))) + 1
    rows = min(max(int(step_s / halvings / (row_s * groups_at_once)), _LEAST_ROWS), size)
    looked_at = len(columns)
    while True:
        groups = [sum((columns[place].places for place in part), Places()) for part in parts]
        found = own.shuffled(groups, rows, 1, until)
        if not found:
            break
        worth = np.zeros(len(parts))
        for of_model in found.values():
            spread = max((abs(drops[0]) for drops in of_model.values()), default=0.0) or 1.0
            for group, drops in of_model.items():
                worth[group] = max(worth[group], drops[0] / spread)
        order = np.argsort(-worth, kind="stable")
        singles = all(len(part) == 1 for part in parts)
        parts = [parts[place] for place in order[:most]]
        if singles or time.time() > until:
            break
        parts = [half for part in parts for half in np.array_split(part, min(2, len(part)))]
    kept = [columns[place] for part in parts for place in part][:most]
    own.notes.append(
        f"Of {looked_at:,} columns the {len(kept)} that cost most in a first pass are shown; it shuffled "
        f"them in groups, on {rows:,} rows."
    )
    return kept
