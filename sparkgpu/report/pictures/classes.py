"""Several classes: which are taken for which, and how many rows of each are found. C classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from sparkgpu.report.curves import TestRows, confusion
from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import COLOURS, LINE, TEXT, styles
from sparkgpu.report.pictures.shared import (
    LETTER,
    averaged_over_trials,
    best_few,
    distinct,
    drawn_from,
    legend_above,
    legend_room,
    short,
    with_predictions,
)
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema

_MOST_CLASSES = 100
_NAMED_CLASSES = 12  # up to this many classes the cells have room for figures
_MOST_RECALLS = 40
_RIGHT, _WRONG = COLOURS[0].light, COLOURS[1].light


def confusion_matrices(
    test: TestRows, schema: TableSchema, values: Mapping[str, float | None]
) -> Picture | None:
    """One panel for each of the best models: shares of each true class. None without predictions.

    More classes than have room for figures are ordered so that those that are taken for each other are
    neighbours.
    """
    counts_C = _rows_of(test, schema)
    shown = np.sort(np.argsort(-counts_C, kind="stable")[:_MOST_CLASSES])
    num_shown = len(shown)
    models, note = best_few(test, "multiclass", values, 4 if num_shown <= 30 else 2 if num_shown <= 60 else 1)
    if not models or not counts_C.any():
        return None
    shares = [confusion(test.labels, test.mean(model)) for model in models]
    if num_shown > _NAMED_CLASSES:
        shown = shown[_neighbours(np.mean(shares, axis=0)[np.ix_(shown, shown)])]
    names = distinct([schema.classes[code] for code in shown], 12)
    size, letters = _size(num_shown)
    upright = num_shown > 4
    longest = LETTER * letters / 9 * max(map(len, names))
    left, bottom = 0.4 + longest, 0.42 + (longest if upright else 0.15)
    figures = []
    for model, share_CC in zip(models, shares, strict=True):
        figure, axes = new_figure(
            size + left + 0.1, size + bottom + 0.3, left=left, right=0.1, bottom=bottom, top=0.3
        )
        _matrix(axes, share_CC[np.ix_(shown, shown)])
        axes.set_title(short(model, 26))
        axes.set(xlabel="predicted", ylabel="true")
        axes.set_xticks(range(num_shown), names, rotation=90 if upright else 0, fontsize=letters)
        axes.set_yticks(range(num_shown), names, fontsize=letters)
        axes.tick_params(length=0, pad=2)
        figures.append(figure)
    left_out = len(schema.classes) - num_shown
    most = f" The {num_shown} most frequent of {len(schema.classes)} classes." if left_out else ""
    order = "; classes that are taken for each other are neighbours" if num_shown > _NAMED_CLASSES else ""
    caption = (
        "Confusion, in per cent of each true class (rows): right in blue, wrong in orange, stronger for more"
        f"{order}.{most}{averaged_over_trials(test)}{note}{drawn_from(test)}"
    )
    return picture("confusion_matrix", caption, figures, with_png=True)


def recalls(test: TestRows, schema: TableSchema, values: Mapping[str, float | None]) -> Picture | None:
    """The share of each class's rows that each model finds, the worst class first."""
    models = with_predictions(test, values)
    counts_C = _rows_of(test, schema)
    there = np.flatnonzero(counts_C)
    if not models or len(there) < 2:
        return None
    recall_MC = np.array([np.diag(confusion(test.labels, test.mean(model))) for model in models])
    shown = there[np.argsort(recall_MC[:, there].mean(axis=0), kind="stable")][:_MOST_RECALLS]
    names = distinct([schema.classes[code] for code in shown], 26)
    left = 0.25 + LETTER * max(map(len, names))
    room = legend_room(len(models), 3)
    height = max(0.18 * len(shown), 0.5)
    figure, axes = new_figure(4.2 + left, height + 0.55 + room, left=left, top=room, bottom=0.55)
    places = np.arange(len(shown))
    across_MC = 100 * recall_MC[:, shown]
    axes.hlines(places, across_MC.min(axis=0), across_MC.max(axis=0), color=LINE.light, linewidth=2.5)
    for model, recall_C in zip(models, across_MC, strict=True):
        style = styles(values)[model]
        axes.plot(
            recall_C, places, linestyle="", marker=style.marker, markersize=5, color=style.colour,
            markerfacecolor="none" if len(models) > 3 else style.colour, label=short(model, 20),
            clip_on=False,
        )  # fmt: skip
    axes.set_yticks(places, names)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.set_xlim(max(0.0, 5 * np.floor(across_MC.min() / 5 - 0.5)), 100)
    axes.set_xlabel("recall: per cent of the class's rows that are found")
    legend_above(axes, 3)
    left_out = len(there) - len(shown)
    most = f" The {len(shown)} worst of {len(there)} classes." if left_out else ""
    return picture("recalls", f"Recall of each class, the worst first.{most}{drawn_from(test)}", [figure])


def _rows_of(test: TestRows, schema: TableSchema) -> FloatArray:
    label_N = test.labels.label_N.astype(np.int64)
    return np.bincount(label_N, test.labels.counts(), len(schema.classes)).astype(np.float64)


def _size(num_classes: int) -> tuple[float, float]:
    """Inches of a matrix, and the size of its letters."""
    if num_classes <= _NAMED_CLASSES:
        return max(2.3, 0.34 * num_classes), 9
    if num_classes <= 30:
        return 4.2, 8
    return (6.0, 7) if num_classes <= 60 else (8.4, 6)


def _matrix(axes: Axes, share_CC: FloatArray) -> None:
    num_classes = len(share_CC)
    image = np.zeros((num_classes, num_classes, 4))
    for colour, cells in ((_WRONG, ~np.eye(num_classes, dtype=bool)), (_RIGHT, np.eye(num_classes) > 0)):
        image[cells, :3] = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    # The square root shows rare mistakes, too; figures on the strongest shade must stay readable.
    image[:, :, 3] = (0.55 if num_classes <= _NAMED_CLASSES else 0.9) * np.sqrt(share_CC)
    axes.imshow(image, interpolation="none", aspect="auto")
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set(visible=True, color=LINE.light)
    if num_classes <= _NAMED_CLASSES:
        for (row, column), value in np.ndenumerate(share_CC):
            if value >= 0.005:
                axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=TEXT.light)


def _neighbours(share_CC: FloatArray) -> NDArray[np.int64]:
    """The classes in an order that puts those beside each other that are taken for each other."""
    from scipy.cluster.hierarchy import leaves_list, linkage  # a part of a second to import
    from scipy.spatial.distance import squareform

    taken_CC = np.sqrt((share_CC + share_CC.T) / 2)
    np.fill_diagonal(taken_CC, 1.0)
    apart = squareform(1 - np.clip(taken_CC, 0, 1), checks=False)
    return np.asarray(leaves_list(linkage(apart, "average")), dtype=np.int64)
