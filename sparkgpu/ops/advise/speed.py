"""Measures this machine with the user's own table: a sample of it, and a small run on that sample.

It is a run as any other: the same workers, engines, devices and threads, with the network and the trees that
the whole table would get, on a part of its rows and for a few rounds and epochs. How many follows from the
arithmetic of the network and from the model of a round in `sparkgpu.core.plan.tree_defaults`, so that both
branches train for some seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.model_keys import ContextModel, TreesModel
from sparkgpu.core.config.registry.engines import Branch
from sparkgpu.core.plan.defaults import Resolved, row_flop
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize, each_round_s
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.events import TRAINING, EventReader
from sparkgpu.core.rundir.files import read_record
from sparkgpu.core.rundir.metrics_json import DoneTrial
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import read_schema
from sparkgpu.core.table.source import Source
from sparkgpu.ops.advise.sample import Sample, run_sample, take_sample

_MOST_ROWS = 20_000
_GPU_TIMES = 40.0
_NETWORK_FLOP = 4e11
_TREES_S = 4.0
_ROUNDS, _EPOCHS = (30, 100), (3, 60)
_FEWEST_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What a trial of one model takes, in seconds on the clock.

    `before_s` passes before the training (the table is read or handed over), `after_s` after it and within it
    without a step; of these `predict_s` are the predictions. Of its `steps`, rounds or epochs, each takes
    `step_s` while the lane's other branch trains as well, and `free_step_s` after that branch has ended.
    """

    before_s: float
    steps: float
    step_s: float
    free_step_s: float
    after_s: float
    predict_s: float


@dataclass(frozen=True, kw_only=True)
class MachineSpeed:
    """How fast this machine is, as the small run of `sample` showed, and the run that is asked for.

    `size` is that of the whole table, `resolved` are its parameters. The small run had so many `train_rows`;
    `pieces` are the means over its lanes, by model. `ready_s` passed until its table was there, `jvm_s` from
    then to the first work of the trees (what was left of H2O's start), `end_s` from the last trial to the
    result. `parameters` are the network's weights.
    """

    sample: Sample
    size: TableSize
    resolved: Resolved
    train_rows: int
    ready_s: float
    jvm_s: float
    pieces: Mapping[str, Piece]
    end_s: float
    wall_s: float
    peak_rss_bytes: int
    peak_device_bytes: int | None
    parameters: int

    @property
    def train_ratio(self) -> float:
        """The training rows of the table over those of the sample."""
        return self.size.train_rows / max(1, self.train_rows)


def measure_speed(config: RunConfig, source: Source, asked_plan: Plan, folder: Path) -> MachineSpeed:
    """Take a sample of `source` and carry out a small run of it in `folder`.

    Raises `DataError` if the table cannot be read or learned, `TrialError` if a trial fails, and what else a
    run raises.
    """
    sample = take_sample(source, config, _MOST_ROWS, folder)
    resolved = asked_plan.resolved(config, sample.size)
    flop = row_flop(resolved.neural, sample.size.num_features)
    flop /= 1 if asked_plan.lanes[0].device == "cpu" else _GPU_TIMES
    small = replace(sample.size, train_rows=int(sample.rows * sample.size.train_rows / sample.whole_rows))
    rounds = int(np.clip(_TREES_S / each_round_s(resolved.trees, small), *_ROUNDS))
    epochs = int(np.clip(_NETWORK_FLOP / (flop * max(1, small.train_rows)), *_EPOCHS))
    repeats = len(asked_plan.lanes) if asked_plan.strategy == "single" else 1
    began = time.time()
    short = shortened(resolved.config, rounds, epochs, repeats)
    paths, results = run_sample(sample, short, folder / "run", source.name)
    plan, schema = read_record(paths.plan, Plan), read_schema(paths)
    done = {trial.name: trial for trial in results.done()}
    size = replace(
        TableSize.of(schema),
        train_rows=sample.size.train_rows,
        num_classes=max(len(schema.classes), sample.size.num_classes),
    )
    spans = {spec.name: _span(paths, spec.name, spec.lane, spec.branch) for spec in plan.trials}
    pieces: dict[str, list[Piece]] = {}
    for spec in plan.trials:
        other: Branch = "trees" if spec.branch == "neural" else "neural"
        beside = [spans[trial.name] for trial in plan.of(spec.lane, other)]
        piece = _piece(paths, done[spec.name], spans[spec.name], beside)
        pieces.setdefault(spec.model, []).append(piece)
    ready_at, last_at = paths.schema.stat().st_mtime, max(span.done for span in spans.values())
    trees_at = min((spans[spec.name].first for spec in plan.trials if spec.branch == "trees"), default=0.0)
    return MachineSpeed(
        sample=sample,
        size=size,
        resolved=asked_plan.resolved(config, size),
        train_rows=schema.splits["train"],
        ready_s=ready_at - began,
        jvm_s=max(0.0, trees_at - ready_at),
        pieces={model: _mean(found) for model, found in pieces.items()},
        end_s=max(0.0, began + results.run.wall_s - last_at),
        wall_s=results.run.wall_s,
        peak_rss_bytes=results.run.peak_rss_bytes,
        peak_device_bytes=max((trial.peak_device_bytes or 0 for trial in done.values()), default=0) or None,
        parameters=max(int(trial.native_parameters.get("num_parameters", 0)) for trial in done.values()),
    )


