"""The commands of ``sparkgpu slurm``. They read options and print; other modules do the work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sparkgpu.core.config.command_options import AsJson, Assignments, ConfigFile, Target

slurm = typer.Typer(
    help="Write, check and submit Slurm scripts, and show the state of the jobs.", no_args_is_help=True
)

_Scripts = Annotated[list[Path], typer.Argument(metavar="FILE.sbatch...", help="Batch scripts.")]


@slurm.command()
def write(
    source: Annotated[str | None, typer.Argument(help="The table, as `sparkgpu run` takes it.")] = None,
    target: Target = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes that one network trains on.")] = None,
    gpus_per_node: Annotated[int, typer.Option(min=0, help="GPUs on each node; 0 to use only CPUs.")] = 1,
    ranks_per_node: Annotated[
        int | None, typer.Option(min=1, help="Ranks on each node without GPUs; default: 1.")
    ] = None,
    cpus_per_node: Annotated[
        int | None, typer.Option(min=1, help="CPUs on each node; default: whole nodes.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm's partition.")] = None,
    cpu_partition: Annotated[
        str | None, typer.Option(help="The partition of trees-cpu.sbatch; default: the same.")
    ] = None,
    account: Annotated[str | None, typer.Option(help="Slurm's account.")] = None,
    time: Annotated[str | None, typer.Option(help="The time limit, such as 04:00:00.")] = None,
    modules: Annotated[str | None, typer.Option(help="Modules to load, separated by commas.")] = None,
    setup: Annotated[
        list[str] | None,
        typer.Option(help="A line that sets up the environment; repeat the option for more."),
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="How one network uses several devices.")] = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    out: Annotated[Path, typer.Option(help="A folder that all nodes see.")] = Path("slurm"),
    as_json: AsJson = False,
) -> None:
    """Write lanes.sbatch, trees-cpu.sbatch and, for two nodes or more, network.sbatch."""
    from sparkgpu.core.config import toml as config_io
    from sparkgpu.core.config.toml import keyed
    from sparkgpu.core.errors import ConfigError
    from sparkgpu.core.table.source import find_source
    from sparkgpu.lanes.slurm.check import mismatches
    from sparkgpu.lanes.slurm.script_writer import NodeShape, write_scripts

    options = keyed(
        source=source, target=target, nodes=nodes, strategy=strategy, cpus_per_node=cpus_per_node,
        partition=partition, cpu_partition=cpu_partition, account=account, time=time, setup=setup or None,
        modules=[name.strip() for name in modules.split(",")] if modules else None,
    )  # fmt: skip
    found = config_io.load(file=config, options=options, assignments=assignments or ())
    if found.data.source is not None and found.data.target is None:
        raise ConfigError(
            "no target: name the column to predict with --target; without it the jobs would end at once."
        )
    if found.data.source is not None:
        table = find_source(found.data.source)
        data = found.data.model_copy(update={"source": table.lasting})  # a job starts in another folder
        found = found.model_copy(update={"data": data})
    shape = NodeShape(gpus_per_node=gpus_per_node, ranks_per_node=ranks_per_node or gpus_per_node or 1)
    faults = {str(file): mismatches(file) for file in write_scripts(found, shape, out)}
    if as_json:
        typer.echo(json.dumps(faults, indent=2))
    for file, sentences in faults.items() if not as_json else ():
        typer.echo(file)
        for sentence in sentences:
            typer.echo(f"  {sentence}", err=True)
    raise typer.Exit(2 if any(faults.values()) else 0)


@slurm.command()
def check(files: _Scripts, as_json: AsJson = False) -> None:
    """Show where nodes, tasks, GPUs, ranks, strategy and time of a script contradict; needs no cluster."""
    from sparkgpu.lanes.slurm.check import mismatches

    faults = {str(file): mismatches(file) for file in files}
    if as_json:
        typer.echo(json.dumps(faults, indent=2))
    for file, sentences in faults.items() if not as_json else ():
        typer.echo(f"{file}: {'fits' if not sentences else ''}".rstrip())
        for sentence in sentences:
            typer.echo(f"  {sentence}")
    raise typer.Exit(2 if any(faults.values()) else 0)


@slurm.command()
def submit(files: _Scripts, as_json: AsJson = False) -> None:
    """Check scripts and submit them with sbatch; print each job's number."""
    from sparkgpu.core.errors import ConfigError
    from sparkgpu.lanes.slurm import queue
    from sparkgpu.lanes.slurm.check import mismatches

    for file in files:
        if sentences := mismatches(file):
            raise ConfigError(f"{file}: {sentences[0]} `sparkgpu slurm check {file}` shows every fault.")
    numbers: dict[str, str] = {}
    try:
        for file in files:
            numbers[str(file)] = queue.submit(file)
            if not as_json:
                typer.echo(numbers[str(file)])
    finally:  # what was submitted before a script was refused is in the queue
        if as_json:
            typer.echo(json.dumps(numbers, indent=2))


@slurm.command()
def status(
    numbers: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB...]", help="Default: your jobs in the queue.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of jobs, one line each; as JSON, what Slurm says of them."""
    from sparkgpu.lanes.slurm import queue

    jobs = (queue.job(number) for number in numbers or queue.own_jobs())
    if as_json:
        typer.echo(json.dumps(list(jobs), indent=2))
    else:
        for job in jobs:
            typer.echo(queue.in_words(job))
