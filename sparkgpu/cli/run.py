"""``sparkgpu run``: its options, which become the keys of a run."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from sparkgpu.core.config.command_options import (
    AsJson,
    Assignments,
    ConfigFile,
    CpuLanes,
    Gpus,
    Preset,
    Task,
)  # fmt: skip
from sparkgpu.core.errors import ConfigError


def run(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Parquet file or folder, CSV (plain or compressed), ORC, JSON lines, or table:NAME. "
            "Without it, the built-in demo runs on real data."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="NAMES", help="The column to predict, or several: price,sold.")
    ] = None,
    task: Task = None,
    gpus: Gpus = None,
    cpu_lanes: CpuLanes = None,
    repeats: Annotated[
        int | None, typer.Option(help="Number of repeats, each with its own seed; default: one per lane.")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="How one network uses several devices: auto, single, dp, ddp, fsdp, tp, pp, dp_tp, dp_pp."
        ),
    ] = None,
    preset: Preset = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Further models on the same rows, such as lightgbm,catboost,xgboost,realmlp,resnet.",
        ),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time for the whole run, such as 90s, 10m or 1h30m; it is used."),
    ] = None,
    search: Annotated[
        int | None, typer.Option(metavar="N", help="Try N settings for each model; the best join in.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What decides which model is better: one of ours, a scorer of scikit-learn, or your own.",
        ),
    ] = None,
    valid: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Your own validation rows: a table like SOURCE.")
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Your own test rows: a table like SOURCE.")
    ] = None,
    intervals: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Give intervals (numbers) or sets of classes that hold the truth in this share of rows: .9",
        ),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Score each model by this column's values; repeat for more."),
    ] = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Write the finished run to MLflow: a server or a folder."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory: a new or an empty folder.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the stopped run in --out.")] = False,
    predicted: Annotated[
        bool,
        typer.Option("--advise", help="First predict time and memory; the report shows what became of it."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the plan and exit; of the table, only the columns are read."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the result and errors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train trees and a network on a table, side by side, and say which is better."""
    import psutil

    from sparkgpu.core.config import toml
    from sparkgpu.core.config.toml import keyed
    from sparkgpu.present.terminal.display import open_display
    from sparkgpu.runs import run as orchestrate
    from sparkgpu.runs.folder import resumed_config

    if mlflow is not None:
        from sparkgpu.predict.mlflow_model import check_mlflow, log_run

        check_mlflow(mlflow)
    options = keyed(
        source=source, valid=valid, test=test, target=target.split(",") if target else None, task=task,
        gpus=gpus, cpu_lanes=cpu_lanes, repeats=repeats, strategy=strategy, preset=preset, also=also or None,
        time_limit=time_limit, search=search, metric=metric, intervals=intervals, groups=groups or None,
    )  # fmt: skip
    if resume:
        if config is not None:
            raise ConfigError(
                f"--resume and --config {config}: a resumed run keeps its own settings; leave one out."
            )
        resolved = resumed_config(out, options, assignments or ())
    else:
        resolved = toml.load(file=config, options=options, assignments=assignments or ())
    advice = None
    if predicted and not (resume or dry_run):
        from sparkgpu.ops.advise.command import predicted_of

        advice = predicted_of(resolved, quiet or as_json, out)
    # What a user sees at the prompt, with the start of Python and the advice.
    passed_s = time.time() - psutil.Process().create_time()
    # With --json, standard output is for the result alone.
    aside = redirect_stdout(sys.stderr) if as_json else nullcontext()
    with aside, open_display(quiet, passed_s=passed_s) as display:
        outcome = orchestrate.run(resolved, display, out=out, dry_run=dry_run, resume=resume, advice=advice)
    if as_json and dry_run:
        typer.echo(outcome.plan.model_dump_json(indent=2))
    elif as_json:
        found = outcome.paths.targets_index if outcome.targets else outcome.paths.metrics
        typer.echo(found.read_text(encoding="utf-8"), nl=False)
    if mlflow is not None and not dry_run:
        for paths in outcome.targets.values() or (outcome.paths,):
            typer.echo(f"mlflow  {log_run(paths.root, mlflow)} at {mlflow}", err=as_json)
    raise typer.Exit(outcome.exit_code)
