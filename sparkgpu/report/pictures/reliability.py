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
from sparkgpu.rundir.results import Results
from sparkgpu.score.calibration import reliability, scaled
from sparkgpu.table.schema import TableSchema

_MOST_BINS = 10
_ROWS_OF_A_BIN = 40  # on average; far fewer give a line of chance
_LEAST_SHARE = 0.01  # a bin with less of the rows is not drawn
_SIZE = 4.5
_MOST_TWICE = 3  # more models with two lines each could not be told apart


def reliability_curves(test: TestRows, schema: TableSchema, results: Results) -> Picture | None:
    """Probability against truth, as predicted and (thin) before temperature scaling; None for numbers."""
    names = [model.name for model in results.models]
    models = with_predictions(test, names)
    if schema.task == "regression" or not models or not test.labels.counts().any():
        return None
    room = legend_room(len(models))
    figure, axes = new_figure(_SIZE, _SIZE - 0.1 + room, top=room)
    diagonal(axes)
    calibrations = {model.name: model.calibration for model in results.models}
    twice = False
    bins = min(max(len(test.labels.label_N) // _ROWS_OF_A_BIN, 3), _MOST_BINS)
    for model in models:
        style, probability_NC = styles(names)[model], test.mean(model)
        lines = [(probability_NC, 1.6, 4.0, short(model, 24))]
        own = calibrations[model]
        if own and own.applied and len(models) <= _MOST_TWICE:
            lines.append((scaled(probability_NC, 1 / own.temperature), 1.1, 0.0, ""))
            twice = True
        for shown_NC, width, size, label in lines:
            found = reliability(schema.task, test.labels.label_N, shown_NC, test.labels.weight_N, bins)
            drawn = found.weight_B >= _LEAST_SHARE * found.weight_B.sum()
            axes.plot(
                found.probability_B[drawn], found.share_B[drawn], color=style.colour,
                linestyle=style.line if size else (0, (1, 1.6)),
                linewidth=width, marker=style.marker if size else None, markersize=size,
                label=label or None,
            )  # fmt: skip
    of_class = f"of {short(schema.classes[1], 30)}" if schema.task == "binary" else "of the predicted class"
    around = (-0.02, 1.02)
    axes.set(xlabel=f"probability {of_class}", ylabel="share that came true", xlim=around, ylim=around)
    legend_above(axes)
    caption = "Reliability: on the diagonal, what is predicted comes true as often."
    caption += " Thin and dotted: before temperature scaling." if twice else ""
    return picture("reliability", caption + drawn_from(test), [figure], with_png=True)
