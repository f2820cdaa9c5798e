"""Predictions of a model averaged over its trials, and the blend of several models.

With folds, each row outside the test split has the prediction of the trials that did not train on it. Rows
whose trials all failed take no part in the blend's weights or in validation figures. N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkgpu.score import blend, metrics
from sparkgpu.score.predictions import LabelReader, Labels, Mean
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema, Task


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """A model's mean predictions of all validation and test rows; `has_valid_N` tells which rows have one."""

    valid: FloatArray
    test: FloatArray
    has_valid_N: NDArray[np.bool_]


class Pool:
    """The mean over the trials of one model, which are added one after the other; only sums are kept."""

    def __init__(self, schema: TableSchema, labels: LabelReader) -> None:
        self._labels = labels
        self._whole_N = labels.all("valid").row_id_N if schema.folds else None
        self._count_N = np.zeros(0 if self._whole_N is None else len(self._whole_N))
        self._valid: FloatArray | None = None
        self._test = Mean()

    def add(self, fold: int | None, valid: FloatArray, test: FloatArray) -> None:
        """Add a trial's predictions of the validation rows of its `fold` and of the test rows."""
        self._test.add(test)
        if self._whole_N is None:
            self._valid = valid if self._valid is None else self._valid + valid
            return
        if self._valid is None:
            self._valid = np.zeros((len(self._whole_N), *test.shape[1:]))
        place = np.searchsorted(self._whole_N, self._labels.of("valid", fold).row_id_N)
        self._valid[place] += valid
        self._count_N[place] += 1

    def mean(self) -> Pooled:
        """The mean over the trials so far, of which there is at least one."""
        assert self._valid is not None
        test = self._test.value()
        if self._whole_N is None:
            has_valid_N = np.ones(len(self._valid), dtype=np.bool_)
            return Pooled(valid=self._valid / self._test.count, test=test, has_valid_N=has_valid_N)
        divisor = np.maximum(self._count_N, 1).reshape(-1, *([1] * (self._valid.ndim - 1)))
        return Pooled(valid=self._valid / divisor, test=test, has_valid_N=self._count_N > 0)


def mix(task: Task, valid: Labels, pooled: Mapping[str, Pooled]) -> tuple[dict[str, float], Pooled]:
    """The blend of several models, with its weights from the validation rows.

    There it is never worse than its best member, neither by the loss that its weights minimise nor by the
    task's primary metric: a member that is better by the latter is taken alone. Models that do not help get
    the weight 0.
    """
    has_valid_N = np.logical_and.reduce([found.has_valid_N for found in pooled.values()])
    rows = valid.where(has_valid_N)
    members = {name: found.valid[has_valid_N] for name, found in pooled.items()}
    weights = dict.fromkeys(members, 0.0) | _weights(task, rows, members)
    metric = metrics.primary(task)
    values = {
        name: metrics.compute(task, rows.label_N, prediction, rows.weight_N)[metric]
        for name, prediction in {"": blend.blend(members, weights), **members}.items()
    }
    first = metrics.best(metric, values)
    if first and "" not in first:
        weights = {name: float(name == first[0]) for name in members}
    mixed = Pooled(
        valid=blend.blend({name: found.valid for name, found in pooled.items()}, weights),
        test=blend.blend({name: found.test for name, found in pooled.items()}, weights),
        has_valid_N=has_valid_N,
    )
    return weights, mixed


def gains(
    task: Task, valid: Labels, pooled: Mapping[str, Pooled], weights: Mapping[str, float]
) -> dict[str, float]:
    """What each member adds to a blend: the gain in the primary metric over the blend of the others.

    On the validation rows, which also fitted both blends; positive is better for every metric.
    """
    used = [name for name, weight in weights.items() if weight]
    has_valid_N = np.logical_and.reduce([found.has_valid_N for found in pooled.values()])
    rows = valid.where(has_valid_N)
    members = {name: pooled[name].valid[has_valid_N] for name in used}
    metric = metrics.primary(task)

    def value(of_members: Mapping[str, FloatArray], shares: Mapping[str, float]) -> float:
        mixed = blend.blend(of_members, shares)
        return metrics.score(metric, metrics.compute(task, rows.label_N, mixed, rows.weight_N)[metric] or 0.0)

    whole = value(members, {name: weights[name] for name in used})
    added = {}
    for name in used if len(used) > 1 else ():
        rest = {other: found for other, found in members.items() if other != name}
        without = blend.blend_weights(task, rows.label_N, rest, weight_N=rows.weight_N)
        added[name] = whole - value(rest, without)
    return added


def _weights(task: Task, rows: Labels, members: Mapping[str, FloatArray]) -> dict[str, float]:
    helping = blend.members_that_help(task, rows.label_N, members, weight_N=rows.weight_N)
    kept = {name: members[name] for name in helping}
    return blend.blend_weights(task, rows.label_N, kept, weight_N=rows.weight_N)
