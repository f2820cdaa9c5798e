"""Carries out a small run and reads from its files how long each piece of work took.

It is a run as any other: the same workers, engines, devices and threads, with the network and the trees that
the whole table would get, on a part of its rows and for a few rounds and epochs. So it takes about 20
seconds, most of which every run needs to start. It stays in a temporary folder.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from sparkgpu.config.keys import ClusterConfig, RunConfig
from sparkgpu.config.models import TreesModel
from sparkgpu.config.registry.engines import BRANCHES, Branch
from sparkgpu.errors import TrialError
from sparkgpu.lanes.launch import outside_environment
from sparkgpu.plan.plan import Plan
from sparkgpu.rundir.curve import read_curve
from sparkgpu.rundir.events import Event, EventReader
from sparkgpu.rundir.files import read_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import DoneTrial, Results
from sparkgpu.runs import run as orchestrate
from sparkgpu.table.schema import TableSchema, read_schema
from sparkgpu.terminal import Display

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
    """One trial of the small run; seconds on the clock.

    `before_s` passes before its training (the table is read or handed over), `overhead_s` within it without a
    step, `after_s` after it, of which `predict_s` are the predictions. `step_s` is a round or an epoch while
    the lane's other branch trains as well, `free_step_s` one after that branch has ended (None: no step was
    taken then).
    """

    model: str
    before_s: float
    overhead_s: float
    step_s: float
    free_step_s: float | None
    after_s: float
    predict_s: float


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A small run. `ready_s` passed until the table was there, `end_s` from the last trial to the result.

    `pieces` are means over the lanes. `jvm_s` passed from the prepared table to the first work of the trees:
    what was left of H2O's start.
    """

    schema: TableSchema
    plan: Plan
    ready_s: float
    jvm_s: float
    pieces: Mapping[str, Piece]
    end_s: float
    wall_s: float
    peak_rss_bytes: int
    peak_device_bytes: int | None
    parameters: int


def observe(
    config: RunConfig, *, rounds: int, epochs: int, repeats: int, folder: Path, title: str
) -> Observed:
    """Carry out `config` with so many rounds, epochs and repeats in `folder`. Raises what a run raises.

    `title` is what errors call the source. Raises `TrialError` if one of its trials fails.
    """
    began = time.time()
    outcome = orchestrate.run(
        shortened(config, rounds, epochs, repeats),
        _Silent(),
        out=folder,
        title=title,
        environ=outside_environment(os.environ),
    )
    results = outcome.results
    assert results is not None
    if results.failed:
        first = results.failed[0]
        raise TrialError(f"the small run that measures this machine failed: {first.error}")
    return _read(outcome.paths, results, began)


def shortened(config: RunConfig, rounds: int, epochs: int, repeats: int) -> RunConfig:
    """A resolved configuration whose models train for so many rounds or epochs and do not stop early."""
    trees = {"ntrees": rounds, "early_stopping_rounds": 0}
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


def _read(paths: RunPaths, results: Results, began: float) -> Observed:
    plan = Plan.model_validate(read_json(paths.plan))
    wall_s = results.run.wall_s
    events = {
        (lane.index, branch): EventReader(paths.lane(lane.index).events(branch)).new()
        for lane in plan.lanes
        for branch in BRANCHES
    }
    ended = {
        key: max((event.at for event in found if event.kind == "trial_done"), default=began)
        for key, found in events.items()
    }
    ready = paths.schema.stat().st_mtime
    moments = {spec.name: _moments(events[spec.lane, spec.branch], spec.name) for spec in plan.trials}
    trials: dict[str, list[Piece]] = {}
    begins: dict[Branch, list[float]] = {branch: [] for branch in BRANCHES}
    for spec in plan.trials:
        other: Branch = "trees" if spec.branch == "neural" else "neural"
        windows = [
            (moments[beside.name].began, moments[beside.name].ended)
            for beside in plan.of(spec.lane, other)
            if beside.name in moments
        ]
        own = moments[spec.name]
        done = next(trial for trial in results.done(spec.model) if trial.name == spec.name)
        piece = _piece(paths, done, own, windows, ended[spec.lane, other])
        trials.setdefault(spec.model, []).append(piece)
        begins[spec.branch].append(own.first)
    known = [trial.peak_device_bytes for trial in results.done() if trial.peak_device_bytes is not None]
    networks = [trial for trial in results.done() if "num_parameters" in trial.native_parameters]
    return Observed(
        schema=read_schema(paths),
        plan=plan,
        ready_s=ready - began,
        jvm_s=max(0.0, min(begins["trees"], default=ready) - ready),
        pieces={model: _mean(found) for model, found in trials.items()},
        end_s=max(0.0, began + wall_s - max(ended.values())),
        wall_s=wall_s,
        peak_rss_bytes=results.run.peak_rss_bytes,
        peak_device_bytes=max(known, default=None),
        parameters=max((int(one.native_parameters["num_parameters"]) for one in networks), default=0),
    )


