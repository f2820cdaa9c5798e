"""A number as the target: what is predicted against what is true, and where the errors are. N rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sparkgpu.report.curves import TestRows
from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import SOFT, TEXT, styles
from sparkgpu.report.pictures.density import MOST_DOTS, Frame, draw, frame_of
from sparkgpu.report.pictures.shared import (
    averaged_over_trials,
    best_few,
    compact,
    diagonal,
    drawn_from,
    legend_above,
    legend_room,
    plain_logs,
    plain_numbers,
    short,
    with_predictions,
)
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import counted

_SPAN_OF_LOGS = 100.0  # from this ratio of large to small values on, the axes are logarithmic
_GROUPS = 10
_FEW_VALUES = 128
_FEWEST_ROWS = 40  # fewer rows have no running quantiles


def predicted_against_true(
    test: TestRows, schema: TableSchema, values: Mapping[str, float | None]
) -> Picture | None:
    """One panel for each of the best models; `values` are the models' main metric on the test split."""
    models, note = best_few(test, "regression", values)
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
        outside = max(outside, draw(axes, label_N, mean_N, frame, frame, styles(values)[model].colour))
        diagonal(axes, frame.low, frame.high)
        _numbers(axes, frame, frame)
        axes.set(xlabel=f"true {target}", ylabel=f"predicted {target}")
        figures.append(figure)
    caption = f"Predicted against true values; on the line they agree.{_shades(label_N, outside, log)}"
    return picture(
        "predicted_vs_true",
        caption + averaged_over_trials(test) + note + drawn_from(test),
        figures,
        with_png=True,
    )


def residuals(test: TestRows, schema: TableSchema, values: Mapping[str, float | None]) -> Picture | None:
    """Errors against predictions with their median; of a target over decades, factors instead of errors."""
    models, note = best_few(test, "regression", values)
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
        outside = max(outside, draw(axes, shown_N, error_N, x, y, styles(values)[model].colour))
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
        f"lowest and highest.{_shades(label_N, outside, log)}{spread}"
    )
    return picture("residuals", caption + averaged_over_trials(test) + note + drawn_from(test), figures)


def error_by_decile(
    test: TestRows, schema: TableSchema, values: Mapping[str, float | None]
) -> Picture | None:
    """RMSE of all models for tenths of the rows by their true value; None for a constant target."""
    models = with_predictions(test, values)
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
        style = styles(values)[model]
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
    return picture("error_by_decile", caption + averaged_over_trials(test) + drawn_from(test), [figure])


def _rows(test: TestRows, models: Sequence[str]) -> tuple[FloatArray, list[FloatArray]] | None:
    if not models or not len(test.labels.label_N):
        return None
    return np.asarray(test.labels.label_N, dtype=np.float64), [test.mean(model) for model in models]


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


def _shades(label_N: FloatArray, outside: int, log: bool) -> str:
    shades = " Stronger colour: more rows, on a logarithmic scale." if len(label_N) > MOST_DOTS else ""
    axes = " Logarithmic axes." if log else ""
    return shades + axes + (f" Outside the frame: {counted(outside, 'row')}." if outside else "")
