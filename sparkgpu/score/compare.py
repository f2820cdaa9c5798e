"""Is the difference between two predictions of the same rows real? A paired interval and a verdict.

Limits: the interval covers other rows like these, with the two fitted models unchanged. It does not cover
other seeds or another training set (the spread over repeats does). It is too narrow if rows depend on each
other (groups, time). Rows are one split in memory. Shapes: N rows, P positive and Q negative rows, G groups,
R replicates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from sparkgpu.core.words import metric_title
from sparkgpu.score import metrics
from sparkgpu.score.metrics import greater_is_better, primary
from sparkgpu.score.own_metrics import placements
from sparkgpu.score.rows import FloatArray, IntArray, ScoredRows, Task, checked

MIN_ROWS = 10
"""The minimum of rows (for ROC AUC: of each class) for both methods; with fewer, the verdict is a tie."""

_MAX_GROUPS = 2000
_REPLICATES = 2000
_CHUNK = 200  # replicates in memory at a time: 200 x 2000 counts, 3 MB
_RESAMPLES = 200  # of metrics that are no mean over rows, milliseconds each
_MOST_RESAMPLED = 10_000
_LEVEL = 0.95
_CLASSES = ("negative", "positive")
_ROUNDING = 1e-12  # relative; a smaller difference is rounding, not evidence

Interval = tuple[float, float] | tuple[None, None]
"""Both ends, or none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Which of a and b is ahead, by how much, and how sure that is.

    ``difference`` is the metric's natural value for a minus that for b (None if the rows define none).
    ``verdict`` respects the metric's direction. ``ci95`` holds the interval of the difference, or two Nones
    without an interval: then ``reason`` gives the cause and the verdict is "tie". ``reason`` is also given if
    the two are exactly equal; otherwise it is None.
    """

    metric: str
    difference: float | None
    ci95: Interval
    verdict: Literal["a", "b", "tie"]
    method: str
    reason: str | None = None

    def of_more_rows(self, value_a: float | None, value_b: float | None, times: int) -> Comparison:
        """The comparison of so many times the rows, of which these are a sample, by their two metrics.

        The interval lies around their difference, and is narrower by the root of `times`.
        """
        if value_a is None or value_b is None:
            return self
        moved = value_a - value_b
        low, high = self.ci95
        if self.difference is None or low is None or high is None:
            return replace(self, difference=moved)
        low, high = (moved + (end - self.difference) / math.sqrt(times) for end in (low, high))
        method = f"{self.method}; its spread from one of {times} rows"
        return _judged(self.metric, moved, (low, high), method, size=max(abs(value_a), abs(value_b)))

    def sentence(self, name_a: str, name_b: str) -> str:
        """The verdict in words, the leader first: ``trees ahead of neural by 0.0123 ROC AUC (...)``."""
        word = metric_title(self.metric)
        low, high = self.ci95
        if low is None or high is None or self.difference is None:
            return f"tie: {name_a} and {name_b} cannot be told apart in {word}: {self.reason}"
        decimals = _decimals(self.difference, low, high)
        difference = self.difference
        if difference < 0 and self.verdict != "tie":
            difference, low, high = -difference, -high, -low
        interval = f"({100 * _LEVEL:g} % interval {low:,.{decimals}f} to {high:,.{decimals}f})"
        if self.verdict == "tie":
            if self.reason:
                return f"tie: {name_a} and {name_b} are equal in {word}: {self.reason}"
            return (
                f"tie: {name_a} minus {name_b} is {difference:z,.{decimals}f} {word}, which could be chance "
                f"{interval}"
            )
        ahead, behind = (name_a, name_b) if self.verdict == "a" else (name_b, name_a)
        return f"{ahead} ahead of {behind} by {difference:z,.{decimals}f} {word} {interval}"


def compare(
    task: Task, label_N: Any, a: Any, b: Any, seed: int, *, weight_N: Any = None, asked: str | None = None
) -> Comparison:
    """Compare two predictions of the same rows by the metric asked for, or by the task's own.

    Binary: ROC AUC by DeLong's paired test (``delong``). Multiclass: log loss; regression: RMSE; both by the
    paired bootstrap of ``_bootstrap``, which uses ``seed``, and so does ``_resampled``, for any other metric.
    The verdict is "a" or "b" if the whole
    interval is on one side of zero. ``a`` and ``b``: probabilities (N, C) or values (N,). Raises the errors
    of ``rows.checked``.
    """
    rows_a, rows_b = checked(task, label_N, a, weight_N), checked(task, label_N, b, weight_N)
    if (metric := primary(task, asked)) != primary(task):
        return _compare_by(metric, rows_a, rows_b, seed)
    return _compare_auc(rows_a, rows_b) if task == "binary" else _compare_loss(rows_a, rows_b, seed)


def interval(
    task: Task, label_N: Any, prediction: Any, seed: int, *, weight_N: Any = None, asked: str | None = None
) -> Interval:
    """The 95 % interval of a prediction's metric, the one asked for or the task's; two Nones without one.

    For the task's own metric it is that of `compare` with a prediction whose metric is known exactly: equal
    for all rows (ROC AUC 0.5), or right in every row (loss 0).
    """
    if (metric := primary(task, asked)) != primary(task):
        rows = checked(task, label_N, prediction, weight_N)
        value = metrics.value(metric, rows)
        spread = _resampled(metric, [rows], seed)
        if value is None or spread is None:
            return None, None
        half = _half_width(spread[0])
        least, most = metrics.bounds(metric)
        return max(value - half, least), min(value + half, most)
    known: FloatArray
    if task == "regression":
        known = np.asarray(label_N, dtype=np.float64)
    elif task == "binary":
        known = np.full(np.shape(prediction), 0.5)
    else:
        known = np.eye(np.shape(prediction)[1])[np.asarray(label_N, dtype=np.int64)]
    found = compare(task, label_N, prediction, known, seed, weight_N=weight_N)
    low, high = found.ci95
    if low is None or high is None:
        return None, None
    if task == "binary":  # the normal distribution of DeLong's test knows no end at 1
        return max(low + 0.5, 0.0), min(high + 0.5, 1.0)
    return low, high


def delong(
    label_N: IntArray, a_N: FloatArray, b_N: FloatArray, weight_N: FloatArray | None = None
) -> tuple[float, float, float]:
    """ROC AUC of a and of b, and the variance of their paired difference; O(N log N).

    E. DeLong, D. DeLong, Clarke-Pearson (1988), "Comparing the areas under two or more correlated receiver
    operating characteristic curves", Biometrics 44, 837-845: with placements V10_P (share of negatives below
    each positive, ties counting half) and V01_Q alike, AUC is their mean and the variance of a difference D
    is var(D10_P) / P + var(D01_Q) / Q. Placements come from one sort (the midranks of Sun & Xu (2014), "Fast
    implementation of DeLong's algorithm", IEEE Signal Processing Letters 21, 1389-1393, written as cumulative
    sums).

    ``label_N`` is 0 or 1, at least two of each for a variance that means anything. With weights the means are
    weighted and the variances those of weighted means (sum of w^2 D^2 over (sum of w)^2, times P / (P - 1)),
    which for equal weights is DeLong's.
    """
    weight_N = np.ones(len(label_N)) if weight_N is None else weight_N
    positive_N = label_N == 1
    weight_P, weight_Q = weight_N[positive_N], weight_N[~positive_N]
    placed_a_N, placed_b_N = (placements(positive_N, score_N, weight_N) for score_N in (a_N, b_N))
    auc_a = float(np.average(placed_a_N[positive_N], weights=weight_P))
    auc_b = float(np.average(placed_b_N[positive_N], weights=weight_P))
    difference_N = placed_a_N - placed_b_N
    variance = _variance_of_mean(difference_N[positive_N], weight_P)
    variance += _variance_of_mean(difference_N[~positive_N], weight_Q)
    return auc_a, auc_b, variance


def _variance_of_mean(value_N: FloatArray, weight_N: FloatArray) -> float:
    centred_N = value_N - np.average(value_N, weights=weight_N)
    n = len(value_N)
    return float(np.sum((weight_N * centred_N) ** 2) / weight_N.sum() ** 2 * n / max(n - 1, 1))


def _compare_auc(rows_a: ScoredRows, rows_b: ScoredRows) -> Comparison:
    label_N = np.asarray(rows_a.label_N, dtype=np.int64)
    num_positive = int(label_N.sum())
    counts = {1: num_positive, 0: len(label_N) - num_positive}
    if 0 in counts.values():
        reason = f"all {len(label_N):,} rows are of the {_CLASSES[num_positive > 0]} class"
        return _tie("roc_auc", None, "DeLong", reason)
    a_N, b_N = rows_a.prediction[:, 1], rows_b.prediction[:, 1]
    rare = min(counts, key=lambda code: counts[code])
    auc_a, auc_b, variance = delong(label_N, a_N, b_N, rows_a.weight_N)
    difference = auc_a - auc_b
    if counts[rare] < MIN_ROWS:
        reason = (
            f"too few rows of the {_CLASSES[rare]} class ({counts[rare]}; at least {MIN_ROWS} are needed)"
        )
        return _tie("roc_auc", difference, "DeLong", reason)
    half = NormalDist().inv_cdf(0.5 + _LEVEL / 2) * math.sqrt(variance)
    low, high = max(difference - half, -1.0), min(difference + half, 1.0)
    return _judged("roc_auc", difference, (low, high), "DeLong", size=1.0)


def _compare_loss(rows_a: ScoredRows, rows_b: ScoredRows, seed: int) -> Comparison:
    metric = primary(rows_a.task)
    root = metric == "rmse"
    loss_a_N, loss_b_N = rows_a.loss_N(), rows_b.loss_N()
    value_a = float(np.average(loss_a_N, weights=rows_a.weight_N))
    value_b = float(np.average(loss_b_N, weights=rows_a.weight_N))
    if root:
        value_a, value_b = math.sqrt(value_a), math.sqrt(value_b)
    difference = value_a - value_b
    if len(loss_a_N) < MIN_ROWS:
        reason = f"too few rows ({len(loss_a_N)}; at least {MIN_ROWS} are needed)"
        return _tie(metric, difference, "paired bootstrap", reason)
    replicate_R = _bootstrap(loss_a_N, loss_b_N, rows_a.weight_N, root=root, seed=seed)
    low, high = (float(q) for q in np.quantile(replicate_R, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]))
    method = f"paired bootstrap ({_REPLICATES} replicates of {min(len(loss_a_N), _MAX_GROUPS)} groups)"
    return _judged(metric, difference, (low, high), method, size=max(value_a, value_b))


def _compare_by(metric: str, rows_a: ScoredRows, rows_b: ScoredRows, seed: int) -> Comparison:
    value_a, value_b = metrics.value(metric, rows_a), metrics.value(metric, rows_b)
    method = f"paired bootstrap ({_RESAMPLES} samples of rows, normal interval)"
    if value_a is None or value_b is None:
        return _tie(metric, None, method, "the test rows do not define it")
    difference = value_a - value_b
    spread = _resampled(metric, [rows_a, rows_b], seed)
    if spread is None:
        reason = f"too few rows ({len(rows_a.label_N)}; at least {MIN_ROWS} are needed)"
        return _tie(metric, difference, method, reason)
    half = _half_width(spread[0] - spread[1])
    size = max(abs(value_a), abs(value_b))
    return _judged(metric, difference, (difference - half, difference + half), method, size=size)


def error_of(metric: str, rows: ScoredRows, seed: int) -> float:
    """The standard error of a metric by the bootstrap; NaN with too few rows."""
    spread = _resampled(metric, [rows], seed)
    return math.nan if spread is None else float(np.nanstd(spread[0], ddof=1))


def _half_width(value_R: FloatArray) -> float:
    return NormalDist().inv_cdf(0.5 + _LEVEL / 2) * float(np.nanstd(value_R, ddof=1))


def _resampled(metric: str, predictions: Sequence[ScoredRows], seed: int) -> FloatArray | None:
    """The metric (M, R) of M predictions of the same rows, in R samples of them with replacement.

    Of more than `_MOST_RESAMPLED` rows each sample holds that many, and deviations from the mean shrink by
    the root of the share (the m out of n bootstrap). None with too few rows.
    """
    num_rows = len(predictions[0].label_N)
    if num_rows < MIN_ROWS:
        return None
    rng, size = np.random.default_rng(seed), min(num_rows, _MOST_RESAMPLED)
    value_MR = np.full((len(predictions), _RESAMPLES), np.nan)
    for replicate in range(_RESAMPLES):
        drawn_N = rng.integers(num_rows, size=size)
        for place, rows in enumerate(predictions):
            found = metrics.value(metric, rows.part(drawn_N))
            value_MR[place, replicate] = np.nan if found is None else found
    mean_M1 = np.nanmean(value_MR, axis=1, keepdims=True)
    return np.asarray(mean_M1 + (value_MR - mean_M1) * math.sqrt(size / num_rows))


def _bootstrap(
    loss_a_N: FloatArray, loss_b_N: FloatArray, weight_N: FloatArray | None, *, root: bool, seed: int
) -> FloatArray:
    """Differences (R,) of the mean loss, or of its root, over resampled groups of rows.

    Rows are assigned at random to at most ``_MAX_GROUPS`` groups, whose sizes differ by at most one row, and
    whole groups are drawn with replacement; drawing G of G gives each group a multinomial count. So a
    replicate takes G additions instead of N, for any length of the table. Because the groups are random, the
    variance of a group's sum is that of its rows. So the interval is that of the ordinary bootstrap up to the
    error of estimating a variance from 2000 values (about 3 %). With N <= ``_MAX_GROUPS`` every row is a
    group, and it *is* the ordinary bootstrap.
    """
    rng = np.random.default_rng(seed)
    num_rows = len(loss_a_N)
    num_groups = min(num_rows, _MAX_GROUPS)
    weight_N = np.ones(num_rows) if weight_N is None else weight_N
    group_N = rng.permutation(num_rows) % num_groups
    sums_G3 = np.stack(
        [
            np.bincount(group_N, weights=column_N, minlength=num_groups)
            for column_N in (weight_N * loss_a_N, weight_N * loss_b_N, weight_N)
        ],
        axis=1,
    )
    difference_R = np.empty(_REPLICATES)
    for start in range(0, _REPLICATES, _CHUNK):
        size = min(_CHUNK, _REPLICATES - start)
        drawn_RG = rng.integers(num_groups, size=(size, num_groups)) + num_groups * np.arange(size)[:, None]
        counts_RG = np.bincount(drawn_RG.ravel(), minlength=size * num_groups).reshape(size, num_groups)
        total_R3 = counts_RG.astype(np.float64) @ sums_G3
        mean_R2 = total_R3[:, :2] / total_R3[:, 2:]
        if root:
            mean_R2 = np.sqrt(mean_R2)
        difference_R[start : start + size] = mean_R2[:, 0] - mean_R2[:, 1]
    return difference_R


def _judged(
    metric: str, difference: float, interval: tuple[float, float], method: str, *, size: float
) -> Comparison:
    low, high = interval
    if max(abs(difference), abs(low), abs(high)) <= _ROUNDING * size:
        reason = "every row counts the same for both"
        return _tie(metric, 0.0, method, reason, ci95=(0.0, 0.0))
    verdict: Literal["a", "b", "tie"] = "tie"
    if low > 0 or high < 0:
        verdict = "a" if (low > 0) == greater_is_better(metric) else "b"
    return Comparison(metric=metric, difference=difference, ci95=interval, verdict=verdict, method=method)


def _tie(
    metric: str, difference: float | None, method: str, reason: str, *, ci95: Interval = (None, None)
) -> Comparison:
    return Comparison(
        metric=metric, difference=difference, ci95=ci95, verdict="tie", method=method, reason=reason
    )


def _decimals(difference: float, low: float, high: float) -> int:
    """Decimals that show two digits of the interval's width or, without one, four of the difference.

    Up to two more tell the difference from 0, and so the ends of an interval without it.
    """
    width = high - low
    size, digits = (width, 2) if width > 1e-9 * abs(difference) else (abs(difference), 4)
    if size == 0:
        return 0
    decimals = max(digits - 1 - math.floor(math.log10(size)), 0)
    if least := min(map(abs, (difference, low, high))) if low * high > 0 else abs(difference):
        decimals = max(decimals, min(decimals + 2, -math.floor(math.log10(least))))
    return min(decimals, 12)
