"""The score of each trial during training, of all models on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import styles
from sparkgpu.report.pictures.shared import (
    legend_above,
    legend_room,
    plain_logs,
    plain_numbers,
    short,
)
from sparkgpu.report.training_curves import TimedCurve
from sparkgpu.words import metric_title

_COLUMNS = 4
_MOST_CURVES = 3  # of one model: more would hide the others
_MOST_WITH_TRAINING = 3
_LONG_AGO = 25.0  # where a model takes so much longer than another, time is logarithmic
_STEEP = 8.0  # so is a loss that falls so far
_LEAST_S = 0.01


def learning_curves(curves: Sequence[TimedCurve], models: Sequence[str]) -> Picture | None:
    """A panel for each metric that trials report, usually one: validation rows and, dotted, training rows.

    `models` are all of the run, in its order.
    """
    shown = [curve for model in models for curve in _of(curves, model)[:_MOST_CURVES]]
    metrics = list(dict.fromkeys(one.curve.metric for one in shown))
    with_training = len({one.model for one in shown}) <= _MOST_WITH_TRAINING
    figures = []
    for metric in metrics:
        here = [one for one in shown if one.curve.metric == metric]
        names = list(dict.fromkeys(one.model for one in here))
        room = legend_room(len(names), _COLUMNS)
        figure, axes = new_figure(9.2 if len(metrics) == 1 else 6.2, 3.3 + room, left=0.75, top=room)
        for name in names:
            for number, one in enumerate(_of(here, name)):
                _draw(axes, one, models, short(name, 24) if number == 0 else None, with_training)
        _scales(axes, here)
        axes.set(xlabel="seconds since the trial began to train", ylabel=metric_title(metric))
        legend_above(axes, _COLUMNS)
        figures.append(figure)
    if not figures:
        return None
    caption = "Learning curves: the score on the validation rows during training, from its first measurement."
    caption += f" At most {_MOST_CURVES} trials of a model." if len(shown) < len(curves) else ""
    if with_training and any(np.isfinite(one.curve.train).any() for one in shown):
        caption += " Dotted: on the training rows."
    caption += " The mark: the step that is kept." if any(one.kept is not None for one in shown) else ""
    if not all(one.exact for one in shown):
        caption += " Steps whose time is not known are spread evenly."
    return picture("learning_curves", caption, figures, with_png=True)


def _of(curves: Sequence[TimedCurve], model: str) -> list[TimedCurve]:
    return [one for one in curves if one.model == model]


def _draw(axes: Axes, one: TimedCurve, models: Sequence[str], label: str | None, with_training: bool) -> None:
    style = styles(models)[one.model]
    valid, at_s = one.curve.valid, np.maximum(one.at_s, _LEAST_S)
    alone = np.isfinite(valid).sum() == 1
    if np.isfinite(valid).any():
        axes.plot(
            at_s, valid, color=style.colour, linestyle=style.line, marker=style.marker if alone else None,
            label=label,
        )  # fmt: skip
    if with_training and np.isfinite(one.curve.train).any():
        axes.plot(at_s, one.curve.train, color=style.colour, linewidth=1.1, linestyle=(0, (1, 1.6)))
    if one.kept is not None and np.isfinite(valid[one.kept]):
        axes.plot(at_s[one.kept], valid[one.kept], color=style.colour, marker=style.marker, markersize=7)


def _scales(axes: Axes, curves: Sequence[TimedCurve]) -> None:
    """Logarithms where otherwise one model would be a vertical line, or the end of a curve a flat one."""
    plain_numbers(axes.xaxis, axes.yaxis)
    lasting = [float(one.at_s[-1]) for one in curves if one.at_s[-1] > 0]
    if lasting and max(lasting) > _LONG_AGO * min(lasting):
        axes.set_xscale("log")
        plain_logs(axes.xaxis)
    else:
        axes.set_xlim(left=0)
    values = np.concatenate([one.curve.valid for one in curves])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() > _STEEP * values.min():
        axes.set_yscale("log")
        plain_logs(axes.yaxis)
    elif len(values):
        least, usual = float(values.min()), float(np.quantile(values, 0.9))
        if usual > least and values.max() > least + 4 * (usual - least):
            axes.set_ylim(top=least + 3 * (usual - least))  # a few steep first steps would flatten the rest
