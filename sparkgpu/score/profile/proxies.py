"""How well the features tell a column that ``rules.without`` withholds from models.

Told is the share of that column's log loss, or squared error, that is gone on test rows: by each feature
alone, and by trees on the features that tell most.

Limits: evenly spaced rows that have a value; of many levels the ten most frequent ones and the rest as one.
N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.profile import Proxy, WithheldColumn
from sparkgpu.core.table.schema import BOOLEANS, Feature, SplitName, TableSchema
from sparkgpu.score.profile.columns import Column, feature_columns
from sparkgpu.score.profile.sample import Sample, read_sample
from sparkgpu.score.profile.single_feature import Target, explained_alone, target_of
from sparkgpu.score.rows import FloatArray

_MOST_LEVELS = 11
_SHOWN = 5
_LEAST_SHOWN = 0.01
_MOST_FEATURES = 50
_MOST_ROWS = 20_000
_MOST_CODES = 255


def withheld(
    paths: RunPaths, schema: TableSchema, samples: Mapping[SplitName, Sample]
) -> tuple[WithheldColumn, ...]:
    """Each column beside the features; `samples` are of `schema`."""
    return tuple(_told(paths, schema, samples, feature) for feature in schema.beside)


def _told(
    paths: RunPaths, schema: TableSchema, samples: Mapping[SplitName, Sample], feature: Feature
) -> WithheldColumn:
    levels = BOOLEANS if feature.is_boolean else feature.levels[:_MOST_LEVELS]
    own: dict[SplitName, Sample] = {}
    for split in samples:
        read = read_sample(paths, schema.with_features((feature,)), split, width=len(schema.features))
        assert read is not None
        value_N: Any = (read.rows.codes_NK if feature.levels else read.rows.numeric_NF)[:, 0]
        there_N = np.flatnonzero(value_N >= 0 if levels else np.isfinite(value_N))
        label_N = value_N.astype(np.int64 if levels else np.float64, copy=False)
        if levels:
            label_N = np.minimum(label_N, len(levels) - 1)
        sample = samples[split]
        weight_N = None if sample.weight_N is None else sample.weight_N[there_N]
        rows = replace(sample.rows, label_N=label_N).part(there_N)
        own[split] = Sample(total=sample.total, rows=rows, weight_N=weight_N)
    asked = schema.model_copy(update={"classes": levels})
    has_rows = all(sample.size for sample in own.values())
    target = target_of(asked, own) if has_rows else None
    if target is None:
        return WithheldColumn(column=feature.title)
    columns = list(feature_columns(schema, own))
    alone = [explained_alone(column, target) for column in columns]
    order = sorted(range(len(columns)), key=lambda place: -alone[place])[:_MOST_FEATURES]
    together = target.loss(_together([columns[place] for place in order], target))
    return WithheldColumn(
        column=feature.title,
        told=max(0.0, alone[order[0]], 1 - together / target.loss(target.prior_NC)),
        proxies=tuple(
            Proxy(column=columns[place].title, told=alone[place])
            for place in order[:_SHOWN]
            if alone[place] >= _LEAST_SHOWN
        ),
    )


def _together(columns: Sequence[Column], target: Target) -> FloatArray:
    """What trees on `columns` predict of the test rows, (N, C) or (N, 1)."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    train_NF, test_NF = (
        np.column_stack([np.where(one.is_missing(split), np.nan, one.values[split]) for one in columns])
        for split in ("train", "test")
    )
    kind = HistGradientBoostingClassifier if target.num_classes else HistGradientBoostingRegressor
    trees = kind(
        categorical_features=[0 < len(one.levels) <= _MOST_CODES for one in columns], max_iter=50,
        early_stopping=False, random_state=0,
    )  # fmt: skip
    every = -(-len(train_NF) // _MOST_ROWS)
    trees.fit(train_NF[::every], target.train_N[::every], target.train_weight_N[::every])
    if not target.num_classes:
        return np.asarray(trees.predict(test_NF))[:, None]
    found_NC = np.zeros((len(test_NF), target.num_classes))
    found_NC[:, trees.classes_.astype(int)] = trees.predict_proba(test_NF)
    return found_NC
