"""Where it fails: the groups of rows on which models are worse, and the most wrong rows of the leader."""

from __future__ import annotations

from sparkgpu.errors import ConfigError
from sparkgpu.report import failures
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.pictures.segments import segment_losses
from sparkgpu.report.pictures.shared import best_few, with_predictions
from sparkgpu.rundir.explanations import read_explanations
from sparkgpu.score.segments import LEAST_ROWS


def content(run: Inputs) -> dict[str, object] | None:
    """The values of the templates; None without predictions."""
    test, schema = run.test, run.schema
    models = with_predictions(test, run.values)
    if not models or not test.labels.counts().any():
        return None
    leader = run.results.comparison.leader
    if leader not in models:
        leader = models[0]
    found = failures.weaknesses(run.segments, [leader, *(model for model in models if model != leader)])
    loss = "RMSE" if schema.task == "regression" else "log loss"
    best = {*best_few(test, schema.task, run.values)[0], leader}
    shown = [model for model in models if model in best]
    return {
        "leader": leader,
        "judged": len(run.segments.get(leader, ())),
        "least_rows": LEAST_ROWS,
        "found": len(found),
        "loss": loss,
        "segments": failures.weakness_table(found, leader, len(models), loss),
        "losses": segment_losses(found, shown, list(run.values), loss),
        "wrong": failures.most_wrong(schema, test, run.features, leader, _leading_columns(run)),
        "classes": bool(schema.classes),
    }


def _leading_columns(run: Inputs) -> list[str]:
    """The user's columns, the most important first, if the models were explained."""
    try:
        explained = read_explanations(run.paths)
    except ConfigError:  # the section that shows them tells
        explained = None
    return [one.column for one in explained.importances] if explained else []
