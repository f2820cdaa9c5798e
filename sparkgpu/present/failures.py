"""Where the models fail: the groups of rows on which they are worse, and the most wrong rows.

Limits: one feature at a time. Segments are those of `score/segments`, worse beyond chance although many were
looked at. N rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import BOOLEANS, Feature, TableSchema
from sparkgpu.core.words import short, short_source, value_text
from sparkgpu.present.table_model import (
    Cell,
    Table,
    interval_cell,
    name_cell,
    number_cell,
    table_of,
    three_digits,
    whole_cell,
)
from sparkgpu.score import segments
from sparkgpu.score.predictions import ModelPredictions
from sparkgpu.score.rows import checked

_MOST_SEGMENTS = 12
_MOST_ROWS = 12
_MOST_FEATURES = 8
_LONGEST = 40  # letters


def truth_text(schema: TableSchema, label: Any) -> str:
    """The class, or the value."""
    return short(schema.classes[int(label)], _LONGEST) if schema.classes else value_text(float(label))


def prediction_text(schema: TableSchema, prediction: Any) -> str:
    """The most probable class with its probability, or the value; `prediction` is (C,) or a number."""
    if not schema.classes:
        return value_text(float(prediction))
    code = int(np.argmax(prediction))
    return f"{short(schema.classes[code], _LONGEST)} ({share_text(float(prediction[code]))})"


def share_text(share: float) -> str:
    """A probability in per cent that is 0 or 100 only if it is."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.{1 if 0 < percent < 100 else 0}f} %"


def feature_text(feature: Feature, value: Any) -> str:
    """A cell of the prepared table: a number (NaN is missing) or the code of a level (-1 is missing)."""
    if feature.kind == "categorical":
        return short(feature.levels[int(value)], _LONGEST) if value >= 0 else "missing"
    if np.isnan(value):
        return "missing"
    return BOOLEANS[int(value)] if feature.is_boolean else value_text(float(value), 1e4)


def row_heading(schema: TableSchema) -> str:
    """What `row_cell` counts."""
    table = schema.held_out.get("test")
    return f"row of {short_source(table.table)}" if table else "row"


def row_cell(schema: TableSchema, row_id: int) -> Cell:
    """A test row by its number in its own table."""
    table = schema.held_out.get("test")
    return name_cell(row_id - table.first if table else row_id)


def judged_segments(
    schema: TableSchema, test: ModelPredictions, features: Rows
) -> dict[str, tuple[segments.Segment, ...]]:
    """All segments of the test rows, large enough to be judged, for each model with predictions.

    `features` are those of the rows in `test`.
    """
    labels = test.labels
    if not labels.counts().any():
        return {}
    groupings = segments.groupings_of(schema, features)
    return {
        model: segments.judged(
            schema.task, labels.label_N, test.values[model], groupings, weight_N=labels.weight_N
        )
        for model in test.values
    }


def weakness_table(
    found: Mapping[str, Sequence[segments.Segment]], models: Sequence[str], loss: str
) -> Table:
    """The segments that are worse for some of `models`, the first of which leads: its clearest ones first.

    A row has the leader's loss there and elsewhere, and the models that are worse there beyond chance.
    """
    leader = models[0]
    by_name = {one.name: one for one in found.get(leader, ())}
    worse: dict[str, dict[str, float]] = {}
    for model in models:
        for one in found.get(model, ()):
            if one.gap > 0:
                worse.setdefault(one.name, {})[model] = one.gap

    def clearness(name: str) -> tuple[bool, float]:
        gaps = worse[name]
        return leader in gaps, gaps.get(leader, max(gaps.values()))

    def shared(one: segments.Segment) -> str:
        return "all models" if len(worse[one.name]) == len(models) > 1 else ", ".join(worse[one.name])

    return table_of(
        [by_name[name] for name in sorted(worse, key=clearness, reverse=True)[:_MOST_SEGMENTS]],
        {
            "rows with": lambda one: one.name,
            "rows": lambda one: whole_cell(one.rows),
            f"{loss} of {leader} there": lambda one: number_cell(one.loss, three_digits),
            "interval": lambda one: interval_cell(*one.interval, 3),
            "elsewhere": lambda one: number_cell(one.loss_elsewhere, three_digits),
            "ratio": lambda one: number_cell(
                one.loss / one.loss_elsewhere if one.loss_elsewhere else None, "{:.1f} ×".format
            ),
            "worse for": shared,
        },
    )


def most_wrong(
    schema: TableSchema, test: ModelPredictions, features: Rows, model: str, columns: Sequence[str] = ()
) -> Table:
    """The rows with the greatest loss of `model`; for classes, those where it was surest of a wrong one.

    Some of their features are beside them: those of the user's columns in `columns` first.
    """
    kept_N = np.flatnonzero(test.labels.counts() > 0)
    predicted = test.values[model][kept_N]
    labels = test.labels.part(test.labels.counts() > 0)
    loss_N = checked(schema.task, labels.label_N, predicted).loss_N()
    if schema.classes:
        loss_N = loss_N * (predicted.argmax(axis=1) != labels.label_N)
    shown = _shown(schema, columns)
    rows = []
    for row in np.argsort(-loss_N, kind="stable")[:_MOST_ROWS]:
        if loss_N[row] == 0:
            break
        label = labels.label_N[row]
        if schema.classes:
            about = Cell(text=share_text(float(predicted[row, int(label)])), number=True)
        else:
            error = value_text(float(predicted[row] - label))
            about = Cell(text=error.replace("-", "−") if error[0] == "-" else f"+{error}", number=True)
        rows.append(
            (
                row_cell(schema, labels.row_id_N[row]),
                Cell(text=truth_text(schema, label), number=not schema.classes),
                Cell(text=prediction_text(schema, predicted[row]), number=not schema.classes),
                about,
                *(_feature_cell(schema, features, int(kept_N[row]), place) for place in shown),
            )
        )
    headings = (
        row_heading(schema), "true", f"predicted by {model}",
        "chance given to the truth" if schema.classes else "error",
        *(schema.features[place].title for place in shown),
    )  # fmt: skip
    return Table(columns=headings, rows=tuple(rows))


def _shown(schema: TableSchema, columns: Sequence[str]) -> list[int]:
    """The places of the features to show: of the user's columns in `columns` first, then in their order."""
    ranks = {column: rank for rank, column in enumerate(columns)}
    places = [
        place
        for place, feature in enumerate(schema.features)
        if feature.means_of is None and not feature.is_text
    ]
    places.sort(key=lambda place: ranks.get(schema.features[place].source, len(ranks)))
    return places[:_MOST_FEATURES]


def _feature_cell(schema: TableSchema, features: Rows, row: int, place: int) -> Cell:
    feature = schema.features[place]
    same_kind = [one for one in schema.features if one.kind == feature.kind]
    column = next(number for number, one in enumerate(same_kind) if one is feature)
    if feature.kind == "categorical":
        return Cell(text=feature_text(feature, features.codes_NK[row, column]))
    text = feature_text(feature, features.numeric_NF[row, column])
    return Cell(text=text, number=not feature.is_boolean)
