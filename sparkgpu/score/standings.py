"""The models of a run side by side: every metric with its spread, and which values are best.

The terminal and the report show them; `sparkgpu.score.metrics.best` finds the best value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sparkgpu.config.registry.engines import branch_of
from sparkgpu.rundir.results import ModelResult, Results
from sparkgpu.score.metrics import best
from sparkgpu.words import counted

_UNITS = {"trees": "tree", "neural": "epoch"}


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


def averaged(found: Results) -> tuple[Standing, ...]:
    """The models' primary metric on the test rows, from the averaged predictions of their trials.

    Empty unless some model has several trials.
    """
    if not any(model.averaged for model in found.models):
        return ()
    metric = found.comparison.metric
    values = {model.name: (model.averaged or model.metrics).test.get(metric) for model in found.models}
    first = best(metric, values)
    return tuple(
        Standing(value=value, spread=None, is_best=name in first and len(values) > 1)
        for name, value in values.items()
    )


def training(found: Results, model: str) -> str | None:
    """How far a model's trials trained, such as ``340 of 1,500 trees``; None if its engine does not tell.

    Of several trials it is the longest. A plus sign marks those that reached the limit and still improved.
    """
    known = [(trial.steps, trial) for trial in found.done(model) if trial.steps and trial.most_steps]
    if not known:
        return None
    steps, trial = max(known, key=lambda pair: pair[0])
    still = "+" if any(trial.still_improving for _, trial in known) else ""
    return f"{steps:,} of {counted(trial.most_steps or 0, _UNITS[branch_of(trial.engine)])}{still}"
