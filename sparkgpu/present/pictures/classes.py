"""Classes: ROC and precision of two; which of several are taken for which; calibration; thresholds.

C classes, M models, B bins, T thresholds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import distinct, number_text, short
from sparkgpu.present.curves import confusion, precision_recall, roc
from sparkgpu.present.figure import Picture
from sparkgpu.present.pictures.shared import (
    below_legend,
    best_few,
    diagonal,
    heat_map,
    legend_above,
    looks,
    notes_on,
    shaded,
    with_predictions,
)
from sparkgpu.present.style import COLOURS, SOFT
from sparkgpu.score.calibration import reliability
from sparkgpu.score.decision import curve
from sparkgpu.score.predictions import SEED, Labels, ModelPredictions
from sparkgpu.score.rows import FloatArray

_SIZE = 4.5
_BINS = 10
_LEAST_SHARE = 0.01  # a bin with less of the rows is not drawn
_MOST_CLASSES = 40
_NAMED_CLASSES = 12  # up to this many classes the cells have room for figures
_RIGHT, _WRONG = COLOURS[0].light, COLOURS[1].light


def two_classes(test: ModelPredictions, schema: TableSchema, results: Results) -> list[Picture]:
    """ROC and precision at each recall, if there are rows of both; and reliability."""
    models, counts_N = with_predictions(test, results), test.labels.counts()
    is_positive_N = test.labels.label_N == 1
    if not models or len(np.unique(is_positive_N[counts_N > 0])) < 2:
        return _reliability(test, schema, results)
    share = float(np.average(is_positive_N, weights=counts_N))
    reached = {model.name: (model.averaged or model.metrics).test for model in results.models}

    def curves(
        curve: Callable[[Labels, FloatArray], tuple[FloatArray, FloatArray]], word: str, metric: str
    ) -> tuple[Figure, Axes]:
        """The models' curves from 0 to 1, with the metric of each in the legend."""
        figure, axes = below_legend(_SIZE, _SIZE - 0.1, len(models))
        for model in models:
            across, up = curve(test.labels, test.values[model][:, 1])
            label = f"{short(model, 24)}, {word} {number_text(reached[model].get(metric))}"
            axes.plot(across, up, **looks(results)[model].line, label=label)
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        legend_above(axes)
        return figure, axes

    roc_figure, axes = curves(roc, "area", "roc_auc")
    diagonal(axes)
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    precision_figure, axes = curves(precision_recall, "average", "average_precision")
    axes.axhline(share, color=SOFT.light, linewidth=0.8, zorder=1)
    axes.set(xlabel="recall: share of the positives that are found", ylabel="precision")
    notes = notes_on(test, results)
    of_roc = f"ROC curves; the positive class is {short(schema.classes[1], 40)}."
    of_precision = f"Precision and recall; guessing reaches {100 * share:.3g} %."
    return [
        Picture(name="roc_curves", caption=of_roc + notes, figures=[roc_figure]),
        Picture(name="precision_recall", caption=of_precision + notes, figures=[precision_figure]),
        *_reliability(test, schema, results),
    ]


def several_classes(test: ModelPredictions, schema: TableSchema, results: Results) -> list[Picture]:
    """Confusion matrices and reliability; none without rows."""
    if not test.values or not test.labels.counts().any():
        return []
    return [_confusion_matrices(test, schema, results), *_reliability(test, schema, results)]


def _reliability(test: ModelPredictions, schema: TableSchema, results: Results) -> list[Picture]:
    """Probability against truth."""
    models, labels = with_predictions(test, results), test.labels
    if not models or not labels.counts().any():
        return []
    figure, axes = below_legend(_SIZE, _SIZE - 0.1, len(models))
    diagonal(axes)
    for model in models:
        found = reliability(schema.task, labels.label_N, test.values[model], labels.weight_N, _BINS)
        drawn_B = found.weight_B >= _LEAST_SHARE * found.weight_B.sum()
        style = looks(results)[model]
        axes.plot(
            found.probability_B[drawn_B], found.share_B[drawn_B], **style.line, marker=style.marker,
            markersize=4.0, label=short(model, 24),
        )  # fmt: skip
    of_class = f"of {short(schema.classes[1], 30)}" if schema.task == "binary" else "of the predicted class"
    around = (-0.02, 1.02)
    axes.set(xlabel=f"probability {of_class}", ylabel="share that came true", xlim=around, ylim=around)
    legend_above(axes)
    caption = "Reliability: on the diagonal, what is predicted comes true as often." + notes_on(test)
    return [Picture(name="reliability", caption=caption, figures=[figure])]


