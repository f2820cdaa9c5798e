"""The pictures of the report as PNG bytes, in one light version each, which the page can turn dark.

Limits: only Agg and figure objects, no pyplot, which would keep every figure alive and look for a window
system. The colours are those of Okabe and Ito, which differ for any colour vision; line styles differ as
well.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sparkgpu.report.curves import LearningCurve, TestRows, confusion, roc
from sparkgpu.score.calibration import reliability
from sparkgpu.score.metrics import primary, score
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import metric_title, number_text

_DPI = 130
_ModelStyle = tuple[str, str | tuple[int, tuple[float, ...]]]  # colour, line style
_MODEL_STYLES: dict[str, _ModelStyle] = {
    "trees": ("#0072B2", "-"),
    "neural": ("#D55E00", (0, (5, 1.5))),
    "blend": ("#009E73", (0, (5, 1.5, 1, 1.5))),
}
_MORE_STYLES: tuple[_ModelStyle, ...] = (
    ("#CC79A7", (0, (1, 1.2))),
    ("#56B4E9", (0, (3, 1.2))),
    ("#E69F00", (0, (3, 1.2, 1, 1.2, 1, 1.2))),
)
_PHASE_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#666666")
_MOST_DOTS = 3000  # up to this many rows a scatter shows more than a density
_MOST_CLASSES = 30
_MOST_PANELS = 4  # beside each other on a page
_CURVES_ACROSS = 3
_NAMED_CLASSES = 12  # up to this many classes the cells of a confusion matrix have room for figures
_STYLE: Any = {  # the names of settings are a literal type in some releases of matplotlib
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.labelcolor": "#222222",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "legend.frameon": False,
    "text.parse_math": False,  # a class called "$5 to $10" is not a formula
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A PNG and what it shows; `width` is its natural width on the page in CSS pixels."""

    name: str
    caption: str
    png: bytes
    width: int


