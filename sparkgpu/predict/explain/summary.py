"""What each column added to the predictions of some test rows, of the first model whose library knows it.

Contributions of trees are exact (`sparkgpu.predict.explain.contributions`); those of other models would take
longer than a report may. N rows, G classes or 1, M columns of the user.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from sparkgpu.core.errors import TrialError
from sparkgpu.core.rundir.explanations import AddedByColumn, Summary
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.predict.explain.columns import Column
from sparkgpu.predict.explain.models import Models

_ROWS, _FEW_ROWS = 100, 25
_COLUMNS = 10
_MOST_OF_TIME = 0.5  # that is left: the curves come after it


def summary_of(own: Models, columns: Sequence[Column]) -> Summary | None:
    """None if no model has exact contributions, or if there is no time; a fault of a library is a note."""
    asked = next((model for model in own.models if model.has_contributions), None)
    if asked is None or time.monotonic() > own.until:
        return None
    names, rows = [column.name for column in columns], own.sample.rows
    try:
        asked.contributions(rows.part(slice(1)), names)  # libraries set themselves up in their first call
        start = time.monotonic()
        found = asked.contributions(rows.part(slice(_FEW_ROWS)), names)
        now = time.monotonic()
        if (now - start) * _ROWS / _FEW_ROWS < _MOST_OF_TIME * (own.until - now):
            found = asked.contributions(rows.part(slice(_ROWS)), names)
    except TrialError as error:
        own.notes.append(f"{asked.name}: {error}")
        return None
    rows = rows.part(slice(len(found.base_NG)))
    worth_GM = np.abs(found.added_NGM).mean(axis=0)
    place = int(worth_GM.sum(axis=1).argmax())
    classes = own.schema.classes[-worth_GM.shape[0] :]
    return Summary(
        model=asked.name,
        scale=found.scale,
        class_name=classes[place] if classes else None,
        rows=len(rows.label_N),
        columns=tuple(
            AddedByColumn(
                column=names[number],
                added=tuple(found.added_NGM[:, place, number].astype(np.float32).tolist()),
                is_high=_is_high(own.schema, columns[number], rows),
            )
            for number in np.argsort(-worth_GM[place], kind="stable")[:_COLUMNS]
        ),
    )


def _is_high(schema: TableSchema, column: Column, rows: Rows) -> tuple[bool | None, ...]:
    """Whether a row's number is above the median; None for a missing one, and for what is no number."""
    (feature, places), *others = column.features
    if others or feature.kind == "categorical" or feature.is_text:
        return (None,) * len(rows.label_N)
    value_N = rows.numeric_NF[:, places.numeric[0]]
    median = np.nanmedian(value_N) if not np.isnan(value_N).all() else 0.0
    return tuple(None if np.isnan(value) else bool(value > median) for value in value_N)
