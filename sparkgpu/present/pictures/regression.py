"""A number as the target: what is predicted against what is true, and the errors by prediction.

Rows are dots while they are few, else hexagons, in shades of one colour. N rows, G groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure

from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import counted, short
from sparkgpu.present.figure import Picture, new_figure
from sparkgpu.present.pictures.shared import (
    best_few,
    diagonal,
    looks,
    notes_on,
    plain_logs,
    plain_numbers,
)
from sparkgpu.present.style import SOFT, TEXT
from sparkgpu.score.predictions import ModelPredictions
from sparkgpu.score.rows import FloatArray

_MOST_DOTS = 2500  # up to this many rows dots show more than shades
_VECTOR_DOTS = 300  # up to this many dots are lines of SVG, more are pixels
_CELLS = 60
_FAINTEST = 0.16
_SPAN_OF_LOGS = 100.0  # from this ratio of large to small values on, the axes are logarithmic
_FEWEST_ROWS = 40  # fewer rows have no running quantiles

_Ends = tuple[float, float]


def numbers(test: ModelPredictions, schema: TableSchema, results: Results) -> list[Picture]:
    """Predicted against true values, and errors by prediction; none without rows.

    A target over decades has logarithmic axes, and factors instead of errors.
    """
    models, note = best_few(test, results)
    if not models or not len(test.labels.label_N):
        return []
    label_N = np.asarray(test.labels.label_N, dtype=np.float64)
    means = {model: test.values[model] for model in models}
    log = _spans_decades(label_N, means)
    if log:
        kept_N = np.minimum.reduce([label_N, *means.values()]) > 0
        label_N, means = label_N[kept_N], {model: mean_N[kept_N] for model, mean_N in means.items()}
    errors = {model: mean_N / label_N if log else mean_N - label_N for model, mean_N in means.items()}
    target, word = short(schema.target, 26), "Factors" if log else "Errors"
    frame = _frame([label_N, *means.values()], log=log)

    truth = dict.fromkeys(models, label_N)
    against, outside = _panels(results, truth, means, frame, frame, log=log)
    for figure in against:
        figure.axes[0].set(xlabel=f"true {target}", ylabel=f"predicted {target}")
        diagonal(figure.axes[0], *frame)
    x, y = _frame(list(means.values()), log=log), _around_zero(list(errors.values()), log=log)
    residuals, outside_too = _panels(results, means, errors, x, y, log=log)
    for model, figure in zip(models, residuals, strict=True):
        axes = figure.axes[0]
        axes.set(xlabel=f"predicted {target}", ylabel="predicted ÷ true" if log else "predicted minus true")
        axes.axhline(1.0 if log else 0.0, color=SOFT.light, linewidth=0.8)
        _running_quantiles(axes, means[model], errors[model])

    def notes(rows_outside: int) -> str:
        shades = " Stronger colour: more rows, on a logarithmic scale." if len(label_N) > _MOST_DOTS else ""
        axes = " Logarithmic axes." if log else ""
        cut = f" Outside the frame: {counted(rows_outside, 'row')}." if rows_outside else ""
        return shades + axes + cut + notes_on(test, results) + note

    return [
        Picture(
            name="predicted_vs_true", figures=against,
            caption=f"Predicted against true values; on the line they agree.{notes(outside)}",
        ),
        Picture(
            name="residuals", figures=residuals,
            caption=f"{word} by prediction, with their median and (dashed) the tenth that is lowest and "
            f"highest.{notes(outside_too)}",
        ),
    ]  # fmt: skip


def _spans_decades(label_N: FloatArray, means: Mapping[str, FloatArray]) -> bool:
    """Whether the target is positive and so are nearly all predictions, from small to large values."""
    if label_N.min() <= 0 or any(np.quantile(mean_N, 0.01) <= 0 for mean_N in means.values()):
        return False
    low, high = np.quantile(label_N, (0.01, 0.99))
    return bool(high / low > _SPAN_OF_LOGS)


def _frame(values: list[FloatArray], *, log: bool) -> _Ends:
    """The ends of nearly all values: a few extreme ones would squeeze all others into a corner."""
    every = np.concatenate(values)
    low, high = np.quantile(np.log(every) if log else every, (0.001, 0.999))
    margin = 0.03 * (high - low) or 0.5 * abs(high) or 1.0
    return _ends(low - margin, high + margin, log=log)


def _around_zero(errors: list[FloatArray], *, log: bool) -> _Ends:
    every = np.concatenate(errors)
    most = 1.06 * np.quantile(np.abs(np.log(every) if log else every), 0.998) or 1.0
    return _ends(-most, most, log=log)


def _ends(low: float, high: float, *, log: bool) -> _Ends:
    """Of logarithms if `log`."""
    return (float(np.exp(low)), float(np.exp(high))) if log else (float(low), float(high))


def _panels(
    results: Results,
    x: Mapping[str, FloatArray],
    y: Mapping[str, FloatArray],
    x_ends: _Ends,
    y_ends: _Ends,
    *,
    log: bool,
) -> tuple[list[Figure], int]:
    """A panel for each model, and the greatest number of rows outside one."""
    figures, outside = [], 0
    scale: Literal["log", "linear"] = "log" if log else "linear"
    for model in x:
        x_N, y_N, colour = x[model], y[model], looks(results)[model].colour
        figure, axes = new_figure(3.35, 3.4, left=0.7, top=0.3)
        axes.set_title(short(model, 26))
        axes.set(xscale=scale, yscale=scale)
        seen_N = (x_N >= x_ends[0]) & (x_N <= x_ends[1]) & (y_N >= y_ends[0]) & (y_N <= y_ends[1])
        outside = max(outside, int((~seen_N).sum()))
        x_N, y_N = x_N[seen_N], y_N[seen_N]
        if len(x_N) <= _MOST_DOTS:
            few = len(x_N) <= _VECTOR_DOTS
            size, alpha = (9, 0.7) if few else (6, 0.4)
            axes.scatter(x_N, y_N, size, color=colour, linewidths=0, alpha=alpha, rasterized=not few)
        else:
            shades = LinearSegmentedColormap.from_list(
                model, [to_rgba(colour, _FAINTEST), to_rgba(colour, 1.0)]
            )
            axes.hexbin(
                x_N, y_N, gridsize=_CELLS, bins="log", mincnt=1, xscale=scale, yscale=scale, cmap=shades,
                linewidths=0, rasterized=True, zorder=1,
            )  # fmt: skip
        axes.set(xlim=x_ends, ylim=y_ends, autoscale_on=False)
        (plain_logs if log else plain_numbers)(axes.xaxis, axes.yaxis)
        figures.append(figure)
    return figures, outside


def _running_quantiles(axes: Axes, x_N: FloatArray, y_N: FloatArray) -> None:
    """The 10 %, 50 % and 90 % quantiles of y in up to twenty groups of rows along x."""
    if len(x_N) < _FEWEST_ROWS:
        return
    groups = np.array_split(np.argsort(x_N, kind="stable"), min(20, len(x_N) // 20))
    middle_G = [np.median(x_N[group]) for group in groups]
    low_G, median_G, high_G = np.transpose([np.quantile(y_N[group], (0.1, 0.5, 0.9)) for group in groups])
    axes.plot(middle_G, median_G, color=TEXT.light, linewidth=1.3)
    for tenth_G in (low_G, high_G):
        axes.plot(middle_G, tenth_G, color=TEXT.light, linewidth=0.7, linestyle=(0, (3, 2)))
