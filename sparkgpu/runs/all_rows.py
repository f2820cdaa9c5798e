"""The metrics of all rows of splits so large that only a sample of them is in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.metrics_json import SplitMetrics
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import listed
from sparkgpu.runs.pooled import Pooled
from sparkgpu.score.metrics import Metrics, wanted
from sparkgpu.score.predictions import LabelReader
from sparkgpu.score.rows import checked
from sparkgpu.score.tally import TALLIED
from sparkgpu.score.whole import Key, whole_metrics

MOST_VALUES = 2**22
"""Of the predictions of a split in memory: with all that is made of them below 1 GiB for two models."""

_SPLITS: tuple[Literal["valid"], Literal["test"]] = ("valid", "test")


class AllRows:
    """Metrics of trials and models that take the place of those of a sample; none for small splits."""

    def __init__(
        self,
        paths: RunPaths,
        schema: TableSchema,
        labels: LabelReader,
        trials: Sequence[TrialSpec],
        pooled: Mapping[str, Pooled],
        weights: Mapping[str, float],
    ) -> None:
        """`pooled` has the sample's predictions of all models and, if there are `weights`, of the blend."""
        self._found: dict[Literal["valid", "test"], dict[Key, Metrics]] = {}
        for split in _SPLITS:
            if split not in labels.samples:
                continue
            samples = {}
            for name, model in pooled.items():
                has_N = slice(None) if split == "test" else model.has_valid_N
                rows = labels.all(split).part(has_N)
                values = (model.test if split == "test" else model.valid)[has_N]
                samples[name] = checked(schema.task, rows.label_N, values, rows.weight_N)
            names = wanted(schema.task, schema.metric, schema.deviances)
            self._found[split] = whole_metrics(paths, schema, split, trials, samples, weights, names)

    def of(self, model: str, known: SplitMetrics, trial: str = "") -> SplitMetrics:
        """The metrics of a model's trial or, without one, of its mean; `known` are those of the sample."""
        found = {split: by_key.get((model, trial)) for split, by_key in self._found.items()}
        return known.model_copy(
            update={split: {**known.of(split), **own} for split, own in found.items() if own is not None}
        )


def sampled(schema: TableSchema, labels: LabelReader) -> list[str]:
    """A sentence on what a sample of the rows decided, if one did."""
    read = [
        f"{len(labels.all(split).label_N):,} of the {split} rows"
        for split in _SPLITS
        if split in labels.samples
    ]
    own = schema.metric is None or schema.metric in TALLIED
    return [
        f"large splits: the metrics are those of all rows{'' if own else f' but for {schema.metric}'}; the "
        "blend's weights, calibration, decisions, groups, and how wide intervals are come from evenly spaced "
        f"rows ({listed(read)})"
    ] * bool(read)
