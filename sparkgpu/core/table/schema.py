"""The content of the prepared table: task, classes, features with their levels, and dropped columns.

One `TableSchema` is written as ``table/schema.json``, after the table itself: its presence means that the
table is complete. Engines read the levels, the label order and the column kinds from here and never derive
them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from sparkgpu.core.rundir.files import Record, read_record
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.dialect import Dialect
from sparkgpu.core.words import short_source

Task = Literal["binary", "multiclass", "regression"]
FeatureKind = Literal["numeric", "categorical"]
Reading = Literal["number", "boolean", "category", "timestamp", "estimate", "topic", "sum", "difference"]
SplitName = Literal["train", "valid", "test"]

ROW_ID = "row_id"
LABEL = "label"
WEIGHT = "weight"
FOLD = "fold"
SPLIT = "split"
RESERVED_COLUMNS = (ROW_ID, LABEL, WEIGHT, FOLD, SPLIT, "features", "prediction", "probability")
BOOLEANS = ("false", "true")
OTHER_LEVEL = "(other)"
"""The level that replaces all categories except the most frequent ones."""


class Feature(Record):
    """One feature column of the prepared table.

    `name` is the column in ``table/`` (only letters, digits and underscores, which every engine accepts),
    `source` the user's column, `part` the part of an expanded column (``hour``), `pipeline` the column inside
    the Spark pipeline (the user's own where its numbers need no reading). `levels` are the categories in code
    order; the table holds their codes as numbers. NaN in the table is a missing value, and so is a category
    that the training split does not contain. `means_of` names the feature whose levels' mean targets this one
    holds, and `pair` the two features, of `source` and of another column, whose sum or difference it is.

    `reading` tells how the source's values, of Spark's type `type`, became this feature's: as numbers,
    booleans or categories, as parts of timestamps, as estimates and topics of texts, or as sum or difference.
    Both are None in tables of earlier versions.
    """

    name: str
    source: str
    kind: FeatureKind
    pipeline: str
    part: str | None = None
    levels: tuple[str, ...] = ()
    means_of: str | None = None
    pair: tuple[str, str] | None = None
    reading: Reading | None = None
    type: str | None = None

    @property
    def title(self) -> str:
        """The feature's name for the user."""
        return f"{self.source} ({self.part})" if self.part else self.source

    @property
    def is_boolean(self) -> bool:
        """Whether its 0 and 1 are `BOOLEANS` for the user."""
        return self.reading == "boolean"

    @property
    def is_derived(self) -> bool:
        """Whether it follows from other features: a mean target, or the sum or difference of a pair."""
        return self.means_of is not None or self.pair is not None

    @property
    def is_text(self) -> bool:
        """Whether it is one of the numbers that a text became."""
        return self.reading in ("estimate", "topic")


class DroppedColumn(Record):
    """An unused column of the source, and the reason."""

    column: str
    reason: str


class DecisionRule(Record):
    """How classes are decided for: ``f1``, ``recall>=0.8`` and the like, or ``cost``.

    `costs` are by true class, then by decision, in the order of the classes; empty for other rules. Recall,
    precision, F1 and the threshold are of the class with the code `positive`.
    """

    rule: str
    positive: int = 1
    costs: tuple[tuple[float, ...], ...] = ()


class HeldOut(Record):
    """The user's own rows of a split: the name of their table, and the row id of its first."""

    table: str
    first: int


class TableSchema(Record):
    """The prepared table. Row counts are of usable rows; `rows_refused` had no target value.

    `weighted` says that the table holds weights to train with: those of the user's column `weight`, times
    `class_weights` in the order of `classes` where classes were balanced. Only the former count rows in
    metrics: balanced classes are a way to train, and no one's rows were more than one row. `target_type` is
    the target's type in Spark's spelling; None in tables of earlier versions. `held_out` are rows that lie
    beside the source; their ids follow its own. `metric` decides the run, and `decision` which class is
    predicted, if the user asked for them. `deviances` are the metrics of the distributions that
    models learn. The table of several targets names their folders in `targets`, and its `classes` are empty:
    its labels (N, T) are values or class codes, NaN for none. The table of each has those of its rows alone,
    and knows the `other_targets`. Texts of new rows are read in `dialect`. The columns `beside` the features,
    those of ``rules.without``, are in the table for checks alone. Predictions never fall (1) or never grow
    (-1) with the features in `monotone`; features meet only within a group of `interactions`, or all if there
    is none.
    """

    source: str
    dialect: Dialect = Dialect()
    target: str
    target_type: str | None = None
    task: Task
    classes: tuple[str, ...] = ()
    features: tuple[Feature, ...]
    dropped: tuple[DroppedColumn, ...] = ()
    notes: tuple[str, ...] = ()
    weighted: bool = False
    weight: str | None = None
    class_weights: tuple[float, ...] = ()
    folds: int | None = None
    rows: int
    rows_refused: int = 0
    splits: dict[str, int]
    held_out: dict[SplitName, HeldOut] = Field(default_factory=dict)
    fingerprint: str
    metric: str | None = None
    deviances: tuple[str, ...] = ()
    decision: DecisionRule | None = None
    beside: tuple[Feature, ...] = ()
    monotone: dict[str, Literal[1, -1]] = Field(default_factory=dict)
    interactions: tuple[tuple[str, ...], ...] = ()
    targets: tuple[str, ...] = ()
    other_targets: tuple[str, ...] = ()

    @property
    def signs(self) -> tuple[int, ...]:
        """The direction of each feature, 0 for none."""
        return tuple(self.monotone.get(feature.name, 0) for feature in self.features)

    @property
    def meeting(self) -> list[list[int]]:
        """The places of the features in each group of `interactions`."""
        place_of = {feature.name: place for place, feature in enumerate(self.features)}
        return [[place_of[name] for name in group] for group in self.interactions]

    def with_features(self, features: Iterable[Feature]) -> TableSchema:
        """The same table, of which other columns are read."""
        return self.model_copy(update={"features": tuple(features)})

    @property
    def num_outputs(self) -> int:
        """The columns of a prediction: one probability per class, or one value."""
        return len(self.classes) or 1

    @property
    def rows_text(self) -> str:
        """The usable rows for people: those of the source, and those of other tables beside it."""
        others = {split: self.splits.get(split, 0) for split in self.held_out}
        found = [f"{self.rows - sum(others.values()):,}"]
        for split, rows in others.items():
            found.append(f"{rows:,} {split} rows of {short_source(self.held_out[split].table)}")
        return " and ".join(found)

    @property
    def numeric(self) -> tuple[Feature, ...]:
        return tuple(feature for feature in self.features if feature.kind == "numeric")

    @property
    def categorical(self) -> tuple[Feature, ...]:
        return tuple(feature for feature in self.features if feature.kind == "categorical")


def read_schema(paths: RunPaths) -> TableSchema:
    """Read ``table/schema.json``, which exists when the table is complete."""
    return read_record(paths.schema, TableSchema)