def shortened(config: RunConfig, rounds: int, epochs: int, repeats: int) -> RunConfig:
    """A resolved configuration whose models train once, for so many rounds or epochs, to their end."""
    trees = {"ntrees": rounds, "early_stopping_rounds": 0, "try_smaller": False}
    neural = {"epochs": epochs, "patience": 0}
    models = tuple(
        model
        if isinstance(model, str | ContextModel)
        else model.model_copy(update=trees if isinstance(model, TreesModel) else neural)
        for model in config.models
    )
    return config.model_copy(
        update={
            "trees": config.trees.model_copy(update=trees),
            "neural": config.neural.model_copy(update=neural),
            "models": models,
            "repeats": repeats,
            "split": config.split.model_copy(update={"folds": None}),
        }
    )


@dataclass(frozen=True, kw_only=True)
class _Span:
    """Of one trial, in seconds since the epoch: its first sign, the begin of its training, its end."""

    first: float
    began: float
    done: float


def _span(paths: RunPaths, trial: str, lane: int, branch: Branch) -> _Span:
    """An engine that reports no phase of training (one of another package) trains from begin to end."""
    fit = read_record(paths.trial(trial).fit, FitRecord)
    assert fit.began_at is not None and fit.ended_at is not None
    events = EventReader(paths.lane(lane).events(branch)).new()
    begins = [event.at for event in events if event.trial == trial and event.text == TRAINING]
    return _Span(first=fit.began_at, began=begins[0] if begins else fit.began_at, done=fit.ended_at)


def _piece(paths: RunPaths, trial: DoneTrial, own: _Span, beside: Sequence[_Span]) -> Piece:
    """One trial's seconds; the lane's other branch trains in the spans `beside`.

    Of many steps the first, which warms up, does not count. Those at other times stand beside a Java that
    starts and compiles, which a long run hardly sees; they count only if there are no others. For the same
    reason the faster half decides.
    """
    _, curve = read_curve(paths.trial(trial.name).learning_curve)
    points = [(0, 0.0)] if trial.engine == "torch" else []
    points += [(point.step, point.elapsed_s) for point in curve if point.elapsed_s is not None]
    free_at = max((span.done for span in beside), default=0.0)
    together: list[float] = []
    free: list[float] = []
    between: list[float] = []
    steps = list(pairwise(points))
    for (step, at_s), (next_step, next_s) in steps[1:] if len(steps) > _FEWEST_STEPS else steps:
        middle = own.began + (at_s + next_s) / 2
        is_beside = any(span.began <= middle <= span.done for span in beside)
        found = together if is_beside else free if middle > free_at else between
        found.append((next_s - at_s) / max(1, next_step - step))
    whole_s, num_steps = own.done - own.began, max(1, trial.steps or 1)
    step_s = _undisturbed(together or free or between or [trial.fit_s / num_steps])
    return Piece(
        before_s=own.began - own.first,
        steps=num_steps,
        step_s=step_s,
        free_step_s=_undisturbed(free or [step_s]),
        after_s=max(0.0, whole_s - (step_s * num_steps if len(points) < 2 else points[-1][1])),
        predict_s=trial.predict_s,
    )


def _undisturbed(steps_s: Sequence[float]) -> float:
    """The mean of the faster half."""
    return fmean(sorted(steps_s)[: -(-len(steps_s) // 2)])


def _mean(pieces: Sequence[Piece]) -> Piece:
    names = [field.name for field in fields(Piece)]
    return Piece(**{name: fmean(getattr(piece, name) for piece in pieces) for name in names})
