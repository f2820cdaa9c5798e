"""How sure the models of a run are: the part of ``metrics.json`` on their intervals and sets."""

from __future__ import annotations

from sparkgpu.core.rundir.files import Part


class Conformal(Part):
    """How wide a model's intervals are, or how likely the classes of its sets (`sparkgpu.score.conformal`).

    `rows` validation rows were there to hold the truth in the share `coverage`. `reach` are the distances of
    both ends from a predicted number, by the ranges of predictions between `cuts`; of classes it is one: the
    sets hold those with at least the probability 1 - reach. None has no limit: there were too few rows.
    """

    coverage: float
    rows: int
    cuts: tuple[float, ...] = ()
    reach: tuple[float | None, ...]


class Coverage(Part):
    """In which share of these test rows the truth is inside, with an interval.

    `width` is the mean width of the intervals (None: some have no limit), or the mean number of classes.
    """

    name: str = ""
    rows: int
    coverage: float
    ci95: tuple[float, float]
    width: float | None


class IntervalsResult(Part):
    """Prediction intervals, or sets of classes: how they were `fitted`, and their worth on the test rows.

    `empty` is the share of sets without a class. `groups` are the groups of test rows with the clearest lack
    of coverage; their intervals allow for the number of groups.
    """

    fitted: Conformal
    test: Coverage
    empty: float | None = None
    groups: tuple[Coverage, ...] = ()

    @property
    def short(self) -> tuple[Coverage, ...]:
        """The groups whose coverage is below what was asked beyond chance."""
        return tuple(one for one in self.groups if one.ci95[1] < self.fitted.coverage)
