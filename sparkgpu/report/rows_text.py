"""Single rows of the table as text: their ids, their true values and what is predicted for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkgpu.report.cells import Cell
from sparkgpu.table.schema import Feature, TableSchema

_LONGEST = 40


def row_id_cell(row_id: Any) -> Cell:
    return Cell(text=str(int(row_id)), number=True)


def truth_text(schema: TableSchema, label: Any) -> str:
    """The class, or the value."""
    return cut(schema.classes[int(label)]) if schema.classes else value_text(float(label))


def prediction_text(schema: TableSchema, prediction: Any) -> str:
    """The most probable class with its probability, or the value; `prediction` is (C,) or a number."""
    if not schema.classes:
        return value_text(float(prediction))
    code = int(np.argmax(prediction))
    return f"{cut(schema.classes[code])} ({share_text(float(prediction[code]))})"


def share_text(share: float) -> str:
    """A probability in per cent that is 0 or 100 only if it is."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.3g} %"


def feature_text(feature: Feature, value: Any) -> str:
    """A cell of the prepared table: a number (NaN is missing) or the code of a level (-1 is missing)."""
    if feature.kind == "categorical":
        return cut(feature.levels[int(value)]) if value >= 0 else "missing"
    return "missing" if np.isnan(value) else value_text(float(value))


def value_text(value: float) -> str:
    """Whole numbers whole; others with five digits or more."""
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.0f}"
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.5g}"


def cut(text: str) -> str:
    """One line that a cell has room for."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
