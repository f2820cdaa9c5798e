"""The text of the plan, the prepared table and the result: facts as two columns, metrics as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparkgpu.words import clean, counted, gibibytes, listed, metric_title, number_text, seconds_text

if TYPE_CHECKING:
    from sparkgpu.plan.plan import Plan
    from sparkgpu.rundir.results import Results
    from sparkgpu.score.standings import Standing
    from sparkgpu.table.schema import TableSchema


def plan_facts(plan: Plan) -> Iterable[tuple[str, str]]:
    yield "preset", plan.reasons.get("preset", f"{plan.preset}, as asked")
    for lane in plan.lanes:
        device = lane.device if lane.device == "cpu" else f"{lane.device} {lane.device_name}"
        if plan.master is not None:
            yield f"lane {lane.index}", f"{lane.device_name}, {counted(lane.threads, 'core')}"
            continue
        yield (
            f"lane {lane.index}",
            f"{device}, {counted(lane.tree_threads, 'thread')} for trees and {lane.neural_threads} for the "
            f"network, {gibibytes(lane.heap_bytes)} of Java heap, ports from {lane.port_base}",
        )
    yield "trials", f"{len(plan.trials)}: {listed((trial.name for trial in plan.trials), most=6)}"
    for key, reason in plan.reasons.items():
        if key != "preset":
            yield key, reason


def table_facts(schema: TableSchema) -> Iterable[tuple[str, str]]:
    splits = ", ".join(f"{name} {rows:,}" for name, rows in schema.splits.items())
    refused = f"; {schema.rows_refused:,} refused: no target value" if schema.rows_refused else ""
    yield "rows", f"{schema.rows:,} ({splits}){refused}"
    classes = f": {listed(schema.classes, most=6)}" if schema.classes else ""
    folds = f", {schema.folds} folds" if schema.folds else ""
    yield "target", f"{schema.target}, {schema.task}{classes}{folds}"
    kinds = ", ".join(
        f"{len(features):,} {kind}"
        for kind, features in (("numeric", schema.numeric), ("categorical", schema.categorical))
        if features
    )
    yield "features", f"{len(schema.features):,}: {kinds}"
    if schema.dropped:
        yield "dropped", listed((f"{item.column} ({item.reason})" for item in schema.dropped), most=6)
    for note in schema.notes:
        yield "note", note


def facts(pairs: Iterable[tuple[str, str]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, text in pairs:
        grid.add_row(clean(name), clean(text))
    return grid


MOST_ACROSS = 4
"""More models than these stand below each other, with fewer metrics."""

_METRICS_ACROSS = 3  # as many as 80 columns hold beside the rest


def results_table(results: Results) -> RenderableType:
    """The scores: metrics down and models across or, of many models, the models down, the best first."""
    if len(results.models) > MOST_ACROSS:
        return _models_down(results)
    from rich.box import SIMPLE_HEAD

    # These load numpy, which the start of a run does not need.
    from sparkgpu.score.standings import averaged, standings, training

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("test split")
    for model in results.models:
        table.add_column(clean(model.name), justify="right")

    def add(title: str, found: Sequence[Standing]) -> None:
        cells = []
        for standing in found:
            spread = f" ± {number_text(standing.spread, 2)}" if standing.spread is not None else ""
            mark, style = (" *", "bold") if standing.is_best else ("  ", "")
            cells.append(Text(number_text(standing.value) + spread + mark, style=style))
        table.add_row(title, *cells)

    for metric, found in standings(results.models, "test").items():
        add(metric_title(metric), found)
        if metric == results.comparison.metric and (of_averages := averaged(results)):
            add("  trials averaged", of_averages)
    table.add_section()
    done = [results.done(model.name) for model in results.models]
    mean_s = [seconds_text(sum(t.fit_s for t in own) / len(own)) if own else "–" for own in done]
    table.add_row("mean fit time", *(f"{text}  " for text in mean_s))
    trained = [training(results, model.name) for model in results.models]
    if any(trained):
        table.add_row("trained", *(f"{text or '–'}  " for text in trained))
    names = [sorted({name for trial in own for name in trial.devices}) for own in done]
    table.add_row("device", *(f"{_devices(devices)}  " for devices in names))
    states = [model.status for model in results.models]
    if set(states) - {"done"}:
        table.add_row("status", *(f"{state}  " for state in states))
    return Group("", table, Text("* best of the row", style="dim"))


def _models_down(results: Results) -> RenderableType:
    from rich.box import SIMPLE_HEAD

    from sparkgpu.score.metrics import score
    from sparkgpu.score.standings import standings, training

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    # The trials' averaged predictions are what is compared, and what the blend is made of.
    found = standings(
        [
            model if model.averaged is None else model.model_copy(update={"metrics": model.averaged})
            for model in results.models
        ],
        "test",
    )
    primary = results.comparison.metric
    shown = list(found)[:_METRICS_ACROSS]
    table.add_column("test split")
    for metric in shown:
        table.add_column(metric_title(metric), justify="right")
    for title in ("fit", "trained"):
        table.add_column(title, justify="right", no_wrap=True)

    def value(place: int) -> float:
        scored = found[primary][place].value
        return float("-inf") if scored is None else score(primary, scored)

    for place in sorted(range(len(results.models)), key=value, reverse=True):
        model = results.models[place]
        if model.status == "left out":
            continue
        cells = [
            Text(
                number_text(found[metric][place].value) + (" *" if found[metric][place].is_best else "  "),
                style="bold" if found[metric][place].is_best else "",
            )
            for metric in shown
        ]
        done = results.done(model.name)
        fit = seconds_text(sum(trial.fit_s for trial in done) / len(done)) if done else "–"
        state = "" if model.status == "done" else f" ({model.status})"
        trained = (training(results, model.name) or "–").removesuffix(" trees").removesuffix(" epochs")
        table.add_row(clean(model.name) + state, *cells, fit, trained)
    several = any(model.averaged for model in results.models)
    note = "* best of the column" + ("; of several trials, of their averaged predictions" if several else "")
    return Group("", table, Text(note, style="dim"))


def _devices(names: list[str]) -> str:
    return listed(names) or "–" if len(names) < 3 else f"{len(names)} devices"
