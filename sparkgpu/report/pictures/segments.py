"""The worst groups of rows: the models' loss there, with its interval, beside that on all other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkgpu.report.failures import Weakness
from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import LINE, styles
from sparkgpu.report.pictures.shared import (
    LETTER,
    distinct,
    legend_above,
    legend_room,
    plain_numbers,
    short,
)

_MOST = 8


def segment_losses(
    found: Sequence[Weakness], shown: Sequence[str], models: Sequence[str], loss: str
) -> Picture | None:
    """Of the models `shown`, which are some of the run's `models`."""
    found = found[:_MOST]
    if not found:
        return None
    names = distinct([one.name for one in found], 44)
    left = 0.25 + LETTER * max(map(len, names))
    room = legend_room(len(shown), 3)
    band = 0.16 * len(shown) + 0.2
    figure, axes = new_figure(
        max(9.2, left + 5.0), band * len(found) + 0.5 + room, left=left, top=room, bottom=0.5
    )
    step = 0.16 / band
    for number, model in enumerate(shown):
        style = styles(models)[model]
        own = [(place, one.models[model]) for place, one in enumerate(found) if model in one.models]
        if not own:
            continue
        places = np.array([place for place, _ in own]) + step * (number - (len(shown) - 1) / 2)
        there = np.array([segment.loss for _, segment in own])
        low, high = np.array([segment.interval for _, segment in own]).T
        elsewhere = np.array([segment.loss_elsewhere for _, segment in own])
        axes.plot(
            elsewhere, places, linestyle="", marker="|", markersize=7, markeredgewidth=1.6, color=style.colour
        )
        axes.errorbar(
            there, places, xerr=(there - low, high - there), fmt=style.marker, markersize=5, linewidth=1.2,
            color=style.colour, label=short(model, 20),
        )  # fmt: skip
    axes.hlines(
        np.arange(1, len(found)) - 0.5,
        0,
        1,
        transform=axes.get_yaxis_transform(),
        color=LINE.light,
        linewidth=0.7,
    )
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(found)), names)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(left=0)
    plain_numbers(axes.xaxis)
    axes.set_xlabel(loss)
    legend_above(axes, 3)
    caption = (
        f"{loss[0].upper()}{loss[1:]} in the worst groups of rows, with its interval; "
        "the upright line: on all other rows."
    )
    return picture("segments", caption, [figure])
