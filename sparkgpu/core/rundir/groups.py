"""What the models of a run reach in groups of test rows: a part of ``metrics.json``."""

from __future__ import annotations

from sparkgpu.core.rundir.files import Part


class Estimate(Part):
    """A metric on some rows, and its 95 % interval (two Nones where it has none)."""

    value: float | None
    ci95: tuple[float | None, float | None]


class GroupResult(Part):
    """A group of test rows. `mean_prediction` among the metrics is that of the second of two classes."""

    name: str
    rows: int
    metrics: dict[str, Estimate]


class Gap(Estimate):
    """The greatest value of a metric less the least, and the groups with these.

    The interval allows for the number of pairs of groups: above 0, the groups differ beyond chance.
    """

    greatest: str
    least: str


class ColumnGroups(Part):
    """The groups of the test rows by the values of a column, and the `gaps` between them by metric.

    Groups that are too small to be judged are left out.
    """

    column: str
    groups: tuple[GroupResult, ...]
    gaps: dict[str, Gap]
