"""Measures this machine with the user's own table: a sample of it, and a small run on that sample.

It is a run as any other: the same workers, engines, devices and threads, with the network and the trees that
the whole table would get, on a part of its rows and for a few rounds and epochs. How many follows from the
arithmetic of the network and from the model of a round in `sparkgpu.core.plan.tree_defaults`, so that both
branches train for some seconds. So it takes about 20 seconds, most of which every run needs to start. It
stays in a temporary folder.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from sparkgpu.core.config.keys import ClusterConfig, RunConfig
from sparkgpu.core.config.models import TreesModel
from sparkgpu.core.config.registry.engines import Branch
from sparkgpu.core.errors import TrialError
from sparkgpu.core.plan.defaults import Resolved, row_flop
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize, each_round_s
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.events import TRAINING, EventReader
from sparkgpu.core.rundir.files import read_json, read_record
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.rundir.results import DoneTrial, Results
from sparkgpu.core.table.schema import read_schema
from sparkgpu.core.table.source import Source
from sparkgpu.lanes.launch import outside_environment
from sparkgpu.ops.advise.sample import Sample, take_sample
from sparkgpu.present.terminal.display import Display
from sparkgpu.runs import run as orchestrate

_MOST_ROWS = 20_000
_LEAST_ROWS = 2_000
_EPOCH_FLOP = 6e10
"""Of one epoch of the small run: some seconds of one core, so that large networks get fewer rows."""
_GPU_TIMES = 40.0
_NETWORK_FLOP = 4e11
_TREES_S = 4.0
_ROUNDS, _EPOCHS = (30, 100), (3, 60)
_FEWEST_STEPS = 3


class _Silent(Display):
    """Shows neither progress nor result: the small run is not what the user asked for."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    def finish(self, results: Results, paths: RunPaths) -> None:
        self.close()

    def report(self, page: Path, notes: Sequence[str]) -> None:
        """Its report goes with its folder."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What the trials of one model took, in seconds on the clock: the mean over the lanes.

    `before_s` passes before the training (the table is read or handed over), `after_s` after it and within it
    without a step; of these `predict_s` are the predictions. `step_s` is a round or an epoch while the lane's
    other branch trains as well, `free_step_s` one after that branch has ended (the same if no step was taken
    then).
    """

    before_s: float
    step_s: float
    free_step_s: float
    after_s: float
    predict_s: float


@dataclass(frozen=True, kw_only=True)
class MachineSpeed:
    """How fast this machine is, as the small run of `sample` showed, and the run that is asked for.

    `size` is that of the whole table, `resolved` are its parameters. The small run had so many `train_rows`,
    `rounds` and `epochs`. `ready_s` passed until its table was there, `jvm_s` from then to the first work of
    the trees (what was left of H2O's start), `end_s` from the last trial to the result. `parameters` are the
    network's weights.
    """

    sample: Sample
    size: TableSize
    resolved: Resolved
    train_rows: int
    rounds: int
    epochs: int
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
    rows = min(sample.rows, max(_LEAST_ROWS, int(_EPOCH_FLOP / flop)))
    if rows < sample.rows:
        sample = take_sample(source, config, rows, folder)
    small = replace(sample.size, train_rows=int(sample.rows * sample.size.train_rows / sample.whole_rows))
    rounds = _within(_TREES_S / each_round_s(resolved.trees, small), _ROUNDS)
    epochs = _within(_NETWORK_FLOP / (flop * max(1, small.train_rows)), _EPOCHS)
    data = resolved.config.data.model_copy(update={"source": str(sample.file)})
    asked = resolved.config.model_copy(update={"data": data})
    repeats = len(asked_plan.lanes) if asked_plan.strategy == "single" else 1
    paths, results, began = _run(shortened(asked, rounds, epochs, repeats), folder / "run", source.name)
    plan, done, schema = Plan.model_validate(read_json(paths.plan)), results.done(), read_schema(paths)
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
        trial = next(trial for trial in done if trial.name == spec.name)
        pieces.setdefault(spec.model, []).append(_piece(paths, trial, spans[spec.name], beside))
    ready, last = paths.schema.stat().st_mtime, max((span.done for span in spans.values()), default=began)
    trees_begin = [spans[spec.name].first for spec in plan.trials if spec.branch == "trees"]
    return MachineSpeed(
        sample=sample,
        size=size,
        resolved=asked_plan.resolved(config, size),
        train_rows=schema.splits["train"],
        rounds=rounds,
        epochs=epochs,
        ready_s=ready - began,
        jvm_s=max(0.0, min(trees_begin, default=ready) - ready),
        pieces={model: _mean(found) for model, found in pieces.items()},
        end_s=max(0.0, began + results.run.wall_s - last),
        wall_s=results.run.wall_s,
        peak_rss_bytes=results.run.peak_rss_bytes,
        peak_device_bytes=max((one.peak_device_bytes for one in done if one.peak_device_bytes), default=None),
        parameters=max((int(one.native_parameters.get("num_parameters", 0)) for one in done), default=0),
    )


