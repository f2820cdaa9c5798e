"""``sparkgpu report``, ``monitor``, ``compare`` and ``schema``: what runs have found."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Literal

import typer

from sparkgpu.core.config.command_options import AsJson
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.words import clean
from sparkgpu.present.terminal.spool import say


def report(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a run.")],
    as_json: AsJson = False,
) -> None:
    """Rebuild the report of a run from its folder alone; what it lacks is made."""
    from sparkgpu.core.rundir.paths import RunPaths
    from sparkgpu.runs.reporting import make_report

    if not run_dir.is_dir():
        raise ConfigError(f"{run_dir}: there is no such folder. Give the folder of a run.")
    page, notes = make_report(RunPaths(root=run_dir.resolve()), full=True)
    for note in notes:
        say(f"sparkgpu: note: {clean(note)}\n", sys.stderr)
    typer.echo(json.dumps({"page": str(page), "notes": notes}, indent=2) if as_json else page)


def monitor(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a run, from this or another machine.")],
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the result and errors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Attach to a run from another terminal; it ends with the run's result and exit code."""
    from sparkgpu.core.rundir.paths import RunPaths
    from sparkgpu.present.terminal.monitor import attach

    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        code = attach(run_dir, quiet=quiet)
    if as_json and (found := RunPaths(root=run_dir).metrics).is_file():
        typer.echo(found.read_text(encoding="utf-8"), nl=False)
    # Not by typer's exit: its 130 would mean that this command runs lanes, and stopped them.
    sys.exit(code)


def compare(
    run_dirs: Annotated[list[Path], typer.Argument(help="The folders of two or more finished runs.")],
    out: Annotated[
        Path, typer.Option(help="The page to write; an earlier page of this command is replaced.")
    ] = Path("comparison.html"),
    as_json: AsJson = False,
) -> None:
    """Compare several runs: one leaderboard of all their models, and one page."""
    from sparkgpu.present.compare_page import compare as write

    write(run_dirs, out, as_json=as_json)


def schema(
    file: Annotated[Literal["run", "metrics"], typer.Argument(help="Of run.toml, or of metrics.json.")],
) -> None:
    """Print a JSON Schema: of the configuration for editors, or of the results for programs."""
    from sparkgpu.core.config.toml import run_schema
    from sparkgpu.core.rundir.metrics_json import metrics_schema

    typer.echo(run_schema() if file == "run" else metrics_schema(), nl=False)
