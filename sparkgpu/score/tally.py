"""Metrics of a split too large for memory, from sums over parts of its rows.

Means, counts and what follows from them are exact. For ranks, rows count as ties that lie in one cell between
the cuts, which are values of a sample and an even grid: that moves them by the share of rows in a cell, some
1e-5. The formulas are those of small splits: they get the cells as weighted rows.

N rows, C classes, B cuts.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from sparkgpu.score.metrics import Metrics
from sparkgpu.score.own_metrics import OWN, decided
from sparkgpu.score.rows import FloatArray, ScoredRows, Task

_CUTS = 2**16  # of each class, and of the grid
_CUTS_OF_PAIRS = 2**10  # of label and prediction, whose cells are pairs
_MEANS = {
    "log_loss", "brier", "accuracy", "mae", "poisson_deviance", "gamma_deviance", "tweedie_deviance",
}  # fmt: skip
_ROOTS = {"rmse", "rmse_of_logarithms"}
_OF_DECISIONS = {"f1", "balanced_accuracy", "f1_macro"}
_OF_RANKS = {"roc_auc", "average_precision", "spearman"}
TALLIED = frozenset({*_MEANS, *_ROOTS, *_OF_DECISIONS, *_OF_RANKS, "r2"})
"""The metrics that a `Tally` knows: all of this package."""


class Tally:
    """The sums of some rows; those of several threads can be added."""

    def __init__(self, metrics: Collection[str], sample: ScoredRows) -> None:
        """`sample` holds some of the rows: ranks need to know where they lie."""
        self._task: Task = sample.task
        self._metrics = [name for name in metrics if name in TALLIED]
        self._cuts = _cuts(sample)
        self._sums = dict.fromkeys((*self._metrics, "weight", "label", "label_squares"), 0.0)
        self._undefined: set[str] = set()
        self._ends = [math.inf, -math.inf]
        self._origin = float(np.mean(sample.label_N))
        num_classes = 1 if self._task == "regression" else sample.prediction.shape[1]
        self._decided_CC = np.zeros((num_classes, num_classes))
        self._cells = np.zeros([len(cuts) + 1 for cuts in self._cuts])

    def empty(self) -> Tally:
        """One like it for other rows of the same split."""
        other = object.__new__(Tally)
        other.__dict__.update(self.__dict__)
        other._sums = dict.fromkeys(self._sums, 0.0)
        other._undefined, other._ends = set(), [math.inf, -math.inf]
        other._decided_CC, other._cells = np.zeros_like(self._decided_CC), np.zeros_like(self._cells)
        return other

    def add(self, rows: ScoredRows) -> None:
        count_N = np.ones(len(rows.label_N)) if rows.weight_N is None else rows.weight_N
        weight = float(count_N.sum())
        self._sums["weight"] += weight
        for name in self._metrics:
            if name in _MEANS or name in _ROOTS:
                value = OWN[name](rows)
                if value is None:
                    self._undefined.add(name)
                else:
                    self._sums[name] += weight * (value if name in _MEANS else value * value)
        if self._task == "regression":
            self._ends = [min(self._ends[0], rows.label_N.min()), max(self._ends[1], rows.label_N.max())]
            moved_N = rows.label_N - self._origin
            self._sums["label"] += float(count_N @ moved_N)
            self._sums["label_squares"] += float(count_N @ np.square(moved_N))
            first, second = map(np.searchsorted, self._cuts, _pair(rows))
        else:
            pair_N = rows.label_N * len(self._decided_CC) + decided(rows)
            counted = np.bincount(pair_N, weights=rows.weight_N, minlength=self._decided_CC.size)
            self._decided_CC += counted.reshape(self._decided_CC.shape)
            if self._task != "binary":
                return
            first = rows.label_N.astype(np.int64)
            second = np.searchsorted(self._cuts[1], rows.prediction[:, 1])
        place_N = np.ravel_multi_index((first, second), self._cells.shape)
        counted = np.bincount(place_N, weights=rows.weight_N, minlength=self._cells.size)
        self._cells += counted.reshape(self._cells.shape)

    def join(self, other: Tally) -> None:
        """Add the sums of other rows."""
        for name, value in other._sums.items():
            self._sums[name] += value
        self._undefined |= other._undefined
        self._ends = [min(self._ends[0], other._ends[0]), max(self._ends[1], other._ends[1])]
        self._decided_CC += other._decided_CC
        self._cells += other._cells

    def metrics(self) -> Metrics:
        """Those that were asked for and that it knows."""
        return {name: None if name in self._undefined else self._value(name) for name in self._metrics}

    def _value(self, name: str) -> float | None:
        weight = self._sums["weight"]
        if name in _MEANS:
            return self._sums[name] / weight
        if name in _ROOTS:
            return math.sqrt(self._sums[name] / weight)
        if name == "r2":
            if self._ends[0] == self._ends[1]:
                return None
            mean = self._sums["label"] / weight
            return 1.0 - self._sums["rmse"] / (self._sums["label_squares"] - weight * mean * mean)
        return OWN[name](self._as_rows(self._decided_CC if name in _OF_DECISIONS else self._cells))

    def _as_rows(self, cells: FloatArray) -> ScoredRows:
        """The cells that hold rows, as one weighted row each."""
        first_N, second_N = np.nonzero(cells)
        weight_N = cells[first_N, second_N]
        if self._task == "regression":
            label_N, prediction = first_N.astype(np.float64), second_N.astype(np.float64)
            return ScoredRows(task=self._task, label_N=label_N, prediction=prediction, weight_N=weight_N)
        if cells is self._decided_CC:
            prediction = np.eye(len(cells))[second_N]
        else:
            prediction = np.column_stack([-second_N, second_N]).astype(np.float64)
        return ScoredRows(task=self._task, label_N=first_N, prediction=prediction, weight_N=weight_N)


def _cuts(sample: ScoredRows) -> tuple[FloatArray, ...]:
    """Between the cells of labels, and between those of predictions; the cell of a cut is below it."""
    if sample.task == "regression":
        return tuple(_spread(value_N, _CUTS_OF_PAIRS) for value_N in _pair(sample))
    between_classes = np.array([0.0])
    if sample.task == "multiclass":
        return between_classes, np.empty(0)
    score_N = sample.prediction[:, 1]
    grid = np.linspace(score_N.min(), score_N.max(), _CUTS)
    own = [_spread(score_N[sample.label_N == code], _CUTS) for code in (0, 1)]
    return between_classes, np.unique(np.concatenate([grid, *own]))


def _pair(rows: ScoredRows) -> tuple[FloatArray, FloatArray]:
    return np.asarray(rows.label_N, dtype=np.float64), rows.prediction


def _spread(value_N: FloatArray, most: int) -> FloatArray:
    """At most `most` of the values, evenly spaced in their order."""
    return np.unique(np.sort(value_N)[:: -(-len(value_N) // most) or 1])
