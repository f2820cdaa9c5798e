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
from sparkgpu.score import compare, segments
from sparkgpu.score.calibration import calibration_error
from sparkgpu.table.rows import Rows, read_rows
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import counted, metric_title, number_text

FOLDER, CARD = "cards", "MODEL_CARD.md"
_MOST_SEGMENTS = 5
_SEED = 7
_TAGS = {
    "binary": "tabular-classification",
    "multiclass": "tabular-classification",
    "regression": "tabular-regression",
}


def card_path(paths: RunPaths, model: str) -> Path:
    """Where a model's card lies."""
    return paths.report / FOLDER / model / CARD


def contents(
    paths: RunPaths, schema: TableSchema, results: Results, test: TestRows
) -> dict[str, dict[str, object]]:
    """What the template shows, by the name of each model that finished."""
    groupings = _groupings(schema, read_rows(paths, schema, "test").part(slice(None, None, test.every)))
    return {
        model.name: _content(schema, results, model, test, groupings)
        for model in results.models
        if model.metrics.test
    }


def _groupings(schema: TableSchema, rows: Rows) -> list[segments.Grouping]:
    """The test rows by each feature, under the names of the user's columns."""
    by_number = (
        segments.by_range(feature.title, rows.numeric_NF[:, place].astype(np.float64))
        for place, feature in enumerate(schema.numeric)
        if feature.means_of is None
    )
    by_word = (
        segments.by_level(feature.title, feature.levels, rows.codes_NK[:, place])
        for place, feature in enumerate(schema.categorical)
    )
    return [*by_number, *by_word]


def _content(
    schema: TableSchema,
    results: Results,
    model: ModelResult,
    test: TestRows,
    groupings: list[segments.Grouping],
) -> dict[str, object]:
    primary = results.comparison.metric
    interval = _interval(schema, model.name, test)
    metrics = [
        (metric_title(name), number_text(value), interval if name == primary else "")
        for name, value in (model.averaged or model.metrics).test.items()
    ]
    if schema.classes and model.name in test.trials:
        error = calibration_error(
            schema.task, test.labels.label_N, test.mean(model.name), test.labels.weight_N
        )
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
        "segments": _worst(schema, model.name, test, groupings),
        "loss": "RMSE" if schema.task == "regression" else "log loss",
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


def _worst(
    schema: TableSchema, model: str, test: TestRows, groupings: list[segments.Grouping]
) -> list[tuple[str, str, str, str]]:
    """Name, rows, and the loss there and elsewhere, as text."""
    if model not in test.trials:
        return []
    labels = test.labels
    found = segments.worst(
        schema.task,
        labels.label_N,
        test.mean(model),
        groupings,
        most=_MOST_SEGMENTS,
        weight_N=labels.weight_N,
    )
    return [
        (one.name, f"{one.rows:,}", number_text(one.loss), number_text(one.loss_elsewhere)) for one in found
    ]
