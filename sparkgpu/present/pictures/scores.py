"""How good the models are: their values, in training and for its seconds, and how alike they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.words import capital, distinct, metric_title, number_text, short
from sparkgpu.present.agreement import Agreement
from sparkgpu.present.compare import Board, Compared
from sparkgpu.present.curves import LearningCurve, learning_curves
from sparkgpu.present.entries import Entry, contestants, entries, ranked
from sparkgpu.present.figure import Picture, new_figure
from sparkgpu.present.pictures.shared import (
    LETTER,
    below_legend,
    heat_map,
    legend_above,
    legend_room,
    looks,
    plain_logs,
    plain_numbers,
    rows_down,
    shaded,
)
from sparkgpu.present.style import COLOURS, SOFT, ModelStyle, styles
from sparkgpu.score.compare import Interval
from sparkgpu.score.metrics import greater_is_better

_MOST_ROWS = 30
_ROW = 0.3  # inches
_COLUMNS = 4  # of a legend
_MOST_CURVES = 3  # of one model: more would hide the others
_MOST_WITH_TRAINING = 3
_LONG_AGO = 25.0  # where a model takes so much longer than another, time is logarithmic
_STEEP = 8.0  # so is a loss that falls so far
_LEAST_S = 0.01
_LONGEST_RUN = 28
_STRONGEST = 0.6  # the shade on which figures are still readable
_OTHER_LOOKS = 10  # beside those of trees, network and blend


def leaderboard(found: Results, intervals: Mapping[str, Interval]) -> Picture | None:
    """The models by their main metric, the best on top; small marks are their trials."""
    of = ranked(found.comparison.metric, contestants(entries(found, intervals=intervals)))
    whiskers = ", with its 95 % interval" if intervals else ""
    marks = " Small marks: its trials." if any(map(_of_trials, of)) else ""
    title = capital(metric_title(found.comparison.metric))
    caption = f"{title} of each model on the test rows{whiskers}.{marks}"
    return dots("leaderboard", of, [short(one.name, 18) for one in of], looks(found), caption, width=4.0)


def _of_trials(one: Entry) -> list[float]:
    """Values of the trials that were averaged, for a model of a single run."""
    if one.run or not one.model.averaged:
        return []
    values = (trial.metrics.test.get(one.results.comparison.metric) for trial in one.trials)
    return [value for value in values if value is not None]


def dots(
    name: str,
    of: Sequence[Entry],
    names: Sequence[str],
    look: Mapping[str, ModelStyle],
    caption: str,
    *,
    width: float = 5.2,
) -> Picture | None:
    """A dot for each value on the test rows, with whiskers; a dashed line goes through the reference.

    From the top down, at most `_MOST_ROWS`; None without any. `look` is that of each run or, of a single run,
    of each model, whose trials are small marks below it. `width`: inches beside the names.
    """
    of, names = of[:_MOST_ROWS], names[:_MOST_ROWS]
    if not of:
        return None
    values = [number_text(one.value) for one in of]
    left = 0.25 + 0.085 * max(map(len, names))
    right = max(0.7, 0.2 + LETTER * max(map(len, values)))
    figure, axes = new_figure(left + width, 0.75 + _ROW * len(of), left=left, right=right, top=0.1)
    rows_down(axes, names, edge=0.4)
    for place, one in enumerate(of):
        assert one.value is not None
        style = look[one.run or one.name]
        if one.ci95[0] is not None:
            axes.plot(one.ci95, [place, place], color=style.colour, linewidth=1.6, marker="|", markersize=7)
        if parts := _of_trials(one):
            below = [place + 0.3] * len(parts)
            axes.plot(parts, below, color=SOFT.light, marker="|", markersize=4, linestyle="")
        axes.plot([one.value], [place], **style.mark, markersize=6)
        axes.annotate(
            values[place], (1.0, place), xycoords=("axes fraction", "data"), xytext=(6, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
        if one.is_reference:
            axes.axvline(one.value, color=SOFT.light, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    metric = of[0].results.comparison.metric
    axes.set_xlabel(f"{metric_title(metric)} on the test rows ({_better(metric)} is better)")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    if max(abs(one.value or 0.0) for one in of) >= 1e4:
        plain_numbers(axes.xaxis)
    return Picture(name=name, caption=caption, figures=[figure])


def agreement_map(found: Agreement) -> Picture | None:
    """A heat map with its numbers; None for two models, of which one number says all."""
    if len(found.models) < 3:
        return None
    least = float(found.alike_MM.min())
    decimals, letters = (2, 9) if least < 0.98 else (3, 8)
    texts = {
        (row, column): f"{value:.{decimals}f}"
        for (row, column), value in np.ndenumerate(found.alike_MM)
        if row != column
    }
    image = shaded(COLOURS[0].light, _STRONGEST * (found.alike_MM - least) / max(1 - least, 1e-9))
    names = distinct(found.models, 18)
    figure, _ = heat_map(image, names, names, texts, (0.5, 0.5), letters=letters)
    caption = f"How alike the models are: {found.what}."
    return Picture(name="agreement", caption=caption, figures=[figure])


def _better(metric: str) -> str:
    return "greater" if greater_is_better(metric) else "smaller"


def learning(paths: RunPaths, results: Results) -> Picture | None:
    """A panel for each metric that trials report, usually one: validation rows and, dotted, training rows."""
    curves = learning_curves(paths, results)
    by_metric: dict[str, dict[str, list[LearningCurve]]] = {}
    for one in curves:
        of_model = by_metric.setdefault(one.metric, {}).setdefault(one.model, [])
        if len(of_model) < _MOST_CURVES:
            of_model.append(one)
    if not by_metric:
        return None
    shown = [one for lines in by_metric.values() for of_model in lines.values() for one in of_model]
    with_training = len({one.model for one in shown}) <= _MOST_WITH_TRAINING
    figures = []
    for metric, lines in by_metric.items():
        width = 9.2 if len(by_metric) == 1 else 6.2
        figure, axes = below_legend(width, 3.3, len(lines), _COLUMNS, left=0.75)
        _draw(axes, lines, looks(results), 24, with_training=with_training)
        _scales(axes, [one for of_model in lines.values() for one in of_model])
        axes.set(xlabel="seconds since the trial began to train", ylabel=metric_title(metric))
        legend_above(axes, _COLUMNS)
        figures.append(figure)
    caption = "Learning curves: the score on the validation rows during training, from its first measurement."
    caption += f" At most {_MOST_CURVES} trials of a model." if len(shown) < len(curves) else ""
    if with_training and any(np.isfinite(one.train).any() for one in shown):
        caption += " Dotted: on the training rows."
    caption += " The mark: the step that is kept." if any(one.kept is not None for one in shown) else ""
    if not all(one.exact for one in shown):
        caption += " Steps whose time is not known are spread evenly."
    return Picture(name="learning_curves", caption=caption, figures=figures)


def _draw(
    axes: Axes,
    lines: Mapping[str, Sequence[LearningCurve]],
    look: Mapping[str, ModelStyle],
    letters: int,
    *,
    with_training: bool = False,
) -> None:
    """The curves of each name in its look; the name, of so many letters, stands in the legend once."""
    for name, curves in lines.items():
        style = look[name]
        for number, one in enumerate(curves):
            label = None if number else short(name, letters)
            valid, at_s = one.valid, np.maximum(one.at_s, _LEAST_S)
            if np.isfinite(valid).any():
                marker = style.marker if np.isfinite(valid).sum() == 1 else None
                axes.plot(at_s, valid, **style.line, marker=marker, label=label)
            if with_training and np.isfinite(one.train).any():
                axes.plot(at_s, one.train, color=style.colour, linewidth=1.1, linestyle=(0, (1, 1.6)))
            if one.kept is not None and np.isfinite(valid[one.kept]):
                axes.plot(at_s[one.kept], valid[one.kept], **style.mark, markersize=7)


def _scales(axes: Axes, curves: Sequence[LearningCurve]) -> None:
    """Logarithms where otherwise one model would be a vertical line, or the end of a curve a flat one."""
    plain_numbers(axes.xaxis, axes.yaxis)
    lasting = [float(one.at_s[-1]) for one in curves if one.at_s[-1] > 0]
    if lasting and max(lasting) > _LONG_AGO * min(lasting):
        axes.set_xscale("log")
        plain_logs(axes.xaxis)
    else:
        axes.set_xlim(left=0)
    values = np.concatenate([one.valid for one in curves])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() > _STEEP * values.min():
        axes.set_yscale("log")
        plain_logs(axes.yaxis)


def run_styles(runs: Sequence[Compared]) -> Mapping[str, ModelStyle]:
    """A look for each run by its name: those of the palette's models, in its order."""
    found = list(styles(map(str, range(_OTHER_LOOKS))).values())
    return {run.name: found[place % len(found)] for place, run in enumerate(runs)}


