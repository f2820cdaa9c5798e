"""A model card for each model of a run, with the fields of Hugging Face's cards.

Figures are those of ``metrics.json``, with the interval of the primary metric and, for classes, the
calibration error on the test rows. N rows, C classes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sparkgpu.report.curves import TestRows
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import ModelResult, Results
from sparkgpu.score import compare
from sparkgpu.score.rows import FloatArray, IntArray
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import counted, metric_title, number_text

FOLDER, CARD = "cards", "MODEL_CARD.md"
_BINS = 15
_SEED = 7
_TAGS = {
    "binary": "tabular-classification",
    "multiclass": "tabular-classification",
    "regression": "tabular-regression",
}


def card_path(paths: RunPaths, model: str) -> Path:
    """Where a model's card lies."""
    return paths.report / FOLDER / model / CARD


def contents(schema: TableSchema, results: Results, test: TestRows) -> dict[str, dict[str, object]]:
    """What the template shows, by the name of each model that finished."""
    return {
        model.name: _content(schema, results, model, test) for model in results.models if model.metrics.test
    }


def _content(schema: TableSchema, results: Results, model: ModelResult, test: TestRows) -> dict[str, object]:
    primary = results.comparison.metric
    interval = _interval(schema, model.name, test)
    metrics = [
        (metric_title(name), number_text(value), interval if name == primary else "")
        for name, value in (model.averaged or model.metrics).test.items()
    ]
    if schema.classes and model.name in test.trials:
        error = calibration_error(test.labels.label_N, test.mean(model.name), test.labels.counts())
        metrics.append(("expected calibration error", number_text(error), ""))
    engines = {one.name: one.engine for one in results.models}
    made_of = (
        [f"{share:.3f} of {name} ({engines[name]})" for name, share in model.weights.items() if share]
        if model.weights
        else [f"{model.engine}, {counted(len(model.trials), 'trial')}"]
    )
    return {
        "name": model.name,
        "tag": _TAGS[schema.task],
        "run": results.run,
        "data": results.data,
        "schema": schema,
        "made_of": made_of,
        "metrics": metrics,
        "is_sample": test.every > 1,
        "leader": results.comparison.leader,
        "pairs": [pair.sentence for pair in results.comparison.pairs if model.name in (pair.a, pair.b)],
        "trials": [
            trial
            for trial in results.done()
            if trial.name in model.trials and (model.weights is None or model.weights.get(trial.model))
        ],
        "columns": list(dict.fromkeys(feature.source for feature in schema.features)),
    }


def _interval(schema: TableSchema, model: str, test: TestRows) -> str:
    if model not in test.trials:
        return ""
    labels = test.labels
    low, high = compare.interval(
        schema.task, labels.label_N, test.mean(model), _SEED, weight_N=labels.weight_N
    )
    return "" if low is None or high is None else f"{number_text(low)} to {number_text(high)}"


def calibration_error(
    label_N: IntArray | FloatArray, probability_NC: FloatArray, weight_N: FloatArray
) -> float:
    """The expected calibration error of the most probable class, in 15 bins of equally many rows.

    Naeini, Cooper and Hauskrecht (2015), "Obtaining Well Calibrated Probabilities Using Bayesian Binning".
    """
    predicted_N = probability_NC.argmax(axis=1)
    sure_N = probability_NC.max(axis=1)
    right_N = (predicted_N == label_N).astype(np.float64)
    order_N = np.argsort(sure_N, kind="stable")
    total = 0.0
    for part in np.array_split(order_N, min(_BINS, len(order_N))):
        weight = weight_N[part].sum()
        if weight:
            total += abs(float(weight_N[part] @ (right_N[part] - sure_N[part])))
    return total / float(weight_N.sum())
