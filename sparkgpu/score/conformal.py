"""How sure a model is: intervals around its numbers, sets of classes, by split-conformal prediction.

They hold the truth of the asked share of new rows if these are like the validation rows, whatever the model:
Vovk, Gammerman & Shafer (2005), "Algorithmic Learning in a Random World"; Lei et al. (2018),
"Distribution-free predictive inference for regression", JASA 113. A number's interval is as wide to both
sides as the errors among predictions of its size (a range each: Boström & Johansson (2020), "Mondrian
conformal regressors", PMLR 128). A set holds the classes that are likely enough: Sadinle, Lei & Wasserman
(2019), "Least ambiguous set-valued classifiers", JASA 114; it may be empty.

Limits: the share holds over all rows of a range, not for each group of them. The validation rows also stopped
the training and weighted the blend, so it may be a little less; of out-of-fold predictions, whose models saw
fewer rows, a little more (Barber et al. (2021), "Predictive inference with the jackknife+", Ann. Stat. 49).

N rows, C classes, R ranges of predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.intervals import Conformal, Coverage, IntervalsResult
from sparkgpu.score.rows import FloatArray, Task, checked
from sparkgpu.score.segments import Grouping, Segment, of_losses

_MOST_RANGES = 10
_MISSES = 20  # that a range should expect, so that its own share is known to a quarter of what may miss
_MOST_GROUPS = 12
_ROUNDING = 1e-6  # single-precision probabilities may differ in their last digits when they are made again
_LEVEL = 0.95


def calibrated(
    task: Task, coverage: float, label_N: Any, prediction: Any, *, weight_N: Any = None
) -> Conformal:
    """Fit to rows that the model did not train on: probabilities (N, C), or values (N,).

    A new row counts like the mean one. Raises the errors of `rows.checked`.
    """
    rows = checked(task, label_N, prediction, weight_N)
    counted_N = np.ones(len(rows.label_N)) if rows.weight_N is None else rows.weight_N
    if task != "regression":
        score_N = 1 - rows.prediction[np.arange(len(rows.label_N)), rows.label_N.astype(int)]
        cuts, range_N = np.empty(0), np.zeros(len(score_N), dtype=int)
    else:
        score_N = np.abs(rows.label_N - rows.prediction)
        ranges = min(_MOST_RANGES, max(int(len(score_N) * (1 - coverage) / _MISSES), 1))
        cuts = np.unique(np.quantile(rows.prediction, np.arange(1, ranges) / ranges, method="higher"))
        cuts = cuts[cuts > rows.prediction.min()]
        range_N = np.searchsorted(cuts, rows.prediction, side="right")
    return Conformal(
        coverage=coverage,
        rows=len(score_N),
        cuts=tuple(cuts.tolist()),
        reach=tuple(
            _quantile(score_N[range_N == place], counted_N[range_N == place], coverage)
            for place in range(len(cuts) + 1)
        ),
    )


def _quantile(score_N: FloatArray, weight_N: FloatArray, coverage: float) -> float | None:
    """The ceil((N + 1) coverage)-th smallest score, for equal weights; None, without a limit, beyond all."""
    order_N = np.argsort(score_N, kind="stable")
    reached_N = np.cumsum(weight_N[order_N])
    wanted = coverage * reached_N[-1] * (1 + 1 / len(score_N))
    place = int(np.searchsorted(reached_N, wanted * (1 - 1e-12)))
    return float(score_N[order_N[place]]) if place < len(score_N) else None


def _reach(fitted: Conformal) -> FloatArray:
    return np.array([np.inf if one is None else one for one in fitted.reach])


def intervals(fitted: Conformal, value_N: FloatArray) -> FloatArray:
    """The ends (N, 2) of the interval of each predicted value; infinite where too few rows were there."""
    reach_N = _reach(fitted)[np.searchsorted(fitted.cuts, value_N, side="right")]
    return np.stack([value_N - reach_N, value_N + reach_N], axis=1)


def sets(fitted: Conformal, probability_NC: FloatArray) -> NDArray[np.bool_]:
    """Which classes (N, C) the set of each row holds."""
    return np.asarray(1 - probability_NC <= _reach(fitted)[0] + _ROUNDING)


def measured(
    task: Task,
    fitted: Conformal,
    label_N: Any,
    prediction: FloatArray,
    groupings: Sequence[Grouping],
    *,
    weight_N: Any = None,
) -> IntervalsResult:
    """What intervals or sets are worth on other rows: overall, and in groups of them.

    Of the groups it keeps those with the clearest lack of coverage, as many as a page can show.
    """
    weights_N = np.ones(len(prediction)) if weight_N is None else np.asarray(weight_N, dtype=np.float64)
    counted_N = weights_N > 0
    if task == "regression":
        ends_N2 = intervals(fitted, prediction)
        missed_N = (label_N < ends_N2[:, 0]) | (label_N > ends_N2[:, 1])
        width_N = ends_N2[:, 1] - ends_N2[:, 0]
    else:
        held_NC = sets(fitted, prediction)
        missed_N = ~held_NC[np.arange(len(label_N)), np.asarray(label_N).astype(int)]
        width_N = held_NC.sum(axis=1).astype(np.float64)
    weight_M, missed_M, width_M = weights_N[counted_N], missed_N[counted_N] * 1.0, width_N[counted_N]
    missed = float(np.average(missed_M, weights=weight_M))
    error = NormalDist().inv_cdf(0.5 + _LEVEL / 2) * float(
        np.sqrt(missed * (1 - missed) * (weight_M**2).sum()) / weight_M.sum()
    )
    is_empty = None if task == "regression" else float(np.average(width_M == 0, weights=weight_M))
    found = of_losses(missed_M, groupings, weights_N)
    widths = {one.name: one.loss for one in of_losses(width_M, groupings, weights_N)}
    worst = sorted(found, key=lambda one: (-one.interval[0], -one.loss))[:_MOST_GROUPS]
    return IntervalsResult(
        fitted=fitted,
        test=Coverage(
            rows=len(missed_M), coverage=1 - missed, width=_finite(np.average(width_M, weights=weight_M)),
            ci95=(max(1 - missed - error, 0.0), min(1 - missed + error, 1.0)),
        ),
        empty=is_empty,
        groups=tuple(_of_group(one, widths[one.name]) for one in worst),
    )  # fmt: skip


def _of_group(one: Segment, width: float) -> Coverage:
    low, high = one.interval
    return Coverage(
        name=one.name, rows=one.rows, coverage=1 - one.loss, width=_finite(width),
        ci95=(max(1 - high, 0.0), 1 - low),
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