def ranking(board: Board, look: Mapping[str, ModelStyle], number: int) -> Picture | None:
    """The models of several runs, in the colours of their runs; None without any model."""
    rest = len(board.entries) - _MOST_ROWS
    caption = (
        "Each model's value on the test rows with its 95 % interval; the dashed line is the reference. "
        "Intervals that overlap may still belong to a real difference: the table compares row by row."
        + (f" The best {_MOST_ROWS}; the table has {rest} more." if rest > 0 else "")
    )
    names = [f"{short(one.name, 16)} · {short(one.run, _LONGEST_RUN)}" for one in board.entries]
    return dots(f"ranks-{number}", board.entries, names, look, caption)


def curves_of_runs(board: Board, look: Mapping[str, ModelStyle], number: int) -> Picture | None:
    """A panel for each model name: the validation loss of every trial over the seconds of its training."""
    by_model: dict[str, dict[str, list[LearningCurve]]] = {}
    for run in board.runs:
        for one in learning_curves(run.paths, run.results):
            if one.exact and np.isfinite(one.valid).any():
                lines = by_model.setdefault(one.model, {})
                lines.setdefault(run.name, []).append(replace(one, kept=None))
    figures = []
    for model, lines in by_model.items():
        figure, axes = below_legend(4.4, 2.9, len(lines), top=0.2, left=0.75)
        axes.set_title(short(model, 30), pad=6 + 72 * legend_room(len(lines)))
        _draw(axes, lines, look, _LONGEST_RUN)
        metric = next(iter(lines.values()))[0].metric
        axes.set(xlabel="seconds of training", ylabel=f"{metric_title(metric)}, validation rows")
        axes.set_xlim(left=0)
        legend_above(axes)
        figures.append(figure)
    if not figures:
        return None
    caption = "Learning curves of all runs on one time axis, one line for each trial."
    return Picture(name=f"curves-{number}", caption=caption, figures=figures)


