"""A number as the target: what is predicted against what is true, and where the errors are.

Rows are dots while they are few, else shades of one colour, without stripes: values that repeat (a target of
few values, prices in steps) leave empty cells between them on an even grid, so the edges across lie half way
between values, and a cell counts its rows per value. N rows, G groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparkgpu.core.rundir.results import Results
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import counted, short
from sparkgpu.present.figure import Picture, new_figure, picture
from sparkgpu.present.pictures.shared import (
    best_few,
    compact,
    diagonal,
    legend_above,
    legend_room,
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


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What the picture shows of one axis; with `log` both ends are above zero."""

    low: float
    high: float
    log: bool = False

    def along(self, value_N: FloatArray) -> FloatArray:
        """0 at the low end, 1 at the high end."""
        if not self.log:
            return (value_N - self.low) / (self.high - self.low)
        positive_N = np.maximum(value_N, np.finfo(float).tiny)
        return np.asarray(np.log(positive_N / self.low) / np.log(self.high / self.low))

    def holds(self, value_N: FloatArray) -> NDArray[np.bool_]:
        return (value_N >= self.low) & (value_N <= self.high)


def frame_of(*values: FloatArray, log: bool = False) -> Frame:
    """Nearly all values: a few extreme ones would squeeze all others into a corner."""
    every = np.concatenate(values)
    if log:
        every = every[every > 0]
    low, high = (float(end) for end in np.quantile(every, (0.001, 0.999)))
    if log:
        margin = (high / low) ** 0.03
        return Frame(low=low / margin, high=high * margin, log=True)
    margin = 0.03 * (high - low) or 0.5 * abs(high) or 1.0
    return Frame(low=low - margin, high=high + margin)


def draw(axes: Axes, x_N: FloatArray, y_N: FloatArray, x: Frame, y: Frame, colour: str) -> int:
    """Fill the axes, set their limits, and return the number of rows outside."""
    seen_N = x.holds(x_N) & y.holds(y_N)
    x_N, y_N = x_N[seen_N], y_N[seen_N]
    if len(x_N) <= MOST_DOTS:
        axes.scatter(
            x_N, y_N, s=9 if len(x_N) <= _VECTOR_DOTS else 6, color=colour, linewidths=0,
            alpha=0.7 if len(x_N) <= _VECTOR_DOTS else 0.4, rasterized=len(x_N) > _VECTOR_DOTS,
        )  # fmt: skip
    else:
        axes.imshow(
            shaded(colour, _opacity(x.along(x_N), y.along(y_N))), extent=(0, 1, 0, 1),
            transform=axes.transAxes, origin="lower", aspect="auto", interpolation="none",
            zorder=1,  # above the grid
        )  # fmt: skip
    if x.log:
        axes.set_xscale("log")
    if y.log:
        axes.set_yscale("log")
    axes.set(xlim=(x.low, x.high), ylim=(y.low, y.high))
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


def predicted_against_true(test: ModelPredictions, schema: TableSchema, results: Results) -> Picture | None:
    """One panel for each of the best models."""
    models, note = best_few(test, results)
    rows = _rows(test, models)
    if rows is None:
        return None
    label_N, means = rows
    log = _spans_decades(label_N, means)
    frame = frame_of(label_N, *means, log=log)
    figures, outside = [], 0
    target = short(schema.target, 26)
    for model, mean_N in zip(models, means, strict=True):
        figure, axes = _panel(model)
        outside = max(outside, draw(axes, label_N, mean_N, frame, frame, looks(results)[model].colour))
        diagonal(axes, frame.low, frame.high)
        _numbers(axes, frame, frame)
        axes.set(xlabel=f"true {target}", ylabel=f"predicted {target}")
        figures.append(figure)
    caption = f"Predicted against true values; on the line they agree.{_shades_text(label_N, outside, log)}"
    return picture("predicted_vs_true", caption + notes_on(test, results) + note, figures, with_png=True)


