"""The models of a run side by side: every metric with its spread, and which values are best.

The terminal and the report show them; `sparkgpu.score.metrics.best` finds the best value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sparkgpu.rundir.results import ModelResult
from sparkgpu.score.metrics import best


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One model in one metric: the mean over its trials, and their standard deviation if defined."""

    value: float | None
    spread: float | None
    is_best: bool


def standings(
    models: Sequence[ModelResult], split: Literal["valid", "test"]
) -> dict[str, tuple[Standing, ...]]:
    """For each metric, the models in order. No value is best if only one model has a value."""
    values = {model.name: model.metrics.of(split) for model in models}
    spreads = {model.name: model.std.test if split == "test" else {} for model in models}
    found: dict[str, tuple[Standing, ...]] = {}
    for metric in dict.fromkeys(metric for of_model in values.values() for metric in of_model):
        of_metric = {name: of_model.get(metric) for name, of_model in values.items()}
        several = sum(value is not None for value in of_metric.values()) > 1
        first = best(metric, of_metric) if several else ()
        found[metric] = tuple(
            Standing(
                value=value,
                spread=None if value is None else spreads[name].get(metric),
                is_best=name in first,
            )
            for name, value in of_metric.items()
        )
    return found
