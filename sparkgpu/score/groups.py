"""Metrics of one model in groups of rows, and the gap between the groups, each with an interval.

Errors are those of a bootstrap within each group, intervals normal. Limits: only groups with `LEAST_ROWS`
rows; an interval is of other rows like these, for the model as it is. N rows, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from sparkgpu.core.rundir.groups import ColumnGroups, Estimate, Gap, GroupResult
from sparkgpu.score import metrics
from sparkgpu.score.compare import error_of
from sparkgpu.score.rows import ScoredRows, Task, checked
from sparkgpu.score.segments import LEAST_ROWS, Grouping, mean_and_error

_LEVEL = 0.95
_MOST_CLASSES = 10
MEAN = "mean_prediction"
_Found = dict[str, tuple[float, float]]
"""By metric: its value and its standard error, NaN where there is none."""


def by_group(
    task: Task,
    label_N: Any,
    prediction: Any,
    column: str,
    grouping: Grouping,
    *,
    weight_N: Any = None,
    asked: str | None = None,
    classes: Sequence[str] = (),
    seed: int,
) -> ColumnGroups:
    """Every metric in every group. Raises the errors of `rows.checked`."""
    rows = checked(task, label_N, prediction, weight_N)
    code_M = grouping.code_N if weight_N is None else grouping.code_N[np.asarray(weight_N) > 0]
    names = dict.fromkeys((*([asked] if asked else []), *metrics.names(task)))
    groups, scored = [], {}
    for code, name in enumerate(grouping.names):
        place_G = np.flatnonzero(code_M == code)
        if len(place_G) < LEAST_ROWS:
            continue
        own = rows.part(place_G)
        found: _Found = {
            metric: (math.nan if (value := metrics.value(metric, own)) is None else value,
                     error_of(metric, own, seed))
            for metric in names
        } | _means(own, classes)  # fmt: skip
        scored[name] = found
        estimates = {metric: _estimate(metric, *pair) for metric, pair in found.items()}
        groups.append(GroupResult(name=name, rows=len(place_G), metrics=estimates))
    return ColumnGroups(column=column, groups=tuple(groups), gaps=_gaps(scored))


def _means(rows: ScoredRows, classes: Sequence[str]) -> _Found:
    """The mean prediction: of a number, of the second of two classes, or of each of a few."""
    if rows.task == "multiclass":
        some = classes if len(classes) <= _MOST_CLASSES else ()
        columns = {f"{MEAN}_of_{name}": rows.prediction[:, code] for code, name in enumerate(some)}
    else:
        columns = {MEAN: rows.prediction if rows.task == "regression" else rows.prediction[:, 1]}
    return {name: mean_and_error(value_N, rows.weight_N) for name, value_N in columns.items()}


def _estimate(metric: str, value: float, error: float) -> Estimate:
    least, most = metrics.bounds(metric)
    half = NormalDist().inv_cdf(0.5 + _LEVEL / 2) * error
    ends = (max(value - half, least), min(value + half, most))
    return Estimate(
        value=None if math.isnan(value) else value, ci95=(None, None) if math.isnan(half + value) else ends
    )


def _gaps(scored: dict[str, _Found]) -> dict[str, Gap]:
    """By metric, where at least two groups have an interval."""
    gaps = {}
    reach = NormalDist().inv_cdf(1 - (1 - _LEVEL) / 2 / max(1, math.comb(len(scored), 2)))
    for metric in next(iter(scored.values()), {}):
        known = sorted(
            (*found[metric], name) for name, found in scored.items() if not math.isnan(sum(found[metric]))
        )
        if len(known) > 1:
            (low, error, least), (high, other, greatest) = known[0], known[-1]
            half = reach * math.hypot(error, other)
            ends = (high - low - half, high - low + half)
            gaps[metric] = Gap(value=high - low, ci95=ends, greatest=greatest, least=least)
    return gaps
