"""Classes: ROC, precision and gains of two; which of several are taken for which; calibration.

C classes, M models, B bins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparkgpu.core.rundir.results import Results
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import distinct, number_text, short
from sparkgpu.present.curves import confusion, gains, precision_recall, roc
from sparkgpu.present.figure import Picture, new_figure
from sparkgpu.present.pictures.shared import (
    LETTER,
    below_legend,
    best_few,
    diagonal,
    legend_above,
    looks,
    notes_on,
    rows_down,
    shaded,
    with_predictions,
)
from sparkgpu.present.style import COLOURS, LINE, SOFT, TEXT
from sparkgpu.score.calibration import reliability, scaled
from sparkgpu.score.predictions import Labels, ModelPredictions
from sparkgpu.score.rows import FloatArray

_SIZE = 4.5
_MOST_BINS = 10
_ROWS_OF_A_BIN = 40  # on average; far fewer give a line of chance
_LEAST_SHARE = 0.01  # a bin with less of the rows is not drawn
_MOST_TWICE = 3  # more models with two lines each could not be told apart
_MOST_CLASSES = 100
_NAMED_CLASSES = 12  # up to this many classes the cells have room for figures
_MOST_RECALLS = 40
_RIGHT, _WRONG = COLOURS[0].light, COLOURS[1].light


def two_classes(test: ModelPredictions, schema: TableSchema, results: Results) -> list[Picture]:
    """ROC, precision at each recall, and cumulative gains, if there are rows of both; and reliability."""
    models, counts_N = with_predictions(test, results), test.labels.counts()
    is_positive_N = test.labels.label_N == 1
    if not models or len(np.unique(is_positive_N[counts_N > 0])) < 2:
        return _reliability(test, schema, results)
    share = float(np.average(is_positive_N, weights=counts_N))
    reached = {model.name: (model.averaged or model.metrics).test for model in results.models}

    def curves(
        curve: Callable[[Labels, FloatArray], tuple[FloatArray, FloatArray]], value: Callable[[str], str]
    ) -> tuple[Figure, Axes]:
        """The models' curves from 0 to 1, with a value of each in the legend."""
        figure, axes = below_legend(_SIZE, _SIZE - 0.1, len(models))
        for model in models:
            across, up = curve(test.labels, test.values[model][:, 1])
            label = f"{short(model, 24)}, {value(model)}"
            axes.plot(across, up, **looks(results)[model].line, label=label)
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        legend_above(axes)
        return figure, axes

    def lift(model: str) -> str:
        looked_at, share_found = gains(test.labels, test.values[model][:, 1])
        of_tenth = float(np.interp(0.1, looked_at, share_found)) / 0.1
        return f"lift of the first tenth {number_text(of_tenth, 3)}"

    roc_figure, axes = curves(roc, lambda model: f"area {number_text(reached[model].get('roc_auc'))}")
    diagonal(axes)
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    precision_figure, axes = curves(
        precision_recall,
        lambda model: f"average {number_text(reached[model].get('average_precision'))}",
    )
    axes.axhline(share, color=SOFT.light, linewidth=0.8, zorder=1)
    axes.set(xlabel="recall: share of the positives that are found", ylabel="precision")
    gains_figure, axes = curves(gains, lift)
    axes.plot([0, share, 1], [0, 1, 1], color=SOFT.light, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    diagonal(axes)
    axes.set(xlabel="share of rows looked at, the surest first", ylabel="share of the positives found")
    captions = {
        "roc_curves": f"ROC curves; the positive class is {short(schema.classes[1], 40)}.",
        "precision_recall": f"Precision and recall; guessing reaches {100 * share:.3g} %.",
        "gains": "Cumulative gains: between guessing (diagonal) and the best possible (dotted). "
        "A lift of 2 finds twice as many positives as guessing.",
    }
    return [
        Picture(name=name, caption=caption + notes_on(test, results), figures=[figure])
        for (name, caption), figure in zip(
            captions.items(), (roc_figure, precision_figure, gains_figure), strict=True
        )
    ] + _reliability(test, schema, results)


def several_classes(test: ModelPredictions, schema: TableSchema, results: Results) -> list[Picture]:
    """Confusion matrices, the recall of each class, and reliability; none without rows."""
    counts_C = np.bincount(
        test.labels.label_N.astype(np.int64), test.labels.counts(), len(schema.classes)
    ).astype(np.float64)
    if not test.values or not counts_C.any():
        return []
    return [
        _confusion_matrices(test, schema, results, counts_C),
        *_recalls(test, schema, results, counts_C),
        *_reliability(test, schema, results),
    ]


def _reliability(test: ModelPredictions, schema: TableSchema, results: Results) -> list[Picture]:
    """Probability against truth, as predicted and (thin) before temperature scaling."""
    models = with_predictions(test, results)
    if not models or not test.labels.counts().any():
        return []
    figure, axes = below_legend(_SIZE, _SIZE - 0.1, len(models))
    diagonal(axes)
    calibrations = {model.name: model.calibration for model in results.models}
    twice = False
    bins = min(max(len(test.labels.label_N) // _ROWS_OF_A_BIN, 3), _MOST_BINS)

    def draw(probability_NC: FloatArray, **style: Any) -> None:
        found = reliability(schema.task, test.labels.label_N, probability_NC, test.labels.weight_N, bins)
        drawn_B = found.weight_B >= _LEAST_SHARE * found.weight_B.sum()
        axes.plot(found.probability_B[drawn_B], found.share_B[drawn_B], **style)

    for model in models:
        style, probability_NC, own = looks(results)[model], test.values[model], calibrations[model]
        draw(probability_NC, **style.line, marker=style.marker, markersize=4.0, label=short(model, 24))
        if own and own.applied and len(models) <= _MOST_TWICE:
            before_NC = scaled(probability_NC, 1 / own.temperature)
            draw(before_NC, color=style.colour, linestyle=(0, (1, 1.6)), linewidth=1.1)
            twice = True
    of_class = f"of {short(schema.classes[1], 30)}" if schema.task == "binary" else "of the predicted class"
    around = (-0.02, 1.02)
    axes.set(xlabel=f"probability {of_class}", ylabel="share that came true", xlim=around, ylim=around)
    legend_above(axes)
    caption = "Reliability: on the diagonal, what is predicted comes true as often."
    caption += " Thin and dotted: before temperature scaling." if twice else ""
    return [Picture(name="reliability", caption=caption + notes_on(test), figures=[figure])]


def _confusion_matrices(
    test: ModelPredictions, schema: TableSchema, results: Results, counts_C: FloatArray
) -> Picture:
    """One panel for each of the best models: shares of each true class.

    More classes than have room for figures are ordered so that those that are taken for each other are
    neighbours.
    """
    shown = np.sort(np.argsort(-counts_C, kind="stable")[:_MOST_CLASSES])
    num_shown = len(shown)
    models, note = best_few(test, results, 4 if num_shown <= 30 else 2 if num_shown <= 60 else 1)
    shares = [confusion(test.labels, test.values[model]) for model in models]
    if num_shown > _NAMED_CLASSES:
        shown = shown[_neighbours(np.mean(shares, axis=0)[np.ix_(shown, shown)])]
    names = distinct([schema.classes[code] for code in shown], 12)
    size, letters = _matrix_size(num_shown)
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
        f"{order}.{most}{notes_on(test, results)}{note}"
    )
    return Picture(name="confusion_matrix", caption=caption, figures=figures)


def _recalls(
    test: ModelPredictions, schema: TableSchema, results: Results, counts_C: FloatArray
) -> list[Picture]:
    """The share of each class's rows that each model finds, the worst class first."""
    models = with_predictions(test, results)
    there = np.flatnonzero(counts_C)
    if len(there) < 2:
        return []
    recall_MC = np.array([np.diag(confusion(test.labels, test.values[model])) for model in models])
    shown = there[np.argsort(recall_MC[:, there].mean(axis=0), kind="stable")][:_MOST_RECALLS]
    names = distinct([schema.classes[code] for code in shown], 26)
    left = 0.25 + LETTER * max(map(len, names))
    height = max(0.18 * len(shown), 0.5)
    figure, axes = below_legend(4.2 + left, height + 0.55, len(models), 3, left=left, bottom=0.55)
    rows_down(axes, names)
    places = np.arange(len(shown))
    across_MC = 100 * recall_MC[:, shown]
    axes.hlines(places, across_MC.min(axis=0), across_MC.max(axis=0), color=LINE.light, linewidth=2.5)
    for model, recall_C in zip(models, across_MC, strict=True):
        style = looks(results)[model]
        axes.plot(
            recall_C, places, **style.mark, markersize=5, label=short(model, 20), clip_on=False,
            markerfacecolor="none" if len(models) > 3 else style.colour,
        )  # fmt: skip
    axes.set_xlim(max(0.0, 5 * np.floor(across_MC.min() / 5 - 0.5)), 100)
    axes.set_xlabel("recall: per cent of the class's rows that are found")
    legend_above(axes, 3)
    left_out = len(there) - len(shown)
    most = f" The {len(shown)} worst of {len(there)} classes." if left_out else ""
    caption = f"Recall of each class, the worst first.{most}{notes_on(test)}"
    return [Picture(name="recalls", caption=caption, figures=[figure])]


def _matrix_size(num_classes: int) -> tuple[float, float]:
    """Inches of a matrix, and the size of its letters."""
    if num_classes <= _NAMED_CLASSES:
        return max(2.3, 0.34 * num_classes), 9
    if num_classes <= 30:
        return 4.2, 8
    return (6.0, 7) if num_classes <= 60 else (8.4, 6)


def _matrix(axes: Axes, share_CC: FloatArray) -> None:
    # The square root shows rare mistakes, too; figures on the strongest shade must stay readable.
    is_named = len(share_CC) <= _NAMED_CLASSES
    opacity_CC = (0.55 if is_named else 0.9) * np.sqrt(share_CC)
    is_right_CC1 = np.eye(len(share_CC), dtype=bool)[..., None]
    image = np.where(is_right_CC1, shaded(_RIGHT, opacity_CC), shaded(_WRONG, opacity_CC))
    axes.imshow(image, interpolation="none", aspect="auto")
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set(visible=True, color=LINE.light)
    for (row, column), value in np.ndenumerate(share_CC):
        if is_named and value >= 0.005:
            axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=TEXT.light)


def _neighbours(share_CC: FloatArray) -> NDArray[np.int64]:
    """The classes in an order that puts those beside each other that are taken for each other."""
    from scipy.cluster.hierarchy import leaves_list, linkage  # a part of a second to import
    from scipy.spatial.distance import squareform

    taken_CC = np.sqrt((share_CC + share_CC.T) / 2)
    np.fill_diagonal(taken_CC, 1.0)
    apart = squareform(1 - np.clip(taken_CC, 0, 1), checks=False)
    return np.asarray(leaves_list(linkage(apart, "average")), dtype=np.int64)
