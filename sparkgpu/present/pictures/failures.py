"""Where models fail: their loss in the worst groups of rows, and how alike their predictions are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkgpu.core.rundir.results import Results
from sparkgpu.core.words import capital, distinct, short
from sparkgpu.present.agreement import Agreement
from sparkgpu.present.failures import Weakness
from sparkgpu.present.figure import Picture
from sparkgpu.present.pictures.shared import (
    LETTER,
    below_legend,
    heat_map,
    legend_above,
    looks,
    plain_numbers,
    rows_down,
)
from sparkgpu.present.style import LINE

_MOST = 8
_STRONGEST = 0.6  # the shade on which figures are still readable


def segment_losses(
    found: Sequence[Weakness], shown: Sequence[str], results: Results, loss: str
) -> Picture | None:
    """The models' loss in the worst groups, with its interval, beside that on all other rows."""
    found = found[:_MOST]
    if not found:
        return None
    names = distinct([one.name for one in found], 44)
    left = 0.25 + LETTER * max(map(len, names))
    band = 0.16 * len(shown) + 0.2
    figure, axes = below_legend(max(9.2, left + 5.0), band * len(found) + 0.5, len(shown), 3, left=left)
    rows_down(axes, names)
    step = 0.16 / band
    for number, model in enumerate(shown):
        style = looks(results)[model]
        own = [(place, one.models[model]) for place, one in enumerate(found) if model in one.models]
        if not own:
            continue
        places = np.array([place for place, _ in own]) + step * (number - (len(shown) - 1) / 2)
        there = np.array([segment.loss for _, segment in own])
        low, high = np.array([segment.interval for _, segment in own]).T
        elsewhere = np.array([segment.loss_elsewhere for _, segment in own])
        axes.plot(elsewhere, places, **style.mark | {"marker": "|"}, markersize=7, markeredgewidth=1.6)
        axes.errorbar(
            there, places, xerr=(there - low, high - there), fmt=style.marker, markersize=5, linewidth=1.2,
            color=style.colour, label=short(model, 20),
        )  # fmt: skip
    between, across = np.arange(1, len(found)) - 0.5, axes.get_yaxis_transform()
    axes.hlines(between, 0, 1, transform=across, color=LINE.light, linewidth=0.7)
    axes.set_xlim(left=0)
    plain_numbers(axes.xaxis)
    axes.set_xlabel(loss)
    legend_above(axes, 3)
    caption = (
        f"{capital(loss)} in the worst groups of rows, with its interval; "
        "the upright line: on all other rows."
    )
    return Picture(name="segments", caption=caption, figures=[figure])


def agreement_map(found: Agreement) -> Picture | None:
    """A heat map with its numbers; None for two models, of which one number says all."""
    if len(found.models) < 3:
        return None
    least = float(found.alike_MM.min())
    decimals, letters = (2, 9) if least < 0.98 else (3, 8)
    texts = {place: f"{value:.{decimals}f}" for place, value in np.ndenumerate(found.alike_MM)}
    opacity_MM = _STRONGEST * (found.alike_MM - least) / max(1 - least, 1e-9)
    figure, _, _ = heat_map(distinct(found.models, 18), opacity_MM, texts, 0.5, letters=letters)
    caption = f"How alike the models are: {found.what}."
    return Picture(name="agreement", caption=caption, figures=[figure])
