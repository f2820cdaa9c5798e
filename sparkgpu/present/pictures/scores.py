"""How good the models are: their values with intervals, during training, and against the time of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.results import Results
from sparkgpu.core.words import capital, metric_title, number_text, short
from sparkgpu.present.compare import Board, Compared
from sparkgpu.present.curves import LearningCurve, learning_curves
from sparkgpu.present.entries import Entry, contestants, entries, ranked
from sparkgpu.present.figure import Picture, new_figure, picture
from sparkgpu.present.pictures.shared import (
    LETTER,
    legend_above,
    legend_room,
    looks,
    plain_logs,
    plain_numbers,
    spaced_numbers,
)
from sparkgpu.present.style import SOFT, ModelStyle, styles
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
_LETTERS_PER_INCH = 13.0  # of a legend
_HANDLE = 7  # as wide as so many letters
_NEAR = 0.06  # of the picture: where one model's name stands already, another would lie on it
_OTHER_LOOKS = 10  # beside those of trees, network and blend


def leaderboard(found: Results, intervals: Mapping[str, Interval]) -> Picture | None:
    """The models by their main metric, the best on top; small marks are their trials."""
    of = ranked(found.comparison.metric, contestants(entries(found, intervals=intervals)))
    trials = {one.name: _of_trials(one) for one in of if one.model.averaged}
    whiskers = ", with its 95 % interval" if intervals else ""
    marks = " Small marks: its trials." if any(trials.values()) else ""
    title = capital(metric_title(found.comparison.metric))
    caption = f"{title} of each model on the test rows{whiskers}.{marks}"
    names = [short(one.name, 18) for one in of]
    styles_of = [looks(found)[one.name] for one in of]
    return dots("leaderboard", of, names, styles_of, caption, width=4.0, trials=trials)


def with_leader(found: Results, intervals: Mapping[str, Interval]) -> Picture | None:
    """The same alone, with the leader as the reference."""
    of = [
        replace(one, is_reference=one.name == found.comparison.leader)
        for one in ranked(found.comparison.metric, contestants(entries(found, intervals=intervals)))
    ]
    caption = (
        "Each model's value on the test rows with its 95 % interval; the dashed line is the leader on the "
        "validation rows."
    )
    styles_of = [looks(found)[one.name] for one in of]
    return dots("ranks", of, [short(one.name, 24) for one in of], styles_of, caption)


def _of_trials(one: Entry) -> list[float]:
    values = (trial.metrics.test.get(one.results.comparison.metric) for trial in one.trials)
    return [value for value in values if value is not None]


def dots(
    name: str,
    of: Sequence[Entry],
    names: Sequence[str],
    styles_of: Sequence[ModelStyle],
    caption: str,
    *,
    width: float = 5.2,
    trials: Mapping[str, Sequence[float]] | None = None,
) -> Picture | None:
    """A dot for each value on the test rows, with whiskers; a dashed line goes through the reference.

    From the top down, at most `_MOST_ROWS`; None without any. `width`: inches beside the names. `trials` are
    values of a model's trials, drawn as small marks below it.
    """
    of = of[:_MOST_ROWS]
    if not of:
        return None
    values = [number_text(one.value) for one in of]
    left = 0.25 + 0.085 * max(map(len, names[:_MOST_ROWS]))
    right = max(0.7, 0.2 + LETTER * max(map(len, values)))
    figure, axes = new_figure(left + width, 0.75 + _ROW * len(of), left=left, right=right, top=0.1)
    for place, (one, style) in enumerate(zip(of, styles_of, strict=False)):
        assert one.value is not None
        if one.ci95[0] is not None:
            axes.plot(one.ci95, [place, place], color=style.colour, linewidth=1.6)
            axes.plot(one.ci95, [place, place], color=style.colour, marker="|", markersize=7, linestyle="")
        if parts := (trials or {}).get(one.name):
            below = [place + 0.3] * len(parts)
            axes.plot(parts, below, color=SOFT.light, marker="|", markersize=4, linestyle="")
        axes.plot([one.value], [place], color=style.colour, marker=style.marker, markersize=6, linestyle="")
        axes.annotate(
            values[place], (1.0, place), xycoords=("axes fraction", "data"), xytext=(6, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
        if one.is_reference:
            axes.axvline(one.value, color=SOFT.light, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.set_yticks(range(len(of)), names[: len(of)])
    axes.set_ylim(len(of) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    metric = of[0].results.comparison.metric
    axes.set_xlabel(f"{metric_title(metric)} on the test rows ({_better(metric)} is better)")
    spaced_numbers(axes.xaxis, width - right)
    return picture(name, caption, [figure], with_png=True)


def _better(metric: str) -> str:
    return "greater" if greater_is_better(metric) else "smaller"


def learning(paths: RunPaths, results: Results) -> Picture | None:
    """A panel for each metric that trials report, usually one: validation rows and, dotted, training rows."""
    curves = learning_curves(paths, results)
    shown = [one for model in results.models for one in _of_model(curves, model.name)[:_MOST_CURVES]]
    metrics = list(dict.fromkeys(one.metric for one in shown))
    with_training = len({one.model for one in shown}) <= _MOST_WITH_TRAINING
    figures = []
    for metric in metrics:
        here = [one for one in shown if one.metric == metric]
        names = list(dict.fromkeys(one.model for one in here))
        room = legend_room(len(names), _COLUMNS)
        figure, axes = new_figure(9.2 if len(metrics) == 1 else 6.2, 3.3 + room, left=0.75, top=room)
        for name in names:
            for number, one in enumerate(_of_model(here, name)):
                label = short(name, 24) if number == 0 else None
                _draw(axes, one, looks(results)[name], label, with_training)
        _scales(axes, here)
        axes.set(xlabel="seconds since the trial began to train", ylabel=metric_title(metric))
        legend_above(axes, _COLUMNS)
        figures.append(figure)
    if not figures:
        return None
    caption = "Learning curves: the score on the validation rows during training, from its first measurement."
    caption += f" At most {_MOST_CURVES} trials of a model." if len(shown) < len(curves) else ""
    if with_training and any(np.isfinite(one.train).any() for one in shown):
        caption += " Dotted: on the training rows."
    caption += " The mark: the step that is kept." if any(one.kept is not None for one in shown) else ""
    if not all(one.exact for one in shown):
        caption += " Steps whose time is not known are spread evenly."
    return picture("learning_curves", caption, figures, with_png=True)


def _of_model(curves: Sequence[LearningCurve], model: str) -> list[LearningCurve]:
    return [one for one in curves if one.model == model]


def _draw(axes: Axes, one: LearningCurve, style: ModelStyle, label: str | None, with_training: bool) -> None:
    valid, at_s = one.valid, np.maximum(one.at_s, _LEAST_S)
    if np.isfinite(valid).any():
        marker = style.marker if np.isfinite(valid).sum() == 1 else None
        axes.plot(at_s, valid, color=style.colour, linestyle=style.line, marker=marker, label=label)
    if with_training and np.isfinite(one.train).any():
        axes.plot(at_s, one.train, color=style.colour, linewidth=1.1, linestyle=(0, (1, 1.6)))
    if one.kept is not None and np.isfinite(valid[one.kept]):
        axes.plot(at_s[one.kept], valid[one.kept], color=style.colour, marker=style.marker, markersize=7)


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
    elif len(values):
        least, usual = float(values.min()), float(np.quantile(values, 0.9))
        if usual > least and values.max() > least + 4 * (usual - least):
            axes.set_ylim(top=least + 3 * (usual - least))  # a few steep first steps would flatten the rest


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
    return dots(f"ranks-{number}", board.entries, names, [look[one.run] for one in board.entries], caption)


def curves_of_runs(board: Board, look: Mapping[str, ModelStyle], number: int) -> Picture | None:
    """A panel for each model name: the validation loss of every trial over the seconds of its training."""
    found: dict[str, list[tuple[str, LearningCurve]]] = {}
    for run in board.runs:
        for one in learning_curves(run.paths, run.results):
            if one.exact and np.isfinite(one.valid).any():
                found.setdefault(one.model, []).append((run.name, one))
    figures = []
    for model, lines in found.items():
        names = list(dict.fromkeys(name for name, _ in lines))
        columns = _legend_columns(3.6, names)
        room = legend_room(len(names), columns) + 0.2
        figure, axes = new_figure(4.4, 2.9 + room, left=0.75, top=room)
        axes.set_title(short(model, 30), pad=6 + 72 * legend_room(len(names), columns))
        for name in names:
            label: str | None = short(name, _LONGEST_RUN)
            for of_run, one in lines:
                if of_run == name:
                    known = np.isfinite(one.valid)
                    axes.plot(
                        one.at_s[known], one.valid[known], color=look[name].colour, linewidth=1.4,
                        linestyle=look[name].line, label=label,
                        marker=look[name].marker if known.sum() == 1 else None,
                    )  # fmt: skip
                    axes.set_ylabel(f"{metric_title(one.metric)}, validation rows")
                    label = None
        axes.set_xlabel("seconds of training")
        axes.set_xlim(left=0)
        legend_above(axes, columns)
        figures.append(figure)
    if not figures:
        return None
    caption = "Learning curves of all runs on one time axis, one line for each trial."
    return picture(f"curves-{number}", caption, figures)


def score_for_time(board: Board, look: Mapping[str, ModelStyle], number: int) -> Picture | None:
    """The value on the test rows against the seconds of training; None with fewer than two such models."""
    of = [(one, one.fit_s, one.value) for one in board.entries if one.fit_s and one.value is not None]
    if len(of) < 2:
        return None
    runs = list(dict.fromkeys(one.run for one, _, _ in of))
    columns = _legend_columns(4.6, runs)
    room = legend_room(len(runs), columns)
    figure, axes = new_figure(5.6, 3.2 + room, left=0.85, top=room)
    for name in runs:
        seconds, values = zip(*((fit_s, value) for one, fit_s, value in of if one.run == name), strict=True)
        style, label = look[name], short(name, _LONGEST_RUN)
        axes.plot(
            seconds, values, color=style.colour, marker=style.marker, markersize=7, linestyle="", label=label
        )
    place_N2 = np.array([(fit_s, value) for _, fit_s, value in of])
    for row in _apart([one.name for one, _, _ in of], place_N2):
        axes.annotate(
            short(of[row][0].name, 16), place_N2[row], xytext=(6, 4), textcoords="offset points", fontsize=8
        )
    if place_N2[:, 0].max() > 20 * place_N2[:, 0].min():
        axes.set_xscale("log")
    axes.margins(x=0.18, y=0.12)
    ylabel = f"{metric_title(board.metric)} ({_better(board.metric)} is better)"
    axes.set(xlabel="mean seconds to fit one trial", ylabel=ylabel)
    legend_above(axes, columns)
    caption = "What the seconds of training bring: each model's value on the test rows."
    return picture(f"time-{number}", caption, [figure])


def _legend_columns(width: float, names: Sequence[str]) -> int:
    """How many names of a legend stand beside each other in so many inches."""
    longest = min(max(map(len, names), default=0), _LONGEST_RUN)
    return max(1, min(3, len(names), int(width * _LETTERS_PER_INCH / (longest + _HANDLE))))


def _apart(names: Sequence[str], place_N2: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[int]:
    """The places whose name does not lie on that of the same model of another run."""
    place_N2 = (place_N2 - place_N2.min(axis=0)) / np.maximum(np.ptp(place_N2, axis=0), 1e-12)
    kept: list[int] = []
    for row, name in enumerate(names):
        same = [other for other in kept if names[other] == name]
        if all(np.abs(place_N2[row] - place_N2[other]).max() > _NEAR for other in same):
            kept.append(row)
    return kept
