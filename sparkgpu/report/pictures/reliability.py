"""How often what each model predicts comes true, by its probability."""

from __future__ import annotations

from sparkgpu.report.curves import TestRows
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
from sparkgpu.score.calibration import reliability
from sparkgpu.table.schema import TableSchema

_BINS = 10
_SIZE = 4.6


def reliability_curves(test: TestRows, schema: TableSchema, names: list[str]) -> Picture | None:
    """Probability against truth for the models `names` of the run; None for a regression."""
    models = with_predictions(test, names)
    if schema.task == "regression" or not models or not test.labels.counts().any():
        return None
    room = legend_room(len(models), 2)
    figure, axes = new_figure(_SIZE, _SIZE - 0.1 + room, top=room)
    diagonal(axes)
    for model in models:
        found = reliability(schema.task, test.labels.label_N, test.mean(model), test.labels.weight_N, _BINS)
        style = styles(names)[model]
        axes.plot(
            found.probability_B, found.share_B, color=style.colour, linestyle=style.line,
            marker=style.marker, markersize=4, label=short(model, 24),
        )  # fmt: skip
    of_class = f"of {short(schema.classes[1])}" if schema.task == "binary" else "of the predicted class"
    around = (-0.02, 1.02)
    axes.set(xlabel=f"probability {of_class}", ylabel="share that came true", xlim=around, ylim=around)
    legend_above(axes, 2)
    caption = "Reliability on the test split: on the line, what is predicted comes true as often."
    return picture("reliability", caption + drawn_from(test), [figure], with_png=True)
