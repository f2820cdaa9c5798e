"""``profile.json``: what is in the prepared table, as typed records, and the checks of it.

Columns have the user's titles. Numbers are of the rows that were looked at, which `SplitProfile` counts.
"""

from __future__ import annotations

from typing import Literal

from sparkgpu.core.rundir.files import Part


class SplitProfile(Part):
    """A split's rows, and how many of them, evenly spaced, the profile is of."""

    rows: int
    looked_at: int


class NumberProfile(Part):
    """The distribution of a number over the training rows that have one; infinite values are left out.

    `counts` are of equally wide bins from `low` to `high`: the 1st and the 99th percentile (the extremes if
    those are equal), or for a few whole numbers a bin each. The first and last bin also hold what lies
    beyond. `std` is the sample's.
    """

    least: float
    quartile_1: float
    median: float
    quartile_3: float
    greatest: float
    mean: float
    std: float
    low: float
    high: float
    counts: tuple[int, ...]


class LevelProfile(Part):
    """A level of a category and its share of the training rows that have one."""

    level: str
    share: float


class ColumnProfile(Part):
    """One column over the training rows.

    `missing` is the share of rows without a value, `distinct` the number of different values. `numbers` is
    None for categories and for columns without values; `levels` are a category's most frequent ones.
    `with_target` is the association with the target (`Associations` says which). `alone` is how much of the
    target this column explains alone: fitted on training rows, on test rows, 1 for all and 0 for nothing; the
    share of the log loss of classes, or of the squared error, that is gone. Both are None for the target.
    """

    column: str
    kind: Literal["numeric", "categorical"]
    missing: float
    distinct: int
    numbers: NumberProfile | None = None
    levels: tuple[LevelProfile, ...] = ()
    with_target: float | None = None
    alone: float | None = None


class Associations(Part):
    """How strongly each pair of `columns` belongs together, between 0 and 1, over `rows` training rows.

    Numbers: Spearman's rank correlation without its sign. Categories: Cramér's V, corrected for chance. A
    number and a category: the correlation ratio of the number's ranks, corrected for chance. The last column
    is the target; the others are those that belong to it most. None where a pair has too few values.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    rows: int


class CheckResult(Part):
    """A check, what it found in one sentence, and the columns concerned, the clearest first.

    `value` is its number, if it has one, and `bound` where that stands out.
    """

    name: str
    passed: bool
    evidence: str
    columns: tuple[str, ...] = ()
    value: float | None = None
    bound: float | None = None


class Proxy(Part):
    """A feature, and the share of a withheld column's loss that it takes away alone."""

    column: str
    told: float


class WithheldColumn(Part):
    """A column of ``rules.without``: how much of it all features tell together, and the best of them alone.

    `told` is between 0 and 1, fitted on training rows, on test rows: the share of the column's log loss or
    squared error that is gone; None if it cannot be judged.
    """

    column: str
    told: float | None = None
    proxies: tuple[Proxy, ...] = ()


class TableProfile(Part):
    """The whole of ``profile.json``; `profile_s` is how long it took."""

    splits: dict[str, SplitProfile]
    target: ColumnProfile
    columns: tuple[ColumnProfile, ...]
    associations: Associations
    checks: tuple[CheckResult, ...]
    withheld: tuple[WithheldColumn, ...] = ()
    profile_s: float
