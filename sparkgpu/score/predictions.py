"""The predictions of a run's trials, row by row beside the labels of its table.

Both scores and pictures use these. It is the only module of this folder that reads files. Shapes: N rows, C
classes; predictions are probabilities (N, C), or values (N,) for a regression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkgpu.rundir.paths import RunPaths
from sparkgpu.score.rows import FloatArray, IntArray
from sparkgpu.score.scorer import align
from sparkgpu.table.predictions import read_predictions
from sparkgpu.table.rows import Rows, read_rows
from sparkgpu.table.schema import SplitName, TableSchema


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

    def where(self, kept_N: NDArray[np.bool_]) -> Labels:
        """Only the rows that are true in `kept_N`."""
        return Labels(
            row_id_N=self.row_id_N[kept_N],
            label_N=self.label_N[kept_N],
            weight_N=None if self.weight_N is None else self.weight_N[kept_N],
        )

    def each(self, every: int) -> Labels:
        """Every `step`-th row, starting with the first."""
        return Labels(
            row_id_N=self.row_id_N[::every],
            label_N=self.label_N[::every],
            weight_N=None if self.weight_N is None else self.weight_N[::every],
        )


class LabelReader:
    """Labels of a run's splits, read once each."""

    def __init__(self, paths: RunPaths, schema: TableSchema) -> None:
        self._paths = paths
        self._schema = schema
        self._read: dict[tuple[SplitName, int | None], Labels] = {}

    def of(self, split: SplitName, fold: int | None = None) -> Labels:
        """The rows of `split` as a trial of `fold` sees them."""
        key = (split, fold if split != "test" else None)
        if key not in self._read:
            rows = read_rows(self._paths, self._schema, split, fold=key[1], features=False)
            self._read[key] = Labels(
                row_id_N=rows.row_id_N, label_N=rows.label_N, weight_N=user_weights(rows, self._schema)
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


def user_weights(rows: Rows, schema: TableSchema) -> FloatArray | None:
    """The user's own weights, (N,): those in the table without the factor that balances the classes."""
    if schema.weight is None or rows.weight_N is None:
        return None
    weight_N = rows.weight_N.astype(np.float64)
    if schema.class_weights:
        weight_N /= np.asarray(schema.class_weights)[rows.label_N]
    return weight_N


def trial_predictions(
    paths: RunPaths, schema: TableSchema, trial: str, labels: Mapping[SplitName, Labels]
) -> dict[SplitName, FloatArray]:
    """The predictions of a finished trial for the rows of `labels`, in their order.

    Raises KeyError, OSError or ValueError if a split is missing, the file is gone, or it holds other rows.
    """
    found = read_predictions(paths.trial(trial).predictions, schema)
    return {split: align(rows.row_id_N, *found[split]) for split, rows in labels.items()}


class Mean:
    """The mean of several predictions of the same rows, which are added one after the other."""

    def __init__(self) -> None:
        self._total: FloatArray | None = None
        self.count = 0

    def add(self, values: FloatArray) -> None:
        self._total = values if self._total is None else self._total + values
        self.count += 1

    def value(self) -> FloatArray:
        """The mean so far, of at least one prediction."""
        assert self._total is not None
        return np.asarray(self._total / self.count)


def averaged(trials: Iterable[FloatArray]) -> FloatArray:
    """The mean of several predictions of the same rows."""
    mean = Mean()
    for values in trials:
        mean.add(values)
    return mean.value()
