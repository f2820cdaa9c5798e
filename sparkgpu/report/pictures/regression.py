"""A number as the target: what is predicted against what is true."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkgpu.report.curves import TestRows
from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import styles
from sparkgpu.report.pictures.shared import diagonal, drawn_from, short
from sparkgpu.table.schema import TableSchema

_MOST_DOTS = 3000  # up to this many rows a scatter shows more than a density


def predicted_against_true(test: TestRows, schema: TableSchema, models: Sequence[str], note: str) -> Picture:
    """One panel for each model: a scatter, or a density of many rows."""
    label_N = np.asarray(test.labels.label_N, dtype=np.float64)
    means = [test.mean(model) for model in models]
    # A few extreme values would squeeze all others into a corner.
    low, high = np.quantile(np.concatenate([label_N, *means]), (0.001, 0.999))
    margin = 0.03 * (high - low) or 1.0
    low, high = low - margin, high + margin
    figures, outside = [], 0
    for model, mean_N in zip(models, means, strict=True):
        figure, axes = new_figure(3.8, 3.9, left=0.7, top=0.3)
        seen_N = (np.minimum(label_N, mean_N) >= low) & (np.maximum(label_N, mean_N) <= high)
        outside = max(outside, int((~seen_N).sum()))
        diagonal(axes, low, high)
        style = styles(models)[model]
        if len(label_N) <= _MOST_DOTS:
            axes.scatter(
                label_N[seen_N],
                mean_N[seen_N],
                s=6,
                color=style.colour,
                alpha=0.35,
                linewidths=0,
                rasterized=True,
            )
        else:
            counts, edges, _ = np.histogram2d(label_N, mean_N, bins=90, range=((low, high), (low, high)))
            logs = np.log(np.where(counts > 0, counts, np.nan)).T
            axes.pcolormesh(edges, edges, logs, cmap="viridis_r", rasterized=True)
        axes.set_title(short(model, 24))
        axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
        axes.set(xlabel=f"true {short(schema.target, 30)}", ylabel=f"predicted {short(schema.target, 30)}")
        figures.append(figure)
    density = " Darker: more rows, on a logarithmic scale." if len(label_N) > _MOST_DOTS else ""
    beyond = f" Outside the frame: {outside:,} rows." if outside else ""
    caption = f"Predicted against true values on the test split; on the line they agree.{density}{beyond}"
    return picture("predicted_vs_true", caption + note + drawn_from(test), figures, with_png=True)
