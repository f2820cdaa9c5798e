"""How good the predictions are: pictures of the errors, honest probabilities, where the models agree."""

from __future__ import annotations

from sparkgpu.report import contest_tables, tables
from sparkgpu.report.agreement import agreement, disagreement, most_confused
from sparkgpu.report.cells import Table
from sparkgpu.report.figure import Picture
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.pictures import binary, classes, regression
from sparkgpu.report.pictures.agreement import agreement_map
from sparkgpu.report.pictures.reliability import reliability_curves
from sparkgpu.report.pictures.shared import best_few

_OF_A_TASK = (
    "roc_curves", "precision_recall", "gains", "confusion_matrix", "recalls", "confused", "predicted_vs_true",
    "residuals", "error_by_decile",
)  # fmt: skip


def content(run: Inputs) -> dict[str, object] | None:
    """The values of the templates; None if nothing was scored."""
    validation = tables.results(run.results, "valid")
    found = agreement(run.test, run.schema, run.results)
    content: dict[str, object] = {
        **dict.fromkeys(_OF_A_TASK),
        **_of_task(run),
        "reliability": reliability_curves(run.test, run.schema, run.results),
        "calibration": contest_tables.calibration(run.results),
        "agreement": found and agreement_map(found),
        "alike": found and len(found.models) == 2 and f"{found.what}: {found.alike_MM[0, 1]:.3f}",
        "disagreement": disagreement(run.test, run.schema, run.results),
        "validation": validation,
    }
    return content if any(content.values()) else None


def _of_task(run: Inputs) -> dict[str, Picture | Table | None]:
    test, schema = run.test, run.schema
    if schema.task == "binary":
        return {
            "roc_curves": binary.roc_curves(test, schema, run.results),
            "precision_recall": binary.precision_recall_curves(test, schema, run.results),
            "gains": binary.gains_curves(test, schema, run.results),
        }
    if schema.task == "multiclass":
        return {
            "confusion_matrix": classes.confusion_matrices(test, schema, run.values),
            "recalls": classes.recalls(test, schema, run.values),
            "confused": most_confused(test, schema, best_few(test, schema.task, run.values)[0]),
        }
    return {
        "predicted_vs_true": regression.predicted_against_true(test, schema, run.values),
        "residuals": regression.residuals(test, schema, run.values),
        "error_by_decile": regression.error_by_decile(test, schema, run.values),
    }
