"""The metrics of splits too large for memory: of each trial, of each model's mean, and of their blend.

Labels and predictions are files in the order of the row ids, so they are read side by side, a part at a time,
in threads. Small splits never come here.

N rows, C classes.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.host.processor import usable_cores
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.predictions import prediction_blocks
from sparkgpu.core.table.rows import RowGroups, pages
from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.score.blend import blend
from sparkgpu.score.metrics import Metrics
from sparkgpu.score.predictions import Labels, labels_of, unmatched
from sparkgpu.score.rows import FloatArray, ScoredRows, checked
from sparkgpu.score.tally import Tally

_PART_ROWS = 2**18
_MOST_THREADS = 8  # each keeps cells of its own

Key = tuple[str, str]
"""A model and one of its trials; without a trial, the mean of several."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Some rows with the predictions of each trial that has them."""

    labels: Labels
    values: Mapping[str, FloatArray]


def whole_metrics(
    paths: RunPaths,
    schema: TableSchema,
    split: SplitName,
    trials: Sequence[TrialSpec],
    samples: Mapping[str, ScoredRows],
    weights: Mapping[str, float],
    metrics: Collection[str],
) -> dict[Key, Metrics]:
    """All rows' metrics of the `trials`, of their models, and of the blend by `weights` (empty: none).

    `samples` holds some rows of each model. Raises the errors of `trial_predictions` and of `rows.checked`.
    """
    empty = {("blend", ""): Tally(metrics, samples["blend"])} if weights else {}
    for spec in trials:
        empty[spec.model, spec.name] = Tally(metrics, samples[spec.model])
        if sum(other.model == spec.model for other in trials) > 1 or schema.folds is not None:
            empty[spec.model, ""] = empty[spec.model, spec.name]
    folds = [None] if split == "test" or schema.folds is None else range(schema.folds)
    parts = (
        part
        for fold in folds
        for part in _parts(
            paths, schema, split, fold, [spec for spec in trials if fold is None or spec.fold == fold]
        )
    )
    models = {spec.name: spec.model for spec in trials}
    turn = threading.Lock()

    def work() -> dict[Key, Tally]:
        own: dict[Key, Tally] = {}
        while True:
            with turn:
                part = next(parts, None)
            if part is None:
                return own
            rows = part.labels
            if rows.weight_N is not None and not rows.weight_N.any():
                continue
            for key, values in _predictions(part, models, weights):
                if key in empty:
                    tally = own.setdefault(key, empty[key].empty())
                    tally.add(checked(schema.task, rows.label_N, values, rows.weight_N))

    threads = min(usable_cores(), _MOST_THREADS)
    found: dict[Key, Tally] = {}
    with ThreadPoolExecutor(threads) as pool:
        for of_thread in pool.map(lambda _: work(), range(threads)):
            for key, tally in of_thread.items():
                if key in found:
                    found[key].join(tally)
                else:
                    found[key] = tally
    return {key: tally.metrics() for key, tally in found.items()}


def _predictions(
    part: _Part, models: Mapping[str, str], weights: Mapping[str, float]
) -> Iterator[tuple[Key, FloatArray]]:
    """Of the trials, the models and, where all its members predicted these rows, the blend."""
    by_model: dict[str, list[FloatArray]] = {}
    for trial, values in part.values.items():
        by_model.setdefault(models[trial], []).append(values)
        yield (models[trial], trial), values
    means = {name: np.mean(values, axis=0) for name, values in by_model.items()}
    yield from (((name, ""), mean) for name, mean in means.items())
    if weights and weights.keys() <= means.keys():
        yield ("blend", ""), blend(means, weights)


def _parts(
    paths: RunPaths, schema: TableSchema, split: SplitName, fold: int | None, trials: Sequence[TrialSpec]
) -> Iterator[_Part]:
    """The rows of a split, or of one fold of it, in the order of their ids."""
    if not trials:
        return
    labels = RowGroups(paths, schema.with_features(()), split, fold=fold)
    found = {spec.name: _Following(paths, schema, split, spec.name) for spec in trials}
    for rows in pages(labels.blocks(), _PART_ROWS):
        values = {name: one.take(rows.row_id_N) for name, one in found.items()}
        yield _Part(labels=labels_of(rows, schema), values=values)
    for one in found.values():
        one.take(np.empty(0, dtype=np.int64), last=True)


class _Following:
    """The predictions of one trial, taken in the order of the rows."""

    def __init__(self, paths: RunPaths, schema: TableSchema, split: SplitName, trial: str) -> None:
        paths.trial(trial).check("predictions.parquet")
        self._blocks = prediction_blocks(paths.trial(trial).predictions, schema, split)
        self._taken = 0
        self._ids: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._values: FloatArray = np.empty((0, schema.num_outputs) if schema.classes else 0)

    def take(self, row_id_N: NDArray[np.int64], *, last: bool = False) -> FloatArray:
        """The predictions of these rows. Raises ValueError if they are not the next ones, or not the last."""
        ids, values = [self._ids], [self._values]
        while sum(map(len, ids)) < len(row_id_N) + last:
            block = next(self._blocks, None)
            if block is None:
                break
            ids.append(block[0])
            values.append(block[1])
        found_id_N, found = np.concatenate(ids), np.concatenate(values)
        rows = len(row_id_N)
        if not np.array_equal(found_id_N[:rows], row_id_N) or (last and len(found_id_N) > rows):
            raise unmatched(self._taken + len(found_id_N), self._taken + rows)
        self._taken += rows
        self._ids, self._values = found_id_N[rows:], found[rows:]
        return found[:rows]