def thresholds(test: ModelPredictions, schema: TableSchema, results: Results) -> Picture | None:
    """What each threshold of the leader would give, with the one that was chosen; for two classes."""
    leader = next((model for model in results.models if model.name == results.comparison.leader), None)
    if schema.decision is None or leader is None or leader.name not in test.values:
        return None
    if leader.decision is None or leader.decision.threshold is None or not test.labels.counts().any():
        return None
    labels, found_NC = test.known(leader.name)
    at_T, curves = curve(schema.decision, labels.label_N, found_NC, labels.weight_N, seed=SEED)
    figure, axes = below_legend(6.4, 3.2, len(curves), columns=3)
    for (name, (value_T, low_T, high_T)), colour in zip(curves.items(), COLOURS, strict=False):
        axes.plot(at_T, value_T, color=colour.light, label=name)
        axes.fill_between(at_T, low_T, high_T, color=colour.light, alpha=0.2, linewidth=0)
    axes.axvline(leader.decision.threshold, color=SOFT.light, linestyle="--", linewidth=1.0)
    axes.set(
        xlabel=f"threshold of the probability of {short(str(leader.decision.positive), 30)}", xlim=(0, 1)
    )
    legend_above(axes, columns=3)
    caption = (
        f"Thresholds of {leader.name} on the test rows, with pointwise 95 % intervals; dashed, "
        f"{number_text(leader.decision.threshold)}, which the validation rows chose by "
        f"{leader.decision.rule}.{notes_on(test)}"
    )
    return Picture(name="thresholds", caption=caption, figures=[figure])


def _confusion_matrices(test: ModelPredictions, schema: TableSchema, results: Results) -> Picture:
    """One panel for each of the best models: shares of each true class, for the most frequent classes."""
    counts_C = np.bincount(test.labels.label_N, test.labels.counts(), len(schema.classes))
    shown = np.sort(np.argsort(-counts_C, kind="stable")[:_MOST_CLASSES])
    has_room = len(shown) <= _NAMED_CLASSES
    models, note = best_few(test, results, 4 if has_room else 2)
    names = distinct([schema.classes[code] for code in shown], 12)
    figures = []
    for model in models:
        share_CC = confusion(test.labels, test.values[model])[np.ix_(shown, shown)]
        # The square root shows rare mistakes, too; figures on the strongest shade must stay readable.
        opacity_CC = (0.55 if has_room else 0.9) * np.sqrt(share_CC)
        is_right_CC1 = np.eye(len(shown), dtype=bool)[..., None]
        image = np.where(is_right_CC1, shaded(_RIGHT, opacity_CC), shaded(_WRONG, opacity_CC))
        texts = {
            place: f"{100 * share:.0f}"
            for place, share in np.ndenumerate(share_CC)
            if has_room and share >= 0.005
        }
        cell, letters = (max(0.34, 2.3 / len(shown)), 9) if has_room else (0.16, 8)
        figure, _ = heat_map(
            image, names, names, texts, (cell, cell), letters=letters, title=short(model, 26),
            labels=("predicted", "true"),
        )  # fmt: skip
        figures.append(figure)
    left_out = len(schema.classes) > len(shown)
    most = f" The {len(shown)} most frequent of {len(schema.classes)} classes." if left_out else ""
    caption = (
        "Confusion, in per cent of each true class (rows): right in blue, wrong in orange, stronger for more."
        f"{most}{notes_on(test, results)}{note}"
    )
    return Picture(name="confusion_matrix", caption=caption, figures=figures)