@contextmanager
def plot_style() -> Iterator[None]:
    """The style of all pictures; characters that the font lacks show as boxes, without a warning."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def quality(test: TestRows, schema: TableSchema, values: Mapping[str, float | None]) -> Picture | None:
    """The plot of the task: ROC curves, confusion matrices, or predicted against true values.

    `values` are the models' main metric on the test split, for the legend. None without predictions.
    """
    models = [model for model in values if model in test.trials]
    if not models or not len(test.labels.label_N):
        return None
    note = f" Drawn from every {test.every}th row." if test.every > 1 else ""
    if schema.task == "binary":
        return _roc_curves(test, schema, models, values, note)
    if len(models) > _MOST_PANELS:
        best = sorted(models, key=lambda model: -_score(schema, values[model]))[:_MOST_PANELS]
        models = [model for model in models if model in best]
        note += f" The best {_MOST_PANELS} of {len(values)} models."
    if schema.task == "multiclass":
        return _confusion_matrices(test, schema, models, note)
    return _predicted_against_true(test, schema, models, note)


def _score(schema: TableSchema, value: float | None) -> float:
    return -np.inf if value is None else score(primary(schema.task), value)


def _styles(models: Iterable[str]) -> dict[str, _ModelStyle]:
    """A colour and a line style for each model; models with other names than ours use the rest in turn."""
    others = [model for model in models if model not in _MODEL_STYLES]
    return _MODEL_STYLES | dict(zip(others, cycle(_MORE_STYLES), strict=False))


def _roc_curves(
    test: TestRows, schema: TableSchema, models: Sequence[str], values: Mapping[str, float | None], note: str
) -> Picture | None:
    if len(np.unique(test.labels.label_N[test.labels.counts() > 0])) < 2:
        return None
    figure, (axes,) = _figure(5.2, 4.6, 1, left=0.11, right=0.97, bottom=0.11, top=0.97)
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    for model in models:
        curves = test.trials[model]
        area = "mean area" if len(curves) > 1 else "area"
        label = f"{model}, {area} {number_text(values[model])}"
        colour, line = _styles(values)[model]
        for number, probability_NC in enumerate(curves):
            false, true = roc(test.labels, probability_NC[:, 1])
            axes.plot(
                false, true, color=colour, linestyle=line,
                linewidth=1.6 if len(curves) == 1 else 1.0, label=label if number == 0 else None,
            )  # fmt: skip
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    axes.legend(loc="lower right", handlelength=3)
    lines = " One line for each trial." if any(len(test.trials[model]) > 1 for model in models) else ""
    caption = f"ROC curves on the test split; positive class: {schema.classes[1]}.{lines}{note}"
    return _picture(figure, "roc_curves", caption)


def reliability_curves(
    test: TestRows, schema: TableSchema, values: Mapping[str, float | None]
) -> Picture | None:
    """How often what each model predicts comes true, by its probability; None for a regression."""
    models = [model for model in values if model in test.trials]
    if schema.task == "regression" or not models or not test.labels.counts().any():
        return None
    figure, (axes,) = _figure(5.2, 4.6, 1, left=0.11, right=0.97, bottom=0.11, top=0.97)
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    for model in models:
        found = reliability(schema.task, test.labels.label_N, test.mean(model), test.labels.weight_N, 10)
        colour, line = _styles(values)[model]
        axes.plot(
            found.probability_B, found.share_B, color=colour, linestyle=line, marker="o", markersize=3,
            label=model,
        )  # fmt: skip
    of_class = f"of {_short(schema.classes[1])}" if schema.task == "binary" else "of the predicted class"
    around = (-0.02, 1.02)
    axes.set(xlabel=f"probability {of_class}", ylabel="share that came true", xlim=around, ylim=around)
    axes.legend(loc="upper left", handlelength=3)
    note = f" Drawn from every {test.every}th row." if test.every > 1 else ""
    caption = f"Reliability on the test split: on the line, what is predicted comes true as often.{note}"
    return _picture(figure, "reliability", caption)


def _confusion_matrices(test: TestRows, schema: TableSchema, models: Sequence[str], note: str) -> Picture:
    shares = [confusion(test.labels, test.mean(model)) for model in models]
    counts = np.bincount(test.labels.label_N.astype(np.int64), minlength=len(schema.classes))
    shown = np.sort(np.argsort(-counts, kind="stable")[:_MOST_CLASSES])
    names = [_short(schema.classes[code]) for code in shown]
    upright = len(names) > 4
    longest = 0.075 * max(map(len, names))  # approximate inches of a label
    size = 2.9 if len(names) <= _NAMED_CLASSES else 3.8
    left, bottom = 0.4 + longest, 0.4 + (longest if upright else 0.15)
    width, height = size * len(models) + left + 0.1, size + bottom + 0.25
    figure, all_axes = _figure(
        width, height, len(models), left=left / width, right=1 - 0.1 / width, bottom=bottom / height,
        top=1 - 0.25 / height, wspace=0.08,
    )  # fmt: skip
    for axes, model, share in zip(all_axes, models, shares, strict=True):
        part = share[np.ix_(shown, shown)]
        axes.imshow(part, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.grid(visible=False)
        axes.set_title(model)
        axes.set_xlabel("predicted")
        axes.set_xticks(range(len(names)), names, rotation=90 if upright else 0)
        axes.set_yticks(range(len(names)), names if axes is all_axes[0] else [""] * len(names))
        if len(names) <= _NAMED_CLASSES:
            for (row, column), value in np.ndenumerate(part):
                text = f"{100 * value:.0f}" if value >= 0.005 else ""
                axes.text(
                    column, row, text, ha="center", va="center", fontsize=8,
                    color="white" if value > 0.55 else "#222222",
                )  # fmt: skip
    all_axes[0].set_ylabel("true")
    left = len(schema.classes) - len(shown)
    most = f" The {len(shown)} most frequent of {len(schema.classes)} classes." if left else ""
    averaged = " Predictions averaged over trials." if max(map(len, test.trials.values())) > 1 else ""
    caption = f"Confusion on the test split, in per cent of each true class (rows).{most}{averaged}{note}"
    return _picture(figure, "confusion_matrix", caption)


def _predicted_against_true(test: TestRows, schema: TableSchema, models: Sequence[str], note: str) -> Picture:
    label_N = np.asarray(test.labels.label_N, dtype=np.float64)
    styles = _styles(models)
    means = [test.mean(model) for model in models]
    # A few extreme values would squeeze all others into a corner.
    low, high = np.quantile(np.concatenate([label_N, *means]), (0.001, 0.999))
    margin = 0.03 * (high - low) or 1.0
    low, high = low - margin, high + margin
    width = 3.1 * len(models) + 0.9
    figure, all_axes = _figure(
        width, 3.9, len(models), left=0.8 / width, right=0.98, bottom=0.13, top=0.93, wspace=0.06, sharey=True
    )
    outside = 0
    for axes, model, mean_N in zip(all_axes, models, means, strict=True):
        seen_N = (np.minimum(label_N, mean_N) >= low) & (np.maximum(label_N, mean_N) <= high)
        outside = max(outside, int((~seen_N).sum()))
        axes.plot([low, high], [low, high], color="#999999", linewidth=0.8)
        if len(label_N) <= _MOST_DOTS:
            axes.scatter(
                label_N[seen_N], mean_N[seen_N], s=6, color=styles[model][0], alpha=0.35, linewidths=0
            )
        else:
            counts, edges, _ = np.histogram2d(label_N, mean_N, bins=90, range=((low, high), (low, high)))
            logs = np.log(np.where(counts > 0, counts, np.nan)).T
            axes.pcolormesh(edges, edges, logs, cmap="viridis_r", rasterized=True)
        axes.set_title(model)
        axes.set(
            xlim=(low, high), ylim=(low, high), aspect="equal", xlabel=f"true {_short(schema.target, 30)}"
        )
    all_axes[0].set_ylabel(f"predicted {_short(schema.target, 30)}")
    density = " Darker: more rows, on a logarithmic scale." if len(label_N) > _MOST_DOTS else ""
    beyond = f" Outside the frame: {outside:,} rows." if outside else ""
    caption = (
        f"Predicted against true values on the test split; on the line they agree.{density}{beyond}{note}"
    )
    return _picture(figure, "predicted_vs_true", caption)


def learning_curves(models: Mapping[str, list[LearningCurve]], networks: Collection[str]) -> Picture | None:
    """One panel for each model: validation solid, training dotted, one line for each trial.

    A step is an epoch for the models in `networks`, and a tree for the others.
    """
    if not models:
        return None
    styles = _styles(models)
    across = min(len(models), _CURVES_ACROSS)
    down = -(-len(models) // across)
    width, height = 4.2 * across + 0.4, 3.0 * down
    figure, all_axes = _figure(
        width, height, across, down, left=0.75 / width, right=0.98, bottom=0.48 / height,
        top=1 - 0.3 / height, wspace=0.25, hspace=0.42,
    )  # fmt: skip
    for axes in all_axes[len(models) :]:
        axes.remove()
    for axes, (model, curves) in zip(all_axes, models.items(), strict=False):
        for number, curve in enumerate(curves):
            lines = ((curve.train, (0, (1, 1.2)), "train", 0.9), (curve.valid, "-", "valid", 1.4))
            for values, style, label, line_width in lines:
                if np.isfinite(values).any():
                    axes.plot(
                        curve.step, values, linestyle=style, linewidth=line_width, color=styles[model][0],
                        alpha=1.0 if len(curves) == 1 else 0.7, label=label if number == 0 else None,
                        marker="o" if len(curve.step) == 1 else None,
                    )  # fmt: skip
        axes.set_title(model)
        axes.set(xlabel="epochs" if model in networks else "trees", ylabel=metric_title(curves[0].metric))
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    caption = "Learning curves: the score of each trial on its training and validation rows during training."
    return _picture(figure, "learning_curves", caption)


def timings(phases: dict[str, dict[str, float]]) -> Picture | None:
    """A bar for each lane and branch, divided into its phases in order."""
    phases = {place: of_place for place, of_place in phases.items() if of_place}
    if not phases:
        return None
    names = list(dict.fromkeys(name for of_place in phases.values() for name in of_place))
    totals = {name: sum(of_place.get(name, 0.0) for of_place in phases.values()) for name in names}
    # As many phases as colours; the others would be too thin to see.
    named = set(sorted(names, key=lambda name: -totals[name])[: len(_PHASE_COLOURS) - 1])
    legend = [name for name in names if name in named]
    colours = dict(zip(legend, _PHASE_COLOURS, strict=False))
    height = 0.27 * len(phases) + 0.55 + 0.2 * -(-(len(legend) + 1) // 4)
    figure, (axes,) = _figure(8.8, height, 1, left=0.16, right=0.98, bottom=0.45 / height, top=0.0)
    figure.subplots_adjust(top=1 - (0.1 + 0.2 * -(-(len(legend) + 1) // 4)) / height)
    seen: set[str] = set()
    for row, of_place in enumerate(phases.values()):
        start = 0.0
        for name, seconds in of_place.items():
            shown = name if name in named else "other"
            axes.barh(
                row, seconds, left=start, height=0.62, color=colours.get(shown, "#BBBBBB"), edgecolor="white",
                linewidth=0.4, label=None if shown in seen else shown,
            )  # fmt: skip
            seen.add(shown)
            start += seconds
    axes.set_yticks(range(len(phases)), [_short(place) for place in phases])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("seconds")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, handlelength=1.0, borderaxespad=0.2)
    return _picture(
        figure, "timings", "Time in each phase, for each lane and branch; branches run side by side."
    )


def _figure(
    width: float, height: float, columns: int, lines: int = 1, *, sharey: bool = False, **margins: float
) -> tuple[Figure, list[Axes]]:
    """Inches, and fixed margins as shares of them: an automatic layout takes longer than the drawing."""
    figure = Figure(figsize=(width, height), dpi=_DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots(lines, columns, squeeze=False, sharey=sharey)
    figure.subplots_adjust(**({"top": 0.9} | {key: value for key, value in margins.items() if value}))
    return figure, list(axes.flat)


def _picture(figure: Figure, name: str, caption: str) -> Picture:
    png = BytesIO()
    figure.savefig(png, format="png", dpi=_DPI)
    return Picture(name=name, caption=caption, png=png.getvalue(), width=round(figure.get_figwidth() * 96))


def _short(text: str, most: int = 14) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
