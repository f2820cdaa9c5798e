"""A run without results, from whatever its folder holds: what happened, how far it came, how it goes on.

Limits: a run that is still going on looks like one that was killed, except for the age of its last sign. No
file is needed, and one that cannot be read counts as absent; a folder with none of a run's is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from sparkgpu.core.config.registry.engines import BRANCHES, branch_of
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.telemetry import read_telemetry
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.events import Event
from sparkgpu.core.rundir.files import UNREADABLE, read_json, read_record
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import StopRecord
from sparkgpu.core.table.schema import read_schema
from sparkgpu.core.words import counted, metric_title, number_text
from sparkgpu.present.data_tables import about_table, title_of
from sparkgpu.present.entries import UNITS
from sparkgpu.present.result_tables import Fact
from sparkgpu.present.table_model import DASH, Cell, Table
from sparkgpu.present.timeline import events_of
from sparkgpu.present.verdict import NextStep, resume

_Read = TypeVar("_Read")


def check_is_run(paths: RunPaths) -> None:
    """Raises `ConfigError` if the folder holds nothing of a run."""
    files = (paths.metrics, paths.plan, paths.config, paths.schema, paths.stopped, paths.telemetry)
    folders = (paths.root / "lanes", paths.root / "trials")
    if not any(file.is_file() for file in files) and not any(folder.is_dir() for folder in folders):
        raise ConfigError(
            f"{paths.root}: it holds no metrics.json, plan.json or run.toml; give the folder of a run."
        )


def page(paths: RunPaths, missing: str) -> dict[str, object]:
    """The values of the page and its only section; `missing` is what the whole page would need."""
    plan, schema = _tried(lambda: read_record(paths.plan, Plan)), _tried(lambda: read_schema(paths))
    events, errors = dict(events_of(paths)), dict(_errors(paths))
    trials = _trials(paths, plan, [event for of_branch in events.values() for event in of_branch])
    last_sign = _last_sign(paths, events)
    facts = [*(about_table(schema) if schema else ()), Fact("last sign", last_sign)]
    if paths.metrics.is_file():
        happened = [f"The run finished, but {missing} is gone or broken, so it cannot be shown."]
    else:
        done = sum(paths.trial(str(row[0].text)).done.exists() for row in trials)
        if plan is None:
            stands = "Its plan is gone." if done else "It had no plan yet."
        elif schema is None:
            stands = "The table was not ready, so nothing was trained."
        elif done:
            are = "is" if done == 1 else "are"
            stands = f"{done} of {counted(len(trials), 'trial')} {are} done and will be kept."
        else:
            stands = "The table is ready; no trial is done."
        happened = [f"{_end(paths, errors, last_sign)}.", stands]
    return {
        "title": title_of(schema) if schema else paths.root.name,
        "run": paths.root.name,
        "facts": [fact for fact in facts if fact.text],
        "version": "",
        "happened": happened,
        "errors": list(errors.items()),
        "trials": Table(columns=("trial", "engine", "state", "last word"), rows=tuple(trials)),
        "steps": _steps(paths),
    }


def _tried(read: Callable[[], _Read]) -> _Read | None:
    with suppress(*UNREADABLE):
        return read()
    return None


def _errors(paths: RunPaths) -> Iterator[tuple[str, str]]:
    """What workers said as they ended, by lane and branch."""
    for lane in paths.lanes():
        for branch in BRANCHES:
            with suppress(*UNREADABLE):
                yield f"lane {lane} {branch}", str(read_json(paths.lane(lane).error(branch))["message"])


def _trials(paths: RunPaths, plan: Plan | None, events: Sequence[Event]) -> list[tuple[Cell, ...]]:
    """A row for each trial, planned or begun."""
    folders = sorted(folder.name for folder in paths.root.glob("trials/*") if folder.is_dir())
    engines = {spec.name: spec.engine for spec in plan.trials} if plan else dict.fromkeys(folders, "")
    rows: list[tuple[Cell, ...]] = []
    for name, engine in engines.items():
        state, said = _state(paths, name, engine, [event for event in events if event.trial == name])
        shown = Cell(text=state, best=state == "✓ done")
        rows.append((Cell(text=name), Cell(text=engine or DASH), shown, Cell(text=said or DASH)))
    return rows


def _state(paths: RunPaths, name: str, engine: str, own: Sequence[Event]) -> tuple[str, str]:
    """The state of a trial, and its last word."""
    trial = paths.trial(name)
    failed = [event.text for event in own if event.kind == "trial_failed"]
    if trial.done.exists():
        return "✓ done", ""
    if trial.error.exists() or failed:
        reason = _tried(lambda: str(read_json(trial.error)["message"]))
        return "✗ failed", reason or (failed[-1] if failed else "")
    if trial.left_out.exists():
        return "left out", "there was no time for it"
    if not own and not trial.learning_curve.exists():
        return "not begun", ""
    unit = UNITS[branch_of(engine)] if engine else "step"
    metric, points = _tried(lambda: read_curve(trial.learning_curve)) or ("", [])
    if points:
        last = points[-1]
        value = f", {metric_title(metric)} {number_text(last.valid)} on validation rows"
        return "in training", f"{unit} {last.step:,}{'' if last.valid is None else value}"
    steps = [event.step for event in own if event.kind == "progress" and event.step is not None]
    return "in training", f"{unit} {steps[-1]:,}" if steps else ""


def _last_sign(paths: RunPaths, events: Mapping[str, Sequence[Event]]) -> str:
    """In UTC; empty without any."""
    times = [event.at for of_branch in events.values() for event in of_branch]
    times += [sample.at for sample in (_tried(lambda: read_telemetry(paths.telemetry)) or [])[-1:]]
    return datetime.fromtimestamp(max(times), UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if times else ""


def _end(paths: RunPaths, errors: Mapping[str, str], last_sign: str) -> str:
    """What is known of how the run ended."""
    if stopped := _tried(lambda: read_record(paths.stopped, StopRecord).message):
        said = stopped.rstrip(".")
        return "The run was " + said if said.startswith("interrupted") else f"The run stopped: {said}"
    if errors:
        place, said = next(iter(errors.items()))
        return f"{place.capitalize()} stopped: {said.rstrip('.')}"
    sign = f"; its last sign was at {last_sign}" if last_sign else ""
    return f"The run has no results yet: it was killed, or it is still going on{sign}"


def _steps(paths: RunPaths) -> list[NextStep]:
    if paths.metrics.is_file() or not paths.config.is_file():
        return []
    folder = str(paths.root)
    goes_on = "It goes on" if paths.schema.is_file() else "It begins again"
    return [
        NextStep(reason=f"{goes_on}, and what is done is kept:", command=resume(folder)),
        NextStep(
            reason="If it is still going on, follow it from any terminal:",
            command=f"sparkgpu monitor {shlex.quote(folder)}",
        ),
    ]
