"""A model card for each model of a run, with the fields of Hugging Face's cards.

Figures are those of ``metrics.json``, with the interval of the primary metric and, for classes, the
calibration error on the test rows.
"""

from __future__ import annotations

from pathlib import Path

from sparkgpu.core.rundir.metrics_json import ModelResult
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.words import counted, metric_title, number_text
from sparkgpu.present.leaderboard import percent_text
from sparkgpu.present.sections import Inputs
from sparkgpu.present.table_model import interval_cell
from sparkgpu.score.calibration import calibration_error

_MOST_SEGMENTS = 5
_TAGS = {
    "binary": "tabular-classification",
    "multiclass": "tabular-classification",
    "regression": "tabular-regression",
}


def card_path(paths: RunPaths, model: str) -> Path:
    """Where a model's card lies."""
    return paths.report / "cards" / model / "MODEL_CARD.md"


def contents(run: Inputs) -> dict[str, dict[str, object]]:
    """What the template shows, by the name of each model that finished."""
    return {model.name: _content(run, model) for model in run.results.models if model.metrics.test}


def _content(run: Inputs, model: ModelResult) -> dict[str, object]:
    schema, results, test = run.schema, run.results, run.test
    worse = [one for one in run.segments.get(model.name, ()) if one.gap > 0]
    primary = results.comparison.metric
    ends = run.intervals.get(model.name)
    interval = interval_cell(*ends).text if ends else ""
    metrics = [
        (metric_title(name), number_text(value), interval if name == primary else "")
        for name, value in (model.averaged or model.metrics).test.items()
    ]
    if schema.classes and model.name in test.values:
        error = calibration_error(
            schema.task, test.labels.label_N, test.values[model.name], test.labels.weight_N
        )
        metrics.append(("expected calibration error", number_text(error), ""))
    if model.decision:
        metrics.append((f"{model.decision.goal}, as decided", number_text(model.decision.value), ""))
    engines = {one.name: one.engine for one in results.models}
    trials = [
        trial
        for trial in results.done()
        if trial.name in model.trials and (model.weights is None or model.weights.get(trial.model))
    ]
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
        "made_of": [
            *made_of,
            *dict.fromkeys(
                f"weights of {one.engine}: {one.native_parameters['weights']}"
                for one in trials
                if "weights" in one.native_parameters
            ),
        ],
        "decides": model.decision.in_words() if model.decision else "",
        "sure": _sure(model, bool(schema.classes)),
        "metrics": metrics,
        "segments": [
            (one.name, f"{one.rows:,}", number_text(one.loss), number_text(one.loss_elsewhere))
            for one in sorted(worse, key=lambda one: -one.gap)[:_MOST_SEGMENTS]
        ],
        "loss": "RMSE" if schema.task == "regression" else "log loss",
        "is_sample": test.every > 1,
        "leader": results.comparison.leader,
        "pairs": [pair.sentence for pair in results.comparison.pairs if model.name in (pair.a, pair.b)],
        "trials": trials,
        "columns": list(dict.fromkeys(feature.source for feature in schema.features)),
    }


def _sure(model: ModelResult, classes: bool) -> str:
    if (found := model.intervals) is None:
        return ""
    what = "sets of classes" if classes else "intervals"
    return (
        f"its {what} were to hold the truth in {percent_text(found.fitted.coverage)} of rows; in the test "
        f"rows they do in {percent_text(found.test.coverage)}"
    )
