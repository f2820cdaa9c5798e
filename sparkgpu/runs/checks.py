"""The named checks of a run: what its predictions and its table show, each with a number and its bound.

A check fails only beyond chance. It judges the run's leader, which the validation rows chose.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

import numpy as np

from sparkgpu.core.config.values import CheckName
from sparkgpu.core.rundir.checks import Check
from sparkgpu.core.rundir.metrics_json import ModelResult, Results
from sparkgpu.core.rundir.profile import TableProfile
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import metric_title, number_text
from sparkgpu.runs.caveats import constant_of
from sparkgpu.runs.pooled import Pooled
from sparkgpu.score.metrics import bounds
from sparkgpu.score.predictions import LabelReader
from sparkgpu.score.rows import checked
from sparkgpu.score.segments import mean_and_error

_MOST_WORSE = 0.25
_DEVIATIONS = 3.0
_CALIBRATION = 0.05
_BINS = 15
_GAP, _GAP_OF_LOSS = 0.05, 0.25
_OF_TABLE: Mapping[CheckName, str] = {
    "leak": "leakage", "drift": "drift between splits", "repeated_rows": "duplicates across splits",
}  # fmt: skip


def of_predictions(
    schema: TableSchema,
    labels: LabelReader,
    pooled: Mapping[str, Pooled],
    models: Sequence[ModelResult],
    leader: str | None,
    metric: str,
) -> tuple[Check, ...]:
    """The checks of the leader's predictions; none if no model finished."""
    model = next((one for one in models if one.name == leader), None)
    if model is None:
        return ()
    found = pooled[model.name]
    valid, test = labels.all("valid").part(found.has_valid_N), labels.all("test")
    rows = {
        "valid": checked(schema.task, valid.label_N, found.valid[found.has_valid_N], valid.weight_N),
        "test": checked(schema.task, test.label_N, found.test, test.weight_N),
        "constant": checked(schema.task, test.label_N, constant_of(schema, test), test.weight_N),
    }
    means = {name: mean_and_error(one.loss_N(), one.weight_N) for name, one in rows.items()}
    (before, error), (after, other), (constant, _) = means.values()
    loss = "squared error" if schema.task == "regression" else "log loss"
    worse = after / before - 1 if before else math.inf if after else 0.0
    sure = after - before > _DEVIATIONS * math.hypot(error, other)
    share = after / constant if constant else 1.0
    return (
        _check(
            "overfitting", worse > _MOST_WORSE and sure, worse, _MOST_WORSE,
            f"the mean {loss} of {leader} is {number_text(after)} on test rows and {number_text(before)} on "
            "validation rows, which stopped its training",
        ),
        _check(
            "underfitting", share >= 1, share, 1.0,
            f"the mean {loss} of {leader} on test rows is {number_text(after)}, that of one constant "
            f"prediction {number_text(constant)}",
        ),
        *_calibration(model, len(test.label_N)),
        *_group_gap(model, metric),
    )  # fmt: skip


def _check(name: CheckName, failed: bool, value: float, bound: float, evidence: str) -> Check:
    return Check(
        name=name, status="failed" if failed else "passed", value=value, bound=bound, evidence=evidence
    )


def _calibration(model: ModelResult, rows: int) -> Iterator[Check]:
    if (found := model.calibration) is not None:
        error = found.error_after if found.applied else found.error_before
        # A model that is calibrated has about so large an error by chance alone.
        bound = _CALIBRATION + 0.4 * math.sqrt(_BINS / rows)
        evidence = f"the expected calibration error of {model.name} on test rows"
        yield _check("calibration", error > bound, error, bound, evidence)


def _group_gap(model: ModelResult, metric: str) -> Iterator[Check]:
    """The widest gap between groups, of all columns that were asked for, in the run's metric."""
    gaps = [(one.gaps[metric], one) for one in model.groups if metric in one.gaps]
    if not gaps:
        return
    gap, column = max(gaps, key=lambda pair: ((pair[0].ci95[0] or 0.0) > 0 and pair[0].value) or 0.0)
    values = [one.metrics[metric].value or 0.0 for one in column.groups]
    bound = _GAP if math.isfinite(bounds(metric)[1]) else _GAP_OF_LOSS * float(np.mean(np.abs(values)))
    value, sure = gap.value or 0.0, (gap.ci95[0] or 0.0) > 0
    evidence = f"{metric_title(metric)} of {model.name} from {gap.least} to {gap.greatest}"
    yield _check("group_gap", sure and value > bound, value, bound, evidence)


def with_table(results: Results, profile: TableProfile | None) -> Results:
    """All checks of a run in their order, with those of its table; what nothing judged is said to be so."""
    by_name = {check.name: check for check in profile.checks} if profile else {}
    known = {check.name: check for check in results.checks if check.status != "not judged"}
    for name, title in _OF_TABLE.items():
        if (found := by_name.get(title)) is not None and found.bound is not None:
            known[name] = _check(name, not found.passed, found.value or 0.0, found.bound, found.evidence)
    why = {
        "group_gap": "no column of --groups has two groups of 50 test rows",
        "calibration": "there are no probabilities",
    }
    checks = (
        known.get(name)
        or Check(name=name, status="not judged", evidence=why.get(name, "the table was not examined"))
        for name in get_args(CheckName)
    )
    return results.model_copy(update={"checks": tuple(checks)})
