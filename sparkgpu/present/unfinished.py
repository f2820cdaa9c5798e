"""A run without results, from whatever its folder holds: how far it came, and the values of its page.

Limits: a run that is still going on looks like one that was killed, except for the age of its last sign. No
file is needed, and one that cannot be read counts as absent; a folder with none of a run's is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TypeVar

from sparkgpu.core.config.registry.engines import BRANCHES, branch_of
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.telemetry import read_telemetry
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.events import Event
from sparkgpu.core.rundir.files import UNREADABLE, read_json, read_record
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.results import Results, read_results
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.core.words import counted, listed, metric_title, number_text
from sparkgpu.present.data_tables import about_table, title_of
from sparkgpu.present.entries import UNITS
from sparkgpu.present.pictures.machine import activity
from sparkgpu.present.table import DASH, Cell, Table
from sparkgpu.present.tables import Fact, lanes
from sparkgpu.present.timeline import events_of
from sparkgpu.present.verdict import NextStep, resume, verdict

_Read = TypeVar("_Read")
_TRIALS = ("trial", "engine", "state", "last word")


def check_is_run(paths: RunPaths) -> None:
    """Raises `ConfigError` if the folder holds nothing of a run."""
    files = (paths.metrics, paths.plan, paths.config, paths.schema, paths.stopped, paths.telemetry)
    folders = (paths.root / "lanes", paths.root / "trials")
    if not any(file.is_file() for file in files) and not any(folder.is_dir() for folder in folders):
        raise ConfigError(
            f"{paths.root}: it holds no metrics.json, plan.json or run.toml; give the folder of a run."
        )


def page(paths: RunPaths, missing: str) -> tuple[dict[str, object], list[tuple[str, str]]]:
    """The values of the page, and its sections; `missing` is what the whole page would need."""
    found = _Folder(paths=paths)
    plan, results = found.plan, found.results
    configuration = _tried(lambda: paths.config.read_text(encoding="utf-8"))
    phases = {
        place: [event.text for event in events if event.kind == "phase"]
        for place, events in found.events.items()
    }
    values = {
        "title": title_of(found.schema) if found.schema else paths.root.name,
        "run": paths.root.name,
        "facts": _facts(found),
        "version": results.run.sparkgpu if results else "",
        "happened": _happened(found, missing),
        "verdict": verdict(results) if results else "",
        "errors": list(found.errors.items()),
        "trials": Table(columns=_TRIALS, rows=tuple(found.trials.values())),
        "phases": [(place, texts[-1]) for place, texts in phases.items() if texts],
        "steps": _steps(found),
        "activity": activity(paths),
        "lanes": lanes(plan) if plan else None,
        "reasons": plan.reasons if plan else {},
        "configuration": configuration or "",
        "folder": str(paths.root),
    }
    machine = [("machine", "Machine")] if values["activity"] or values["lanes"] else []
    return values, [("happened", "What happened"), *machine, ("repeat", "Repeat it")]


@dataclass(frozen=True, kw_only=True)
class _Folder:
    """What can be read of a run; what is gone is None or empty."""

    paths: RunPaths

    @cached_property
    def plan(self) -> Plan | None:
        return _tried(lambda: read_record(self.paths.plan, Plan))

    @cached_property
    def schema(self) -> TableSchema | None:
        return _tried(lambda: read_schema(self.paths))

    @cached_property
    def results(self) -> Results | None:
        return _tried(lambda: read_results(self.paths))

    @cached_property
    def events(self) -> Mapping[str, list[Event]]:
        """By lane and branch."""
        return dict(events_of(self.paths))

    @cached_property
    def errors(self) -> Mapping[str, str]:
        """What workers said as they ended, by lane and branch."""
        found = {}
        for lane in self.paths.lanes():
            for branch in BRANCHES:
                with suppress(*UNREADABLE):
                    message = read_json(self.paths.lane(lane).error(branch))["message"]
                    found[f"lane {lane} {branch}"] = str(message)
        return found

    @cached_property
    def trials(self) -> Mapping[str, tuple[Cell, ...]]:
        """A row for each trial, planned or begun."""
        folders = sorted(folder.name for folder in self.paths.root.glob("trials/*") if folder.is_dir())
        engines = {spec.name: spec.engine for spec in self.plan.trials} if self.plan else {}
        return {name: self._trial(name, engines.get(name, "")) for name in engines or folders}

    def _trial(self, name: str, engine: str) -> tuple[Cell, ...]:
        trial = self.paths.trial(name)
        own = [event for events in self.events.values() for event in events if event.trial == name]
        failed = [event.text for event in own if event.kind == "trial_failed"]
        state, said = "not begun", ""
        if trial.done.exists():
            state = "✓ done"
        elif trial.error.exists() or failed:
            state, said = "✗ failed", failed[-1] if failed else ""
            with suppress(*UNREADABLE):
                said = str(read_json(trial.error)["message"])
        elif trial.left_out.exists():
            state, said = "left out", "there was no time for it"
        elif own or trial.learning_curve.exists():
            step = UNITS[branch_of(engine)] if engine else "step"
            state, said = "in training", self._last_point(name, own, step)
        shown = Cell(text=state, best=state == "✓ done")
        return Cell(text=name), Cell(text=engine or DASH), shown, Cell(text=said or DASH)

    def _last_point(self, name: str, events: list[Event], step: str) -> str:
        with suppress(*UNREADABLE):
            metric, points = read_curve(self.paths.trial(name).learning_curve)
            if points:
                last = points[-1]
                value = f", {metric_title(metric)} {number_text(last.valid)} on validation rows"
                return f"{step} {last.step:,}{'' if last.valid is None else value}"
        steps = [event.step for event in events if event.kind == "progress" and event.step is not None]
        phases = [event.text for event in events if event.kind == "phase"]
        return f"{step} {steps[-1]:,}" if steps else phases[-1] if phases else ""

    @property
    def done(self) -> int:
        return sum(self.paths.trial(name).done.exists() for name in self.trials)

    @cached_property
    def last_sign(self) -> str:
        """In UTC."""
        times = [event.at for events in self.events.values() for event in events]
        with suppress(*UNREADABLE):
            times += [sample.at for sample in read_telemetry(self.paths.telemetry)[-1:]]
        if not times:
            return ""
        return datetime.fromtimestamp(max(times), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _tried(read: Callable[[], _Read]) -> _Read | None:
    with suppress(*UNREADABLE):
        return read()
    return None


def _facts(found: _Folder) -> list[Fact]:
    facts = [fact for fact in about_table(found.schema) if fact.text] if found.schema else []
    if plan := found.plan:
        devices = listed(dict.fromkeys(lane.device_name or lane.device for lane in plan.lanes), most=3)
        facts.append(Fact("lanes", f"{len(plan.lanes)}, {devices}" if plan.lanes else "none"))
    if found.last_sign:
        facts.append(Fact("last sign", found.last_sign))
    return facts


def _happened(found: _Folder, missing: str) -> list[str]:
    """What is known of the end, and how far the run came."""
    if found.results is not None:
        return [f"The run finished, but {missing} is gone from its folder, so only a part can be shown."]
    if stopped := _tried(lambda: str(read_json(found.paths.stopped)["message"])):
        said = stopped.rstrip(".")
        first = "The run was " + said if said.startswith("interrupted") else f"The run stopped: {said}"
    elif found.errors:
        place, said = next(iter(found.errors.items()))
        first = f"{place.capitalize()} stopped: {said.rstrip('.')}"
    else:
        sign = f"; its last sign was at {found.last_sign}" if found.last_sign else ""
        first = f"The run has no results yet: it was killed, or it is still going on{sign}"
    if found.plan is None:
        stands = "Its plan is gone." if found.done else "It had no plan yet."
    elif found.schema is None:
        stands = "The table was not ready, so nothing was trained."
    elif found.done:
        are = "is" if found.done == 1 else "are"
        stands = f"{found.done} of {counted(len(found.trials), 'trial')} {are} done and will be kept."
    else:
        stands = "The table is ready; no trial is done."
    return [f"{first}.", stands]


def _steps(found: _Folder) -> list[NextStep]:
    folder = str(found.paths.root)
    if found.results is not None or not found.paths.config.is_file():
        return []
    goes_on = "It goes on" if found.paths.schema.is_file() else "It begins again"
    return [
        NextStep(reason=f"{goes_on}, and what is done is kept:", command=resume(folder)),
        NextStep(
            reason="If it is still going on, follow it from any terminal:",
            command=f"sparkgpu monitor {shlex.quote(folder)}",
        ),
    ]
