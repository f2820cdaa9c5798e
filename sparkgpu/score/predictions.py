"""The predictions of a run's trials and models, row by row beside the labels of its table.

Scores, pictures and explanations use these. A model's predictions are those of its trials averaged, or the
blend of other models. Predictions are joined to labels by ``row_id``: every labelled row needs exactly
one, and no other row may have one, since a scorer that silently drops rows compares models on different
tables. Limits: integer ids, arrays in memory. Shapes: N rows, C classes; predictions are probabilities (N,
C), or values (N,) for a regression.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.metrics_json import DoneTrial, Results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.predictions import read_predictions
from sparkgpu.core.table.rows import Rows, read_rows
from sparkgpu.core.table.schema import SplitName, TableSchema, Task
from sparkgpu.score import compare
from sparkgpu.score.blend import blend
from sparkgpu.score.compare import Interval
from sparkgpu.score.rows import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The rows of a prediction, in the order of their ids.

    `weight_N` is the weight of each row from the user's column; None if all rows count equally.
    """

    row_id_N: NDArray[np.int64]
    label_N: IntArray | FloatArray
    weight_N: FloatArray | None

    def counts(self) -> FloatArray:
        """The weight of each row, (N,)."""
        return np.ones(len(self.label_N)) if self.weight_N is None else self.weight_N

    def part(self, rows: slice | NDArray[np.bool_]) -> Labels:
        """Some of the rows."""
        return Labels(
            row_id_N=self.row_id_N[rows],
            label_N=self.label_N[rows],
            weight_N=None if self.weight_N is None else self.weight_N[rows],
        )


class LabelReader:
    """Labels of a run's splits, read once each: all rows or, of larger splits, evenly spaced `most_rows`.

    `every` says how many rows each one that is read stands for.
    """

    def __init__(self, paths: RunPaths, schema: TableSchema, *, most_rows: int | None = None) -> None:
        self.every: dict[SplitName, int] = {}
        if most_rows is not None:
            pooled: SplitName = "valid" if schema.folds is None else "train"
            rows = {"valid": schema.splits.get(pooled, 0), "test": schema.splits.get("test", 0)}
            self.every = {
                "valid": _spacing(rows["valid"], most_rows),
                "test": _spacing(rows["test"], most_rows),
            }
        self._paths = paths
        self._schema = schema
        self._read: dict[tuple[SplitName, int | None], Labels] = {}

    @property
    def samples(self) -> frozenset[SplitName]:
        """The splits of which not all rows are read."""
        return frozenset(split for split, every in self.every.items() if every > 1)

    def of(self, split: SplitName, fold: int | None = None) -> Labels:
        """The rows of `split` as a trial of `fold` sees them."""
        key = (split, fold if split != "test" else None)
        if key not in self._read:
            self._read[key] = labels_of(
                read_rows(
                    self._paths,
                    self._schema,
                    split,
                    fold=key[1],
                    features=False,
                    every=self.every.get(split, 1),
                ),
                self._schema,
            )
        return self._read[key]

    def all(self, split: SplitName) -> Labels:
        """Every row that is in some trial's validation split (all folds together), or the test rows."""
        folds = self._schema.folds
        if split == "test" or folds is None:
            return self.of(split)
        parts = [self.of("valid", fold) for fold in range(folds)]
        row_id_N = np.concatenate([part.row_id_N for part in parts])
        order_N = np.argsort(row_id_N, kind="stable")
        weights = [part.weight_N for part in parts if part.weight_N is not None]
        return Labels(
            row_id_N=row_id_N[order_N],
            label_N=np.concatenate([part.label_N for part in parts])[order_N],
            weight_N=np.concatenate(weights)[order_N] if weights else None,
        )


def labels_of(rows: Rows, schema: TableSchema) -> Labels:
    return Labels(row_id_N=rows.row_id_N, label_N=rows.label_N, weight_N=user_weights(rows, schema))


def user_weights(rows: Rows, schema: TableSchema) -> FloatArray | None:
    """The user's own weights, (N,): those in the table without the factor that balances the classes."""
    if schema.weight is None or rows.weight_N is None:
        return None
    weight_N = rows.weight_N.astype(np.float64)
    if schema.class_weights:
        weight_N /= np.asarray(schema.class_weights)[rows.label_N]
    return weight_N


def trial_predictions(
    paths: RunPaths,
    schema: TableSchema,
    trial: str,
    labels: Mapping[SplitName, Labels],
    samples: Collection[SplitName] = (),
) -> dict[SplitName, FloatArray]:
    """The predictions of a finished trial for the rows of `labels`, in their order.

    Of the splits in `samples` the labels are not those of all rows.

    Raises KeyError, OSError or ValueError if a split is missing, the file is gone or damaged, or it holds
    other rows.
    """
    paths.trial(trial).check("predictions.parquet")
    only = {split: labels[split].row_id_N for split in samples if split in labels}
    found = read_predictions(paths.trial(trial).predictions, schema, only=only)
    return {split: align(rows.row_id_N, *found[split]) for split, rows in labels.items()}