def residuals(test: ModelPredictions, schema: TableSchema, results: Results) -> Picture | None:
    """Errors against predictions with their median; of a target over decades, factors instead of errors."""
    models, note = best_few(test, results)
    rows = _rows(test, models)
    if rows is None:
        return None
    label_N, means = rows
    log = _spans_decades(label_N, means)
    figures, outside = [], 0
    positive = np.minimum.reduce([label_N, *means]) > 0 if log else np.ones(len(label_N), dtype=bool)
    spread_N, spread = (label_N, "") if log else _without_steps(label_N)
    errors = [mean_N[positive] / label_N[positive] if log else mean_N - spread_N for mean_N in means]
    x, y = frame_of(*means, log=log), _around_zero(errors, log=log)
    for model, mean_N, error_N in zip(models, means, errors, strict=True):
        figure, axes = _panel(model)
        shown_N = mean_N[positive]
        outside = max(outside, draw(axes, shown_N, error_N, x, y, looks(results)[model].colour))
        axes.axhline(1.0 if log else 0.0, color=SOFT.light, linewidth=0.8)
        middle, low, median, high = _running(shown_N, error_N)
        axes.plot(middle, median, color=TEXT.light, linewidth=1.3)
        axes.plot(middle, low, color=TEXT.light, linewidth=0.7, linestyle=(0, (3, 2)))
        axes.plot(middle, high, color=TEXT.light, linewidth=0.7, linestyle=(0, (3, 2)))
        _numbers(axes, x, y)
        axes.set(
            xlabel=f"predicted {short(schema.target, 26)}",
            ylabel="predicted ÷ true" if log else "predicted minus true",
        )
        figures.append(figure)
    caption = (
        f"{'Factors' if log else 'Errors'} by prediction, with their median and (dashed) the tenth that is "
        f"lowest and highest.{_shades_text(label_N, outside, log)}{spread}"
    )
    return picture("residuals", caption + notes_on(test, results) + note, figures)


def error_by_decile(test: ModelPredictions, schema: TableSchema, results: Results) -> Picture | None:
    """RMSE of all models for tenths of the rows by their true value; None for a constant target."""
    models = with_predictions(test, results)
    rows = _rows(test, models)
    if rows is None:
        return None
    label_N, means = rows
    cuts = np.unique(np.quantile(label_N, np.linspace(0, 1, _GROUPS + 1), method="nearest"))
    if len(cuts) < 2:
        return None
    group_N = np.clip(np.searchsorted(cuts, label_N, side="right") - 1, 0, len(cuts) - 2)
    weight_N = test.labels.counts()
    weight_G = np.bincount(group_N, weights=weight_N, minlength=len(cuts) - 1)
    room = legend_room(len(models), 3)
    figure, axes = new_figure(9.2, 3.3 + room, left=0.75, right=0.35, top=room, bottom=0.55)
    for model, mean_N in zip(models, means, strict=True):
        style = looks(results)[model]
        squares_G = np.bincount(
            group_N, weights=weight_N * np.square(mean_N - label_N), minlength=len(weight_G)
        )
        error_G = np.sqrt(squares_G / np.where(weight_G > 0, weight_G, np.nan))
        axes.plot(
            np.arange(len(weight_G)) + 0.5, error_G, color=style.colour, linestyle=style.line,
            marker=style.marker, markersize=5, label=short(model, 24),
        )  # fmt: skip
    axes.set_xticks(range(len(cuts)), [compact(float(f"{cut:.3g}")) for cut in cuts])
    axes.set_xlim(0, len(cuts) - 1)
    axes.set_ylim(bottom=0)
    plain_numbers(axes.yaxis)
    axes.set(xlabel=f"true {short(schema.target, 40)}, cut into tenths of the rows", ylabel="RMSE")
    legend_above(axes, 3)
    caption = "RMSE for tenths of the rows, by their true value."
    return picture("error_by_decile", caption + notes_on(test, results), [figure])


def _rows(test: ModelPredictions, models: Sequence[str]) -> tuple[FloatArray, list[FloatArray]] | None:
    if not models or not len(test.labels.label_N):
        return None
    return np.asarray(test.labels.label_N, dtype=np.float64), [test.values[model] for model in models]


def _spans_decades(label_N: FloatArray, means: Sequence[FloatArray]) -> bool:
    """Whether the target is positive and so are nearly all predictions, from small to large values."""
    if label_N.min() <= 0 or any(np.quantile(mean_N, 0.01) <= 0 for mean_N in means):
        return False
    low, high = np.quantile(label_N, (0.01, 0.99))
    return bool(high / low > _SPAN_OF_LOGS)


def _around_zero(errors: Sequence[FloatArray], *, log: bool) -> Frame:
    every = np.abs(np.log(np.concatenate(errors)) if log else np.concatenate(errors))
    most = 1.06 * float(np.quantile(every, 0.998)) or 1.0
    return Frame(low=np.exp(-most), high=np.exp(most), log=True) if log else Frame(low=-most, high=most)


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


def _panel(model: str) -> tuple[Figure, Axes]:
    figure, axes = new_figure(3.35, 3.4, left=0.7, top=0.3)
    axes.set_title(short(model, 26))
    return figure, axes


def _numbers(axes: Axes, x: Frame, y: Frame) -> None:
    for axis, frame in ((axes.xaxis, x), (axes.yaxis, y)):
        (plain_logs if frame.log else plain_numbers)(axis)


def _shades_text(label_N: FloatArray, outside: int, log: bool) -> str:
    shades = " Stronger colour: more rows, on a logarithmic scale." if len(label_N) > MOST_DOTS else ""
    axes = " Logarithmic axes." if log else ""
    return shades + axes + (f" Outside the frame: {counted(outside, 'row')}." if outside else "")
