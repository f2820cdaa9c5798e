"""The check for drift: whether a column is distributed otherwise in the test or validation rows.

Numbers by the Kolmogorov-Smirnov test, categories and missing values by the chi-square test, both from scipy.
A column drifts if the difference is both beyond chance, allowing for how many columns and splits are
compared (Bonferroni), and large: in large tables the smallest difference is beyond chance.

Limits: one column at a time; evenly spaced rows. N rows, B bins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.profile import CheckResult
from sparkgpu.core.table.schema import OTHER_LEVEL, SplitName
from sparkgpu.core.words import listed
from sparkgpu.score.profile.columns import Column
from sparkgpu.score.profile.sample import Sample

_LEAST_DISTANCE = 0.1
_CHANCE = 0.01
_MOST_ROWS = 20_000
_FEWEST_EXPECTED = 5


def drift(columns: Sequence[Column], samples: Mapping[SplitName, Sample]) -> CheckResult:
    """Compare every column, the target included, of the other splits with the training rows."""
    names: tuple[SplitName, ...] = ("valid", "test")
    splits = [split for split in names if split in samples]
    name = "drift between splits"
    if not splits or not columns:
        return CheckResult(name=name, passed=True, evidence="Not judged: there is only one split.")
    chance = _CHANCE / (len(columns) * len(splits))
    tested = [(column.title, split, _shift(column, split, chance)) for column in columns for split in splits]
    found = sorted([(*shift, title, split) for title, split, shift in tested if shift], reverse=True)
    evidence = (
        f"None of {len(columns):,} columns, the target included, is distributed clearly otherwise in "
        f"{' and '.join(splits)} than in train: no distance is beyond both {_LEAST_DISTANCE:g} and chance."
    )
    if found:
        parts = (f"{title} ({split}: {what} {distance:.2f})" for distance, what, title, split in found)
        evidence = (
            f"Distributed otherwise than in train, on a scale from 0 to 1: {listed(parts)}. "
            "The test metrics may not hold for rows like the training rows, nor the reverse."
        )
    titles = tuple(dict.fromkeys(title for *_, title, _ in found))
    farthest = max((far for far, *_ in found), default=0.0)
    return CheckResult(
        name=name, passed=not found, evidence=evidence, columns=titles, value=farthest, bound=_LEAST_DISTANCE
    )


def _shift(column: Column, split: SplitName, chance: float) -> tuple[float, str] | None:
    """How far a column is shifted, and what is, if that is far and less probable than `chance` by accident.

    From 0 to 1: the largest gap between the distribution functions of a number, half the sum of the
    differences of the shares of a category's levels (the rare and missing ones as one), or the difference of
    the shares that are missing.
    """
    tests = []
    if column.kind == "categorical":
        counts = _common_and_rest(column, split)
        shares = counts / counts.sum(axis=1, keepdims=True)
        distance = float(np.abs(shares[0] - shares[1]).sum() / 2)
        tests.append((distance, _chi_square(counts), "levels differ by"))
    else:
        distance, accident = _kolmogorov_smirnov(column.present("train"), column.present(split))
        tests.append((distance, accident, "distributions apart by"))
        missing = [column.is_missing(each) for each in ("train", split)]
        gone = abs(float(missing[0].mean() - missing[1].mean()))
        accident = _chi_square(np.array([[is_N.sum(), (~is_N).sum()] for is_N in missing]))
        tests.append((gone, accident, "missing values differ by"))
    sure = [(far, what) for far, accident, what in tests if far >= _LEAST_DISTANCE and accident <= chance]
    return max(sure, default=None)


def _kolmogorov_smirnov(a_N: NDArray[Any], b_N: NDArray[Any]) -> tuple[float, float]:
    from scipy.stats import ks_2samp

    if not len(a_N) or not len(b_N):
        return 0.0, 1.0
    parts = (values_N[:: -(-len(values_N) // _MOST_ROWS)] for values_N in (a_N, b_N))
    found = ks_2samp(*parts, method="asymp")
    return float(found.statistic), float(found.pvalue)


def _common_and_rest(column: Column, split: SplitName) -> NDArray[np.int64]:
    """The rows of train and of the split in each common level, and in all others together.

    The others are the rare levels, and the missing values with them: a level that training rows do not have
    is missing in the table, and in a column of many levels some of the split's rows have one by chance. In a
    column of capped levels such rows have `OTHER_LEVEL`. The training rows chose the levels that are kept, so
    fewer of them have it.
    """
    counts = np.stack(
        [np.bincount(column.bins(each), minlength=column.num_bins) for each in ("train", split)]
    )
    expected = counts.sum(axis=0) * counts.sum(axis=1).min() / counts.sum()
    is_common = expected >= _FEWEST_EXPECTED
    is_common[-1] = False
    if OTHER_LEVEL in column.levels:
        is_common[column.levels.index(OTHER_LEVEL)] = False
    common = counts[:, is_common]
    return np.column_stack([common, counts.sum(axis=1) - common.sum(axis=1)])


def _chi_square(counts: NDArray[np.int64]) -> float:
    """The probability that two rows of counts differ so much by accident."""
    from scipy.stats import chi2_contingency

    counts = counts[:, counts.sum(axis=0) > 0]
    return float(chi2_contingency(counts).pvalue) if counts.shape[1] > 1 else 1.0
