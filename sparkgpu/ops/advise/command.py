"""The command ``sparkgpu advise``: it reads options and prints; other modules do the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkgpu.core.config.command_options import (
    AsJson,
    Assignments,
    ConfigFile,
    CpuLanes,
    Gpus,
    Preset,
    SourceAsInRun,
    Target,
    Task,
)  # fmt: skip

if TYPE_CHECKING:
    from sparkgpu.core.config.keys import RunConfig
    from sparkgpu.core.plan.plan import Plan
    from sparkgpu.core.rundir.advice import AdviceRecord


def advise(
    source: SourceAsInRun = None,
    target: Target = None,
    task: Task = None,
    gpus: Gpus = None,
    cpu_lanes: CpuLanes = None,
    strategy: Annotated[str | None, typer.Option(help="How one network uses several devices.")] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Say which way suits this table here, how long it takes and how much memory it needs."""
    from sparkgpu.core.config import toml
    from sparkgpu.core.config.toml import keyed
    from sparkgpu.ops.advise.advice import advise as ask
    from sparkgpu.present.terminal.commands import telling

    options = keyed(
        source=source, target=target, task=task, gpus=gpus, cpu_lanes=cpu_lanes, strategy=strategy,
        preset=preset,
    )  # fmt: skip
    with telling() as tell:
        record, plan = ask(toml.load(file=config, options=options, assignments=assignments or ()), tell)
    if as_json:
        typer.echo(record.model_dump_json(indent=2))
    else:
        _show(record, plan)


def predicted_of(config: RunConfig, quiet: bool, out: Path | None) -> AdviceRecord | str:
    """What the run of `config` is predicted to take, or why there is no prediction; shown unless `quiet`.

    Advice never ends a run: whatever makes it fail becomes a sentence.
    """
    from sparkgpu.core.errors import described
    from sparkgpu.core.words import gibibytes, seconds_text
    from sparkgpu.ops.advise.advice import advise as ask
    from sparkgpu.present.terminal.commands import telling
    from sparkgpu.runs.folder import check_folder

    check_folder(out)  # before the seconds of the advice
    found: AdviceRecord | str
    try:
        with telling() as tell:
            found, _ = ask(config, (lambda text: None) if quiet else tell)
        memory = gibibytes(found.peak_rss_bytes)
        text = f"predicted: about {seconds_text(found.wall_s)} and {memory} of memory"
    except Exception as error:
        text = found = f"no prediction of this run: {described(error)['message'].rstrip('.')}"
    if not quiet:
        typer.echo(text)
    return found


def _show(record: AdviceRecord, plan: Plan) -> None:
    from sparkgpu.core.words import gibibytes, number_text, seconds_text
    from sparkgpu.present.table_model import number_cell, seconds_cell, table_of, three_digits
    from sparkgpu.present.terminal.commands import show_lines, show_table

    on_gpu = f", {gibibytes(record.peak_device_bytes)} on each GPU" if record.peak_device_bytes else ""
    price = f", {number_text(record.price, 3)}" if record.price is not None else ""
    show_lines(
        f"table     {record.source}: {record.rows:,} rows, {record.num_features} features, {record.task}",
        f"run       {record.lanes} × {record.device}, strategy {record.strategy}, preset {plan.preset}",
        f"time      about {seconds_text(record.wall_s)} (the table is ready after "
        f"{seconds_text(record.ready_s)})",
        f"memory    about {gibibytes(record.peak_rss_bytes)}{on_gpu}",
        f"cost      {number_text(record.device_hours, 3)} device-hours{price}",
        "",
    )
    ways = table_of(
        record.options,
        {
            "way": lambda way: way.name,
            "": lambda way: way.standing,
            "time": lambda way: seconds_cell(way.wall_s),
            "efficiency": lambda way: number_cell(way.efficiency, "{:.0%}".format),
            "cost": lambda way: number_cell(way.price, three_digits),
            "why": lambda way: way.why,
        },
    )
    show_table("Ways", ways.thin())
    show_lines("", *(f"- {line}" for line in record.assumptions))
