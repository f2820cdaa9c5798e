"""``explanations.json``: why the models of a run answer as they do, as typed records.

Keys that a later version may add are ignored.
"""

from __future__ import annotations

from typing import Literal

from sparkgpu.core.rundir.files import Name, Part, read_record
from sparkgpu.core.rundir.paths import RunPaths


class ExplainedModel(Part):
    """A model that was looked at, through one of its trials; `value` is its metric on the sample."""

    name: Name
    engine: str
    trial: Name
    value: float


class Importance(Part):
    """How much worse a model's metric becomes when a column is shuffled: mean and spread over `shuffles`.

    Greater is more important, whatever the metric's direction. `std` is None for a single shuffle, and
    `share` is the column's part of all that the model loses by the columns, from 0 to 1.
    """

    mean: float
    std: float | None
    shuffles: int
    share: float


class ColumnImportance(Part):
    """One of the user's columns: its importance by model.

    `differs` holds the sentence that trees and network use it differently; None if they do not.
    """

    column: str
    models: dict[str, Importance]
    differs: str | None = None


class Dependence(Part):
    """What the models predict on average when a feature has a certain value in all rows.

    `at` are the values (numbers or levels), `curves` the mean predictions at them, by model: values of a
    regression, or probabilities of `class_name`. `deciles` of a numeric feature and `shares` of levels tell
    where the rows lie. `title` names the feature, which is the column or a part of it.
    """

    column: str
    title: str
    kind: Literal["numeric", "categorical"]
    at: tuple[float, ...] | tuple[str, ...]
    class_name: str | None = None
    deciles: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    curves: dict[str, tuple[float, ...]]


class AddedByColumn(Part):
    """What a column added in each row, and whether its number is above the median there (None: no number)."""

    column: str
    added: tuple[float, ...]
    is_high: tuple[bool | None, ...]


class Summary(Part):
    """What the leading columns added to one model's predictions of `rows`, on `scale` (of `class_name`)."""

    model: Name
    scale: str
    class_name: str | None = None
    rows: int
    columns: tuple[AddedByColumn, ...]


class Explanations(Part):
    """The whole of ``explanations.json``.

    `rows` of `test_rows` were looked at, and `columns` is the number of all of the user's columns in use.
    `importances` are sorted, the leading column first. `pair` are the models that are compared with each
    other, trees first; None if only one kind finished. `seconds` is the wall time that it took.
    """

    metric: str
    rows: int
    test_rows: int
    dependence_rows: int
    columns: int
    seed: int
    seconds: float
    models: tuple[ExplainedModel, ...]
    pair: tuple[str, str] | None = None
    importances: tuple[ColumnImportance, ...] = ()
    dependence: tuple[Dependence, ...] = ()
    summary: Summary | None = None
    notes: tuple[str, ...] = ()


def read_explanations(paths: RunPaths) -> Explanations | None:
    """The explanations of a run; None if they were never made. Raises `ConfigError` if not readable."""
    if not paths.explanations.is_file():
        return None
    again = "Remove the file, and `sparkgpu report` makes it again."
    return read_record(paths.explanations, Explanations, again)
