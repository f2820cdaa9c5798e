"""How good the predictions are: pictures of the errors, honest probabilities, and the validation rows."""

from __future__ import annotations

from sparkgpu.report import contest_tables, tables
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.pictures.quality import quality
from sparkgpu.report.pictures.reliability import reliability_curves


def content(run: Inputs) -> dict[str, object] | None:
    """The values of the templates."""
    metric = run.results.comparison.metric
    values = {model.name: model.metrics.test.get(metric) for model in run.results.models}
    validation = tables.results(run.results, "valid")
    picture = quality(run.test, run.schema, values)
    if not (picture or validation):
        return None
    return {
        "picture": picture,
        "reliability": reliability_curves(run.test, run.schema, list(values)),
        "calibration": contest_tables.calibration(run.results),
        "validation": validation,
    }
