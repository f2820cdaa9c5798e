"""How far a run came that has no results, from whatever its directory holds: for each trial, done or not.

Limits: a run that is still going on looks like one that was killed, except for the age of its last sign. No
file here is needed, and one that cannot be read counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sparkgpu.config.registry.engines import BRANCHES, branch_of
from sparkgpu.errors import SparkgpuError
from sparkgpu.host.telemetry import read_telemetry
from sparkgpu.plan.plan import Plan
from sparkgpu.plan.trial_spec import TrialSpec
from sparkgpu.rundir.curve import read_curve
from sparkgpu.rundir.events import Event, EventReader
from sparkgpu.rundir.files import read_json, read_record
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.schema import TableSchema, read_schema
from sparkgpu.words import metric_title, number_text

UNREADABLE = (OSError, ValueError, KeyError, SparkgpuError)
"""What reading a file that is gone, cut or of another version may raise."""

State = Literal["done", "failed", "left out", "in training", "not begun"]


@dataclass(frozen=True, kw_only=True)
class StandingTrial:
    """One trial; `said` is why it failed, or its last point if it was in training."""

    name: str
    engine: str
    state: State
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What stands of a run. `stopped` is what it said when it stopped; `last_sign` is in UTC.

    `errors` are what workers said as they ended, by lane and branch.
    """

    stopped: str
    errors: tuple[tuple[str, str], ...]
    plan: Plan | None
    schema: TableSchema | None
    trials: tuple[StandingTrial, ...]
    last_sign: str
    phases: tuple[tuple[str, str], ...]


def standing(paths: RunPaths) -> Standing:
    """Read what there is."""
    plan = schema = None
    with suppress(*UNREADABLE):
        plan = read_record(paths.plan, Plan)
    with suppress(*UNREADABLE):
        schema = read_schema(paths)
    stopped = ""
    with suppress(*UNREADABLE):
        stopped = str(read_json(paths.stopped)["message"])
    events = dict(_events(paths))
    every = [event for found in events.values() for event in found]
    return Standing(
        stopped=stopped,
        errors=tuple(_errors(paths)),
        plan=plan,
        schema=schema,
        trials=tuple(_trials(paths, plan, every)),
        last_sign=_last_sign(paths, every),
        phases=tuple(
            (place, phases[-1])
            for place, found in events.items()
            if (phases := [event.text for event in found if event.kind == "phase"])
        ),
    )


def _events(paths: RunPaths) -> Iterator[tuple[str, list[Event]]]:
    for lane in paths.lanes():
        for branch in BRANCHES:
            found: list[Event] = []
            with suppress(*UNREADABLE):
                found = EventReader(paths.lane(lane).events(branch)).new()
            yield f"lane {lane} {branch}", found


def _errors(paths: RunPaths) -> Iterator[tuple[str, str]]:
    for lane in paths.lanes():
        for branch in BRANCHES:
            with suppress(*UNREADABLE):
                yield f"lane {lane} {branch}", str(read_json(paths.lane(lane).error(branch))["message"])


def _trials(paths: RunPaths, plan: Plan | None, events: list[Event]) -> Iterator[StandingTrial]:
    specs: dict[str, TrialSpec | None] = {spec.name: spec for spec in plan.trials} if plan else {}
    if not specs:
        specs = dict.fromkeys(
            sorted(folder.name for folder in paths.root.glob("trials/*") if folder.is_dir())
        )
    for name, spec in specs.items():
        trial = paths.trial(name)
        own = [event for event in events if event.trial == name]
        state: State = "not begun"
        said = ""
        failed = [event.text for event in own if event.kind == "trial_failed"]
        if trial.done.exists():
            state = "done"
        elif trial.error.exists() or failed:
            state, said = "failed", failed[-1] if failed else ""
            with suppress(*UNREADABLE):
                said = str(read_json(trial.error)["message"])
        elif trial.left_out.exists():
            state, said = "left out", "there was no time for it"
        elif own or trial.learning_curve.exists():
            state, said = "in training", _last_point(paths, name, own)
        engine = spec.engine if spec else ""
        if state == "in training" and engine and said:
            said = said.replace("step", "epoch" if branch_of(engine) == "neural" else "tree")
        yield StandingTrial(name=name, engine=engine, state=state, said=said)


def _last_point(paths: RunPaths, name: str, events: list[Event]) -> str:
    with suppress(*UNREADABLE):
        metric, points = read_curve(paths.trial(name).learning_curve)
        if points:
            last = points[-1]
            title = metric_title(metric)
            value = "" if last.valid is None else f", {title} {number_text(last.valid)} on validation rows"
            return f"step {last.step:,}{value}"
    steps = [event.step for event in events if event.kind == "progress" and event.step is not None]
    phases = [event.text for event in events if event.kind == "phase"]
    if steps:
        return f"step {steps[-1]:,}"
    return phases[-1] if phases else ""


def _last_sign(paths: RunPaths, events: list[Event]) -> str:
    times = [event.at for event in events]
    with suppress(*UNREADABLE):
        times += [sample.at for sample in read_telemetry(paths.telemetry)[-1:]]
    if not times:
        return ""
    return datetime.fromtimestamp(max(times), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