def _within(value: float, bounds: tuple[int, int]) -> int:
    return max(bounds[0], min(bounds[1], round(value)))


def shortened(config: RunConfig, rounds: int, epochs: int, repeats: int) -> RunConfig:
    """A resolved configuration whose models train once, for so many rounds or epochs, to their end."""
    trees = {"ntrees": rounds, "early_stopping_rounds": 0, "try_smaller": False}
    neural = {"epochs": epochs, "patience": 0}
    models = tuple(
        model
        if isinstance(model, str)
        else model.model_copy(update=trees if isinstance(model, TreesModel) else neural)
        for model in config.models
    )
    return config.model_copy(
        update={
            "trees": config.trees.model_copy(update=trees),
            "neural": config.neural.model_copy(update=neural),
            "models": models,
            "time_limit": None,
            "repeats": repeats,
            "split": config.split.model_copy(update={"folds": None}),
            "cluster": ClusterConfig(),
            "search": None,
            "report": config.report.model_copy(update={"level": "short"}),
        }
    )


def _run(config: RunConfig, folder: Path, title: str) -> tuple[RunPaths, Results, float]:
    """Carry out the small run: its files, its results, and when it began. `title` is its source in errors."""
    began, environ = time.time(), outside_environment(os.environ)
    outcome = orchestrate.run(config, _Silent(), out=folder, title=title, environ=environ)
    assert outcome.results is not None
    if failed := outcome.results.failed:
        raise TrialError(f"the small run that measures this machine failed: {failed[0].error}")
    return outcome.paths, outcome.results, began


@dataclass(frozen=True, kw_only=True)
class _Span:
    """Of one trial, in seconds since the epoch: its first sign, training from `began` to `ended`, its end."""

    first: float
    began: float
    ended: float
    done: float


def _span(paths: RunPaths, trial: str, lane: int, branch: Branch) -> _Span:
    """An engine that reports no phase of training (one of another package) trains from begin to end."""
    fit = read_record(paths.trial(trial).fit, FitRecord)
    assert fit.began_at is not None and fit.ended_at is not None
    events = EventReader(paths.lane(lane).events(branch)).new()
    own = [event for event in events if event.trial == trial and event.kind != "progress"]
    ends = [end for begin, end in pairwise(own) if begin.text == TRAINING]
    begins = [event.at for event in own if event.text == TRAINING]
    return _Span(
        first=fit.began_at, began=begins[0] if begins else fit.began_at,
        ended=ends[0].at if ends else fit.ended_at, done=fit.ended_at,
    )  # fmt: skip


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
    between: list[float] = []
    free: list[float] = []
    steps = list(pairwise(points))
    for (step, at_s), (next_step, next_s) in steps[1:] if len(steps) > _FEWEST_STEPS else steps:
        middle = own.began + (at_s + next_s) / 2
        is_beside = any(span.began <= middle <= span.ended for span in beside)
        found = together if is_beside else free if middle > free_at else between
        found.append((next_s - at_s) / max(1, next_step - step))
    training_s, num_steps = own.ended - own.began, max(1, trial.steps or 1)
    step_s = _undisturbed(together or free or between or [training_s / num_steps])
    steps_s = step_s * num_steps if len(points) < 2 else points[-1][1]
    return Piece(
        before_s=own.began - own.first,
        step_s=step_s,
        free_step_s=_undisturbed(free) if free else step_s,
        after_s=own.done - own.ended + max(0.0, training_s - steps_s),
        predict_s=trial.predict_s,
    )


def _undisturbed(steps_s: Sequence[float]) -> float:
    """The mean of the faster half."""
    return fmean(sorted(steps_s)[: -(-len(steps_s) // 2)])


def _mean(pieces: Sequence[Piece]) -> Piece:
    return Piece(
        **{name: fmean(getattr(piece, name) for piece in pieces) for name in Piece.__dataclass_fields__}
    )