@dataclass(frozen=True, kw_only=True)
class _Moments:
    """Of one trial, in seconds since the epoch: its first sign, training from `began` to `ended`, its end."""

    first: float
    began: float
    ended: float
    done: float


def _moments(events: Sequence[Event], trial: str) -> _Moments:
    own = [event for event in events if event.trial == trial and event.kind != "progress"]
    begin = next(place for place, event in enumerate(own) if event.text == "training")
    return _Moments(first=own[0].at, began=own[begin].at, ended=own[begin + 1].at, done=own[-1].at)


def _piece(
    paths: RunPaths, trial: DoneTrial, own: _Moments, windows: Sequence[tuple[float, float]], free_at: float
) -> Piece:
    """One trial's seconds; the lane's other branch trains in the `windows` and has ended at `free_at`.

    Of many steps the first, which warms up, does not count. Those at other times stand beside a Java that
    starts and compiles, which a long run hardly sees; they count only if there are no others. For the same
    reason the faster half decides.
    """
    _, curve = read_curve(paths.trial(trial.name).learning_curve)
    points = [(0, 0.0)] if trial.engine == "torch" else []
    points += [(point.step, point.elapsed_s) for point in curve if point.elapsed_s is not None]
    beside: list[float] = []
    between: list[float] = []
    free: list[float] = []
    steps = list(pairwise(points))
    for (step, at_s), (next_step, next_s) in steps[1:] if len(steps) > _FEWEST_STEPS else steps:
        each = (next_s - at_s) / max(1, next_step - step)
        middle = own.began + (at_s + next_s) / 2
        is_beside = any(begin <= middle <= end for begin, end in windows)
        (beside if is_beside else free if middle > free_at else between).append(each)
    training_s = own.ended - own.began
    step_s = _undisturbed(beside or free or between or [training_s / max(1, trial.steps or 1)])
    steps_s = step_s * (trial.steps or 1) if len(points) < 2 else points[-1][1]
    return Piece(
        model=trial.model,
        before_s=own.began - own.first,
        overhead_s=max(0.0, training_s - steps_s),
        step_s=step_s,
        free_step_s=_undisturbed(free) if free else None,
        after_s=own.done - own.ended,
        predict_s=trial.predict_s,
    )


def _undisturbed(steps_s: Sequence[float]) -> float:
    """The mean of the faster half."""
    return fmean(sorted(steps_s)[: -(-len(steps_s) // 2)])


def _mean(pieces: list[Piece]) -> Piece:
    """One piece for all lanes."""

    def mean(name: str) -> float:
        return fmean(getattr(piece, name) for piece in pieces)

    free = [piece.free_step_s for piece in pieces if piece.free_step_s is not None]
    return Piece(
        model=pieces[0].model, before_s=mean("before_s"), overhead_s=mean("overhead_s"),
        step_s=mean("step_s"), free_step_s=fmean(free) if free else None, after_s=mean("after_s"),
        predict_s=mean("predict_s"),
    )  # fmt: skip
