"""The target as class codes in a fixed order or finite numbers, and the weights of its rows.

N rows of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparkgpu.core.config.context_keys import ContextConfig
from sparkgpu.core.config.keys import DataConfig, RunConfig
from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import SplitName, TableSchema, Task
from sparkgpu.core.words import listed
from sparkgpu.prepare.column_values import as_float64, labels_of, numbers
from sparkgpu.prepare.columns import is_number
from sparkgpu.prepare.roles import FLOAT32_MAX, MANY_CLASSES, ColumnStatistics, infer_task
from sparkgpu.score.metrics import DEVIANCES


def has_decimal_commas(texts: Collection[str]) -> bool:
    """Whether these are numbers as they are written where a comma stands before the decimals, if any."""
    is_number = (re.fullmatch(r"[+-]?[0-9.]*[0-9](,[0-9]+)?", text) for text in texts)
    return any("," in text for text in texts) and all(is_number)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target in its encoded form.

    `type` is its type in Spark's spelling (``double`` for numbers written as text). `class_rows` counts the
    rows of each class, in code order.
    """

    column: str
    type: str
    task: Task
    classes: tuple[str, ...]
    class_rows: tuple[int, ...]
    rows: int
    rows_refused: int

    @property
    def each(self) -> tuple[Target, ...]:
        return (self,)

    def labels(self, batch: pa.RecordBatch) -> NDArray[Any]:
        """The labels (N,) of a batch: class codes, -1 for none, or values, NaN for none."""
        return labels_of(batch.column(self.column), self.classes, self.type)

    def classes_of(self, label_N: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which rows (N,) have a label, and their classes; 0 for those without one, and without classes."""
        if not self.classes:
            return ~np.isnan(label_N), np.zeros(len(label_N), dtype=np.int64)
        return label_N >= 0, np.maximum(label_N, 0)

    def values(self, label_N: NDArray[Any]) -> NDArray[np.float64]:
        """The labels (N,) as numbers, NaN for none."""
        value_N: NDArray[np.float64] = label_N.astype(np.float64)
        return np.where(value_N < 0, np.nan, value_N) if self.classes else value_N

    @property
    def rows_by_class(self) -> Mapping[int, int]:
        """The rows of each class; of a regression all rows, as class 0."""
        return dict(enumerate(self.class_rows or (self.rows,)))


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Several targets of the same rows, of which each has a label of one or more.

    The first one's classes cut the rows into splits; those without one of them are a class of their own.
    """

    each: tuple[Target, ...]
    rows: int
    rows_refused: int = 0

    @property
    def column(self) -> str:
        return self.each[0].column

    @property
    def classes(self) -> tuple[str, ...]:
        return self.each[0].classes

    def labels(self, batch: pa.RecordBatch) -> NDArray[np.float64]:
        """The labels (N, T) of a batch: class codes or values, NaN for none."""
        return np.stack([target.values(target.labels(batch)) for target in self.each], axis=1)

    def classes_of(self, label_NT: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """As those of `Target`."""
        has_label_N: NDArray[np.bool_] = np.logical_or.reduce(np.isfinite(label_NT), axis=1)
        code_N = np.nan_to_num(label_NT[:, 0], nan=len(self.classes))
        return has_label_N, np.where(has_label_N & bool(self.classes), code_N, 0).astype(np.int64)

    @property
    def rows_by_class(self) -> Mapping[int, int]:
        first = self.each[0]
        if not first.classes:
            return {0: self.rows}
        return {**first.rows_by_class, len(first.classes): self.rows - first.rows}


def find_target(statistics: ColumnStatistics, asked: str) -> Target:
    """Decide how the target is learned. Raises `DataError` if it cannot be learned."""
    name = f"target {statistics.name!r}"
    if statistics.nan or statistics.infinite:
        raise DataError(
            f"{name} holds {statistics.nan:,} NaN and {statistics.infinite:,} infinite values among "
            f"{statistics.rows:,} rows. Correct those values, or set them to null to leave the rows out."
        )
    if statistics.too_large:
        raise DataError(
            f"{name} holds {statistics.too_large:,} values beyond 3.4e38, the end of 32-bit numbers, among "
            f"{statistics.rows:,} rows. Use another unit, or set them to null to leave those rows out."
        )
    if asked in ("auto", "regression") and has_decimal_commas(statistics.counts or ()):
        one = next(text for text in statistics.counts or () if "," in text)
        raise DataError(
            f"{name} holds texts such as {one!r}, which are not read as numbers. To read numbers from a CSV, "
            'set data.decimal = ","; --task multiclass takes them for classes.'
        )
    classes: dict[str, int] = {}
    if infer_task(statistics, asked) == "regression":
        if not statistics.varies:
            raise DataError(
                f"{name} has one value in all {statistics.values:,} rows; there is nothing to learn. "
                "Choose another target."
            )
        task: Task = "regression"
        rows = statistics.values
    else:
        counts = statistics.counts or {}
        if len(counts) > MANY_CLASSES:
            raise DataError(
                f"{name} has more than {MANY_CLASSES:,} classes. Name a column of classes, or use --task "
                "regression for a number."
            )
        # Numbers by size, texts by the alphabet: the order that a reader expects in a table of probabilities.
        order = sorted(counts, key=float) if statistics.numeric else sorted(counts)
        classes = {level: counts[level] for level in order}
        _check_classes(classes, asked, name)
        task = "binary" if len(classes) == 2 else "multiclass"
        rows = sum(classes.values())
    return Target(
        column=statistics.name,
        type="double" if statistics.family == "text" and statistics.numeric else statistics.type,
        task=task,
        classes=tuple(classes),
        class_rows=tuple(classes.values()),
        rows=rows,
        rows_refused=statistics.rows - rows,
    )


def check_distributions(config: RunConfig, target: Target, least: Any) -> tuple[str, ...]:
    """The metrics of the distributions that models learn; `DataError` if the target cannot have one."""
    found = []
    for name in config.model_names:
        section = config.section(name)
        if isinstance(section, ContextConfig):
            continue
        distribution = section.distribution
        asked = f'{name}.distribution = "{distribution}"'
        if distribution != "gaussian" and target.classes:
            raise DataError(f"{asked} is for numbers; target {target.column!r} has classes. Leave it out.")
        positive = distribution in ("gamma", "lognormal")
        if distribution != "gaussian" and (least < 0 or (positive and least == 0)):
            raise DataError(
                f"{asked} needs a target {'above 0' if positive else 'of 0 or more'}, and the least value of "
                f"{target.column!r} is {least:g}. Choose another distribution, or leave it out."
            )
        found += [DEVIANCES[distribution]] if distribution != "gaussian" else []
    return tuple(dict.fromkeys(found))


def _check_classes(classes: Mapping[str, int], asked: str, name: str) -> None:
    if len(classes) == 1:
        ((only, rows),) = classes.items()
        raise DataError(
            f"{name} has one class, {only!r}, in all {rows:,} rows; there is nothing to learn. "
            "Choose another target."
        )
    if asked == "binary" and len(classes) != 2:
        raise DataError(
            f"--task binary: {name} has {len(classes)} classes ({listed(classes)}). Use --task multiclass."
        )
    if single := [level for level, rows in classes.items() if rows == 1]:
        has = "class {} has only one row" if len(single) == 1 else "classes {} have only one row each"
        raise DataError(
            f"{name}: {has.format(listed(map(repr, single)))}; a class needs two or more, for training and "
            "for the test. Merge or remove them."
        )


def check_weight_type(column: str, kind: str) -> None:
    if not is_number(kind) and kind not in ("boolean", "string"):
        raise DataError(
            f"data.weight {column!r} is of type {kind}; a weight must be a number. Choose another column."
        )


def weights_of(column: pa.Array) -> NDArray[np.float64]:
    """The weights (N,) in a column; NaN for what is no number from 0 to 3.4e38."""
    weight_N = as_float64(numbers(column))
    with np.errstate(invalid="ignore"):
        return np.where((weight_N >= 0) & (weight_N <= FLOAT32_MAX), weight_N, np.nan)


def class_weights(config: DataConfig, target: Target) -> tuple[float, ...]:
    """What the weight of each class's rows is multiplied by; empty where classes are left as they are."""
    if config.class_weights != "balanced" or not target.class_rows:
        return ()
    # scikit-learn's definition: rows / (classes * rows of the class); the weights then average to 1.
    return tuple(target.rows / (len(target.class_rows) * rows) for rows in target.class_rows)


def training_weights(
    schema: TableSchema, batch: pa.RecordBatch, class_N: NDArray[Any]
) -> NDArray[np.float64] | None:
    """The weight of each row (N,) of a batch, None where rows have none."""
    weight_N = weights_of(batch.column(schema.weight)) if schema.weight else None
    if not schema.class_weights:
        return weight_N
    each_N: NDArray[np.float64] = np.asarray(schema.class_weights)[class_N]
    return each_N if weight_N is None else weight_N * each_N


def check_classes(paths: RunPaths, schema: TableSchema) -> None:
    """Refuse a target of several with a class that no training row has: the first one alone cut the rows."""
    known_N = read_rows(paths, schema, "train", features=False).label_N
    missing = [name for code, name in enumerate(schema.classes) if not (known_N == code).any()]
    if missing:
        raise DataError(
            f"target {schema.target!r}: no training row has the class {listed(map(repr, missing))}, since "
            f"the first target alone decides the split. Name {schema.target!r} first, or merge rare classes."
        )


def check_weights(paths: RunPaths, schema: TableSchema) -> None:
    """Refuse a table with a split, or a fold, in which no row counts: it could not be scored."""
    if schema.weight is None:
        return
    splits: tuple[SplitName, ...] = ("train", "valid", "test")
    parts: list[tuple[SplitName, int | None]] = [(name, None) for name in splits if schema.splits[name]]
    for split, fold in [*parts, *(("valid", fold) for fold in range(schema.folds or 0))]:
        weight_N = read_rows(paths, schema, split, fold=fold, features=False).weight_N
        assert weight_N is not None
        if not weight_N.any():
            where = f"split {split}" if fold is None else f"fold {fold}"
            raise DataError(
                f"data.weight {schema.weight!r} is zero in all {len(weight_N):,} rows of {where}, so nothing "
                "there would count. Choose another column, or another split."
            )
