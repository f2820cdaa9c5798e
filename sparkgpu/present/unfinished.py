"""A run without results, from whatever its folder holds: how far it came, and the values of its page.

Limits: a run that is still going on looks like one that was killed, except for the age of its last sign. No
file is needed, and one that cannot be read counts as absent; a folder with none of a run's is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeVar

from sparkgpu.core.config.registry.engines import BRANCHES, branch_of
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.telemetry import read_telemetry
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.events import Event
from sparkgpu.core.rundir.files import UNREADABLE, read_json, read_record
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.results import Results, read_results
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.core.words import counted, listed, metric_title, number_text
from sparkgpu.present.data_tables import about_table, title_of
from sparkgpu.present.pictures.machine import activity
from sparkgpu.present.table import DASH, Cell, Table, table_of
from sparkgpu.present.tables import Fact, lanes
from sparkgpu.present.timeline import events_of
from sparkgpu.present.verdict import NextStep, resume, verdict

_Read = TypeVar("_Read")

State = Literal["done", "failed", "left out", "in training", "not begun"]


@dataclass(frozen=True, kw_only=True)
class UnfinishedTrial:
    """One trial; `said` is why it failed, or its last point if it was in training."""

    name: str
    engine: str
    state: State
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """What stands of a run. `stopped` is what it said when it stopped; `last_sign` is in UTC.

    `errors` are what workers said as they ended, by lane and branch.
    """

    stopped: str
    errors: tuple[tuple[str, str], ...]
    plan: Plan | None
    schema: TableSchema | None
    trials: tuple[UnfinishedTrial, ...]
    last_sign: str
    phases: tuple[tuple[str, str], ...]


def read_unfinished(paths: RunPaths) -> Unfinished:
    """Read what there is."""
    plan = _tried(lambda: read_record(paths.plan, Plan))
    events = dict(events_of(paths))
    every = [event for found in events.values() for event in found]
    return Unfinished(
        stopped=_tried(lambda: str(read_json(paths.stopped)["message"])) or "",
        errors=tuple(_errors(paths)),
        plan=plan,
        schema=_tried(lambda: read_schema(paths)),
        trials=tuple(_trials(paths, plan, every)),
        last_sign=_last_sign(paths, every),
        phases=tuple(
            (place, phases[-1])
            for place, found in events.items()
            if (phases := [event.text for event in found if event.kind == "phase"])
        ),
    )


def _tried(read: Callable[[], _Read]) -> _Read | None:
    with suppress(*UNREADABLE):
        return read()
    return None


def _errors(paths: RunPaths) -> Iterator[tuple[str, str]]:
    for lane in paths.lanes():
        for branch in BRANCHES:
            with suppress(*UNREADABLE):
                yield f"lane {lane} {branch}", str(read_json(paths.lane(lane).error(branch))["message"])


def _trials(paths: RunPaths, plan: Plan | None, events: list[Event]) -> Iterator[UnfinishedTrial]:
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
        yield UnfinishedTrial(name=name, engine=engine, state=state, said=said)


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


def check_is_run(paths: RunPaths) -> None:
    """Raises `ConfigError` if the folder holds nothing of a run."""
    signs = (paths.metrics, paths.plan, paths.config, paths.schema, paths.stopped, paths.telemetry)
    if (
        not any(sign.is_file() for sign in signs)
        and not paths.lanes()
        and not (paths.root / "trials").is_dir()
    ):
        raise ConfigError(
            f"{paths.root}: it holds no metrics.json, plan.json or run.toml; give the folder of a run."
        )


def page(paths: RunPaths, missing: str) -> tuple[dict[str, object], list[tuple[str, str]]]:
    """The values of the page, and its sections; `missing` is what the whole page would need."""
    found = read_unfinished(paths)
    results = _tried(lambda: read_results(paths))
    configuration = _tried(lambda: paths.config.read_text(encoding="utf-8"))
    values = {
        "title": title_of(found.schema) if found.schema else paths.root.name,
        "run": paths.root.name,
        "facts": _facts(found),
        "version": results.run.sparkgpu if results else "",
        "happened": _happened(found, results, missing),
        "verdict": verdict(results) if results else "",
        "errors": found.errors,
        "trials": _trial_table(found),
        "phases": found.phases,
        "steps": _steps(paths, results),
        "activity": activity(paths),
        "lanes": lanes(found.plan) if found.plan else None,
        "reasons": found.plan.reasons if found.plan else {},
        "configuration": configuration or "",
        "folder": str(paths.root),
    }
    machine = [("machine", "Machine")] if values["activity"] or values["lanes"] else []
    return values, [("happened", "What happened"), *machine, ("repeat", "Repeat it")]


def _facts(found: Unfinished) -> list[Fact]:
    facts = [fact for fact in about_table(found.schema) if fact.text] if found.schema else []
    if plan := found.plan:
        devices = listed(dict.fromkeys(lane.device_name or lane.device for lane in plan.lanes), most=3)
        facts.append(Fact(name="lanes", text=f"{len(plan.lanes)}, {devices}" if plan.lanes else "none"))
    if found.last_sign:
        facts.append(Fact(name="last sign", text=found.last_sign))
    return facts


def _happened(found: Unfinished, results: Results | None, missing: str) -> list[str]:
    """What is known of the end, and how far the run came."""
    if results is not None:
        return [f"The run finished, but {missing} is gone from its folder, so only a part can be shown."]
    if found.stopped:
        said = found.stopped.rstrip(".")
        first = "The run was " + said if said.startswith("interrupted") else f"The run stopped: {said}"
        sentences = [f"{first}."]
    elif found.errors:
        place, said = found.errors[0]
        sentences = [f"{place.capitalize()} stopped: {said.rstrip('.')}."]
    else:
        sign = f"; its last sign was at {found.last_sign}" if found.last_sign else ""
        sentences = [f"The run has no results yet: it was killed, or it is still going on{sign}."]
    done = [trial.name for trial in found.trials if trial.state == "done"]
    if found.plan is None:
        sentences.append("It had no plan yet." if not done else "Its plan is gone.")
    elif found.schema is None:
        sentences.append("The table was not ready, so nothing was trained.")
    elif done:
        of = counted(len(found.trials), "trial")
        sentences.append(f"{len(done)} of {of} {'is' if len(done) == 1 else 'are'} done and will be kept.")
    else:
        sentences.append("The table is ready; no trial is done.")
    return sentences


def _trial_table(found: Unfinished) -> Table:
    signs = {"done": "✓ done", "failed": "✗ failed"}
    columns: dict[str, Callable[[UnfinishedTrial], Cell | str]] = {
        "trial": lambda one: one.name,
        "engine": lambda one: one.engine or DASH,
        "state": lambda one: Cell(text=signs.get(one.state, one.state), best=one.state == "done"),
        "last word": lambda one: one.said or DASH,
    }
    return table_of(found.trials, columns)


def _steps(paths: RunPaths, results: Results | None) -> list[NextStep]:
    folder = str(paths.root)
    if results is not None or not paths.config.is_file():
        return []
    goes_on = "It goes on" if paths.schema.is_file() else "It begins again"
    return [
        NextStep(reason=f"{goes_on}, and what is done is kept:", command=resume(folder)),
        NextStep(
            reason="If it is still going on, follow it from any terminal:",
            command=f"sparkgpu monitor {shlex.quote(folder)}",
        ),
    ]
