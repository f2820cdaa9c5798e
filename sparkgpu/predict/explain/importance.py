"""What the columns are worth to each model: how much worse it predicts when one of them is shuffled."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from sparkgpu.core.words import counted
from sparkgpu.predict.explain.columns import Column, Places
from sparkgpu.predict.explain.models import Models

_LEAST_ROWS, _LEAST_SCREENED_ROWS = 250, 100
_LEAST_COLUMNS, _MOST_COLUMNS = 20, 40  # looked at closely; more would not be read
_ROUNDS = 4
_WANTED_ROUNDS = 3  # before rows are spared
_FOR_SCREENING = 0.4  # of the time
_FOR_DRAWING = 0.4  # of the time, at most


def importances(
    own: Models, columns: Sequence[Column], rows_to_draw: int
) -> tuple[dict[str, dict[str, list[float]]], int]:
    """By model and column: what each shuffle costs, and the rows that it was measured on.

    Time is kept to ask for `rows_to_draw` rows afterwards.
    """
    size = len(own.sample)
    if not own.models or not columns:
        return {}, size
    if any(one.value is None for one in own.models):
        own.notes.append("The sample of test rows has one class only, so no importance is measured.")
        return {}, size
    row_s, left_s = own.row_s, own.until - time.time()
    until = own.until - min(1.3 * row_s * rows_to_draw + 0.1, _FOR_DRAWING * left_s)
    most = int((1 - _FOR_SCREENING) * (until - time.time()) / (row_s * min(_LEAST_ROWS, size)))
    most = min(max(most, _LEAST_COLUMNS), _MOST_COLUMNS)
    if len(columns) > most:
        columns = _screened(own, columns, most, time.time() + _FOR_SCREENING * left_s)
    rows = int((until - time.time()) / (row_s * len(columns) * _WANTED_ROUNDS))
    rows = min(max(rows, _LEAST_ROWS), size)
    found = own.shuffled([column.places for column in columns], rows, _ROUNDS, until)
    for model in own.models:
        missing = len(columns) - len(found.get(model.name, {}))
        if missing:
            own.notes.append(f"There was no time for {counted(missing, 'column')} with {model.name}.")
    return {
        model: {columns[group].name: drops for group, drops in of_model.items()}
        for model, of_model in found.items()
    }, rows


def _screened(own: Models, columns: Sequence[Column], most: int, until: float) -> Sequence[Column]:
    """The `most` columns that are worth a closer look, found by halves.

    The columns are shuffled in groups; the half of the groups that costs more is kept, and cut in two, until
    a group is a column.
    """
    at_once = 2 * most
    parts = np.array_split(np.arange(len(columns)), min(at_once, len(columns)))
    halvings = int(np.ceil(np.log2(max(len(columns) / at_once, 1)))) + 1
    rows = int((until - time.time()) / halvings / (own.row_s * at_once))
    rows = min(max(rows, _LEAST_SCREENED_ROWS), len(own.sample))
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
        are_single = all(len(part) == 1 for part in parts)
        parts = [parts[place] for place in np.argsort(-worth, kind="stable")[:most]]
        if are_single or time.time() > until:
            break
        parts = [half for part in parts for half in np.array_split(part, min(2, len(part)))]
    kept = [columns[place] for part in parts for place in part][:most]
    own.notes.append(
        f"Of {len(columns):,} columns the {len(kept)} that cost most in a first pass are shown; it shuffled "
        f"them in groups, on {rows:,} rows."
    )
    return kept
