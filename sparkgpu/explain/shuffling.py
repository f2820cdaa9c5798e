"""What the columns are worth to each model: how much worse it predicts when one of them is shuffled."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparkgpu.explain.columns import Column
from sparkgpu.explain.models import Asking
from sparkgpu.explain.screening import screened
from sparkgpu.words import counted

_LEAST_ROWS = 250
_LEAST_COLUMNS, _MOST_COLUMNS = 20, 40  # looked at closely; more would not be read
_ROUNDS = 4
_WANTED_ROUNDS = 3  # before rows are spared
_FOR_SCREENING = 0.4  # of the time
_FOR_DRAWING = 0.4  # of the time, at most


def importances(
    own: Asking, columns: Sequence[Column], rows_to_draw: int
) -> tuple[dict[str, dict[str, list[float]]], int]:
    """By model and column: what each shuffle costs, and the rows that it was measured on.

    Time is kept to ask for `rows_to_draw` rows afterwards.
    """
    size = len(own.sample.rows.row_id_N)
    if not own.loaded or not columns:
        return {}, size
    undefined = [name for name, one in own.loaded.items() if one.value is None]
    if undefined:
        own.notes.append("The sample of test rows has one class only, so no importance is measured.")
        return {}, size
    row_s = own.row_s()
    left_s = own.left_s()
    until = own.until - min(1.3 * row_s * rows_to_draw + 0.1, _FOR_DRAWING * left_s)
    most = int((1 - _FOR_SCREENING) * (until - time.time()) / (row_s * min(_LEAST_ROWS, size)))
    most = min(max(most, _LEAST_COLUMNS), _MOST_COLUMNS)
    if len(columns) > most:
        columns = screened(own, columns, most, time.time() + _FOR_SCREENING * left_s)
    left_s = until - time.time()
    rows = int(left_s / (row_s * len(columns) * _WANTED_ROUNDS))
    rows = min(max(rows, _LEAST_ROWS), size)
    found = own.shuffled([column.places for column in columns], rows, _ROUNDS, until)
    for name in own.loaded:
        missing = len(columns) - len(found.get(name, {}))
        if missing and name not in own.processes.lost:
            own.notes.append(f"There was no time for {counted(missing, 'column')} with {name}.")
    by_name = {
        model: {columns[group].name: drops for group, drops in of_model.items()}
        for model, of_model in found.items()
    }
    return by_name, rows
