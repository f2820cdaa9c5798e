"""The page of a run without results: what happened, what stands, and how to go on.

It needs no file in particular; a folder with none of a run's files is refused.
"""

from __future__ import annotations

import shlex
from contextlib import suppress

from jinja2 import Environment
from markupsafe import Markup

from sparkgpu.errors import ConfigError
from sparkgpu.report.cells import DASH, Cell, Table
from sparkgpu.report.figure import plot_style
from sparkgpu.report.header import Fact, short_source
from sparkgpu.report.next_step import NextStep, resume
from sparkgpu.report.pictures.activity import activity
from sparkgpu.report.standing import UNREADABLE, Standing, standing
from sparkgpu.report.tables import lanes
from sparkgpu.report.verdict import verdict
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results, read_results
from sparkgpu.words import clean, counted, listed


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


def unfinished_page(paths: RunPaths, missing: str) -> dict[str, object]:
    """The values of the frame and of ``unfinished.html.j2``; `missing` is what the whole page would need."""
    found = standing(paths)
    results: Results | None = None
    with suppress(*UNREADABLE):
        results = read_results(paths)
    configuration = ""
    with suppress(*UNREADABLE):
        configuration = paths.config.read_text(encoding="utf-8")
    with plot_style():
        picture = activity(paths)
    return {
        "title": _title(found, paths),
        "run": paths.root.name,
        "facts": _facts(found),
        "version": results.run.sparkgpu if results else "",
        "happened": _happened(found, results, missing),
        "verdict": verdict(results) if results else "",
        "errors": found.errors,
        "trials": _trials(found),
        "phases": found.phases,
        "steps": _steps(paths, results),
        "activity": picture,
        "lanes": lanes(found.plan) if found.plan else None,
        "reasons": found.plan.reasons if found.plan else {},
        "configuration": configuration,
        "folder": str(paths.root),
    }


def sections(templates: Environment, values: dict[str, object], kind: str) -> list[dict[str, object]]:
    """The sections of the frame, rendered: what happened, the machine, how to repeat it."""
    shown = [("happened", "What happened")]
    if values["activity"] or values["lanes"]:
        shown.append(("machine", "Machine"))
    shown.append(("repeat", "Repeat it"))
    template = templates.get_template(f"sections/unfinished.{kind}.j2")
    return [
        {"id": name, "title": title, "text": Markup(template.render(values, part=name))}
        for name, title in shown
    ]


def _title(found: Standing, paths: RunPaths) -> str:
    if found.schema is None:
        return paths.root.name
    return f"{clean(found.schema.target)} · {short_source(found.schema.source)}"


def _facts(found: Standing) -> list[Fact]:
    facts = []
    if schema := found.schema:
        facts += [
            Fact(name="table", text=short_source(schema.source), hint=schema.source),
            Fact(name="rows", text=f"{schema.rows:,}"),
            Fact(name="features", text=f"{len(schema.features):,}"),
            Fact(name="task", text=schema.task),
        ]
    if plan := found.plan:
        devices = listed(dict.fromkeys(lane.device_name or lane.device for lane in plan.lanes), most=3)
        facts.append(Fact(name="lanes", text=f"{len(plan.lanes)}, {devices}" if plan.lanes else "none"))
    if found.last_sign:
        facts.append(Fact(name="last sign", text=found.last_sign))
    return facts


def _happened(found: Standing, results: Results | None, missing: str) -> list[str]:
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


def _trials(found: Standing) -> Table:
    signs = {"done": "✓ done", "failed": "✗ failed"}
    rows = tuple(
        (
            Cell(text=trial.name), Cell(text=trial.engine or DASH),
            Cell(text=signs.get(trial.state, trial.state), best=trial.state == "done"),
            Cell(text=trial.said or DASH),
        )
        for trial in found.trials
    )  # fmt: skip
    return Table(columns=("trial", "engine", "state", "last word"), rows=rows)


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
