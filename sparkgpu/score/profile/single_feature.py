"""A model of one feature: each of its bins predicts what the training rows there have.

N rows, C classes (1 for a regression), B bins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.score.profile.columns import Column
from sparkgpu.score.profile.sample import Sample
from sparkgpu.score.rows import LOG_LOSS_CLIP, FloatArray

_SMOOTHING = 1.0  # as many rows of the overall mean join each bin
_MOST_LEAVES = 256
_FEWEST_ROWS_OF_LEAF = 5

Bins = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The labels and weights of training and test rows, and what to predict without any feature.

    `prior_C` holds the classes' shares of the training rows, or their mean value alone.
    """

    num_classes: int
    train_N: NDArray[np.float64] | Bins
    test_N: NDArray[np.float64] | Bins
    train_weight_N: FloatArray
    test_weight_N: FloatArray
    prior_C: FloatArray

    @property
    def prior_NC(self) -> FloatArray:
        """What to predict for the test rows without any feature."""
        return np.broadcast_to(self.prior_C, (len(self.test_N), len(self.prior_C)))

    def loss(self, predicted_NC: FloatArray) -> float:
        """The mean log loss of classes or squared error on the test rows."""
        if self.num_classes:
            share_N = predicted_NC[np.arange(len(self.test_N)), self.test_N.astype(np.int64)]
            loss_N = -np.log(np.maximum(share_N, LOG_LOSS_CLIP))
        else:
            loss_N = (predicted_NC[:, 0] - self.test_N) ** 2
        return float(np.average(loss_N, weights=self.test_weight_N))

    def predicted(self, train_N: Bins, test_N: Bins, num_bins: int) -> FloatArray:
        """For each test row, what the training rows of its bin have: (N, C) shares, or (N, 1) means."""
        weight_B = np.bincount(train_N, weights=self.train_weight_N, minlength=num_bins)
        cells_N, weight_N, width = train_N, self.train_weight_N * self.train_N, 1
        if self.num_classes:
            cells_N, weight_N = (
                train_N * self.num_classes + self.train_N.astype(np.int64),
                self.train_weight_N,
            )
            width = self.num_classes
        sums_BC = np.bincount(cells_N, weights=weight_N, minlength=num_bins * width).reshape(num_bins, width)
        smoothed_BC = (sums_BC + _SMOOTHING * self.prior_C) / (weight_B[:, None] + _SMOOTHING)
        return np.asarray(smoothed_BC[test_N])


def target_of(schema: TableSchema, samples: Mapping[SplitName, Sample]) -> Target | None:
    """None if no feature can explain anything: no test rows, no weight, or labels that do not vary."""
    if "test" not in samples:
        return None
    train, test = samples["train"], samples["test"]
    weights = [
        np.ones(len(sample.rows.label_N)) if sample.weight_N is None else sample.weight_N
        for sample in (train, test)
    ]
    if not weights[0].sum() or not weights[1].sum():
        return None
    label_N = train.rows.label_N
    if schema.classes:
        counts = np.bincount(label_N, weights=weights[0], minlength=len(schema.classes))
        prior_C = counts / counts.sum()
    else:
        prior_C = np.array([np.average(label_N, weights=weights[0])])
    found = Target(
        num_classes=len(schema.classes), train_N=label_N, test_N=test.rows.label_N, train_weight_N=weights[0],
        test_weight_N=weights[1], prior_C=prior_C,
    )  # fmt: skip
    return found if found.loss(found.prior_NC) > 0 else None


def _in_bins(column: Column, target: Target) -> FloatArray:
    return target.predicted(column.bins("train"), column.bins("test"), column.num_bins)


def explained_alone(column: Column, target: Target) -> float:
    """The share of the loss on the test rows that the column's bins take away; below 0 if they add to it."""
    return 1 - target.loss(_in_bins(column, target)) / target.loss(target.prior_NC)


def best_prediction(column: Column, target: Target) -> FloatArray:
    """The column's prediction of the test rows, (N, C) or (N, 1).

    A number is tried in three ways, and the best counts: its ranges, the leaves of a decision tree, which are
    finer where the target changes, and for a regression a straight line, which follows a copy of the target
    where training rows are few.
    """
    tried = [_in_bins(column, target)]
    if column.kind == "categorical":
        return tried[0]
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    kind = DecisionTreeClassifier if target.num_classes else DecisionTreeRegressor
    tree = kind(max_leaf_nodes=_MOST_LEAVES, min_samples_leaf=_FEWEST_ROWS_OF_LEAF, random_state=0)
    most = np.finfo(np.float32).max
    train_N1, test_N1 = (np.clip(column.values[split], -most, most)[:, None] for split in ("train", "test"))
    tree.fit(train_N1, target.train_N, sample_weight=target.train_weight_N)
    if target.num_classes:
        tried.append(target.predicted(tree.apply(train_N1), tree.apply(test_N1), int(tree.tree_.node_count)))
    else:  # the leaves' own means: with a share of the overall one, few rows would not follow a copy
        tried += [tree.predict(test_N1)[:, None], _along_a_line(train_N1, test_N1, target)]
    return min(tried, key=target.loss)


def _along_a_line(train_N1: FloatArray, test_N1: FloatArray, target: Target) -> FloatArray:
    """A straight line through the training rows that have a value; the prior for test rows that have none."""
    from sklearn.linear_model import LinearRegression

    counts_N = np.isfinite(train_N1[:, 0]) & (target.train_weight_N > 0)
    if not counts_N.any():
        return target.prior_NC
    line = LinearRegression().fit(
        train_N1[counts_N].astype(np.float64), target.train_N[counts_N], target.train_weight_N[counts_N]
    )
    return np.where(np.isnan(test_N1), target.prior_C, line.predict(np.nan_to_num(test_N1))[:, None])