def _spacing(rows: int, most: int) -> int:
    """One of how many rows to read for at most `most`: a prime, since rows may repeat with a period."""
    found = max(-(-rows // most), 1)
    while any(found % factor == 0 for factor in range(2, math.isqrt(found) + 1)):
        found += 1
    return found


class Mean:
    """The mean of several predictions of `rows`, each of all or some of them; only sums are kept."""

    def __init__(self, rows: Labels) -> None:
        self._row_id_N = rows.row_id_N
        self._count_N = np.zeros(len(rows.row_id_N))
        self._total: FloatArray | None = None

    def add(self, rows: Labels, values: FloatArray) -> None:
        """Add the predictions of these rows, which are in the order of their ids."""
        if self._total is None:
            self._total = np.zeros((len(self._row_id_N), *values.shape[1:]))
        place_N = np.searchsorted(self._row_id_N, rows.row_id_N)
        self._total[place_N] += values
        self._count_N[place_N] += 1

    @property
    def known_N(self) -> NDArray[np.bool_]:
        """The rows with a prediction."""
        return self._count_N > 0

    def value(self) -> FloatArray:
        """The mean so far, of at least one prediction; NaN for a row without any."""
        assert self._total is not None
        divisor_N = np.where(self.known_N, self._count_N, np.nan)
        return np.asarray(self._total / divisor_N.reshape(-1, *([1] * (self._total.ndim - 1))))


def align(row_id_N: Any, found_id_N: Any, values: NDArray[Any]) -> NDArray[Any]:
    """The `values` of the rows `found_id_N`, (N,) or (N, C), in the order of `row_id_N`, where none is twice.

    There is no copy if the order already agrees. Raises ValueError if ids are missing, duplicated or unknown.
    """
    if np.array_equal(row_id_N, found_id_N):
        return values
    # A stable sort takes linear time on files that are sorted or nearly sorted.
    order_N, found_order_N = (np.argsort(ids, kind="stable") for ids in (row_id_N, found_id_N))
    if not np.array_equal(row_id_N[order_N], found_id_N[found_order_N]):
        raise unmatched(len(found_id_N), len(row_id_N))
    place_N = np.empty(len(order_N), dtype=np.int64)
    place_N[order_N] = found_order_N
    return values[place_N]


def unmatched(predictions: int, rows: int) -> ValueError:
    """The error for predictions of other rows than those with labels."""
    return ValueError(
        f"the {predictions} predictions do not match the {rows} labelled rows by row_id: "
        "every labelled row needs exactly one prediction."
    )


SEED = 7
"""Of the bootstrap of differences and intervals that are shown."""


@dataclass(frozen=True, kw_only=True)
class ModelPredictions:
    """The rows of a split, and for each model or trial its predictions of them, in the same order.

    A row that no trial of a model predicted (its fold failed) is NaN. Of a large split it may hold only every
    `every`-th row. `metric` is the one that the run was asked to decide by.
    """

    labels: Labels
    values: Mapping[str, FloatArray]
    every: int = 1
    metric: str | None = None

    def known(self, model: str) -> tuple[Labels, FloatArray]:
        """The rows that `model` predicted, and its predictions."""
        values = self.values[model]
        known_N = np.asarray(np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        return self.labels.part(known_N), values[known_N]

    def interval(self, task: Task, model: str) -> Interval:
        """The 95 % interval of the primary metric of `model`; two Nones without its predictions."""
        if model not in self.values:
            return None, None
        labels, values = self.known(model)
        return compare.interval(
            task, labels.label_N, values, SEED, weight_N=labels.weight_N, asked=self.metric
        )


def predictions_of_models(
    paths: RunPaths,
    schema: TableSchema,
    results: Results,
    split: Literal["valid", "test"],
    most_rows: int | None = None,
) -> ModelPredictions:
    """All models of the run but those with a trial whose predictions are gone or of other rows.

    Of a split with more than `most_rows` rows, evenly spaced ones.
    """
    reader = LabelReader(paths, schema, most_rows=most_rows)
    values: dict[str, FloatArray] = {}
    for model in results.models:
        if model.weights is None:
            mean = _mean(paths, schema, reader, split, results.done(model.name))
            if mean is not None:
                values[model.name] = mean
        else:
            used = [name for name, share in model.weights.items() if share]
            if used and values.keys() >= set(used):
                shares = {name: model.weights[name] for name in used}
                values[model.name] = blend({name: values[name] for name in used}, shares)
    return ModelPredictions(
        labels=reader.all(split), values=values, every=reader.every.get(split, 1), metric=schema.metric
    )


def predictions_of_trial(
    paths: RunPaths, schema: TableSchema, trial: DoneTrial, split: Literal["valid", "test"]
) -> ModelPredictions:
    """One trial, on the rows of its own fold. Raises the errors of `trial_predictions`."""
    labels = LabelReader(paths, schema).of(split, trial.fold)
    found = trial_predictions(paths, schema, trial.name, {split: labels})
    return ModelPredictions(labels=labels, values={trial.name: found[split]}, metric=schema.metric)


def _mean(
    paths: RunPaths,
    schema: TableSchema,
    reader: LabelReader,
    split: Literal["valid", "test"],
    trials: tuple[DoneTrial, ...],
) -> FloatArray | None:
    """The mean over the `trials` of a model; None if it cannot be made."""
    mean = Mean(reader.all(split))
    for trial in trials:
        labels = reader.of(split, trial.fold)
        try:
            found = trial_predictions(paths, schema, trial.name, {split: labels}, reader.samples)
            mean.add(labels, found[split])
        except (KeyError, OSError, ValueError):
            return None
    return mean.value() if trials else None
