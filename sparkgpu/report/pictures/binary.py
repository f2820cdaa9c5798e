"""Two classes: ROC curves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparkgpu.report.curves import TestRows, roc
from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import styles
from sparkgpu.report.pictures.shared import (
    diagonal,
    drawn_from,
    legend_above,
    legend_room,
    short,
    with_predictions,
)
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import number_text

_SIZE = 4.6


def roc_curves(test: TestRows, schema: TableSchema, values: Mapping[str, float | None]) -> Picture | None:
    """`values` are the models' areas on the test split, for the legend. None without both classes."""
    models = with_predictions(test, list(values))
    if not models or len(np.unique(test.labels.label_N[test.labels.counts() > 0])) < 2:
        return None
    room = legend_room(len(models))
    figure, axes = new_figure(_SIZE, _SIZE - 0.1 + room, top=room)
    diagonal(axes)
    for model in models:
        style, curves = styles(values)[model], test.trials[model]
        area = "mean area" if len(curves) > 1 else "area"
        for number, probability_NC in enumerate(curves):
            false, true = roc(test.labels, probability_NC[:, 1])
            axes.plot(
                false, true, color=style.colour, linestyle=style.line,
                linewidth=1.6 if len(curves) == 1 else 1.0,
                label=f"{short(model, 24)}, {area} {number_text(values[model])}" if number == 0 else None,
            )  # fmt: skip
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    legend_above(axes)
    lines = " One line for each trial." if any(len(test.trials[model]) > 1 for model in models) else ""
    caption = f"ROC curves on the test split; positive class: {schema.classes[1]}.{lines}{drawn_from(test)}"
    return picture("roc_curves", caption, [figure], with_png=True)
