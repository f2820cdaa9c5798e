"""The pictures of several runs: one colour and marker for each run, and one place or panel for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sparkgpu.comparison.board import Board, Entry
from sparkgpu.comparison.runs import Compared
from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import ModelStyle, styles
from sparkgpu.report.pictures.ranks import MOST_RANKS, Rank, ranks
from sparkgpu.report.pictures.shared import legend_above, legend_room, short
from sparkgpu.rundir.curve import read_curve
from sparkgpu.score.metrics import greater_is_better
from sparkgpu.words import metric_title

_MOST_POINTS = 300  # of a curve
_MOST_NAME = 28
_MOST_COLUMNS = 3
_LETTERS_PER_INCH = 13.0  # of a legend
_HANDLE = 7  # as wide as so many letters
_NEAR = 0.06  # of the picture: where one model's name stands already, another would lie on it
_OTHER_LOOKS = 10  # beside those of trees, network and blend


def run_styles(runs: Sequence[Compared]) -> Mapping[str, ModelStyle]:
    """A look for each run by its name: those of the palette's models, in its order."""
    looks = list(styles(map(str, range(_OTHER_LOOKS))).values())
    return {run.name: looks[place % len(looks)] for place, run in enumerate(runs)}


def ranking(board: Board, looks: Mapping[str, ModelStyle], number: int) -> Picture | None:
    """Each model's value on the test rows with its 95 % interval; None without any model."""
    rows = [
        Rank(
            name=f"{short(entry.line.model, 16)} · {short(entry.line.run, _MOST_NAME)}", value=entry.value,
            ci95=entry.ci95, style=looks[entry.line.run], is_reference=entry.is_reference,
        )
        for entry in board.entries
    ]  # fmt: skip
    rest = len(rows) - MOST_RANKS
    caption = (
        "Each model's value on the test rows with its 95 % interval; the dashed line is the reference. "
        "Intervals that overlap may still belong to a real difference: the table compares row by row."
        + (f" The best {MOST_RANKS}; the table has {rest} more." if rest > 0 else "")
    )
    return ranks(f"ranks-{number}", board.metric, rows, caption)


def curves(board: Board, looks: Mapping[str, ModelStyle], number: int) -> Picture | None:
    """A panel for each model name: the validation loss of every trial over the seconds of its training."""
    found: dict[str, list[tuple[str, str, list[float], list[float]]]] = {}
    for run in board.runs:
        for trial in run.results.trials:
            metric, points = read_curve(run.paths.trial(trial.name).learning_curve)
            known = [
                (point.elapsed_s, point.valid)
                for point in points
                if point.elapsed_s is not None and point.valid is not None
            ]
            known = known[:: -(-len(known) // _MOST_POINTS) or 1]
            if known:
                seconds, values = (list(column) for column in zip(*known, strict=True))
                found.setdefault(trial.model, []).append((run.name, metric, seconds, values))
    figures = []
    for model, lines in found.items():
        names = list(dict.fromkeys(name for name, *_ in lines))
        columns = _columns(3.6, names)
        room = legend_room(len(names), columns) + 0.2
        figure, axes = new_figure(4.4, 2.9 + room, left=0.75, top=room)
        axes.set_title(short(model, 30), pad=6 + 72 * legend_room(len(names), columns))
        for place, (name, metric, seconds, values) in enumerate(lines):
            style = looks[name]
            first = all(other != name for other, *_ in lines[:place])
            axes.plot(
                seconds, values, color=style.colour, linestyle=style.line, linewidth=1.4,
                marker=style.marker if len(seconds) == 1 else None,
                label=short(name, _MOST_NAME) if first else None,
            )  # fmt: skip
            axes.set_ylabel(f"{metric_title(metric)}, validation rows")
        axes.set_xlabel("seconds of training")
        axes.set_xlim(left=0)
        legend_above(axes, columns)
        figures.append(figure)
    if not figures:
        return None
    caption = "Learning curves of all runs on one time axis, one line for each trial."
    return picture(f"curves-{number}", caption, figures)


def score_for_time(board: Board, looks: Mapping[str, ModelStyle], number: int) -> Picture | None:
    """The value on the test rows against the seconds of training; None with fewer than two such models."""
    entries = [entry for entry in board.entries if entry.line.fit_s]
    if len(entries) < 2:
        return None
    runs = list(dict.fromkeys(entry.line.run for entry in entries))
    columns = _columns(4.6, runs)
    room = legend_room(len(runs), columns)
    figure, axes = new_figure(5.6, 3.2 + room, left=0.85, top=room)
    for place, entry in enumerate(entries):
        style = looks[entry.line.run]
        first = all(other.line.run != entry.line.run for other in entries[:place])
        axes.plot(
            [entry.line.fit_s or 0.0], [entry.value], color=style.colour, marker=style.marker,
            markersize=7, linestyle="", label=short(entry.line.run, _MOST_NAME) if first else None,
        )  # fmt: skip
    seconds = np.array([entry.line.fit_s for entry in entries], dtype=float)
    for entry in _apart(entries):
        axes.annotate(
            short(entry.line.model, 16), (entry.line.fit_s or 0.0, entry.value),
            xytext=(6, 4), textcoords="offset points", fontsize=8,
        )  # fmt: skip
    if seconds.max() > 20 * seconds.min():
        axes.set_xscale("log")
    axes.margins(x=0.18, y=0.12)
    better = "greater" if greater_is_better(board.metric) else "smaller"
    axes.set(
        xlabel="mean seconds to fit one trial", ylabel=f"{metric_title(board.metric)} ({better} is better)"
    )
    legend_above(axes, columns)
    caption = "What the seconds of training bring: each model's value on the test rows."
    return picture(f"time-{number}", caption, [figure])


def _columns(width: float, names: Sequence[str]) -> int:
    """How many names of a legend stand beside each other in so many inches."""
    longest = min(max(map(len, names), default=0), _MOST_NAME)
    return max(1, min(_MOST_COLUMNS, len(names), int(width * _LETTERS_PER_INCH / (longest + _HANDLE))))


def _apart(entries: Sequence[Entry]) -> list[Entry]:
    """Those whose name does not lie on that of the same model of another run."""
    place_N2 = np.array([(entry.line.fit_s or 0.0, entry.value) for entry in entries])
    place_N2 = (place_N2 - place_N2.min(axis=0)) / np.maximum(np.ptp(place_N2, axis=0), 1e-12)
    kept: list[int] = []
    for number, entry in enumerate(entries):
        same = [other for other in kept if entries[other].line.model == entry.line.model]
        if all(np.abs(place_N2[number] - place_N2[other]).max() > _NEAR for other in same):
            kept.append(number)
    return [entries[number] for number in kept]
