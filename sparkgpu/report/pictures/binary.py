"""Two classes: ROC, precision and recall, and what looking at the surest rows finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sparkgpu.report.curves import TestRows, gains, precision_recall, roc
from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import SOFT, styles
from sparkgpu.report.pictures.shared import (
    averaged_over_trials,
    diagonal,
    drawn_from,
    legend_above,
    legend_room,
    short,
    with_predictions,
)
from sparkgpu.rundir.results import Results
from sparkgpu.score.predictions import Labels
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import number_text

_SIZE = 4.5
_Curve = Callable[[Labels, FloatArray], tuple[FloatArray, FloatArray]]


def roc_curves(test: TestRows, schema: TableSchema, results: Results) -> Picture | None:
    """None without both classes, as for the others."""
    areas = _values(results, "roc_auc")
    found = _axes(test, areas, roc, "area")
    if found is None:
        return None
    figure, axes, notes = found
    diagonal(axes)
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    caption = f"ROC curves; the positive class is {short(schema.classes[1], 40)}.{notes}"
    return picture("roc_curves", caption, [figure], with_png=True)


def precision_recall_curves(test: TestRows, schema: TableSchema, results: Results) -> Picture | None:
    """Precision at each recall; the line is the share of positives, which guessing reaches."""
    found = _axes(test, _values(results, "average_precision"), precision_recall, "average")
    if found is None:
        return None
    figure, axes, notes = found
    share = float(np.average(test.labels.label_N == 1, weights=test.labels.counts()))
    axes.axhline(share, color=SOFT.light, linewidth=0.8, zorder=1)
    axes.set(xlabel="recall: share of the positives that are found", ylabel="precision")
    caption = f"Precision and recall; guessing reaches {100 * share:.3g} %.{notes}"
    return picture("precision_recall", caption, [figure])


def gains_curves(test: TestRows, schema: TableSchema, results: Results) -> Picture | None:
    """Cumulative gains: what share of the positives the surest rows hold, and the lift of the first tenth."""
    models = with_predictions(test, [model.name for model in results.models])
    if not _both_classes(test):
        return None
    lifts: dict[str, float | None] = dict.fromkeys(_values(results, "roc_auc"))
    for model in models:
        looked_at, share_found = gains(test.labels, test.mean(model)[:, 1])
        lifts[model] = float(np.interp(0.1, looked_at, share_found)) / 0.1
    found = _axes(test, lifts, gains, "lift of the first tenth", 3)
    if found is None:
        return None
    figure, axes, notes = found
    share = float(np.average(test.labels.label_N == 1, weights=test.labels.counts()))
    axes.plot([0, share, 1], [0, 1, 1], color=SOFT.light, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    diagonal(axes)
    axes.set(xlabel="share of rows looked at, the surest first", ylabel="share of the positives found")
    caption = (
        "Cumulative gains: between guessing (diagonal) and the best possible (dotted). "
        f"A lift of 2 finds twice as many positives as guessing.{notes}"
    )
    return picture("gains", caption, [figure])


def _values(results: Results, metric: str) -> dict[str, float | None]:
    """Of the averaged predictions, which the curves show."""
    return {model.name: (model.averaged or model.metrics).test.get(metric) for model in results.models}


def _both_classes(test: TestRows) -> bool:
    return len(np.unique(test.labels.label_N[test.labels.counts() > 0])) == 2


def _axes(
    test: TestRows, values: Mapping[str, float | None], curve: _Curve, of_value: str, digits: int = 4
) -> tuple[Figure, Axes, str] | None:
    """The models' curves from 0 to 1 with `values` in the legend, and notes for the caption."""
    models = with_predictions(test, values)
    if not models or not _both_classes(test):
        return None
    room = legend_room(len(models))
    figure, axes = new_figure(_SIZE, _SIZE - 0.1 + room, top=room)
    for model in models:
        style = styles(values)[model]
        across, up = curve(test.labels, test.mean(model)[:, 1])
        label = f"{short(model, 24)}, {of_value} {number_text(values[model], digits)}"
        axes.plot(across, up, color=style.colour, linestyle=style.line, label=label)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    legend_above(axes)
    return figure, axes, averaged_over_trials(test) + drawn_from(test)
