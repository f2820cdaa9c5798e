"""Several classes: which are taken for which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkgpu.report.curves import TestRows, confusion
from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import COLOURS, TEXT
from sparkgpu.report.pictures.shared import drawn_from, short
from sparkgpu.table.schema import TableSchema

_MOST_CLASSES = 30
_NAMED_CLASSES = 12  # up to this many classes the cells of a confusion matrix have room for figures


def confusion_matrices(test: TestRows, schema: TableSchema, models: Sequence[str], note: str) -> Picture:
    """One panel for each model: shares of each true class."""
    shares = [confusion(test.labels, test.mean(model)) for model in models]
    counts = np.bincount(test.labels.label_N.astype(np.int64), minlength=len(schema.classes))
    shown = np.sort(np.argsort(-counts, kind="stable")[:_MOST_CLASSES])
    names = [short(schema.classes[code]) for code in shown]
    upright = len(names) > 4
    longest = 0.075 * max(map(len, names))  # approximate inches of a label
    size = 2.9 if len(names) <= _NAMED_CLASSES else 3.8
    left, bottom = 0.4 + longest, 0.4 + (longest if upright else 0.15)
    figures = []
    for model, share in zip(models, shares, strict=True):
        figure, axes = new_figure(
            size + left + 0.1, size + bottom + 0.3, left=left, right=0.1, bottom=bottom, top=0.3
        )
        part = share[np.ix_(shown, shown)]
        image = np.zeros((*part.shape, 4))
        image[:, :, :3] = [int(COLOURS[0].light[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        image[:, :, 3] = 0.75 * part
        axes.imshow(image, interpolation="none")
        axes.grid(visible=False)
        axes.set_title(short(model, 24))
        axes.set(xlabel="predicted", ylabel="true")
        axes.set_xticks(range(len(names)), names, rotation=90 if upright else 0)
        axes.set_yticks(range(len(names)), names)
        if len(names) <= _NAMED_CLASSES:
            for (row, column), value in np.ndenumerate(part):
                if value >= 0.005:
                    axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=TEXT.light)
        figures.append(figure)
    left_out = len(schema.classes) - len(shown)
    most = f" The {len(shown)} most frequent of {len(schema.classes)} classes." if left_out else ""
    averaged = " Predictions averaged over trials." if max(map(len, test.trials.values())) > 1 else ""
    caption = f"Confusion on the test split, in per cent of each true class (rows).{most}{averaged}"
    return picture("confusion_matrix", caption + note + drawn_from(test), figures, with_png=True)