def score_for_time(board: Board, look: Mapping[str, ModelStyle], number: int) -> Picture | None:
    """The value on the test rows against the seconds of training; None with fewer than two such models."""
    of = [one for one in board.entries if one.fit_s and one.value is not None]
    if len(of) < 2:
        return None
    place_N2 = np.array([(one.fit_s, one.value) for one in of], dtype=np.float64)
    runs = list(dict.fromkeys(one.run for one in of))
    figure, axes = below_legend(5.6, 3.2, len(runs), left=0.85)
    for name in runs:
        own_N2 = place_N2[[one.run == name for one in of]]
        axes.plot(*own_N2.T, **look[name].mark, markersize=7, label=short(name, _LONGEST_RUN))
    for one, place in zip(of, place_N2, strict=True):
        axes.annotate(short(one.name, 16), place, xytext=(6, 4), textcoords="offset points", fontsize=8)
    if place_N2[:, 0].max() > 20 * place_N2[:, 0].min():
        axes.set_xscale("log")
    axes.margins(x=0.18, y=0.12)
    ylabel = f"{metric_title(board.metric)} ({_better(board.metric)} is better)"
    axes.set(xlabel="mean seconds to fit one trial", ylabel=ylabel)
    legend_above(axes)
    caption = "What the seconds of training bring: each model's value on the test rows."
    return Picture(name=f"time-{number}", caption=caption, figures=[figure])
