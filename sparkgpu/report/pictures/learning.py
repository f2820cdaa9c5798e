"""The score of each trial during training."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from sparkgpu.report.curves import LearningCurve
from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import styles
from sparkgpu.report.pictures.shared import short
from sparkgpu.words import metric_title


def learning_curves(models: Mapping[str, list[LearningCurve]], networks: Collection[str]) -> Picture | None:
    """One panel for each model: validation solid, training dotted, one line for each trial.

    A step is an epoch for the models in `networks`, and a tree for the others.
    """
    figures = []
    for model, curves in models.items():
        figure, axes = new_figure(4.2, 3.0, left=0.7, top=0.3)
        for number, curve in enumerate(curves):
            lines = ((curve.train, (0, (1, 1.2)), "train", 0.9), (curve.valid, "-", "valid", 1.4))
            for values, style, label, line_width in lines:
                if np.isfinite(values).any():
                    axes.plot(
                        curve.step, values, linestyle=style, linewidth=line_width,
                        color=styles(models)[model].colour, alpha=1.0 if len(curves) == 1 else 0.7,
                        label=label if number == 0 else None, marker="o" if len(curve.step) == 1 else None,
                    )  # fmt: skip
        axes.set_title(short(model, 24))
        axes.set(xlabel="epochs" if model in networks else "trees", ylabel=metric_title(curves[0].metric))
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
        figures.append(figure)
    caption = "Learning curves: the score of each trial on its training and validation rows during training."
    return picture("learning_curves", caption, figures, with_png=True) if figures else None
