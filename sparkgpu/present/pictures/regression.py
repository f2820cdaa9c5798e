"""A number as the target: what is predicted against what is true, and where the errors are.

Rows are dots while they are few, else shades of one colour, without stripes: values that repeat (a target of
few values, prices in steps) leave empty cells between them on an even grid, so the edges across lie half way
between values, and a cell counts its rows per value. N rows, G groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparkgpu.core.rundir.results import Results
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import counted, short
from sparkgpu.present.figure import Picture, new_figure
from sparkgpu.present.pictures.shared import (
    below_legend,
    best_few,
    compact,
    diagonal,
    legend_above,
    looks,
    notes_on,
    plain_logs,
    plain_numbers,
    shaded,
    with_predictions,
)
from sparkgpu.present.style import SOFT, TEXT
from sparkgpu.score.predictions import ModelPredictions
from sparkgpu.score.rows import FloatArray

MOST_DOTS = 2500  # up to this many rows dots show more than shades
_VECTOR_DOTS = 300  # up to this many dots are lines of SVG, more are pixels
_CELLS = 64
_PIXELS = 192
_FAINTEST = 0.16
_SPAN_OF_LOGS = 100.0  # from this ratio of large to small values on, the axes are logarithmic
_GROUPS = 10
_FEW_VALUES = 128
_FEWEST_ROWS = 40  # fewer rows have no running quantiles


class Frame(NamedTuple):
    """What the picture shows of one axis; with `log` both ends are above zero."""

    low: float
    high: float
    log: bool

    def holds(self, value_N: FloatArray) -> NDArray[np.bool_]:
        return (value_N >= self.low) & (value_N <= self.high)


def _frame(values: Sequence[FloatArray], *, log: bool) -> Frame:
    """Nearly all values: a few extreme ones would squeeze all others into a corner."""
    every = np.concatenate(values)
    every = np.log(every[every > 0]) if log else every
    low, high = (float(end) for end in np.quantile(every, (0.001, 0.999)))
    margin = 0.03 * (high - low) or 0.5 * abs(high) or 1.0
    return _between(low - margin, high + margin, log=log)


def _around_zero(errors: Sequence[FloatArray], *, log: bool) -> Frame:
    every = np.abs(np.log(np.concatenate(errors)) if log else np.concatenate(errors))
    most = 1.06 * float(np.quantile(every, 0.998)) or 1.0
    return _between(-most, most, log=log)


def _between(low: float, high: float, *, log: bool) -> Frame:
    """Of logarithms if `log`."""
    return Frame(math.exp(low), math.exp(high), True) if log else Frame(low, high, False)


def _draw(axes: Axes, x_N: FloatArray, y_N: FloatArray, x: Frame, y: Frame, colour: str) -> int:
    """Set up and fill the axes, and return the number of rows outside."""
    axes.set(xscale="log" if x.log else "linear", yscale="log" if y.log else "linear")
    axes.set(xlim=(x.low, x.high), ylim=(y.low, y.high), autoscale_on=False)
    for axis, frame in ((axes.xaxis, x), (axes.yaxis, y)):
        (plain_logs if frame.log else plain_numbers)(axis)
    seen_N = x.holds(x_N) & y.holds(y_N)
    place_N2 = np.column_stack([x_N, y_N])[seen_N]
    if len(place_N2) <= MOST_DOTS:
        few = len(place_N2) <= _VECTOR_DOTS
        size, alpha = (9, 0.7) if few else (6, 0.4)
        x_N, y_N = place_N2.T
        axes.scatter(x_N, y_N, size, color=colour, linewidths=0, alpha=alpha, rasterized=not few)
    else:
        along_N2 = (axes.transData - axes.transAxes).transform(place_N2)
        axes.imshow(
            shaded(colour, _opacity(*along_N2.T)), extent=(0, 1, 0, 1), transform=axes.transAxes,
            origin="lower", aspect="auto", interpolation="none", zorder=1,  # above the grid
        )  # fmt: skip
    return int((~seen_N).sum())


def edges(along_N: FloatArray, cells: int = _CELLS) -> tuple[FloatArray, FloatArray]:
    """The edges of at most `cells` cells from 0 to 1, and the number of different values in each.

    Every cell between the values holds one if there are few; of many values, the number counts as one
    everywhere.
    """
    even = np.linspace(0.0, 1.0, cells + 1)
    values = np.unique(along_N)
    if len(values) < 2 or len(values) > 4 * cells:
        return even, np.ones(cells)
    middles = (values[1:] + values[:-1]) / 2
    nearest = np.abs(middles[None, :] - even[1:-1, None]).argmin(axis=1)
    first = values[0] - (values[1] - values[0]) / 2
    last = values[-1] + (values[-1] - values[-2]) / 2
    inner = np.unique(np.concatenate([[first, last], middles[nearest]]))
    found = np.unique(np.concatenate([[0.0], np.clip(inner, 0.0, 1.0), [1.0]]))
    return found, np.histogram(values, found)[0].astype(np.float64)


def _opacity(x_N: FloatArray, y_N: FloatArray) -> FloatArray:
    """Opacity (cells, pixels) that rises with the logarithm of the rows in a cell; none without rows."""
    x_edges, values = edges(x_N)
    counts = np.histogram2d(y_N, x_N, bins=(np.linspace(0, 1, _CELLS + 1), x_edges))[0]
    logs = np.log1p(counts / np.maximum(values, 1))
    opacity = np.where(counts > 0, _FAINTEST + (1 - _FAINTEST) * logs / logs.max(), 0.0)
    middles = (np.arange(_PIXELS) + 0.5) / _PIXELS
    return np.asarray(opacity[:, np.searchsorted(x_edges, middles) - 1])


def numbers(test: ModelPredictions, schema: TableSchema, results: Results) -> list[Picture]:
    """Predicted against true values, errors by prediction, and errors by true value; none without rows."""
    models, note = best_few(test, results)
    if not models or not len(test.labels.label_N):
        return []
    label_N = np.asarray(test.labels.label_N, dtype=np.float64)
    means = {model: test.values[model] for model in models}
    about = (label_N, means, results, short(schema.target, 26))
    notes = notes_on(test, results) + note
    shown = [_predicted_against_true(*about, notes), _residuals(*about, notes)]
    by_decile = _error_by_decile(test, schema, results, label_N)
    return [*shown, by_decile] if by_decile else shown


def _predicted_against_true(
    label_N: FloatArray, means: Mapping[str, FloatArray], results: Results, target: str, notes: str
) -> Picture:
    """One panel for each of the best models."""
    log = _spans_decades(label_N, means)
    frame = _frame([label_N, *means.values()], log=log)
    figures, outside = [], 0
    for model, mean_N in means.items():
        figure, axes = _panel(model, f"true {target}", f"predicted {target}")
        outside = max(outside, _draw(axes, label_N, mean_N, frame, frame, looks(results)[model].colour))
        diagonal(axes, frame.low, frame.high)
        figures.append(figure)
    caption = f"Predicted against true values; on the line they agree.{_shades_text(label_N, outside, log)}"
    return Picture(name="predicted_vs_true", caption=caption + notes, figures=figures)


def _residuals(
    label_N: FloatArray, means: Mapping[str, FloatArray], results: Results, target: str, notes: str
) -> Picture:
    """Errors against predictions with their median; of a target over decades, factors instead of errors."""
    log = _spans_decades(label_N, means)
    if log:
        kept_N, spread = np.minimum.reduce([label_N, *means.values()]) > 0, ""
        errors = {model: mean_N[kept_N] / label_N[kept_N] for model, mean_N in means.items()}
    else:
        kept_N = np.ones(len(label_N), dtype=bool)
        spread_N, spread = _without_steps(label_N)
        errors = {model: mean_N - spread_N for model, mean_N in means.items()}
    x, y = _frame(list(means.values()), log=log), _around_zero(list(errors.values()), log=log)
    figures, outside = [], 0
    for model, error_N in errors.items():
        figure, axes = _panel(
            model, f"predicted {target}", "predicted ÷ true" if log else "predicted minus true"
        )
        shown_N = means[model][kept_N]
        outside = max(outside, _draw(axes, shown_N, error_N, x, y, looks(results)[model].colour))
        axes.axhline(1.0 if log else 0.0, color=SOFT.light, linewidth=0.8)
        middle, low, median, high = _running(shown_N, error_N)
        axes.plot(middle, median, color=TEXT.light, linewidth=1.3)
        for tenth in (low, high):
            axes.plot(middle, tenth, color=TEXT.light, linewidth=0.7, linestyle=(0, (3, 2)))
        figures.append(figure)
    caption = (
        f"{'Factors' if log else 'Errors'} by prediction, with their median and (dashed) the tenth that is "
        f"lowest and highest.{_shades_text(label_N, outside, log)}{spread}{notes}"
    )
    return Picture(name="residuals", caption=caption, figures=figures)


def _error_by_decile(
    test: ModelPredictions, schema: TableSchema, results: Results, label_N: FloatArray
) -> Picture | None:
    """RMSE of all models for tenths of the rows by their true value; None for a constant target."""
    models = with_predictions(test, results)
    cuts = np.unique(np.quantile(label_N, np.linspace(0, 1, _GROUPS + 1), method="nearest"))
    if len(cuts) < 2:
        return None
    group_N = np.clip(np.searchsorted(cuts, label_N, side="right") - 1, 0, len(cuts) - 2)
    weight_N = test.labels.counts()
    weight_G = np.bincount(group_N, weights=weight_N, minlength=len(cuts) - 1)
    figure, axes = below_legend(9.2, 3.3, len(models), 3, left=0.75, right=0.35, bottom=0.55)
    for model in models:
        style, square_N = looks(results)[model], np.square(test.values[model] - label_N)
        squares_G = np.bincount(group_N, weights=weight_N * square_N, minlength=len(weight_G))
        error_G = np.sqrt(squares_G / np.where(weight_G > 0, weight_G, np.nan))
        axes.plot(
            np.arange(len(weight_G)) + 0.5, error_G, **style.line, marker=style.marker, markersize=5,
            label=short(model, 24),
        )  # fmt: skip
    axes.set_xticks(range(len(cuts)), [compact(float(f"{cut:.3g}")) for cut in cuts])
    axes.set_xlim(0, len(cuts) - 1)
    axes.set_ylim(bottom=0)
    plain_numbers(axes.yaxis)
    axes.set(xlabel=f"true {short(schema.target, 40)}, cut into tenths of the rows", ylabel="RMSE")
    legend_above(axes, 3)
    caption = "RMSE for tenths of the rows, by their true value." + notes_on(test, results)
    return Picture(name="error_by_decile", caption=caption, figures=[figure])


def _spans_decades(label_N: FloatArray, means: Mapping[str, FloatArray]) -> bool:
    """Whether the target is positive and so are nearly all predictions, from small to large values."""
    if label_N.min() <= 0 or any(np.quantile(mean_N, 0.01) <= 0 for mean_N in means.values()):
        return False
    low, high = np.quantile(label_N, (0.01, 0.99))
    return bool(high / low > _SPAN_OF_LOGS)


def _without_steps(label_N: FloatArray) -> tuple[FloatArray, str]:
    """Few values spread at random over half the way to their neighbours: their errors would be stripes."""
    values, place_N = np.unique(label_N, return_inverse=True)
    if not 1 < len(values) <= _FEW_VALUES or len(label_N) <= MOST_DOTS:
        return label_N, ""
    halves = np.diff(values) / 2
    below, above = np.append(halves[:1], halves), np.append(halves, halves[-1:])
    ends_N2 = np.stack([values - below, values + above], axis=1)[place_N]
    shares_N = np.random.default_rng(7).random(len(label_N))
    return ends_N2[:, 0] + shares_N * (ends_N2[:, 1] - ends_N2[:, 0]), " The target's steps are evened out."


def _running(x_N: FloatArray, y_N: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Middles of up to twenty groups of rows along x, and the 10 %, 50 % and 90 % quantiles of y there."""
    if len(x_N) < _FEWEST_ROWS:
        nothing = np.empty(0)
        return nothing, nothing, nothing, nothing
    parts = np.array_split(np.argsort(x_N, kind="stable"), min(20, len(x_N) // 20))
    low, median, high = np.array([np.quantile(y_N[part], (0.1, 0.5, 0.9)) for part in parts]).T
    return np.array([np.median(x_N[part]) for part in parts]), low, median, high


def _panel(model: str, xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure, axes = new_figure(3.35, 3.4, left=0.7, top=0.3)
    axes.set_title(short(model, 26))
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def _shades_text(label_N: FloatArray, outside: int, log: bool) -> str:
    shades = " Stronger colour: more rows, on a logarithmic scale." if len(label_N) > MOST_DOTS else ""
    axes = " Logarithmic axes." if log else ""
    return shades + axes + (f" Outside the frame: {counted(outside, 'row')}." if outside else "")
